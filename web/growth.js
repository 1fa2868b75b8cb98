// Memory step by step, and the requests that failed.

import { ask, askWindow } from "./api.js";
import { chartWidth, svg, text } from "./charts.js";
import { el, prose, refill, stacks } from "./dom.js";
import { failed } from "./peak.js";
import { saveChart } from "./picture.js";
import { signed } from "./differs.js";
import { set, state } from "./state.js";
import { clipped, exactly, finely, limitName, many, number, phaseName, place, size } from "./words.js";

// Stretches of phases that are asked for, and how many at a time.
const MOST_STRETCHES = 200, AT_ONCE = 6;

export class GrowthView {
  constructor(scene, marks) {
    this.scene = scene;
    this.marks = marks;
    this.node = el("section", { class: "growth", "aria-label": "Growth" }, el("p", { class: "wait" }, "Reading the steps…"));
    this.phases = el("div", {}, el("p", { class: "wait" }, "Reading the phases…"));
    this.load();
    if (marks.steps.length === 1) this.loadPhases();
  }

  // Of the only step: the fullest moment of each of its phases, which may come several times.
  async loadPhases() {
    const { scene, marks } = this;
    const stretches = marks.phases.slice(0, MOST_STRETCHES);
    try {
      const parts = [];
      while (parts.length < stretches.length) {
        const next = stretches.slice(parts.length, parts.length + AT_ONCE);
        parts.push(...await Promise.all(next.map(([from, to]) => askWindow({ r: state.r, axis: "events", from, to, columns: 1, least: 2 ** 60, by: "category" }))));
        if (this.isClosed) return;
      }
      const rows = new Map();
      stretches.forEach(([, , , , phase], index) => {
        const [at, allocated, reserved] = [parts[index].positions[0], parts[index].allocated[0], parts[index].reserved[0]];
        const row = rows.get(phase) || { at, allocated, reserved };
        rows.set(phase, { at: row.allocated < allocated ? at : row.at, allocated: Math.max(row.allocated, allocated), reserved: Math.max(row.reserved, reserved) });
      });
      refill(this.phases, rows.size ? el("table", { class: "list" }, el("thead", {}, el("tr", {}, ["phase", "allocated at most", "reserved at most"].map((it) => el("th", { scope: "col" }, it)))),
        el("tbody", {}, [...rows].map(([phase, row]) => el("tr", {}, el("td", {}, el("button", { type: "button", class: "link", title: "What was live then", onclick: () => set({ view: "peak", at: Math.min(row.at, scene.events) }) }, phaseName(phase))), [row.allocated, row.reserved].map((bytes) => el("td", { title: exactly(bytes) }, size(bytes))))))) : el("p", { class: "quiet" }, "This recording has no phases."));
    } catch (error) {
      refill(this.phases, el("p", { class: "bad" }, error.message));
    }
  }

  // What grows, as the findings say it.
  growing(it) {
    const { line } = it.evidence;
    return el("p", {}, el("b", { class: it.weight === "problem" ? "bad" : "" }, `+${size(it.per_step_bytes)} a step`), ` ${clipped(it.title, 200)}`,
      line ? [" at ", el("button", { type: "button", class: "link", title: "Show its blocks on the timeline", onclick: () => set({ view: "timeline", sel: `finding:${it.index}`, pin: null, from: null, to: null, low: null, top: null }) }, place([line.file, line.line, line.function]))] : "", ".");
  }

  close() {
    this.isClosed = true;
  }

  async load() {
    try {
      const { explanations } = await ask("analysis");
      if (!this.isClosed) this.fill(explanations[this.scene.file]);
    } catch (error) {
      failed(this.node, error, () => this.load());
    }
  }

