// One block: everything that is known about it, beside the open view.

import { ask } from "./api.js";
import { copy, el, refill } from "./dom.js";
import { colorOf, ground } from "./palette.js";
import { WHOLE, set, state } from "./state.js";
import { clipped, duration, exactly, number, place, size } from "./words.js";

const USERS = 0;
const RECORDERS = 2;
const known = new Map();

export async function blockFacts(r, life) {
  const key = `${r}:${life}`;
  if (!known.has(key)) {
    if (500 < known.size) known.clear();
    known.set(key, ask("block", { r, life }));
    known.get(key).catch(() => known.delete(key));
  }
  return known.get(key);
}

function stackText(facts) {
  return facts.stack.map(([file, line, name]) => `  ${file}:${line} ${name}`).join("\n");
}

function age(facts) {
  const until = facts.end === null ? "to the end" : `to ${number(facts.end)}`;
  const lasted = facts.micros === null ? "" : `, ${duration(facts.micros)}`;
  const from = facts.start === 0 ? "from before the recording" : `from event ${number(facts.start)}`;
  return `${from} ${until}${lasted}`;
}

// So many frames fit into a tip.
const IN_A_TIP = 24;

// The tip of a block: its tensor, its line, how long it lives, and its whole stack.
export function shortFacts(facts) {
  const shown = facts.stack.filter((line) => line[3] !== RECORDERS);
  const cut = shown.length - IN_A_TIP;
  return [facts.name && el("p", { class: "name" }, facts.name), facts.line && el("p", {}, clipped(place(facts.line), 160)), facts.module && el("p", { class: "quiet" }, facts.module), el("p", {}, age(facts)),
    facts.requested < facts.size ? el("p", { class: "quiet" }, `requested ${size(facts.requested)}, ${size(facts.size - facts.requested)} lost to rounding`) : null,
    shown.length ? el("ol", { class: "stack short" }, shown.slice(0, IN_A_TIP).map((line) => el("li", { class: line[3] === USERS ? "" : "library" }, clipped(place(line), 90))), 0 < cut ? el("li", {}, `… and ${number(cut)} callers: click the block`) : null) : null];
}

// Why a block has no stack, in words.
function whyNoStack(facts, scene) {
  if (!scene.stacks) return "The recording has no stacks: record with context=\"all\" and stacks=\"python\".";
  if (facts.start === 0) return "The block existed before the recorded history begins.";
  return "The thread that allocated the block ran no Python, as autograd's threads in the backward pass.";
}

// The banner of an incomplete recording.
export function damaged(begin, scene) {
  return el("p", { class: "odd damage", role: "alert" }, el("b", {}, begin), scene.damage);
}

// `key` names a category, whose hatching it then has.
export function swatch(color, key = "") {
  return el("span", { class: "swatch", style: { background: ground(color, key) }, "aria-hidden": "true" });
}

function row(label, ...value) {
  return [el("dt", {}, label), el("dd", {}, ...value)];
}

// The stack without our recorder's frames, with the code around the user's own line where the file is there.
export function frames(stack) {
  const shown = stack.filter((line) => line[3] !== RECORDERS);
  const first = shown.find((line) => line[3] === USERS);
  return el("ol", { class: "stack" }, shown.map((line) => el("li", { class: line[3] === USERS ? "" : "library" },
    el("span", { class: "where", title: place(line) }, clipped(place(line), 160)), el("span", { class: "path", title: line[0] }, clipped(line[0], 160)), line === first ? sourceOf(line) : null)));
}

function sourceOf([file, at]) {
  const node = el("pre", { class: "source", hidden: true });
  if (!file.endsWith(".py")) return node;
  ask("source", { r: state.r, file, line: at }).then(({ first, lines }) => {
    if (!lines.length) return;
    refill(node, lines.map((text, index) => el("span", { class: first + index === at ? "here" : "" }, `${String(first + index).padStart(5)}  ${text}\n`)));
    node.hidden = false;
  }, () => {});
  return node;
}

// `r` may be another recording than the one that is chosen.
export async function showBlock(node, scene, life, r = state.r) {
  const isOther = r !== state.r;
  let facts;
  try {
    facts = await blockFacts(r, life);
  } catch (error) {
    refill(node, el("p", { class: "quiet" }, error.message));
    return null;
  }
  const group = scene.groups.category[facts.category];
  refill(node,
    el("header", {},
      el("h2", {}, size(facts.size)),
      el("button", { type: "button", class: "close", title: "Deselect (Esc)", "aria-label": "Close", onclick: () => set(isOther ? { below: null } : { pin: null }) }, "×")),
    isOther ? el("p", { class: "quiet" }, `below, in ${clipped(scene.name, 60)}`) : null,
    el("p", { class: "kind" }, swatch(colorOf(group), group.key), group.name),
    facts.name && el("p", { class: "name" }, facts.name),
    el("dl", {},
      row("occupies", exactly(facts.size)),
      facts.requested !== facts.size && row("requested", exactly(facts.requested)),
      facts.requested < facts.size && row("rounding loss", exactly(facts.size - facts.requested)),
      facts.line && row("line", clipped(place(facts.line), 160)),
      row("lives", age(facts)),
      facts.step !== null && row("allocated in", `step ${number(facts.step)}`),
      facts.module && row("module", facts.module),
      row("address", el("code", {}, facts.address)),
      facts.pool && row("pool", facts.pool),
      facts.stream && !facts.pool ? row("stream", el("code", {}, String(facts.stream))) : null,
      facts.metadata && !facts.metadata.startsWith("m=") && row("metadata", facts.metadata)),
    el("h3", {}, facts.line && facts.line[4] ? "Stack that called backward(), innermost first" : "Stack, innermost first"),
    facts.stack.some((line) => line[3] !== RECORDERS) ? frames(facts.stack) : el("p", { class: "quiet" }, whyNoStack(facts, scene)),
    el("p", { class: "actions" },
      el("button", { type: "button", onclick: () => copy(`${size(facts.size)} ${group.name} ${facts.name || ""}\n${stackText(facts)}`) }, "Copy"),
      isOther ? el("button", { type: "button", title: "x", onclick: () => swap() }, "Show above") : null,
      isOther ? null : el("button", { type: "button", onclick: () => showLife(facts, scene) }, "Show its lifetime"),
      facts.line && !isOther ? el("button", { type: "button", title: "Every block of this line", onclick: () => set({ sel: `line:${facts.line[1]}:${facts.line[0]}` }) }, "Select its line") : null,
      isOther ? null : el("button", { type: "button", onclick: () => set({ at: state.at !== null && facts.start <= state.at && state.at < (facts.end ?? Infinity) ? state.at : facts.start, view: "segments" }) }, "Show its address")));
  return facts;
}

// The recording below goes above, and what is chosen in it goes with it.
export function swap() {
  if (state.with === null) return;
  set({ ...WHOLE, r: state.with, with: state.r, pin: state.below, below: state.pin, sel: state.also, also: state.sel });
}

// The timeline, so that a block's life is a third of it.
export function showLife(facts, scene) {
  const time = state.axis === "time";
  const last = time ? scene.micros : scene.events + 1;
  const from = time ? facts.start_micros : facts.start;
  const to = facts.end === null ? last : time ? facts.end_micros : facts.end;
  const margin = Math.max(4, (to - from) * 0.8);
  set({ view: "timeline", from: Math.max(0, from - margin), to: Math.min(last, to + margin), pin: facts.life, at: facts.start, low: null, top: null });
}
