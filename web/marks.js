// What is drawn over the blocks of the timeline: axes, steps and phases, curves, levels, marks and what was lost.

import { fit } from "./dom.js";
import { PHASE, colorOf, inkOf, inkOn } from "./palette.js";
import { LOST, TOP } from "./scale.js";
import { chosen } from "./selection.js";
import { state } from "./state.js";
import { clipped, duration, many, number, size } from "./words.js";

// "step 1" and the margin beside it are wider.
const LEAST_LABEL = 30;

export class Marks {
  constructor(canvas, scale, scene, marks) {
    this.canvas = canvas;
    this.scale = scale;
    this.scene = scene;
    this.marks = marks;
    this.data = null;
  }

  get area() { return this.scale.area; }

  get left() { return this.scale.left; }

  get from() { return this.scale.from; }

  get to() { return this.scale.to; }

  get low() { return this.scale.low; }

  get high() { return this.scale.high; }

  get end() { return this.scale.end; }

  x(value) { return this.scale.x(value); }

  // The same for many values.
  across() {
    const { left, from } = this;
    const per = this.area.width / (this.to - from);
    return (value) => left + (value - from) * per;
  }

  y(bytes) { return this.scale.y(bytes); }

  axisOf(position, micros) { return this.scale.axisOf(position, micros); }

