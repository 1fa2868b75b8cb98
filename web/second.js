// A second recording that hangs below the first, step under step: its curve and its blocks, on the same scale of bytes.

import { askWindow } from "./api.js";
import { aligned, differing } from "./align.js";
import { bandsOf, totalsOf } from "./bands.js";
import { blockFacts, shortFacts, swap, swatch } from "./details.js";
import { el, fit, hideTip, say, showTip } from "./dom.js";
import { listen } from "./gestures.js";
import { drawNames } from "./marks.js";
import { colorOf, inkOf } from "./palette.js";
import { Picture } from "./raster.js";
import { RIGHT } from "./scale.js";
import { chosenBelow, loadBelow } from "./selection.js";
import { set, state } from "./state.js";
import { clipped, number, size } from "./words.js";

// Below the picture.
const UNDER = 6;
const NOTHING_DRAWN_ALONE = 2 ** 60;

export class Second {
  // `own` are the marks of the first recording, `theirs` those of the second, `redraw` draws both.
  constructor({ r, scene, name }, own, theirs, scale, redraw) {
    Object.assign(this, { r, scene, name, scale, redraw });
    const isTime = state.axis === "time";
    this.axis = state.axis;
    this.end = isTime ? scene.micros + 1 : scene.events + 1;
    this.align = aligned({ marks: own, end: scale.end }, { marks: theirs, end: this.end }, isTime);
    this.told = differing(own.steps, theirs.steps, name);
    this.color = inkOf("other");
    this.data = null;
    this.picture = new Picture({ place: this.align.toOwn, isFlipped: true });
    this.canvas = el("canvas", { class: "plot", role: "img", "aria-label": `${name}, below: the key x puts it above, where keys walk through its blocks.` });
    this.over = el("canvas", { class: "over", "aria-hidden": "true" });
    this.node = el("div", { class: "plotbox lower" }, this.canvas, this.over);
    this.isFlipped = true;
    this.unlisten = listen(this);
  }

  get hasBlocks() { return state.lay !== "curve"; }

  get area() {
    const box = this.node.getBoundingClientRect();
    return { width: Math.max(50, box.width - this.scale.left - RIGHT), height: Math.max(30, box.height - UNDER) };
  }

  y(bytes) {
    const { low, high } = this.scale;
    return ((bytes - low) / (high - low)) * this.area.height;
  }

  // The moment of this recording that `position` of the first one is.
  there(position) {
    if (position === null || this.axis === "time") return this.scene.peak_position;
    return Math.max(0, Math.min(this.scene.events, Math.round(this.align.toTheirs(position))));
  }

  // ---- what is asked for ---------------------------------------------------------------------------------

  wanted() {
    const { scale, align } = this;
    const span = scale.to - scale.from;
    const [from, to] = [Math.floor(align.toTheirs(scale.from - span / 2)), Math.ceil(align.toTheirs(scale.to + span / 2))];
    const shown = Math.max(1e-9, align.toTheirs(scale.to) - align.toTheirs(scale.from));
    const { width, height } = this.area;
    const ratio = Math.min(2, devicePixelRatio || 1);
    const columns = Math.max(1, Math.min(4096, Math.ceil((1.5 * width * ratio * (to - from)) / shown)));
    const least = this.hasBlocks ? 2 ** Math.floor(Math.log2(Math.max(1, (scale.high - scale.low) / (height * ratio)))) : NOTHING_DRAWN_ALONE;
    return { r: this.r, axis: this.axis, from: Math.max(0, from), to: Math.max(from + 1, Math.min(this.end, to)), columns, least, by: this.hasBlocks ? state.by : "category" };
  }

  suits(data, wanted) {
    if (!data || data.by !== wanted.by || data.least !== wanted.least) return false;
    if (data.failed) return true;
    const [finer, needed] = [data, wanted].map((it) => (it.to - it.from) / it.columns);
    const [from, to] = [this.scale.from, this.scale.to].map(this.align.toTheirs);
    return data.from <= from && to <= data.to && (finer <= needed * 1.45 || finer <= 1) && needed <= finer * 4;
  }

  async fetch() {
    if (this.isAsking || this.isClosed) return;
    const wanted = this.wanted();
    if (this.suits(this.data, wanted)) return;
    this.isAsking = true;
    try {
      this.data = await askWindow(wanted);
      this.totals = null;
    } catch (error) {
      this.data = { ...wanted, n: 0, k: 0, groups: 0, failed: true, allocated: [] };
      say(error.message, true);
    } finally {
      this.isAsking = false;
    }
    if (!this.isClosed) this.redraw();
  }

