// What the page shows, kept in the address so that a link is a view.

export const state = {
  view: "timeline",
  r: 0,
  axis: "events",
  by: "category",
  from: null,
  to: null,
  top: null,
  at: null,
  compare: null,
  pin: null,
  card: "",
  memory: "",
  outside: "",
  conf: "",
};

const KEYS_OF_STATE = Object.keys(state);
const NUMBERS = new Set(["r", "from", "to", "top", "at", "compare", "pin"]);
const listeners = [];

export function onState(listener) {
  listeners.push(listener);
}

export function set(changes) {
  const before = { ...state };
  Object.assign(state, changes);
  if (KEYS_OF_STATE.every((it) => before[it] === state[it])) return;
  rememberSoon();
  for (const it of listeners) it(state, before);
}

export function readHash() {
  const given = new URLSearchParams(location.hash.slice(1));
  const res = { from: null, to: null, top: null, at: null, compare: null, pin: null, card: "", memory: "", outside: "", conf: "" };
  for (const key of KEYS_OF_STATE) {
    if (!given.has(key)) continue;
    const value = NUMBERS.has(key) ? Number(given.get(key)) : given.get(key);
    if (!NUMBERS.has(key) || (Number.isFinite(value) && 0 <= value)) res[key] = value;
  }
  return res;
}

let timer = 0;

function rememberSoon() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const parts = KEYS_OF_STATE.filter((it) => state[it] !== null && state[it] !== "");
    const rounded = (it) => (typeof it === "number" ? Math.round(it) : it);
    const hash = new URLSearchParams(parts.map((it) => [it, rounded(state[it])])).toString();
    history.replaceState(null, "", `#${hash}`);
  }, 150);
}
