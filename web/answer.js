// The answer first: what happened, on which line, what to change; then what the peak consists of. A click on anything that
// names blocks selects them.

import { ask } from "./api.js";
import { swatch } from "./details.js";
import { el, prose, refill } from "./dom.js";
import { around } from "./growth.js";
import { afterStep } from "./moments.js";
import { failed } from "./peak.js";
import { colorOf, ground } from "./palette.js";
import { set, state } from "./state.js";
import { clipped, exactly, many, number, phaseName, place, share, size } from "./words.js";

const SHOWN_LINES = 6;
const WEIGHTS = { problem: "problem", chance: "could be saved", fact: "note" };

export class AnswerView {
  constructor(scene, marks) {
    this.scene = scene;
    this.marks = marks;
    this.node = el("section", { class: "answer", "aria-label": "Answer" }, el("p", { class: "wait" }, "Analysing the recording…"));
    this.load();
  }

  close() {
    this.isClosed = true;
  }

  async load() {
    try {
      // The peak is known at once; the analysis of a large recording takes a second or two.
      const moment = await ask("moment", { r: state.r, position: this.scene.peak_position });
      if (!this.isClosed) refill(this.node, el("p", { class: "wait" }, "Analysing the recording…"), this.peak(moment));
      const { explanations, headlines, blocks } = await ask("analysis");
      if (!this.isClosed) this.fill({ ...explanations[this.scene.file], headline: headlines[this.scene.file], blocks: blocks[this.scene.file] }, moment);
    } catch (error) {
      failed(this.node, error, () => this.load());
    }
  }

  fill(analysis, moment) {
    const { scene, marks } = this;
    const own = analysis.findings.map((it, index) => ({ ...it, index, counted: analysis.blocks[index] })).filter((it) => it.device === scene.device && !(scene.damage && it.code.startsWith("recording/")));
    const ooms = analysis.ooms.filter((it) => it.device === null || it.device === scene.device);
    const wrong = own.filter((it) => it.weight !== "fact");
    const facts = own.filter((it) => it.weight === "fact");
    // Like is compared with like: what stays after a step, with what stays after another.
    const ended = marks.steps.filter((it) => it.after !== null);
    const [first, last] = [ended[0], ended[ended.length - 1]];
    // What the headline says is the first finding.
    const lead = !ooms.length && wrong[0]?.weight === "problem" ? wrong[0] : null;
    const tone = ooms.length || wrong.some((it) => it.weight === "problem") || analysis.unsure ? "problem" : "fine";
    refill(this.node,
      el("article", { class: `card headline ${tone}` },
        el("h2", {}, el("span", { class: tone === "problem" ? "bad" : "good" }, analysis.headline.word), el("span", { class: "said", title: analysis.headline.text }, clipped(analysis.headline.text, 500))),
        1 < scene.devices ? el("p", { class: "quiet" }, `This verdict is about the whole recording, with its ${number(scene.devices)} devices. The rest of this page is about device ${scene.device} only.`) : null,
        ooms.length ? this.oom(ooms[0]) : null,
        lead ? this.where(lead) : null,
        el("p", { class: "actions" },
          lead ? this.shows(lead) : null,
          this.link("Look at the peak", { view: "peak", at: scene.peak_position }),
          1 < ended.length ? this.link(`Compare the first step with the last (${number(first.step)} and ${number(last.step)})`, { view: "peak", compare: afterStep(first), at: afterStep(last) }) : null,
          lead && lead.per_step_bytes ? this.link("How it grows, step by step", { view: "growth" }) : null,
          this.link("Fragmentation: segments and holes", { view: "segments", at: scene.refusals.length ? scene.refusals[scene.refusals.length - 1].position : scene.peak_reserved_position }),
          this.link("What if: another card, other settings", { view: "whatif" }))),
      el("div", { class: "columns" },
        el("div", {}, el("h2", {}, wrong.length ? "Findings, most important first" : "No finding would save memory"), wrong.map((it) => this.finding(it)),
          ooms.slice(1, 4).map((it) => el("article", { class: "card problem" }, el("h3", {}, "Another request failed"), this.oom(it))),
          facts.length || analysis.notes.length ? el("details", { open: !wrong.length }, el("summary", {}, "Notes"), facts.map((it) => this.finding(it)), el("ul", { class: "notes" }, analysis.notes.map((it) => el("li", {}, prose(it))))) : null),
        this.peak(moment)));
    this.reach(state.finding);
  }

