/**
 * The page's own audit: the largest |log ratio| / distance over pairs of records.
 *
 * The same statement, constants and error bounds as the library's (docs/audit.md): an upper bound,
 * never below the exact value. Pairs are visited by tiles, near ones first, so that an audit that
 * runs out of time can still say: all pairs nearer than so many km. Tiles are passed over only
 * where a bound proves that none of their pairs is worse than the worst one found.
 */

import { FormatError } from "./errors";
import { Haversine, type Metric } from "./metric";
import { BLOCK_ROWS, type CompactTable } from "./table";

export const LOG_ERROR = 2e-13;
const ARITHMETIC_ERROR = 2e-15;
export const HALF = 2 ** 32;
export const TOTAL = 2 ** 62;
const TILE = 48;
/** 16 bytes each: what a browser has room for. */
const MOST_ENTRIES = 40_000_000;

/** What is audited: the distances between its records, its columns by name, and its claim. */
export interface Claim {
  readonly metric: Metric;
  readonly outputs: ArrayLike<number>;
  readonly epsilon: number;
}

/** All weights of a table, record by record, with their logarithms. */
export interface Weights {
  readonly size: number;
  readonly outputs: number;
  readonly low: Uint32Array;
  readonly high: Uint32Array;
  readonly logs: Float64Array;
  /** A column with weights both zero and positive: a ratio without bound. */
  readonly broken: number;
}

export interface AuditResult {
  readonly holds: boolean;
  readonly epsilon: number;
  readonly claimed: number;
  /** The worst pair, the more likely record first, and the output: records of the domain. */
  readonly worst: readonly [number, number, number];
  readonly distance: number;
  readonly pairs: number;
  /** Whether the statement covers all pairs. */
  readonly complete: boolean;
  /** All pairs nearer than this were covered; Infinity where complete. */
  readonly within: number;
  /** Pairs within tiles that were compared or proved by a bound. */
  readonly covered: number;
  /** Pairs drawn at random from all pairs, where the audit is not complete. */
  readonly sampled: number;
  readonly seconds: number;
  /** Where the promise is for every point of an area: triangles that were looked at. */
  readonly triangles?: number;
  /** Where the promise has a delta: what it rests on besides. */
  readonly account?: Account;
}

/** How often what is released tells more than epsilon times the distance. */
export interface Account {
  /** The largest probability among the pairs that were looked at. */
  readonly violation: number;
  readonly delta: number;
  /** Pairs of records whose probability was computed. */
  readonly pairs: number;
  /** What Phase I alone tells, per km. */
  readonly first: number;
}

export async function decodeAll(
  table: CompactTable, onProgress: (share: number) => void = () => undefined,
): Promise<Weights> {
  const size = table.size;
  const m = table.outputs.length;
  if (size * m > MOST_ENTRIES) throw new FormatError("tooLarge");
  const low = new Uint32Array(size * m);
  const high = new Uint32Array(size * m);
  const logs = new Float64Array(size * m);
  const zeros = new Uint32Array(m);
  for (let b = 0; b < table.blockCount; b++) {
    const rows = await table.block(b);
    for (let i = 0; i < rows.count; i++) {
      const to = table.order[b * BLOCK_ROWS + i] * m;
      low.set(rows.low.subarray(i * m, (i + 1) * m), to);
      high.set(rows.high.subarray(i * m, (i + 1) * m), to);
      for (let y = 0; y < m; y++) {
        const weight = high[to + y] * HALF + low[to + y];
        if (weight === 0) zeros[y]++;
        // A column that is zero everywhere tells nothing.
        logs[to + y] = weight === 0 ? 0 : Math.log(weight);
      }
    }
    onProgress((b + 1) / table.blockCount);
  }
  const broken = zeros.findIndex((count) => count > 0 && count < size);
  return { size, outputs: m, low, high, logs, broken };
}

