// Turns a window into pixels. Every pixel knows which block it is of, so a look-up is one read; the
// cost is that of the pixels, however many blocks the recording has.

import { colorOf, faded, hatchingOf, inkOn, isStroke, pixel, strokeLight } from "./palette.js";

// Blocks that are so many pixels high and several times as wide have space for words.
const LABEL = 11;

// A band that is so many pixels high has a seam to what lies below it: so that its start is visible to people with any kind of colour vision.
const SEAM = 4;

// What a pixel is of: 0 nothing; 1 + 2i block i of the window; then the groups' sums. One more when it
// is the edge of it. Last the seams of the groups.
export class Picture {
  // `place` brings the data's axis to that of the picture; flipped, it hangs from the top.
  constructor({ place = (at) => at, isFlipped = false } = {}) {
    this.place = place;
    this.isFlipped = isFlipped;
    this.width = 0;
    this.height = 0;
    this.what = new Uint32Array(0);
    this.data = null;
  }

  // Draws `data` so that `from`..`to` of the axis is as wide as the picture, `low`..`high` bytes as high.
  paint(data, from, to, low, high, width, height) {
    if (this.width !== width || this.height !== height) {
      this.what = new Uint32Array(width * height);
      this.width = width;
      this.height = height;
    } else {
      this.what.fill(0);
    }
    this.data = data;
    const { n } = data;
    this.columns = new Int32Array(width).fill(-1);
    this.tall = [];
    if (!n) return;
    const perColumn = (data.to - data.from) / n;
    const scaleX = width / (to - from);
    const edges = new Int32Array(n + 1);
    for (let c = 0; c <= n; c++) {
      const x = Math.round((this.place(data.from + c * perColumn) - from) * scaleX);
      edges[c] = x < 0 ? 0 : x > width ? width : x;
    }
    for (let c = 0; c < n; c++) this.columns.fill(c, edges[c], edges[c + 1]);
    // Columns in view; where several fall onto one pixel, the last one stays.
    let first = 0;
    while (first < n && edges[first + 1] <= 0) first++;
    let last = n;
    while (first < last && width <= edges[last - 1]) last--;
    const heights = new Float64Array(n);
    const scaleY = height / (high - low);
    let k = 0;
    for (let group = 0; group < data.groups; group++) {
      const rest = group * n;
      const below = heights.slice();
      for (; k < data.k && data.group_of[k] === group; k++) {
        const size = data.sizes[k];
        const start = Math.max(first, data.firsts[k]);
        const end = Math.min(last, data.ends[k]);
        this.band(edges, heights, start, end, () => size, 1 + 2 * k, low, scaleY, true);
      }
      this.band(edges, heights, first, last, (c) => data.rest[rest + c], 1 + 2 * (data.k + group), low, scaleY, false);
      this.seam(edges, below, heights, first, last, 1 + 2 * (data.k + data.groups) + group, low, scaleY);
    }
  }

  band(edges, heights, start, end, sizeAt, mark, low, scaleY, isBlock) {
    const { width, height, what } = this;
    let c = start;
    while (c < end) {
      const below = heights[c];
      const size = sizeAt(c);
      const bottom = height - Math.round((below - low) * scaleY);
      const top = height - Math.round((below + size - low) * scaleY);
      heights[c] = below + size;
      let next = c + 1;
      // As far as it looks the same, it is one rectangle.
      while (next < end) {
        const under = heights[next];
        const more = sizeAt(next);
        if (height - Math.round((under - low) * scaleY) !== bottom || height - Math.round((under + more - low) * scaleY) !== top) break;
        heights[next] = under + more;
        next++;
      }
      const [y0, y1] = this.rows(top, bottom);
      const x0 = edges[c];
      const x1 = edges[next];
      if (isBlock && 2 * LABEL <= y1 - y0 && 6 * LABEL <= x1 - x0) this.tall.push({ piece: (mark - 1) >> 1, x0, x1, y0, y1 });
      if (y0 < y1 && x0 < x1) {
        for (let y = y0; y < y1; y++) what.fill(mark, y * width + x0, y * width + x1);
        if (isBlock && 4 <= bottom - top) {
          const edge = this.isFlipped ? height - 1 - top : top;
          if (0 <= top) what.fill(mark + 1, edge * width + x0, edge * width + x1);
          if (c === start && 4 <= x1 - x0) for (let y = y0; y < y1; y++) what[y * width + x0] = mark + 1;
        }
      }
      c = next;
    }
  }

  rows(top, bottom) {
    const [y0, y1] = [top < 0 ? 0 : top, bottom > this.height ? this.height : bottom];
    return this.isFlipped ? [this.height - y1, this.height - y0] : [y0, y1];
  }

  // The lowest row of a band that lies on another, where it is high enough to lose one.
  seam(edges, below, above, first, last, mark, low, scaleY) {
    const { width, height, what } = this;
    for (let c = first; c < last;) {
      const bottom = height - Math.round((below[c] - low) * scaleY);
      const top = height - Math.round((above[c] - low) * scaleY);
      let next = c + 1;
      while (next < last && above[next] === above[c] && below[next] === below[c]) next++;
      if (low < below[c] && SEAM <= bottom - top && 0 < bottom && bottom <= height) {
        const [y] = this.rows(bottom - 1, bottom);
        what.fill(mark, y * width + edges[c], y * width + edges[next]);
      }
      c = next;
    }
  }

