// What mouse, fingers and wheel do on the timeline, as moves of its scale.

const SLOP = 4;
// Two clicks within so many milliseconds are one.
const DOUBLE = 500;

// Returns what ends it. `view` has: scale, canvas, point(event), pick(event), reachPicked(), leave(), mark(box or null), boxed();
// and whether it is flipped, and hangs from the top.
export function listen(view) {
  const { canvas, scale } = view;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const down = (event.clientY - box.top) / box.height;
    return [(event.clientX - box.left) / box.width, view.isFlipped ? down : 1 - down];
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    view.leave();
    const by = event.deltaY || event.deltaX;
    const factor = Math.exp(Math.sign(by) * Math.min(60, Math.abs(by)) * 0.005);
    const [x, y] = at(event);
    if (event.ctrlKey || event.altKey || event.metaKey) scale.zoomBytes(factor, y);
    else if (event.shiftKey || Math.abs(event.deltaY) < Math.abs(event.deltaX)) scale.move((scale.to - scale.from) * 0.002 * by);
    else scale.zoom(factor, x);
  }, { passive: false });

  const fingers = new Map();
  let drag = null;
  let last = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at(event));
    drag = { start: at(event), client: [event.clientX, event.clientY], ...shown(scale), isBox: event.shiftKey || view.isBoxing, moved: 1 < fingers.size, pinch: 1 < fingers.size ? [...fingers.values()] : null };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) {
      view.point(event);
      return;
    }
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, at(event));
    if (drag.pinch && 1 < fingers.size) {
      pinch(scale, drag, [...fingers.values()]);
      return;
    }
    if (!drag.moved && Math.abs(event.clientX - drag.client[0]) < SLOP && Math.abs(event.clientY - drag.client[1]) < SLOP) {
      view.point(event);
      return;
    }
    drag.moved = true;
    view.leave();
    const [x, y] = at(event);
    if (drag.isBox) {
      view.mark([drag.start, [x, y]]);
      return;
    }
    const [dx, dy] = [drag.start[0] - x, drag.start[1] - y];
    scale.show(drag.from + dx * (drag.to - drag.from), drag.to + dx * (drag.to - drag.from));
    if (drag.isZoomed) scale.showBytes(drag.low + dy * (drag.high - drag.low), drag.high + dy * (drag.high - drag.low));
  });
  const end = (event) => {
    fingers.delete(event.pointerId);
    if (!drag) return;
    if (!drag.moved) {
      // The second click of two is of the same block, wherever that is by now.
      const isSecond = last && event.timeStamp - last.at < DOUBLE && near(event, last);
      last = isSecond ? last : { at: event.timeStamp, clientX: event.clientX, clientY: event.clientY };
      if (!isSecond) view.pick(event);
    }
    if (drag.moved && drag.isBox) {
      view.mark(null);
      const [a, b] = [drag.start, at(event)];
      const span = drag.to - drag.from;
      const bytes = drag.high - drag.low;
      const [x0, x1, y0, y1] = [Math.min(a[0], b[0]), Math.max(a[0], b[0]), Math.min(a[1], b[1]), Math.max(a[1], b[1])];
      if (0.003 < x1 - x0) scale.show(drag.from + span * x0, drag.from + span * x1);
      if (0.01 < y1 - y0) scale.showBytes(drag.low + bytes * y0, drag.low + bytes * y1);
      view.boxed();
    }
    drag = fingers.size ? { ...drag, moved: true, start: [...fingers.values()][0], ...shown(scale), pinch: null } : null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  // What a first click opens may lie under the second one.
  const twice = (event) => {
    if (last && near(event, last) && event.timeStamp - last.at < 2 * DOUBLE) view.reachPicked();
  };
  document.addEventListener("dblclick", twice);
  canvas.addEventListener("pointerleave", () => view.leave());
  return () => document.removeEventListener("dblclick", twice);
}

function near(a, b) {
  return Math.abs(a.clientX - b.clientX) < 2 * SLOP && Math.abs(a.clientY - b.clientY) < 2 * SLOP;
}

function shown(scale) {
  return { from: scale.from, to: scale.to, low: scale.low, high: scale.high, isZoomed: scale.high - scale.low < scale.most * 0.998 };
}

// Two fingers: what lies under each stays under it.
function pinch(scale, drag, now) {
  const [a, b] = drag.pinch;
  const [c, d] = now;
  const stretch = (first, second, left, right) => {
    const [old, wide] = [Math.max(0.05, Math.abs(second - first)), Math.max(0.05, Math.abs(right - left))];
    const factor = old / wide;
    const [middle, then] = [(first + second) / 2, (left + right) / 2];
    return [middle - then * factor, middle + (1 - then) * factor];
  };
  const [x0, x1] = stretch(a[0], b[0], c[0], d[0]);
  scale.show(drag.from + (drag.to - drag.from) * x0, drag.from + (drag.to - drag.from) * x1);
  if (0.12 < Math.abs(a[1] - b[1])) {
    const [y0, y1] = stretch(a[1], b[1], c[1], d[1]);
    scale.showBytes(drag.low + (drag.high - drag.low) * y0, drag.low + (drag.high - drag.low) * y1);
  }
}
