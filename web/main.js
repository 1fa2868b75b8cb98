// Puts the page together: which recording, which view, what is pinned.

import { ask, isOneFile } from "./api.js";
import { showBlock, showLife, blockFacts } from "./details.js";
import { byId, el, refill, say } from "./dom.js";
import { GrowthView } from "./growth.js";
import { forgetInks } from "./palette.js";
import { momentShown, PeakView } from "./peak.js";
import { RanksView, sceneName } from "./ranks.js";
import { SegmentsView } from "./segments.js";
import { onState, readHash, set, state } from "./state.js";
import { Timeline } from "./timeline.js";
import { WhatIfView } from "./whatif.js";
import { ABOUT, GLOSSARY, KEYS, many, number, size } from "./words.js";

const VIEWS = [["timeline", "Timeline"], ["peak", "Peak"], ["segments", "Segments"], ["growth", "Growth"], ["whatif", "What-if"], ["ranks", "Ranks"]];

const page = { scenes: [], marks: new Map(), cards: [], view: null };

const side = el("aside", { id: "side", "aria-label": "Block", hidden: true });
const found = el("aside", { id: "found", "aria-label": "Found", hidden: true });

async function start() {
  applyTheme(remembered("theme"));
  try {
    const [overview, cards] = await Promise.all([ask("overview"), ask("cards")]);
    page.scenes = overview.scenes;
    page.cards = cards.cards;
  } catch (error) {
    refill(byId("main"), el("p", { class: "bad" }, error.message));
    return;
  }
  refill(byId("scene"), page.scenes.map((it, index) => el("option", { value: index }, sceneName(it))));
  byId("scene").addEventListener("change", (event) => set({ r: Number(event.target.value), from: null, to: null, top: null, at: null, compare: null, pin: null }));
  refill(byId("tabs"), VIEWS.map(([key, name], index) => el("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "main", title: `${name} (${index + 1})`, onclick: () => set({ view: key }) }, name)));
  byId("search").addEventListener("submit", (event) => { event.preventDefault(); find(byId("words").value); });
  byId("theme").addEventListener("click", switchTheme);
  byId("help").addEventListener("click", showWords);
  document.addEventListener("keydown", key);
  document.addEventListener("find", (event) => { byId("words").value = event.detail; find(event.detail); });
  addEventListener("hashchange", () => { set({ view: "timeline", r: 0, axis: "events", by: "category", ...readHash() }); sane(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetInks(); render(); });
  Object.assign(state, readHash());
  sane();
  onState(changed);
  await render();
}

// What an address names may not be in these recordings.
function sane() {
  if (!VIEWS.some(([it]) => it === state.view)) state.view = "timeline";
  if (!page.scenes[state.r]) state.r = 0;
  const scene = page.scenes[state.r];
  if (!["events", "time"].includes(state.axis) || !scene.micros) state.axis = "events";
  if (!["category", "line", "pool"].includes(state.by)) state.by = "category";
  for (const key of ["at", "compare"]) if (state[key] !== null) state[key] = Math.min(Math.round(state[key]), scene.events);
}

async function marksOf(r) {
  if (!page.marks.has(r)) {
    const marks = await ask("marks", { r });
    page.marks.set(r, marks);
  }
  return page.marks.get(r);
}

// One kind of change needs a new view, another only a new picture.
function changed(now, before) {
  const only = (...keys) => Object.keys(now).every((it) => keys.includes(it) || now[it] === before[it]);
  if (now.pin !== before.pin) pinned();
  if (now.view === "timeline" && before.view === "timeline" && only("from", "to", "top", "at", "compare", "pin")) {
    page.view.draw();
    return;
  }
  if (now.view === before.view && only("pin", "from", "to", "top")) {
    if (page.view.draw) page.view.draw();
    return;
  }
  if (now.view === "whatif" && before.view === "whatif" && only("card", "memory", "outside", "conf")) {
    page.view.follow();
    return;
  }
  if (now.view === before.view && only("at", "compare", "pin") && page.view.load) {
    if (now.view !== "growth") page.view.load();
    return;
  }
  render();
}

async function render() {
  const scene = page.scenes[state.r];
  if (!scene) return;
  const { r, view } = state;
  let marks;
  try {
    marks = await marksOf(r);
  } catch (error) {
    say(error.message, true);
    return;
  }
  if (r !== state.r || view !== state.view) return;
  byId("scene").value = String(r);
  for (const [key] of VIEWS) byId(`tab-${key}`).setAttribute("aria-selected", String(key === view));
  document.title = `${sceneName(scene)}: plimsoll`;
  if (page.view) page.view.close();
  const card = page.cards.find((it) => it.id === state.card) || null;
  const make = {
    timeline: () => new Timeline(scene, marks, card),
    peak: () => new PeakView(scene, marks),
    segments: () => new SegmentsView(scene, marks),
    growth: () => new GrowthView(scene, marks),
    whatif: () => new WhatIfView(scene, page.cards),
    ranks: () => new RanksView(page.scenes),
  };
  page.view = make[view]();
  refill(byId("main"), head(scene, view), el("div", { class: "stage" }, page.view.node, side, found));
  if (page.view.draw) page.view.draw();
  pinned();
}

function head(scene, view) {
  const facts = [
    el("span", {}, el("b", { title: `${scene.peak_allocated.toLocaleString("en")} bytes` }, size(scene.peak_allocated)), " allocated at the peak"),
    el("span", {}, el("b", { title: `${scene.peak_reserved.toLocaleString("en")} bytes` }, size(scene.peak_reserved)), " reserved at most"),
    el("span", {}, many(scene.events, "event")),
    scene.refusals.length ? el("span", { class: "bad" }, `${number(scene.refusals.length)}× out of memory`) : null,
  ];
  const card = view === "timeline" ? el("label", { class: "card-choice" }, "Draw the line of a card ", el("select", { onchange: (event) => set({ card: event.target.value }) }, el("option", { value: "" }, "none"), page.cards.map((it) => el("option", { value: it.id, selected: it.id === state.card }, `${it.id} (${size(it.total)})`)))) : null;
  const odd = [
    scene.lives === 0 ? "There is not a single block in this recording." : null,
    scene.lives && !scene.made ? "This recording has a final state and no history: what is live is known, not how it came. Record with torch.cuda.memory._record_memory_history()." : null,
    !scene.stacks && scene.lives ? "No call stacks were recorded, so nothing can be said of lines." : null,
  ].filter(Boolean);
  return el("div", { class: "head" }, el("p", { class: "about" }, ABOUT[view]), el("p", { class: "facts" }, facts, card), odd.map((it) => el("p", { class: "odd" }, it)));
}

async function pinned() {
  side.hidden = state.pin === null;
  if (state.pin === null) return;
  found.hidden = true;
  await showBlock(side, page.scenes[state.r], state.pin);
}

async function find(words) {
  if (!words.trim()) return;
  if (isOneFile) {
    say("A page in one file cannot search: open the recording with `plimsoll view`.");
    return;
  }
  set({ pin: null });
  found.hidden = false;
  refill(found, el("p", { class: "wait" }, "Searching…"));
  const { r } = state;
  try {
    const hits = await ask("search", { r, words });
    const close = el("button", { type: "button", class: "close", title: "Close (Esc)", "aria-label": "Close", onclick: () => { found.hidden = true; } }, "×");
    refill(found,
      el("header", {}, el("h2", {}, hits.blocks ? many(hits.blocks, "block") : "Nothing"), close),
      el("p", { class: "quiet" }, hits.by, hits.blocks ? `; ${size(hits.bytes)} together` : ". Search for a part of a function, file or tensor name, a size (512MiB, >1GiB) or an address (0x7f…)."),
      el("ol", { class: "hits" }, hits.hits.map((it) => el("li", {}, el("button", { type: "button", onclick: () => goTo(r, it.life) }, el("b", {}, size(it.size)), " ", el("span", {}, it.label), el("small", {}, it.start ? ` event ${number(it.start)}` : " before the recording"))))),
      hits.hits.length < hits.blocks ? el("p", { class: "quiet" }, `The ${number(hits.hits.length)} largest of ${number(hits.blocks)}.`) : null);
  } catch (error) {
    refill(found, el("p", { class: "bad" }, error.message));
  }
}

async function goTo(r, life) {
  const facts = await blockFacts(r, life);
  showLife(facts, page.scenes[r]);
}

function key(event) {
  const typing = event.target.closest && event.target.closest("input, select, textarea, dialog");
  if (event.key === "Escape") {
    if (typing && event.target.blur) event.target.blur();
    if (!found.hidden) found.hidden = true; else set({ pin: null, compare: null });
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const number_ = Number(event.key);
  if (1 <= number_ && number_ <= VIEWS.length) set({ view: VIEWS[number_ - 1][0] });
  else if (event.key === "/") { event.preventDefault(); byId("words").focus(); }
  else if (event.key === "t") switchTheme();
  else if (event.key === "?") showWords();
  else if (event.key === "c") set({ compare: state.compare === null ? momentShown(page.scenes[state.r]) : null });
  else if (page.view && page.view.key && page.view.key(event)) return;
  else if (state.view !== "timeline" && event.key === "p") set({ at: page.scenes[state.r].peak_position });
  else if (state.view !== "timeline" && event.key === "o" && page.scenes[state.r].refusals[0]) set({ at: page.scenes[state.r].refusals[0].position });
}

function remembered(name) {
  try {
    return localStorage.getItem(`plimsoll-${name}`);
  } catch {
    return null;
  }
}

function applyTheme(theme) {
  forgetInks();
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}

function switchTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  applyTheme(dark ? "light" : "dark");
  try {
    localStorage.setItem("plimsoll-theme", dark ? "light" : "dark");
  } catch { /* A page opened from disk may not remember. */ }
  if (page.view && page.view.draw) page.view.draw();
}

function showWords() {
  const dialog = byId("words-dialog");
  refill(dialog,
    el("header", {}, el("h2", {}, "Keys"), el("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => dialog.close() }, "×")),
    el("dl", { class: "keys" }, KEYS.map(([name, what]) => el("div", {}, el("dt", {}, el("kbd", {}, name)), el("dd", {}, what)))),
    el("p", { class: "quiet" }, "Wheel zooms, drag moves, Shift and wheel moves, Ctrl and wheel changes the height; a click pins a block and chooses its moment."),
    el("h2", {}, "Words"),
    el("dl", {}, GLOSSARY.map(([word, meaning]) => [el("dt", {}, word), el("dd", {}, meaning)])));
  dialog.showModal();
}

// For tests and measurements.
window.plimsoll = { page, state, set };

start();
