// The selected blocks, for all views, and their size at the moment that is shown.

import { ask } from "./api.js";
import { set, state } from "./state.js";

let current = null;
let below = null;

// Selects no block at all.
export const NONE = "lives:";
const NOTHING = { blocks: 0, live: [0, 0], most: [0, 0], hits: [], lives: [], by: "" };

export function select(of) {
  set({ sel: state.sel === of ? "" : of, pin: null });
}

// The selection that the address names, once it is known; null while it is unknown, and when nothing is selected.
export function selected() {
  return current && current.r === state.r && current.of === state.sel ? current : null;
}

// The blocks that keep their colours; null when all do.
export function chosen() {
  return selected()?.lives ?? null;
}

export async function loadSelection(position) {
  const { r, sel: of } = state;
  if (!of) {
    current = null;
    return null;
  }
  if (current && current.r === r && current.of === of && current.position === position) return current;
  const data = of === NONE ? NOTHING : await ask("select", { r, of, position });
  if (state.r !== r || state.sel !== of) return null;
  current = { r, of, position, data, lives: new Set(data.lives) };
  return current;
}

// What is selected in the second recording: what was chosen there, else what can be asked of any recording.
function counterpart() {
  if (state.also || !state.sel) return state.also;
  return /^(category|words|module):/.test(state.sel) ? state.sel : NONE;
}

function selectedBelow() {
  return below && below.r === state.with && below.of === counterpart() ? below : null;
}

export function chosenBelow() {
  return selectedBelow()?.lives ?? null;
}

// Whether there is something new to show, `position` being the moment of the second recording.
export async function loadBelow(position) {
  const [r, of] = [state.with, counterpart()];
  if (!of) {
    below = null;
    return false;
  }
  if (below && below.r === r && below.of === of && below.position === position) return false;
  below = { r, of, position, data: NOTHING, lives: new Set() };
  const data = of === NONE ? NOTHING : await ask("select", { r, of, position });
  if (state.with !== r || counterpart() !== of) return false;
  below = { r, of, position, data, lives: new Set(data.lives) };
  return true;
}

// The block after, or before, the one that is pinned.
export function neighbour(direction) {
  const it = selected();
  if (!it || !it.data.lives.length) return null;
  const { lives } = it.data;
  const at = lives.indexOf(state.pin);
  return lives[at < 0 ? (direction < 0 ? lives.length - 1 : 0) : (at + direction + lives.length) % lives.length];
}