  // The card of the finding that somebody looked for.
  reach(index) {
    const card = index === null ? null : this.node.querySelector(`#finding-${index}`);
    if (!card) return;
    const notes = card.closest("details");
    if (notes) notes.open = true;
    card.classList.add("meant");
    requestAnimationFrame(() => card.scrollIntoView({ block: "center" }));
  }

  link(label, changes) {
    return el("button", { type: "button", title: label, onclick: () => set(changes) }, clipped(label, 90));
  }

  // The line of a finding, with its code where the recording has it.
  where(it) {
    const { line } = it.evidence;
    if (!line) return null;
    return el("p", { class: "where" }, "At ", el("button", { type: "button", class: "link", title: `Search for this line of ${line.file}`, onclick: () => set({ view: "timeline", sel: `words:${line.file.split(/[/\\]/).pop()}:${line.line}`, at: this.scene.peak_position, pin: null }) }, el("b", {}, place([line.file, line.line, line.function]))),
      it.per_step_bytes ? `, ${size(it.per_step_bytes)} more each time` : "", line.text ? el("code", { class: "source" }, line.text.trim()) : null);
  }

  // The blocks that a finding counts, in the timeline, when all of them are there; everything else is faint.
  shows(it) {
    const [n, bytes, at] = it.counted;
    if (!n) return null;
    const blocks = n === 1 ? "this block" : `these ${many(n, "block")}`;
    return this.link(`Show ${blocks} (${size(bytes)})`, { view: "timeline", sel: `finding:${it.index}`, at: Math.min(at, this.scene.events), pin: null, from: null, to: null, low: null, top: null });
  }

  oom(it) {
    const numbers = [["requested", it.requested_bytes], ["allocated", it.allocated_bytes], ["reserved", it.reserved_bytes], ["free on the device", it.free_bytes], ["slack: reserved, not allocated", it.slack_bytes], ["capacity", it.capacity_bytes], ["others", it.other_bytes], ["limit", it.limit_bytes]].filter(([, bytes]) => bytes !== null);
    // No step has begun in an evaluation.
    const evaluation = it.phase !== "evaluation" ? null : 1 < it.step ? `an evaluation after step ${number(it.step - 1)}` : "an evaluation";
    const moment = evaluation ? [evaluation] : [it.step ? `step ${number(it.step)}` : null, it.phase ? phaseName(it.phase) : null];
    const at = (line) => place([line.file, line.line, line.function]);
    const when = [...moment, it.at ? at(it.at) : null, it.library_at ? `which called ${at(it.library_at)}` : null, it.module ? `in module ${it.module}` : null].filter(Boolean).join(", ");
    const refusal = this.scene.refusals[this.scene.refusals.length - 1];
    return [
      when ? el("p", {}, "Memory ran out in ", el("b", {}, clipped(when, 240)), it.at?.text ? el("code", { class: "source" }, it.at.text.trim()) : null) : null,
      el("dl", { class: "inline" }, numbers.map(([label, bytes]) => el("div", {}, el("dt", {}, label), el("dd", { title: exactly(bytes) }, size(bytes))))),
      it.enough.length ? el("p", {}, "Without these blocks the request would have been served: ", it.enough.slice(0, 4).map((part, index) => [index ? ", " : "", `${size(part.bytes)} by ${part.at}`]), it.enough.length > 4 ? ", …" : "", ". Later requests are not in the recording.") : null,
      it.remedies.length ? [el("h3", {}, "What to change"), el("ol", {}, it.remedies.slice(0, 6).map((remedy) => el("li", {}, prose(remedy))))] : null,
      it.in_vain.map((tried) => el("p", {}, "Would not help: ", prose(tried))),
      refusal ? el("p", { class: "actions" }, this.link("Show on the timeline", { view: "timeline", at: refusal.position, ...around(refusal.position, this.scene) }), this.link("Show the holes", { view: "segments", at: refusal.position })) : null];
  }

