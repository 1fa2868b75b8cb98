// A recording in the page itself: what `views/packed.rs` wrote, and the answers that a server would give of it.

import { packedIn } from "./unpack.js";
import { parseSize, size, speaksOf } from "./words.js";

const MOST_COLUMNS = 4096;
const MOST_PIECES = 40000;
const TALL = 6;
const SMALLEST_SHARE = 2000;
const LISTED = 200;
const NEVER = 4294967295;
const GROUPINGS = ["category", "line", "pool"];

export class Store {
  static async open(r, answers) {
    const [bytes, all] = await Promise.all([packedIn(`scene-${r}`), answers]);
    return new Store(bytes, all["api/overview"].scenes[r], r, all);
  }

  constructor(bytes, scene, r, carried) {
    this.scene = scene;
    this.r = r;
    this.carried = carried;
    const reader = new Reader(bytes);
    const header = JSON.parse(new TextDecoder().decode(reader.bytes(reader.number())));
    Object.assign(this, { texts: header.texts, actions: header.actions, frames: header.frames, owners: header.owners, stages: header.stages, extents: header.extents, pendings: header.pending, held: header.held, hasStacks: header.has_stacks, end: header.end });
    const columns = {};
    for (const [name, kind, n] of header.columns) columns[name] = reader.column(n, kind === "rising", WIDE.has(name) ? Float64Array : Uint32Array);
    this.columns = columns;
    const { size_table: sizes, address_table: addresses } = columns;
    const looked = (table, column) => Float64Array.from(column, (it) => table[it]);
    this.starts = columns.starts;
    this.n = this.starts.length;
    this.ends = Uint32Array.from(columns.lasted, (it, life) => (it ? this.starts[life] + it - 1 : NEVER));
    this.sizes = looked(sizes, columns.sizes);
    this.requested = looked(sizes, columns.requested);
    this.addresses = looked(addresses, columns.addresses);
    this.amounts = looked(sizes, columns.amounts);
    this.places = looked(addresses, columns.places);
    this.reserved = { at: columns.reserved_at, to: looked(sizes, columns.reserved) };
    this.holes = { at: columns.holes_at, to: looked(sizes, columns.holes) };
    this.nBefore = scene.lives - scene.made;
    this.allocated = this.levels();
    this.peak = scene.peak_allocated;
  }

  can(name) {
    return ["moment", "changes", "block", "map", "select", "layers", "events", "find-event", "stretch", "holes", "what-if"].includes(name);
  }

  answer(name, params, other) {
    const position = this.position(params.position);
    switch (name) {
      case "moment": return this.moment(position);
      case "changes": return { rows: this.changes(position, other, other.position(params.with)) };
      case "block": return this.block(Number(params.life));
      case "map": return this.map(position);
      case "select": return this.select(params.of, position);
      case "layers": return { layers: this.layers(position, params.by) };
      case "find-event": return this.findEvent(params.words, Number(params.from), params.back === "1");
      case "events": return { events: this.happened(Number(params.from), Number(params.n)) };
      case "stretch": return this.stretch(Number(params.from), Number(params.to), params.weigh);
      case "holes": {
        const at = this.moments(params).columns.map((it) => it.position);
        return { free: at.map((it) => Math.max(0, curveAt(this.reserved, it) - this.allocated[it])), holes: at.map((it) => curveAt(this.holes, it)) };
      }
      default: return this.whatIf(params);
    }
  }

  position(given) {
    return given === "peak" || given === undefined ? this.scene.peak_position : Math.min(Number(given), this.end - 1);
  }

  // Allocated at each position: what blocks add up to, and the places where a recording contradicts itself.
  levels() {
    const res = new Float64Array(this.end + 1);
    for (let life = 0; life < this.n; life++) {
      if (this.starts[life] >= this.ends[life]) continue;
      res[this.starts[life]] += this.sizes[life];
      res[Math.min(this.ends[life], this.end)] -= this.sizes[life];
    }
    for (let at = 1; at < res.length; at++) res[at] += res[at - 1];
    this.columns.odd_at.forEach((at, index) => { res[at] = this.columns.odd_allocated[index]; });
    return res;
  }

  microsAt(position) {
    const { micros } = this.columns;
    return micros.length ? micros[Math.min(position, micros.length - 1)] : 0;
  }

  stageAt(position) {
    const at = before(this.stages.length, (it) => this.stages[it][0] <= position);
    const [, step, phase] = this.stages[Math.max(0, at - 1)];
    return [step, phase];
  }

