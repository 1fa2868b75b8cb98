// What is selected, beside whatever view is open: a true sum at the moment that is shown, and the largest of its blocks.

import { ask } from "./api.js";
import { blockFacts, showLife } from "./details.js";
import { el, refill } from "./dom.js";
import { NONE, loadSelection, neighbour, selected } from "./selection.js";
import { set, state } from "./state.js";
import { clipped, exactly, many, number, size, speaksOf } from "./words.js";

// Fills `node` for the selection of the address; hides it where there is none. Returns whether it is another than before.
export async function showSelection(node, scene, position, view) {
  if (!state.sel || state.sel === NONE) {
    await loadSelection(position);
    node.hidden = true;
    return;
  }
  node.hidden = state.pin !== null || state.below !== null;
  const before = selected();
  if (!before) refill(node, el("p", { class: "wait" }, "Searching…"));
  try {
    const it = await loadSelection(position);
    const findings = it ? await spokenOf(it.of, scene) : [];
    if (it && selected() === it) fill(node, scene, it, view(), findings);
  } catch (error) {
    refill(node, title("Nothing"), el("p", { class: "bad" }, error.message));
  }
}

// The findings that have the words: many have no blocks of their own.
async function spokenOf(of, scene) {
  if (!of.startsWith("words:")) return [];
  const { findings } = (await ask("analysis")).explanations[scene.file];
  return findings.map((it, index) => ({ ...it, index })).filter((it) => it.device === scene.device && speaksOf(it, of.slice("words:".length)));
}

function title(text) {
  return el("header", {}, el("h2", {}, text), el("button", { type: "button", class: "close", title: "Close (Esc)", "aria-label": "Close", onclick: () => set({ sel: "" }) }, "×"));
}

function fill(node, scene, { data, position, r }, view, findings) {
  const [bytes, blocks] = data.live;
  const [most, when] = data.most;
  const go = (life) => async () => showLife(await blockFacts(r, life), scene);
  const step = (direction) => () => {
    const life = neighbour(direction);
    if (life !== null) set({ pin: life });
  };
  refill(node, title(data.blocks ? many(data.blocks, "block") : findings.length ? many(findings.length, "finding") : "Nothing"),
    el("p", { class: "quiet by" }, clipped(data.by, 200), data.blocks || findings.length ? "" : ". Search for part of a line (train.py:31), function, module or tensor name, a category, words of a finding, a size (312, 512MiB, >1GiB) or an address (0x7f…)."),
    findings.length ? [
      data.blocks ? el("h3", {}, many(findings.length, "finding")) : null,
      el("ol", { class: "hits" }, findings.map((it) => el("li", { class: "live" }, el("button", { type: "button", title: it.title, onclick: () => set({ view: "answer", finding: it.index }) }, el("span", {}, clipped(it.title, 120)), el("small", {}, ` ${it.code}`)))))] : null,
    data.blocks ? [
      el("p", { class: "sum" }, el("b", { title: exactly(bytes) }, size(bytes)), ` in ${many(blocks, "block")} live at event ${number(position)}`),
      el("p", { class: "quiet" }, "Peak: ", el("button", { type: "button", class: "link", title: exactly(most), onclick: () => set({ at: Math.min(when, scene.events) }) }, `${size(most)} at event ${number(when)}`)),
      el("p", { class: "actions" },
        el("button", { type: "button", title: "The previous one (N)", "aria-label": "Previous", onclick: step(-1) }, "◂"), el("button", { type: "button", title: "The next one (n)", "aria-label": "Next", onclick: step(1) }, "▸"),
        view?.reachSelection ? el("button", { type: "button", title: "z", onclick: () => view.reachSelection() }, "Zoom to them") : el("button", { type: "button", onclick: () => set({ view: "timeline" }) }, "On the timeline"),
        state.view === "segments" ? null : el("button", { type: "button", onclick: () => set({ view: "segments", at: state.at ?? position }) }, "Show their addresses")),
      el("ol", { class: "hits" }, data.hits.map((it) => el("li", { class: it.live ? "live" : "" }, el("button", { type: "button", onclick: go(it.life) }, el("b", {}, size(it.size)), " ", el("span", {}, clipped(it.label, 90)), el("small", {}, it.start ? ` event ${number(it.start)}` : " before the recording"))))),
      data.hits.length < data.blocks ? el("p", { class: "quiet" }, `The ${number(data.hits.length)} largest of ${number(data.blocks)}.`) : null] : null);
}
