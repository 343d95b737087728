/**
 * A map on a canvas: streets below, whatever the page draws above; pan, zoom and pinch, and a
 * cursor for the keyboard. Nothing is fetched for it: there are no tiles.
 */

import { Plane } from "./plane";
import { type Ink, StreetLayer, type View } from "./streets";
import type { Streets } from "../core/api";

export interface MapOptions {
  /** Called with a place in degrees when one is pointed at. */
  readonly onPick?: (lat: number, lon: number) => void;
  /** Called when the keyboard's cursor rests. */
  readonly onCursor?: (lat: number, lon: number) => void;
  /** Called after the view changed by a gesture. */
  readonly onMove?: (view: View) => void;
}

export type Painter = (pen: CanvasRenderingContext2D, map: MapView) => void;

const MARGIN = 0.25;

export class MapView {
  readonly canvas: HTMLCanvasElement;
  plane = new Plane(0, 0);
  view: View = { x: 0, y: 0, scale: 1 };
  painter: Painter = () => undefined;
  /** The keyboard's cursor in pixels, while it is in use. */
  cursor: { x: number; y: number } | null = null;
  private readonly pen: CanvasRenderingContext2D;
  private readonly base = document.createElement("canvas");
  private baseView: (View & { w: number; h: number; ratio: number }) | null = null;
  private streets: StreetLayer | null = null;
  private box = [-1000, -1000, 1000, 1000];
  private queued = false;
  private settle = 0;
  private cost = 0;
  private fitted = true;

  constructor(private readonly host: HTMLElement, private readonly options: MapOptions = {}) {
    const canvas = host.querySelector("canvas");
    const pen = canvas?.getContext("2d");
    if (!canvas || !pen) throw new Error("the map needs a canvas");
    this.canvas = canvas;
    this.pen = pen;
    this.listen();
    new ResizeObserver(() => (this.fitted ? this.fit() : this.draw())).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
  }

  get width(): number {
    return this.host.clientWidth;
  }

  get height(): number {
    return this.host.clientHeight;
  }

  /** What the map is about: it is fitted to these places. */
  setPlaces(plane: Plane, xy: Float32Array): void {
    this.plane = plane;
    this.box = [Infinity, Infinity, -Infinity, -Infinity];
    for (let k = 0; k < xy.length; k += 2) {
      this.box[0] = Math.min(this.box[0], xy[k]);
      this.box[1] = Math.min(this.box[1], xy[k + 1]);
      this.box[2] = Math.max(this.box[2], xy[k]);
      this.box[3] = Math.max(this.box[3], xy[k + 1]);
    }
    this.fit();
  }

  setStreets(streets: Streets | null): void {
    this.streets = streets && new StreetLayer(streets, this.plane);
    this.refresh();
  }

  px(x: number): number {
    return this.width / 2 + (x - this.view.x) * this.view.scale;
  }

  py(y: number): number {
    return this.height / 2 - (y - this.view.y) * this.view.scale;
  }

  /** The place below a pixel. */
  place(x: number, y: number): { lat: number; lon: number } {
    const { view } = this;
    return {
      lat: this.plane.latOf(view.y - (y - this.height / 2) / view.scale),
      lon: this.plane.lonOf(view.x + (x - this.width / 2) / view.scale),
    };
  }

  colour(name: string): string {
    return getComputedStyle(this.host).getPropertyValue(`--${name}`).trim();
  }

  fit(): void {
    const [left, low, right, high] = this.box;
    this.view = {
      x: (left + right) / 2,
      y: (low + high) / 2,
      scale: 0.94 * Math.min(
        this.width / Math.max(1, right - left), this.height / Math.max(1, high - low),
      ),
    };
    this.fitted = true;
    this.draw();
    this.options.onMove?.(this.view);
  }

  /** Take over another map's view. */
  moveTo(view: View): void {
    this.view = { ...view };
    this.fitted = false;
    this.draw();
  }

  /** Show these places, metres, with room around them. */
  show(points: readonly (readonly [number, number])[], least = 900): void {
    const xs = points.map(([x]) => x);
    const ys = points.map(([, y]) => y);
    const wide = Math.max(least, Math.max(...xs) - Math.min(...xs));
    const high = Math.max(least, Math.max(...ys) - Math.min(...ys));
    this.fitted = false;
    this.glide({
      x: (Math.max(...xs) + Math.min(...xs)) / 2,
      y: (Math.max(...ys) + Math.min(...ys)) / 2,
      scale: 0.72 * Math.min(this.width / wide, this.height / high),
    });
  }

