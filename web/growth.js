// What `plimsoll explain` found, each finding with a way to where it shows; and memory step by step.

import { ask } from "./api.js";
import { byId, el, refill, say } from "./dom.js";
import { set, state } from "./state.js";
import { exactly, many, number, phaseName, place, size } from "./words.js";

export class GrowthView {
  constructor(scene, marks) {
    this.scene = scene;
    this.marks = marks;
    this.node = el("section", { class: "growth", "aria-label": "Growth" }, el("p", { class: "wait" }, "Looking for what is wrong…"));
    this.load();
  }

  close() {
    this.isClosed = true;
  }

  async load() {
    try {
      const { explanations } = await ask("analysis");
      if (!this.isClosed) this.fill(explanations[this.scene.file]);
    } catch (error) {
      say(error.message);
    }
  }

  fill(told) {
    const { scene, marks } = this;
    const own = told.findings.filter((it) => it.device === scene.device);
    const ooms = told.ooms.filter((it) => it.device === null || it.device === scene.device);
    refill(this.node,
      ooms.map((it) => this.oom(it)),
      marks.steps.length ? [el("h2", {}, "Step by step"), 1 < marks.steps.length ? stepChart(marks.steps, scene) : null, stepTable(marks.steps)] : null,
      el("h2", {}, own.length ? "What was found" : "Nothing was found that could be had back"),
      own.map((it) => this.finding(it)),
      scene.refusals.length && !ooms.length ? this.refused() : null,
      told.notes.length ? [el("h2", {}, "Good to know"), el("ul", { class: "notes" }, told.notes.map((it) => el("li", {}, it)))] : null);
  }

  oom(it) {
    const numbers = [["asked for", it.requested_bytes], ["allocated", it.allocated_bytes], ["reserved", it.reserved_bytes], ["free on the device", it.free_bytes], ["held and not allocated", it.slack_bytes], ["capacity", it.capacity_bytes], ["others", it.other_bytes], ["limit", it.limit_bytes]].filter(([, bytes]) => bytes !== null);
    const when = [it.step ? `step ${number(it.step)}` : null, it.phase ? phaseName(it.phase) : null, it.at ? place([it.at.file, it.at.line, it.at.function]) : null].filter(Boolean).join(", ");
    const refusal = this.scene.refusals[this.scene.refusals.length - 1];
    return el("article", { class: "card problem" },
      el("h2", {}, "It ran out of memory", when ? `: ${when}` : ""),
      el("p", {}, it.why),
      el("dl", { class: "inline" }, numbers.map(([label, bytes]) => el("div", {}, el("dt", {}, label), el("dd", { title: exactly(bytes) }, size(bytes))))),
      it.enough.length ? el("p", {}, "It would have fitted without ", it.enough.slice(0, 4).map((part, index) => [index ? ", " : "", `${size(part.bytes)} by ${part.at}`]), it.enough.length > 4 ? ", …" : "", ".") : null,
      it.remedies.length ? [el("h3", {}, "What to change"), el("ol", {}, it.remedies.slice(0, 6).map((remedy) => el("li", {}, remedy)))] : null,
      refusal ? el("p", { class: "actions" }, el("button", { type: "button", onclick: () => set({ view: "timeline", at: refusal.position, ...around(refusal.position, this.scene) }) }, "Show on the timeline"),
        el("button", { type: "button", onclick: () => set({ view: "segments", at: refusal.position }) }, "Show the holes")) : null);
  }

  // Requests that failed and did not end the program.
  refused() {
    const { refusals } = this.scene;
    const shown = refusals.slice(0, 20);
    return [el("h2", {}, "Requests that failed"), el("table", { class: "list" },
      el("thead", {}, el("tr", {}, ["event", "asked for", "free on the device", "line", ""].map((it) => el("th", { scope: "col" }, it)))),
      el("tbody", {}, shown.map((it) => el("tr", {}, el("td", {}, number(it.position)), el("td", { title: exactly(it.requested) }, size(it.requested)), el("td", {}, size(it.free)), el("td", { class: "code" }, it.line),
        el("td", {}, el("button", { type: "button", class: "link", onclick: () => set({ view: "timeline", at: it.position, ...around(it.position, this.scene) }) }, "timeline"), " · ",
          el("button", { type: "button", class: "link", onclick: () => set({ view: "segments", at: it.position }) }, "holes")))))),
      shown.length < refusals.length ? el("p", { class: "quiet" }, `… and ${number(refusals.length - shown.length)} more; the key o goes from one to the next.`) : null];
  }