  at(position) {
    const res = [];
    for (let life = 0; life < this.n; life++) if (this.starts[life] <= position && position < this.ends[life]) res.push(life);
    return res;
  }

  classOf(bytes) {
    if (this.peak <= bytes * 4096) return 0;
    return this.peak <= bytes * 262144 ? 1 : 2;
  }

  floorOf(least) {
    if (this.peak < least) return least;
    return [Math.ceil(this.peak / 4096), Math.ceil(this.peak / 262144)].find((it) => it <= least) ?? 0;
  }

  // ---- windows -------------------------------------------------------------------------------------------

  moments(params) {
    const isTime = params.axis === "time";
    const { micros } = this.columns;
    const end = isTime ? (micros.length ? micros[micros.length - 1] : 0) + 1 : this.end;
    const from = Math.min(Number(params.from), Math.max(0, end - 1));
    const to = Math.max(from + 1, Math.min(Number(params.to), end));
    const n = Math.min(Math.max(1, Math.min(MOST_COLUMNS, Number(params.columns))), to - from);
    const bounds = [];
    if (!isTime || micros.length) {
      for (let c = 0; c <= n; c++) {
        const unit = from + Math.floor(((to - from) * c) / n);
        bounds.push(isTime ? before(micros.length, (it) => micros[it] < unit) : Math.min(unit, this.end));
      }
    }
    const columns = [];
    for (let c = 0; c + 1 < bounds.length; c++) columns.push(this.column(bounds[c], bounds[c + 1]));
    return { bounds, columns };
  }

  column(from, to) {
    if (!(from < to)) [from, to] = [Math.max(0, from - 1), Math.max(1, from)];
    const { allocated } = this;
    let [most, least] = [from, from];
    for (let at = from; at < to; at++) {
      if (allocated[most] < allocated[at]) most = at;
      if (allocated[at] < allocated[least]) least = at;
    }
    const { at, to: levels } = this.reserved;
    let index = Math.max(0, before(at.length, (it) => at[it] <= from) - 1);
    let reserved = levels[index];
    for (; index < at.length && at[index] < Math.max(1, to); index++) reserved = Math.max(reserved, levels[index]);
    return { position: most, allocated: allocated[most], lowest: allocated[least], reserved };
  }

  window(params) {
    const { bounds, columns } = this.moments(params);
    const n = columns.length;
    const groups = this.scene.groups[params.by].length;
    if (!n) return { n: 0, k: 0, groups: 0, lives: 0, summed: 0, between: 0 };
    const group = this.columns[params.by];
    const moments = Uint32Array.from(columns, (it) => it.position);
    const leastAsked = Number(params.least);
    const least = this.floorOf(leastAsked);
    const span = n < bounds[n] - bounds[0] ? 2 : 1;
    const [from, to] = [Math.min(bounds[0], moments[0]), Math.max(bounds[n], bounds[0] + 1)];
    const rest = new Float64Array(n * groups);
    const change = Array.from({ length: groups }, () => new Float64Array(n + 1));
    let pieces = [];
    let [lives, summed, between] = [0, 0, 0];
    const put = ([life, first, end]) => {
      change[group[life]][first] += this.sizes[life];
      change[group[life]][end] -= this.sizes[life];
    };
    for (let life = 0; life < this.n; life++) {
      const [start, end] = [this.starts[life], this.ends[life]];
      if (to <= start || end <= from || end <= start) continue;
      lives += 1;
      const first = before(n, (it) => moments[it] < start);
      const last = before(n, (it) => moments[it] < end);
      if (last <= first) {
        between += 1;
        continue;
      }
      const bytes = this.sizes[life];
      const piece = [life, first, last];
      if (least <= bytes && (span <= last - first || leastAsked * TALL <= bytes)) pieces.push(piece);
      else {
        summed += 1;
        put(piece);
      }
    }
    if (MOST_PIECES < pieces.length) {
      const area = ([life, first, last]) => this.sizes[life] * (last - first);
      pieces.sort((a, b) => area(b) - area(a) || a[0] - b[0]);
      for (const it of pieces.slice(MOST_PIECES)) put(it);
      summed += pieces.length - MOST_PIECES;
      pieces = pieces.slice(0, MOST_PIECES);
    }
    const order = ([life]) => group[life] * 4 + this.classOf(this.sizes[life]);
    pieces.sort((a, b) => order(a) - order(b) || a[0] - b[0]);
    change.forEach((it, index) => {
      let sum = 0;
      for (let c = 0; c < n; c++) rest[index * n + c] = sum += it[c];
    });
    if (params.by === "pool") this.addHeld(rest, pieces, columns);
    const k = pieces.length;
    return {
      n, k, groups, lives, summed, between, rest,
      allocated: Float64Array.from(columns, (it) => it.allocated),
      lowest: Float64Array.from(columns, (it) => it.lowest),
      reserved: Float64Array.from(columns, (it) => it.reserved),
      micros: Float64Array.from(columns, (it) => this.microsAt(it.position)),
      sizes: Float64Array.from(pieces, ([life]) => this.sizes[life]),
      positions: moments,
      lives_of: Uint32Array.from(pieces, ([life]) => life),
      firsts: Uint32Array.from(pieces, (it) => it[1]),
      ends: Uint32Array.from(pieces, (it) => it[2]),
      group_of: Uint8Array.from(pieces, ([life]) => group[life]),
    };
  }