/** Integers of 62 bits as they lie in files; refused unless every row sums to 2^62. */
export function weightsFrom(integers: BigInt64Array, size: number, m: number): Weights {
  const halves = new Uint32Array(integers.buffer, integers.byteOffset, 2 * integers.length);
  const low = new Uint32Array(size * m);
  const high = new Uint32Array(size * m);
  for (let k = 0; k < size * m; k++) {
    low[k] = halves[2 * k];
    high[k] = halves[2 * k + 1];
  }
  return weightsOf(low, high, size, m);
}

/** The same from halves. */
export function weightsOf(low: Uint32Array, high: Uint32Array, size: number, m: number): Weights {
  const logs = new Float64Array(size * m);
  const zeros = new Uint32Array(m);
  for (let row = 0; row < size; row++) {
    let [sumLow, sumHigh] = [0, 0];
    for (let y = 0, k = row * m; y < m; y++, k++) {
      const weight = high[k] * HALF + low[k];
      if (weight === 0) zeros[y]++;
      logs[k] = weight === 0 ? 0 : Math.log(weight);
      sumLow += low[k];
      sumHigh += high[k];
    }
    if (sumLow % HALF !== 0 || sumHigh + sumLow / HALF !== 2 ** 30) {
      throw new FormatError("damaged", "a row does not sum to 2^62");
    }
  }
  const broken = zeros.findIndex((count) => count > 0 && count < size);
  return { size, outputs: m, low, high, logs, broken };
}

/** The row of a record as 64-bit integers. */
export function rowOf(weights: Weights, record: number): BigUint64Array {
  const { low, high, outputs: m } = weights;
  return BigUint64Array.from(
    { length: m }, (_, y) => (BigInt(high[record * m + y]) << 32n) | BigInt(low[record * m + y]),
  );
}

function equalRows(weights: Weights, a: number, b: number): boolean {
  const { low, high, outputs: m } = weights;
  for (let y = 0; y < m; y++) {
    if (low[a * m + y] !== low[b * m + y] || high[a * m + y] !== high[b * m + y]) return false;
  }
  return true;
}

function largestGap(logs: Float64Array, a: number, b: number, m: number): number {
  let gap = 0;
  for (let i = a * m, j = b * m, end = i + m; i < end; i++, j++) {
    const apart = Math.abs(logs[i] - logs[j]);
    if (apart > gap) gap = apart;
  }
  return gap;
}

/** The worst pair so far. */
class Worst {
  value = 0;
  pair: [number, number] = [0, 0];
  private readonly shrink: number;

  constructor(readonly metric: Metric, readonly weights: Weights) {
    this.shrink = 1 - (metric.relativeError + ARITHMETIC_ERROR);
  }

  see(a: number, b: number): void {
    const distance = this.metric.distance(a, b) * this.shrink;
    const gap = largestGap(this.weights.logs, a, b, this.weights.outputs);
    if (gap + LOG_ERROR <= this.value * distance) return;
    // Equal rows tell nothing apart, however near the records are.
    if (equalRows(this.weights, a, b)) return;
    const rate = (gap + LOG_ERROR) / distance;
    if (rate > this.value) {
      this.value = rate;
      this.pair = [a, b];
    }
  }

  /** Whether pairs with this gap at most and this distance at least may be worse. */
  mayBeat(gap: number, distance: number): boolean {
    return gap + LOG_ERROR > this.value * distance * this.shrink;
  }

  result(table: Claim, rest: Omit<AuditResult, "holds" | "epsilon" | "claimed" | "worst" | "distance" | "pairs">): AuditResult {
    const { weights, metric } = this;
    const { logs, outputs: m, size } = weights;
    let [a, b] = this.pair;
    let column = 0;
    let epsilon = this.value;
    if (weights.broken >= 0) {
      epsilon = Infinity;
      column = weights.broken;
      const zero = (k: number) => weights.low[k * m + column] + weights.high[k * m + column] === 0;
      a = 0;
      while (zero(a)) a++;
      b = 0;
      while (!zero(b)) b++;
    } else {
      for (let y = 0, most = -1; y < m; y++) {
        const gap = Math.abs(logs[a * m + y] - logs[b * m + y]);
        if (gap > most) {
          most = gap;
          column = y;
        }
      }
      if (logs[a * m + column] < logs[b * m + column]) [a, b] = [b, a];
    }
    return {
      ...rest,
      holds: epsilon <= table.epsilon,
      epsilon,
      claimed: table.epsilon,
      worst: [a, b, table.outputs[column]],
      distance: a === b ? 0 : metric.distance(a, b),
      pairs: (size * (size - 1)) / 2,
    };
  }
}

