// A tree of sums as an icicle: width is bytes, the colour is what most of a part is for.

import { el, hideTip, refill, showTip } from "./dom.js";
import { colorOf, inkOn } from "./palette.js";
import { clipped, many, share, size } from "./words.js";

const NARROWEST = 0.0012;
const RECORDER = 2;
const WRAPPERS = /^(module\.py:\d+ in (_call_impl|_wrapped_call_impl)|_?contextlib\.py:\d+ in |grad_mode\.py:\d+ in )/;

// The interpreter below a line of Python, and the recorder itself.
const INTERPRETER = /^(?:\S+\.(?:c|cc|cpp|h)(?::\d+)? in )?(?:_start$|__libc_|__clone|clone3?$|pthread_|start_thread$|_?Py_?[A-Z]|_PyRun_|pymain_|run_mod|run_eval_code_obj|cfunction_|slot_tp_|torch::unwind|torch::CapturedTraceback|torch::cuda::\(anonymous namespace\)::gather)/;

function fresh(name, category = 0) {
  return { name, bytes: 0, blocks: 0, category, ids: [], paths: [], children: [] };
}

// Nodes come as [parent, name, bytes, blocks, whose code, category, id, file, line]. Our recorder's frames are never shown,
// wrappers that say nothing only where they are wanted.
export function treeOf(nodes, hide) {
  if (!nodes.length) return fresh("everything");
  const all = nodes.map(([parent, name, bytes, blocks, code, category, id, file, line]) => ({ parent, name, bytes, blocks, code, category, file, line, ids: id === null ? [] : [id], paths: [], children: [] }));
  const isShown = all.map((node, index) => index === 0 || (node.code !== RECORDER && !(hide && (WRAPPERS.test(node.name) || INTERPRETER.test(node.name)))));
  const place = [all[0]];
  all.forEach((node, index) => {
    if (index === 0) return;
    const above = place[node.parent];
    if (!isShown[index]) {
      place[index] = above;
      return;
    }
    // The same frame reached through two wrappers is one.
    const twin = above.children.find((it) => it.name === node.name);
    if (twin) {
      twin.bytes += node.bytes;
      twin.blocks += node.blocks;
      twin.ids.push(...node.ids);
      place[index] = twin;
    } else {
      above.children.push(node);
      place[index] = node;
    }
  });
  sorted(all[0]);
  return all[0];
}

// The modules of a model, the same part of every layer together: `h.*`.
export function modulesOf(nodes, folds) {
  if (!nodes.length) return fresh("everything");
  const all = nodes.map(([parent, name, bytes, blocks, , category]) => ({ ...fresh(name, category), parent, bytes, blocks }));
  all.forEach((node, index) => {
    if (!index) return;
    const above = all[node.parent];
    node.path = node.parent ? `${above.path}.${node.name}` : node.name;
    node.paths = [node.path];
    above.children.push(node);
  });
  if (folds) fold(all[0]);
  sorted(all[0]);
  return all[0];
}

function fold(node) {
  const numbered = node.children.filter((it) => /^\d+$/.test(it.name));
  if (1 < numbered.length) {
    const all = numbered.reduce(merged, { ...fresh("*", numbered[0].category), count: numbered.length });
    all.name = `* (${numbered.length} alike)`;
    node.children = [...node.children.filter((it) => !numbered.includes(it)), all];
  }
  for (const it of node.children) fold(it);
}

function merged(into, node) {
  into.bytes += node.bytes;
  into.blocks += node.blocks;
  into.ids.push(...node.ids);
  into.paths.push(...node.paths);
  for (const child of node.children) {
    let twin = into.children.find((it) => it.name === child.name);
    if (!twin) into.children.push(twin = fresh(child.name, child.category));
    merged(twin, child);
  }
  return into;
}

// The other way round: who asked outermost at the top, and who called that below.
export function bottomUp(root) {
  const res = { ...fresh("everything", root.category), bytes: root.bytes, blocks: root.blocks };
  const walk = (node, above) => {
    const own = node.bytes - node.children.reduce((sum, it) => sum + it.bytes, 0);
    const blocks = node.blocks - node.children.reduce((sum, it) => sum + it.blocks, 0);
    if (0 < own || 0 < blocks) {
      let at = res;
      for (const it of [node, ...[...above].reverse()]) {
        let next = at.children.find((child) => child.name === it.name);
        if (!next) at.children.push(next = { ...fresh(it.name, node.category), file: it.file, line: it.line });
        next.bytes += own;
        next.blocks += blocks;
        next.ids.push(...node.ids);
        at = next;
      }
    }
    for (const it of node.children) walk(it, [...above, node]);
  };
  for (const it of root.children) walk(it, []);
  sorted(res);
  return res;
}

function sorted(node) {
  node.children.sort((a, b) => b.bytes - a.bytes);
  for (const it of node.children) sorted(it);
}

export class Flame {
  // `onPick` gets the node that was chosen; null for everything.
  constructor(groups, onPick) {
    this.groups = groups;
    this.onPick = onPick;
    this.rows = el("div", { class: "flame", role: "tree", "aria-label": "Flame graph" });
    this.path = el("p", { class: "crumbs" });
    this.node = el("div", {}, this.path, this.rows);
  }

  show(root) {
    this.root = root;
    this.zoom([root]);
  }

  zoom(path) {
    const top = path[path.length - 1];
    const go = (to) => { this.zoom(to); this.onPick(1 < to.length ? to[to.length - 1] : null); };
    refill(this.path, path.map((node, index) => [index ? " › " : "", el("button", { type: "button", class: "link", onclick: () => go(path.slice(0, index + 1)) }, index ? clipped(node.name, 80) : "everything")]));
    const rows = [];
    const place = (node, left, width, depth, trail) => {
      if (width < NARROWEST || 60 < depth) return;
      (rows[depth] ||= []).push(this.cell(node, left, width, trail, go));
      let at = left;
      for (const child of node.children) {
        const wide = top.bytes ? child.bytes / top.bytes : 0;
        place(child, at, wide, depth + 1, [...trail, child]);
        at += wide;
      }
    };
    place(top, 0, 1, 0, path);
    refill(this.rows, rows.map((cells) => el("div", { class: "flamerow", role: "group" }, cells)));
  }

  cell(node, left, width, trail, go) {
    const color = colorOf(this.groups[node.category] || this.groups[0], node.category);
    const isPlain = trail.length === 1 || /^(no |smaller)/.test(node.name);
    const of = this.groups[node.category]?.name;
    return el("button", {
      type: "button",
      role: "treeitem",
      class: `cell${isPlain ? " none" : ""}`,
      "aria-label": `${node.name}: ${size(node.bytes)}, ${share(node.bytes, this.root.bytes)}, ${many(node.blocks, "block")}`,
      style: { left: `${left * 100}%`, width: `calc(${width * 100}% - 1px)`, ...(isPlain ? {} : { background: color, color: inkOn(color) }) },
      onclick: () => go(trail),
      onmousemove: (event) => showTip(event.clientX, event.clientY, el("p", { class: "big" }, size(node.bytes)), el("p", {}, node.name), el("p", { class: "quiet" }, `${share(node.bytes, this.root.bytes)} of everything, ${many(node.blocks, "block")}${isPlain ? "" : `, most of it ${of}`}`)),
      onmouseleave: hideTip,
    }, width < 0.03 ? "" : [el("span", {}, clipped(node.name, 90)), " ", el("small", {}, size(node.bytes))]);
  }
}
