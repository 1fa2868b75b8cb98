// The timeline: blocks stacked over events or time.

import { ask, askWindow, isOneFile } from "./api.js";
import { blockFacts, shortFacts, swatch } from "./details.js";
import { el, fit, hideTip, refill, say, showTip } from "./dom.js";
import { PHASE, colorOf, inkOf, pixel } from "./palette.js";
import { Picture } from "./raster.js";
import { set, state } from "./state.js";
import { duration, many, number, phaseName, size } from "./words.js";

const LEFT = 74;
// Beside the first event, where earlier ones were overwritten.
const LOST = 26;
const TOP = 44;
const BOTTOM = 26;
const RIGHT = 14;
const STRIP = 46;

export class Timeline {
  constructor(scene, marks, card) {
    this.scene = scene;
    this.marks = marks;
    this.card = card;
    this.picture = new Picture();
    this.data = null;
    this.hover = null;
    this.timings = { paint: [], answer: [] };
    this.canvas = el("canvas", { class: "plot", tabIndex: 0, role: "img" });
    this.over = el("canvas", { class: "over", "aria-hidden": "true" });
    this.strip = el("canvas", { class: "strip", role: "slider", tabIndex: 0, "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "What part of the recording is shown", title: "The whole recording; drag to move the window" });
    this.box = el("div", { class: "plotbox" }, this.canvas, this.over);
    this.legend = el("ul", { class: "legend", "aria-label": "Legend" });
    this.summary = el("p", { class: "summary", role: "status" });
    this.node = el("section", { class: "timeline", "aria-label": "Timeline" }, this.controls(), this.box, this.strip, this.legend, this.summary);
    this.listen();
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.box);
    this.whole = null;
  }

  close() {
    this.watcher.disconnect();
    this.isClosed = true;
    hideTip();
  }

  controls() {
    const { scene } = this;
    const choice = (label, key, options) => el("fieldset", { class: "choice" }, el("legend", {}, label),
      options.map(([value, name, title]) => el("label", { title }, el("input", {
        type: "radio", name: key, value, checked: state[key] === value,
        onchange: () => set(key === "axis" ? { axis: value, from: null, to: null } : { [key]: value }),
      }), el("span", {}, name))));
    const go = (label, title, action) => el("button", { type: "button", title, onclick: action }, label);
    return el("div", { class: "controls" },
      choice("Across", "axis", [["events", "events", "Every allocator event is equally wide"], ...(scene.micros ? [["time", "time", "Wall-clock"]] : [])]),
      choice("Colour", "by", [["category", "what it is for", ""], ["line", "line of code", ""],
        ["pool", "pool", "The pool and stream that a block came out of, and what private pools hold beside their blocks"]]),
      el("span", { class: "buttons" },
        go("Peak", "When most was allocated (p)", () => this.goTo(scene.peak_position, true)),
        scene.refusals.length ? go("Out of memory", "The next request that failed (o)", () => this.nextRefusal()) : null,
        go("−", "Zoom out (−)", () => this.zoom(2)), go("+", "Zoom in (+)", () => this.zoom(0.5)),
        go("Everything", "The whole recording (0)", () => set({ from: null, to: null, top: null }))));
  }

  // Where the plot begins.
  get left() {
    return this.scene.overwritten ? LEFT + LOST : LEFT;
  }

  get end() {
    return state.axis === "time" ? this.scene.micros + 1 : this.scene.events + 1;
  }

  get from() {
    return state.from === null ? 0 : Math.min(state.from, this.end - 1);
  }

  get to() {
    return state.to === null ? this.end : Math.max(this.from + 1, Math.min(state.to, this.end));
  }

  // Measures that hold for one painting are taken once.
  get area() {
    if (this.still) return this.still.area;
    const box = this.box.getBoundingClientRect();
    return { width: Math.max(50, box.width - this.left - RIGHT), height: Math.max(50, box.height - TOP - BOTTOM) };
  }

  // The lines that the picture is measured by.
  levels() {
    const { scene, card } = this;
    const res = [];
    if (scene.limit) res.push({ bytes: scene.limit, name: "limit", color: inkOf("bad"), dash: [6, 4] });
    const capacity = card ? card.total - card.context : scene.capacity ? scene.capacity - (scene.context || 0) : null;
    if (capacity) res.push({ bytes: capacity, name: card ? `${card.id} without context` : "card without context", color: inkOf("card"), dash: [2, 3] });
    return res;
  }

  get high() {
    if (this.still) return this.still.high;
    if (state.top !== null) return Math.max(1, state.top);
    const most = Math.max(this.scene.peak_allocated, this.scene.peak_reserved, 1);
    const lines = this.levels().map((it) => it.bytes).filter((it) => it < most * 1.6);
    return Math.max(most, ...lines) * 1.08;
  }

  // What the picture needs; asked for wider than shown, so that a small move needs no answer.
  wanted() {
    const { width, height } = this.area;
    const ratio = Math.min(2, devicePixelRatio || 1);
    const span = this.to - this.from;
    const from = Math.max(0, Math.floor(this.from - span / 2));
    const to = Math.min(this.end, Math.ceil(this.to + span / 2));
    const columns = Math.min(4096, Math.ceil((width * ratio * (to - from)) / span));
    const least = 2 ** Math.floor(Math.log2(Math.max(1, this.high / (height * ratio))));
    return { r: state.r, axis: state.axis, from, to, columns, least, by: state.by };
  }

  suits(data, wanted) {
    if (!data || data.r !== wanted.r || data.axis !== wanted.axis || data.by !== wanted.by) return false;
    if (data.final) return true;
    const finer = (data.to - data.from) / data.columns;
    const needed = (wanted.to - wanted.from) / wanted.columns;
    const isFine = finer <= needed * 1.45 || finer <= 1;
    const isCoarse = needed <= finer * 4;
    return data.from <= this.from && this.to <= data.to && isFine && isCoarse && data.least === wanted.least;
  }

  async fetch() {
    if (this.isAsking) return;
    const wanted = this.wanted();
    if (this.suits(this.data, wanted)) return;
    this.isAsking = true;
    const start = performance.now();
    try {
      this.data = await askWindow(wanted);
      this.timings.answer.push(performance.now() - start);
      this.isAsking = false;
      if (!this.isClosed) this.draw();
    } catch (error) {
      this.isAsking = false;
      this.data = { ...wanted, n: 0, k: 0, groups: 0, failed: true, final: true };
      say(error.message, true);
    }
  }

  draw() {
    if (this.isDue || this.isClosed) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      if (this.isClosed || !this.box.isConnected) return;
      const start = performance.now();
      this.still = { area: this.area, high: this.high };
      this.paint();
      this.still = null;
      this.timings.paint.push(performance.now() - start);
      this.fetch();
    });
  }

  paint() {
    const { width, height } = this.area;
    const ratio = fit(this.canvas, width, height);
    this.canvas.style.left = `${this.left}px`;
    this.canvas.style.top = `${TOP}px`;
    const fits = this.data && this.data.r === state.r && this.data.axis === state.axis && this.data.by === state.by;
    const groups = this.scene.groups[state.by];
    const context = this.canvas.getContext("2d");
    if (fits) {
      const { canvas, picture } = this;
      picture.paint(this.data, this.from, this.to, 0, this.high, canvas.width, canvas.height);
      if (!this.image || this.image.width !== canvas.width || this.image.height !== canvas.height) {
        this.image = context.createImageData(canvas.width, canvas.height);
      }
      this.recolor();
    } else {
      context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    }
    this.ratio = ratio;
    this.overlay();
    this.drawStrip();
    if (this.told !== this.data || this.toldBy !== state.by) this.tell(groups);
    this.told = this.data;
    this.toldBy = state.by;
  }

  recolor() {
    const groups = this.scene.groups[state.by];
    const lit = state.pin !== null ? { life: state.pin } : this.hover && this.hover.lit;
    const colors = this.picture.colors(groups, pixel(inkOf("plot")), lit);
    this.picture.color(this.image, colors);
    this.canvas.getContext("2d").putImageData(this.image, 0, 0);
  }

  x(value) {
    return this.left + ((value - this.from) / (this.to - this.from)) * this.area.width;
  }

  y(bytes) {
    return TOP + (1 - bytes / this.high) * this.area.height;
  }

  axisOf(position, micros) {
    return state.axis === "time" ? micros : position;
  }

  overlay() {
    const box = this.box.getBoundingClientRect();
    const ratio = fit(this.over, box.width, box.height);
    const c = this.over.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, box.width, box.height);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    const { width, height } = this.area;
    const [ink, quiet, line] = [inkOf("ink"), inkOf("quiet"), inkOf("line")];
    this.drawBytes(c, quiet, line);
    this.drawAcross(c, quiet, line);
    this.drawPhases(c, quiet, line);
    c.save();
    c.beginPath();
    c.rect(this.left, TOP - 2, width, height + 4);
    c.clip();
    this.drawCurve(c, ink);
    this.drawLevels(c);
    this.drawMarks(c);
    c.restore();
    this.drawLost(c);
  }

  drawBytes(c, quiet, line) {
    const { width } = this.area;
    const step = niceBytes(this.high / 6);
    c.textAlign = "right";
    for (let bytes = 0; bytes <= this.high; bytes += step) {
      const y = this.y(bytes);
      c.fillStyle = quiet;
      c.fillText(bytes === 0 ? "0" : size(bytes), LEFT - 8, y);
      c.strokeStyle = line;
      c.lineWidth = 1;
      c.beginPath();
      c.moveTo(this.left - 4, y);
      c.lineTo(this.left, y);
      c.stroke();
    }
    c.strokeRect(this.left - 0.5, TOP - 0.5, width + 1, this.area.height + 1);
  }

  drawAcross(c, quiet, line) {
    const { width, height } = this.area;
    const span = this.to - this.from;
    const step = state.axis === "time" ? niceNumber((span * 110) / width) : Math.max(1, niceNumber((span * 110) / width));
    c.textAlign = "center";
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = this.x(at);
      c.fillStyle = quiet;
      const label = state.axis === "time" ? duration(at) : number(at);
      if (this.left + 20 < x && x < this.left + width - 30) c.fillText(label, x, TOP + height + 15);
      c.strokeStyle = line;
      c.beginPath();
      c.moveTo(x, TOP + height);
      c.lineTo(x, TOP + height + 4);
      c.stroke();
    }
    c.textAlign = "right";
    c.fillStyle = quiet;
    c.fillText(state.axis === "time" ? "time" : "events", LEFT - 8, TOP + height + 15);
  }

  // Steps as a ruler, phases as a band of colour below it.
  drawPhases(c, quiet, line) {
    const { width } = this.area;
    const right = this.left + width;
    let drawn = this.left - 1;
    const { phases } = this.marks;
    for (let i = firstAfter(phases, (it) => this.axisOf(it[1], it[3]), this.from); i < phases.length; i++) {
      const [from, to, t0, t1, phase] = phases[i];
      if (this.to <= this.axisOf(from, t0)) break;
      const x0 = Math.max(this.left, this.x(this.axisOf(from, t0)));
      const x1 = Math.min(right, this.x(this.axisOf(to, t1)));
      // A band below a pixel shows with the next one that is not.
      if (x1 <= drawn || x1 <= this.left || right <= x0 || x1 - x0 < 0.3) continue;
      c.fillStyle = PHASE[phase];
      c.fillRect(x0, TOP - 11, Math.max(1, x1 - x0 - (4 < x1 - x0 ? 1 : 0)), 7);
      drawn = x1;
    }
    let before = 0;
    let labelled = -100;
    c.textAlign = "center";
    const x = (it) => this.x(this.axisOf(it.end, it.micros));
    c.strokeStyle = line;
    const { steps } = this.marks;
    const firstStep = firstAfter(steps, (it) => this.axisOf(it.end, it.micros), this.from);
    if (firstStep) before = this.axisOf(steps[firstStep - 1].end, steps[firstStep - 1].micros);
    for (let i = firstStep; i < steps.length; i++) {
      const it = steps[i];
      if (this.to <= before) break;
      const [x0, x1] = [Math.max(this.left, this.x(before)), Math.min(right, x(it))];
      before = this.axisOf(it.end, it.micros);
      const middle = (x0 + x1) / 2;
      const label = `step ${number(it.step)}`;
      const needed = c.measureText(label).width + 14;
      if (labelled + needed < middle && this.left + needed / 2 < middle && middle < right - needed / 2) {
        c.fillStyle = quiet;
        c.fillText(label, middle, TOP - 22);
        labelled = middle;
      }
      if (5 < x1 - x0 && x1 < right) {
        c.beginPath();
        c.moveTo(x1, TOP - 28);
        c.lineTo(x1, TOP - 4);
        c.stroke();
      }
    }
    if (!this.marks.steps.length && !this.marks.phases.length) {
      c.textAlign = "left";
      c.fillStyle = quiet;
      c.fillText("no steps or phases can be told from this recording", this.left, TOP - 18);
    }
  }

  // Reserved, and the least within each column.
  drawCurve(c, ink) {
    const { data } = this;
    if (!data || !data.n || !this.picture.data) return;
    const per = (data.to - data.from) / data.n;
    const first = Math.max(0, Math.floor((this.from - data.from) / per) - 1);
    const last = Math.min(data.n, Math.ceil((this.to - data.from) / per) + 1);
    const [x0, wide] = [this.x(data.from), this.x(data.from + per) - this.x(data.from)];
    const trace = (values, color, lineWidth) => {
      c.strokeStyle = color;
      c.lineWidth = lineWidth;
      c.beginPath();
      let before = null;
      for (let i = first; i < last; i++) {
        const y = this.y(values[i]);
        if (before === null) c.moveTo(x0 + i * wide, y);
        else if (y !== before) {
          c.lineTo(x0 + i * wide, before);
          c.lineTo(x0 + i * wide, y);
        }
        before = y;
      }
      if (before !== null) c.lineTo(x0 + last * wide, before);
      c.stroke();
    };
    const isSummed = 1 < per;
    if (isSummed) trace(data.lowest, inkOf("lowest"), 1);
    trace(data.reserved, ink, 1.5);
  }

  drawLevels(c) {
    const { width } = this.area;
    for (const { bytes, name, color, dash } of this.levels()) {
      if (this.high < bytes) continue;
      const y = this.y(bytes);
      c.strokeStyle = color;
      c.lineWidth = 1.5;
      c.setLineDash(dash);
      c.beginPath();
      c.moveTo(this.left, y);
      c.lineTo(this.left + width, y);
      c.stroke();
      c.setLineDash([]);
      // At the side where no mark stands.
      const words = `${name} ${size(bytes)}`;
      const room = this.left + width - c.measureText(words).width - 14;
      const isMarked = this.scene.refusals.some((it, index) => {
        const x = this.x(this.axisOf(it.position, this.marks.refusal_micros[index]));
        return room < x && x < this.left + width;
      });
      const [x, align] = isMarked ? [this.left + 6, "left"] : [this.left + width - 6, "right"];
      label(c, words, x, y - 9 < TOP + 8 ? y + 10 : y - 9, align, color);
    }
  }

  drawMarks(c) {
    const { scene, marks } = this;
    const { height, width } = this.area;
    const vertical = (x, color, dash, lineWidth = 1) => {
      c.strokeStyle = color;
      c.lineWidth = lineWidth;
      c.setLineDash(dash);
      c.beginPath();
      c.moveTo(x, TOP);
      c.lineTo(x, TOP + height);
      c.stroke();
      c.setLineDash([]);
    };
    const inside = (x) => this.left - 1 <= x && x <= this.left + width + 1;
    // A word stands where it covers no other, or not at all.
    const taken = [];
    const write = (text, x, y, color, toLeft = this.left + width < x + c.measureText(text).width + 8) => {
      const wide = c.measureText(text).width + 8;
      const box = toLeft ? [x - wide, x] : [x, x + wide];
      if (taken.some((it) => Math.abs(it.y - y) < 14 && it.box[0] < box[1] && box[0] < it.box[1])) return false;
      taken.push({ y, box });
      label(c, text, x + (toLeft ? -5 : 5), y, toLeft ? "right" : "left", color);
      return true;
    };
    const peakX = this.x(this.axisOf(scene.peak_position, scene.peak_micros));
    const peakY = Math.max(TOP + 9, this.y(scene.peak_allocated) - 10);
    const showsPeak = inside(peakX) && scene.peak_allocated <= this.high;
    if (showsPeak) write(`peak ${size(scene.peak_allocated)}`, peakX, peakY, inkOf("ink"));
    const labels = marks.labels.filter(([position, micros, , begins]) => begins && inside(this.x(this.axisOf(position, micros))));
    c.globalAlpha = labels.length < 40 ? 1 : Math.max(0.25, 40 / labels.length);
    for (const [position, micros] of labels) vertical(this.x(this.axisOf(position, micros)), inkOf("note"), [1, 3]);
    c.globalAlpha = 1;
    for (const [position, micros, name] of labels.length < 40 ? labels : []) {
      const x = this.x(this.axisOf(position, micros));
      const short = name.length < 40 ? name : `${name.slice(0, 38)}…`;
      if (!write(short, x, TOP + height - 12, inkOf("note"))) write(short, x, TOP + height - 28, inkOf("note"));
    }
    const refused = scene.refusals.map((it, index) => ({ x: this.x(this.axisOf(it.position, marks.refusal_micros[index])), text: `${size(it.requested)} refused` })).filter((it) => inside(it.x));
    refused.forEach(({ x, text }, index) => {
      vertical(x, inkOf("bad"), [], 1.5);
      const long = `out of memory: ${text}`;
      // On whichever side it covers no other failure.
      const right = (index + 1 < refused.length ? refused[index + 1].x : this.left + width) - x - 12;
      const left = x - (index ? refused[index - 1].x : this.left) - 12;
      const fits = (room) => (it) => c.measureText(it).width < room;
      const chosen = [long, text].find(fits(Math.max(left, right)));
      if (chosen) [60, 78, 96, 114, 132].some((below) => write(chosen, x, TOP + below, inkOf("bad"), !fits(right)(chosen)));
    });
    if (showsPeak) {
      c.fillStyle = inkOf("ink");
      c.beginPath();
      c.arc(peakX, this.y(scene.peak_allocated), 3.5, 0, 7);
      c.fill();
    }
    for (const [value, name, color] of [[state.at, "this moment", inkOf("accent")], [state.compare, "compared with", inkOf("card")]]) {
      if (value === null) continue;
      const x = this.x(this.axisOf(value, this.microsAt(value)));
      if (!inside(x)) continue;
      vertical(x, color, [4, 3], 1.5);
      write(name, x, TOP + height - 46, color);
    }
  }

  // What was lost before the first event stands at its edge.
  drawLost(c) {
    const { scene } = this;
    if (0 < this.from) return;
    const { height } = this.area;
    if (scene.overwritten) {
      const lost = scene.overwritten_allocations;
      hatch(c, LEFT, TOP, LOST, height, inkOf("bad"));
      c.save();
      c.translate(LEFT + LOST / 2 - 1, TOP + height / 2);
      c.rotate(-Math.PI / 2);
      label(c, lost ? `lost: ${many(lost, "allocation")} overwritten` : "lost: what came before was overwritten", 0, 0, "center", inkOf("bad"));
      c.restore();
    }
    if (!scene.lives_before) return;
    const y = this.y(Math.min(this.high, scene.bytes_before));
    c.save();
    c.strokeStyle = inkOf("bad");
    c.lineWidth = 3;
    c.beginPath();
    c.moveTo(this.left - 1.5, y);
    c.lineTo(this.left - 1.5, TOP + height);
    c.stroke();
    c.restore();
  }

  // Where a position is in time, as far as the window tells.
  microsAt(position) {
    if (state.axis !== "time") return 0;
    const { data } = this;
    if (!data || !data.n) return 0;
    // Outside of the window nobody knows; it is not in the picture either.
    if (0 < data.from && position < data.positions[0]) return -Infinity;
    if (data.to < this.end && data.positions[data.n - 1] < position) return Infinity;
    let [low, high] = [0, data.n - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.positions[middle] < position) low = middle + 1; else high = middle;
    }
    return data.micros[low];
  }

  async drawStrip() {
    const { width } = this.area;
    const ratio = fit(this.strip, width, STRIP);
    this.strip.style.marginLeft = `${this.left}px`;
    if (!this.whole || this.whole.axis !== state.axis) {
      if (this.isAskingWhole) return;
      this.isAskingWhole = true;
      try {
        this.whole = await askWindow({ r: state.r, axis: state.axis, from: 0, to: this.end, columns: 800, least: 2 ** 60, by: "category" });
      } catch {
        return;
      } finally {
        this.isAskingWhole = false;
      }
      if (this.isClosed) return;
    }
    const { whole } = this;
    const c = this.strip.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, STRIP);
    if (!this.shape || this.shape.of !== whole) {
      const most = whole.allocated.reduce((a, b) => Math.max(a, b), 1);
      const path = new Path2D();
      path.moveTo(0, 1);
      for (let i = 0; i < whole.n; i++) {
        const y = 1 - whole.allocated[i] / most;
        path.lineTo(i / whole.n, y);
        path.lineTo((i + 1) / whole.n, y);
      }
      path.lineTo(1, 1);
      this.shape = { of: whole, path };
    }
    c.save();
    c.translate(0, 6);
    c.scale(width, STRIP - 6);
    c.fillStyle = inkOf("strip");
    c.fill(this.shape.path);
    c.restore();
    const [x0, x1] = [(this.from / this.end) * width, (this.to / this.end) * width];
    c.fillStyle = inkOf("veil");
    c.fillRect(0, 0, x0, STRIP);
    c.fillRect(x1, 0, width - x1, STRIP);
    c.strokeStyle = inkOf("accent");
    c.lineWidth = 1.5;
    c.strokeRect(x0 + 0.75, 0.75, Math.max(3, x1 - x0 - 1.5), STRIP - 1.5);
    const words = state.axis === "time" ? duration : (it) => number(Math.round(it));
    this.strip.setAttribute("aria-valuenow", Math.round((100 * this.from) / this.end));
    this.strip.setAttribute("aria-valuetext", `${state.axis} ${words(this.from)} to ${words(this.to)} of ${words(this.end)}`);
  }

  tell(groups) {
    const { data, scene } = this;
    const used = new Set();
    if (data && data.n) {
      for (let k = 0; k < data.k; k++) used.add(data.group_of[k]);
      for (let g = 0; g < data.groups; g++) if (!used.has(g)) {
        for (let c = 0; c < data.n; c++) if (data.rest[g * data.n + c]) { used.add(g); break; }
      }
    }
    const phases = new Set(this.marks.phases.map((it) => it[4]));
    refill(this.legend,
      groups.map((group, index) => used.has(index) && el("li", {
        onmouseenter: () => this.light({ group: index }), onmouseleave: () => this.light(null),
      }, swatch(colorOf(group, index)), group.name)).reverse(),
      el("li", {}, el("span", { class: "swatch line ink" }), "reserved"),
      data && data.n && 1 < (data.to - data.from) / data.n ? el("li", { title: "The least that was allocated within each column" }, el("span", { class: "swatch line lowest" }), "least within a column") : null,
      scene.refusals.length ? el("li", {}, el("span", { class: "swatch line refused" }), "a request failed") : null,
      this.levels().filter((it) => it.bytes <= this.high).map((it) => el("li", {}, el("span", { class: "swatch line dashed", style: { borderColor: it.color } }), it.name)),
      phases.size ? el("li", { class: "phases" }, "band above: ", [...phases].map((it) => el("span", {}, el("span", { class: "swatch thin", style: { background: PHASE[it] } }), phaseName(it)))) : null,
      this.marks.labels.length ? el("li", {}, el("span", { class: "swatch line dashed note" }), "annotation of the program") : null,
      scene.overwritten ? el("li", {}, el("span", { class: "swatch hatch" }), "lost: the recorder's ring was full") : null,
      scene.lives_before ? el("li", {}, el("span", { class: "swatch line lost" }), "left edge: the history begins here") : null);
    this.canvas.setAttribute("aria-label", `Memory over ${state.axis}: peak ${size(scene.peak_allocated)} allocated at event ${number(scene.peak_position)} of ${number(scene.events)}`);
    if (!data || data.failed) return;
    const shown = data.lives - data.summed - data.between;
    const parts = [`${many(data.lives, "block")} in this window: ${number(shown)} drawn alone`];
    if (data.summed) parts.push(`${number(data.summed)} too small to see are summed into their colour`);
    if (data.between) parts.push(`${number(data.between)} lived between the moments that columns show`);
    const more = data.summed + data.between ? (isOneFile ? "This page in one file has reduced detail: `plimsoll view` shows every block." : "Zoom in to see each.") : "";
    const before = scene.lives_before ? ` ${many(scene.lives_before, "block")} (${size(scene.bytes_before)}) were there before the recorded history begins.` : "";
    const lost = scene.overwritten ? `${before} The recorder's ring was full: earlier events were overwritten.` : before;
    this.summary.textContent = `${parts.join(", ")}. ${more}${lost}`;
  }

  light(lit) {
    this.hover = lit ? { lit } : null;
    if (this.image && this.picture.data) this.recolor();
  }

  listen() {
    const { canvas, strip } = this;
    let drag = null;
    const localX = (event) => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const factor = Math.exp(Math.sign(event.deltaY || event.deltaX) * Math.min(60, Math.abs(event.deltaY || event.deltaX)) * 0.005);
      if (event.altKey || event.ctrlKey) set({ top: Math.min(this.high * factor, 2 ** 50) });
      else if (event.shiftKey || Math.abs(event.deltaY) < Math.abs(event.deltaX)) this.move((this.to - this.from) * 0.002 * (event.deltaX || event.deltaY));
      else this.zoom(factor, localX(event) / this.area.width);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      drag = { x: event.clientX, from: this.from, to: this.to, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag && (drag.moved || 4 < Math.abs(event.clientX - drag.x))) {
        drag.moved = true;
        hideTip();
        const by = ((drag.x - event.clientX) / this.area.width) * (drag.to - drag.from);
        this.show(drag.from + by, drag.to + by);
      } else {
        this.point(event);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) this.pick(event);
      drag = null;
    });
    canvas.addEventListener("pointerleave", () => {
      hideTip();
      this.hovered = null;
      this.light(null);
    });
    let brush = false;
    const seek = (event) => {
      const box = strip.getBoundingClientRect();
      const middle = ((event.clientX - box.left) / box.width) * this.end;
      const half = (this.to - this.from) / 2;
      this.show(middle - half, middle + half);
    };
    strip.addEventListener("pointerdown", (event) => { strip.setPointerCapture(event.pointerId); brush = true; seek(event); });
    strip.addEventListener("pointermove", (event) => { if (brush) seek(event); });
    strip.addEventListener("pointerup", () => { brush = false; });
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left) * this.ratio);
    const y = Math.floor((event.clientY - box.top) * this.ratio);
    return this.picture.at(x, y);
  }

  point(event) {
    const found = this.under(event);
    this.hovered = found;
    if (!found || found.column < 0 || !this.data || !this.data.n) {
      hideTip();
      return;
    }
    const { data, scene } = this;
    const groups = scene.groups[state.by];
    const at = found.column;
    const foot = el("p", { class: "quiet" }, `event ${number(data.positions[at])}: ${size(data.allocated[at])} allocated, ${size(data.reserved[at])} reserved`);
    const previous = this.hover && this.hover.lit;
    const lit = found.life !== undefined ? { life: found.life } : null;
    if ((previous && previous.life) !== (lit && lit.life)) this.light(lit);
    if (found.life === undefined) {
      const group = groups[found.group];
      const what = group && group.key === "held" ? "in no block" : "of small blocks";
      const text = found.isRest ? [el("p", { class: "big" }, swatch(colorOf(group, found.group)), `${size(found.size)} ${what}`), el("p", {}, group.name)] : [el("p", {}, "nothing allocated here")];
      showTip(event.clientX, event.clientY, ...text, foot);
      return;
    }
    const head = [el("p", { class: "big" }, swatch(colorOf(groups[found.group], found.group)), size(found.size)), el("p", {}, groups[found.group].name)];
    showTip(event.clientX, event.clientY, ...head, foot);
    const { clientX, clientY } = event;
    blockFacts(state.r, found.life).then((facts) => {
      if (!this.hovered || this.hovered.life !== found.life || this.isClosed) return;
      showTip(clientX, clientY, ...head, ...shortFacts(facts), foot);
    }, () => {});
  }

  pick(event) {
    const found = this.under(event);
    this.canvas.focus({ preventScroll: true });
    if (!found || found.column < 0 || !this.data || !this.data.n) return;
    set({ at: this.data.positions[found.column], pin: found.life ?? null });
  }

  show(from, to) {
    const least = state.axis === "time" ? 10 : 4;
    const span = Math.min(this.end, Math.max(least, to - from));
    const start = Math.max(0, Math.min(this.end - span, from));
    const isAll = span === this.end;
    set({ from: isAll ? null : start, to: isAll ? null : start + span });
  }

  zoom(factor, at = 0.5) {
    const span = this.to - this.from;
    const fixed = this.from + span * at;
    this.show(fixed - span * factor * at, fixed + span * factor * (1 - at));
  }

  move(by) {
    this.show(this.from + by, this.to + by);
  }

  async goTo(position, isMoment) {
    let at = position;
    if (state.axis === "time") at = position === this.scene.peak_position ? this.scene.peak_micros : (await ask("moment", { r: state.r, position })).micros;
    const span = Math.min(this.to - this.from, this.end / 4);
    const half = Math.max(span / 2, 50);
    this.show(at - half, at + half);
    if (isMoment) set({ at: position });
  }

  nextRefusal() {
    const { refusals } = this.scene;
    if (!refusals.length) return;
    const next = refusals.find((it) => (state.at ?? -1) < it.position) || refusals[0];
    this.goTo(next.position, true);
  }

  step(direction) {
    const { steps } = this.marks;
    if (!steps.length) return;
    const value = (it) => this.axisOf(it.end, it.micros);
    const middle = (this.from + this.to) / 2;
    let index = steps.findIndex((it) => middle < value(it));
    if (index < 0) index = steps.length - 1;
    const chosen = Math.max(0, Math.min(steps.length - 1, index + direction));
    this.show(chosen ? value(steps[chosen - 1]) : 0, value(steps[chosen]));
  }

  key(event) {
    const span = this.to - this.from;
    const actions = {
      ArrowLeft: () => this.move(event.shiftKey ? -span : -span / 10),
      ArrowRight: () => this.move(event.shiftKey ? span : span / 10),
      ArrowUp: () => set({ top: this.high / 1.25 }),
      ArrowDown: () => set({ top: Math.min(2 ** 50, this.high * 1.25) }),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1.6),
      "0": () => set({ from: null, to: null, top: null }),
      p: () => this.goTo(this.scene.peak_position, true),
      o: () => this.nextRefusal(),
      "[": () => this.step(-1), "]": () => this.step(1),
      Enter: () => this.hovered && this.hovered.life !== undefined && set({ pin: this.hovered.life }),
    };
    const action = actions[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
    return Boolean(action);
  }
}

function hatch(c, x, y, width, height, color) {
  c.save();
  c.beginPath();
  c.rect(x, y, width, height);
  c.clip();
  c.strokeStyle = color;
  c.globalAlpha = 0.4;
  c.lineWidth = 1.5;
  c.beginPath();
  for (let at = -height; at < width; at += 7) {
    c.moveTo(x + at, y + height);
    c.lineTo(x + at + height, y);
  }
  c.stroke();
  c.restore();
}

function label(c, text, x, y, align, color) {
  c.textAlign = align;
  c.lineWidth = 4;
  c.lineJoin = "round";
  c.strokeStyle = inkOf("halo");
  c.strokeText(text, x, y);
  c.fillStyle = color;
  c.fillText(text, x, y);
}

// The first of `list`, sorted by `value`, that is more than `least`.
function firstAfter(list, value, least) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(list[middle]) <= least) low = middle + 1; else high = middle;
  }
  return low;
}

// 1, 2 or 5 times a power of ten, at least `least`.
export function niceNumber(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-9)));
  return [1, 2, 5, 10].map((it) => it * power).find((it) => least <= it);
}

// The same of powers of two, for bytes.
export function niceBytes(least) {
  return 2 ** Math.ceil(Math.log2(Math.max(1, least)));
}

