// Asks the server; or, in a page that is a single file, the recording in it (`store.js`).

import { Store } from "./store.js";
import { packedIn } from "./unpack.js";

export const isOneFile = document.getElementById("answers") !== null;

let carried = null;
const stores = new Map();

async function answers() {
  carried ||= packedIn("answers").then((bytes) => JSON.parse(new TextDecoder().decode(bytes)));
  return carried;
}

function storeOf(r) {
  if (!stores.has(r)) stores.set(r, Store.open(r, answers()));
  return stores.get(r);
}

function pathOf(name, params) {
  const query = new URLSearchParams(params).toString();
  return query ? `api/${name}?${query}` : `api/${name}`;
}

const GONE = "the server does not answer: is `plimsoll view` still running?";
let isLost = false;

// Calls the listeners when the server goes away or comes back.
function mark(lost) {
  if (lost === isLost) return;
  isLost = lost;
  document.dispatchEvent(new CustomEvent("server", { detail: lost ? GONE : "" }));
}

async function fetched(path) {
  let response;
  try {
    response = await fetch(path);
  } catch {
    mark(true);
    throw new Error(GONE);
  }
  mark(false);
  if (!response.ok) throw new Error((await response.json()).error || `the server answered ${response.status}`);
  return response;
}

export async function ask(name, params = {}) {
  const path = pathOf(name, params);
  if (!isOneFile) return (await fetched(path)).json();
  const all = await answers();
  if (path in all) return all[path];
  const store = params.r === undefined ? null : await storeOf(Number(params.r));
  if (!store || !store.can(name)) throw new Error("this page is a single file and does not contain that; open the recording with `plimsoll view`");
  const other = params.other === undefined ? null : await storeOf(Number(params.other));
  return store.answer(name, params, other);
}

export async function askWindow(params) {
  if (isOneFile) return { ...(await storeOf(Number(params.r))).window(params), ...params };
  const response = await fetched(pathOf("window", params));
  return { ...unpackWindow(await response.arrayBuffer()), ...params };
}

function unpackWindow(buffer) {
  const [, n, k, groups, lives, summed, between] = new Uint32Array(buffer, 0, 8);
  let at = 32;
  const take = (Type, length) => {
    const res = new Type(buffer, at, length);
    at += length * Type.BYTES_PER_ELEMENT;
    return res;
  };
  return {
    n, k, groups, lives, summed, between,
    allocated: take(Float64Array, n),
    lowest: take(Float64Array, n),
    reserved: take(Float64Array, n),
    micros: take(Float64Array, n),
    rest: take(Float64Array, n * groups),
    sizes: take(Float64Array, k),
    positions: take(Uint32Array, n),
    lives_of: take(Uint32Array, k),
    firsts: take(Uint32Array, k),
    ends: take(Uint32Array, k),
    group_of: take(Uint8Array, k),
  };
}
