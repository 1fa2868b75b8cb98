// Which moment is shown, and the controls that choose one: the same in every view that shows one.

import { el } from "./dom.js";
import { set, state } from "./state.js";
import { duration, exactly, many, number, phaseName, size } from "./words.js";

// The chosen moment; else the peak, and in the map where a request failed, because there the holes matter.
export function momentShown(scene) {
  const last = scene.refusals[scene.refusals.length - 1];
  const usual = state.view === "segments" && last ? last.position : scene.peak_position;
  return Math.min(state.at ?? usual, scene.events);
}

export function momentControls(scene, marks, position) {
  const go = (label, to, title) => el("button", { type: "button", title, disabled: to === null, "aria-pressed": String(to === position), onclick: () => set({ at: to }) }, label);
  const refusal = scene.refusals.find((it) => position < it.position) || scene.refusals[0];
  const input = el("input", { type: "number", min: 0, max: scene.events, value: position, "aria-label": "Event", onchange: (event) => set({ at: Math.max(0, Math.min(scene.events, Number(event.target.value))) }) });
  return el("span", { class: "buttons" },
    go("Peak", scene.peak_position, "When most was allocated (p)"),
    refusal ? go("Out of memory", refusal.position, "When a request failed (o)") : null,
    go("End", scene.events, "After the last event"),
    marks.steps.length ? [go("◂ step", stepEnd(marks, position, -1), "The end of the step before ([)"), go("step ▸", stepEnd(marks, position, 1), "The end of the step after (])"), stepChoice(marks, position)] : null,
    el("label", { class: "event" }, "event ", input, ` of ${number(scene.events)}`));
}

// The moment after a step: what is allocated then stays after it.
export function afterStep(step) {
  return step.end - 1;
}

// A moment in words: by its step, where it has one.
export function momentName(marks, position) {
  const after = marks.steps.find((it) => !it.unfinished && afterStep(it) === position);
  if (after) return `after step ${number(after.step)}`;
  const peak = marks.steps.find((it) => it.peak === position);
  return peak ? `the peak of step ${number(peak.step)}` : `event ${number(position)}`;
}

// The moment after the step before or after a moment; null where there is none.
export function stepEnd(marks, position, direction) {
  const ends = marks.steps.map(afterStep);
  return (direction < 0 ? [...ends].reverse().find((it) => it < position) : ends.find((it) => position < it)) ?? null;
}

function stepChoice(marks, position) {
  const shown = marks.steps.length <= 400 ? marks.steps : marks.steps.filter((_, index) => index < 200 || marks.steps.length - 200 <= index);
  return el("select", { "aria-label": "Peak of a step", title: "When most was allocated in a step", onchange: (event) => { if (event.target.value !== "") set({ at: Number(event.target.value) }); } },
    el("option", { value: "" }, "peak of step …"),
    shown.map((it) => el("option", { value: it.peak, selected: it.peak === position }, `peak of step ${number(it.step)}: ${size(it.allocated)}`)));
}

export function momentTitle(moment) {
  const when = [moment.step ? `step ${number(moment.step)}` : null, moment.phase ? phaseName(moment.phase) : null, moment.micros ? `${duration(moment.micros)} after the first event` : null].filter(Boolean).join(", ");
  return el("p", { class: "lead" }, el("b", { title: exactly(moment.allocated) }, size(moment.allocated)), ` allocated in ${many(moment.blocks, "block")}, `, el("b", { title: exactly(moment.reserved) }, size(moment.reserved)), " reserved", when ? ` · ${when}` : "");
}