  /** Move so that a place, metres, is well inside the view; stay where it is already. */
  include(x: number, y: number): void {
    const [px, py] = [this.px(x), this.py(y)];
    const inside = px > 30 && py > 30 && px < this.width - 30 && py < this.height - 30;
    if (inside) return;
    this.fitted = false;
    this.glide({ ...this.view, x, y });
  }

  private glide(to: View): void {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.view = to;
      this.draw();
      return;
    }
    const from = { ...this.view };
    const began = performance.now();
    const step = (now: number) => {
      const t = Math.min(1, (now - began) / 420);
      const eased = t * t * (3 - 2 * t);
      const scale = from.scale * (to.scale / from.scale) ** eased;
      this.view = {
        x: from.x + (to.x - from.x) * eased, y: from.y + (to.y - from.y) * eased, scale,
      };
      this.draw();
      if (t < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  /** Draw again soon; streets too, where colours or data changed. */
  refresh(): void {
    this.baseView = null;
    this.draw();
  }

  draw(): void {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.paint();
    });
  }

  zoom(factor: number, x = this.width / 2, y = this.height / 2): void {
    const { view } = this;
    const wx = view.x + (x - this.width / 2) / view.scale;
    const wy = view.y - (y - this.height / 2) / view.scale;
    const scale = Math.min(6, Math.max(1e-4, view.scale * factor));
    this.view = {
      scale, x: wx - (x - this.width / 2) / scale, y: wy + (y - this.height / 2) / scale,
    };
    this.fitted = false;
    this.draw();
    this.options.onMove?.(this.view);
  }

  pan(dx: number, dy: number): void {
    this.view = {
      ...this.view, x: this.view.x - dx / this.view.scale, y: this.view.y + dy / this.view.scale,
    };
    this.fitted = false;
    this.draw();
    this.options.onMove?.(this.view);
  }

  private paint(): void {
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [this.width, this.height];
    if (w === 0 || h === 0) return;
    const { canvas, pen } = this;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = this.colour("ground");
    pen.fillRect(0, 0, w, h);
    if (this.streets) this.paintBase(w, h, ratio);
    this.painter(pen, this);
    this.paintScale(h);
    if (this.cursor) this.paintCursor(this.cursor.x, this.cursor.y);
  }

  /** Streets are drawn once on a larger canvas, which is then moved and stretched in a gesture. */
  private paintBase(w: number, h: number, ratio: number): void {
    const { view } = this;
    const old = this.baseView;
    const [bw, bh] = [w * (1 + 2 * MARGIN), h * (1 + 2 * MARGIN)];
    const fits = old !== null && old.w === w && old.h === h && old.ratio === ratio;
    const zoom = old ? view.scale / old.scale : 0;
    const dx = old ? (old.x - view.x) * view.scale : 0;
    const dy = old ? (view.y - old.y) * view.scale : 0;
    const inside = Math.abs(dx) <= MARGIN * w && Math.abs(dy) <= MARGIN * h;
    const exact = fits && zoom === 1 && inside;
    if (!exact) {
      clearTimeout(this.settle);
      const stretchable = fits && this.cost > 14 && zoom > 0.5 && zoom < 2.5;
      if (stretchable) {
        this.settle = window.setTimeout(() => this.refresh(), 140);
      } else {
        const began = performance.now();
        const pen = this.base.getContext("2d");
        this.base.width = Math.round(bw * ratio);
        this.base.height = Math.round(bh * ratio);
        if (!pen || !this.streets) return;
        pen.setTransform(ratio, 0, 0, ratio, 0, 0);
        const ink: Ink = {
          street: this.colour("street"), road: this.colour("road"), casing: this.colour("casing"),
        };
        this.streets.paint(pen, view, bw, bh, ink);
        this.baseView = { ...view, w, h, ratio };
        this.cost = performance.now() - began;
        this.pen.drawImage(this.base, -MARGIN * w, -MARGIN * h, bw, bh);
        return;
      }
    }
    const [sw, sh] = [bw * zoom, bh * zoom];
    this.pen.drawImage(this.base, w / 2 + dx - sw / 2, h / 2 + dy - sh / 2, sw, sh);
  }

