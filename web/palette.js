// Colours: one for each thing that a block can be for, the same everywhere, in light and dark.

const CATEGORY = {
  before: "#8b929b",
  parameters: "#3f77b4",
  buffers: "#6bb0d6",
  optimizer: "#7d66b8",
  gradients: "#c0598c",
  inputs: "#3a9c87",
  kept: "#5b7a4c",
  unknown: "#a8875f",
  activations: "#e0a13a",
  workspaces: "#8c9b45",
  temporaries: "#d9633b",
  pending: "#b8bec6",
  others: "#9aa1ab",
  nobody: "#717a86",
};

// Neighbours differ in lightness too.
const LINES = [
  "#3f77b4", "#e0a13a", "#3a9c87", "#c0598c", "#7d66b8", "#8c9b45", "#d9633b", "#6bb0d6",
  "#9c5d3a", "#5d9e4f", "#b78fd0", "#c9b037", "#4a6fa0", "#d98aa6", "#4fb3a9", "#936a9c",
];

// Paler than blocks: a phase is no memory.
export const PHASE = { forward: "#8fbbe3", backward: "#e6ac8b", optimizer: "#b9abdf", zero_grad: "#b4bac2", evaluation: "#97cba0" };

// What a pool holds beside its blocks is a paler shade of them.
function paler(hex) {
  return `#${rgb(hex).map((it) => Math.round(0.4 * it + 0.6 * 0xc2).toString(16).padStart(2, "0")).join("")}`;
}

export function colorOf(group, index) {
  if (group.key === "held") return paler(LINES[(index - 1) % LINES.length]);
  return group.key === "line" || group.key === "pool" ? LINES[index % LINES.length] : CATEGORY[group.key] || CATEGORY.unknown;
}

export function categoryColor(key) {
  return CATEGORY[key] || CATEGORY.unknown;
}

export function rgb(hex) {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

// A pixel for ImageData: little-endian RGBA. `light` from -1 (black) to 1 (white).
export function pixel(hex, light = 0) {
  const [r, g, b] = rgb(hex).map((it) => Math.round(light < 0 ? it * (1 + light) : it + (255 - it) * light));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

let inks = new Map();

// After a change of theme.
export function forgetInks() {
  inks = new Map();
}

export function inkOf(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return inks.get(name);
}
