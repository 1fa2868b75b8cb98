// The recorded requests on another card, or under other settings of the allocator.

import { ask, askWindow } from "./api.js";
import { el, refill, stacks } from "./dom.js";
import { chartWidth, svg, text } from "./charts.js";
import { set, state } from "./state.js";
import { exactly, many, number, parseSize, size } from "./words.js";

const COLUMNS_HERE = 900;
// A table has no curves.
const COLUMNS_SWEPT = 1;
const SETTINGS = [
  ["", "as recorded"],
  ["default", "PyTorch's defaults"],
  ["expandable_segments:True", "expandable_segments:True"],
  ["max_split_size_mb:128", "max_split_size_mb:128"],
  ["roundup_power2_divisions:8", "roundup_power2_divisions:8"],
  ["large_segment_size_mb:64", "large_segment_size_mb:64"],
  ["expandable_segments:True,roundup_power2_divisions:8", "expandable_segments:True,roundup_power2_divisions:8"],
  ["own", "your own…"],
];

export class WhatIfView {
  constructor(scene, cards) {
    this.scene = scene;
    this.cards = cards;
    this.node = el("section", { class: "whatif", "aria-label": "What if" });
    this.result = el("div", { class: "result", role: "status" });
    this.table = el("div", {}, el("p", { class: "wait" }, "Replaying each setting and card…"));
    this.card = el("select", { onchange: () => this.cardChosen() }, el("option", { value: "" }, "unlimited memory"), cards.map((it) => el("option", { value: it.id }, `${it.id}: ${size(it.total)}`)), el("option", { value: "own" }, "another size"));
    // What is typed here is a size of its own.
    this.capacity = el("input", { type: "text", size: 10, placeholder: "24GiB", onchange: () => { this.card.value = "own"; this.run(); } });
    this.outside = el("input", { type: "text", size: 9, value: "0", onchange: () => this.run() });
    this.conf = el("select", { onchange: () => this.run() }, SETTINGS.map(([value, label]) => el("option", { value }, label)));
    this.own = el("input", { type: "text", size: 44, placeholder: "expandable_segments:True", "aria-label": "PYTORCH_CUDA_ALLOC_CONF", hidden: true, onchange: () => this.run() });
    refill(this.node, this.table, el("h2", {}, "One card or setting"),
      el("form", { class: "form", onsubmit: (event) => { event.preventDefault(); this.run(); } },
        el("label", {}, "Card ", this.card),
        el("label", {}, "memory ", this.capacity),
        el("label", { title: "CUDA context, NCCL, other processes" }, "reserved for CUDA and others ", this.outside),
        el("label", {}, "PYTORCH_CUDA_ALLOC_CONF ", this.conf), this.own,
        el("button", { type: "submit" }, "Replay")),
      el("p", { class: "quiet" }, "Recorded under ", el("code", {}, scene.alloc_conf || "PyTorch's defaults"), "."),
      this.result);
    this.follow();
    this.sweep();
  }

  // The answer: each setting, and which cards have enough for it.
  async sweep() {
    const { r } = state;
    const replay = (params) => ask("what-if", { r, columns: COLUMNS_SWEPT, ...params });
    try {
      const rows = [];
      for (const [value, label] of SETTINGS.filter(([it]) => it !== "own")) {
        const answer = await replay(value === "" ? {} : { conf: value === "default" ? "" : value });
        if (this.isClosed) return;
        rows.push({ value, label, answer });
      }
      // Below what tensors need at once nothing helps, and what a replay takes with unlimited memory is enough; between them
      // the allocator frees its cache, and only a replay tells.
      const cards = [];
      for (const it of this.cards) {
        const capacity = it.total - it.context;
        const free = rows[0].answer;
        let verdict = free.ran_out || capacity < free.peak_allocated ? "too small" : free.peak_reserved <= capacity ? "enough" : null;
        if (verdict === null) {
          const answer = await replay({ capacity: String(capacity) }).catch(() => null);
          if (this.isClosed) return;
          verdict = answer === null ? "not replayed" : answer.ran_out ? "too small" : "enough, with pauses to free its cache";
        }
        cards.push({ ...it, capacity, verdict });
      }
      this.fillSweep(rows, cards);
    } catch (error) {
      refill(this.table, el("p", { class: "bad" }, error.message));
    }
  }

