// The timeline: blocks stacked over events or time. `scale.js` has the part that is shown, `marks.js` draws over it,
// `gestures.js` handles mouse, fingers and wheel.

import { ask, askWindow } from "./api.js";
import { bandsOf, totalsOf } from "./bands.js";
import { blockFacts, damaged, shortFacts, swap, swatch } from "./details.js";
import { Differs } from "./differs.js";
import { el, fit, hideTip, refill, say, showTip } from "./dom.js";
import { listen } from "./gestures.js";
import { Marks } from "./marks.js";
import { momentShown } from "./moments.js";
import { PHASE, colorOf, inkOf } from "./palette.js";
import { saveCanvas } from "./picture.js";
import { Picture } from "./raster.js";
import { Scale, TOP } from "./scale.js";
import { Second } from "./second.js";
import { chosen, select, selected } from "./selection.js";
import { set, state } from "./state.js";
import { Strip } from "./strip.js";
import { limitName, many, number, phaseName, size } from "./words.js";

const FREE_HEIGHT = 64;

export class Timeline {
  constructor(scene, marks, card, others) {
    this.scene = scene;
    this.marks = marks;
    this.card = card;
    this.others = others;
    this.picture = new Picture();
    this.data = null;
    this.other = null;
    this.hover = null;
    this.timings = { paint: [], answer: [] };
    this.canvas = el("canvas", { class: "plot", tabIndex: 0, role: "img" });
    this.over = el("canvas", { class: "over", "aria-hidden": "true" });
    this.free = el("canvas", { class: "free", role: "img", "aria-label": "Reserved memory that no tensor uses, and its largest hole" });
    this.box = el("div", { class: "plotbox" }, this.canvas, this.over);
    this.scale = new Scale(scene, marks, this.box, () => this.levels());
    this.overlay = new Marks(this.over, this.scale, scene, marks);
    this.strip = new Strip(this.scale);
    this.legend = el("ul", { class: "legend", "aria-label": "Legend" });
    this.summary = el("p", { class: "summary", role: "status" });
    this.cursor = el("p", { class: "sr", role: "status", "aria-live": "polite" });
    this.node = el("section", { class: "timeline", "aria-label": "Timeline" }, this.controls(), this.box, this.free, this.strip.node, this.legend, this.summary, this.cursor);
    this.unlisten = listen(this);
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.box);
  }

  close() {
    this.watcher.disconnect();
    if (this.other) this.other.close();
    this.strip.close();
    this.unlisten();
    this.isClosed = true;
    hideTip();
  }

  controls() {
    const { scene } = this;
    const choice = (label, key, options) => el("fieldset", { class: "choice" }, el("legend", {}, label),
      options.map(([value, name, title]) => el("label", { title }, el("input", {
        type: "radio", name: key, value, checked: state[key] === value,
        onchange: () => set(key === "lay" ? { lay: value } : key === "axis" ? { axis: value, from: null, to: null } : { [key]: value, low: null, top: null }),
      }), el("span", {}, name))));
    const go = (label, title, action) => el("button", { type: "button", title, onclick: action }, label);
    const clock = scene.phantom ? "Time on the CPU that the phantom ran on; a GPU takes other times" : "Wall-clock";
    this.boxing = el("button", { type: "button", "aria-label": "Box", title: "Box: draw a box to zoom into; or hold Shift and drag", "aria-pressed": "false", onclick: () => this.box_(!this.isBoxing) }, "▭");
    const lay = choice("As", "lay", [["", "blocks below", "Its blocks below these, step by step"], ["curve", "curve only", "Its curve over these blocks"]]);
    this.pairing = this.others.length ? el("span", { class: "buttons pairing", hidden: state.with === null }, lay, go("⇅", "Swap the two recordings (x)", swap)) : null;
    return el("div", { class: "controls" },
      choice("Across", "axis", [["events", "events", "Every allocator event is equally wide"], ...(scene.micros ? [["time", scene.phantom ? "phantom's time" : "time", clock]] : [])]),
      choice("Colour", "by", [["category", "category", ""], ["line", "line of code", ""],
        ["pool", "pool", "The pool and stream of a block, and the free memory of private pools"]]),
      this.others.length ? el("label", {}, "With it ", el("select", { "aria-label": "Show another recording with this one", onchange: (event) => set({ with: event.target.value === "" ? null : Number(event.target.value), also: "", below: null }) },
        el("option", { value: "" }, "no other recording"), this.others.map((it) => el("option", { value: it.r, selected: it.r === state.with }, it.name)))) : null,
      this.pairing,
      el("span", { class: "buttons" },
        go("Peak", "When most was allocated (p)", () => this.goTo(scene.peak_position, true)),
        scene.refusals.length ? go("Out of memory", "The next request that failed (o)", () => this.nextRefusal()) : null,
        go("−", "Zoom out (−)", () => this.scale.zoom(2)), go("+", "Zoom in (+)", () => this.scale.zoom(0.5)),
        go("↕ −", "Zoom the height out (Shift ↓)", () => this.scale.zoomBytes(2)), go("↕ +", "Zoom the height in (Shift ↑)", () => this.scale.zoomBytes(0.5)), this.boxing,
        go("All", "The whole recording (0)", () => set({ from: null, to: null, low: null, top: null })),
        go("⤓", "Save this view as a PNG", () => saveCanvas(this.pictureParts(), `${scene.name}-timeline`))));
  }

  // ---- what is asked for ---------------------------------------------------------------------------------

  // The lines that the picture is measured by.
  levels() {
    const { scene, card } = this;
    const res = [];
    if (scene.limit) res.push({ bytes: scene.limit, name: limitName(scene), color: inkOf("bad"), dash: [6, 4] });
    const capacity = card ? card.total - card.context : scene.capacity ? scene.capacity - (scene.context || 0) : null;
    if (capacity) res.push({ bytes: capacity, name: card ? `${card.id} without context` : "card without context", color: inkOf("card"), dash: [2, 3] });
    return res;
  }

  // What the picture needs; asked for wider than shown, so that a small move needs no answer.
  wanted() {
    const { scale } = this;
    const { width, height } = scale.area;
    const ratio = Math.min(2, devicePixelRatio || 1);
    const span = scale.to - scale.from;
    const from = Math.max(0, Math.floor(scale.from - span / 2));
    const to = Math.min(scale.end, Math.ceil(scale.to + span / 2));
    const columns = Math.min(4096, Math.ceil((width * ratio * (to - from)) / span));
    const least = 2 ** Math.floor(Math.log2(Math.max(1, (scale.high - scale.low) / (height * ratio))));
    return { r: state.r, axis: state.axis, from, to, columns, least, by: state.by };
  }

  suits(data, wanted) {
    if (!data || data.r !== wanted.r || data.axis !== wanted.axis || data.by !== wanted.by) return false;
    if (data.failed) return true;
    const finer = (data.to - data.from) / data.columns;
    const needed = (wanted.to - wanted.from) / wanted.columns;
    const isFine = finer <= needed * 1.45 || finer <= 1;
    const isCoarse = needed <= finer * 4;
    return data.from <= this.scale.from && this.scale.to <= data.to && isFine && isCoarse && data.least === wanted.least;
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
      this.data = { ...wanted, n: 0, k: 0, groups: 0, failed: true };
      say(error.message, true);
    }
  }

  // Reserved and free memory below the picture, once that is drawn.
  async fetchFree() {
    const { data } = this;
    if (!data || !data.n || this.freeOf === data || this.isAskingFree) return;
    this.isAskingFree = true;
    try {
      const { r, axis, from, to, columns } = data;
      const answer = await ask("holes", { r, axis, from, to, columns, least: 1, by: "category" });
      this.freeOf = data;
      this.freeData = answer;
      if (!this.isClosed) this.drawFree();
    } catch {
      this.freeOf = data;
      this.freeData = null;
    } finally {
      this.isAskingFree = false;
    }
  }

  // Another recording over this one, or below it.
  async meetOther() {
    const it = this.others.find((other) => other.r === state.with);
    if (!it || this.other || this.meeting === it) return;
    this.meeting = it;
    try {
      const marks = await it.marks();
      if (this.isClosed || state.with !== it.r) return;
      this.scale.second = it.scene;
      this.other = new Second(it, this.marks, marks, this.scale, () => this.draw());
      this.differs = new Differs(this.scene, this.other);
      this.box.before(this.differs.node);
      if (it.scene.damage) this.differs.node.before(this.warning = damaged(`Incomplete: ${it.name}. `, it.scene));
      this.box.after(this.other.node);
      this.watcher.observe(this.other.node);
      this.draw();
    } catch (error) {
      say(error.message);
    } finally {
      this.meeting = null;
    }
  }

  part() {
    this.other.close();
    this.other.node.remove();
    this.differs.node.remove();
    this.warning?.remove();
    this.other = this.scale.second = null;
    this.told = null;
  }

  // ---- drawing -------------------------------------------------------------------------------------------

  draw() {
    if (this.isDue || this.isClosed) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      if (this.isClosed || !this.box.isConnected) return;
      const start = performance.now();
      if (this.pairing) this.pairing.hidden = state.with === null;
      if (this.other && (this.other.r !== state.with || this.other.axis !== state.axis)) this.part();
      const fits = this.fits();
      // Its words take space from the picture.
      const told = [this.data, state.by, selected(), this.other];
      if (!this.told || told.some((it, at) => it !== this.told[at])) this.tell(this.scene.groups[state.by]);
      this.told = told;
      this.scale.hold();
      // The answer comes while this is painted.
      this.fetch();
      this.paint(fits);
      this.scale.release();
      this.timings.paint.push(performance.now() - start);
      this.fetchFree();
      this.meetOther();
    });
  }

  fits() {
    const { data } = this;
    return data && data.r === state.r && data.axis === state.axis && data.by === state.by;
  }

  paint(fits) {
    const { scale, canvas, picture, data } = this;
    const { width, height } = scale.area;
    this.ratio = fit(canvas, width, height);
    canvas.style.left = `${scale.left}px`;
    canvas.style.top = `${TOP}px`;
    const context = canvas.getContext("2d");
    if (fits) {
      picture.paint(data, scale.from, scale.to, scale.low, scale.high, canvas.width, canvas.height);
      if (!this.image || this.image.width !== canvas.width || this.image.height !== canvas.height) this.image = context.createImageData(canvas.width, canvas.height);
      this.recolor();
    } else {
      context.clearRect(0, 0, canvas.width, canvas.height);
    }
    this.drawOver();
    const isMirrored = this.other !== null && this.other.hasBlocks;
    this.free.hidden = isMirrored;
    if (this.other) {
      this.other.node.hidden = !isMirrored;
      this.other.draw(fits ? data : null, this.scene.groups[state.by], this.differs.told?.rows);
      this.differs.load(this.other.there(state.at));
      this.differs.mark();
    }
    if (!isMirrored) this.drawFree();
    this.strip.draw();
  }

  drawOver() {
    this.overlay.draw(this.data, this.picture, { other: this.other, box: this.dragged, bands: this.bands() });
  }

  recolor() {
    const groups = this.scene.groups[state.by];
    const lit = state.pin !== null ? { life: state.pin } : this.hover && this.hover.lit;
    const colors = this.picture.colors(groups, inkOf("plot"), lit, chosen());
    this.picture.color(this.image, colors);
    this.canvas.getContext("2d").putImageData(this.image, 0, 0);
  }

  bands() {
    const { data, scale } = this;
    if (!data || !data.n || this.picture.data !== data) return [];
    const { from, to, low, high } = scale;
    return bandsOf(data, this.tops(), { from, to, low, high });
  }

  tops() {
    const { data } = this;
    if (this.totals?.of !== data) this.totals = { of: data, tops: totalsOf(data) };
    return this.totals.tops;
  }

  drawFree() {
    const { scale, free, freeOf, freeData } = this;
    const { width } = scale.area;
    const ratio = fit(free, width, FREE_HEIGHT);
    free.style.marginLeft = `${scale.left}px`;
    const c = free.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, FREE_HEIGHT);
    if (!freeData || !freeOf || freeOf.r !== state.r || freeOf.axis !== state.axis) return;
    const n = freeData.free.length;
    const per = (freeOf.to - freeOf.from) / n;
    const x = (at) => ((freeOf.from + at * per - scale.from) / (scale.to - scale.from)) * width;
    const [first, last] = [Math.max(0, Math.floor((scale.from - freeOf.from) / per)), Math.min(n, Math.ceil((scale.to - freeOf.from) / per))];
    let most = 1;
    for (let at = first; at < last; at++) most = Math.max(most, freeData.free[at]);
    const y = (bytes) => FREE_HEIGHT - 1 - (bytes / most) * (FREE_HEIGHT - 16);
    const area = (values, color) => {
      c.fillStyle = color;
      c.beginPath();
      c.moveTo(x(first), FREE_HEIGHT);
      for (let at = first; at < last; at++) {
        c.lineTo(x(at), y(values[at]));
        c.lineTo(x(at + 1), y(values[at]));
      }
      c.lineTo(x(last), FREE_HEIGHT);
      c.fill();
    };
    area(freeData.free, inkOf("hole-area"));
    area(freeData.holes, inkOf("hole-largest"));
    c.font = "12px system-ui, sans-serif";
    c.fillStyle = inkOf("quiet");
    const words = [`reserved and free, at most ${size(most)}; darker: the largest hole`, `free, at most ${size(most)}; darker: largest hole`, `free: ${size(most)}`];
    c.fillText(words.find((it) => c.measureText(it).width < width - 8) ?? "", 4, 11);
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
    const item = (group, index) => {
      const words = [swatch(colorOf(group, index), group.key), group.name];
      if (state.by !== "category") return el("li", { "data-group": String(index), onmouseenter: () => this.light({ group: index }), onmouseleave: () => this.light(null) }, words);
      const of = `category:${index}`;
      return el("li", { "data-group": String(index), onmouseenter: () => this.light({ group: index }), onmouseleave: () => this.light(null) },
        el("button", { type: "button", class: "plain", title: "Select; a double click zooms to it", "aria-pressed": String(state.sel === of), onclick: (event) => (event.detail === 2 ? this.reachGroup(index) : select(of)) }, words));
    };
    const legend = el("ul", { class: "legend", "aria-label": "Legend" },
      groups.map((group, index) => used.has(index) && item(group, index)).reverse(),
      el("li", {}, el("span", { class: "swatch line ink" }), "reserved"),
      data && data.n && 1 < (data.to - data.from) / data.n ? el("li", { title: "The least that was allocated within each column" }, el("span", { class: "swatch line lowest" }), "least within a column") : null,
      scene.refusals.length ? el("li", {}, el("span", { class: "swatch line refused" }), "a request failed") : null,
      this.levels().filter((it) => it.bytes <= this.scale.high).map((it) => el("li", {}, el("span", { class: "swatch line dashed", style: { borderColor: it.color } }), it.name)),
      this.other ? el("li", {}, el("span", { class: "swatch line", style: { borderColor: inkOf("other") } }), this.other.hasBlocks ? "allocated in the other of the two" : `allocated in ${this.other.name}`) : null,
      phases.size ? el("li", { class: "phases" }, "band above: ", [...phases].map((it) => el("span", {}, el("span", { class: "swatch thin", style: { background: PHASE[it] } }), phaseName(it)))) : null,
      this.marks.labels.length ? el("li", {}, el("span", { class: "swatch line dashed note" }), "annotation of the program") : null,
      scene.overwritten ? el("li", {}, el("span", { class: "swatch hatch" }), "lost: the recorder's ring was full") : null,
      scene.lives_before ? el("li", {}, el("span", { class: "swatch line lost" }), "edge at the start: the history begins here") : null);
    // A button that is made anew between press and release loses its click: while the words are the same, the nodes stay.
    const pressed = legend.querySelectorAll("button");
    this.legend.querySelectorAll("button").forEach((it, at) => pressed[at] && it.setAttribute("aria-pressed", pressed[at].getAttribute("aria-pressed")));
    if (!this.legend.isEqualNode(legend)) refill(this.legend, [...legend.childNodes]);
    this.canvas.setAttribute("aria-label", `Memory over ${state.axis}: peak ${size(scene.peak_allocated)} allocated at event ${number(scene.peak_position)} of ${number(scene.events)}. The keys j and k walk through the blocks of a moment.`);
    if (!data || data.failed) return;
    const shown = data.lives - data.summed - data.between;
    const hidden = data.summed + data.between;
    const parts = [`${many(data.lives, "block")} in this window`, hidden ? `${number(shown)} drawn alone, ${number(hidden)} too small or too short to draw: zoom in` : "each drawn alone"];
    const before = scene.lives_before ? ` ${many(scene.lives_before, "block")} (${size(scene.bytes_before)}) existed before the recorded history begins.` : "";
    const lost = scene.overwritten ? `${before} The recorder's ring was full: earlier events were overwritten.` : before;
    const chosen_ = selected();
    let selectedHere = 0;
    if (chosen_) for (let k = 0; k < data.k; k++) selectedHere += chosen_.lives.has(data.lives_of[k]) ? 1 : 0;
    const picked = chosen_ ? ` Of the selected blocks, ${many(selectedHere, "block")} of ${number(chosen_.data.blocks)} are drawn alone here.` : "";
    this.summary.textContent = `${parts.join(": ")}.${lost}${picked}`;
  }

  light(lit) {
    if ((this.hover && this.hover.lit) === lit) return;
    this.hover = lit ? { lit } : null;
    if (this.image && this.picture.data) this.recolor();
  }

  // ---- what hands and keys do ----------------------------------------------------------------------------

  mark(box) {
    this.dragged = box;
    this.drawOver();
  }

  box_(on) {
    this.isBoxing = on;
    this.boxing.setAttribute("aria-pressed", String(on));
  }

  boxed() {
    this.box_(false);
  }

  leave() {
    hideTip();
    this.hovered = null;
    this.light(null);
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
      const text = found.isRest ? [el("p", { class: "big" }, swatch(colorOf(group, found.group), group.key), `${size(found.size)} ${what}`), el("p", {}, group.name)] : [el("p", {}, "nothing allocated here")];
      showTip(event.clientX, event.clientY, ...text, foot);
      return;
    }
    const head = [el("p", { class: "big" }, swatch(colorOf(groups[found.group], found.group), groups[found.group].key), size(found.size)), el("p", {}, groups[found.group].name)];
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
    this.picked = found;
    if (!found || found.column < 0 || !this.data || !this.data.n) return;
    set({ at: this.data.positions[found.column], pin: found.life ?? null });
  }

  // What was clicked last.
  reachPicked() {
    const { picked } = this;
    if (picked && picked.life !== undefined) this.reach(picked.life);
    else if (picked && picked.isRest) this.reachGroup(picked.group);
  }

  // Shows one block so that it is drawn alone and large enough for words, at a moment of its life.
  async reach(life, moment = state.at) {
    const { scene, scale } = this;
    try {
      const facts = await blockFacts(state.r, life);
      const end = facts.end ?? scene.events + 1;
      const at = moment !== null && facts.start <= moment && moment < end ? moment : Math.min(facts.start, scene.events);
      const { layers } = await ask("layers", { r: state.r, position: at, by: state.by });
      const below = layers.findIndex((it) => it[0] === life);
      if (below < 0) return;
      const offset = layers.slice(0, below).reduce((sum, it) => sum + it[1], 0);
      const most = Math.max(8, scale.area.width * 0.9);
      let [from, to] = [facts.start, end];
      const margin = Math.max(2, (to - from) * 0.5);
      [from, to] = [from - margin, to + margin];
      if (most < to - from) [from, to] = [at - most / 2, at + most / 2];
      set({ axis: "events", pin: life, at });
      scale.show(from, to);
      scale.showBytes(offset - facts.size * 0.75, offset + facts.size * 1.75);
      this.cursor.textContent = `${size(facts.size)}, block ${number(below + 1)} of ${number(layers.length)} at event ${number(at)}`;
    } catch (error) {
      say(error.message);
    }
  }

  // From the pinned block to the one above or below it at the moment that is shown.
  async walk(direction) {
    const { scene, scale } = this;
    const at = momentShown(scene);
    try {
      const { layers } = await ask("layers", { r: state.r, position: at, by: state.by });
      const blocks = layers.map((it, index) => ({ life: it[0], index })).filter((it) => it.life !== null);
      if (!blocks.length) return;
      const now = blocks.findIndex((it) => it.life === state.pin);
      const next = now < 0 ? (direction < 0 ? blocks.length - 1 : 0) : Math.max(0, Math.min(blocks.length - 1, now + direction));
      const { life, index } = blocks[next];
      const offset = layers.slice(0, index).reduce((sum, it) => sum + it[1], 0);
      const bytes = layers[index][1];
      const { height } = scale.area;
      const isSeen = scale.low <= offset && offset + bytes <= scale.high && 6 <= (bytes / (scale.high - scale.low)) * height;
      const inTime = (() => {
        if (scale.isTime) return true;
        return scale.from <= at && at < scale.to && scale.to - scale.from <= scale.area.width;
      })();
      set({ pin: life, at });
      if (!inTime) scale.show(at - scale.area.width / 4, at + scale.area.width / 4);
      if (!isSeen) {
        const span = Math.min(scale.high - scale.low, Math.max(bytes * 3, Math.min((scale.high - scale.low), (bytes * height) / 12)));
        scale.showBytes(offset + bytes / 2 - span / 2, offset + bytes / 2 + span / 2);
      }
      this.cursor.textContent = `${size(bytes)}, ${scene.groups[state.by][layers[index][2]].name}, block ${number(next + 1)} of ${number(blocks.length)}`;
    } catch (error) {
      say(error.message);
    }
  }

  // The band of a group, as high as it gets within what is shown.
  reachGroup(group) {
    const { data, scale } = this;
    if (!data || !data.n) return;
    const tops = this.tops();
    const per = (data.to - data.from) / data.n;
    let [low, high] = [Infinity, 0];
    for (let c = 0; c < data.n; c++) {
      const at = data.from + (c + 0.5) * per;
      const [bottom, top] = [group ? tops[(group - 1) * data.n + c] : 0, tops[group * data.n + c]];
      if (at < scale.from || scale.to <= at || top <= bottom) continue;
      low = Math.min(low, bottom);
      high = Math.max(high, top);
    }
    if (low < high) scale.showBytes(low - (high - low) * 0.04, high + (high - low) * 0.04);
  }

  // What is selected, as far as it is drawn alone; else when it held most.
  reachSelection() {
    const it = selected();
    const { data, scale } = this;
    if (!it || !data || !data.n) return;
    let [from, to] = [Infinity, -Infinity];
    const per = (data.to - data.from) / data.n;
    for (let k = 0; k < data.k; k++) {
      if (!it.lives.has(data.lives_of[k])) continue;
      from = Math.min(from, data.from + data.firsts[k] * per);
      to = Math.max(to, data.from + data.ends[k] * per);
    }
    if (from < to && (scale.from < from - per || to + per < scale.to)) scale.show(from - (to - from) * 0.05, to + (to - from) * 0.05);
    else if (it.data.lives.length) this.reach(it.data.lives[0], it.data.most[1]);
  }

  async goTo(position, isMoment) {
    const { scale, scene } = this;
    let at = position;
    if (scale.isTime) at = position === scene.peak_position ? scene.peak_micros : (await ask("moment", { r: state.r, position })).micros;
    const span = Math.min(scale.to - scale.from, scale.end / 4);
    const half = Math.max(span / 2, 50);
    scale.show(at - half, at + half);
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
    const value = (it) => this.scale.axisOf(it.end, it.micros);
    const middle = (this.scale.from + this.scale.to) / 2;
    let index = steps.findIndex((it) => middle < value(it));
    if (index < 0) index = steps.length - 1;
    const next = Math.max(0, Math.min(steps.length - 1, index + direction));
    this.scale.show(next ? value(steps[next - 1]) : 0, value(steps[next]));
  }

  key(event) {
    const { scale } = this;
    const [span, bytes] = [scale.to - scale.from, scale.high - scale.low];
    const actions = {
      ArrowLeft: () => scale.move(event.shiftKey ? -span : -span / 10),
      ArrowRight: () => scale.move(event.shiftKey ? span : span / 10),
      ArrowUp: () => (event.shiftKey ? scale.zoomBytes(0.8) : scale.moveBytes(bytes / 10)),
      ArrowDown: () => (event.shiftKey ? scale.zoomBytes(1.25) : scale.moveBytes(-bytes / 10)),
      "+": () => scale.zoom(0.6), "=": () => scale.zoom(0.6), "-": () => scale.zoom(1.6),
      "0": () => set({ from: null, to: null, low: null, top: null }),
      p: () => this.goTo(this.scene.peak_position, true),
      o: () => this.nextRefusal(),
      x: swap,
      "[": () => this.step(-1), "]": () => this.step(1),
      k: () => this.walk(1), j: () => this.walk(-1),
      z: () => (state.pin !== null ? this.reach(state.pin) : this.hovered?.life !== undefined ? this.reach(this.hovered.life) : this.reachSelection()),
      Enter: () => this.hovered && this.hovered.life !== undefined && set({ pin: this.hovered.life }),
    };
    const action = actions[event.key];
    if (action) {
      event.preventDefault();
      action();
      // The tip of this place is no longer true.
      this.leave();
      if (this.other) this.other.leave();
    }
    return Boolean(action);
  }

  // What a saved picture is made of: canvases and where they stand.
  pictureParts() {
    const place = this.box.getBoundingClientRect();
    const own = [[this.canvas, this.scale.left, TOP], [this.over, 0, 0]];
    if (this.free.hidden) {
      const below = this.other.node.getBoundingClientRect();
      return { width: place.width, height: place.height + below.height, layers: [...own, [this.other.canvas, this.scale.left, place.height], [this.other.over, 0, place.height]] };
    }
    return { width: place.width, height: place.height + FREE_HEIGHT, layers: [...own, [this.free, this.scale.left, place.height]] };
  }
}