  addHeld(rest, pieces, columns) {
    const n = columns.length;
    const used = Float64Array.from(rest);
    for (const [life, first, last] of pieces) for (let c = first; c < last; c++) used[this.columns.pool[life] * n + c] += this.sizes[life];
    columns.forEach((column, c) => {
      for (const [group, own, curve] of this.held) rest[group * n + c] = Math.max(0, heldAt(curve, column.position) - used[own * n + c]);
    });
  }

  layers(position, by) {
    const group = this.columns[by];
    const order = (life) => group[life] * 4 + this.classOf(this.sizes[life]);
    const lives = this.at(position).sort((a, b) => order(a) - order(b) || a - b);
    const res = lives.map((life) => [life, this.sizes[life], group[life]]);
    for (const [index, own, curve] of by === "pool" ? this.held : []) {
      const used = total(res.filter((it) => it[0] !== null && it[2] === own), (it) => it[1]);
      const bytes = Math.max(0, heldAt(curve, position) - used);
      const at = before(res.length, (it) => res[it][2] < index);
      if (bytes) res.splice(at, 0, [null, bytes, index]);
    }
    return res;
  }

  // ---- moments -------------------------------------------------------------------------------------------

  moment(position) {
    const lives = this.at(position);
    const category = this.columns.category;
    const categories = this.scene.groups.category.map(() => [0, 0]);
    const rows = new Map();
    for (const life of lives) {
      const bytes = this.sizes[life];
      const group = category[life];
      categories[group][0] += bytes;
      categories[group][1] += 1;
      const owner = this.columns.owner[life];
      const key = owner * 256 + group;
      const row = rows.get(key) || { line: this.owners[owner], owner, category: group, bytes: 0, blocks: 0, largest: life };
      row.bytes += bytes;
      row.blocks += 1;
      if (this.sizes[row.largest] < bytes) row.largest = life;
      rows.set(key, row);
    }
    const [step, phase] = this.stageAt(position);
    const trees = this.trees(lives.map((life) => [life, this.sizes[life]]));
    return {
      position, micros: this.microsAt(position), step, phase, allocated: this.allocated[position], reserved: curveAt(this.reserved, position), blocks: lives.length, categories,
      rows: [...rows].sort((a, b) => b[1].bytes - a[1].bytes || a[1].category - b[1].category || a[0] - b[0]).map((it) => it[1]),
      ...trees,
    };
  }

  stretch(from, to, weigh) {
    to = Math.max(1, Math.min(to, this.end));
    from = Math.min(from, to - 1);
    const lives = [];
    for (let life = 0; life < this.n; life++) {
      const [start, end] = [this.starts[life], this.ends[life]];
      if (to <= start || end <= from || end <= start) continue;
      if (weigh === "held") lives.push([life, Math.floor((this.sizes[life] * (Math.min(end, to) - Math.max(start, from))) / (to - from))]);
      else if (Math.max(1, from) <= start) lives.push([life, this.sizes[life]]);
    }
    return this.trees(lives);
  }

  trees(lives) {
    return { stacks: this.stackTree(lives), modules: this.moduleTree(lives) };
  }

