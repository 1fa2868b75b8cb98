// Colours and hatchings: one of each for each thing that a block can be for, the same everywhere, in light and dark.

// Chosen so that any two differ for people with any kind of colour vision; those with the same hatching differ in lightness
// too, so that all are told apart in grey: tests/view/test_colors.py computes it.
const CATEGORY = {
  before: "#7486b5",
  parameters: "#164490",
  buffers: "#4bdef7",
  optimizer: "#9e6ee3",
  gradients: "#8c3b6f",
  inputs: "#49a78d",
  kept: "#474833",
  unknown: "#907347",
  activations: "#efaf35",
  workspaces: "#aeb863",
  temporaries: "#c95b14",
  pending: "#b8bec6",
  others: "#9aa1ab",
  nobody: "#717a86",
};

const HATCHING = {
  gradients: "rising", inputs: "rising", buffers: "rising",
  kept: "falling", temporaries: "falling", workspaces: "falling",
  before: "level",
  unknown: "dots", pending: "dots",
};

// Neighbours differ in lightness too.
const LINES = [
  "#3f77b4", "#e0a13a", "#3a9c87", "#c0598c", "#7d66b8", "#8c9b45", "#d9633b", "#6bb0d6",
  "#9c5d3a", "#5d9e4f", "#b78fd0", "#c9b037", "#4a6fa0", "#d98aa6", "#4fb3a9", "#936a9c",
];

// Each is of another lightness.
export const PHASE = { forward: "#86b9ec", backward: "#e0734a", optimizer: "#4f3590", zero_grad: "#d7dbe0", evaluation: "#2c7a55" };

// The sides of a tile of hatching, in pixels of the screen.
const TILE = 8;
const STROKES = {
  rising: (x, y) => (x + y) % TILE < 2,
  falling: (x, y) => (x - y + TILE) % TILE < 2,
  level: (x, y) => y % TILE < 2,
  dots: (x, y) => (x % TILE < 2 && y % TILE < 2) || ((x + 4) % TILE < 2 && (y + 4) % TILE < 2),
};

// How what `key` names is hatched: none, or one of four.
export function hatchingOf(key) {
  return HATCHING[key] ?? "";
}

// Whether a pixel belongs to a stroke of a hatching; `ratio` pixels are one of the page's.
export function isStroke(hatching, x, y, ratio) {
  return hatching !== "" && STROKES[hatching](Math.floor(x / ratio) % TILE, Math.floor(y / ratio) % TILE);
}

// What strokes are drawn in: lighter on dark colours, darker on light ones.
export function strokeLight(hex) {
  return inkOn(hex) === "#ffffff" ? 0.34 : -0.3;
}

function mixed(hex, light) {
  return `#${rgb(hex).map((it) => Math.round(light < 0 ? it * (1 + light) : it + (255 - it) * light).toString(16).padStart(2, "0")).join("")}`;
}

// A hatched ground for an element of the page.
export function ground(color, key) {
  const stroke = mixed(color, strokeLight(color));
  const strokes = {
    rising: `repeating-linear-gradient(135deg, ${stroke} 0 1.5px, transparent 1.5px 5.6px)`,
    falling: `repeating-linear-gradient(45deg, ${stroke} 0 1.5px, transparent 1.5px 5.6px)`,
    level: `repeating-linear-gradient(0deg, ${stroke} 0 2px, transparent 2px 6px)`,
    dots: `radial-gradient(${stroke} 1.2px, transparent 1.4px) 0 0 / 4.5px 4.5px`,
  }[hatchingOf(key)];
  return strokes ? `${strokes}, ${color}` : color;
}

const tiles = new Map();

// The same for a canvas whose units are the page's.
export function canvasGround(c, color, key) {
  const hatching = hatchingOf(key);
  if (!hatching) return color;
  const name = `${color}${hatching}`;
  if (!tiles.has(name)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = TILE;
    const own = tile.getContext("2d");
    own.fillStyle = color;
    own.fillRect(0, 0, TILE, TILE);
    own.fillStyle = mixed(color, strokeLight(color));
    for (let x = 0; x < TILE; x++) for (let y = 0; y < TILE; y++) if (STROKES[hatching](x, y)) own.fillRect(x, y, 1, 1);
    tiles.set(name, tile);
  }
  return c.createPattern(tiles.get(name), "repeat");
}

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

// Black or white, whichever is read better on a colour.
export function inkOn(hex) {
  const linear = rgb(hex).map((it) => (it / 255 <= 0.04045 ? it / 255 / 12.92 : ((it / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return 1.05 / (light + 0.05) < (light + 0.05) / 0.05 ? "#000000" : "#ffffff";
}

// A colour that steps back: mostly the ground.
export function faded(hex, ground) {
  const [a, b] = [rgb(hex), rgb(ground)];
  return `#${a.map((it, at) => Math.round(0.22 * it + 0.78 * b[at]).toString(16).padStart(2, "0")).join("")}`;
}

function rgb(hex) {
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
