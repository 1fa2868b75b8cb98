// What differs between two moments: of one recording, or of two that are shown together.

import { ask } from "./api.js";
import { swatch } from "./details.js";
import { el, refill, say, stacks } from "./dom.js";
import { categoryColor } from "./palette.js";
import { set, state } from "./state.js";
import { clipped, exactly, number, place, size } from "./words.js";

const SHOWN = 60;
// So many rows fit above two pictures.
const FIRST = 3;

export function signed(bytes) {
  return bytes > 0 ? `+${size(bytes)}` : size(bytes);
}

function amount([bytes, blocks]) {
  return blocks ? `${size(bytes)} (${number(blocks)}×)` : "–";
}

// `light` is called with a row that is chosen.
export function changesTable(rows, groups, before, after, light = null, most = SHOWN) {
  const group = (key) => groups.find((it) => it.key === key) || groups[0];
  return differences(["line", "category"], before, after, rows.map((it) => ({
    cells: [nameOf(it, light), [swatch(categoryColor(it.category), it.category), group(it.category).name]],
    before: it.before,
    after: it.after,
    sel: light ? selectionsOf(it, groups) : null,
  })), most);
}

// The line; where the other recording calls it something else, that too.
function nameOf(it, light) {
  const words = clipped(place(it.line), 90);
  const name = light ? el("button", { type: "button", class: "link", title: "Highlight these blocks in both", onclick: () => light(it) }, words) : words;
  return el("span", { class: "code", title: it.line ? it.line[0] : "" }, name, it.renamed ? el("small", { class: "quiet", title: it.renamed[0] }, ` there ${clipped(place(it.renamed), 60)}`) : null);
}

// What selects the blocks of a row in either recording; nothing selects none.
export function selectionsOf({ owners, category }, groups) {
  const index = groups.findIndex((it) => it.key === category);
  const of = (owner) => (owner === null ? "lives:" : `owner:${owner}:${index}`);
  return { sel: of(owners[0]), also: of(owners[1]) };
}

// What differs, the largest difference first.
export function differences(headings, before, after, rows, most = SHOWN) {
  const by = (it) => it.after[0] - it.before[0];
  const differing = rows.filter((it) => by(it) || it.before[1] !== it.after[1]).sort((a, b) => Math.abs(by(b)) - Math.abs(by(a)));
  if (!differing.length) return el("p", { class: "quiet" }, "No differences.");
  const shown = differing.slice(0, most);
  return [el("div", { class: "scroll" }, stacks(el("table", { class: "list changes" },
    el("thead", {}, el("tr", {}, [...headings, before, after, "difference"].map((it) => el("th", { scope: "col", title: it }, clipped(it, 40))))),
    el("tbody", {}, shown.map((it) => el("tr", { "data-sel": it.sel?.sel, "data-also": it.sel?.also },
      it.cells.map((cell) => el("td", {}, cell)),
      el("td", {}, amount(it.before)),
      el("td", {}, amount(it.after)),
      el("td", { class: by(it) > 0 ? "more" : "less", title: exactly(by(it)) }, signed(by(it))))))))),
  SHOWN <= most && shown.length < differing.length ? el("p", { class: "quiet" }, `… and ${number(differing.length - shown.length)} smaller differences.`) : null];
}

// What differs between two recordings that are shown together: at the moment that is shown, else at their peaks.
export class Differs {
  constructor(scene, second) {
    this.scene = scene;
    this.second = second;
    this.all = false;
    this.node = el("section", { class: "differs", "aria-label": "What differs" }, el("p", { class: "wait" }, "Comparing…"));
  }

  // `there` is the moment of the other recording that `state.at` is.
  async load(there) {
    const asked = `${state.r} ${state.with} ${state.at} ${there}`;
    if (this.asked === asked) return;
    this.asked = asked;
    const isPeak = state.at === null;
    try {
      const [position, position_] = isPeak ? ["peak", "peak"] : [state.at, there];
      const { rows } = await ask("changes", { r: state.r, position, other: state.with, with: position_ });
      if (this.asked !== asked) return;
      this.told = { rows, isPeak, at: state.at, there };
      this.fill();
    } catch (error) {
      say(error.message);
    }
  }

  fill() {
    const { scene, second } = this;
    const { rows, isPeak, at, there } = this.told;
    const total = rows.reduce((sum, it) => sum + it.after[0] - it.before[0], 0);
    const n = rows.filter((it) => it.after[0] !== it.before[0] || it.before[1] !== it.after[1]).length;
    const name = clipped(second.name, 60);
    const where = isPeak ? `at the peak of ${name}, below, ${total ? "than" : "as"} at the peak above` : `below, at event ${number(there)}, ${total ? "than" : "as"} above, at event ${number(at)}`;
    const groups = scene.groups.category;
    const light = (row) => {
      const of = selectionsOf(row, groups);
      set(state.sel === of.sel && state.also === of.also ? { sel: "", also: "", pin: null, below: null } : { ...of, pin: null, below: null });
    };
    refill(this.node,
      el("p", { class: "lead" }, el("b", { title: exactly(total) }, total ? `${size(Math.abs(total))} ${total < 0 ? "less" : "more"}` : "As much"), ` allocated ${where}. `,
        second.told ?? ""),
      changesTable(rows, groups, "above", "below", light, this.all ? SHOWN : FIRST),
      FIRST < n ? el("button", { type: "button", class: "link", onclick: () => { this.all = !this.all; this.fill(); } }, this.all ? "Show fewer" : `Show all ${number(n)} differences`) : null);
    this.mark();
  }

  // Which row is lit.
  mark() {
    for (const row of this.node.querySelectorAll("tr[data-sel]")) row.classList.toggle("chosen", row.dataset.sel === state.sel && row.dataset.also === state.also);
  }
}