  close() {
    this.isClosed = true;
    this.unlisten();
    hideTip();
  }

  // Its allocated memory at the places of the first recording: [[x of the axis, bytes], …].
  get curve() {
    const { data } = this;
    if (!data || !data.n) return [];
    if (this.curved?.of === data) return this.curved.curve;
    const per = (data.to - data.from) / data.n;
    this.curved = { of: data, curve: Array.from(data.allocated, (bytes, at) => [this.align.toOwn(data.from + at * per), bytes]) };
    return this.curved.curve;
  }

  // ---- drawing -------------------------------------------------------------------------------------------

  // A line of code has the colour that it has above, whatever it is called here; what is not above is grey.
  colors(groups, above, rows) {
    if (state.by === "category") return groups.map(colorOf);
    const names = new Map(above.map((it, index) => [it.name, index]));
    const base = (path) => path.split(/[/\\]/).pop();
    const written = ([file, line, name, , isBackward]) => `${isBackward ? "backward of " : ""}${base(file)}:${line} in ${name}`;
    for (const it of rows ?? []) if (it.renamed && it.line && names.has(written(it.line))) names.set(written(it.renamed), names.get(written(it.line)));
    return groups.map((it) => (names.has(it.name) ? colorOf(above[names.get(it.name)], names.get(it.name)) : colorOf({ key: "others" }, 0)));
  }

  // `first` is the data of the recording above, `rows` what differs.
  draw(first, above, rows) {
    this.fetch();
    if (!this.hasBlocks || !this.node.isConnected) return;
    const { scale, canvas, picture, data } = this;
    const { width, height } = this.area;
    this.ratio = fit(canvas, width, height);
    canvas.style.left = `${scale.left}px`;
    const context = canvas.getContext("2d");
    const groups = this.scene.groups[state.by];
    this.own = this.colors(groups, above, rows);
    const fits = data && data.n && data.by === state.by;
    if (fits) {
      picture.paint(data, scale.from, scale.to, scale.low, scale.high, canvas.width, canvas.height);
      if (!this.image || this.image.width !== canvas.width || this.image.height !== canvas.height) this.image = context.createImageData(canvas.width, canvas.height);
      this.recolor();
    } else {
      context.clearRect(0, 0, canvas.width, canvas.height);
    }
    this.drawOver(first, fits, groups);
    loadBelow(this.there(state.at)).then((isNew) => { if (isNew && !this.isClosed) this.redraw(); }, (error) => say(error.message));
  }

  recolor() {
    const lit = state.below !== null ? { life: state.below } : this.lit;
    const colors = this.picture.colors(this.scene.groups[state.by], inkOf("plot"), lit, chosenBelow(), this.own);
    this.picture.color(this.image, colors);
    this.canvas.getContext("2d").putImageData(this.image, 0, 0);
  }

