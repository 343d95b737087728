/**
 * Phase I of PAnDA by independent coins, and the certificate of the library (docs/panda.md): a
 * record selects each candidate with a probability of its own, a multiple of 2^-62; the nearest
 * candidate that was selected stands in for it. All numbers here are those that are drawn from.
 */

import { FormatError } from "./errors";
import type { Haversine } from "./metric";
import { TOTAL as WHOLE } from "./sampler";

const TOTAL = 2 ** 62;
/** Candidates that are listed for each record; what lies beyond counts against the claim. */
const LISTED = 64;
const RADIUS_SHARE = 50;
const MOST_ENTRIES = 16_000_000;
const TRIM = 1e-11;

export interface Selection {
  readonly decay: "exponential" | "power" | "logistic";
  readonly alpha: number;
  readonly rate: number;
  readonly radius: number | null;
  readonly tail: number | "clip";
  readonly neighbours: number;
}

/** A probability as the nearest multiple of 2^-62 strictly between 0 and 1. */
export function quantiseProbability(value: number): number {
  const scaled = value * TOTAL;
  let units = Math.round(scaled);
  // Halves go to the even one, as in the library.
  if (units - scaled === 0.5 && units % 2) units--;
  return Math.min(Math.max(units, 1), TOTAL * (1 - 2 ** -53)) / TOTAL;
}

function decayed({ decay, alpha, rate }: Selection, apart: number): number {
  if (decay === "exponential") return alpha * Math.exp(-rate * apart);
  if (decay === "power") return alpha / (1 + apart ** rate);
  return (2 * alpha) / (1 + Math.exp(rate * apart));
}

/** log of the larger ratio; one of w / v and (1 - w) / (1 - v) is at least 1. */
function favour(w: number, v: number): number {
  return w > v ? Math.log1p((w - v) / v) : Math.log1p((v - w) / (1 - v));
}

export class CoinLaw {
  readonly radius: number;
  readonly tail: number;
  readonly size: number;
  /** Whether everybody selects alike: the set then tells nothing. */
  readonly indifferent: boolean;
  /** w(x, a) by record and by position of the candidate. */
  private readonly probabilities: Float64Array;
  private readonly orders: Int32Array;
  readonly listed: number;

  constructor(
    readonly metric: Haversine, readonly selection: Selection, readonly candidates: Int32Array,
  ) {
    const n = candidates.length;
    const size = metric.size;
    if (size * n > MOST_ENTRIES) throw new FormatError("tooLarge");
    this.size = size;
    this.radius = selection.radius ?? diameter(metric) / RADIUS_SHARE;
    const tail = selection.tail === "clip" ? decayed(selection, this.radius) : selection.tail;
    this.tail = quantiseProbability(tail);
    this.probabilities = new Float64Array(size * n);
    this.listed = Math.min(LISTED, n);
    this.orders = new Int32Array(size * this.listed);
    let alike = true;
    const apart = new Float64Array(n);
    for (let x = 0; x < size; x++) {
      for (let a = 0; a < n; a++) {
        apart[a] = metric.distance(x, candidates[a]);
        const w = apart[a] < this.radius ? quantiseProbability(decayed(selection, apart[a])) : this.tail;
        this.probabilities[x * n + a] = w;
        alike &&= w === this.tail;
      }
      this.orders.set(sorted(apart).subarray(0, this.listed), x * this.listed);
    }
    this.indifferent = alike;
  }

  probability(record: number, candidate: number): number {
    return this.probabilities[record * this.candidates.length + candidate];
  }

  /** Positions of all candidates from nearest to farthest; of several the lowest first. */
  ranking(record: number): Int32Array {
    const { metric, candidates } = this;
    return sorted(Float64Array.from(candidates, (a) => metric.distance(record, a)));
  }

  /** Candidates that words of random bits select: one coin each, in their order. */
  select(record: number, words: BigUint64Array): number[] {
    return Array.from(this.candidates.keys())
      .filter((a) => flip(this.probability(record, a), words[a]))
      .map((a) => this.candidates[a]);
  }

  /** v(x, a) by position: that a is the nearest of the selected candidates. */
  surrogates(record: number): Float64Array {
    const out = new Float64Array(this.candidates.length);
    let none = 1;
    for (const a of this.ranking(record)) {
      const w = this.probability(record, a);
      out[a] = none * w;
      none *= 1 - w;
    }
    return out;
  }

  /** The most that a set tells between two records, in nats. */
  leakage(x: number, y: number): number {
    if (this.indifferent) return 0;
    const n = this.candidates.length;
    const w = this.probabilities;
    let [up, down] = [0, 0];
    for (let i = x * n, j = y * n, end = i + n; i < end; i++, j++) {
      if (w[i] === w[j]) continue;
      up += favour(w[i], w[j]);
      down += favour(w[j], w[i]);
    }
    return Math.max(up, down);
  }

  /** What Phase I leaves of epsilon times the distance, rounded against the claim. */
  room(epsilon: number, x: number, y: number): number {
    return epsilon * this.metric.distance(x, y) * (1 - 1e-12) - this.leakage(x, y) * (1 + 1e-12);
  }