  // `picture` has drawn `data`; `other` is a second recording over it; `box` is being dragged.
  draw(data, picture, { other = null, box = null, bands = [] } = {}) {
    this.data = data;
    this.picture = picture;
    const place = this.scale.box.getBoundingClientRect();
    const ratio = fit(this.canvas, place.width, place.height);
    const c = this.canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, place.width, place.height);
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
    this.taken = [];
    if (data && data.n && picture.data === data) {
      const groups = this.scene.groups[state.by];
      const place = { left: this.left, top: TOP, width, height, x: (at) => this.x(at), y: (bytes) => this.y(bytes) };
      drawNames(c, { picture, data, bands, groups, colors: groups.map(colorOf), ...place, taken: this.taken, isPale: chosen() !== null });
      this.drawPinned(c);
    }
    this.drawCurve(c, ink);
    if (other) this.drawOther(c, other);
    this.drawLevels(c);
    this.drawMarks(c);
    if (box) this.drawBox(c, box);
    c.restore();
    this.drawLost(c);
  }

  // The pinned block is outlined where it is drawn.
  drawPinned(c) {
    if (state.pin === null) return;
    const box = this.picture.boxOf(state.pin);
    if (!box) return;
    const ratio = Math.min(2, devicePixelRatio || 1);
    const [x, y, width, height] = [this.left + box.x0 / ratio, TOP + box.y0 / ratio, (box.x1 - box.x0) / ratio, (box.y1 - box.y0) / ratio];
    c.setLineDash([]);
    c.lineWidth = 4;
    c.strokeStyle = inkOf("halo");
    c.strokeRect(x, y, width, height);
    c.lineWidth = 2;
    c.strokeStyle = inkOf("ink");
    c.strokeRect(x, y, width, height);
  }

  // Another recording's curve, whose moments are at their places here: [[x of this axis, bytes], …].
  drawOther(c, { curve, color }) {
    c.strokeStyle = color;
    c.lineWidth = 2.2;
    c.setLineDash([]);
    c.beginPath();
    let before = null;
    for (const [at, bytes] of curve) {
      const [x, y] = [this.x(at), this.y(bytes)];
      if (before === null) c.moveTo(x, y);
      else {
        c.lineTo(x, before);
        c.lineTo(x, y);
      }
      before = y;
    }
    c.stroke();
  }

  drawBox(c, [[ax, ay], [bx, by]]) {
    const { width, height } = this.area;
    const [x, y] = [this.left + Math.min(ax, bx) * width, TOP + (1 - Math.max(ay, by)) * height];
    c.fillStyle = inkOf("veil");
    c.strokeStyle = inkOf("accent");
    c.lineWidth = 1.5;
    c.setLineDash([4, 3]);
    c.fillRect(x, y, Math.abs(ax - bx) * width, Math.abs(ay - by) * height);
    c.strokeRect(x, y, Math.abs(ax - bx) * width, Math.abs(ay - by) * height);
    c.setLineDash([]);
  }

  // Where the words of the axis of bytes end.
  get ruler() {
    return this.left - (this.scene.overwritten ? LOST : 0);
  }

  drawBytes(c, quiet, line) {
    const { width } = this.area;
    c.textAlign = "right";
    for (const [bytes, text] of this.scale.ticks(this.area.height)) {
      const y = this.y(bytes);
      c.fillStyle = quiet;
      c.fillText(text, this.ruler - 8, y);
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
    c.fillText(state.axis === "time" ? "time" : "events", this.ruler - 8, TOP + height + 15);
  }

  // Steps as a ruler, phases as a band of colour below it.
  drawPhases(c, quiet, line) {
    const { width } = this.area;
    const right = this.left + width;
    let drawn = this.left - 1;
    const { phases } = this.marks;
    const across = this.across();
    for (let i = firstAfter(phases, (it) => this.axisOf(it[1], it[3]), this.from); i < phases.length; i++) {
      const [from, to, t0, t1, phase] = phases[i];
      if (this.to <= this.axisOf(from, t0)) break;
      const x0 = Math.max(this.left, across(this.axisOf(from, t0)));
      const x1 = Math.min(right, across(this.axisOf(to, t1)));
      // A band below a pixel shows with the next one that is not.
      if (x1 <= drawn || x1 <= this.left || right <= x0 || x1 - x0 < 0.3) continue;
      c.fillStyle = PHASE[phase];
      c.fillRect(x0, TOP - 11, Math.max(1, x1 - x0 - (4 < x1 - x0 ? 1 : 0)), 7);
      drawn = x1;
    }
    let before = 0;
    let labelled = -100;
    c.textAlign = "center";
    const x = (it) => across(this.axisOf(it.end, it.micros));
    c.strokeStyle = line;
    const { steps } = this.marks;
    const firstStep = firstAfter(steps, (it) => this.axisOf(it.end, it.micros), this.from);
    if (firstStep) before = this.axisOf(steps[firstStep - 1].end, steps[firstStep - 1].micros);
    for (let i = firstStep; i < steps.length; i++) {
      const it = steps[i];
      if (this.to <= before) break;
      const [x0, x1] = [Math.max(this.left, across(before)), Math.min(right, x(it))];
      before = this.axisOf(it.end, it.micros);
      const middle = (x0 + x1) / 2;
      const isLine = 5 < x1 - x0 && x1 < right;
      // Labels of few steps in a thousand fit, and measuring words is slow.
      if (middle <= labelled + LEAST_LABEL && !isLine) continue;
      const label = `step ${number(it.step)}`;
      const needed = c.measureText(label).width + 14;
      if (labelled + needed < middle && this.left + needed / 2 < middle && middle < right - needed / 2) {
        c.fillStyle = quiet;
        c.fillText(label, middle, TOP - 22);
        labelled = middle;
      }
      if (isLine) {
        c.beginPath();
        c.moveTo(x1, TOP - 28);
        c.lineTo(x1, TOP - 4);
        c.stroke();
      }
    }
    if (!this.marks.steps.length && !this.marks.phases.length) {
      c.textAlign = "left";
      c.fillStyle = quiet;
      c.fillText("this recording shows no steps or phases", this.left, TOP - 18);
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
    for (const { bytes, name, color, dash } of this.scale.levels()) {
      if (this.high < bytes || bytes < this.low) continue;
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
      const wide = c.measureText(words).width + 4;
      const at = y - 9 < TOP + 8 ? y + 10 : y - 9;
      const sides = [["left", this.left + 6, this.left + 6 + wide], ["right", this.left + width - 6 - wide, this.left + width - 6]];
      // Two lines may lie close to each other.
      const places = (isMarked ? sides : sides.reverse()).flatMap((it) => [at, y + 10].map((middle) => [...it, middle]));
      const isFree = ([, x0, x1, middle]) => !this.taken.some((it) => Math.abs(it.y - middle) < 14 && it.x0 < x1 && x0 < it.x1);
      const found = places.find(isFree);
      if (!found) continue;
      const [align, x0, x1, middle] = found;
      this.taken.push({ y: middle, x0, x1 });
      label(c, words, align === "left" ? x0 : x1, middle, align, color);
    }
  }

  // The columns of the data below a label, as [allocated, reserved] in pixels from the top.
  heights(x, wide) {
    const { data } = this;
    if (!data || !data.n) return [];
    const per = (data.to - data.from) / data.n;
    const column = (at) => Math.max(0, Math.min(data.n - 1, Math.floor((this.from + ((at - this.left) / this.area.width) * (this.to - this.from) - data.from) / per)));
    const res = [];
    for (let at = column(x); at <= column(x + wide); at++) res.push([this.y(data.allocated[at]), this.y(data.reserved[at])]);
    return res;
  }

  // Whether a label at `middle` has nothing below it, and no line through it.
  isAbove(x, wide, middle) {
    return this.heights(x, wide).every(([allocated, reserved]) => middle + 10 < allocated && middle + 10 < reserved) && !this.isOnLevel(middle);
  }

  isCalm(x, wide, middle) {
    return this.heights(x, wide).every((it) => it.every((y) => 10 < Math.abs(y - middle))) && !this.isOnLevel(middle);
  }

  isOnLevel(middle) {
    return this.scale.levels().some(({ bytes }) => Math.abs(this.y(bytes) - middle) < 10);
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
    const { taken } = this;
    const write = (text, x, y, color, toLeft = this.left + width < x + c.measureText(text).width + 8) => {
      const wide = c.measureText(text).width + 8;
      const box = toLeft ? [x - wide, x] : [x, x + wide];
      // A label that fits on neither side would be cut off.
      if (box[0] < this.left && toLeft) return false;
      if (taken.some((it) => Math.abs(it.y - y) < 14 && it.x0 < box[1] && box[0] < it.x1)) return false;
      taken.push({ y, x0: box[0], x1: box[1], text });
      label(c, text, x + (toLeft ? -5 : 5), y, toLeft ? "right" : "left", color);
      return true;
    };
    const peakX = this.x(this.axisOf(scene.peak_position, scene.peak_micros));
    // Where the line of what is reserved does not strike it through.
    const lineY = this.y(scene.reserved_at_peak);
    const above = this.y(scene.peak_allocated) - 11;
    const peakY = Math.max(TOP + 9, Math.abs(above - lineY) < 10 ? lineY - 12 : above);
    const showsPeak = inside(peakX) && this.low <= scene.peak_allocated && scene.peak_allocated <= this.high;
    if (showsPeak) write(`peak ${size(scene.peak_allocated)}`, peakX, peakY, inkOf("ink"));
    const labels = marks.labels.filter(([position, micros, , begins]) => begins && inside(this.x(this.axisOf(position, micros))));
    c.globalAlpha = labels.length < 40 ? 1 : Math.max(0.25, 40 / labels.length);
    for (const [position, micros] of labels) vertical(this.x(this.axisOf(position, micros)), inkOf("note"), [1, 3]);
    c.globalAlpha = 1;
    // Names stand above the curves only: they would cover what they are of.
    for (const [position, micros, name] of labels) {
      const x = this.x(this.axisOf(position, micros));
      const short = clipped(name, 40);
      [10, 26, 42].some((below) => this.isAbove(x, c.measureText(short).width + 8, TOP + below) && write(short, x, TOP + below, inkOf("note")));
    }
    const refused = scene.refusals.map((it, index) => ({ x: this.x(this.axisOf(it.position, marks.refusal_micros[index])), text: `${size(it.requested)} refused` })).filter((it) => inside(it.x));
    refused.forEach(({ x, text }, index) => {
      vertical(x, inkOf("bad"), [], 1.5);
      const long = `out of memory: ${text}`;
      // On the side on which it covers no other failure.
      const right = (index + 1 < refused.length ? refused[index + 1].x : this.left + width) - x - 12;
      const left = x - (index ? refused[index - 1].x : this.left) - 12;
      const fits = (room) => (it) => c.measureText(it).width < room;
      const chosen = [long, text].find(fits(Math.max(left, right)));
      const toLeft = chosen && !fits(right)(chosen);
      const places = Array.from({ length: Math.max(1, Math.floor((height - 24) / 16)) }, (_, at) => TOP + 12 + 16 * at);
      // Where no line strikes it through; best where nothing is drawn.
      const wide = chosen ? c.measureText(chosen).width + 8 : 0;
      const start = toLeft ? x - wide : x;
      const calm = [...places.filter((at) => this.isAbove(start, wide, at)), ...places.filter((at) => this.isCalm(start, wide, at))];
      if (chosen) calm.some((at) => write(chosen, x, at, inkOf("bad"), toLeft));
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
    if (0 < this.from || 0 < this.low) return;
    const { height } = this.area;
    if (scene.overwritten) {
      const lost = scene.overwritten_allocations;
      hatch(c, this.ruler, TOP, LOST, height, inkOf("bad"));
      c.save();
      c.translate(this.ruler + LOST / 2 - 1, TOP + height / 2);
      c.rotate(-Math.PI / 2);
      label(c, lost ? `lost: ${many(lost, "allocation")} overwritten` : "lost: earlier events were overwritten", 0, 0, "center", inkOf("bad"));
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

  // The time of a position, as far as the window has it.
  microsAt(position) {
    if (state.axis !== "time") return 0;
    const { data } = this;
    if (!data || !data.n) return 0;
    // Outside of the window it is unknown; it is not in the picture either.
    if (0 < data.from && position < data.positions[0]) return -Infinity;
    if (data.to < this.end && data.positions[data.n - 1] < position) return Infinity;
    let [low, high] = [0, data.n - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.positions[middle] < position) low = middle + 1; else high = middle;
    }
    return data.micros[low];
  }
}

// Labels blocks and bands that are large enough. `taken` are the places of words, to which these are added.
export function drawNames(c, { picture, data, bands, groups, colors, left, top, width, height, x, y, taken, isPale }) {
  const ratio = Math.min(2, devicePixelRatio || 1);
  const written = new Set();
  const put = (text, at, middle, color) => {
    const wide = c.measureText(text).width + 6;
    const spot = { x0: at - wide / 2, x1: at + wide / 2, y: middle };
    if (spot.x0 < left || left + width < spot.x1 || middle < top + 8 || top + height - 6 < middle) return false;
    if (taken.some((it) => Math.abs(it.y - middle) < 15 && it.x0 < spot.x1 && spot.x0 < it.x1)) return false;
    taken.push(spot);
    // What is not selected is pale; a hatching stays off the words.
    if (isPale) label(c, text, at, middle, "center", inkOf("ink")); else label(c, text, at, middle, "center", inkOn(color), color);
    return true;
  };
  const inside = (value, least, most) => Math.max(least, Math.min(most, value));
  for (const it of bands) {
    const [x0, x1] = [x(it.from), x(it.to)].map((at) => inside(at, left, left + width));
    const [y0, y1] = [y(it.top), y(it.bottom)].map((at) => inside(at, top, top + height)).sort((a, b) => a - b);
    const name = clipped(groups[it.group].name, 40);
    if (17 < y1 - y0 && c.measureText(name).width + 10 < x1 - x0) put(name, (x0 + x1) / 2, (y0 + y1) / 2, colors[it.group]);
  }
  const largest = [...picture.tall].sort((a, b) => (b.x1 - b.x0) * (b.y1 - b.y0) - (a.x1 - a.x0) * (a.y1 - a.y0));
  for (const it of largest.slice(0, 80)) {
    if (written.has(it.piece)) continue;
    const text = size(data.sizes[it.piece]);
    const [wide, tall] = [(it.x1 - it.x0) / ratio, (it.y1 - it.y0) / ratio];
    if (tall < 16 || wide < c.measureText(text).width + 8) continue;
    if (put(text, left + (it.x0 + it.x1) / 2 / ratio, top + (it.y0 + it.y1) / 2 / ratio, colors[data.group_of[it.piece]])) written.add(it.piece);
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

function label(c, text, x, y, align, color, halo = inkOf("halo")) {
  c.textAlign = align;
  c.lineWidth = 5;
  c.lineJoin = "round";
  c.strokeStyle = halo;
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
function niceNumber(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-9)));
  return [1, 2, 5, 10].map((it) => it * power).find((it) => least <= it);
}
