// What the page shows, stored in the address, so that a link opens a view and the browser's back button returns to the last one.

const EMPTY = {
  view: "answer",
  r: 0,
  axis: "events",
  by: "category",
  from: null,
  to: null,
  low: null,
  top: null,
  at: null,
  compare: null,
  pin: null,
  sel: "",
  // A finding of the answer that somebody looked for.
  finding: null,
  // A second recording, how it is laid beside the first, and what is selected and pinned in it.
  with: null,
  lay: "",
  also: "",
  below: null,
  card: "",
  memory: "",
  outside: "",
  conf: "",
};

export const state = { ...EMPTY };

// All of a recording, with nothing chosen in it.
export const WHOLE = { from: null, to: null, low: null, top: null, at: null, compare: null, pin: null, sel: "", finding: null, with: null, also: "", below: null };

const KEYS_OF_STATE = Object.keys(EMPTY);
const NUMBERS = new Set(["r", "from", "to", "low", "top", "at", "compare", "pin", "finding", "with", "below"]);
// A change of these is a place to come back to; moving about is not.
const PLACES = ["view", "r", "pin", "sel", "finding", "with", "also", "below", "lay", "compare", "by", "axis"];
const listeners = [];

export function onState(listener) {
  listeners.push(listener);
}

export function set(changes) {
  const before = { ...state };
  // What is selected in the second recording goes with what is in the first.
  if ("sel" in changes && !("also" in changes)) state.also = "";
  if ("view" in changes && !("finding" in changes)) state.finding = null;
  Object.assign(state, changes);
  if (KEYS_OF_STATE.every((it) => before[it] === state[it])) return;
  if (PLACES.some((it) => before[it] !== state[it])) {
    write(before);
    toAddress("pushState", state);
    clearTimeout(timer);
    timer = 0;
  } else {
    rememberSoon();
  }
  tell(before);
}

function tell(before) {
  for (const it of listeners) it(state, before);
}

// After the way back, or when somebody edits the address.
export function follow(sane) {
  clearTimeout(timer);
  timer = 0;
  const before = { ...state };
  Object.assign(state, readHash());
  sane();
  if (KEYS_OF_STATE.some((it) => before[it] !== state[it])) tell(before);
}

export function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  const res = { ...EMPTY };
  for (const key of KEYS_OF_STATE) {
    if (!given.has(key)) continue;
    const value = NUMBERS.has(key) ? Number(given.get(key)) : given.get(key);
    if (!NUMBERS.has(key) || (Number.isFinite(value) && 0 <= value)) res[key] = value;
  }
  return res;
}

function hashOf(it) {
  const parts = KEYS_OF_STATE.filter((key) => it[key] !== null && it[key] !== "");
  const rounded = (value) => (typeof value === "number" ? Math.round(value) : value);
  return `#${new URLSearchParams(parts.map((key) => [key, rounded(it[key])]))}`;
}

let timer = 0;

// Stores the current view in the history before it changes.
function write(before) {
  if (timer) toAddress("replaceState", before);
}

function rememberSoon() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    timer = 0;
    toAddress("replaceState", state);
  }, 150);
}

// A frame in a notebook has no address of its own.
function toAddress(how, it) {
  try {
    history[how](null, "", hashOf(it));
  } catch { /* The page works without. */ }
}