  stackTree(lives) {
    const { node_caller: callers, node_frame: frames, stack, category } = this.columns;
    const nodes = callers.length;
    const groups = this.scene.groups.category.length;
    const [bytes, blocks, purposes] = [new Float64Array(nodes), new Uint32Array(nodes), new Float64Array(nodes * groups)];
    for (const [life, weight] of lives) {
      bytes[stack[life]] += weight;
      blocks[stack[life]] += 1;
      purposes[stack[life] * groups + category[life]] += weight;
    }
    const own = [bytes[0], blocks[0], largest(purposes.subarray(0, groups))];
    for (let node = nodes - 1; 0 < node; node--) {
      const caller = callers[node];
      bytes[caller] += bytes[node];
      blocks[caller] += blocks[node];
      for (let g = 0; g < groups; g++) purposes[caller * groups + g] += purposes[node * groups + g];
    }
    const tree = [[0, "everything", bytes[0], blocks[0], 1, 0, null, "", 0]];
    const least = Math.floor(bytes[0] / SMALLEST_SHARE);
    const places = new Int32Array(nodes).fill(-1);
    places[0] = 0;
    const small = new Map();
    for (let node = 1; node < nodes; node++) {
      const parent = places[callers[node]];
      if (parent < 0 || !blocks[node]) continue;
      if (bytes[node] < least) {
        const it = small.get(parent) || [0, 0];
        small.set(parent, [it[0] + bytes[node], it[1] + blocks[node]]);
        continue;
      }
      const line = this.frames[frames[node]];
      places[node] = tree.length;
      tree.push([parent, lineText(line), bytes[node], blocks[node], line[3], largest(purposes.subarray(node * groups, (node + 1) * groups)), node, line[0], line[1]]);
    }
    if (own[1]) tree.push([0, this.hasStacks ? "no Python stack" : "no stacks were recorded", own[0], own[1], 1, own[2], 0, "", 0]);
    for (const [parent, [b, n]] of [...small].sort((a, b) => a[0] - b[0])) tree.push([parent, "smaller ones", b, n, 1, 0, null, "", 0]);
    return tree;
  }

  moduleTree(lives) {
    const groups = this.scene.groups.category.length;
    const sums = new Map();
    let [bytes, known] = [0, false];
    for (const [life, weight] of lives) {
      const module = this.module(life);
      known ||= module !== null;
      bytes += weight;
      const name = module ?? "no module";
      if (!sums.has(name)) sums.set(name, { bytes: 0, blocks: 0, purposes: new Float64Array(groups) });
      const it = sums.get(name);
      it.bytes += weight;
      it.blocks += 1;
      it.purposes[this.columns.category[life]] += weight;
    }
    if (!known) return [];
    const tree = [[0, "everything", bytes, lives.length, 1, 0, null, "", 0]];
    const purposes = [new Float64Array(groups)];
    const places = new Map();
    for (const path of [...sums.keys()].sort(byBytes)) {
      const it = sums.get(path);
      let [parent, at] = [0, ""];
      for (const part of path.split(".")) {
        at = at ? `${at}.${part}` : part;
        if (!places.has(at)) {
          places.set(at, tree.length);
          tree.push([parent, part, 0, 0, 1, 0, null, "", 0]);
          purposes.push(new Float64Array(groups));
        }
        const place = places.get(at);
        tree[place][2] += it.bytes;
        tree[place][3] += it.blocks;
        it.purposes.forEach((value, g) => { purposes[place][g] += value; });
        parent = place;
      }
    }
    tree.forEach((node, index) => { node[5] = largest(purposes[index]); });
    return tree;
  }

  // What each line held for each purpose, and the modules that its blocks belong to.
  heldByLine(position) {
    const groups = this.scene.groups.category;
    const modules = new Map();
    for (const life of this.at(position)) {
      const line = this.owners[this.columns.owner[life]];
      if (!line) continue;
      const id = JSON.stringify(line);
      if (!modules.has(id)) modules.set(id, { line, id, modules: new Set(), purposes: new Set() });
      modules.get(id).purposes.add(groups[this.columns.category[life]].key);
      const module = this.module(life);
      if (module !== null) modules.get(id).modules.add(module.split(".").filter((it) => !OF_WRAPPERS.has(it)).join("."));
    }
    const held = this.moment(position).rows.map((it) => ({ ...it, category: groups[it.category].key }));
    return { held, places: [...modules.values()].map((it) => ({ ...it, modules: it.modules.size ? JSON.stringify([...it.modules].sort(byBytes)) : null, purposes: [...it.purposes].sort(byBytes) })) };
  }

  changes(position, other, after) {
    const [earlier, later] = [this.heldByLine(position), other.heldByLine(after)];
    const same = alike(earlier.places, later.places);
    const sums = new Map();
    const entry = (line, category) => {
      const key = JSON.stringify([line, category]);
      if (!sums.has(key)) sums.set(key, { line, renamed: null, category, before: [0, 0], after: [0, 0], owners: [null, null] });
      return sums.get(key);
    };
    for (const it of earlier.held) Object.assign(entry(it.line, it.category), { before: [it.bytes, it.blocks] }).owners[0] = it.owner;
    for (const it of later.held) {
      const found = it.line && same.get(JSON.stringify(it.line));
      Object.assign(entry(found || it.line, it.category), { after: [it.bytes, it.blocks], renamed: found ? it.line : null }).owners[1] = it.owner;
    }
    const by = (it) => Math.abs(it.after[0] - it.before[0]);
    return [...sums.values()].sort((a, b) => by(b) - by(a) || compareLines(a.line, b.line) || byBytes(a.category, b.category));
  }

