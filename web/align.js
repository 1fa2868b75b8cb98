// Maps the moments of one recording to those of another: step by step, as far as both have steps.

import { many, number, size } from "./words.js";

// `own` and `theirs` are marks with the end of their recording, on the axis that is shown.
export function aligned(own, theirs, isTime) {
  const ends = ({ marks, end }) => [0, ...marks.steps.map((it) => Math.min(end, isTime ? it.micros : it.end)), end];
  const [a, b] = [ends(own), ends(theirs)];
  const n = Math.min(a.length, b.length);
  // What comes after the last step of both lies up to the end of both.
  const [here, there] = [a, b].map((it) => [...it.slice(0, n - 1), it[it.length - 1]]);
  return { toOwn: (at) => inOther(at, there, here), toTheirs: (at) => inOther(at, here, there) };
}

function inOther(at, from, to) {
  let [low, high] = [1, from.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (from[middle] <= at) low = middle + 1; else high = middle;
  }
  const wide = from[low] - from[low - 1];
  const share = wide ? Math.max(0, Math.min(1, (at - from[low - 1]) / wide)) : 0;
  return to[low - 1] + share * (to[low] - to[low - 1]);
}

// The first step in which two recordings differ, in words.
export function differing(own, theirs, name) {
  const n = Math.min(own.length, theirs.length);
  if (!n) return "";
  const at = own.findIndex((it, index) => index < n && it.allocated !== theirs[index].allocated);
  if (at < 0) return `In ${many(n, "step")} the peaks are the same as in ${name}.`;
  const by = theirs[at].allocated - own[at].allocated;
  const alike = at ? `Up to step ${number(own[at].step - 1)} both have the same peaks; in step ${number(own[at].step)}` : `In step ${number(own[at].step)}`;
  return `${alike} ${name} has ${size(Math.abs(by))} ${by < 0 ? "less" : "more"} at its peak.`;
}