  /**
   * The probability, over sets drawn by `who`, that x and y get surrogates whose rows may differ by
   * more than `room`. Never below the truth: what is not listed counts as unsafe.
   */
  unsafe(x: number, y: number, who: number, budgets: Float64Array, room: number, tiny: number): number {
    const { orders, listed, candidates } = this;
    const n = candidates.length;
    let unsafe = 0;
    let none = 1;
    for (let i = 0; i < listed && none > tiny; i++) {
      const a = orders[x * listed + i];
      const p = this.probability(who, a);
      let rest = none * p;
      none *= 1 - p;
      for (let j = 0; j < listed && rest > tiny; j++) {
        const b = orders[y * listed + j];
        if (b === a) {
          rest = 0;
          break;
        }
        if (this.before(x, b, i)) continue;
        const q = this.probability(who, b);
        if (budgets[a * n + b] > room) unsafe += rest * q;
        rest *= 1 - q;
      }
      unsafe += rest;
    }
    return unsafe + none;
  }

  /** The violation probability of a pair, the larger of both hypotheses. */
  violation(x: number, y: number, epsilon: number, budgets: Float64Array, tiny: number): number {
    const room = this.room(epsilon, x, y);
    if (room < 0) return 1;
    return Math.max(
      this.unsafe(x, y, x, budgets, room, tiny), this.unsafe(x, y, y, budgets, room, tiny),
    );
  }

  private before(x: number, candidate: number, rank: number): boolean {
    for (let k = 0; k < rank; k++) if (this.orders[x * this.listed + k] === candidate) return true;
    return false;
  }

  /**
   * What rows of candidates may differ by, in nats: as much as the certificate allows, by the
   * library's rule (`PandaPlan.certified`), less a trifle for rounding.
   */
  async budgets(epsilon: number, delta: number, onProgress: (share: number) => void): Promise<Float64Array> {
    const { candidates, metric, size } = this;
    const n = candidates.length;
    const whole = new Float64Array(n * n);
    const cost = new Float64Array(n * n);
    const out = new Float64Array(n * n);
    for (let a = 0; a < n; a++) {
      for (let b = 0; b < a; b++) {
        const [i, j] = [a * n + b, b * n + a];
        whole[i] = whole[j] = epsilon * metric.distance(candidates[a], candidates[b]);
        cost[i] = cost[j] = this.leakage(candidates[a], candidates[b]);
        out[i] = out[j] = Math.max(0, whole[i] - cost[i]);
      }
    }
    const pairs = new SurrogatePairs(this.listed ** 2);
    let rested = performance.now();
    for (let x = 0; x < size; x++) {
      for (let y = 0; y < x; y++) {
        const room = this.room(epsilon, x, y);
        if (room < 0) continue;
        for (const who of [x, y]) this.cap(x, y, who, room, out, delta, pairs);
      }
      if (performance.now() - rested > 60) {
        onProgress(x / size);
        await new Promise((resolve) => setTimeout(resolve));
        rested = performance.now();
      }
    }
    for (let k = 0; k < n * n; k++) {
      const margin = Math.max(0, whole[k] - cost[k] - out[k]);
      out[k] = Math.max(0, whole[k] - cost[k] - margin - TRIM * (1 + whole[k] + cost[k] + margin));
    }
    for (let a = 0; a < n; a++) out[a * n + a] = 0;
    return out;
  }

  /** Lower budgets until the surrogates of a pair differ by more than `room` at most with delta. */
  private cap(
    x: number, y: number, who: number, room: number, budgets: Float64Array, delta: number,
    pairs: SurrogatePairs,
  ): void {
    const { orders, listed } = this;
    const n = this.candidates.length;
    const tiny = delta * 1e-6;
    const { place, mass } = pairs;
    let [seen, over, none] = [0, 0, 1];
    for (let i = 0; i < listed && none > tiny; i++) {
      const a = orders[x * listed + i];
      const p = this.probability(who, a);
      let rest = none * p;
      none *= 1 - p;
      for (let j = 0; j < listed && rest > tiny; j++) {
        const b = orders[y * listed + j];
        if (this.before(x, b, i)) continue;
        const q = b === a ? 1 : this.probability(who, b);
        seen += rest * q;
        if (a !== b && budgets[a * n + b] > room) {
          place[over] = a * n + b;
          mass[over++] = rest * q;
        }
        rest *= 1 - q;
      }
    }
    let left = delta * (1 - 1e-3) - Math.max(0, 1 - seen);
    for (let done = 0; done < over; done++) {
      let largest = -1;
      for (let k = 0; k < over; k++) {
        if (mass[k] >= 0 && (largest < 0 || budgets[place[k]] > budgets[place[largest]])) largest = k;
      }
      if (mass[largest] <= left) left -= mass[largest];
      else {
        left = -1;
        const at = place[largest];
        budgets[at] = Math.min(budgets[at], room);
        budgets[(at % n) * n + Math.floor(at / n)] = budgets[at];
      }
      mass[largest] = -1;
    }
  }
}

class SurrogatePairs {
  readonly place: Int32Array;
  readonly mass: Float64Array;

  constructor(most: number) {
    this.place = new Int32Array(most);
    this.mass = new Float64Array(most);
  }
}

/** A coin: whether 62 of the bits are below the probability's numerator. */
export function flip(probability: number, word: bigint): boolean {
  return (word & (WHOLE - 1n)) < BigInt(probability * TOTAL);
}

function sorted(values: Float64Array): Int32Array {
  return Int32Array.from(values.keys()).sort((a, b) => values[a] - values[b] || a - b);
}

function diameter(metric: Haversine): number {
  let most = 0;
  for (let a = 0; a < metric.size; a++) {
    for (let b = 0; b < a; b++) most = Math.max(most, metric.distance(a, b));
  }
  return most;
}
