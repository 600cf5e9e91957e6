/** What of the map is seen: dragged, pinched, zoomed by the wheel, by buttons and by keys; never lost from sight. */

const CLOSEST = 60;
const FARTHEST = 0.8;
const STEP = 1.6;
const CLICK_PX = 5;
const FILLED = 0.88;
const LEAST_SIDE = 0.05;

export class Camera {
  /** `onMove` is told of every change, `onHover` and `onClick` of places in pixels of the canvas. */
  constructor(canvas, { onMove, onHover, onClick }) {
    Object.assign(this, { canvas, onMove, onHover, onClick });
    this.zoom = 1;
    this.all = { middle: [0.5, 0.5], width: 1, height: 1 };
    this.middle = this.all.middle;
    this.pointers = new Map();
    this.#listen();
  }

  /** The factor and the offsets that turn a place on the map into one of the canvas, in its own pixels. */
  get view() {
    const scale = this.scale * this.zoom;
    return {
      scale,
      ratio: this.ratio,
      left: Math.round(this.width / 2 - this.middle[0] * scale),
      top: Math.round(this.height / 2 - this.middle[1] * scale),
    };
  }

  resize(width, height, ratio) {
    Object.assign(this, { width, height, ratio });
    this.scale = FILLED * Math.min(width / this.all.width, height / this.all.height);
  }

  /** All that can be seen, which zoom 1 fills the canvas with. */
  hold(x, y) {
    const [left, right, top, bottom] = [...ends(x), ...ends(y)];
    const isUnmoved = this.zoom === 1 && this.middle === this.all.middle;
    this.all = { middle: [(left + right) / 2, (top + bottom) / 2], width: Math.max(right - left, LEAST_SIDE), height: Math.max(bottom - top, LEAST_SIDE) };
    if (isUnmoved) this.middle = this.all.middle;
  }

  placeOf(px, py) {
    const view = this.view;
    return [(px * this.ratio - view.left) / view.scale, (py * this.ratio - view.top) / view.scale];
  }

  zoomBy(factor, at = [this.width / this.ratio / 2, this.height / this.ratio / 2]) {
    const before = this.placeOf(...at);
    this.zoom = Math.max(FARTHEST, Math.min(CLOSEST, this.zoom * factor));
    const after = this.placeOf(...at);
    this.#moveTo([this.middle[0] + before[0] - after[0], this.middle[1] + before[1] - after[1]]);
  }

  isAtEnd(way) {
    return way === "in" ? this.zoom >= CLOSEST : this.zoom <= FARTHEST;
  }

  step(way) {
    if (way === "all") this.go(this.all.middle, 1);
    else this.zoomBy(way === "in" ? STEP : 1 / STEP);
  }

  go(middle, zoom = this.zoom) {
    this.zoom = zoom;
    this.#moveTo(middle);
  }

  /** Moves only if the place is out of sight. */
  show(x, y) {
    const view = this.view;
    const [px, py] = [x * view.scale + view.left, y * view.scale + view.top];
    const [mx, my] = [this.width * 0.12, this.height * 0.12];
    if (px < mx || py < my || px > this.width - mx || py > this.height - my) this.go([x, y]);
  }

  #moveTo([x, y]) {
    this.middle = [Math.max(0, Math.min(1, x)), Math.max(0, Math.min(1, y))];
    this.onMove();
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.#up(event));
    canvas.addEventListener("pointerleave", () => this.pointers.size || this.onHover(null));
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
  }

  #down(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.travelled = this.pointers.size > 1 ? Infinity : 0;
  }

  #move(event) {
    const at = [event.offsetX, event.offsetY];
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.onHover(event.pointerType === "mouse" ? at : null);
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    this.pointers.set(event.pointerId, at);
    const moved = [at[0] - before[0], at[1] - before[1]];
    this.travelled += Math.hypot(...moved);
    if (others.length) return this.#pinch(before, at, others[0]);
    if (this.travelled > CLICK_PX) {
      this.canvas.classList.add("moving");
      this.onHover(null);
      const scale = this.view.scale / this.ratio;
      this.#moveTo([this.middle[0] - moved[0] / scale, this.middle[1] - moved[1] / scale]);
    }
  }

  #pinch(before, at, other) {
    const middle = [(at[0] + other[0]) / 2, (at[1] + other[1]) / 2];
    this.zoomBy(Math.hypot(at[0] - other[0], at[1] - other[1]) / Math.max(1, Math.hypot(before[0] - other[0], before[1] - other[1])), middle);
  }

  #up(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    this.canvas.classList.remove("moving");
    if (event.type === "pointerup" && this.travelled <= CLICK_PX) this.onClick([event.offsetX, event.offsetY]);
  }

  /** The page scrolls as ever until somebody is at the map. */
  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 20 : 1;
    this.zoomBy(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.008 : 0.0022)), [event.offsetX, event.offsetY]);
  }
}

function ends(numbers) {
  let [least, most] = [Infinity, -Infinity];
  for (const each of numbers) [least, most] = [Math.min(least, each), Math.max(most, each)];
  return [least, most];
}
