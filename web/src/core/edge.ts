/**
 * How often a ball's edge tells two records from each other, as the library counts it (docs/panda.md).
 *
 * Outside its ball everybody reports from one common row. A pair is violated where exactly one of
 * the two lies in the ball and the output's log-ratio to the common row exceeds what the centre
 * leaves of epsilon times their distance. Rounded against the claim throughout.
 */

import type { Weights } from "./audit";
import type { Metric } from "./metric";

const TOTAL = 2 ** 62;
const HALF = 2 ** 32;
const BINS = 256;

export interface Edge {
  readonly metric: Metric;
  /** Rows of records, of records over centres, and of everybody outside each centre's ball. */
  readonly rows: Weights;
  readonly centres: Weights;
  readonly outside: Weights;
  /** Whether a record is in the ball of a centre, by record and centre. */
  readonly inside: Uint8Array;
}

export class EdgeAccount {
  private readonly step: number;
  private readonly outer: Float64Array;

  constructor(private readonly edge: Edge) {
    const { rows, outside } = edge;
    let largest = 0;
    for (let x = 0; x < rows.size; x++) {
      for (let c = 0; c < outside.size; c++) largest = Math.max(largest, gap(edge, x, c));
    }
    this.step = (largest * (1 + 1e-9)) / (BINS - 1) + 1e-9;
    this.outer = new Float64Array(rows.size * BINS);
    const tails = new Float64Array(BINS + 1);
    for (let x = 0; x < rows.size; x++) {
      for (let c = 0; c < outside.size; c++) {
        if (!this.holds(x, c)) continue;
        this.tails(x, c, outside, c, tails);
        for (let b = 0; b < BINS; b++) {
          const at = x * BINS + b;
          this.outer[at] = Math.max(this.outer[at], tails[b]);
        }
      }
    }
  }

  /** The largest violation probability of what a record releases, over all others. */
  worst(x: number, room: number, delta: number): number {
    const { metric, rows, centres, outside } = this.edge;
    if (!(room > 0) || unbounded(rows, outside)) return 1;
    const less = room * (1 - 1e-11);
    const count = centres.outputs;
    const tiny = (delta * 1e-6) / count;
    const level = new Int32Array(rows.size);
    for (let y = 0; y < rows.size; y++) {
      const steps = (metric.distance(x, y) * less) / this.step;
      level[y] = steps >= BINS ? BINS : Math.floor(steps);
    }
    const total = new Float64Array(rows.size);
    const tails = new Float64Array(BINS + 1);
    let rest = 0;
    for (let c = 0; c < count; c++) {
      const at = x * count + c;
      const p = (centres.high[at] * HALF + centres.low[at]) / TOTAL;
      if (p <= tiny) {
        rest += p;
      } else if (this.holds(x, c)) {
        this.tails(x, c, rows, x, tails);
        for (let y = 0; y < rows.size; y++) if (!this.holds(y, c)) total[y] += p * tails[level[y]];
      } else {
        for (let y = 0; y < rows.size; y++) {
          if (this.holds(y, c) && level[y] < BINS) total[y] += p * this.outer[y * BINS + level[y]];
        }
      }
    }
    let most = 0;
    for (let y = 0; y < rows.size; y++) if (y !== x) most = Math.max(most, total[y] + rest);
    return most * (1 + 1e-12);
  }

  private holds(record: number, centre: number): boolean {
    return this.edge.inside[record * this.edge.centres.outputs + centre] === 1;
  }

  /** By level: the mass, under a row, of outputs whose log-ratio to the common row reaches it. */
  private tails(x: number, c: number, under: Weights, row: number, out: Float64Array): void {
    const { rows, outside } = this.edge;
    const m = rows.outputs;
    out.fill(0);
    for (let y = 0; y < m; y++) {
      const [i, j, k] = [x * m + y, c * m + y, row * m + y];
      const mass = under.high[k] * HALF + under.low[k];
      if (mass === 0) continue;
      const steps = (Math.abs(rows.logs[i] - outside.logs[j]) + 1e-12) / this.step;
      out[steps >= BINS - 1 ? BINS - 1 : Math.floor(steps)] += mass / TOTAL;
    }
    for (let b = BINS - 2; b >= 0; b--) out[b] += out[b + 1];
  }
}

function gap({ rows, outside }: Edge, x: number, c: number): number {
  const m = rows.outputs;
  let most = 0;
  for (let y = 0; y < m; y++) most = Math.max(most, Math.abs(rows.logs[x * m + y] - outside.logs[c * m + y]));
  return most;
}

/** Whether some output is impossible outside a ball and possible inside. */
function unbounded(rows: Weights, outside: Weights): boolean {
  const m = rows.outputs;
  const zero = (weights: Weights, at: number) => weights.high[at] === 0 && weights.low[at] === 0;
  for (let y = 0; y < m; y++) {
    let used = false;
    for (let x = 0; x < rows.size && !used; x++) used = !zero(rows, x * m + y);
    for (let c = 0; c < outside.size && used; c++) if (zero(outside, c * m + y)) return true;
  }
  return false;
}