  finding(it) {
    const step = it.evidence.step && this.marks.steps.find((mark) => mark.step === it.evidence.step);
    return el("article", { id: `finding-${it.index}`, class: `card ${it.weight}` },
      el("h3", { title: it.title }, clipped(it.title, 400)),
      el("p", { class: "kind" }, el("code", {}, it.code), " · ", WEIGHTS[it.weight], it.bytes ? ` · up to ${size(it.bytes)}` : ""),
      this.where(it),
      it.evidence.facts.length ? el("ul", { class: "evidence" }, it.evidence.facts.map((fact) => el("li", {}, prose(clipped(fact, 400))))) : null,
      it.remedy ? el("p", {}, el("b", {}, "Change: "), prose(it.remedy)) : null,
      el("p", { class: "actions" }, this.shows(it),
        step ? el("button", { type: "button", onclick: () => this.showStep(step) }, `Show step ${number(step.step)}`) : null,
        it.code.startsWith("pools/") ? this.link("Show the pools", { view: "timeline", by: "pool" }) : null,
        it.code.startsWith("streams/") ? this.link("Show what waits in the map", { view: "segments", at: this.scene.peak_position }) : null,
        it.code.startsWith("fragmentation") ? this.link("Show the holes", { view: "segments", at: this.scene.peak_reserved_position }) : null));
  }

  peak(moment) {
    const { scene } = this;
    const groups = scene.groups.category;
    const parts = moment.categories.map(([bytes, blocks], index) => ({ bytes, blocks, index })).filter((it) => it.blocks).sort((a, b) => b.bytes - a.bytes);
    const show = (sel) => () => set({ view: "timeline", sel, at: scene.peak_position, pin: null });
    return el("div", {}, el("h2", {}, `The peak: ${size(scene.peak_allocated)}`),
      el("div", { class: "bar", role: "img", "aria-label": "What the peak is for" }, parts.map((it) => el("span", { title: `${groups[it.index].name}: ${size(it.bytes)}`, style: { width: `${(100 * it.bytes) / Math.max(1, moment.allocated)}%`, background: ground(colorOf(groups[it.index]), groups[it.index].key) } }))),
      el("table", { class: "list numbers" }, el("tbody", {}, parts.map((it) => el("tr", {},
        el("td", {}, el("button", { type: "button", class: "plain", title: "Show these blocks on the timeline", onclick: show(`category:${it.index}`) }, swatch(colorOf(groups[it.index]), groups[it.index].key), groups[it.index].name)), el("td", { title: exactly(it.bytes) }, size(it.bytes)), el("td", {}, share(it.bytes, moment.allocated)), el("td", {}, number(it.blocks)))))),
      el("h3", {}, "The lines with the most memory"),
      el("table", { class: "list" }, el("tbody", {}, moment.rows.slice(0, SHOWN_LINES).map((it) => el("tr", {},
        el("td", { class: "code", title: it.line ? it.line[0] : "" }, el("button", { type: "button", class: "link", title: "Show these blocks on the timeline", onclick: show(`owner:${it.owner}:${it.category}`) }, clipped(place(it.line), 60))),
        el("td", {}, swatch(colorOf(groups[it.category]), groups[it.category].key), groups[it.category].name), el("td", { title: exactly(it.bytes) }, size(it.bytes)))))));
  }

  showStep(step) {
    const { steps } = this.marks;
    const before = steps[steps.indexOf(step) - 1];
    const value = (mark) => (state.axis === "time" ? mark.micros : mark.end);
    set({ view: "timeline", from: before ? value(before) : 0, to: value(step), low: null, top: null });
  }
}
