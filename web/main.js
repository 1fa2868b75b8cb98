// Puts the page together: which recording, which view, what is pinned.

import { AnswerView } from "./answer.js";
import { ask, askWindow, isOneFile } from "./api.js";
import { damaged, showBlock } from "./details.js";
import { byId, el, prose, refill, say } from "./dom.js";
import { showSelection } from "./find.js";
import { GrowthView } from "./growth.js";
import { LiveView } from "./live.js";
import { momentShown, stepEnd } from "./moments.js";
import { forgetInks } from "./palette.js";
import { PeakView } from "./peak.js";
import { RanksView, sceneName } from "./ranks.js";
import { SegmentsView } from "./segments.js";
import { neighbour, selected } from "./selection.js";
import { WHOLE, follow, onState, readHash, set, state } from "./state.js";
import { Timeline } from "./timeline.js";
import { WhatIfView } from "./whatif.js";
import { ABOUT, GLOSSARY, KEYS, exactly, many, number, size } from "./words.js";

const VIEWS = [["answer", "Answer"], ["timeline", "Timeline"], ["peak", "Peak"], ["segments", "Segments"], ["growth", "Growth"], ["whatif", "What-if"], ["ranks", "Ranks"]];

const page = { scenes: [], marks: new Map(), cards: [], view: null };

const side = el("aside", { id: "side", "aria-label": "Block", hidden: true });
const found = el("aside", { id: "found", "aria-label": "Found", hidden: true });

