// What part of a recording the timeline shows: from where to where in time and in bytes, and how that becomes pixels.

import { set, state } from "./state.js";
import { finely } from "./words.js";

const LEFT = 74;
// Beside the first event, where earlier ones were overwritten.
export const LOST = 26;
export const TOP = 44;
const BOTTOM = 26;
export const RIGHT = 14;

const NARROW = 520;

export class Scale {
  constructor(scene, marks, box, levels) {
    this.scene = scene;
    this.marks = marks;
    this.box = box;
    this.levels = levels;
    this.still = null;
  }

  // Measures that hold for one painting are taken once.
  hold() {
    this.still = null;
    this.still = { area: this.area, left: this.left, low: this.low, high: this.high };
  }

  release() {
    this.still = null;
  }

  // Where the plot begins.
  get left() {
    if (this.still) return this.still.left;
    const least = this.box.clientWidth < NARROW ? 68 : LEFT;
    const longest = Math.max(...this.ticks(this.box.clientHeight - TOP - BOTTOM).map(([, text]) => text.length), 0);
    const left = Math.max(least, Math.ceil(longest * 7.2) + 10);
    return this.scene.overwritten ? left + LOST : left;
  }

  get area() {
    if (this.still) return this.still.area;
    const box = this.box.getBoundingClientRect();
    return { width: Math.max(50, box.width - this.left - RIGHT), height: Math.max(50, box.height - TOP - BOTTOM) };
  }

  get isTime() {
    return state.axis === "time";
  }

  get end() {
    return this.isTime ? this.scene.micros + 1 : this.scene.events + 1;
  }

  get from() {
    return state.from === null ? 0 : Math.min(state.from, this.end - 1);
  }

  get to() {
    return state.to === null ? this.end : Math.max(this.from + 1, Math.min(state.to, this.end));
  }

  // Where the axis of bytes has words, for a picture that is so high: [[bytes, words], …].
  ticks(height) {
    const { low, high } = this;
    const step = 2 ** Math.ceil(Math.log2(Math.max(1, (high - low) / Math.max(3, Math.min(10, height / 45)))));
    const res = [];
    for (let bytes = Math.ceil(low / step) * step; bytes <= high; bytes += step) res.push([bytes, bytes === 0 ? "0" : finely(bytes, step)]);
    return res;
  }

  // The top of everything, of a second recording too.
  get most() {
    const most = Math.max(1, ...[this.scene, this.second].filter(Boolean).map((it) => Math.max(it.peak_allocated, it.peak_reserved)));
    const lines = this.levels().map((it) => it.bytes).filter((it) => it < most * 1.6);
    return Math.max(most, ...lines) * 1.08;
  }

  get low() {
    if (this.still) return this.still.low;
    return state.low === null ? 0 : Math.max(0, state.low);
  }

  get high() {
    if (this.still) return this.still.high;
    const low = state.low === null ? 0 : Math.max(0, state.low);
    return state.top === null ? Math.max(this.most, low + 1) : Math.max(low + 1, state.top);
  }

  x(value) {
    return this.left + ((value - this.from) / (this.to - this.from)) * this.area.width;
  }

  y(bytes) {
    return TOP + (1 - (bytes - this.low) / (this.high - this.low)) * this.area.height;
  }

  axisOf(position, micros) {
    return this.isTime ? micros : position;
  }

  // ---- moving about --------------------------------------------------------------------------------------

  show(from, to) {
    const least = this.isTime ? 10 : 4;
    const span = Math.min(this.end, Math.max(least, to - from));
    const start = Math.max(0, Math.min(this.end - span, from));
    const isAll = span === this.end;
    set({ from: isAll ? null : start, to: isAll ? null : start + span });
  }

  // The same for bytes. Some space above is allowed, none below.
  showBytes(low, high) {
    const most = this.most;
    const span = Math.min(most, Math.max(512, high - low));
    const start = Math.max(0, Math.min(most - span, low));
    const isAll = most * 0.999 <= span;
    set({ low: isAll ? null : start, top: isAll ? null : start + span });
  }

  zoom(factor, at = 0.5) {
    const span = this.to - this.from;
    const fixed = this.from + span * at;
    this.show(fixed - span * factor * at, fixed + span * factor * (1 - at));
  }

  // `at` is from 0 at the bottom to 1 at the top.
  zoomBytes(factor, at = 0.5) {
    const span = this.high - this.low;
    const fixed = this.low + span * at;
    this.showBytes(fixed - span * factor * at, fixed + span * factor * (1 - at));
  }

  move(by) {
    this.show(this.from + by, this.to + by);
  }

  moveBytes(by) {
    if (state.low === null && state.top === null) return;
    this.showBytes(this.low + by, this.high + by);
  }
}