  fillSweep(rows, cards) {
    const { scene } = this;
    const [recorded] = rows;
    const best = rows.reduce((a, b) => (b.answer.peak_reserved < a.answer.peak_reserved ? b : a));
    const bySize = [...cards].sort((a, b) => a.capacity - b.capacity);
    const smallest = (bytes) => bySize.find((it) => bytes <= it.capacity);
    const enough = bySize.filter((it) => it.verdict.startsWith("enough"));
    const [least] = enough;
    const roomy = enough.find((it) => it.verdict === "enough");
    const saved = recorded.answer.peak_reserved - best.answer.peak_reserved;
    const early = endsEarly(scene);
    const choose = (changes) => () => {
      set({ card: "", memory: "", outside: "", conf: "", ...changes });
      this.result.scrollIntoView({ block: "nearest" });
    };
    refill(this.table,
      el("h2", {}, "Settings of the allocator"),
      el("p", { class: "lead" }, saved > 0 ? [el("b", {}, best.label), ` reserves ${size(saved)} less than the recorded settings: ${size(best.answer.peak_reserved)} instead of ${size(recorded.answer.peak_reserved)}.`] : "None of these settings reserves less than the recorded ones.", early ? ` ${early}` : ""),
      el("div", { class: "scroll" }, stacks(el("table", { class: "list sweep" }, el("thead", {}, el("tr", {}, ["PYTORCH_CUDA_ALLOC_CONF", "reserved at most", "difference", "smallest card without pauses"].map((it) => el("th", { scope: "col" }, it)))),
        el("tbody", {}, [...rows].sort((a, b) => a.answer.peak_reserved - b.answer.peak_reserved).map(({ value, label, answer }) => el("tr", {},
          el("td", {}, el("button", { type: "button", class: "link", title: "Replay it below", onclick: choose({ conf: value }) }, label)),
          el("td", { title: exactly(answer.peak_reserved) }, size(answer.peak_reserved)),
          el("td", {}, differenceOf(answer.peak_reserved - recorded.answer.peak_reserved)),
          el("td", {}, answer.ran_out ? "none" : smallest(answer.peak_reserved)?.id ?? "none listed"))))))),
      el("h2", {}, early ? "Cards, for what was recorded" : "Cards, under the recorded settings"),
      el("p", { class: "lead" }, least ? [el("b", {}, least.id), ` (${size(least.total)}) is the smallest of ${many(cards.length, "card")} that ${early ? "serves every recorded request" : "is enough"}`, least === roomy ? "." : [", with pauses to free its cache; without pauses ", roomy ? [el("b", {}, roomy.id), ` (${size(roomy.total)}) is.`] : "none is."]] : "No card of the list is large enough."),
      el("details", {}, el("summary", {}, `All ${many(cards.length, "card")}`), stacks(el("table", { class: "list sweep" }, el("thead", {}, el("tr", {}, ["card", "memory", "for PyTorch", early ? "for what was recorded" : "verdict"].map((it) => el("th", { scope: "col" }, it)))),
        el("tbody", {}, bySize.map((it) => el("tr", {}, el("td", {}, el("button", { type: "button", class: "link", title: "Replay it", onclick: choose({ card: it.id }) }, it.id)), el("td", {}, size(it.total)), el("td", {}, size(it.capacity)), el("td", { class: it.verdict.startsWith("enough") ? "fits" : it.verdict === "too small" ? "small" : "" }, it.verdict))))))));
  }

  // Fills the form from the address, and replays that.
  follow() {
    const told = this.asState();
    if (this.result.hasChildNodes() && Object.keys(told).every((it) => told[it] === state[it])) return;
    const known = [...this.card.options].some((it) => it.value === state.card);
    this.card.value = known ? state.card : "";
    if (state.card === "own") this.capacity.value = state.memory;
    const isListed = SETTINGS.some(([value]) => value === state.conf && value !== "own");
    this.conf.value = isListed ? state.conf : "own";
    if (!isListed) this.own.value = state.conf;
    this.cardChosen(state.outside);
  }