  // The colours of everything a pixel can be. `lit` is a block or a group to lighten, and `chosen` the blocks that
  // alone keep their colours.
  colors(groups, ground, lit, chosen, own = groups.map(colorOf)) {
    const { data } = this;
    const res = new Uint32Array(2 * data.k + 3 * data.groups + 1);
    // What strokes of a hatching are drawn in; 0 where there are none.
    const strokes = new Uint32Array(res.length);
    const hatched = own.map((color, group) => (hatchingOf(groups[group].key) ? strokeLight(color) : 0));
    res[0] = pixel(ground);
    const faint = own.map((it) => faded(it, ground));
    const shades = own.map((color) => [0, 0.13, 0.06, 0.2].map((light) => pixel(color, light)));
    const [edges, bright, pale, paleEdges] = [own.map((it) => pixel(it, -0.22)), own.map((it) => pixel(it, 0.5)), faint.map((it) => pixel(it)), faint.map((it) => pixel(it, -0.06))];
    for (let k = 0; k < data.k; k++) {
      const group = data.group_of[k];
      const life = data.lives_of[k];
      const isLit = lit && (lit.life === life || lit.group === group);
      const isPale = chosen && !chosen.has(life);
      res[1 + 2 * k] = isLit ? bright[group] : isPale ? pale[group] : shades[group][(life * 2654435761) >>> 30];
      res[2 + 2 * k] = isPale ? paleEdges[group] : edges[group];
      if (hatched[group]) strokes[1 + 2 * k] = isPale ? paleEdges[group] : pixel(own[group], hatched[group]);
    }
    for (let group = 0; group < data.groups; group++) {
      const at = 1 + 2 * (data.k + group);
      res[at] = lit && lit.group === group ? bright[group] : chosen ? pale[group] : pixel(own[group], 0.03);
      res[at + 1] = edges[group];
      if (hatched[group]) strokes[at] = chosen ? paleEdges[group] : pixel(own[group], hatched[group]);
      res[1 + 2 * (data.k + data.groups) + group] = chosen ? paleEdges[group] : pixel(inkOn(own[group]));
    }
    this.hatchings = groups.map((it) => hatchingOf(it.key));
    return { colors: res, strokes };
  }

  // Where a block of the window is drawn, in pixels, and a pixel of it; null when it is not.
  boxOf(life) {
    const { data, width, what } = this;
    const k = data ? data.lives_of?.indexOf(life) ?? -1 : -1;
    if (k < 0) return null;
    const mark = 1 + 2 * k;
    let box = null;
    const own = [];
    for (let at = 0; at < what.length; at++) {
      if (what[at] !== mark && what[at] !== mark + 1) continue;
      const [x, y] = [at % width, Math.floor(at / width)];
      own.push(at);
      if (!box) box = { x0: x, x1: x + 1, y0: y, y1: y + 1 };
      box.x0 = Math.min(box.x0, x);
      box.x1 = Math.max(box.x1, x + 1);
      box.y1 = y + 1;
    }
    // A stack that shifts below makes it a staircase, whose middle may be another's.
    if (box) box.inside = [own[own.length >> 1] % width, Math.floor(own[own.length >> 1] / width)];
    return box;
  }

  // Into an ImageData of the same size.
  color(image, { colors, strokes }) {
    const out = new Uint32Array(image.data.buffer);
    const { what, width, height, data } = this;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    // One tile of each hatching, so that a pixel is one look-up.
    const side = Math.round(8 * ratio);
    const tiles = this.hatchings.map((it) => Uint8Array.from({ length: side * side }, (_, at) => (isStroke(it, at % side, Math.floor(at / side), ratio) ? 1 : 0)));
    for (let y = 0, at = 0; y < height; y++) {
      const row = (y % side) * side;
      for (let x = 0; x < width; x++, at++) {
        const mark = what[at];
        if (strokes[mark]) {
          const index = (mark - 1) >> 1;
          const group = index < data.k ? data.group_of[index] : index - data.k;
          out[at] = tiles[group][row + (x % side)] ? strokes[mark] : colors[mark];
        } else {
          out[at] = colors[mark];
        }
      }
    }
  }

  // What is at a pixel: a block of the window, or a group's sum.
  at(x, y) {
    const { data, width, height } = this;
    if (!data || x < 0 || width <= x || y < 0 || height <= y) return null;
    const column = this.columns[x];
    const mark = this.what[y * width + x];
    if (!mark) return { column };
    // A seam is of what it covers.
    if (2 * (data.k + data.groups) < mark) return this.at(x, this.isFlipped ? y + 1 : y - 1) ?? { column };
    const index = (mark - 1) >> 1;
    if (index < data.k) return { column, piece: index, life: data.lives_of[index], size: data.sizes[index], group: data.group_of[index] };
    const group = index - data.k;
    return { column, group, size: data.rest[group * data.n + column], isRest: true };
  }
}