async function start() {
  applyTheme(remembered("theme"));
  try {
    Object.assign(state, readHash());
    const [overview, cards] = await Promise.all([ask("overview"), ask("cards")]);
    page.scenes = overview.scenes;
    page.cards = cards.cards;
    if (overview.live) {
      followRun();
      return;
    }
  } catch (error) {
    refill(byId("main"), el("p", { class: "bad" }, prose(error.message)));
    return;
  }
  refill(byId("scene"), page.scenes.map((it, index) => el("option", { value: index }, sceneName(it))));
  byId("scene").addEventListener("change", (event) => set({ ...WHOLE, r: Number(event.target.value) }));
  refill(byId("tabs"), VIEWS.map(([key, name], index) => el("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "main", title: `${name} (${index + 1})`, onclick: () => set({ view: key }) }, name)));
  byId("tabs").addEventListener("keydown", alongTabs);
  byId("search").addEventListener("submit", (event) => { event.preventDefault(); find(byId("words").value); });
  byId("theme").addEventListener("click", switchTheme);
  byId("help").addEventListener("click", showWords);
  // A page in one file is that file.
  byId("save").hidden = isOneFile;
  byId("save").download = `${page.scenes[0] ? fileStem(page.scenes[0].name) : "recording"}.html`;
  byId("save").addEventListener("click", () => say("Writing the page with its recordings into one file…"));
  document.addEventListener("keydown", key);
  document.addEventListener("server", (event) => say(event.detail, event.detail !== ""));
  addEventListener("popstate", () => follow(sane));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetInks(); render(); });
  sane();
  onState(changed);
  await render();
}

// Instead of recordings: a run in progress.
function followRun() {
  for (const it of ["tabs", "search", "save"]) byId(it).hidden = true;
  document.querySelector(".choose").hidden = true;
  byId("theme").addEventListener("click", switchTheme);
  byId("help").addEventListener("click", showWords);
  document.addEventListener("server", (event) => say(event.detail, event.detail !== ""));
  document.title = "live: plimsoll";
  page.view = new LiveView(page.cards);
  refill(byId("main"), page.view.node);
}

// What an address names may not be in these recordings.
function sane() {
  if (!VIEWS.some(([it]) => it === state.view)) state.view = "answer";
  if (!page.scenes[state.r]) state.r = 0;
  const scene = page.scenes[state.r];
  if (!["events", "time"].includes(state.axis) || !scene.micros) state.axis = "events";
  if (!["category", "line", "pool"].includes(state.by)) state.by = "category";
  if (!page.scenes[state.with] || state.with === state.r) state.with = null;
  if (state.with === null || page.scenes[state.with].lives <= state.below) state.below = null;
  if (!["", "curve"].includes(state.lay)) state.lay = "";
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
  const isSame = now.view === before.view && now.r === before.r;
  if (now.pin !== before.pin || now.below !== before.below) pinned();
  if (now.sel !== before.sel || now.pin !== before.pin || now.below !== before.below || (now.sel && now.at !== before.at)) picked();
  if (isSame && now.view === "timeline" && only("from", "to", "low", "top", "at", "compare", "pin", "sel", "with", "also", "below", "lay")) page.view.draw();
  else if (isSame && only("pin", "sel", "from", "to", "low", "top", "with", "also", "below", "lay")) {
    if (page.view.draw) page.view.draw();
  } else if (isSame && now.view === "whatif" && only("card", "memory", "outside", "conf")) page.view.follow();
  else if (isSame && only("at", "compare", "pin", "sel") && ["peak", "segments"].includes(now.view)) page.view.load();
  else if (isSame && only("at", "compare", "pin", "sel")) return;
  else render();
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
  for (const [key] of VIEWS) {
    byId(`tab-${key}`).setAttribute("aria-selected", String(key === view));
    byId(`tab-${key}`).tabIndex = key === view ? 0 : -1;
  }
  // On a narrow screen the tabs are wider than it.
  const { offsetLeft, offsetWidth } = byId(`tab-${view}`);
  byId("tabs").scrollLeft = offsetLeft + offsetWidth / 2 - byId("tabs").offsetLeft - byId("tabs").clientWidth / 2;
  byId("tab-ranks").hidden = page.scenes.length < 2 && view !== "ranks";
  document.title = `${sceneName(scene)}: plimsoll`;
  if (page.view) page.view.close();
  const others = page.scenes.map((it, index) => ({ r: index, scene: it, name: sceneName(it), marks: () => marksOf(index) })).filter((it) => it.r !== r);
  const card = page.cards.find((it) => it.id === state.card) || null;
  const make = {
    answer: () => new AnswerView(scene, marks),
    timeline: () => new Timeline(scene, marks, card, others),
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
  picked();
}

function head(scene, view) {
  const facts = [
    el("span", {}, el("b", { title: exactly(scene.peak_allocated) }, size(scene.peak_allocated)), " allocated at the peak"),
    el("span", {}, el("b", { title: exactly(scene.peak_reserved) }, size(scene.peak_reserved)), " reserved at most"),
    el("span", {}, many(scene.events, "event")),
    scene.refusals.length ? el("span", { class: "bad" }, `${number(scene.refusals.length)}× out of memory`) : null,
  ];
  const own = scene.capacity ? "the card of the recording" : "none";
  const card = view === "timeline" ? el("label", { class: "card-choice" }, "Draw the limit of a card ", el("select", { onchange: (event) => set({ card: event.target.value }) }, el("option", { value: "" }, own), page.cards.map((it) => el("option", { value: it.id, selected: it.id === state.card }, `${it.id} (${size(it.total)})`)))) : null;
  const odd = [
    scene.lives === 0 ? "This recording has no blocks." : null,
    scene.lives && !scene.made && !scene.damage ? "This recording has only the blocks that were live at its end. To record the history as well, call torch.cuda.memory._record_memory_history() before the model is built." : null,
    !scene.stacks && scene.lives && !scene.damage ? "The recording has no call stacks, so this page cannot name lines." : null,
  ].filter(Boolean);
  const damage = scene.damage ? damaged("Incomplete recording. ", scene) : null;
  return el("div", { class: "head" }, damage, el("p", { class: `about of-${view}` }, ABOUT[view]), el("p", { class: "facts" }, facts, card), odd.map((it) => el("p", { class: "odd" }, it)));
}

async function pinned() {
  const isBelow = state.pin === null && state.below !== null && state.view === "timeline";
  side.hidden = state.pin === null && !isBelow;
  if (side.hidden) return;
  await showBlock(side, page.scenes[isBelow ? state.with : state.r], isBelow ? state.below : state.pin, isBelow ? state.with : state.r);
}

async function picked() {
  const scene = page.scenes[state.r];
  const before = selected();
  await showSelection(found, scene, momentShown(scene), () => page.view);
  if (selected() !== before && page.view && page.view.draw) page.view.draw();
}

// After a search the keys act on the page.
function find(words) {
  if (!words.trim()) return;
  set({ sel: `words:${words.trim()}`, pin: null });
  byId("words").blur();
  byId("main").focus({ preventScroll: true });
}

// The name of a file without its folder and its last ending.
function fileStem(path) {
  return path.split(/[/\\]/).pop().replace(/(\.pickle)?\.\w+$/, "");
}

// The arrows go through the tabs.
function alongTabs(event) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  event.stopPropagation();
  const shown = VIEWS.filter(([it]) => !byId(`tab-${it}`).hidden);
  const at = shown.findIndex(([it]) => it === state.view);
  const [next] = shown[(at + by + shown.length) % shown.length];
  set({ view: next });
  byId(`tab-${next}`).focus();
}

function key(event) {
  const { target } = event;
  const box = target.closest && target.closest("input, select, textarea, dialog");
  const isChoice = box && (box.type === "radio" || box.type === "checkbox");
  const isArrow = event.key.startsWith("Arrow");
  if (event.key === "Escape") {
    if (box === byId("words")) {
      box.blur();
      return;
    }
    if (box && box.blur) box.blur();
    if (state.pin !== null) set({ pin: null });
    else if (state.below !== null) set({ below: null });
    else if (state.sel || state.also) set({ sel: "", also: "" });
    else set({ compare: null });
    return;
  }
  if ((box && !isChoice) || (isChoice && (isArrow || event.key === " ")) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" && target.closest && target.closest("button, summary, a")) return;
  const scene = page.scenes[state.r];
  const number_ = Number(event.key);
  if (1 <= number_ && number_ <= VIEWS.length) set({ view: VIEWS[number_ - 1][0] });
  else if (event.key === "/") { event.preventDefault(); byId("words").focus(); }
  else if (event.key === "t") switchTheme();
  else if (event.key === "?") showWords();
  else if (event.key === "c") set({ compare: state.compare === null ? momentShown(scene) : null });
  else if (event.key === "n" || event.key === "N") {
    const life = neighbour(event.key === "n" ? 1 : -1);
    if (life !== null) set({ pin: life });
  } else if (event.key === "," || event.key === ".") set({ at: Math.max(0, Math.min(scene.events, momentShown(scene) + (event.key === "." ? 1 : -1))) });
  else if (page.view && page.view.key && page.view.key(event)) return;
  else if (state.view !== "timeline" && event.key === "p") set({ at: scene.peak_position });
  else if (state.view !== "timeline" && event.key === "o" && scene.refusals[0]) set({ at: (scene.refusals.find((it) => momentShown(scene) < it.position) || scene.refusals[0]).position });
  else if (["peak", "segments"].includes(state.view) && (event.key === "[" || event.key === "]")) {
    const to = stepEnd(page.marks.get(state.r), momentShown(scene), event.key === "[" ? -1 : 1);
    if (to !== null) set({ at: to });
  }
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
    el("p", { class: "quiet" }, "On the timeline: the wheel zooms in time, with Ctrl or Alt in height. Drag to move; drag with Shift to draw a box and zoom into it; on a touch screen, pinch. A click pins a block and its moment, a double click zooms to it."),
    el("h2", {}, "Words"),
    el("dl", {}, GLOSSARY.map(([word, meaning]) => [el("dt", {}, word), el("dd", {}, meaning)])));
  dialog.showModal();
}

// For tests and measurements.
window.plimsoll = { page, state, set, asking: { ask, askWindow } };

start();