  get chosen() {
    return this.cards.find((it) => it.id === this.card.value) || null;
  }

  // The memory that PyTorch cannot use, unless the user sets it.
  get usual() {
    return this.chosen ? exactlyText(this.chosen.context) : "0";
  }

  asState() {
    return {
      card: this.card.value,
      memory: this.card.value === "own" ? this.capacity.value : "",
      outside: this.outside.value === this.usual ? "" : this.outside.value,
      conf: this.conf.value === "own" ? this.own.value : this.conf.value,
    };
  }

  close() {
    this.isClosed = true;
  }

  cardChosen(outside = "") {
    if (this.chosen) this.capacity.value = exactlyText(this.chosen.total);
    else if (this.card.value === "") this.capacity.value = "";
    this.outside.value = outside || this.usual;
    this.run();
  }

  async run() {
    this.own.hidden = this.conf.value !== "own";
    const params = { r: state.r, columns: COLUMNS_HERE };
    if (this.capacity.value) {
      const bare = [this.capacity.value, this.outside.value].map((it) => it.trim()).find((it) => /^[\d.]*[1-9][\d.]*$/.test(it));
      if (bare) {
        refill(this.result, el("p", { class: "bad" }, `${bare} has no unit: write ${bare}GiB or ${bare}MiB.`));
        return;
      }
      const [all, outside] = [parseSize(this.capacity.value), parseSize(this.outside.value || "0")];
      if (all === null || outside === null) {
        refill(this.result, el("p", { class: "bad" }, "This is not a size: write 24GiB, 20GB or 512MiB."));
        return;
      }
      params.capacity = String(Math.max(0, all - outside));
    }
    const conf = this.conf.value === "own" ? this.own.value : this.conf.value === "default" ? "" : this.conf.value;
    if (this.conf.value !== "") params.conf = conf;
    refill(this.result, el("p", { class: "wait" }, "Replaying…"));
    set(this.asState());
    const asked = (this.asked = (this.asked || 0) + 1);
    try {
      const [answer, recorded] = await Promise.all([ask("what-if", params), this.recorded()]);
      if (!this.isClosed && asked === this.asked) this.show(answer, recorded, params);
    } catch (error) {
      if (asked === this.asked) refill(this.result, el("p", { class: "bad" }, error.message));
    }
  }

  async recorded() {
    this.known ||= await askWindow({ r: state.r, axis: "events", from: 0, to: this.scene.events + 1, columns: COLUMNS_HERE, least: 2 ** 60, by: "category" });
    return this.known;
  }

  show(answer, recorded, params) {
    const { scene } = this;
    const ran = answer.ran_out;
    const early = endsEarly(scene);
    const requests = scene.damage ? "The requests that were read" : scene.ends_failing ? "The requests up to the failed one" : "The recorded requests";
    const sentence = ran
      ? [el("b", { class: "bad" }, `${requests} run out of memory`), ` at event ${number(ran.position)} of ${number(scene.events)}: ${size(ran.requested)} requested, ${size(ran.allocated)} allocated, ${size(ran.reserved)} reserved, the largest usable hole ${size(ran.largest_hole)}.`]
      : [el("b", { class: early ? "" : "good" }, early ? `${requests} are served` : `${requests} fit`), `: ${size(answer.peak_reserved)} reserved at most, ${difference(answer.peak_reserved, answer.recorded_reserved)} recorded.${early ? ` ${early}` : ""}`];
    refill(this.result,
      el("p", { class: "lead" }, sentence),
      el("table", { class: "numbers" }, el("tbody", {},
        line("reserved at most", answer.recorded_reserved, answer.peak_reserved),
        line("allocated at most", scene.peak_allocated, answer.peak_allocated),
        el("tr", {}, el("td", {}, "times that the allocator freed its cache and tried again"), el("td", {}, ""), el("td", {}, number(answer.retries))),
        answer.served_now ? el("tr", {}, el("td", {}, "requests that failed in the recording and succeed here"), el("td", {}, ""), el("td", {}, number(answer.served_now))) : null),
      el("thead", {}, el("tr", {}, ["", "recorded", "here"].map((it) => el("th", { scope: "col" }, it))))),
      this.chart(answer, recorded, params.capacity ? Number(params.capacity) : null));
  }

