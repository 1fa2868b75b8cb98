// Memory step by step, and the requests that failed.

import { ask } from "./api.js";
import { chartWidth, svg, text } from "./charts.js";
import { el, prose, refill, stacks } from "./dom.js";
import { failed } from "./peak.js";
import { saveChart } from "./picture.js";
import { set } from "./state.js";
import { exactly, many, number, size } from "./words.js";

export class GrowthView {
  constructor(scene, marks) {
    this.scene = scene;
    this.marks = marks;
    this.node = el("section", { class: "growth", "aria-label": "Growth" }, el("p", { class: "wait" }, "Reading the steps…"));
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
      failed(this.node, error, () => this.load());
    }
  }

  fill(analysis) {
    const { scene, marks } = this;
    const chart = 1 < marks.steps.length ? stepChart(marks.steps, scene) : null;
    refill(this.node,
      marks.steps.length ? [el("div", { class: "controls" }, el("h2", {}, "Step by step"), chart ? el("button", { type: "button", title: "As an SVG", onclick: () => saveChart(chart.querySelector("svg"), `${scene.name}-steps`) }, "Save picture") : null), chart, stepTable(marks.steps, scene)] : el("p", {}, "This recording does not show where steps begin and end."),
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
  // A step that did not end has no value after it.
  const after = (it) => (it.unfinished ? null : it.after);
  const curves = [["reserved", (it) => it.reserved, "reserved"], ["peak of the step", (it) => it.allocated, "allocated"], ["after the step", after, "after"]];
  return el("figure", {},
    svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `Peak of each of ${steps.length} steps` },
      ticks.map((bytes) => [svg("line", { x1: left, x2: width - 10, y1: y(bytes), y2: y(bytes), class: "grid" }), text(left - 8, y(bytes) + 4, bytes ? size(bytes) : "0", "end")]),
      steps.map((it, index) => (index % every ? null : text(x(index), height - 8, number(it.step), "middle"))),
      scene.limit ? svg("line", { x1: left, x2: width - 10, y1: y(scene.limit), y2: y(scene.limit), class: "limit" }) : null,
      curves.map(([, value, name]) => [svg("path", { d: path(value), class: `curve ${name}` }), steps.length < 60 ? places(value).map(([at, bytes]) => svg("circle", { cx: at, cy: y(bytes), r: 2.5, class: `dot ${name}` })) : null])),
    el("figcaption", {}, el("ul", { class: "legend" }, curves.map(([name, , key]) => el("li", {}, el("span", { class: `swatch line ${key}` }), name)), scene.limit ? el("li", {}, el("span", { class: "swatch line limit" }), "limit") : null)));
}

function stepTable(steps, scene) {
  const shown = steps.length <= 12 ? steps : [...steps.slice(0, 4), null, ...steps.slice(-4)];
  return el("details", { open: steps.length <= 12 }, el("summary", {}, `The numbers of ${many(steps.length, "step")}`),
    el("table", { class: "list" }, el("thead", {}, el("tr", {}, ["step", "allocated at most", "reserved at most", "after step"].map((it) => el("th", { scope: "col" }, it)))),
      el("tbody", {}, shown.map((it) => (it === null ? el("tr", {}, el("td", { colSpan: 4 }, `… ${number(steps.length - 8)} more …`)) : el("tr", {}, el("td", {}, el("button", { type: "button", class: "link", title: "What was live at its peak", onclick: () => set({ view: "peak", at: Math.min(it.peak, scene.events) }) }, number(it.step)), it.unfinished ? " (not finished)" : ""), [it.allocated, it.reserved, it.unfinished ? null : it.after].map((bytes) => el("td", bytes === null ? {} : { title: exactly(bytes) }, bytes === null ? "–" : size(bytes)))))))));
}
