/** The road network, in cells, so that a close look draws only what is near. */

import type { Streets } from "../core/api";
import type { Plane } from "./plane";

const CELLS = 40;

export interface View {
  /** The place in the middle, metres. */
  x: number;
  y: number;
  /** Pixels per metre. */
  scale: number;
}

export class StreetLayer {
  private readonly xy: Float32Array;
  private readonly cells: Uint32Array[] = [];
  private readonly box = [Infinity, Infinity, -Infinity, -Infinity];
  private readonly u: readonly number[];
  private readonly v: readonly number[];

  constructor(streets: Streets, plane: Plane) {
    this.xy = plane.points(streets.lat, streets.lon, 1e-6);
    this.u = streets.u;
    this.v = streets.v;
    const { xy, box } = this;
    for (let k = 0; k < xy.length; k += 2) {
      box[0] = Math.min(box[0], xy[k]);
      box[1] = Math.min(box[1], xy[k + 1]);
      box[2] = Math.max(box[2], xy[k]);
      box[3] = Math.max(box[3], xy[k + 1]);
    }
    const lists: number[][] = Array.from({ length: CELLS * CELLS }, () => []);
    for (let k = 0; k < this.u.length; k++) {
      const [a, b] = [2 * this.u[k], 2 * this.v[k]];
      const column = this.cell((xy[a] + xy[b]) / 2, 0);
      const row = this.cell((xy[a + 1] + xy[b + 1]) / 2, 1);
      lists[row * CELLS + column].push(k);
    }
    this.cells = lists.map((list) => Uint32Array.from(list));
  }

  private cell(value: number, axis: 0 | 1): number {
    const share = (value - this.box[axis]) / (this.box[axis + 2] - this.box[axis] || 1);
    return Math.min(CELLS - 1, Math.max(0, Math.floor(share * CELLS)));
  }

  /** Draw the streets of a view onto a canvas of w x h pixels. */
  paint(pen: CanvasRenderingContext2D, view: View, w: number, h: number, ink: Ink): void {
    const left = view.x - w / 2 / view.scale;
    const right = view.x + w / 2 / view.scale;
    const low = view.y - h / 2 / view.scale;
    const high = view.y + h / 2 / view.scale;
    const { xy, u, v } = this;
    const path = new Path2D();
    // A street belongs to the cell of its middle; one cell more on each side catches long ones.
    const [c0, c1] = [Math.max(0, this.cell(left, 0) - 1), Math.min(CELLS - 1, this.cell(right, 0) + 1)];
    const [r0, r1] = [Math.max(0, this.cell(low, 1) - 1), Math.min(CELLS - 1, this.cell(high, 1) + 1)];
    for (let row = r0; row <= r1; row++) {
      for (let column = c0; column <= c1; column++) {
        for (const k of this.cells[row * CELLS + column]) {
          const [a, b] = [2 * u[k], 2 * v[k]];
          path.moveTo(w / 2 + (xy[a] - view.x) * view.scale, h / 2 - (xy[a + 1] - view.y) * view.scale);
          path.lineTo(w / 2 + (xy[b] - view.x) * view.scale, h / 2 - (xy[b + 1] - view.y) * view.scale);
        }
      }
    }
    pen.lineCap = "round";
    pen.lineJoin = "round";
    const wide = Math.min(16, 9 * view.scale);
    if (wide > 2.4) {
      pen.strokeStyle = ink.casing;
      pen.lineWidth = wide + 1.6;
      pen.stroke(path);
      pen.strokeStyle = ink.road;
      pen.lineWidth = wide;
      pen.stroke(path);
    } else {
      pen.strokeStyle = ink.street;
      pen.lineWidth = Math.min(1.7, Math.max(0.55, 11 * view.scale));
      pen.stroke(path);
    }
  }
}

export interface Ink {
  readonly street: string;
  readonly road: string;
  readonly casing: string;
}