  // ---- blocks --------------------------------------------------------------------------------------------

  module(life) {
    return this.texts[this.columns.module[life]] || null;
  }

  block(life) {
    if (!(0 <= life && life < this.n)) throw new Error("there is no such block");
    const { columns } = this;
    const text = (name) => this.texts[columns[name][life]] || null;
    const [start, stop] = [this.starts[life], this.ends[life]];
    const end = stop === NEVER ? null : stop;
    const isBefore = life < this.nBefore;
    const hasClock = 0 < columns.micros.length;
    const until = this.microsAt(end ?? this.end - 1);
    const stack = [];
    for (let node = columns.told[life]; node; node = columns.node_caller[node]) stack.push(this.frames[columns.node_frame[node]]);
    const stream = text("stream");
    return {
      life, address: `0x${this.addresses[life].toString(16)}`, size: this.sizes[life], requested: this.requested[life], start, end,
      start_micros: this.microsAt(start), end_micros: end === null ? null : this.microsAt(end), micros: hasClock ? Math.max(0, until - this.microsAt(start)) : null,
      category: columns.category[life], name: text("name"), module: this.module(life), stream: isBefore || stream === null ? null : Number(stream), pool: text("pool_name"),
      step: columns.step[life] ? columns.step[life] - 1 : null, metadata: text("metadata") ?? "", line: this.owners[columns.owner[life]], stack,
    };
  }

  map(position) {
    const groups = this.scene.groups.category;
    const blocks = this.at(position).map((life) => [this.addresses[life], this.sizes[life], life, groups[this.columns.category[life]].key, this.requested[life]]);
    for (const [address, bytes, from, to] of this.pendings) if (from <= position && position < to) blocks.push([address, bytes, null, "pending", bytes]);
    blocks.sort((a, b) => a[0] - b[0]);
    const extents = this.extents.filter((it) => it[7] <= position && position < it[8]).sort((a, b) => a[0] - b[0]);
    let at = 0;
    const segments = extents.map(([address, bytes, stream, a, b, small, expandable]) => {
      while (at < blocks.length && blocks[at][0] < address) at += 1;
      const own = [];
      for (; at < blocks.length && blocks[at][0] < address + bytes; at++) own.push([blocks[at][0] - address, ...blocks[at].slice(1)]);
      return { address: `0x${address.toString(16)}`, size: bytes, stream, pool: [a, b], small: Boolean(small), expandable: Boolean(expandable), blocks: own };
    });
    return { position, segments };
  }

  happened(first, n) {
    first = Math.max(1, first);
    this.endedAt ||= new Map(Array.from(this.ends, (it, life) => [it, life]).filter(([it, life]) => it !== NEVER && this.starts[life] < it));
    const res = [];
    for (let position = first; position < Math.min(first + n, this.end); position++) {
      const action = this.actions[this.columns.happened[position - 1]];
      let life = null;
      if (action === "alloc") life = this.nBefore + before(this.n - this.nBefore, (it) => this.starts[this.nBefore + it] < position);
      else if (action === "free" || action === "free completed") life = this.endedAt.get(position) ?? null;
      const isOfBlock = ["alloc", "free", "free completed"].includes(action);
      const line = life !== null ? this.owners[this.columns.owner[life]] : isOfBlock ? null : this.lineOf(this.columns.event_stack[position - 1]);
      const loss = life === null ? 0 : Math.max(0, this.sizes[life] - this.requested[life]);
      const at = life === null ? this.places[position - 1] : this.addresses[life];
      const address = at ? `0x${at.toString(16)}` : null;
      res.push({ position, micros: this.microsAt(position), action, size: this.amounts[position - 1], loss, address, life, line });
    }
    return res;
  }

  // The next event after `from`, or the one before it, that some words mean.
  findEvent(words, from, isBack) {
    const meant = new Uint8Array(this.n);
    for (const life of this.select(`words:${words}`, 0).lives) meant[life] = 1;
    const text = words.trim().toLowerCase();
    const has = (it) => text !== "" && it.toLowerCase().includes(text);
    const all = this.happened(1, this.end).filter((it) => (it.life === null ? it.line && has(lineText(it.line)) : meant[it.life]) || has(it.action)).map((it) => it.position);
    const [earlier, until] = [before(all.length, (it) => all[it] < from), before(all.length, (it) => all[it] <= from)];
    const index = isBack ? (earlier || all.length) - 1 : until < all.length ? until : 0;
    return { count: all.length, index: isBack && !all.length ? null : index, position: all[index] ?? null };
  }

