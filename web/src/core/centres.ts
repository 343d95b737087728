/**
 * The law of a ball's centre: exp(-a d(x, c)) over its sums, with the exponent raised until the
 * audit over all pairs meets epsilon, and the least radius that misses a record seldom enough.
 * The same steps as the library's, so that both find the same balls; the audit of these very
 * integers decides, whoever else computed what.
 */

import { audit, HALF, type Weights } from "./audit";
import { FormatError, PrivacyError } from "./errors";
import type { Haversine } from "./metric";
import { quantise } from "./quantise";

const TIGHTNESS = 1e-4;
const SMALLEST_ENTRY = 2 ** (24 - 62);
const FLOOR_SHARE = 1e-8;
const LARGEST_FACTOR = 2 ** 20;
const MOST_CENTRES = 256;
const MOST_ENTRIES = 8_000_000;
const TOTAL = 2 ** 62;
/** Ends of balls are distances between records: equal ones must not differ by rounding. */
export const EDGE = 1 + 4e-15;

export interface Centres {
  /** Records that may be centres, ascending. */
  readonly centres: Int32Array;
  readonly weights: Weights;
  /** What a centre tells, per km, by audit over all pairs. */
  readonly epsilon: number;
  readonly radius: number;
}

/** As many records as balls have centres, each the farthest from those before. */
export function spreadOut(metric: Haversine, count: number): Int32Array {
  const { lat, lon, size } = metric;
  if (count >= size) return Int32Array.from({ length: size }, (_, k) => k);
  const radians = Math.PI / 180;
  const points = Array.from(lat, (_, k) => {
    const [phi, lam] = [lat[k] * radians, lon[k] * radians];
    return [Math.cos(phi) * Math.cos(lam), Math.cos(phi) * Math.sin(lam), Math.sin(phi)];
  });
  const mean = [0, 1, 2].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / size);
  const off = points.map((point) => point.reduce((sum, value, axis) => sum + (value - mean[axis]) ** 2, 0));
  const chosen = [off.indexOf(off.reduce((a, b) => Math.min(a, b)))];
  const nearest = Float64Array.from({ length: size }, (_, k) => metric.distance(k, chosen[0]));
  while (chosen.length < count) {
    let next = 0;
    for (let k = 1; k < size; k++) if (nearest[k] > nearest[next]) next = k;
    chosen.push(next);
    for (let k = 0; k < size; k++) nearest[k] = Math.min(nearest[k], metric.distance(k, next));
  }
  return Int32Array.from(chosen).sort();
}

/** Rows exp(-a d) over their sums, lifted a little where integers would lose them. */
function softmax(apart: Float64Array, size: number, m: number, exponent: number): Float64Array {
  const out = new Float64Array(size * m);
  let least = 1;
  for (let x = 0; x < size; x++) {
    let top = -Infinity;
    for (let k = x * m; k < (x + 1) * m; k++) top = Math.max(top, -exponent * apart[k]);
    let sum = 0;
    for (let k = x * m; k < (x + 1) * m; k++) sum += out[k] = Math.exp(-exponent * apart[k] - top);
    for (let k = x * m; k < (x + 1) * m; k++) least = Math.min(least, out[k] /= sum);
  }
  if (least < SMALLEST_ENTRY) {
    for (let k = 0; k < out.length; k++) out[k] = (1 - FLOOR_SHARE) * out[k] + FLOOR_SHARE / m;
  }
  return out;
}

/** Nearly the integers: enough to find the exponent with. */
function roughly(matrix: Float64Array, size: number, m: number): Weights {
  const low = new Uint32Array(size * m);
  const high = new Uint32Array(size * m);
  const logs = new Float64Array(size * m);
  for (let k = 0; k < matrix.length; k++) {
    const weight = Math.floor(matrix[k] * TOTAL);
    high[k] = Math.floor(weight / HALF);
    low[k] = weight % HALF;
    logs[k] = Math.log(weight);
  }
  return { size, outputs: m, low, high, logs, broken: -1 };
}