interface Tiles {
  readonly order: Int32Array;
  readonly starts: number[];
  readonly centre: number[];
  readonly radius: number[];
}

/** Records in compact groups: halved along the longer side until they are small. */
function tile(metric: Metric): Tiles {
  const order = Int32Array.from({ length: metric.size }, (_, k) => k);
  const starts: number[] = [];
  const split = (from: number, to: number): void => {
    if (to - from <= TILE) {
      starts.push(from);
      return;
    }
    const part = order.subarray(from, to);
    if (metric instanceof Haversine) {
      const { lat, lon } = metric;
      let [south, north, west, east] = [90, -90, 180, -180];
      for (const k of part) {
        south = Math.min(south, lat[k]);
        north = Math.max(north, lat[k]);
        west = Math.min(west, lon[k]);
        east = Math.max(east, lon[k]);
      }
      const wide = (east - west) * Math.cos((((south + north) / 2) * Math.PI) / 180);
      const along = wide > north - south ? lon : lat;
      part.sort((p, q) => along[p] - along[q]);
    }
    const middle = from + ((to - from) >> 1);
    split(from, middle);
    split(middle, to);
  };
  split(0, metric.size);
  starts.push(metric.size);
  const centre: number[] = [];
  const radius: number[] = [];
  for (let t = 0; t + 1 < starts.length; t++) {
    const middle = order[(starts[t] + starts[t + 1]) >> 1];
    let far = 0;
    for (let k = starts[t]; k < starts[t + 1]; k++) {
      far = Math.max(far, metric.distance(middle, order[k]));
    }
    centre.push(middle);
    radius.push(far);
  }
  return { order, starts, centre, radius };
}

export interface AuditOptions {
  /** Seconds after which the rest is sampled. */
  readonly limit: number;
  readonly samples: number;
  readonly onProgress: (share: number) => void;
}