  fill(analysis) {
    const { scene, marks } = this;
    const chart = 1 < marks.steps.length ? stepChart(marks.steps, scene) : null;
    const ended = marks.steps.filter((it) => it.after !== null);
    const own = analysis.findings.map((it, index) => ({ ...it, index })).filter((it) => it.device === scene.device && it.per_step_bytes);
    refill(this.node,
      marks.steps.length ? [el("div", { class: "controls" }, el("h2", {}, "Step by step"), chart ? el("button", { type: "button", title: "As an SVG", onclick: () => saveChart(chart.querySelector("svg"), `${scene.name}-steps`) }, "Save picture") : null), growthLine(ended), own.map((it) => this.growing(it)), 1 < ended.length ? afterChart(ended) : null, chart, stepTable(marks.steps, scene)] : el("p", {}, "This recording does not show where steps begin and end."),
      marks.steps.length === 1 ? [el("p", { class: "quiet" }, "With one step there is no later one to compare it with; its phases:"), this.phases] : null,
      scene.refusals.length ? this.refused() : null,
      analysis.notes.length ? [el("h2", {}, "Notes"), el("ul", { class: "notes" }, analysis.notes.map((it) => el("li", {}, prose(it))))] : null);
  }

  // Requests that failed and did not end the program.
  refused() {
    const { refusals } = this.scene;
    const shown = refusals.slice(0, 20);
    return [el("h2", {}, "Requests that failed"), stacks(el("table", { class: "list" },
      el("thead", {}, el("tr", {}, ["event", "asked for", "free on the device", "line", ""].map((it) => el("th", { scope: "col" }, it)))),
      el("tbody", {}, shown.map((it) => el("tr", {}, el("td", {}, number(it.position)), el("td", { title: exactly(it.requested) }, size(it.requested)), el("td", {}, size(it.free)), el("td", { class: "code" }, it.line),
        el("td", {}, el("button", { type: "button", class: "link", onclick: () => set({ view: "timeline", at: it.position, ...around(it.position, this.scene) }) }, "timeline"), " · ",
          el("button", { type: "button", class: "link", onclick: () => set({ view: "segments", at: it.position }) }, "holes"))))))),
      shown.length < refusals.length ? el("p", { class: "quiet" }, `… and ${number(refusals.length - shown.length)} more; the key o shows the next.`) : null];
  }

}

// A window of events around a moment.
export function around(position, scene) {
  const half = Math.max(100, scene.events / 20);
  return { axis: "events", from: Math.max(0, position - half), to: Math.min(scene.events + 1, position + half), low: null, top: null };
}

// The whole of it in a sentence.
function growthLine(ended) {
  if (ended.length < 2) return null;
  const [first, last] = [ended[0], ended[ended.length - 1]];
  const more = last.after - first.after;
  // The first step brings what arrives once, such as the optimizer's states.
  const since = 2 < ended.length ? ended[1] : first;
  const slope = Math.round((last.after - since.after) / (last.step - since.step || 1));
  return el("p", { class: "lead" }, `After step ${number(first.step)} ${size(first.after)} stayed allocated, after step ${number(last.step)} ${size(last.after)}: `, el("b", { title: exactly(more) }, `${more < 0 ? "" : "+"}${size(more)}`), "; since step ", number(since.step), ", ",
    el("b", { class: 0 < slope ? "bad" : "good", title: exactly(slope) }, slope === 0 ? "no growth" : `${signed(slope)} a step on average`), ".");
}

// What stays after each step, at a scale that shows how it changes.
function afterChart(ended) {
  const values = ended.map((it) => it.after);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) return null;
  const [width, height, left, bottom, top] = [chartWidth(), 150, 92, 26, 12];
  const x = (index) => left + ((index + 0.5) / ended.length) * (width - left - 10);
  const y = (bytes) => height - bottom - ((bytes - low) / (high - low)) * (height - bottom - top);
  const path = values.map((bytes, index) => `${index ? "L" : "M"}${x(index).toFixed(1)},${y(bytes).toFixed(1)}`).join("");
  const every = Math.ceil(ended.length / 12);
  const step = (high - low) / 3;
  return el("figure", {},
    svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `Allocated after each of ${ended.length} steps, from ${size(low)} to ${size(high)}` },
      [0, 1, 2, 3].map((it) => low + it * step).map((bytes) => [svg("line", { x1: left, x2: width - 10, y1: y(bytes), y2: y(bytes), class: "grid" }), text(left - 8, y(bytes) + 4, finely(Math.round(bytes), step), "end")]),
      ended.map((it, index) => (index % every ? null : text(x(index), height - 8, number(it.step), "middle"))),
      svg("path", { d: path, class: "curve after" })),
    el("figcaption", {}, el("ul", { class: "legend" }, el("li", {}, el("span", { class: "swatch line after" }), "after the step, from its least to its most"))));
}

