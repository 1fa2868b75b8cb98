// Small charts as SVG: one unit is one pixel, so that their words are as large as others.

import { byId } from "./dom.js";

export function chartWidth() {
  return Math.max(420, byId("main").clientWidth - 36);
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child);
  return node;
}

export function text(x, y, content, anchor) {
  const node = svg("text", { x, y, "text-anchor": anchor });
  node.textContent = content;
  return node;
}
