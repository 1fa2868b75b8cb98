// The blocks that were live at one moment, and the changes between two moments.

import { ask, askWindow } from "./api.js";
import { swatch } from "./details.js";
import { changesTable, differences, signed } from "./differs.js";
import { el, refill, say, stacks } from "./dom.js";
import { Flame, bottomUp, modulesOf, treeOf } from "./flame.js";
import { afterStep, momentControls, momentName, momentShown, momentTitle } from "./moments.js";
import { colorOf, ground } from "./palette.js";
import { select } from "./selection.js";
import { set, state } from "./state.js";
import { clipped, exactly, many, number, phaseName, place, share, size } from "./words.js";

export class PeakView {
  constructor(scene, marks) {
    this.scene = scene;
    this.marks = marks;
    this.tree = "stacks";
    this.differ = "line";
    this.hide = true;
    this.node = el("section", { class: "peak", "aria-label": "Peak" }, el("p", { class: "wait" }, "Reading the moment…"));
    this.when = "moment";
    this.upside = false;
    this.folds = true;
    this.sort = ["bytes", -1];
    this.filter = "";
    this.flame = new Flame(scene.groups.category, (node) => this.picked(node));
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
      const changes = state.compare !== null ? await ask("changes", { r: state.r, position: state.compare, other: state.r, with: position }) : null;
      const earlier = changes ? await ask("moment", { r: state.r, position: state.compare }) : null;
      if (this.isClosed || position !== momentShown(scene)) return;
      this.moment = moment;
      this.fill(moment, changes, earlier);
    } catch (error) {
      failed(this.node, error, () => this.load());
    }
  }

  draw() {
    for (const row of this.node.querySelectorAll("tr[data-of]")) row.classList.toggle("chosen", row.dataset.of === state.sel);
  }

  // A part of the flame graph is its blocks, in every view.
  picked(node) {
    if (!node) set({ sel: "" });
    else if (node.paths.length) set({ sel: node.paths.length === 1 ? `module:${node.paths[0]}` : `words:${commonPart(node.paths)}` });
    else if (node.ids.length) set({ sel: `stacks:${[...new Set(node.ids)].slice(0, 400).join(",")}` });
  }

  fill(moment, changes, earlier) {
    const { scene, marks } = this;
    refill(this.node,
      el("div", { class: "controls" }, momentControls(scene, marks, moment.position),
        el("span", { class: "buttons" },
          state.compare === null
            ? el("button", { type: "button", title: "Then choose another moment (c)", onclick: () => set({ compare: moment.position }) }, "Compare with this moment")
            : el("button", { type: "button", onclick: () => set({ compare: null }) }, "Stop comparing"))),
      momentTitle(moment),
      changes ? this.difference(changes, earlier, moment) : null,
      el("div", { class: "columns" }, this.bar(moment), this.table(moment)),
      this.flameBox(moment));
    this.draw();
  }

  bar(moment) {
    const groups = this.scene.groups.category;
    const parts = moment.categories.map(([bytes, blocks], index) => ({ bytes, blocks, index, group: groups[index] })).filter((it) => it.blocks).sort((a, b) => b.bytes - a.bytes);
    const slack = Math.max(0, moment.reserved - moment.allocated);
    // A recording may know of no segments.
    const whole = Math.max(1, moment.reserved, moment.allocated);
    return el("div", { class: "shares" },
      el("div", { class: "bar", role: "img", "aria-label": "What it is for" }, parts.map((it) => el("span", { title: `${it.group.name}: ${size(it.bytes)}`, style: { width: `${(100 * it.bytes) / whole}%`, background: ground(colorOf(it.group), it.group.key) } })),
        slack ? el("span", { class: "slack", title: `slack: ${size(slack)}`, style: { width: `${(100 * slack) / whole}%` } }) : null),
      el("table", { class: "numbers" }, el("tbody", {}, parts.map((it) => el("tr", { "data-of": `category:${it.index}` },
        el("td", {}, el("button", { type: "button", class: "plain", title: "Select these blocks", onclick: () => select(`category:${it.index}`) }, swatch(colorOf(it.group), it.group.key), it.group.name)), el("td", { title: exactly(it.bytes) }, size(it.bytes)), el("td", {}, share(it.bytes, moment.allocated)), el("td", {}, many(it.blocks, "block")))),
        slack ? el("tr", {}, el("td", {}, el("span", { class: "swatch slack" }), "slack: reserved, not allocated"), el("td", { title: exactly(slack) }, size(slack)), el("td", {}, ""), el("td", {}, "")) : null)));
  }

  flameBox(moment) {
    const { scene } = this;
    const hasModules = 1 < moment.modules.length;
    if (!hasModules) this.tree = "stacks";
    const [from, to] = state.axis === "events" && state.from !== null ? [Math.round(state.from), Math.round(state.to)] : [0, scene.events + 1];
    const wrong = el("p", { class: "bad", hidden: true });
    const show = async () => {
      wrong.hidden = true;
      let trees = moment;
      if (this.when !== "moment") {
        try {
          trees = await ask("stretch", { r: state.r, from, to, weigh: this.when });
        } catch (error) {
          wrong.hidden = false;
          wrong.textContent = error.message;
          return;
        }
      }
      if (this.isClosed) return;
      const root = this.tree === "modules" ? modulesOf(trees.modules, this.folds) : treeOf(trees.stacks, this.hide);
      this.flame.show(this.upside && this.tree === "stacks" ? bottomUp(root) : root);
    };
    const radio = (name, key, value, label, disabled, title) => el("label", { title }, el("input", { type: "radio", name, value, disabled, checked: this[key] === value, onchange: () => { this[key] = value; show(); } }), el("span", {}, label));
    const check = (key, label, title) => el("label", { class: "check", title }, el("input", { type: "checkbox", name: key, checked: this[key], onchange: (event) => { this[key] = event.target.checked; show(); } }), label);
    const where = from === 0 && scene.events < to ? "over the whole recording" : `from event ${number(from)} to ${number(to)}, which the timeline shows`;
    show();
    return el("div", { class: "flamebox" },
      el("div", { class: "controls" },
        el("h2", {}, "Where it was allocated"),
        el("fieldset", { class: "choice" }, el("legend", { class: "sr" }, "Flame graph"), radio("tree", "tree", "stacks", "by stack", false, "Callers above, callees below"),
          radio("tree", "tree", "modules", "by module", !hasModules, hasModules ? "The module that allocated it, or that owns the parameter" : "Only recordings of plimsoll have modules")),
        el("fieldset", { class: "choice" }, el("legend", { class: "sr" }, "When"), radio("when", "when", "moment", "at this moment", false, ""), radio("when", "when", "made", "allocated", false, `What was allocated ${where}`), radio("when", "when", "held", "held on average", false, `Bytes times events, ${where}`)),
        check("upside", " bottom-up", "The allocating line at the top, its callers below"),
        check("hide", " hide wrappers of PyTorch and Python", ""),
        hasModules ? check("folds", " fold layers (h.*)", "Sums the same part of every layer") : null),
      wrong, this.flame.node);
  }

  table(moment) {
    const groups = this.scene.groups.category;
    const shown = 12;
    const sorts = { line: (it) => place(it.line), category: (it) => groups[it.category].name, bytes: (it) => it.bytes, blocks: (it) => it.blocks };
    const body = el("tbody");
    const more = el("button", { type: "button", class: "link", onclick: () => { this.all = !this.all; fill(); } });
    const row = (it) => {
      const of = `owner:${it.owner}:${it.category}`;
      return el("tr", { "data-of": of, class: state.sel === of ? "chosen" : "" },
        el("td", { class: "code", title: it.line ? it.line[0] : "" }, el("button", { type: "button", class: "link", title: "Select these blocks in every view", onclick: () => select(of) }, clipped(place(it.line), 70))),
        el("td", {}, swatch(colorOf(groups[it.category]), groups[it.category].key), groups[it.category].name),
        el("td", { title: exactly(it.bytes) }, size(it.bytes)),
        el("td", {}, share(it.bytes, moment.allocated)),
        el("td", {}, number(it.blocks)),
        el("td", {}, el("button", { type: "button", class: "link", onclick: () => set({ pin: it.largest }) }, "largest")));
    };
    const fill = () => {
      const [key, direction] = this.sort;
      const value = sorts[key];
      const words = this.filter.toLowerCase();
      const rows = moment.rows.filter((it) => !words || `${place(it.line)} ${groups[it.category].name}`.toLowerCase().includes(words))
        .sort((a, b) => (value(a) < value(b) ? -1 : value(b) < value(a) ? 1 : 0) * direction);
      refill(body, rows.slice(0, this.all ? rows.length : shown).map(row));
      more.hidden = rows.length <= shown;
      more.textContent = this.all ? "Show fewer" : `Show ${number(rows.length - shown)} more lines`;
    };
    const heading = (key, label) => el("th", { scope: "col", "aria-sort": this.sort[0] === key ? (this.sort[1] < 0 ? "descending" : "ascending") : "none" },
      el("button", { type: "button", class: "plain", title: "Sort", onclick: (event) => {
        this.sort = [key, this.sort[0] === key ? -this.sort[1] : key === "bytes" || key === "blocks" ? -1 : 1];
        for (const it of event.target.closest("tr").children) if (it.hasAttribute("aria-sort")) it.setAttribute("aria-sort", "none");
        event.target.closest("th").setAttribute("aria-sort", this.sort[1] < 0 ? "descending" : "ascending");
        fill();
      } }, label));
    fill();
    return el("div", { class: "lines" }, el("div", { class: "controls" }, el("h2", {}, "By line of code"),
      el("input", { type: "search", class: "filter", "aria-label": "Only lines with these words", placeholder: "only lines with …", value: this.filter, oninput: (event) => { this.filter = event.target.value; fill(); } })),
      el("div", { class: "scroll" }, stacks(el("table", { class: "list" }, el("thead", {}, el("tr", {}, heading("line", "line"), heading("category", "category"), heading("bytes", "bytes"), el("th", { scope: "col" }, "of allocated"), heading("blocks", "blocks"), el("th", { scope: "col" }, ""))), body))), more);
  }

  // The same moment of both steps: after each of them, or the fullest moment of one of their phases.
  alike(earlier, moment) {
    const { marks } = this;
    const [first, last] = [earlier, moment].map((it) => stepAt(marks, it.position));
    if (!first || !last || first === last) return null;
    const phasesOf = (step) => {
      const from = marks.steps[marks.steps.indexOf(step) - 1]?.end ?? 0;
      return new Map(marks.phases.filter(([a, b]) => from <= a && b <= step.end).map((it) => [it[4], it]));
    };
    const [early, late] = [first, last].map(phasesOf);
    const fullest = async ([from, to]) => (await askWindow({ r: state.r, axis: "events", from, to, columns: 1, least: 2 ** 60, by: "category" })).positions[0];
    const choose = async (event) => {
      const phase = event.target.value;
      if (phase === "after") set({ compare: afterStep(first), at: afterStep(last) });
      else if (phase) set({ compare: await fullest(early.get(phase)), at: await fullest(late.get(phase)) });
    };
    const ended = first.after !== null && last.after !== null;
    const isAfter = ended && earlier.position === afterStep(first) && moment.position === afterStep(last);
    return el("label", { class: "check" }, "compare ", el("select", { "aria-label": "The same moment of both steps", onchange: choose },
      el("option", { value: "", selected: !isAfter }, "these moments"),
      ended ? el("option", { value: "after", selected: isAfter }, "after the steps") : null,
      [...early.keys()].filter((it) => late.has(it)).map((it) => el("option", { value: it }, `the fullest moment of each ${phaseName(it)}`))));
  }

  difference(changes, earlier, moment) {
    const total = moment.allocated - earlier.allocated;
    const groups = this.scene.groups.category;
    const table = el("div");
    const tables = {
      line: () => changesTable(changes.rows, groups, "before", "now"),
      category: () => differences(["category"], "before", "now", groups.map((group, index) => ({
        cells: [[swatch(colorOf(group), group.key), group.name]], before: earlier.categories[index], after: moment.categories[index],
      }))),
      module: () => differences(["module"], "before", "now", byModule(earlier.modules, moment.modules)),
    };
    const hasModules = 1 < moment.modules.length || 1 < earlier.modules.length;
    if (!hasModules && this.differ === "module") this.differ = "line";
    const radio = (value, label, disabled) => el("label", { title: disabled ? "Only recordings of plimsoll have modules" : "" },
      el("input", { type: "radio", name: "differ", value, disabled, checked: this.differ === value, onchange: () => { this.differ = value; refill(table, tables[value]()); } }), el("span", {}, label));
    refill(table, tables[this.differ]());
    const during = (it) => (it.step ? ` (step ${number(it.step)}${it.phase ? `, ${phaseName(it.phase)}` : ""})` : "");
    const named = (it) => {
      const name = momentName(this.marks, it.position);
      return name.startsWith("event") ? name + during(it) : name;
    };
    return el("div", { class: "difference" },
      el("div", { class: "controls" },
        el("h2", {}, `From ${named(earlier)} to ${named(moment)}: ${signed(total)}`),
        this.alike(earlier, moment),
        el("fieldset", { class: "choice" }, el("legend", { class: "sr" }, "Difference"), radio("line", "by line", false), radio("category", "by category", false), radio("module", "by module", !hasModules))),
      table);
  }
}

// The step that a moment is of: its own, or the one that ended just then.
function stepAt(marks, position) {
  return marks.steps.find((it) => position <= afterStep(it)) ?? null;
}

// What all of some modules have in their names.
function commonPart(paths) {
  const parts = paths[0].split(".");
  return parts.filter((it) => !/^\d+$/.test(it)).pop() ?? paths[0];
}

// Instead of waiting for ever.
export function failed(node, error, again) {
  say(error.message, true);
  refill(node, el("p", { class: "bad" }, error.message), el("p", {}, el("button", { type: "button", onclick: again }, "Try again")));
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
