// Every event of the recording as one list: found by words, walked through by the arrows, with what rounding adds to each block.

import { ask } from "./api.js";
import { el, refill } from "./dom.js";
import { set, state } from "./state.js";
import { exactly, many, number, place, size } from "./words.js";

const ROW_HEIGHT = 24;
// So many are asked for together, and so many are in the page at once.
const TOGETHER = 200;
const IN_PAGE = 60;
// Higher than this no browser draws a list: then it moves faster than the mouse.
const HIGHEST = 12e6;

export class EventList {
  constructor(scene) {
    this.scene = scene;
    this.parts = new Map();
    this.body = el("tbody");
    this.box = el("div", { class: "eventlist", tabIndex: 0, "aria-label": "Events; the arrows go from one to the next", onscroll: () => this.draw(), onkeydown: (event) => this.key(event) },
      el("table", { class: "list" }, el("thead", {}, el("tr", {}, [["event", ""], ["what", ""], ["bytes", ""], ["lost", "What rounding adds to the requested size"], ["address", ""], ["line", ""]].map(([it, title]) => el("th", { scope: "col", title }, it)))), this.body));
    this.words = el("input", { type: "search", "aria-label": "Find an event", placeholder: "find: free, conv2d, 312MiB, 0x7f…", onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); this.find(event.shiftKey); } } });
    this.said = el("span", { class: "quiet", role: "status" });
    this.node = el("details", { open: true }, el("summary", {}, `All ${many(scene.events, "event")}`),
      el("div", { class: "controls" }, this.words, el("button", { type: "button", title: "The event before (Shift+Enter)", onclick: () => this.find(true) }, "◂ find"), el("button", { type: "button", title: "The next event (Enter)", onclick: () => this.find(false) }, "find ▸"), this.said), this.box);
  }

  // Shows the moment after event `position`.
  show(position) {
    this.position = position;
    const { box } = this;
    // Before it has rows it has no height to scroll in.
    this.draw();
    const top = (position - 1) * this.pitch;
    if (top < box.scrollTop || box.scrollTop + box.clientHeight - 3 * ROW_HEIGHT < top) box.scrollTop = top - box.clientHeight / 2;
    this.draw();
  }

  // The height of one event in the scroll bar.
  get pitch() {
    return Math.min(ROW_HEIGHT, HIGHEST / Math.max(1, this.scene.events));
  }

  part(index) {
    if (!this.parts.has(index)) {
      const asked = ask("events", { r: state.r, from: 1 + index * TOGETHER, n: TOGETHER }).then(({ events }) => { this.parts.set(index, events); this.draw(); }, (error) => { this.parts.delete(index); this.said.textContent = error.message; });
      this.parts.set(index, asked);
    }
    const known = this.parts.get(index);
    return Array.isArray(known) ? known : null;
  }

  draw() {
    const { scene, box, position, pitch } = this;
    const all = scene.events;
    const first = Math.max(0, Math.min(all - IN_PAGE, Math.floor(box.scrollTop / pitch) - 8));
    const last = Math.min(all, first + IN_PAGE);
    // A request that failed in the backward pass has no stack of Python's: its line is the one that called the pass.
    const refused = (at) => scene.refusals.find((it) => it.position === at)?.line ?? "";
    const rows = [];
    for (let at = first; at < last; at++) {
      const it = this.part(Math.floor(at / TOGETHER))?.[at % TOGETHER];
      rows.push(el("tr", { class: at + 1 === position ? "chosen" : "" },
        el("td", {}, el("button", { type: "button", class: "link", title: "The moment after this event", "aria-label": `event ${number(at + 1)}`, onclick: () => set({ at: at + 1, pin: it?.life ?? null }) }, number(at + 1))),
        it ? [el("td", {}, it.action), el("td", { title: exactly(it.size) }, size(it.size)), el("td", { class: it.loss ? "loss" : "", title: it.loss ? exactly(it.loss) : "" }, it.loss ? size(it.loss) : ""), el("td", { class: "code" }, it.address ?? ""), el("td", { class: "code", title: it.line ? place(it.line) : "" }, it.line ? place(it.line) : refused(it.position))] : el("td", { colSpan: 5, class: "quiet" }, "…")));
    }
    const space = (height) => el("tr", { class: "space", "aria-hidden": "true" }, el("td", { colSpan: 6, style: { height: `${Math.max(0, height)}px` } }));
    const top = first * pitch;
    refill(this.body, space(top), rows, space(all * pitch - top - (last - first) * ROW_HEIGHT));
  }

  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    set({ at: Math.max(1, Math.min(this.scene.events, this.position + by)) });
  }

  async find(isBack) {
    const words = this.words.value.trim();
    if (!words) return;
    this.said.textContent = "Searching…";
    try {
      const { count, index, position } = await ask("find-event", { r: state.r, words, from: this.position, back: isBack ? "1" : "0" });
      this.said.textContent = count ? `${number(index + 1)} of ${many(count, "event")}` : "no event has these words";
      if (position !== null) set({ at: position });
    } catch (error) {
      this.said.textContent = error.message;
    }
  }
}
