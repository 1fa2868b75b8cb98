// What was live at one moment, and what changed between two.

import { ask, carriedMoments, isOneFile } from "./api.js";
import { swatch } from "./details.js";
import { el, refill, say } from "./dom.js";
import { Flame, treeOf } from "./flame.js";
import { colorOf } from "./palette.js";
import { set, state } from "./state.js";
import { duration, exactly, many, number, phaseName, place, share, size } from "./words.js";

// The moment that is shown: the chosen one, else `usual`; in a page in one file, the nearest it has.
export function momentShown(scene, usual = scene.peak_position) {
  const wanted = state.at ?? usual;
  const carried = carriedMoments(state.r);
  if (!carried || !carried.length) return wanted;
  return carried.reduce((best, it) => (Math.abs(it - wanted) < Math.abs(best - wanted) ? it : best));
}

// Buttons that choose a moment, the same in every view that shows one.
export function momentControls(scene, marks, position) {
  const go = (label, to, title) => el("button", { type: "button", title, disabled: to === null, "aria-pressed": String(to === position), onclick: () => set({ at: to }) }, label);
  const ends = marks.steps.map((it) => Math.min(it.end, scene.events));
  const before = [...ends].reverse().find((it) => it < position) ?? null;
  const after = ends.find((it) => position < it) ?? null;
  const refusal = scene.refusals.find((it) => position < it.position) || scene.refusals[0];
  const input = el("input", { type: "number", min: 0, max: scene.events, value: position, "aria-label": "Event", onchange: (event) => set({ at: Math.max(0, Math.min(scene.events, Number(event.target.value))) }) });
  return el("span", { class: "buttons" },
    go("Peak", scene.peak_position, "When most was allocated (p)"),
    refusal ? go("Out of memory", refusal.position, "When a request failed (o)") : null,
    go("End", scene.events, "After the last event"),
    ends.length ? [go("◂ step", before, "The end of the step before ([)"), go("step ▸", after, "The end of the step after (])")] : null,
    el("label", { class: "event" }, "event ", input, ` of ${number(scene.events)}`));
}

export function momentTitle(moment) {
  const when = [moment.step ? `step ${number(moment.step)}` : null, moment.phase ? phaseName(moment.phase) : null, moment.micros ? `${duration(moment.micros)} after the first event` : null].filter(Boolean).join(", ");
  return el("p", { class: "lead" }, el("b", { title: exactly(moment.allocated) }, size(moment.allocated)), ` allocated in ${many(moment.blocks, "block")}, `, el("b", { title: exactly(moment.reserved) }, size(moment.reserved)), " reserved", when ? ` · ${when}` : "");
}

export class PeakView {
  constructor(scene, marks) {
    this.scene = scene;
    this.marks = marks;
    this.tree = "stacks";
    this.differ = "line";
    this.hide = true;
    this.node = el("section", { class: "peak", "aria-label": "Peak" }, el("p", { class: "wait" }, "Reading the moment…"));
    this.flame = new Flame();
    this.load();
  }

  close() {
    this.isClosed = true;
  }

  async load() {
    const { scene } = this;
    const position = momentShown(scene);
    try {
      const moment = await ask("moment", { r: state.r, position });
      const changes = state.compare !== null && !isOneFile ? await ask("changes", { r: state.r, position: state.compare, other: state.r, with: position }) : null;
      const earlier = changes ? await ask("moment", { r: state.r, position: state.compare }) : null;
      if (this.isClosed || position !== momentShown(scene)) return;
      this.moment = moment;
      this.fill(moment, changes, earlier);
    } catch (error) {
      say(error.message);
    }
  }

  fill(moment, changes, earlier) {
    const { scene, marks } = this;
    refill(this.node,
      el("div", { class: "controls" }, momentControls(scene, marks, moment.position),
        el("span", { class: "buttons" },
          state.compare === null
            ? el("button", { type: "button", disabled: isOneFile, title: "Then choose another moment (c)", onclick: () => set({ compare: moment.position }) }, "Compare with this moment")
            : el("button", { type: "button", onclick: () => set({ compare: null }) }, "Stop comparing"))),
      momentTitle(moment),
      this.bar(moment),
      changes ? this.difference(changes, earlier, moment) : null,
      this.flameBox(moment),
      this.table(moment));
  }

