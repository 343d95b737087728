/**
 * The convex area that places span, as `panda_mdp.space.area` has it. A place outside is the nearest
 * point of it, so that there is always a report: silence would tell who is outside. It lies in the
 * gnomonic plane at its middle, where great circles are straight lines.
 */

import { FormatError } from "./errors";
import { EARTH_RADIUS_KM, Haversine } from "./metric";

export type Point = readonly [number, number];
export type Triple = readonly [number, number, number];
export interface Place {
  readonly lat: number;
  readonly lon: number;
}

const RADIANS = Math.PI / 180;
const CELLS = 128;
/** Least height above the horizon; what lies below is seen in its direction, far away. */
const HORIZON = 1e-3;

/** A place as a point of the unit sphere. */
function onSphere(lat: number, lon: number): Triple {
  const [phi, lam] = [lat * RADIANS, lon * RADIANS];
  return [Math.cos(phi) * Math.cos(lam), Math.cos(phi) * Math.sin(lam), Math.sin(phi)];
}

/** Unit vectors at a middle: up, east and north. */
export function frameAt([lat, lon]: Point): readonly [Triple, Triple, Triple] {
  const up = onSphere(lat, lon);
  const east: Triple = [-Math.sin(lon * RADIANS), Math.cos(lon * RADIANS), 0];
  const north: Triple = [
    up[1] * east[2] - up[2] * east[1], up[2] * east[0] - up[0] * east[2], up[0] * east[1] - up[1] * east[0],
  ];
  return [up, east, north];
}

/** Height, east and north of a place in a frame. */
export function seen(frame: readonly Triple[], lat: number, lon: number): Triple {
  const at = onSphere(lat, lon);
  const [height, x, y] = frame.map((axis) => axis[0] * at[0] + axis[1] * at[1] + axis[2] * at[2]);
  return [height, x, y];
}

/** Corners of the convex hull, counterclockwise (Andrew's chain). */
function hullOf(points: readonly Point[]): Point[] {
  const ordered = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const chain = (list: readonly Point[]) => {
    const half: Point[] = [];
    for (const at of list) {
      for (let [a, b] = half.slice(-2); half.length > 1; [a, b] = half.slice(-2)) {
        if ((b[0] - a[0]) * (at[1] - a[1]) > (b[1] - a[1]) * (at[0] - a[0])) break;
        half.pop();
      }
      half.push(at);
    }
    return half.slice(0, -1);
  };
  return [...chain(ordered), ...chain(ordered.reverse())];
}

export class Area {
  private readonly frame: readonly [Triple, Triple, Triple];

  constructor(middle: Point, readonly corners: readonly Point[]) {
    this.frame = frameAt(middle);
  }

  static around({ lat, lon }: Haversine): Area {
    const mean = [0, 0, 0];
    lat.forEach((degree, k) => onSphere(degree, lon[k]).forEach((value, axis) => {
      mean[axis] += value / lat.length;
    }));
    const middle: Point = [
      Math.atan2(mean[2], Math.hypot(mean[0], mean[1])) / RADIANS, Math.atan2(mean[1], mean[0]) / RADIANS,
    ];
    const area = new Area(middle, []);
    return new Area(middle, hullOf(area.plane(lat, lon)));
  }

  private plane(lat: ArrayLike<number>, lon: ArrayLike<number>): Point[] {
    return Array.from(lat, (degree, k): Point => {
      const [height, x, y] = seen(this.frame, degree, lon[k]);
      if (height <= 0.5) throw new FormatError("damaged", "the places reach half round the earth");
      return [(EARTH_RADIUS_KM * x) / height, (EARTH_RADIUS_KM * y) / height];
    });
  }

  private get sides(): { at: Point; step: Point }[] {
    return this.corners.map((at, k) => {
      const next = this.corners[(k + 1) % this.corners.length];
      return { at, step: [next[0] - at[0], next[1] - at[1]] };
    });
  }

  /** Its size in square km. */
  get size(): number {
    return this.sides.reduce((sum, { at, step }) => sum + (at[0] * step[1] - at[1] * step[0]) / 2, 0);
  }

  /** The point of the area nearest to a place; the place itself inside. */
  clamp(place: Place): Place {
    const [height, x, y] = seen(this.frame, place.lat, place.lon);
    const scale = EARTH_RADIUS_KM / Math.max(height, HORIZON);
    const to: Point = [x * scale, y * scale];
    const inside = this.corners.length > 2 && this.sides.every(({ at, step }) =>
      step[0] * (to[1] - at[1]) >= step[1] * (to[0] - at[0]));
    if (inside) return place;
    let [best, found]: [number, Point] = [Infinity, to];
    for (const { at, step } of this.sides) {
      const along = ((to[0] - at[0]) * step[0] + (to[1] - at[1]) * step[1]) / Math.max(step[0] ** 2 + step[1] ** 2, 1e-300);
      const t = Math.min(1, Math.max(0, along));
      const point: Point = [at[0] + t * step[0], at[1] + t * step[1]];
      const apart = Math.hypot(to[0] - point[0], to[1] - point[1]);
      if (apart < best) [best, found] = [apart, point];
    }
    const [up, east, north] = this.frame;
    const [a, b, c] = up.map((value, k) => value + (found[0] * east[k] + found[1] * north[k]) / EARTH_RADIUS_KM);
    return { lat: Math.atan2(c, Math.hypot(a, b)) / RADIANS, lon: Math.atan2(b, a) / RADIANS };
  }

  /** How far a point of the area is from the nearest place at most, in km, from above: places and
   * points are taken for the cells of a grid. */
  hole({ lat, lon }: Haversine): number {
    const bounds = [0, 1].map((axis) => {
      const values = this.corners.map((corner) => corner[axis]);
      return [Math.min(...values), Math.max(...values)];
    });
    const [[left, right], [low, high]] = bounds;
    const side = Math.max(right - left, high - low, 1e-7) / CELLS;
    const taken = new Set(this.plane(lat, lon).map(([x, y]) =>
      `${Math.floor((x - left) / side)},${Math.floor((y - low) / side)}`));
    const cells = [...taken].map((text) => text.split(",").map(Number));
    let most = 0;
    for (let i = 0; i <= Math.floor((right - left) / side); i++) {
      for (let j = 0; j <= Math.floor((high - low) / side); j++) {
        const [x, y] = [left + side * (i + 0.5), low + side * (j + 0.5)];
        const beyond = this.sides.some(({ at, step }) =>
          step[1] * (x - at[0]) - step[0] * (y - at[1]) > side * Math.hypot(step[0], step[1]));
        if (beyond || taken.has(`${i},${j}`)) continue;
        let least = Infinity;
        for (const [a, b] of cells) least = Math.min(least, (a - i) ** 2 + (b - j) ** 2);
        most = Math.max(most, least);
      }
    }
    return side * (Math.sqrt(most) + Math.SQRT2);
  }
}
