// Recordings side by side, and the differences between two of them at their peaks.

import { ask } from "./api.js";
import { damaged } from "./details.js";
import { changesTable, selectionsOf, signed } from "./differs.js";
import { el, prose, refill, say, stacks } from "./dom.js";
import { WHOLE, set } from "./state.js";
import { clipped, exactly, number, size } from "./words.js";

export function sceneName(scene) {
  const rank = scene.rank === null ? "" : `rank ${scene.rank} · `;
  const device = scene.device || 1 < scene.devices ? `device ${scene.device} · ` : "";
  return `${rank}${device}${clipped(scene.name, 70)}`;
}

export class RanksView {
  constructor(scenes) {
    this.scenes = scenes;
    // The two that are farthest apart; what is alike needs no look.
    const order = scenes.map((_, index) => index).sort((a, b) => scenes[a].peak_allocated - scenes[b].peak_allocated || a - b);
    this.pair = [order[0], order[order.length - 1]];
    this.node = el("section", { class: "ranks", "aria-label": "Ranks" });
    this.result = el("div");
    const most = Math.max(1, ...scenes.map((it) => Math.max(it.peak_reserved, it.peak_allocated)));
    const choose = (side) => el("select", { "aria-label": side ? "and" : "Between", onchange: (event) => { this.pair[side] = Number(event.target.value); this.compare(); } },
      scenes.map((it, index) => el("option", { value: index, selected: index === this.pair[side] }, sceneName(it))));
    refill(this.node,
      el("div", { class: "scroll" }, stacks(el("table", { class: "list ranklist" },
        el("thead", {}, el("tr", {}, ["recording", "allocated and reserved at most", "allocated", "reserved", "out of memory"].map((it) => el("th", { scope: "col" }, it)))),
        el("tbody", {}, scenes.map((it, index) => el("tr", {},
          el("td", {}, el("button", { type: "button", class: "link", onclick: () => set({ ...WHOLE, r: index, view: "timeline" }) }, sceneName(it))),
          el("td", { class: "wide" }, el("div", { class: "rankbar" }, el("span", { class: "reserved", style: { width: `${(100 * it.peak_reserved) / most}%` } }), el("span", { class: "allocated", style: { width: `${(100 * it.peak_allocated) / most}%` } }))),
          el("td", { title: exactly(it.peak_allocated) }, size(it.peak_allocated)),
          el("td", { title: exactly(it.peak_reserved) }, size(it.peak_reserved)),
          el("td", {}, it.refusals.length ? `${number(it.refusals.length)}×` : "–"))))))),
      el("ul", { class: "legend" }, el("li", {}, el("span", { class: "swatch rank allocated" }), "allocated at most"), el("li", {}, el("span", { class: "swatch rank reserved" }), "reserved at most")),
      scenes.map((it) => (it.damage ? damaged(`Incomplete: ${sceneName(it)}. `, it) : null)),
      1 < scenes.length ? [el("h2", {}, "Differences at the peaks"), el("div", { class: "controls" }, el("span", { class: "buttons" }, choose(0), " and ", choose(1))), this.result]
        : el("p", { class: "quiet" }, prose("One recording is open. `plimsoll view rank*.pickle` shows several side by side.")));
    if (1 < scenes.length) this.compare();
  }

  close() {
    this.isClosed = true;
  }

  async compare() {
    const [a, b] = this.pair;
    try {
      const { rows } = await ask("changes", { r: a, position: "peak", other: b, with: "peak" });
      if (this.isClosed) return;
      const together = { ...WHOLE, r: a, with: b, view: "timeline" };
      const { category } = this.scenes[a].groups;
      const total = this.scenes[b].peak_allocated - this.scenes[a].peak_allocated;
      refill(this.result, el("p", { class: "actions" }, el("button", { type: "button", onclick: () => set(together) }, "Both on one timeline, step by step")), el("p", { class: "lead" }, el("b", {}, signed(total)), ` allocated at the peak of ${sceneName(this.scenes[b])}, compared with ${sceneName(this.scenes[a])}`),
        changesTable(rows, category, sceneName(this.scenes[a]), sceneName(this.scenes[b]), (row) => set({ ...together, ...selectionsOf(row, category) })));
    } catch (error) {
      say(error.message);
    }
  }
}