  lineOf(stack) {
    const { node_caller: callers, node_frame: frames } = this.columns;
    let other = null;
    for (let node = stack; node; node = callers[node]) {
      const line = this.frames[frames[node]];
      if (line[3] === 0) return line;
      if (line[3] !== 2) other ||= line;
    }
    return other;
  }

  // ---- selections ----------------------------------------------------------------------------------------

  select(of, position) {
    const [kind, rest] = [of.slice(0, of.indexOf(":")), of.slice(of.indexOf(":") + 1)];
    if (kind === "finding") {
      const found = this.carriedSelection(of);
      if (!found) throw new Error("this finding counts no blocks here");
      return { ...this.summed(found.lives, position), by: found.by };
    }
    const [by, isIt] = this.test(kind, rest);
    const lives = [];
    for (let life = 0; life < this.n; life++) if (isIt(life)) lives.push(life);
    lives.sort((a, b) => this.sizes[b] - this.sizes[a] || a - b);
    return { ...this.summed(lives, position), by: by(lives) };
  }

  test(kind, rest) {
    const { columns } = this;
    const numbers = () => rest.split(",").map(Number);
    switch (kind) {
      case "words": {
        const [by, isIt] = this.wordsTest(rest);
        return [() => by, isIt];
      }
      case "owner": {
        const [owner, category] = rest.split(":").map(Number);
        const line = (lives) => (lives.length && this.owners[columns.owner[lives[0]]] ? lineText(this.owners[columns.owner[lives[0]]]) : "no Python stack");
        return [line, (life) => columns.owner[life] === owner && (category === undefined || columns.category[life] === category)];
      }
      case "category": return [() => this.scene.groups.category[Number(rest)]?.name ?? "", (life) => columns.category[life] === Number(rest)];
      case "module": return [() => `module ${rest}`, (life) => {
        const module = this.module(life);
        return module === null ? rest === "no module" : module === rest || module.startsWith(`${rest}.`);
      }];
      case "stacks": {
        const below = this.inherited(new Set(numbers()));
        return [() => "a part of the flame graph", (life) => Boolean(below[columns.stack[life]])];
      }
      case "lives": {
        const wanted = new Set(numbers());
        return [() => "", (life) => wanted.has(life)];
      }
      case "line": {
        const [line, file] = [Number(rest.slice(0, rest.indexOf(":"))), rest.slice(rest.indexOf(":") + 1)];
        const own = this.owners.map((it) => it && it[0] === file && it[1] === line);
        return [() => `${file.split(/[/\\]/).pop()}:${line}`, (life) => own[columns.owner[life]]];
      }
      default: throw new Error(`${JSON.stringify(`${kind}:${rest}`)} is not a selection: expected words:…, owner:…, category:…, module:…, stacks:…, lives:… or finding:…`);
    }
  }

  wordsTest(given) {
    const words = given.trim();
    if (/^0x[0-9a-f]+$/i.test(words)) {
      const address = Number(words);
      return [`address 0x${address.toString(16)}`, (life) => this.addresses[life] <= address && address < this.addresses[life] + Math.max(1, this.sizes[life])];
    }
    if (words.startsWith(">")) {
      const least = words.slice(1).trim().replace(/^=+/, "").trim();
      const bytes = parseSize(/^[\d.]+$/.test(least) ? `${least}MiB` : least);
      if (bytes !== null) return [`at least ${size(bytes)}`, (life) => bytes <= this.sizes[life]];
    }
    const about = parseSize(words);
    if (about !== null && /^[\d.]+$/.test(words)) {
      const reads = (bytes) => {
        const [shown] = size(bytes).split(" ");
        return shown === words || shown.split(".")[0] === words || String(bytes) === words;
      };
      return [`sizes that read ${words}, in any unit`, (life) => reads(this.sizes[life])];
    }
    if (about !== null) {
      const all = /[kmgt]b$/i.test(words) ? [about, parseSize(words.slice(0, -1))] : [about];
      return [`about ${all.map(size).join(" or ")}`, (life) => all.some((it) => Math.abs(this.sizes[life] - it) <= Math.floor(it / 200))];
    }
    const text = words.toLowerCase();
    const lives = this.withText(text, this.ofFindings(text));
    if (!lives.size && /\s/.test(text)) {
      // All of the words, wherever each stands.
      const [first, ...others] = text.split(/\s+/).map((it) => this.withText(it));
      for (const it of first) if (others.every((other) => other.has(it))) lives.add(it);
    }
    return [`"${text}" in a line, stack, name, module, category or finding`, (life) => lives.has(life)];
  }

