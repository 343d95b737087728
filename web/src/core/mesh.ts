/**
 * A mesh of equilateral triangles over an area, and what a table over it promises at every point
 * (docs/everywhere.md). A point draws a vertex of its triangle with its barycentric weight, a whole
 * number of 2^-30. The plane is the gnomonic projection at the area's middle, where great circles
 * are straight lines.
 */

import { HALF, type Weights } from "./audit";
import { FormatError } from "./errors";
import { Area, frameAt, type Point, seen, type Triple } from "./area";
import { EARTH_RADIUS_KM, Haversine } from "./metric";

const WEIGHT_BITS = 30n;
const UNITS = 2 ** 30;
const FARTHEST = 0.1;
/** Spacings by which the mesh reaches beyond its area. */
const COVERED = 1e-6;
const AGREEMENT_KM = 1e-8;
const ROUNDING = 32 * 2 ** -53;
const MOST_CELLS = 16_000_000;
const RISE = Math.sqrt(0.75);

const LOWER: readonly Point[] = [[0, 0], [1, 0], [0, 1]];
const UPPER: readonly Point[] = [[1, 1], [0, 1], [1, 0]];

export interface Located {
  readonly vertices: Triple;
  /** Whole numbers that sum to 2^30. */
  readonly weights: Triple;
}

/** A point of the lattice in the plane, in spacings. */
function slanted([u, v]: Point): Point {
  return [u + v / 2, v * RISE];
}

export class Mesh {
  private readonly numbers = new Map<string, number>();
  private readonly frame: readonly [Triple, Triple, Triple];

  /** Refuses a mesh that does not cover its area, or whose vertices are not the places. */
  constructor(
    readonly middle: Point, readonly spacing: number, readonly vertices: readonly Point[],
    /** Corners of a convex polygon, counterclockwise, in lattice coordinates. */
    readonly area: readonly Point[], readonly places: Haversine,
  ) {
    this.frame = frameAt(middle);
    vertices.forEach(([i, j], k) => this.numbers.set(`${i},${j}`, k));
    const right = spacing > 0 && Number.isFinite(spacing) && Math.abs(middle[0]) <= 90
      && this.numbers.size === vertices.length && vertices.length === places.size
      && convex(area) && this.agrees() && this.coversArea();
    if (!right) throw new FormatError("damaged", "the mesh does not cover its area");
  }

  /** How far a point may be from the one that stands for it, in km. */
  get resolution(): number {
    return this.spacing / UNITS + 1e-10;
  }

  /** The area that is covered. */
  get outline(): Area {
    return new Area(this.middle, this.area.map((corner) => {
      const [x, y] = slanted(corner);
      return [this.spacing * x, this.spacing * y];
    }));
  }

  private plane(k: number): Point {
    const [x, y] = slanted(this.vertices[k]);
    return [this.spacing * x, this.spacing * y];
  }

  /** A place in the plane, km; null on the far side of the earth. */
  private project(lat: number, lon: number): Point | null {
    const [height, x, y] = seen(this.frame, lat, lon);
    return height > 0.5 ? [(EARTH_RADIUS_KM * x) / height, (EARTH_RADIUS_KM * y) / height] : null;
  }

  /** Whether the table's places are the vertices, and none is too far from the middle. */
  private agrees(): boolean {
    return this.vertices.every((_, k) => {
      const [x, y] = this.plane(k);
      const at = this.project(this.places.lat[k], this.places.lon[k]);
      return at !== null && Math.hypot(at[0] - x, at[1] - y) <= AGREEMENT_KM
        && Math.hypot(x, y) <= FARTHEST * EARTH_RADIUS_KM;
    });
  }

  /** Whether every triangle of the lattice that comes near the area is here. */
  private coversArea(): boolean {
    const corners = this.area.map(slanted);
    const sides = corners.map((corner, k): Point => {
      const next = corners[(k + 1) % corners.length];
      return [next[0] - corner[0], next[1] - corner[1]];
    });
    // Convex polygons that do not touch are separated along a side of one of them.
    const axes = [...sides, [1, 0] as const, [0.5, RISE] as const, [-0.5, RISE] as const].map(([x, y]): Point => {
      const length = Math.hypot(x, y);
      return [y / length, -x / length];
    });
    const shadow = (points: readonly Point[], [x, y]: Point): Point => {
      const at = points.map((point) => point[0] * x + point[1] * y);
      return [Math.min(...at), Math.max(...at)];
    };
    const shadows = axes.map((axis) => shadow(corners, axis));
    const bounds = [0, 1].map((axis) => {
      const values = this.area.map((corner) => corner[axis]);
      return [Math.floor(Math.min(...values) - 2), Math.ceil(Math.max(...values) + 2)];
    });
    const cells = bounds.reduce((product, [low, high]) => product * (high - low), 1);
    if (cells > MOST_CELLS) throw new FormatError("tooLarge");
    for (let i = bounds[0][0]; i < bounds[0][1]; i++) {
      for (let j = bounds[1][0]; j < bounds[1][1]; j++) {
        for (const steps of [LOWER, UPPER]) {
          if (this.cornersOf(i, j, steps) !== null) continue;
          const triangle = steps.map(([a, b]) => slanted([i + a, j + b]));
          const apart = axes.some((axis, k) => {
            const [low, high] = shadow(triangle, axis);
            return Math.max(low - shadows[k][1], shadows[k][0] - high) > COVERED;
          });
          if (!apart) return false;
        }
      }
    }
    return true;
  }

