// The whole recording in small, with the part that is shown; a drag moves it.

import { askWindow } from "./api.js";
import { el, fit } from "./dom.js";
import { inkOf } from "./palette.js";
import { state } from "./state.js";
import { duration, number } from "./words.js";

const HEIGHT = 46;

export class Strip {
  constructor(scale) {
    this.scale = scale;
    this.node = el("canvas", { class: "strip", role: "slider", tabIndex: 0, "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "The part of the recording that is shown", title: "The whole recording; drag to move the window" });
    this.whole = null;
    this.listen();
  }

  close() {
    this.isClosed = true;
  }

  listen() {
    let brush = false;
    const seek = (event) => {
      const { scale } = this;
      const box = this.node.getBoundingClientRect();
      const middle = ((event.clientX - box.left) / box.width) * scale.end;
      const half = (scale.to - scale.from) / 2;
      scale.show(middle - half, middle + half);
    };
    this.node.addEventListener("pointerdown", (event) => { this.node.setPointerCapture(event.pointerId); brush = true; seek(event); });
    this.node.addEventListener("pointermove", (event) => { if (brush) seek(event); });
    this.node.addEventListener("pointerup", () => { brush = false; });
  }

  async draw() {
    const { scale, node } = this;
    const { width } = scale.area;
    const ratio = fit(node, width, HEIGHT);
    node.style.marginLeft = `${scale.left}px`;
    if (!this.whole || this.whole.axis !== state.axis) {
      if (this.isAsking) return;
      this.isAsking = true;
      try {
        this.whole = await askWindow({ r: state.r, axis: state.axis, from: 0, to: scale.end, columns: 800, least: 2 ** 60, by: "category" });
      } catch {
        return;
      } finally {
        this.isAsking = false;
      }
      if (this.isClosed) return;
    }
    const { whole } = this;
    const c = node.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, HEIGHT);
    if (!this.shape || this.shape.of !== whole) this.shape = { of: whole, path: shapeOf(whole) };
    c.save();
    c.translate(0, 6);
    c.scale(width, HEIGHT - 6);
    c.fillStyle = inkOf("strip");
    c.fill(this.shape.path);
    c.restore();
    const [x0, x1] = [(scale.from / scale.end) * width, (scale.to / scale.end) * width];
    c.fillStyle = inkOf("veil");
    c.fillRect(0, 0, x0, HEIGHT);
    c.fillRect(x1, 0, width - x1, HEIGHT);
    c.strokeStyle = inkOf("accent");
    c.lineWidth = 1.5;
    c.strokeRect(x0 + 0.75, 0.75, Math.max(3, x1 - x0 - 1.5), HEIGHT - 1.5);
    const words = state.axis === "time" ? duration : (it) => number(Math.round(it));
    node.setAttribute("aria-valuenow", Math.round((100 * scale.from) / scale.end));
    node.setAttribute("aria-valuetext", `${state.axis} ${words(scale.from)} to ${words(scale.to)} of ${words(scale.end)}`);
  }
}

function shapeOf(whole) {
  const most = whole.allocated.reduce((a, b) => Math.max(a, b), 1);
  const path = new Path2D();
  path.moveTo(0, 1);
  for (let i = 0; i < whole.n; i++) {
    const y = 1 - whole.allocated[i] / most;
    path.lineTo(i / whole.n, y);
    path.lineTo((i + 1) / whole.n, y);
  }
  path.lineTo(1, 1);
  return path;
}