  // What has `text` in its line, its stack, its name, its module or its category; and `also`.
  withText(text, also = []) {
    const has = (it) => text !== "" && it !== null && it.toLowerCase().includes(text);
    const inFrame = this.frames.map(([file, line, name]) => has(`${file}:${line}`) || has(name));
    const inLine = this.owners.map((it) => it !== null && has(lineText(it)));
    const { node_frame: frames, stack, category, name, owner } = this.columns;
    const found = new Set();
    for (let node = 1; node < frames.length; node++) if (inFrame[frames[node]]) found.add(node);
    const below = this.inherited(found);
    const isGroup = this.scene.groups.category.map((it) => has(it.name));
    const res = new Set(also);
    for (let life = 0; life < this.n; life++) if (below[stack[life]] || inLine[owner[life]] || isGroup[category[life]] || has(this.texts[name[life]] || null) || has(this.module(life))) res.add(life);
    return res;
  }

  // The blocks of the findings that have these words.
  ofFindings(text) {
    const { findings } = this.carried["api/analysis"].explanations[this.scene.file];
    return findings.flatMap((it, index) => (it.device === this.scene.device && speaksOf(it, text) ? this.carriedSelection(`finding:${index}`)?.lives ?? [] : []));
  }

  carriedSelection(of) {
    return this.carried[`api/select?${new URLSearchParams({ r: this.r, of, position: "peak" })}`];
  }

  // What holds for a caller holds for what it called; the empty stack is only itself.
  inherited(nodes) {
    const { node_caller: callers } = this.columns;
    const res = new Uint8Array(callers.length);
    for (let node = 1; node < callers.length; node++) res[node] = nodes.has(node) || res[callers[node]] ? 1 : 0;
    res[0] = nodes.has(0) ? 1 : 0;
    return res;
  }

  summed(lives, position) {
    const changes = [];
    const live = [0, 0];
    const isLive = (life) => this.starts[life] <= position && position < this.ends[life];
    for (const life of lives) {
      if (this.starts[life] < this.ends[life]) changes.push([this.starts[life], 1, this.sizes[life]], [this.ends[life], 0, this.sizes[life]]);
      if (isLive(life)) {
        live[0] += this.sizes[life];
        live[1] += 1;
      }
    }
    changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let held = 0;
    let most = [0, 0];
    for (const [at, isMore, bytes] of changes) {
      held += isMore ? bytes : -bytes;
      if (most[0] < held) most = [held, at];
    }
    const label = (life) => this.texts[this.columns.name[life]] || (this.owners[this.columns.owner[life]] ? lineText(this.owners[this.columns.owner[life]]) : "no stack");
    const hits = lives.slice(0, LISTED).map((life) => ({ life, size: this.sizes[life], label: label(life), start: this.starts[life], live: isLive(life) }));
    return { blocks: lives.length, live, most, hits, lives };
  }

  // What was replayed when the page was written; where nothing was in the way, any larger card does the same.
  whatIf(params) {
    const asked = (it) => {
      const key = Object.keys(this.carried).find((path) => {
        if (!path.startsWith(`api/what-if?r=${this.r}&`)) return false;
        const given = new URLSearchParams(path.split("?")[1]);
        return given.get("conf") === (it.conf ?? null) && given.get("capacity") === (it.capacity ?? null);
      });
      return key ? this.carried[key] : null;
    };
    const free = asked({ conf: params.conf });
    const capacity = params.capacity === undefined ? Infinity : Number(params.capacity);
    if (free && free.peak_reserved <= capacity) return free;
    const found = asked({ conf: params.conf, capacity: params.capacity });
    if (found) return found;
    throw new Error("This page has only the replays that were made when it was written: each setting with unlimited memory, and each card with the recorded settings. For others run `plimsoll replay`, or open the recording with `plimsoll view`.");
  }
}

// Parts that wrappers of a model put into the names of its modules.
const OF_WRAPPERS = new Set(["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"]);
const WIDE = new Set(["micros", "size_table", "address_table", "odd_allocated"]);

class Reader {
  constructor(bytes) {
    this.all = bytes;
    this.at = 0;
  }

