// The address space at a moment: segments one after another, wrapped like text, all at one scale.

import { ask } from "./api.js";
import { blockFacts, shortFacts, swatch } from "./details.js";
import { el, fit, hideTip, refill, showTip } from "./dom.js";
import { EventList } from "./events.js";
import { momentControls, momentShown } from "./moments.js";
import { canvasGround, categoryColor, faded, inkOf } from "./palette.js";
import { failed } from "./peak.js";
import { saveCanvas } from "./picture.js";
import { chosen } from "./selection.js";
import { set, state } from "./state.js";
import { exactly, many, number, size } from "./words.js";

const ROW = 20;
const GAP = 7;
const ROWS = 26;
const BETWEEN = 5;
// A request of more rows than this is cut: it can be a thousand times what is held.
const ASKED = 5;

export class SegmentsView {
  constructor(scene, marks) {
    this.scene = scene;
    this.marks = marks;
    this.order = "address";
    this.canvas = el("canvas", { class: "map", role: "img", tabIndex: 0 });
    this.node = el("section", { class: "segments", "aria-label": "Segments" }, el("p", { class: "wait" }, "Reading the map…"));
    this.watcher = new ResizeObserver(() => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.hovered = null; hideTip(); });
    this.canvas.addEventListener("click", (event) => {
      const found = this.under(event);
      if (found && found.block && found.block[2] !== null) set({ pin: found.block[2] });
    });
    this.events = new EventList(scene);
    this.load();
  }

  close() {
    this.isClosed = true;
    this.watcher.disconnect();
    hideTip();
  }

  async load() {
    const position = momentShown(this.scene);
    try {
      const map = await ask("map", { r: state.r, position });
      if (this.isClosed || position !== momentShown(this.scene)) return;
      this.map = map;
      this.position = position;
      this.fill();
      this.events.show(position);
    } catch (error) {
      failed(this.node, error, () => this.load());
    }
  }

  // A drag over the whole recording; what is drawn follows as answers come.
  scrubber() {
    const { scene } = this;
    const follow = (event) => {
      this.wanted = Number(event.target.value);
      if (this.isFollowing) return;
      this.isFollowing = true;
      requestAnimationFrame(() => { this.isFollowing = false; set({ at: this.wanted }); });
    };
    return el("label", { class: "scrubber" }, el("span", { class: "sr" }, "Moment"), el("input", { type: "range", min: 0, max: scene.events, step: 1, value: this.map.position, "aria-label": "Moment", title: "Drag through the recording", oninput: follow }));
  }

  fill() {
    const { scene, map } = this;
    const { segments } = map;
    const total = sum(segments, (it) => it.size);
    const used = sum(segments, (it) => sum(it.blocks, (block) => block[1]));
    const loss = sum(segments, (it) => sum(it.blocks, lossOf));
    const waits = sum(segments, (it) => sum(it.blocks, (block) => (block[3] === "pending" ? block[1] : 0)));
    const holes = [];
    for (const segment of segments) for (const hole of holesOf(segment)) holes.push({ ...hole, segment });
    const largest = holes.reduce((best, it) => (best && it.size <= best.size ? best : it), null);
    const refusal = scene.refusals.find((it) => it.position === map.position) || scene.refusals.find((it) => map.position < it.position) || scene.refusals[scene.refusals.length - 1];
    this.refusal = refusal;
    const kinds = [...new Set(segments.flatMap((it) => it.blocks.map((block) => block[3])))];
    const names = Object.fromEntries(scene.groups.category.map((it) => [it.key, it.name]));
    refill(this.node,
      el("div", { class: "controls" }, momentControls(scene, this.marks, map.position),
        el("fieldset", { class: "choice" }, el("legend", {}, "Order"), [["address", "by address"], ["pool", "by pool and stream"]].map(([value, label]) =>
          el("label", {}, el("input", { type: "radio", name: "order", value, checked: this.order === value, onchange: () => { this.order = value; this.draw(); } }), el("span", {}, label)))),
        el("button", { type: "button", title: "Save this view as a PNG", onclick: () => saveCanvas({ width: this.canvas.clientWidth, height: this.canvas.clientHeight, layers: [[this.canvas, 0, 0]] }, `${scene.name}-segments`) }, "Save picture"),
        el("button", { type: "button", title: "Every event, below the map", onclick: () => this.events.node.scrollIntoView() }, "Events ↓")),
      this.scrubber(),
      el("p", { class: "lead" }, el("b", { title: exactly(total) }, size(total)), ` reserved in ${many(segments.length, "segment")}, `, el("b", { title: exactly(used) }, size(used)), ` in blocks, `,
        el("b", { title: exactly(total - used) }, size(total - used)), ` free in ${many(holes.length, "hole")}`, largest ? `, the largest ${size(largest.size)}` : "",
        waits ? [", ", el("b", { class: "bad", title: exactly(waits) }, size(waits)), " freed but in use by another stream"] : "", loss ? [", ", el("b", { title: exactly(loss) }, size(loss)), " lost to rounding"] : ""),
      refusal ? this.refused(refusal, holes, total) : null,
      el("ul", { class: "legend", "aria-label": "Legend" },
        kinds.sort().map((key) => el("li", {}, swatch(categoryColor(key), key), key === "pending" ? "freed, another stream may still use it" : names[key] || key)),
        loss ? el("li", {}, el("span", { class: "swatch loss" }), "lost to rounding") : null,
        el("li", {}, el("span", { class: "swatch hole" }), "hole: reserved and free"),
        refusal && holes.some((it) => refusal.requested <= it.size) ? el("li", {}, el("span", { class: "swatch fits" }), "hole that the refused request would fit into") : null,
        segments.some((it) => it.expandable) ? el("li", {}, el("span", { class: "swatch line dashed ink" }), "expandable segment") : null),
      el("div", { class: "mapbox" }, this.canvas),
      this.events.node);
    const where = segments.length ? `${many(segments.length, "segment")}, ${size(total)}` : "nothing is reserved";
    this.canvas.setAttribute("aria-label", `Address space: ${where}; ${many(holes.length, "hole")}`);
    this.watcher.observe(this.canvas.parentElement);
    this.draw();
  }

  // The request that could not be served, as long as it would be in the map.
  refused(refusal, holes) {
    const enough = holes.filter((it) => refusal.requested <= it.size);
    const sentence = enough.length
      ? `${many(enough.length, "hole")} of this moment would be large enough; only those of the same pool and stream could have served it.`
      : "no hole of this moment is large enough.";
    return el("div", { class: "refusal" },
      el("p", {}, el("b", {}, size(refusal.requested)), " were refused at ", el("button", { type: "button", class: "link", onclick: () => set({ at: refusal.position }) }, `event ${number(refusal.position)}`),
        refusal.line ? ` (${refusal.line})` : "", `, while the device had ${size(refusal.free)} free: ${sentence}`));
  }

  draw() {
    if (!this.map || this.isClosed || !this.canvas.parentElement) return;
    const width = Math.max(200, this.canvas.parentElement.clientWidth);
    const segments = [...this.map.segments];
    if (this.order === "pool") segments.sort((a, b) => a.pool[0] - b.pool[0] || a.pool[1] - b.pool[1] || a.stream - b.stream || Number(a.small) - Number(b.small));
    const total = Math.max(1, sum(segments, (it) => it.size));
    const perPixel = total / (width * ROWS);
    // Pieces of segments, each within one row.
    const pieces = [];
    const asked = this.refusal ? Math.ceil(this.refusal.requested / perPixel / width) : 0;
    let [x, row] = [0, asked ? Math.min(asked, ASKED) + 1 : 0];
    const first = row;
    let label = null;
    const headings = [];
    for (const segment of segments) {
      if (this.order === "pool") {
        const name = heading(segment);
        if (name !== label) {
          label = name;
          if (x || headings.length) { row += 1; x = 0; }
          headings.push({ row, name });
          row += 1;
        }
      }
      let done = 0;
      const length = Math.max(3, segment.size / perPixel);
      if (width - x < Math.min(length, 24)) { row += 1; x = 0; }
      while (done < length) {
        const part = Math.min(length - done, width - x);
        pieces.push({ segment, row, x, width: part, from: (done / length) * segment.size, to: ((done + part) / length) * segment.size, isFirst: done === 0, isLast: length <= done + part + 0.01 });
        done += part + 0.001;
        x += part;
        if (width - 1 <= x) { row += 1; x = 0; }
      }
      if (x) x += BETWEEN;
    }
    const height = (row + 1) * (ROW + GAP);
    const ratio = fit(this.canvas, width, height);
    const c = this.canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    if (this.refusal) this.drawRefusal(c, perPixel, width, first);
    for (const it of headings) {
      c.fillStyle = inkOf("quiet");
      c.fillText(it.name, 0, it.row * (ROW + GAP) + ROW / 2 + 4);
    }
    for (const piece of pieces) this.drawPiece(c, piece);
    this.pieces = pieces;
    this.byRow = [];
    for (const it of pieces) (this.byRow[it.row] ||= []).push(it);
  }

  drawRefusal(c, perPixel, width, rows) {
    let remaining = this.refusal.requested / perPixel;
    c.fillStyle = inkOf("bad");
    // The last row is for its words.
    const n = Math.min(ASKED, rows - 1);
    for (let row = 0; row < n && 0 < remaining; row++) {
      c.globalAlpha = 0.85;
      c.fillRect(0, row * (ROW + GAP), Math.min(remaining, width), ROW);
      remaining -= width;
    }
    c.globalAlpha = 1;
    const cut = 0 < remaining ? `; ${many(Math.ceil(remaining / width), "more row")} would follow` : "";
    const asked = `${size(this.refusal.requested)} requested`;
    const rest = 0 < remaining ? `, ${many(Math.ceil(remaining / width), "more row")}` : "";
    const text = [`${asked}, at this scale${cut}`, `${asked}${cut}`, `${asked}${rest}`].find((it) => c.measureText(it).width < width) ?? asked;
    // Below it, where it can be read and nothing cuts it off.
    c.fillText(text, 0, n * (ROW + GAP) + ROW / 2);
  }

  drawPiece(c, piece) {
    const { segment, row, x, width, from, to } = piece;
    const y = row * (ROW + GAP);
    const scale = width / (to - from);
    c.fillStyle = inkOf("hole");
    c.fillRect(x, y, width, ROW);
    if (this.refusal) {
      c.fillStyle = inkOf("fits");
      for (const hole of holesOf(segment)) {
        if (hole.size < this.refusal.requested || hole.offset + hole.size <= from || to <= hole.offset) continue;
        const x0 = x + (Math.max(hole.offset, from) - from) * scale;
        c.fillRect(x0, y, (Math.min(hole.offset + hole.size, to) - Math.max(hole.offset, from)) * scale, ROW);
      }
    }
    let at = lowerBound(segment.blocks, from);
    for (; at < segment.blocks.length && segment.blocks[at][0] < to; at++) {
      const [offset, bytes, life, kind, requested] = segment.blocks[at];
      const x0 = x + (Math.max(offset, from) - from) * scale;
      const x1 = x + (Math.min(offset + bytes, to) - from) * scale;
      if (x1 <= x0) continue;
      const lit = chosen();
      const color = lit && !lit.has(life) ? faded(categoryColor(kind), inkOf("plot")) : categoryColor(kind);
      c.fillStyle = 6 < x1 - x0 ? canvasGround(c, color, kind) : color;
      c.fillRect(x0, y, Math.max(0.5, x1 - x0 - (2.5 < x1 - x0 ? 0.6 : 0)), ROW);
      const wide = x1 - x0 - (2.5 < x1 - x0 ? 0.6 : 0);
      // What waits for a stream is framed, and what rounding takes of a block is its end.
      c.fillStyle = inkOf("bad");
      if (kind === "pending") for (const edge of [y, y + ROW - 2]) c.fillRect(x0, edge, Math.max(0.5, wide), 2);
      const end = x + (offset + requested - from) * scale;
      if (requested < bytes && end < x1 && 0.4 < x1 - end) c.fillRect(Math.max(x0, end), y, x0 + wide - Math.max(x0, end), ROW);
      if (life !== null && life === state.pin) {
        c.strokeStyle = inkOf("ink");
        c.lineWidth = 2;
        c.strokeRect(x0 + 1, y + 1, Math.max(1, x1 - x0 - 2), ROW - 2);
      }
    }
    c.strokeStyle = segment.expandable ? inkOf("ink") : inkOf("edge");
    c.lineWidth = 1;
    c.setLineDash(segment.expandable ? [4, 3] : []);
    c.beginPath();
    c.moveTo(x, y + 0.5);
    c.lineTo(x + width, y + 0.5);
    if (piece.isLast) c.lineTo(x + width, y + ROW - 0.5); else c.moveTo(x + width, y + ROW - 0.5);
    c.lineTo(x, y + ROW - 0.5);
    if (piece.isFirst) c.lineTo(x, y + 0.5);
    c.stroke();
    c.setLineDash([]);
  }

  // To the block after, or before, in the order of addresses.
  walkMap(direction) {
    const lives = this.map.segments.flatMap((it) => it.blocks.map((block) => block[2])).filter((it) => it !== null);
    if (!lives.length) return;
    const at = lives.indexOf(state.pin);
    set({ pin: lives[at < 0 ? (direction < 0 ? lives.length - 1 : 0) : Math.max(0, Math.min(lives.length - 1, at + direction))] });
  }

  key(event) {
    if (event.key === "j" || event.key === "k") this.walkMap(event.key === "k" ? 1 : -1);
    else return false;
    return true;
  }

  under(event) {
    if (!this.byRow) return null;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const row = Math.floor(y / (ROW + GAP));
    if (ROW < y - row * (ROW + GAP)) return null;
    const piece = (this.byRow[row] || []).find((it) => it.x <= x && x < it.x + it.width);
    if (!piece) return null;
    const offset = piece.from + ((x - piece.x) / piece.width) * (piece.to - piece.from);
    const at = lowerBound(piece.segment.blocks, offset);
    const block = piece.segment.blocks[at];
    if (block && block[0] <= offset && offset < block[0] + block[1]) return { segment: piece.segment, block };
    const hole = holesOf(piece.segment).find((it) => it.offset <= offset && offset < it.offset + it.size);
    return { segment: piece.segment, hole };
  }

  point(event) {
    const found = this.under(event);
    if (!found) {
      this.hovered = null;
      hideTip();
      return;
    }
    const { segment, block, hole } = found;
    const names = Object.fromEntries(this.scene.groups.category.map((it) => [it.key, it.name]));
    const head = block
      ? [el("p", { class: "big" }, swatch(categoryColor(block[3]), block[3]), size(block[1])), el("p", {}, block[3] === "pending" ? "freed, another stream may still use it" : names[block[3]])]
      : [el("p", { class: "big" }, hole ? `${size(hole.size)} hole` : "hole")];
    const foot = [el("p", { class: "quiet" }, `in a segment of ${size(segment.size)} at ${segment.address}`), el("p", { class: "quiet" }, heading(segment))];
    const { clientX, clientY } = event;
    showTip(clientX, clientY, ...head, ...foot);
    const life = block ? block[2] : null;
    this.hovered = life;
    if (life === null) return;
    blockFacts(state.r, life).then((facts) => {
      if (this.hovered === life && !this.isClosed) showTip(clientX, clientY, ...head, ...shortFacts(facts), ...foot);
    }, () => {});
  }
}

// What a block occupies beyond what was requested.
function lossOf([, bytes, , , requested]) {
  return Math.max(0, bytes - requested);
}

function heading(segment) {
  const pool = segment.pool[0] || segment.pool[1] ? `private pool (${segment.pool[0]}, ${segment.pool[1]})` : "default pool";
  const blocks = segment.small ? "blocks up to 1 MiB" : "larger blocks";
  return `${pool} · ${blocks} · stream ${segment.stream || "default"}${segment.expandable ? " · expandable" : ""}`;
}

// The first block that ends after `offset`.
function lowerBound(blocks, offset) {
  let [low, high] = [0, blocks.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (blocks[middle][0] + blocks[middle][1] <= offset) low = middle + 1; else high = middle;
  }
  return low;
}

function holesOf(segment) {
  if (segment.holes) return segment.holes;
  const holes = [];
  let at = 0;
  for (const [offset, bytes] of segment.blocks) {
    if (at < offset) holes.push({ offset: at, size: offset - at });
    at = Math.max(at, offset + bytes);
  }
  if (at < segment.size) holes.push({ offset: at, size: segment.size - at });
  segment.holes = holes;
  return holes;
}

function sum(list, value) {
  return list.reduce((res, it) => res + value(it), 0);
}