export async function centreLaw(
  metric: Haversine, named: readonly number[] | null, epsilon: number, delta: number,
): Promise<Centres> {
  const centres = named
    ? Int32Array.from(new Set(named)).sort() : spreadOut(metric, Math.min(metric.size, MOST_CENTRES));
  const [size, m] = [metric.size, centres.length];
  if (centres.some((centre) => !(centre >= 0 && centre < size))) throw new FormatError("damaged", "a centre is no record");
  if (size * m > MOST_ENTRIES) throw new FormatError("tooLarge");
  const apart = new Float64Array(size * m);
  for (let x = 0, k = 0; x < size; x++) {
    for (let c = 0; c < m; c++, k++) apart[k] = metric.distance(x, centres[c]);
  }
  const claim = { metric, outputs: centres, epsilon };
  const options = { limit: Infinity, samples: 0, onProgress: () => undefined };
  const rate = async (exponent: number) =>
    (await audit(claim, roughly(softmax(apart, size, m, exponent), size, m), options)).epsilon;
  const exponent = await tightExponent(epsilon, rate);
  const weights = quantise(softmax(apart, size, m, exponent), size, m);
  const found = await audit(claim, weights, options);
  if (!found.holds) throw new PrivacyError("notPrivate");
  return { centres, weights, epsilon: found.epsilon, radius: radiusFor(apart, weights, delta) };
}

async function tightExponent(target: number, rate: (exponent: number) => Promise<number>): Promise<number> {
  const near = target * (1 - TIGHTNESS);
  let low = target / 2;
  let lowRate = await rate(low);
  if (lowRate >= near) return low;
  let high = 2 * low;
  let highRate = await rate(high);
  while (highRate <= target) {
    if (highRate >= near || high >= (LARGEST_FACTOR * target) / 2) return high;
    [low, lowRate] = [high, highRate];
    high *= 2;
    highRate = await rate(high);
  }
  while (lowRate < near) {
    let share = 0.5;
    if (Number.isFinite(highRate)) {
      const aim = target * (1 - TIGHTNESS / 3);
      share = Math.min(Math.max((aim - lowRate) / (highRate - lowRate), 0.05), 0.95);
    }
    const middle = low + share * (high - low);
    if (!(low < middle && middle < high)) break;
    const found = await rate(middle);
    if (found <= target) [low, lowRate] = [middle, found];
    else [high, highRate] = [middle, found];
  }
  return low;
}

/** The least radius with Pr[d(x, c) > radius] <= delta for every record, on the integers. */
export function radiusFor(apart: Float64Array, weights: Weights, delta: number): number {
  const { size, outputs: m } = weights;
  // A float times 2^62 is exact.
  const allowed = BigInt(Math.floor(delta * TOTAL));
  let radius = 0;
  for (let x = 0; x < size; x++) {
    const order = Array.from({ length: m }, (_, c) => c)
      .sort((a, b) => apart[x * m + b] - apart[x * m + a] || a - b);
    let beyond = 0n;
    for (const c of order) {
      beyond += (BigInt(weights.high[x * m + c]) << 32n) | BigInt(weights.low[x * m + c]);
      if (beyond > allowed) {
        radius = Math.max(radius, apart[x * m + c]);
        break;
      }
    }
  }
  return radius;
}

/** Records within the radius of a centre, ascending. */
export function ballOf(metric: Haversine, centre: number, radius: number): number[] {
  const out: number[] = [];
  for (let k = 0; k < metric.size; k++) if (metric.distance(k, centre) <= radius * EDGE) out.push(k);
  return out;
}

/** The member nearest to a record, by its place in `members`; of several the first. */
export function nearestMember(metric: Haversine, members: readonly number[], record: number): number {
  let best = 0;
  for (let k = 1; k < members.length; k++) {
    if (metric.distance(record, members[k]) < metric.distance(record, members[best])) best = k;
  }
  return best;
}