  finding(it) {
    const line = it.evidence.line;
    const step = it.evidence.step && this.marks.steps.find((mark) => mark.step === it.evidence.step);
    const words = { problem: "problem", chance: "can be had back", fact: "good to know" };
    return el("article", { class: `card ${it.weight}` },
      el("h3", {}, it.title),
      el("p", { class: "kind" }, el("code", {}, it.code), " · ", words[it.weight], it.bytes ? ` · up to ${size(it.bytes)}` : "", it.count ? ` · ${number(it.count)}×` : ""),
      it.evidence.facts.length ? el("ul", { class: "evidence" }, it.evidence.facts.map((fact) => el("li", {}, fact))) : null,
      it.remedy ? el("p", {}, el("b", {}, "Change: "), it.remedy) : null,
      el("p", { class: "actions" },
        step ? el("button", { type: "button", onclick: () => this.showStep(step) }, `Show step ${number(step.step)}`) : null,
        line ? el("button", { type: "button", onclick: () => document.dispatchEvent(new CustomEvent("find", { detail: `${line.file}:${line.line}` })) }, `Find the blocks of ${place([line.file, line.line, line.function])}`) : null,
        it.code.startsWith("peak") || it.code.startsWith("fragmentation") ? el("button", { type: "button", onclick: () => set({ view: it.code.startsWith("peak") ? "peak" : "segments", at: null }) }, it.code.startsWith("peak") ? "Show the peak" : "Show the holes at the peak") : null));
  }

  showStep(step) {
    const { steps } = this.marks;
    const before = steps[steps.indexOf(step) - 1];
    const time = state.axis === "time";
    const value = (mark) => (time ? mark.micros : mark.end);
    set({ view: "timeline", from: before ? value(before) : 0, to: value(step) });
  }
}

// A window of events around a moment.
export function around(position, scene) {
  const half = Math.max(100, scene.events / 20);
  return { axis: "events", from: Math.max(0, position - half), to: Math.min(scene.events + 1, position + half), top: null };
}

// One unit of a chart is one pixel, so that its words are as large as others.
export function chartWidth() {
  return Math.max(420, byId("main").clientWidth - 36);
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child);
  return node;
}

// Peaks of each step and what it leaves, as two curves.
function stepChart(steps, scene) {
  const [width, height, left, bottom, top] = [chartWidth(), 240, 74, 26, 14];
  const most = Math.max(...steps.map((it) => it.reserved), scene.limit || 0, 1) * 1.05;
  const x = (index) => left + ((index + 0.5) / steps.length) * (width - left - 10);
  const y = (bytes) => height - bottom - (bytes / most) * (height - bottom - top);
  const path = (value) => steps.map((it, index) => `${index ? "L" : "M"}${x(index).toFixed(1)},${y(value(it)).toFixed(1)}`).join("");
  const tick = 2 ** Math.ceil(Math.log2(most / 5));
  const ticks = [];
  for (let bytes = 0; bytes <= most; bytes += tick) ticks.push(bytes);
  const every = Math.ceil(steps.length / 12);
  const curves = [["reserved", (it) => it.reserved, "reserved"], ["peak of the step", (it) => it.allocated, "allocated"], ["kept after it", (it) => it.after, "after"]];
  return el("figure", {},
    svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `Peak of each of ${steps.length} steps` },
      ticks.map((bytes) => [svg("line", { x1: left, x2: width - 10, y1: y(bytes), y2: y(bytes), class: "grid" }), text(left - 8, y(bytes) + 4, bytes ? size(bytes) : "0", "end")]),
      steps.map((it, index) => (index % every ? null : text(x(index), height - 8, number(it.step), "middle"))),
      scene.limit ? svg("line", { x1: left, x2: width - 10, y1: y(scene.limit), y2: y(scene.limit), class: "limit" }) : null,
      curves.map(([, value, name]) => [svg("path", { d: path(value), class: `curve ${name}` }), steps.length < 60 ? steps.map((it, index) => svg("circle", { cx: x(index), cy: y(value(it)), r: 2.5, class: `dot ${name}` })) : null])),
    el("figcaption", {}, el("ul", { class: "legend" }, curves.map(([name, , key]) => el("li", {}, el("span", { class: `swatch line ${key}` }), name)), scene.limit ? el("li", {}, el("span", { class: "swatch line limit" }), "limit") : null)));
}

export function text(x, y, content, anchor) {
  const node = svg("text", { x, y, "text-anchor": anchor });
  node.textContent = content;
  return node;
}

function stepTable(steps) {
  const shown = steps.length <= 12 ? steps : [...steps.slice(0, 4), null, ...steps.slice(-4)];
  return el("details", { open: steps.length === 1 }, el("summary", {}, `The numbers of ${many(steps.length, "step")}`),
    el("table", { class: "list" }, el("thead", {}, el("tr", {}, ["step", "allocated at most", "reserved at most", "kept after"].map((it) => el("th", { scope: "col" }, it)))),
      el("tbody", {}, shown.map((it) => (it === null ? el("tr", {}, el("td", { colSpan: 4 }, `… ${number(steps.length - 8)} more …`)) : el("tr", {}, el("td", {}, number(it.step), it.unfinished ? " (not finished)" : ""), [it.allocated, it.reserved, it.after].map((bytes) => el("td", { title: exactly(bytes) }, size(bytes)))))))));
}
