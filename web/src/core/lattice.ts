/**
 * A ball's centre on a public lattice, by a law in closed form, and rows that fade at the edge: the
 * same steps as the library's (docs/panda.md has the proofs), on places that are projected onto the
 * plane that touches the earth in their middle, which lengthens no distance.
 */

import { audit, rowOf, type Weights } from "./audit";
import { FormatError } from "./errors";
import { EARTH_RADIUS_KM, type Haversine } from "./metric";
import { quantise } from "./quantise";

/** In units of the lattice's spacing, 1 / a. */
const ROUNDING = 1.25;
const REACH = 40;
const RESERVE = 1e-5;
const ROUNDED = 1e-14;
const SCALE_BITS = 110;
const WORDS = 3;
/** No deeper is outside; up to twice as deep records have the very row of those outside. */
const NARROW_KM = 1e-3;
const FADED_OUT = 1e-9;
const TOTAL = 2 ** 62;

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
  private readonly east: Float64Array;
  private readonly north: Float64Array;
  private readonly low: Centre;
  private readonly high: Centre;

  constructor(readonly places: Haversine, readonly epsilon: number) {
    const { lat, lon, size } = places;
    const nearest = nearestPair(places);
    if (RESERVE * nearest < ROUNDED * (EARTH_RADIUS_KM + REACH / epsilon)) throw new FormatError("otherTable");
    this.exponent = (epsilon * (1 - RESERVE)) / (1 + LEVEL);
    const ends = (values: Float64Array) => values.reduce(
      ([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity],
    );
    const middle = (values: Float64Array) => ((ends(values)[0] + ends(values)[1]) / 2) * (Math.PI / 180);
    const [phi, lam] = [middle(lat), middle(lon)];
    const [toEast, toNorth] = [
      [-Math.sin(lam), Math.cos(lam), 0],
      [-Math.sin(phi) * Math.cos(lam), -Math.sin(phi) * Math.sin(lam), Math.cos(phi)],
    ];
    this.east = new Float64Array(size);
    this.north = new Float64Array(size);
    for (let k = 0; k < size; k++) {
      const [a, b] = [lat[k] * (Math.PI / 180), lon[k] * (Math.PI / 180)];
      const point = [Math.cos(a) * Math.cos(b), Math.cos(a) * Math.sin(b), Math.sin(a)];
      this.east[k] = EARTH_RADIUS_KM * (point[0] * toEast[0] + point[1] * toEast[1]);
      this.north[k] = EARTH_RADIUS_KM
        * (point[0] * toNorth[0] + point[1] * toNorth[1] + point[2] * toNorth[2]);
    }
    const sides = [this.east, this.north].map((side) => ends(side).map((end) => end * this.exponent));
    this.low = [Math.floor(sides[0][0] - REACH), Math.floor(sides[1][0] - REACH)];
    this.high = [Math.ceil(sides[0][1] + REACH), Math.ceil(sides[1][1] + REACH)];
    // What cannot be sent must not be drawn, or a refusal would tell about the place.
    if (this.box.flat().some((end) => !(Math.abs(end) < MOST_CENTRE))) throw new FormatError("tooFine");
  }

  get box(): readonly [Centre, Centre] {
    return [this.low, this.high];
  }

  /** A centre for a record, by words of random bits: exact, on whole numbers. */
  draw(record: number, words: (count: number) => BigUint64Array): Centre {
    const [x, y] = [this.east[record] * this.exponent, this.north[record] * this.exponent];
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

  depth(record: number, centre: Centre, radius: number): number {
    return radius - Math.hypot(
      this.east[record] - centre[0] / this.exponent, this.north[record] - centre[1] / this.exponent,
    );
  }

  /** Records within a radius of a centre, ascending. */
  ball(centre: Centre, radius: number): number[] {
    const out: number[] = [];
    for (let k = 0; k < this.places.size; k++) if (this.depth(k, centre, radius) > NARROW_KM) out.push(k);
    return out;
  }
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

/** The share of the common row at a depth. */
export function commonShare(depth: number, spread: number, second: number, edge: number): number {
  const [epsilon, slow] = [second * (1 - 1e-6), edge * (1 - 1e-6)];
  const last = (slow * spread) / (Math.max(spread - 2, 0) * epsilon + slow * spread);
  if (last >= 1) return Math.max(Math.exp(-epsilon * depth), FADED_OUT);
  let bend = epsilon - slow * spread;
  if (Math.abs(bend) <= 1e-9 * epsilon) bend = 1e-9 * epsilon;
  const until = (-(spread - 1) / bend) * Math.log1p(((last - 1) * bend) / epsilon);
  const first = 1 + (epsilon / bend) * Math.expm1((-bend * Math.min(depth, until)) / (spread - 1));
  return Math.max(first * Math.exp(-epsilon * Math.max(depth - until, 0)), FADED_OUT);
}

/** What the records of a ball report from, and last everybody outside. */
export function faded(weights: Weights, depths: readonly number[], second: number, edge: number): Weights {
  const { size, outputs: m } = weights;
  const rows = new Float64Array((size + 1) * m);
  for (let x = 0; x < size; x++) rowOf(weights, x).forEach((weight, y) => { rows[x * m + y] = Number(weight) / TOTAL; });
  const peaks = new Float64Array(m).fill(size ? 0 : 1);
  for (let k = 0; k < size * m; k++) peaks[k % m] = Math.max(peaks[k % m], rows[k]);
  const spread = peaks.reduce((a, b) => a + b, 0);
  for (let x = 0; x <= size; x++) {
    const share = x < size ? commonShare(Math.max(depths[x] - 2 * NARROW_KM, 0), spread, second, edge) : 1;
    for (let y = 0; y < m; y++) {
      rows[x * m + y] = (share * peaks[y]) / spread + (1 - share) * rows[x * m + y];
    }
  }
  return quantise(rows, size + 1, m);
}

/** What rows of a ball tell per km: of two records inside, and of one at the edge, over how near somebody
 * outside may be, who is up to NARROW_KM deep. */
export async function toldBy(
  places: Haversine, outputs: readonly number[], reports: Weights, depths: readonly number[], epsilon: number,
): Promise<number> {
  const { size, outputs: m, logs, low, high } = reports;
  const [inside, last] = [size - 1, (size - 1) * m];
  if (reports.broken >= 0) return Infinity;
  let told = 0;
  for (let x = 0; x < inside; x++) {
    const near = Math.max(depths[x] - NARROW_KM, 0) * (1 - 1e-9);
    for (let y = 0; y < m; y++) {
      const gap = Math.abs(logs[x * m + y] - logs[last + y]);
      if (gap !== 0) told = Math.max(told, gap / near);
    }
  }
  if (inside < 2) return told;
  const part = {
    size: inside, outputs: m, broken: -1, logs: logs.subarray(0, last), low: low.subarray(0, last),
    high: high.subarray(0, last),
  };
  const claim = { metric: places, outputs, epsilon };
  const found = await audit(claim, part, { limit: Infinity, samples: 0, onProgress: () => undefined });
  return Math.max(told, found.epsilon);
}