// Peaks of each step and what it leaves, as two curves.
function stepChart(steps, scene) {
  const [width, height, left, bottom, top] = [chartWidth(), 240, 74, 26, 14];
  const most = Math.max(...steps.map((it) => Math.max(it.reserved, it.allocated)), scene.limit || 0, 1) * 1.05;
  const x = (index) => left + ((index + 0.5) / steps.length) * (width - left - 10);
  const y = (bytes) => height - bottom - (bytes / most) * (height - bottom - top);
  const places = (value) => steps.map((it, index) => [x(index), value(it)]).filter(([, bytes]) => bytes !== null);
  const path = (value) => places(value).map(([at, bytes], index) => `${index ? "L" : "M"}${at.toFixed(1)},${y(bytes).toFixed(1)}`).join("");
  const tick = 2 ** Math.ceil(Math.log2(most / 5));
  const ticks = [];
  for (let bytes = 0; bytes <= most; bytes += tick) ticks.push(bytes);
  const every = Math.ceil(steps.length / 12);
  const curves = [["reserved", (it) => it.reserved, "reserved"], ["peak of the step", (it) => it.allocated, "allocated"], ["after the step", (it) => it.after, "after"]];
  return el("figure", {},
    svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `Peak of each of ${steps.length} steps` },
      ticks.map((bytes) => [svg("line", { x1: left, x2: width - 10, y1: y(bytes), y2: y(bytes), class: "grid" }), text(left - 8, y(bytes) + 4, bytes ? size(bytes) : "0", "end")]),
      steps.map((it, index) => (index % every ? null : text(x(index), height - 8, number(it.step), "middle"))),
      scene.limit ? svg("line", { x1: left, x2: width - 10, y1: y(scene.limit), y2: y(scene.limit), class: "limit" }) : null,
      curves.map(([, value, name]) => [svg("path", { d: path(value), class: `curve ${name}` }), steps.length < 60 ? places(value).map(([at, bytes]) => svg("circle", { cx: at, cy: y(bytes), r: 2.5, class: `dot ${name}` })) : null])),
    el("figcaption", {}, el("ul", { class: "legend" }, curves.map(([name, , key]) => el("li", {}, el("span", { class: `swatch line ${key}` }), name)), scene.limit ? el("li", {}, el("span", { class: "swatch line limit" }), limitName(scene)) : null)));
}

// What stayed after this step and not after the one before it.
function differenceCell(steps, it) {
  const earlier = steps[steps.indexOf(it) - 1];
  if (!earlier || it.after === null || earlier.after === null) return el("td", {}, "–");
  const more = it.after - earlier.after;
  return el("td", { class: 0 < more ? "more" : "", title: exactly(more) }, more ? signed(more) : "0");
}

function stepTable(steps, scene) {
  const shown = steps.length <= 12 ? steps : [...steps.slice(0, 4), null, ...steps.slice(-4)];
  return el("details", { open: steps.length <= 12 }, el("summary", {}, `The numbers of ${many(steps.length, "step")}`),
    el("table", { class: "list" }, el("thead", {}, el("tr", {}, ["step", "allocated at most", "reserved at most", "after step", "difference"].map((it) => el("th", { scope: "col" }, it)))),
      el("tbody", {}, shown.map((it) => (it === null ? el("tr", {}, el("td", { colSpan: 5 }, `… ${number(steps.length - 8)} more …`)) : el("tr", {}, el("td", {}, el("button", { type: "button", class: "link", title: "What was live at its peak", onclick: () => set({ view: "peak", at: Math.min(it.peak, scene.events) }) }, number(it.step)), it.unfinished ? " (not finished)" : ""), [it.allocated, it.reserved, it.after].map((bytes) => el("td", bytes === null ? {} : { title: exactly(bytes) }, bytes === null ? "–" : size(bytes))), differenceCell(steps, it)))))));
}
