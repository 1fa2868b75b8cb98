// Pictures of what is seen, for a report or a message: PNG of what is drawn in pixels, SVG of charts.

import { el } from "./dom.js";
import { inkOf } from "./palette.js";

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// `layers` are canvases with their places, from the lowest to the highest.
export function saveCanvas({ width, height, layers }, name) {
  const ratio = Math.min(2, devicePixelRatio || 1);
  const out = el("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  const c = out.getContext("2d");
  c.fillStyle = inkOf("ground");
  c.fillRect(0, 0, out.width, out.height);
  for (const [canvas, x, y] of layers) c.drawImage(canvas, Math.round(x * ratio), Math.round(y * ratio));
  out.toBlob((blob) => save(blob, `${plain(name)}.png`), "image/png");
}

// A chart with the styles that it has on the page.
export function saveChart(chart, name) {
  const copy = chart.cloneNode(true);
  const [from, to] = [[chart, ...chart.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  from.forEach((node, at) => {
    const style = getComputedStyle(node);
    for (const it of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"]) to[at].style.setProperty(it, style.getPropertyValue(it));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.style.background = inkOf("plot");
  save(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }), `${plain(name)}.svg`);
}

function plain(name) {
  return name.replace(/[^\w.-]+/g, "-").slice(0, 80);
}