  bar(moment) {
    const groups = this.scene.groups.category;
    const parts = moment.categories.map(([bytes, blocks], index) => ({ bytes, blocks, group: groups[index] })).filter((it) => it.blocks).sort((a, b) => b.bytes - a.bytes);
    const slack = Math.max(0, moment.reserved - moment.allocated);
    return el("div", { class: "shares" },
      el("div", { class: "bar", role: "img", "aria-label": "What it is for" }, parts.map((it) => el("span", { title: `${it.group.name}: ${size(it.bytes)}`, style: { width: `${(100 * it.bytes) / Math.max(1, moment.reserved)}%`, background: colorOf(it.group) } })),
        slack ? el("span", { class: "slack", title: `slack: ${size(slack)}`, style: { width: `${(100 * slack) / Math.max(1, moment.reserved)}%` } }) : null),
      el("table", { class: "numbers" }, el("tbody", {}, parts.map((it) => el("tr", {},
        el("td", {}, swatch(colorOf(it.group)), it.group.name), el("td", { title: exactly(it.bytes) }, size(it.bytes)), el("td", {}, share(it.bytes, moment.reserved)), el("td", {}, many(it.blocks, "block")))),
        slack ? el("tr", {}, el("td", {}, el("span", { class: "swatch slack" }), "slack: reserved and not allocated"), el("td", { title: exactly(slack) }, size(slack)), el("td", {}, share(slack, moment.reserved)), el("td", {}, "")) : null)));
  }

  flameBox(moment) {
    const hasModules = 1 < moment.modules.length;
    const show = () => this.flame.show(treeOf(moment[this.tree], this.hide && this.tree === "stacks"));
    const radio = (value, label, disabled, title) => el("label", { title }, el("input", { type: "radio", name: "tree", value, disabled, checked: this.tree === value, onchange: () => { this.tree = value; show(); } }), el("span", {}, label));
    if (!hasModules) this.tree = "stacks";
    show();
    return el("div", { class: "flamebox" },
      el("div", { class: "controls" },
        el("h2", {}, "Where it was asked for"),
        el("fieldset", { class: "choice" }, el("legend", { class: "sr" }, "Flame graph"), radio("stacks", "by stack", false, "Callers above, what they called below"),
          radio("modules", "by module", !hasModules, hasModules ? "The module that made it, or whose parameter it is" : "Only plimsoll's own recordings know modules")),
        el("label", { class: "check" }, el("input", { type: "checkbox", checked: this.hide, onchange: (event) => { this.hide = event.target.checked; show(); } }), " leave out wrappers of PyTorch and Python")),
      this.flame.node);
  }

  table(moment) {
    const groups = this.scene.groups.category;
    const shown = 40;
    const rows = (list) => list.map((it) => el("tr", {},
      el("td", { class: "code", title: it.line ? it.line[0] : "" }, place(it.line)),
      el("td", {}, swatch(colorOf(groups[it.category])), groups[it.category].name),
      el("td", { title: exactly(it.bytes) }, size(it.bytes)),
      el("td", {}, share(it.bytes, moment.allocated)),
      el("td", {}, number(it.blocks)),
      el("td", {}, el("button", { type: "button", class: "link", onclick: () => set({ pin: it.largest }) }, "largest"))));
    const body = el("tbody", {}, rows(moment.rows.slice(0, shown)));
    const more = moment.rows.length > shown ? el("button", { type: "button", onclick: (event) => { body.append(...rows(moment.rows.slice(shown))); event.target.remove(); } }, `Show ${number(moment.rows.length - shown)} more lines`) : null;
    return el("div", {}, el("h2", {}, "By line of code"),
      el("table", { class: "list" }, el("thead", {}, el("tr", {}, ["line", "what it is for", "bytes", "of allocated", "blocks", ""].map((it) => el("th", { scope: "col" }, it)))), body), more);
  }