  private paintScale(h: number): void {
    const { pen, view } = this;
    const target = 120 / view.scale;
    const power = 10 ** Math.floor(Math.log10(target));
    const length = [5, 2, 1].map((step) => step * power).find((value) => value <= target) ?? power;
    const [x, y] = [18, h - 18];
    const end = x + length * view.scale;
    pen.font = "600 12px system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
    pen.textAlign = "center";
    const label = length >= 1000 ? `${length / 1000} km` : `${length} m`;
    const line = () => {
      pen.beginPath();
      pen.moveTo(x, y - 5);
      pen.lineTo(x, y);
      pen.lineTo(end, y);
      pen.lineTo(end, y - 5);
      pen.stroke();
    };
    pen.lineJoin = "miter";
    pen.strokeStyle = this.colour("ground");
    pen.lineWidth = 5;
    line();
    pen.strokeText(label, (x + end) / 2, y - 9);
    pen.strokeStyle = pen.fillStyle = this.colour("pale");
    pen.lineWidth = 1.8;
    line();
    pen.fillText(label, (x + end) / 2, y - 9);
  }

  private paintCursor(x: number, y: number): void {
    const { pen } = this;
    for (const [colour, wide] of [[this.colour("ground"), 5], [this.colour("ink"), 2]] as const) {
      pen.strokeStyle = colour;
      pen.lineWidth = wide;
      pen.beginPath();
      pen.arc(x, y, 9, 0, 7);
      for (const [sx, sy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        pen.moveTo(x + 9 * sx, y + 9 * sy);
        pen.lineTo(x + 18 * sx, y + 18 * sy);
      }
      pen.stroke();
    }
  }

  private listen(): void {
    const { canvas } = this;
    const fingers = new Map<number, [number, number]>();
    let moved = 0;
    let spread = 0;
    const at = (event: MouseEvent): [number, number] => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      if (fingers.size === 0) moved = 0;
      fingers.set(event.pointerId, at(event));
      spread = 0;
      this.cursor = null;
    });
    canvas.addEventListener("pointermove", (event) => {
      const last = fingers.get(event.pointerId);
      if (!last) return;
      const now = at(event);
      fingers.set(event.pointerId, now);
      moved += Math.abs(now[0] - last[0]) + Math.abs(now[1] - last[1]);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()];
        const apart = Math.hypot(a[0] - b[0], a[1] - b[1]);
        this.pan((now[0] - last[0]) / 2, (now[1] - last[1]) / 2);
        if (spread) this.zoom(apart / spread, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
        spread = apart;
        moved += 10;
      } else if (moved > 4) {
        this.pan(now[0] - last[0], now[1] - last[1]);
      }
    });
    const lift = (event: PointerEvent) => {
      const single = fingers.size === 1;
      fingers.delete(event.pointerId);
      if (event.type === "pointerup" && single && moved <= 6) this.pick(...at(event));
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * 0.0015), ...at(event));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => {
      this.cursor = null;
      this.draw();
    });
  }

  private pick(x: number, y: number): void {
    const place = this.place(x, y);
    this.options.onPick?.(place.lat, place.lon);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? 60 : 12;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step],
    };
    const move = moves[event.key];
    if (move && !this.options.onPick) this.pan(-4 * move[0], -4 * move[1]);
    else if (move) this.moveCursor(...move);
    else if ((event.key === "Enter" || event.key === " ") && this.cursor) {
      this.pick(this.cursor.x, this.cursor.y);
    } else if (event.key === "+" || event.key === "=") this.zoomAtCursor(1.4);
    else if (event.key === "-") this.zoomAtCursor(1 / 1.4);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  private zoomAtCursor(factor: number): void {
    this.zoom(factor, this.cursor?.x, this.cursor?.y);
  }

  private moveCursor(dx: number, dy: number): void {
    const [w, h] = [this.width, this.height];
    const cursor = this.cursor ?? { x: w / 2, y: h / 2 };
    let [x, y] = [cursor.x + dx, cursor.y + dy];
    // At the edge the map moves instead.
    const edge = 40;
    const push = [
      Math.min(0, x - edge) + Math.max(0, x - (w - edge)),
      Math.min(0, y - edge) + Math.max(0, y - (h - edge)),
    ];
    if (push[0] || push[1]) this.pan(-push[0], -push[1]);
    x -= push[0];
    y -= push[1];
    this.cursor = { x, y };
    this.draw();
    const place = this.place(x, y);
    this.options.onCursor?.(place.lat, place.lon);
  }
}
