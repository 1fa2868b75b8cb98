// A run in progress: its curve, its step, what named tensors take, and how far it is from a card's line.

import { ask } from "./api.js";
import { chartWidth, svg, text } from "./charts.js";
import { swatch } from "./details.js";
import { el, refill } from "./dom.js";
import { categoryColor, ground } from "./palette.js";
import { saveChart } from "./picture.js";
import { set, state } from "./state.js";
import { duration, exactly, many, number, phaseName, share, size } from "./words.js";

const EVERY = 500;
const COLUMNS = 900;
const NAMES = { parameters: "parameters", buffers: "buffers", optimizer: "optimizer state", gradients: "gradients", inputs: "inputs" };

export class LiveView {
  constructor(cards) {
    this.cards = cards;
    this.points = [];
    this.node = el("section", { class: "live", "aria-label": "A run in progress" });
    this.said = el("div", { role: "status" });
    this.picture = el("div");
    const card = el("select", { "aria-label": "Card", onchange: (event) => { set({ card: event.target.value }); this.draw(); } },
      el("option", { value: "" }, "none"), cards.map((it) => el("option", { value: it.id, selected: it.id === state.card }, `${it.id} (${size(it.total)})`)));
    refill(this.node, el("p", { class: "about" }, "GPU memory of a run in another terminal. The recorder writes at the end of each phase and step; between these the run may use more."),
      el("div", { class: "controls" }, el("label", {}, "Draw the limit of a card ", card), el("button", { type: "button", title: "As an SVG", onclick: () => { const chart = this.picture.querySelector("svg"); if (chart) saveChart(chart, "plimsoll-live"); } }, "Save picture")), this.said, this.picture);
    this.follow();
  }

  close() {
    this.isClosed = true;
  }

  async follow() {
    while (!this.isClosed) {
      const start = performance.now();
      try {
        const answer = await ask("live", { from: this.points.length });
        // Another run has begun, or what was read has been thinned out.
        if (answer.from < this.points.length || (this.answer && answer.thinned !== this.answer.thinned) || (this.answer && answer.command !== this.answer.command && this.answer.command)) {
          this.points = [];
          this.answer = null;
          continue;
        }
        this.answer = answer;
        this.points.push(...answer.points);
        this.draw();
      } catch (error) {
        refill(this.said, el("p", { class: "bad" }, error.message));
      }
      await new Promise((done) => setTimeout(done, Math.max(50, EVERY - (performance.now() - start))));
    }
  }

  draw() {
    const { answer, points } = this;
    if (!answer || !points.length) {
      refill(this.said, el("p", { class: "lead" }, "No run is in progress. Start one in another terminal: ", el("code", {}, "plimsoll run -- python train.py"), ". This page shows the run at once."));
      refill(this.picture);
      return;
    }
    const pids = [...new Set(points.map((it) => it[0]))];
    const last = pids.map((pid) => points.findLast((it) => it[0] === pid));
    const [, seconds, step, phase] = last.reduce((a, b) => (a[1] < b[1] ? b : a));
    // Each process has devices of its own.
    const fullest = last.reduce((a, b) => (a[5] < b[5] ? b : a));
    const most = points.reduce((best, it) => Math.max(best, it[5]), 0);
    const card = this.cards.find((it) => it.id === state.card);
    const spare = card ? card.total - card.context - most : null;
    const named = answer.named.filter((it) => it[1]);
    const rest = fullest[4] - named.reduce((sum, it) => sum + it[1], 0);
    refill(this.said,
      el("p", { class: "lead" }, answer.over ? el("b", { class: "good" }, "The run has ended. ") : "", el("b", {}, `Step ${number(step)}`), phase ? `, ${phaseName(phase)}` : "", ` after ${duration(seconds * 1e6)}: `,
        el("b", { title: exactly(fullest[4]) }, size(fullest[4])), " allocated, ", el("b", { title: exactly(fullest[5]) }, size(fullest[5])), ` reserved, at most ${size(most)}`, 1 < pids.length ? ` in the fullest of ${many(pids.length, "process", "processes")}` : ""),
      card ? el("p", { class: spare < 0 ? "bad" : "good" }, spare < 0 ? `${size(-spare)} over the limit of ${card.id}` : `${size(spare)} below the limit of ${card.id}, ${share(spare, card.total - card.context)} of it`) : null,
      answer.ooms.map((it) => el("p", { class: "bad" }, it.split("\n")[0].slice(0, 400))),
      named.length && pids.length === 1 ? [
        el("div", { class: "bar", role: "img", "aria-label": "What it is for" }, named.map(([key, bytes]) => el("span", { title: `${NAMES[key]}: ${size(bytes)}`, style: { width: `${(100 * bytes) / Math.max(1, fullest[4])}%`, background: ground(categoryColor(key), key) } }))),
        el("ul", { class: "legend" }, named.map(([key, bytes]) => el("li", {}, swatch(categoryColor(key), key), `${NAMES[key]} ${size(bytes)}`)), 0 < rest ? el("li", {}, el("span", { class: "swatch slack" }), `activations and the rest ${size(rest)}`) : null)] : null,
      el("p", { class: "quiet code" }, answer.command));
    refill(this.picture, this.chart(fullest[0], card));
  }

  // The fullest process; each column is the largest in it.
  chart(pid, card) {
    const own = this.points.filter((it) => it[0] === pid);
    const [width, height, left, bottom, top] = [chartWidth(), 380, 74, 26, 14];
    const end = Math.max(0.001, own[own.length - 1][1]);
    const line = card ? card.total - card.context : 0;
    const most = own.reduce((best, it) => Math.max(best, it[5]), 1);
    const high = (line && line < most * 3 ? Math.max(line, most) : most) * 1.06;
    const x = (at) => left + (at / end) * (width - left - 10);
    const y = (bytes) => height - bottom - (bytes / high) * (height - bottom - top);
    const path = (index) => {
      const columns = new Map();
      for (const it of own) {
        const at = Math.floor((it[1] / end) * COLUMNS);
        if (!columns.has(at) || columns.get(at)[index] < it[index]) columns.set(at, it);
      }
      return [...columns.values()].map((it, at) => `${at ? "L" : "M"}${x(it[1]).toFixed(1)},${y(it[index]).toFixed(1)}`).join("");
    };
    const tick = 2 ** Math.ceil(Math.log2(high / 6));
    const ticks = [];
    for (let bytes = 0; bytes <= high; bytes += tick) ticks.push(bytes);
    return el("figure", {},
      svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": "Allocated and reserved over time" },
        ticks.map((bytes) => [svg("line", { x1: left, x2: width - 10, y1: y(bytes), y2: y(bytes), class: "grid" }), text(left - 8, y(bytes) + 4, bytes ? size(bytes) : "0", "end")]),
        line && line <= high ? [svg("line", { x1: left, x2: width - 10, y1: y(line), y2: y(line), class: "limit" }), text(left + 6, y(line) - 5, `${card.id} without context: ${size(line)}`, "start")] : null,
        svg("path", { d: path(5), class: "curve reserved" }), svg("path", { d: path(4), class: "curve allocated" }),
        text(width - 12, height - 8, `${duration(end * 1e6)}`, "end"), text(left, height - 8, "0", "start")),
      el("figcaption", {}, el("ul", { class: "legend" }, el("li", {}, el("span", { class: "swatch line reserved" }), "reserved"), el("li", {}, el("span", { class: "swatch line allocated" }), "allocated"))));
  }
}
