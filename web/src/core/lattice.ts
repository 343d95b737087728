/**
 * A ball's centre on a public lattice, by a law in closed form, and rows that fade at the edge: the
 * same steps as the library's (docs/panda.md has the proofs), on places that are projected onto the
 * plane that touches the earth in their middle, which lengthens no distance.
 */

import { rowOf, type Weights } from "./audit";
import { FormatError } from "./errors";
import type { Place, Point, Triple } from "./area";
import { EARTH_RADIUS_KM, type Haversine } from "./metric";

/** In units of the lattice's spacing, 1 / a. */
const ROUNDING = 1.25;
const REACH = 40;
const RESERVE = 1e-5;
const FADING_RESERVE = 1e-3;
const ROUNDED = 1e-14;
const SCALE_BITS = 110;
const WORDS = 3;
const SHARE_ROUNDED = 1e-9;
const FADED_OUT = 1e-9;
const UNLIKELY = 1e-15;
const TOTAL = 1n << 62n;
/** Places are rounded to so many parts of a degree, and beyond these degrees moved there: two of them
 * are equal, or at least so far apart. */
const GRID = 10_000;
const POLAR = 85;
export const APART_KM = 9e-4;
/** What rounding may make of a record at the edge of its ball. */
const EDGE_KM = 1e-6;

export type Centre = readonly [number, number];

/** What the sum over the lattice may tell, in units of the exponent, by Poisson's formula. */
function unevenness(): number {
  let [slope, others, level] = [0, 0, 0];
  for (let i = -8; i <= 8; i++) {
    for (let j = -8; j <= 8; j++) {
      const n = Math.hypot(i, j);
      const k = Math.hypot(1, 2 * Math.PI * n);
      const part = ((1 + ROUNDING * k) * Math.exp(-ROUNDING * k)) / k ** 3;
      if (n === 0) level = part;
      else [slope, others] = [slope + 2 * Math.PI * n * part, others + part];
    }
  }
  return slope / (level - others) + 1e-12;
}

export const LEVEL = unevenness();
/** Of a centre's coordinates, as they travel. */
const MOST_CENTRE = 2 ** 31;

/** A float that is a whole number from 2^53 on, and below too. */
const scaled = (value: number): bigint => BigInt(Math.floor(value * 2 ** SCALE_BITS));

export class Lattice {
  readonly exponent: number;
  /** How far apart places have to be for rounding to be paid for. */
  readonly least: number;
  private readonly east: Float64Array;
  private readonly north: Float64Array;
  private readonly toEast: Triple;
  private readonly toNorth: Triple;
  private readonly ends: readonly Point[];
  private readonly low: Centre;
  private readonly high: Centre;

