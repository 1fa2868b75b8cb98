// How numbers and places are written. Sizes read as the command line writes them.

const UNITS = [[2 ** 30, "GiB", 2], [2 ** 20, "MiB", 1], [2 ** 10, "KiB", 1]];

export function size(bytes) {
  const sign = bytes < 0 ? "−" : "";
  const n = Math.abs(bytes);
  for (const [unit, name, digits] of UNITS) {
    if (unit <= n) return `${sign}${rounded(n, unit, digits)} ${name}`;
  }
  return `${sign}${n} B`;
}

// The same with as many digits as tell two sizes apart that differ by `step`.
export function finely(bytes, step) {
  const [unit, name, usual] = UNITS.find(([it]) => it <= bytes) ?? [1, "B", 0];
  const digits = step < unit ? Math.min(6, Math.ceil(Math.log10(unit / step))) : 0;
  return digits <= usual ? size(bytes) : `${(bytes / unit).toFixed(digits)} ${name}`;
}

// Exactly, and halves to the even digit: 1.25 MiB is "1.2 MiB" in a terminal, too.
function rounded(n, unit, digits) {
  const scale = 10 ** digits;
  const whole = Math.floor(n / unit);
  const part = (n - whole * unit) * scale;
  let res = whole * scale + Math.floor(part / unit);
  const rest = part - Math.floor(part / unit) * unit;
  if (unit < rest * 2 || (rest * 2 === unit && res % 2)) res += 1;
  return `${Math.floor(res / scale)}.${String(res % scale).padStart(digits, "0")}`;
}

// A size as the command line reads it; null when it is none.
export function parseSize(given) {
  const found = /^\s*([\d.]+)\s*([kmgt]?)(i?b?)\s*$/i.exec(given);
  if (!found || Number.isNaN(Number(found[1]))) return null;
  const power = found[2] ? "kmgt".indexOf(found[2].toLowerCase()) + 1 : 0;
  const decimal = found[2] && found[3].toLowerCase() === "b";
  return Math.floor(Number(found[1]) * (decimal ? 1000 : 1024) ** power);
}

const GROUPED = new Intl.NumberFormat("en");

export function exactly(bytes) {
  return `${number(bytes)} bytes`;
}

export function number(n) {
  return GROUPED.format(n);
}

export function many(n, one, several = `${one}s`) {
  return `${number(n)} ${n === 1 ? one : several}`;
}

export function duration(micros) {
  if (micros < 1000) return `${Math.round(micros)} µs`;
  if (micros < 1e6) return `${(micros / 1e3).toFixed(1)} ms`;
  if (micros < 6e7) return `${(micros / 1e6).toFixed(2)} s`;
  return `${Math.floor(micros / 6e7)} min ${Math.round((micros % 6e7) / 1e6)} s`;
}

export function share(part, whole) {
  if (!whole) return "";
  const percent = (100 * part) / whole;
  return percent < 1 && 0 < part ? "<1 %" : `${percent.toFixed(0)} %`;
}

// Whether a finding has this text in what it says.
export function speaksOf(finding, text) {
  const has = (it) => text !== "" && Boolean(it) && it.toLowerCase().includes(text.toLowerCase());
  return [finding.code, finding.title, ...finding.evidence.facts].some(has);
}

function fileName(path) {
  return path.split(/[/\\]/).pop();
}

// A line is [file, line, function, whose code, whether autograd asked in its backward pass].
export function place(line) {
  if (!line) return "no Python stack";
  const [file, at, name, , isBackward] = line;
  const start = isBackward ? "backward of " : "";
  if (!file || file === "??") return start + (name || "unknown");
  return start + (at ? `${fileName(file)}:${at} in ${name}` : `${fileName(file)} in ${name}`);
}

// A long name is cut in the middle: names often differ at the end.
export function clipped(text, most = 60) {
  if (text.length <= most) return text;
  const half = Math.floor((most - 1) / 2);
  return `${text.slice(0, half)}…${text.slice(-half)}`;
}

export function phaseName(phase) {
  return { forward: "forward", backward: "backward", optimizer: "optimizer", zero_grad: "zero_grad", evaluation: "evaluation" }[phase] || phase;
}

// The level that explains every request that failed: what was reserved at most, where more than that was never had.
export function limitName(scene) {
  return scene.limit === scene.peak_reserved ? "most reserved before it ran out" : "requests above this failed";
}

export const ABOUT = {
  answer: "What happened, on which line, and what to change; then what the peak consists of.",
  timeline: "Every block of GPU memory from its allocation to its free. The vertical axis is memory, the horizontal axis is time; each column shows the fullest moment in it.",
  peak: "The blocks that were live at one moment: which lines allocated them, and what they are for.",
  segments: "The address space: the segments that PyTorch has from the driver, their blocks, and the holes between these; below it every event. A hole serves only requests that fit into it.",
  growth: "How memory changed from step to step, by how much each step grew, and the requests that failed.",
  whatif: "The recorded requests, replayed through a model of PyTorch's allocator on another card or with other settings.",
  ranks: "The recordings side by side, and the differences between two of them.",
};

export const GLOSSARY = [
  ["allocated", "bytes that the program's tensors occupy; torch.cuda.memory_allocated() reports it"],
  ["reserved", "bytes that PyTorch's allocator has from the driver, allocated or not"],
  ["block", "one allocation, from its request until it is freed"],
  ["segment", "memory that the driver gave in one piece; PyTorch cuts blocks out of it"],
  ["hole", "a free part of a segment; it serves only requests that fit into it"],
  ["private pool", "separate memory of a CUDA graph or a MemPool; its free memory serves no other requests"],
  ["lost", "events that the recorder overwrote: its ring stores only the last ones"],
  ["expandable segment", "a segment that grows and shrinks by mapping"],
  ["rounding loss", "what a block occupies beyond the requested size; PyTorch rounds sizes up, to 512 bytes at least"],
  ["requests above this failed", "the most that the device can have given PyTorch; it explains every failed request in the recording"],
  ["activations", "allocated by the forward pass and saved for the backward pass"],
  ["temporaries", "allocated and freed within one phase"],
  ["workspaces", "scratch memory of cuBLAS and cuDNN"],
  ["from before the recording", "blocks that existed when the recorded history begins"],
];

export const KEYS = [
  ["1 … 7", "the views"],
  ["← →", "move; with Shift a whole window"],
  ["↑ ↓", "up and down; with Shift zoom the height"],
  ["+ −", "zoom in and out"],
  ["z", "zoom to the block or what is selected"],
  ["j k", "the block below, the block above"],
  ["0", "show the whole recording"],
  ["p", "go to the peak"],
  ["o", "go to the next out-of-memory error"],
  ["[ ]", "the step before, the step after"],
  [", .", "the moment before, the moment after"],
  ["n N", "the next, the previous block that is selected; after a search, too"],
  ["c", "compare with this moment"],
  ["x", "swap two recordings that are shown together"],
  ["Enter", "details of the block under the cursor"],
  ["/", "search; Enter finds, and the keys act on the page again"],
  ["Esc", "leave the search box; else deselect"],
  ["t", "light or dark"],
];
