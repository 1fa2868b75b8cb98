// Asks the server; or, in a page that was written as one file, what it carries.

const carried = (() => {
  const node = document.getElementById("answers");
  return node ? JSON.parse(node.textContent) : null;
})();

export const isOneFile = carried !== null;

function pathOf(name, params) {
  const query = new URLSearchParams(params).toString();
  return query ? `api/${name}?${query}` : `api/${name}`;
}

export async function ask(name, params = {}) {
  const path = pathOf(name, params);
  if (isOneFile) {
    if (path in carried) return carried[path];
    throw new Error("this page was written as one file and does not carry that; open the recording with `plimsoll view`");
  }
  let response;
  try {
    response = await fetch(path);
  } catch {
    throw new Error("the server does not answer: is `plimsoll view` still running?");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || `the server said ${response.status}`);
  return answer;
}

// The moments that a page in one file carries.
export function carriedMoments(r) {
  if (!isOneFile) return null;
  const start = `api/moment?r=${r}&position=`;
  return Object.keys(carried).filter((it) => it.startsWith(start)).map((it) => Number(it.slice(start.length))).sort((a, b) => a - b);
}

export async function askWindow(params) {
  if (!isOneFile) {
    let response;
    try {
      response = await fetch(pathOf("window", params));
    } catch {
      throw new Error("the server does not answer: is `plimsoll view` still running?");
    }
    if (!response.ok) throw new Error((await response.json()).error);
    return { ...unpackWindow(await response.arrayBuffer()), ...params };
  }
  const start = `api/window?r=${params.r}&axis=${params.axis}&`;
  const path = Object.keys(carried).find((it) => it.startsWith(start) && it.endsWith(`&by=${params.by}`));
  if (!path) throw new Error("this page does not carry that");
  const bytes = Uint8Array.from(atob(carried[path]), (it) => it.charCodeAt(0));
  const held = Object.fromEntries(new URLSearchParams(path.split("?")[1]));
  const [from, to] = [Number(held.from), Number(held.to)];
  return { ...unpackWindow(bytes.buffer), ...params, from, to, least: 0, final: true };
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