  constructor(
    readonly places: Haversine, readonly epsilon: number, readonly radius: number,
    /** What a report tells, and what of it lets rows fade at the edge, per km. */
    readonly second: number, readonly edge: number,
  ) {
    const { lat, lon, size } = places;
    const rounded = ROUNDED * (EARTH_RADIUS_KM + REACH / epsilon);
    const fading = (4 * second * rounded + SHARE_ROUNDED) / (FADING_RESERVE * edge);
    const right = [epsilon, radius, edge, second - edge].every((value) => value > 0 && Number.isFinite(value));
    this.least = Math.max(rounded / RESERVE, fading);
    if (!right || !(nearestPair(places) >= this.least)) throw new FormatError("otherTable");
    this.exponent = (epsilon * (1 - RESERVE)) / (1 + LEVEL);
    const ends = (values: Float64Array) => values.reduce(
      ([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity],
    );
    const middle = (values: Float64Array) => ((ends(values)[0] + ends(values)[1]) / 2) * (Math.PI / 180);
    const [phi, lam] = [middle(lat), middle(lon)];
    this.toEast = [-Math.sin(lam), Math.cos(lam), 0];
    this.toNorth = [-Math.sin(phi) * Math.cos(lam), -Math.sin(phi) * Math.sin(lam), Math.cos(phi)];
    this.east = new Float64Array(size);
    this.north = new Float64Array(size);
    for (let k = 0; k < size; k++) [this.east[k], this.north[k]] = this.flat({ lat: lat[k], lon: lon[k] });
    this.ends = [this.east, this.north].map((side): Point => [ends(side)[0], ends(side)[1]]);
    const sides = this.ends.map((side) => side.map((end) => end * this.exponent));
    this.low = [Math.floor(sides[0][0] - REACH), Math.floor(sides[1][0] - REACH)];
    this.high = [Math.ceil(sides[0][1] + REACH), Math.ceil(sides[1][1] + REACH)];
    // What cannot be sent must not be drawn, or a refusal would tell about the place.
    if (this.box.flat().some((end) => !(Math.abs(end) < MOST_CENTRE))) throw new FormatError("tooFine");
  }

  /** A place in the plane; no distance grows. */
  private flat({ lat, lon }: Place): Point {
    const [a, b] = [lat * (Math.PI / 180), lon * (Math.PI / 180)];
    const point = [Math.cos(a) * Math.cos(b), Math.cos(a) * Math.sin(b), Math.sin(a)];
    const [x, y] = [this.toEast, this.toNorth];
    return [
      EARTH_RADIUS_KM * (point[0] * x[0] + point[1] * x[1]),
      EARTH_RADIUS_KM * (point[0] * y[0] + point[1] * y[1] + point[2] * y[2]),
    ];
  }

  /** A place in the plane; beyond all records the nearest point of the rectangle around them. */
  among(place: Place): Point {
    const [x, y] = this.flat(place).map((at, axis) => Math.min(Math.max(at, this.ends[axis][0]), this.ends[axis][1]));
    return [x, y];
  }

  /** A record in the plane. */
  at(record: number): Point {
    return [this.east[record], this.north[record]];
  }

  get box(): readonly [Centre, Centre] {
    return [this.low, this.high];
  }

  /** A centre for a place of the plane, by words of random bits: exact, on whole numbers. */
  draw(place: Point, words: (count: number) => BigUint64Array): Centre {
    const [x, y] = place.map((side) => side * this.exponent);
    const floor = Math.exp(-REACH);
    const least = scaled(floor);
    const [wide, tall] = [0, 1].map((axis) => BigInt(this.high[axis] - this.low[axis] + 1));
    const near: { centre: Centre; sum: bigint }[] = [];
    const base = least * wide * tall;
    let sum = base;
    // Row by row, as the library lists them.
    for (let j = -REACH - 1; j <= REACH + 1; j++) {
      for (let i = -REACH - 1; i <= REACH + 1; i++) {
        const centre: Centre = [rint(x) + i, rint(y) + j];
        const apart = Math.hypot(Math.hypot(centre[0] - x, centre[1] - y), ROUNDING);
        if (apart >= REACH) continue;
        sum += scaled(Math.exp(-apart) - floor);
        near.push({ centre, sum });
      }
    }
    const most = 1n << (62n * BigInt(WORDS));
    let product: bigint;
    do {
      product = sum * words(WORDS).reduce((all, part) => (all << 62n) | BigInt.asUintN(62, part), 0n);
    } while (product % most < most % sum);
    const word = product / most;
    if (word < base) {
      const at = word / least;
      return [this.low[0] + Number(at / tall), this.low[1] + Number(at % tall)];
    }
    let [first, last] = [0, near.length - 1];
    while (first < last) {
      const middle = (first + last) >> 1;
      if (near[middle].sum > word) last = middle;
      else first = middle + 1;
    }
    return near[first].centre;
  }

  depth([x, y]: Point, centre: Centre): number {
    return this.radius - Math.hypot(x - centre[0] / this.exponent, y - centre[1] / this.exponent);
  }

  /** Which of some places lie in a ball; null unless each part of them, by its size, reaches into it. */
  inside(places: readonly Place[], sizes: readonly number[], centre: Centre): number[] | null {
    const depths = places.map((place) => this.depth(this.flat(place), centre));
    let from = 0;
    for (const size of sizes) {
      if (!depths.slice(from, from + size).some((depth) => depth > -EDGE_KM)) return null;
      from += size;
    }
    return [...depths.keys()].filter((k) => depths[k] > 0);
  }

  /** Records within the radius of a centre, ascending. */
  ball(centre: Centre): number[] {
    const out: number[] = [];
    for (let k = 0; k < this.places.size; k++) if (this.depth(this.at(k), centre) > 0) out.push(k);
    return out;
  }

  private weight(record: number, i: number, j: number): number {
    const apart = Math.hypot(this.east[record] * this.exponent - i, this.north[record] * this.exponent - j);
    return Math.exp(-Math.min(Math.hypot(apart, ROUNDING), REACH));
  }

  /** Every centre that some record may draw, and how likely each record does. */
  *releases(): Generator<[Centre, Float64Array]> {
    const { size } = this.places;
    const sums = new Float64Array(size);
    const visit = function* (law: Lattice): Generator<[Centre, Float64Array]> {
      for (let i = law.low[0]; i <= law.high[0]; i++) {
        for (let j = law.low[1]; j <= law.high[1]; j++) {
          yield [[i, j], Float64Array.from({ length: size }, (_, x) => law.weight(x, i, j))];
        }
      }
    };
    for (const [, weights] of visit(this)) weights.forEach((weight, x) => { sums[x] += weight; });
    for (const [centre, weights] of visit(this)) {
      const chances = weights.map((weight, x) => weight / sums[x]);
      if (chances.some((chance) => chance > UNLIKELY)) yield [centre, chances];
    }
  }

  /** Given the ball's rows: out of 2^62, how often a record at a depth reports from the common row. */
  share(depth: number, spread: number): bigint {
    const share = commonShare(Math.max(depth, 0), spread, this.second, this.edge) * 2 ** 62;
    // Whole from 2^53 on; below, the nearest whole number.
    return BigInt(share >= 2 ** 53 ? share : rint(share));
  }
}

/** The number of a place's cell of the grid. */
export function cellOf({ lat, lon }: Place): number {
  const turn = 360 * GRID;
  const row = Math.round(Math.max(-POLAR, Math.min(POLAR, lat)) * GRID) + POLAR * GRID;
  return row * turn + (((Math.round(lon * GRID) % turn) + turn) % turn);
}

/** The middle of a cell. */
export function placeOf(cell: number): Place {
  const turn = 360 * GRID;
  return { lat: (Math.floor(cell / turn) - POLAR * GRID) / GRID, lon: (cell % turn) / GRID };
}

/** To the nearest whole number, halves to the even one. */
function rint(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest === 0.5 ? floor + Math.abs(floor % 2) : Math.round(value);
}

/** The least distance of two places: a sweep from south to north. */
function nearestPair(places: Haversine): number {
  const { lat, size } = places;
  const order = Int32Array.from({ length: size }, (_, k) => k).sort((a, b) => lat[a] - lat[b]);
  const degree = (EARTH_RADIUS_KM * Math.PI) / 180;
  let least = Infinity;
  for (let i = 0; i < size; i++) {
    for (let j = i + 1; j < size && (lat[order[j]] - lat[order[i]]) * degree < least; j++) {
      least = Math.min(least, places.distance(order[i], order[j]));
    }
  }
  return least;
}

/** What everybody outside a ball with these rows reports from, and at most so many times which every
 * row is: in whole numbers, the same everywhere. */
export function commonRow(weights: Weights): { common: BigUint64Array; spread: number } {
  const { size, outputs: m } = weights;
  const peaks = new BigUint64Array(m).fill(size ? 0n : 1n);
  for (let x = 0; x < size; x++) {
    rowOf(weights, x).forEach((weight, y) => { if (weight > peaks[y]) peaks[y] = weight; });
  }
  const sum = peaks.reduce((a, b) => a + b, 0n);
  const least = (peak: bigint) => (peak ? 1n : 0n);
  const common = peaks.map((peak) => {
    const part = (peak * TOTAL) / sum;
    return part > 0n ? part : least(peak);
  });
  const largest = common.indexOf(common.reduce((a, b) => (b > a ? b : a)));
  common[largest] += TOTAL - common.reduce((a, b) => a + b, 0n);
  let spread = 0;
  common.forEach((part, y) => { if (part) spread = Math.max(spread, Number(peaks[y]) / Number(part)); });
  return { common, spread: size ? spread * (1 + 1e-12) : 1 };
}

/** The share of the common row at a depth. */
export function commonShare(depth: number, spread: number, second: number, edge: number): number {
  const [epsilon, slow] = [second * (1 - FADING_RESERVE), edge * (1 - FADING_RESERVE)];
  const last = (slow * spread) / (Math.max(spread - 2, 0) * epsilon + slow * spread);
  if (last >= 1) return Math.max(Math.exp(-epsilon * depth), FADED_OUT);
  let bend = epsilon - slow * spread;
  if (Math.abs(bend) <= 1e-9 * epsilon) bend = 1e-9 * epsilon;
  const until = (-(spread - 1) / bend) * Math.log1p(((last - 1) * bend) / epsilon);
  const first = 1 + (epsilon / bend) * Math.expm1((-bend * Math.min(depth, until)) / (spread - 1));
  return Math.max(first * Math.exp(-epsilon * Math.max(depth - until, 0)), FADED_OUT);
}
