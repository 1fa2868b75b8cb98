// Elements from data. Strings become text, never markup.

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else if (key === "class") node.className = value;
    else if (key in node && typeof node[key] !== "function" && !key.includes("-")) node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  put(node, children);
  return node;
}

export function put(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

// What stands between backticks is code.
export function prose(text) {
  return text.split("\u0060").map((part, index) => (index % 2 ? el("code", {}, part) : part));
}

// A table whose rows become stacks of "heading: value" on a narrow screen: each cell carries the heading of its column.
export function stacks(table) {
  const headings = [...table.querySelectorAll("thead th")].map((it) => it.textContent);
  const name = () => {
    for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, at) => { if (headings[at]) cell.dataset.heading = headings[at]; });
  };
  name();
  new MutationObserver(name).observe(table.tBodies[0], { childList: true });
  table.classList.add("stacks");
  return table;
}

// Who works by keys keeps the place: what had the focus has it again if it is there under the same name.
export function refill(node, ...children) {
  const old = document.activeElement;
  const name = old && old !== node && node.contains(old) ? signature(old) : null;
  node.replaceChildren();
  put(node, children);
  if (name === null) return;
  const found = [...node.querySelectorAll("button, input, select, canvas, [tabindex]")].find((it) => signature(it) === name);
  if (found) found.focus({ preventScroll: true });
  else byId("main").focus({ preventScroll: true });
}

function signature(node) {
  const name = node.getAttribute("aria-label") || node.title || node.name || (node.tagName === "BUTTON" ? node.textContent : node.className);
  return `${node.tagName}:${name}:${node.type === "radio" ? node.value : ""}`;
}

export function byId(id) {
  return document.getElementById(id);
}

// A canvas as large as its box, in the screen's own pixels.
export function fit(canvas, width, height) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  return ratio;
}

const tip = () => byId("tip");

export function showTip(x, y, ...content) {
  const node = tip();
  refill(node, ...content);
  node.hidden = false;
  const box = node.getBoundingClientRect();
  const left = x + 16 + box.width < innerWidth ? x + 16 : Math.max(8, x - box.width - 16);
  const top = y + 16 + box.height < innerHeight ? y + 16 : Math.max(8, y - box.height - 16);
  node.style.left = `${left}px`;
  node.style.top = `${top}px`;
}

export function hideTip() {
  tip().hidden = true;
}

let bannerTimer = 0;

export function say(sentence, lasting = false) {
  const node = byId("banner");
  refill(node, prose(sentence));
  node.hidden = !sentence;
  clearTimeout(bannerTimer);
  if (sentence && !lasting) bannerTimer = setTimeout(() => { node.hidden = true; }, 6000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    say("The browser does not allow copying here; select the text instead.");
  }
}