  private cornersOf(i: number, j: number, steps: readonly Point[]): Triple | null {
    const found = steps.map(([a, b]) => this.numbers.get(`${i + a},${j + b}`) ?? -1);
    return found.includes(-1) ? null : [found[0], found[1], found[2]];
  }

  /** The triangle of a place and its weights, or null outside the area. */
  locate(lat: number, lon: number): Located | null {
    const at = this.project(lat, lon);
    if (!at) return null;
    const v = at[1] / (this.spacing * RISE);
    const u = at[0] / this.spacing - v / 2;
    if (this.beyond([u, v]) > COVERED / 2) return null;
    const [p, q] = [Math.round(u * UNITS), Math.round(v * UNITS)];
    const [i, j] = [Math.floor(p / UNITS), Math.floor(q / UNITS)];
    const [a, b] = [p - i * UNITS, q - j * UNITS];
    const upper = a + b > UNITS;
    const vertices = this.cornersOf(i, j, upper ? UPPER : LOWER);
    if (!vertices) return null;
    return { vertices, weights: upper ? [a + b - UNITS, UNITS - a, UNITS - b] : [UNITS - a - b, a, b] };
  }

  /** How far a point lies beyond a side of the area at most, in spacings. */
  private beyond(point: Point): number {
    const [x, y] = slanted(point);
    const corners = this.area.map(slanted);
    return corners.reduce((most, [cx, cy], k) => {
      const [nx, ny] = corners[(k + 1) % corners.length];
      const [dx, dy] = [nx - cx, ny - cy];
      return Math.max(most, (dy * (x - cx) - dx * (y - cy)) / Math.hypot(dx, dy));
    }, -Infinity);
  }

  /** How private weights of the vertices are over all pairs of points, per km: |g| / min z. */
  rate(weights: Weights): { epsilon: number; triangles: number } {
    const { low, high, outputs: m } = weights;
    let [worst, triangles] = [0, 0];
    for (const [i, j] of this.vertices) {
      for (const corners of [this.cornersOf(i, j, LOWER), this.cornersOf(i - 1, j, UPPER)]) {
        if (!corners) continue;
        triangles++;
        const tangents = corners.map((k) => Math.hypot(...this.plane(k)) / EARTH_RADIUS_KM);
        const stretch = (1 + Math.max(...tangents) ** 2) * (1 + 8 * 2 ** -53);
        const [a, b, c] = corners.map((k) => k * m);
        for (let y = 0; y < m; y++) {
          const gap = (p: number, q: number) => (high[p + y] - high[q + y]) * HALF + (low[p + y] - low[q + y]);
          const squares = gap(a, b) ** 2 + gap(b, c) ** 2 + gap(c, a) ** 2;
          if (squares === 0) continue;
          const least = Math.min(...[a, b, c].map((p) => high[p + y] * HALF + low[p + y]));
          const rate = (Math.sqrt((2 / 3) * squares) / this.spacing / least) * stretch * (1 + ROUNDING);
          worst = Math.max(worst, rate);
        }
      }
    }
    return { epsilon: worst, triangles };
  }
}

/** The vertex that 30 of 62 random bits select. */
export function vertexOf({ vertices, weights }: Located, word: bigint): number {
  const uniform = Number((word & ((1n << 62n) - 1n)) >> (62n - WEIGHT_BITS));
  return vertices[Number(uniform >= weights[0]) + Number(uniform >= weights[0] + weights[1])];
}

/** Whether corners make a convex polygon, counterclockwise and once around. */
function convex(area: readonly Point[]): boolean {
  if (area.length < 3 || area.some(([u, v]) => !(Number.isFinite(u) && Number.isFinite(v)))) return false;
  let turned = 0;
  return area.every((at, k) => {
    const before = area[(k + area.length - 1) % area.length];
    const after = area[(k + 1) % area.length];
    const [x, y] = [at[0] - before[0], at[1] - before[1]];
    const [x2, y2] = [after[0] - at[0], after[1] - at[1]];
    turned += Math.atan2(x * y2 - y * x2, x * x2 + y * y2);
    return x * y2 - y * x2 > 0;
  }) && Math.abs(turned - 2 * Math.PI) < 1e-6;
}