/** Audit all pairs, or as many as the time allows; what was covered is part of the result. */
export async function audit(
  table: Claim, weights: Weights, options: AuditOptions,
): Promise<AuditResult> {
  const began = performance.now();
  const { metric } = table;
  const { logs, outputs: m, size } = weights;
  const worst = new Worst(metric, weights);
  const pairs = (size * (size - 1)) / 2;
  const { generating } = metric;
  if (generating) {
    for (let k = 0; k < generating.length; k += 2) worst.see(generating[k], generating[k + 1]);
    return worst.result(table, {
      complete: true, within: Infinity, covered: pairs, sampled: 0, seconds: (performance.now() - began) / 1000,
    });
  }
  const tiles = tile(metric);
  const count = tiles.centre.length;
  const highest = new Float64Array(count * m).fill(-Infinity);
  const lowest = new Float64Array(count * m).fill(Infinity);
  for (let t = 0; t < count; t++) {
    for (let k = tiles.starts[t]; k < tiles.starts[t + 1]; k++) {
      const from = tiles.order[k] * m;
      for (let y = 0; y < m; y++) {
        const value = logs[from + y];
        if (value > highest[t * m + y]) highest[t * m + y] = value;
        if (value < lowest[t * m + y]) lowest[t * m + y] = value;
      }
    }
  }
  const reach = (a: number, b: number): number => {
    let most = 0;
    for (let y = 0, i = a * m, j = b * m; y < m; y++, i++, j++) {
      most = Math.max(most, highest[i] - lowest[j], highest[j] - lowest[i]);
    }
    return most;
  };

  const between = new Float64Array((count * (count + 1)) / 2);
  const first = new Int32Array(between.length);
  const second = new Int32Array(between.length);
  for (let a = 0, k = 0; a < count; a++) {
    for (let b = a; b < count; b++, k++) {
      first[k] = a;
      second[k] = b;
      const apart = metric.distance(tiles.centre[a], tiles.centre[b]);
      between[k] = a === b
        ? 0 : Math.max(0, (apart - tiles.radius[a] - tiles.radius[b]) * (1 - 1e-12));
    }
  }
  const queue = Uint32Array.from(between, (_, k) => k).sort((p, q) => between[p] - between[q]);

  let covered = 0;
  let within = Infinity;
  let rested = began;
  for (let k = 0; k < queue.length; k++) {
    const a = first[queue[k]];
    const b = second[queue[k]];
    const sizeA = tiles.starts[a + 1] - tiles.starts[a];
    const sizeB = tiles.starts[b + 1] - tiles.starts[b];
    const inside = a === b ? (sizeA * (sizeA - 1)) / 2 : sizeA * sizeB;
    if (a === b || worst.mayBeat(reach(a, b), between[queue[k]])) {
      const now = performance.now();
      if (now - began > 1000 * options.limit) {
        within = between[queue[k]];
        break;
      }
      if (now - rested > 60) {
        options.onProgress(covered / pairs);
        // Others may ask the worker something in between.
        await new Promise((resolve) => setTimeout(resolve));
        rested = performance.now();
      }
      for (let i = tiles.starts[a]; i < tiles.starts[a + 1]; i++) {
        const from = a === b ? i + 1 : tiles.starts[b];
        for (let j = from; j < tiles.starts[b + 1]; j++) worst.see(tiles.order[i], tiles.order[j]);
      }
    }
    covered += inside;
  }
  const complete = covered === pairs;
  let sampled = 0;
  if (!complete) {
    for (; sampled < options.samples; sampled++) {
      const a = Math.floor(Math.random() * size);
      const b = Math.floor(Math.random() * (size - 1));
      worst.see(a, b >= a ? b + 1 : b);
    }
  }
  return worst.result(table, {
    complete, within, covered, sampled, seconds: (performance.now() - began) / 1000,
  });
}

export interface Told {
  /** Distance in km. */
  readonly distance: number;
  /** How often an observer guesses right who must tell this record from another one at most this
   * far away and finds both equally likely; null where there is none so near. */
  readonly guess: number | null;
  /** How many records lie within this distance. */
  readonly records: number;
}

export interface OwnAudit {
  readonly holds: boolean;
  /** The smallest epsilon that holds for this record against every other one. */
  readonly epsilon: number;
  readonly pairs: number;
  readonly told: readonly Told[];
  /** Where the promise has a delta: how often this record's releases tell more than epsilon d. */
  readonly violation?: number;
}

/** One record against all others, over all outputs: exact for that record, whatever the size. */
export function auditRecord(
  table: Claim, weights: Weights, record: number, distances: readonly number[],
): OwnAudit {
  const { metric } = table;
  const { low, high, outputs: m, size } = weights;
  const worst = new Worst(metric, weights);
  const most: (number | null)[] = distances.map(() => null);
  const found = distances.map(() => 0);
  for (let other = 0; other < size; other++) {
    if (other === record) continue;
    worst.see(record, other);
    const apart = metric.distance(record, other);
    distances.forEach((distance, k) => {
      if (apart > distance) return;
      let variation = 0;
      for (let y = 0, i = record * m, j = other * m; y < m; y++, i++, j++) {
        variation += Math.abs((high[i] - high[j]) * HALF + (low[i] - low[j]));
      }
      found[k]++;
      most[k] = Math.max(most[k] ?? 0, 0.5 + variation / TOTAL / 4);
    });
  }
  const epsilon = weights.broken >= 0 ? Infinity : worst.value;
  return {
    holds: epsilon <= table.epsilon,
    epsilon,
    pairs: size - 1,
    told: distances.map((distance, k) => ({ distance, guess: most[k], records: found[k] })),
  };
}