  drawOver(first, fits, groups) {
    const { scale, data } = this;
    const box = this.node.getBoundingClientRect();
    const ratio = fit(this.over, box.width, box.height);
    const c = this.over.getContext("2d");
    c.setLineDash([]);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, box.width, box.height);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    const { width, height } = this.area;
    c.lineWidth = 1;
    c.strokeStyle = inkOf("line");
    c.strokeRect(scale.left - 0.5, 0.5, width + 1, height);
    scale.ticks(height).forEach(([bytes, text]) => {
      const y = this.y(bytes);
      if (y < 9 || height < y) return;
      c.fillStyle = inkOf("quiet");
      c.textAlign = "right";
      c.fillText(text, scale.left - 8, y);
      c.beginPath();
      c.moveTo(scale.left - 4, y);
      c.lineTo(scale.left, y);
      c.stroke();
    });
    c.save();
    c.beginPath();
    c.rect(scale.left, 0, width, height);
    c.clip();
    if (fits) {
      this.totals ||= totalsOf(data);
      const [from, to] = [scale.from, scale.to].map(this.align.toTheirs);
      const bands = bandsOf(data, this.totals, { from, to, low: scale.low, high: scale.high }).map((it) => ({ ...it, from: this.align.toOwn(it.from), to: this.align.toOwn(it.to) }));
      drawNames(c, { picture: this.picture, data, bands, groups, colors: this.own, left: scale.left, top: 0, width, height, x: (at) => scale.x(at), y: (it) => this.y(it), taken: [], isPale: chosenBelow() !== null });
      this.outline(c, this.curve.map(([at], index) => [at, data.reserved[index]]), inkOf("ink"), 1.5);
    }
    if (first && first.n) {
      const per = (first.to - first.from) / first.n;
      this.outline(c, Array.from(first.allocated, (bytes, at) => [first.from + at * per, bytes]), this.color, 1.5);
    }
    if (state.at !== null && !scale.isTime) {
      c.strokeStyle = inkOf("accent");
      c.setLineDash([4, 3]);
      c.beginPath();
      c.moveTo(scale.x(state.at), 0);
      c.lineTo(scale.x(state.at), height);
      c.stroke();
      c.setLineDash([]);
    }
    if (this.dragged) {
      const [[ax, ay], [bx, by]] = this.dragged;
      c.strokeStyle = inkOf("accent");
      c.lineWidth = 1.5;
      c.setLineDash([4, 3]);
      c.strokeRect(scale.left + Math.min(ax, bx) * width, Math.min(ay, by) * height, Math.abs(ax - bx) * width, Math.abs(ay - by) * height);
      c.setLineDash([]);
    }
    c.restore();
    c.textAlign = "right";
    c.lineWidth = 5;
    c.lineJoin = "round";
    c.strokeStyle = inkOf("halo");
    const words = `below: ${clipped(this.name, 50)}, at most ${size(this.scene.peak_allocated)}`;
    // Where the line of what is reserved does not strike it through.
    const middle = Math.abs(this.y(this.scene.peak_reserved) - height + 10) < 12 ? height - 30 : height - 10;
    c.strokeText(words, scale.left + width - 6, middle);
    c.fillStyle = inkOf("ink");
    c.fillText(words, scale.left + width - 6, middle);
  }

  outline(c, points, color, lineWidth) {
    c.strokeStyle = color;
    c.lineWidth = lineWidth;
    c.beginPath();
    let before = null;
    for (const [at, bytes] of points) {
      const [x, y] = [this.scale.x(at), this.y(bytes)];
      if (before === null) c.moveTo(x, y);
      else {
        c.lineTo(x, before);
        c.lineTo(x, y);
      }
      before = y;
    }
    c.stroke();
  }

  // ---- what hands do -------------------------------------------------------------------------------------

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.picture.at(Math.floor((event.clientX - box.left) * this.ratio), Math.floor((event.clientY - box.top) * this.ratio));
  }

  leave() {
    this.hovered = null;
    hideTip();
    this.light(null);
  }

  light(lit) {
    if (this.lit === lit) return;
    this.lit = lit;
    if (this.image && this.picture.data) this.recolor();
  }

  point(event) {
    const found = this.under(event);
    const { data } = this;
    this.hovered = found;
    if (!found || found.column < 0 || !data || !data.n || found.group === undefined) {
      this.leave();
      return;
    }
    const at = found.column;
    const group = this.scene.groups[state.by][found.group];
    const foot = el("p", { class: "quiet" }, `below: event ${number(data.positions[at])}, ${size(data.allocated[at])} allocated, ${size(data.reserved[at])} reserved`);
    const head = [el("p", { class: "big" }, swatch(this.own[found.group], group.key), found.isRest ? `${size(found.size)} of small blocks` : size(found.size)), el("p", {}, group.name)];
    if (found.life === undefined || this.lit?.life !== found.life) this.light(found.life === undefined ? null : { life: found.life });
    showTip(event.clientX, event.clientY, ...head, foot);
    if (found.life === undefined) return;
    const { clientX, clientY } = event;
    blockFacts(this.r, found.life).then((facts) => {
      if (this.hovered?.life === found.life && !this.isClosed) showTip(clientX, clientY, ...head, ...shortFacts(facts), foot);
    }, () => {});
  }

  mark(box) {
    this.dragged = box;
    this.redraw();
  }

  boxed() {}

  // What two clicks mean of a block here: it goes above, where it can be walked from.
  reachPicked() {
    if (state.below !== null) swap();
  }

  // A click chooses the block and its moment, in both.
  pick(event) {
    const found = this.under(event);
    const { data } = this;
    if (!found || found.column < 0 || !data || !data.n) return;
    const at = this.axis === "time" ? state.at : Math.round(this.align.toOwn(data.positions[found.column]));
    set({ below: found.life ?? null, pin: null, at });
  }
}