  chart(answer, recorded, capacity) {
    const [width, height, inset, bottom, top] = [chartWidth(), 320, 74, 26, 14];
    const most = Math.max(...recorded.reserved, ...answer.reserved, this.scene.peak_allocated, 1);
    const high = (capacity && capacity < most * 1.6 ? Math.max(most, capacity) : most) * 1.06;
    const y = (bytes) => height - bottom - (bytes / high) * (height - bottom - top);
    const path = (values, n) => values.map((it, index) => `${index ? "L" : "M"}${(inset + ((index + 0.5) / n) * (width - inset - 10)).toFixed(1)},${y(it).toFixed(1)}`).join("");
    const tick = 2 ** Math.ceil(Math.log2(high / 6));
    const ticks = [];
    for (let bytes = 0; bytes <= high; bytes += tick) ticks.push(bytes);
    const end = answer.ran_out ? inset + (answer.ran_out.position / (this.scene.events + 1)) * (width - inset - 10) : null;
    const curves = [
      ["recorded: reserved", Array.from(recorded.reserved), recorded.n, "old reserved"],
      ["recorded: allocated", Array.from(recorded.allocated), recorded.n, "old allocated"],
      ["here: reserved", answer.reserved, answer.columns, "reserved"],
      ["here: allocated", answer.allocated, answer.columns, "allocated"],
    ];
    return el("figure", {},
      svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": "Recorded and replayed memory over events" },
        ticks.map((bytes) => [svg("line", { x1: inset, x2: width - 10, y1: y(bytes), y2: y(bytes), class: "grid" }), text(inset - 8, y(bytes) + 4, bytes ? size(bytes) : "0", "end")]),
        capacity && capacity <= high ? [svg("line", { x1: inset, x2: width - 10, y1: y(capacity), y2: y(capacity), class: "limit" }), text(inset + 6, y(capacity) - 5, `PyTorch may use ${size(capacity)}`, "start")] : null,
        curves.map(([, values, n, name]) => svg("path", { d: path(values, n), class: `curve ${name}` })),
        end === null ? null : [svg("line", { x1: end, x2: end, y1: top, y2: height - bottom, class: "limit" })],
        text(width - 12, height - 8, "events", "end")),
      el("figcaption", {}, el("ul", { class: "legend" }, curves.map(([name, , , key]) => el("li", {}, el("span", { class: `swatch line ${key}` }), name)), capacity && capacity <= high || end !== null ? el("li", {}, el("span", { class: "swatch line limit" }), end === null ? "what PyTorch may use" : "what PyTorch may use, and where it runs out") : null)));
  }
}

// What a recording that ended early cannot say.
function endsEarly(scene) {
  if (scene.ends_failing) return "The run ended with a request that failed: what the program would have requested after it is not in the file.";
  return scene.damage ? "The file is cut off or damaged: later requests are not in it." : null;
}

function differenceOf(bytes) {
  return bytes === 0 ? "as recorded" : bytes < 0 ? `${size(-bytes)} less` : `${size(bytes)} more`;
}

function line(label, recorded, here) {
  return el("tr", {}, el("td", {}, label), el("td", { title: exactly(recorded) }, size(recorded)), el("td", { title: exactly(here) }, size(here)));
}

function difference(here, recorded) {
  if (here === recorded) return "as";
  return here < recorded ? `${size(recorded - here)} less than` : `${size(here - recorded)} more than`;
}

function exactlyText(bytes) {
  const mib = bytes / 2 ** 20;
  return mib % 1024 === 0 ? `${mib / 1024}GiB` : `${Math.floor(mib)}MiB`;
}