  difference(changes, earlier, moment) {
    const total = moment.allocated - earlier.allocated;
    const groups = this.scene.groups.category;
    const table = el("div");
    const tables = {
      line: () => changesTable(changes.rows, groups, "before", "now"),
      category: () => differences(["what it is for"], "before", "now", groups.map((group, index) => ({
        cells: [[swatch(colorOf(group)), group.name]], before: earlier.categories[index], after: moment.categories[index],
      }))),
      module: () => differences(["module"], "before", "now", byModule(earlier.modules, moment.modules)),
    };
    const hasModules = 1 < moment.modules.length || 1 < earlier.modules.length;
    if (!hasModules && this.differ === "module") this.differ = "line";
    const radio = (value, label, disabled) => el("label", { title: disabled ? "Only plimsoll's own recordings know modules" : "" },
      el("input", { type: "radio", name: "differ", value, disabled, checked: this.differ === value, onchange: () => { this.differ = value; refill(table, tables[value]()); } }), el("span", {}, label));
    refill(table, tables[this.differ]());
    return el("div", { class: "difference" },
      el("div", { class: "controls" },
        el("h2", {}, `From event ${number(earlier.position)} to event ${number(moment.position)}: ${signed(total)}`),
        el("fieldset", { class: "choice" }, el("legend", { class: "sr" }, "Difference"), radio("line", "by line", false), radio("category", "by what it is for", false), radio("module", "by module", !hasModules))),
      table);
  }
}

export function signed(bytes) {
  return bytes > 0 ? `+${size(bytes)}` : size(bytes);
}

function amount([bytes, blocks]) {
  return blocks ? `${size(bytes)} (${number(blocks)}×)` : "–";
}

export function changesTable(rows, groups, before, after) {
  const group = (key) => groups.find((it) => it.key === key) || groups[0];
  return differences(["line", "what it is for"], before, after, rows.map((it) => ({
    cells: [el("span", { class: "code", title: it.line ? it.line[0] : "" }, place(it.line)), [swatch(colorOf(group(it.category))), group(it.category).name]],
    before: it.before,
    after: it.after,
  })));
}

// What differs, the largest difference first.
function differences(headings, before, after, rows) {
  const by = (it) => it.after[0] - it.before[0];
  const differing = rows.filter((it) => by(it) || it.before[1] !== it.after[1]).sort((a, b) => Math.abs(by(b)) - Math.abs(by(a)));
  if (!differing.length) return el("p", { class: "quiet" }, "Nothing holds more or less.");
  const shown = differing.slice(0, 60);
  return [el("table", { class: "list" },
    el("thead", {}, el("tr", {}, [...headings, before, after, "difference"].map((it) => el("th", { scope: "col" }, it)))),
    el("tbody", {}, shown.map((it) => el("tr", {},
      it.cells.map((cell) => el("td", {}, cell)),
      el("td", {}, amount(it.before)),
      el("td", {}, amount(it.after)),
      el("td", { class: by(it) > 0 ? "more" : "less", title: exactly(by(it)) }, signed(by(it))))))),
  shown.length < differing.length ? el("p", { class: "quiet" }, `… and ${number(differing.length - shown.length)} smaller differences.`) : null];
}

// What each module itself holds, without those in it.
function byModule(earlier, later) {
  const sums = new Map();
  [earlier, later].forEach((nodes, side) => {
    const paths = [];
    const own = nodes.map((it) => [it[2], it[3]]);
    nodes.forEach(([parent, name, bytes, blocks], index) => {
      if (!index) return;
      paths[index] = parent ? `${paths[parent]}.${name}` : name;
      own[parent][0] -= bytes;
      own[parent][1] -= blocks;
    });
    nodes.forEach((_, index) => {
      if (!index) return;
      if (!sums.has(paths[index])) sums.set(paths[index], [[0, 0], [0, 0]]);
      sums.get(paths[index])[side] = own[index];
    });
  });
  return [...sums].map(([path, [before, after]]) => ({ cells: [el("span", { class: "code" }, path)], before, after }));
}