  number() {
    let res = 0;
    for (let scale = 1; ; scale *= 128) {
      const it = this.all[this.at++];
      res += (it & 127) * scale;
      if (it < 128) return res;
    }
  }

  bytes(n) {
    this.at += n;
    return this.all.subarray(this.at - n, this.at);
  }

  column(n, isRising, Type) {
    const res = new Type(n);
    let sum_ = 0;
    for (let i = 0; i < n; i++) res[i] = isRising ? (sum_ += this.number()) : this.number();
    return res;
  }
}

// How many of the first `n` satisfy `isBefore`, which does so from the first on and then no more.
function before(n, isBefore) {
  let [low, high] = [0, n];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBefore(middle)) low = middle + 1; else high = middle;
  }
  return low;
}

function curveAt(curve, position) {
  return curve.to[Math.max(0, before(curve.at.length, (it) => curve.at[it] <= position) - 1)] ?? 0;
}

function heldAt(curve, position) {
  const at = before(curve.length, (it) => curve[it][0] <= position);
  return at ? curve[at - 1][1] : 0;
}

function largest(values) {
  let best = 0;
  for (let at = 1; at < values.length; at++) if (values[best] < values[at]) best = at;
  return best;
}

function total(list, value) {
  return list.reduce((res, it) => res + value(it), 0);
}

// As the server writes a line.
function lineText([file, line, name, , isBackward]) {
  const base = file.split(/[/\\]/).pop();
  const start = isBackward ? "backward of " : "";
  if (!base || base === "??") return start + name;
  return start + (line ? `${base}:${line} in ${name}` : `${base} in ${name}`);
}

// The order of texts on the server: by their bytes, which for UTF-8 is by code points.
function byBytes(a, b) {
  if (a === b) return 0;
  const [x, y] = [[...a], [...b]];
  for (let at = 0; at < Math.min(x.length, y.length); at++) if (x[at] !== y[at]) return x[at].codePointAt(0) - y[at].codePointAt(0);
  return x.length - y.length;
}

function compareLines(a, b) {
  if (!a || !b) return Number(Boolean(a)) - Number(Boolean(b));
  return byBytes(a[0], b[0]) || a[1] - b[1] || byBytes(a[2], b[2]) || a[3] - b[3] || a[4] - b[4];
}

// For lines of `later` that `earlier` does not have, the one line of `earlier` that they are: as `scene/changed.rs` pairs them.
function alike(earlier, later) {
  const base = ([file]) => file.split(/[/\\]/).pop();
  const byFrame = ({ line }, { frames }) => [frames.get(JSON.stringify(line.slice(0, 3))) ?? line.slice(0, 3), line[4]];
  const keys = [
    ({ line }) => [base(line), line[2], line[4], line[1]],
    ({ line, modules }) => modules && [base(line), line[2], line[4], 0, modules],
    ({ line }) => [base(line), line[2], line[4], 0],
    ({ line, modules }) => modules && ["", line[2], line[4], 0, modules],
    ({ line, modules }) => modules && ["", "", line[4], 0, modules],
    byFrame,
    ({ line, purposes }, { functions }) => [functions.get(JSON.stringify([line[0], line[2]])) ?? [line[0], line[2]], line[4], purposes],
    byFrame,
  ];
  const [olds, news] = [earlier, later].map((it) => new Set(it.map(({ id }) => id)));
  const res = new Map();
  const taken = new Set([...news].filter((it) => olds.has(it)));
  for (const key of keys) {
    const sides = new Map();
    // What is paired so far, by the names of the later recording.
    const paired = { frames: new Map(), functions: new Map() };
    const none = { frames: new Map(), functions: new Map() };
    for (const [id, old] of [...res].sort(([a], [b]) => compareLines(JSON.parse(a), JSON.parse(b)))) {
      const line = JSON.parse(id);
      paired.frames.set(JSON.stringify(line.slice(0, 3)), old.slice(0, 3));
      paired.functions.set(JSON.stringify([line[0], line[2]]), [old[0], old[2]]);
    }
    const put = (side) => (it) => {
      const name = key(it, side ? paired : none);
      if (!name) return;
      const id = JSON.stringify(name);
      if (!sides.has(id)) sides.set(id, [[], []]);
      sides.get(id)[side].push(it);
    };
    earlier.filter(({ id }) => !taken.has(id)).forEach(put(0));
    later.filter(({ id }) => !olds.has(id) && !res.has(id)).forEach(put(1));
    for (const [old, new_] of sides.values()) {
      if (old.length !== 1 || new_.length !== 1) continue;
      taken.add(old[0].id);
      res.set(new_[0].id, old[0].line);
    }
  }
  return res;
}
