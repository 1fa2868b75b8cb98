// A tree of sums as an icicle: callers above, what they called below; width is bytes.

import { el, hideTip, refill, showTip } from "./dom.js";
import { many, share, size } from "./words.js";

const NARROWEST = 0.0012;
const WRAPPERS = /^(module\.py:\d+ in (_call_impl|_wrapped_call_impl)|modules\.py:\d+ in __call__$|_?contextlib\.py:\d+ in |grad_mode\.py:\d+ in |agent\.py:\d+ in counted$)/;

// The interpreter below a line of Python, and the recorder itself.
const INTERPRETER = /^(?:\S+\.(?:c|cc|cpp|h)(?::\d+)? in )?(?:_start$|__libc_|__clone|clone3?$|pthread_|start_thread$|_?Py_?[A-Z]|_PyRun_|pymain_|run_mod|run_eval_code_obj|cfunction_|slot_tp_|torch::unwind|torch::CapturedTraceback|torch::cuda::\(anonymous namespace\)::gather)/;

function saysNothing(name) {
  return WRAPPERS.test(name) || INTERPRETER.test(name);
}

// Nodes come as [parent, name, bytes, blocks]; wrappers that say nothing are left out.
export function treeOf(nodes, hide) {
  const all = nodes.map(([parent, name, bytes, blocks]) => ({ parent, name, bytes, blocks, children: [] }));
  const shown = all.map((node, index) => index === 0 || !hide || !saysNothing(node.name));
  all.forEach((node, index) => {
    if (index === 0 || !shown[index]) return;
    let above = node.parent;
    while (!shown[above]) above = all[above].parent;
    // The same frame reached through two wrappers is one.
    const twin = all[above].children.find((it) => it.name === node.name);
    if (twin) {
      twin.bytes += node.bytes;
      twin.blocks += node.blocks;
      node.merged = twin;
    } else {
      all[above].children.push(node);
    }
  });
  for (const node of all) {
    if (!node.merged) continue;
    for (const child of node.children) node.merged.children.push(child);
  }
  for (const node of all) node.children.sort((a, b) => b.bytes - a.bytes);
  return all[0];
}

export class Flame {
  constructor(onPick) {
    this.onPick = onPick;
    this.rows = el("div", { class: "flame", role: "tree" });
    this.path = el("p", { class: "crumbs" });
    this.node = el("div", {}, this.path, this.rows);
  }

  show(root) {
    this.root = root;
    this.zoom([root]);
  }

  zoom(path) {
    this.trail = path;
    const top = path[path.length - 1];
    refill(this.path, path.map((node, index) => [index ? " › " : "", el("button", { type: "button", class: "link", onclick: () => this.zoom(path.slice(0, index + 1)) }, index ? node.name : "everything")]));
    const rows = [];
    const place = (node, left, width, depth, trail) => {
      if (width < NARROWEST || 60 < depth) return;
      (rows[depth] ||= []).push(this.cell(node, left, width, trail));
      let at = left;
      for (const child of node.children) {
        const wide = top.bytes ? (child.bytes / top.bytes) : 0;
        place(child, at, wide, depth + 1, [...trail, child]);
        at += wide;
      }
    };
    place(top, 0, 1, 0, path);
    refill(this.rows, rows.map((cells) => el("div", { class: "flamerow", role: "group" }, cells)));
  }

  cell(node, left, width, trail) {
    const text = `${node.name}: ${size(node.bytes)}, ${share(node.bytes, this.root.bytes)}, ${many(node.blocks, "block")}`;
    return el("button", {
      type: "button",
      role: "treeitem",
      class: `cell hue${hueOf(node.name)}${/^(no |smaller)/.test(node.name) ? " none" : ""}`,
      "aria-label": text,
      style: { left: `${left * 100}%`, width: `calc(${width * 100}% - 1px)` },
      onclick: () => {
        this.zoom(trail);
        if (this.onPick) this.onPick(node);
      },
      onmousemove: (event) => showTip(event.clientX, event.clientY, el("p", { class: "big" }, size(node.bytes)), el("p", {}, node.name), el("p", { class: "quiet" }, `${share(node.bytes, this.root.bytes)} of everything, ${many(node.blocks, "block")}`)),
      onmouseleave: hideTip,
    }, width < 0.03 ? "" : [el("span", {}, node.name), " ", el("small", {}, size(node.bytes))]);
  }
}

function hueOf(name) {
  let hash = 7;
  for (const it of name.replace(/:\d+/, "")) hash = (hash * 31 + it.codePointAt(0)) >>> 0;
  return hash % 6;
}
