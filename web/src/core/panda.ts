/**
 * Tables of PAnDA: the law of Phase I, the rows of Phase II, and the account of
 * both, computed again on these very integers (docs/panda.md, docs/format.md).
 *
 *   balls   a centre is drawn; a record's own row fades into that of everybody outside at the edge
 *   coins   candidates are selected by coins; the nearest selected one's row is used
 *
 * Neither the centre nor the selected candidates leave this device: one report does.
 */

import {
  audit, type AuditOptions, auditRecord, type AuditResult, decodeAll, HALF, LOG_ERROR, type OwnAudit, rowOf,
  type Told, TOTAL, type Weights, weightsFrom,
} from "./audit";
import type { Bytes } from "./bytes";
import { CoinLaw, flip, type Selection } from "./coins";
import { Container, type Header } from "./container";
import { FormatError } from "./errors";
import { identityOf } from "./identity";
import { type Centre, commonRow, Lattice } from "./lattice";
import { Haversine } from "./metric";
import { choose } from "./sampler";
import { CompactTable } from "./table";

const MOST_ENTRIES = 30_000_000;

type PhasedHeader = Header & Required<Pick<Header, "selection">>;

/** Where random words come from: the operating system's generator. */
export type Source = () => bigint;
export const systemWord: Source = () => crypto.getRandomValues(new BigUint64Array(1))[0];

/** What both kinds share: the law of a report, and what it costs. */
export abstract class PandaTable {
  constructor(
    readonly header: PhasedHeader, readonly metric: Haversine, readonly outputs: Int32Array,
    readonly rows: Weights, private readonly open: Container,
  ) {}

  /** SHA-256 over everything that has a meaning. */
  identity(): Promise<string> {
    if (this.open.has("weights")) return identityOf(this.open);
    const { low, high, size, outputs: m } = this.rows;
    const weights = BigUint64Array.from(low, (part, k) => (BigInt(high[k]) << 32n) | BigInt(part));
    return identityOf(this.open, [[size, m], weights]);
  }

  get epsilon(): number {
    return this.header.epsilon;
  }

  get delta(): number {
    return this.header.selection.delta;
  }

  get size(): number {
    return this.metric.size;
  }

  /** Both phases for a record: the column that is reported. */
  abstract draw(record: number, word: Source): number;

  /** Pr[report | record] with Phase I summed out. */
  abstract shares(record: number): Float64Array;

  abstract audit(options: AuditOptions): Promise<AuditResult>;

  /** What a record's own releases tell, against every other record. */
  protected abstract ownFacts(record: number): { holds: boolean; epsilon: number; violation: number };

  private everyone: Float64Array[] | null = null;

  own(record: number, distances: readonly number[]): OwnAudit {
    this.everyone ??= Array.from({ length: this.size }, (_, x) => this.shares(x));
    const mine = this.everyone[record];
    const told: Told[] = distances.map((distance) => {
      let [guess, records]: [number | null, number] = [null, 0];
      this.everyone?.forEach((other, x) => {
        if (x === record || this.metric.distance(record, x) > distance) return;
        const variation = mine.reduce((sum, share, y) => sum + Math.abs(share - other[y]), 0);
        guess = Math.max(guess ?? 0, 0.5 + variation / 4);
        records++;
      });
      return { distance, guess, records };
    });
    return { ...this.ownFacts(record), pairs: this.size - 1, told };
  }

  static async read(file: Bytes): Promise<PandaTable> {
    const archive = await Container.open(file);
    const { header } = archive;
    const { domain, selection } = header;
    if (!selection) throw new FormatError("otherFormat");
    if (domain.kind !== "haversine" || domain.unit !== "km" || header.outputs.kind !== "records") {
      throw new FormatError("noMap");
    }
    if (!(selection.delta >= 0 && selection.delta < 1)) throw new FormatError("damaged", "delta is none");
    const size = whole(archive.length("lat"));
    const metric = new Haversine(await archive.floats("lat", size), await archive.floats("lon", size));
    const m = whole(archive.length("outputs"));
    const outputs = await archive.records("outputs", size, m);
    const count = archive.has("weights") ? whole(archive.length("weights")) : size;
    if (count * m > MOST_ENTRIES) throw new FormatError("tooLarge");
    const rows = archive.has("weights")
      ? weightsFrom(await archive.integers("weights", count, m), count, m)
      : await decodeAll(await CompactTable.of(archive));
    const parts = [{ ...header, selection }, metric, outputs, rows] as const;
    if (selection.kind === "ball" && count === size) return new PandaBalls(...parts, archive);
    if (selection.kind === "coins") return PandaCoins.from(archive, ...parts);
    throw new FormatError("otherFormat");
  }
}

function whole(value: unknown): number {
  if (!(Number.isInteger(value) && (value as number) > 0)) throw new FormatError("damaged", "a count is none");
  return value as number;
}

function real(value: unknown): number {
  if (typeof value !== "number" || !Number.isFinite(value)) throw new FormatError("damaged", "a number is none");
  return value;
}

function add(to: Float64Array, share: number, weights: Weights, row: number): void {
  const { low, high, outputs: m } = weights;
  for (let y = 0, k = row * m; y < m; y++, k++) to[y] += (share * (high[k] * HALF + low[k])) / TOTAL;
}

/** Visits records one after the other, until the time is over. */
async function visited(
  size: number, options: AuditOptions, began: number, visit: (record: number) => number,
): Promise<{ worst: number; seen: number }> {
  let [worst, rested] = [0, performance.now()];
  for (let x = 0; x < size; x++) {
    worst = Math.max(worst, visit(x));
    const now = performance.now();
    if (now - began > 1000 * options.limit) return { worst, seen: x + 1 };
    if (now - rested > 60) {
      options.onProgress(x / size);
      await new Promise((resolve) => setTimeout(resolve));
      rested = performance.now();
    }
  }
  return { worst, seen: size };
}

class PandaBalls extends PandaTable {
  private readonly law: Lattice;

  constructor(
    header: PhasedHeader, metric: Haversine, outputs: Int32Array, rows: Weights, open: Container,
  ) {
    super(header, metric, outputs, rows, open);
    const { epsilon: first, edge, radius, delta } = header.selection;
    if (delta !== 0) throw new FormatError("damaged", "balls need no delta");
    this.law = new Lattice(metric, real(first), real(radius), header.epsilon - real(first), real(edge));
  }

  /** The row of everybody outside a ball, and how often each record reports from it, out of 2^62. */
  private fading(centre: Centre): { common: BigUint64Array; share: (record: number) => bigint } {
    const { common, spread } = commonRow(taken(this.rows, this.law.ball(centre)));
    return { common, share: (record) => this.law.share(this.law.depth(this.law.at(record), centre), spread) };
  }

  draw(record: number, word: Source): number {
    const centre = this.law.draw(this.law.at(record), (count) => BigUint64Array.from({ length: count }, word));
    const { common, share } = this.fading(centre);
    const [report, coin] = [word(), BigInt.asUintN(62, word())];
    return choose(coin < share(record) ? common : rowOf(this.rows, record), report);
  }

  private laws: Float64Array[] | null = null;

  shares(record: number): Float64Array {
    this.laws ??= this.sums();
    return this.laws[record];
  }

  /** Over all centres, for all records. */
  private sums(): Float64Array[] {
    const { size } = this;
    const out = Array.from({ length: size }, () => new Float64Array(this.outputs.length));
    const own = new Float64Array(size);
    for (const [centre, chances] of this.law.releases()) {
      const { common, share } = this.fading(centre);
      const row = Float64Array.from(common, (weight) => Number(weight) / TOTAL);
      for (let x = 0; x < size; x++) {
        const part = (chances[x] * Number(share(x))) / TOTAL;
        own[x] += chances[x] - part;
        for (let y = 0; y < row.length; y++) out[x][y] += part * row[y];
      }
    }
    out.forEach((law, x) => add(law, own[x], this.rows, x));
    return out;
  }

  /** What centre and edge leave for the rows; that is all that is audited, the rest is proved. */
  private get claim() {
    const { metric, outputs, law } = this;
    return { metric, outputs, epsilon: law.second - law.edge };
  }

  async audit(options: AuditOptions): Promise<AuditResult> {
    const rows = await audit(this.claim, this.rows, options);
    const { epsilon: first, edge } = this.law;
    return {
      ...rows, epsilon: first + edge + rows.epsilon, claimed: this.epsilon,
      account: { violation: 0, delta: 0, first, pairs: rows.covered },
    };
  }

  protected ownFacts(record: number) {
    const rows = auditRecord(this.claim, this.rows, record, []);
    return { holds: rows.holds, epsilon: this.law.epsilon + this.law.edge + rows.epsilon, violation: 0 };
  }
}

/** Some rows of a table. */
/** Some of the rows. */
export function taken(weights: Weights, records: readonly number[]): Weights {
  const { outputs: m } = weights;
  const pick = <T extends Uint32Array | Float64Array>(from: T, to: T): T => {
    records.forEach((x, k) => to.set(from.subarray(x * m, (x + 1) * m), k * m));
    return to;
  };
  const entries = records.length * m;
  const [low, high] = [weights.low, weights.high].map((part) => pick(part, new Uint32Array(entries)));
  return { size: records.length, outputs: m, low, high, logs: pick(weights.logs, new Float64Array(entries)), broken: -1 };
}

class PandaCoins extends PandaTable {
  /** What rows of candidates differ by, in nats, by positions. */
  private readonly budgets: Float64Array;

  private constructor(
    header: PhasedHeader, metric: Haversine, outputs: Int32Array, rows: Weights,
    readonly law: CoinLaw, readonly row: Int32Array, private readonly blind: number, open: Container,
  ) {
    super(header, metric, outputs, rows, open);
    const n = row.length;
    this.budgets = new Float64Array(n * n);
    const m = rows.outputs;
    for (let a = 0; a < n; a++) {
      for (let b = 0; b < a; b++) {
        let gap = 0;
        for (let y = 0; y < m; y++) {
          gap = Math.max(gap, Math.abs(rows.logs[row[a] * m + y] - rows.logs[row[b] * m + y]));
        }
        this.budgets[a * n + b] = this.budgets[b * n + a] = row[a] === row[b] ? 0 : gap + LOG_ERROR;
      }
    }
  }

  static async from(
    archive: Container, header: PhasedHeader, metric: Haversine, outputs: Int32Array, rows: Weights,
  ): Promise<PandaCoins> {
    const said = header.selection as unknown as Selection;
    const n = whole(archive.length("candidates"));
    const size = metric.size;
    const candidates = await archive.records("candidates", size, n);
    const row = await archive.records("anchor_rows", rows.size, n);
    if (candidates.some((record, k) => k > 0 && record <= candidates[k - 1])) {
      throw new FormatError("damaged", "the candidates do not ascend");
    }
    if (rows.broken >= 0) throw new FormatError("damaged", "an output is possible for some anchors alone");
    checkSelection(said);
    const m = outputs.length;
    const prior = await archive.prior(size);
    const given = archive.has("loss") ? await archive.floats("loss", size, m) : null;
    const { power } = header.loss;
    if (!given && power === null) throw new FormatError("damaged", "the losses are missing");
    const loss = (x: number, y: number) => given?.[x * m + y] ?? metric.distance(x, outputs[y]) ** (power ?? 1);
    const expected = Array.from(outputs, (_, y) => prior.reduce((sum, p, x) => sum + p * loss(x, y), 0));
    const blind = expected.indexOf(expected.reduce((a, b) => Math.min(a, b)));
    return new PandaCoins(
      header, metric, outputs, rows, new CoinLaw(metric, said, candidates), row, blind, archive,
    );
  }

  draw(record: number, word: Source): number {
    for (const a of this.law.ranking(record)) {
      if (flip(this.law.probability(record, a), word())) return choose(rowOf(this.rows, this.row[a]), word());
    }
    // Nobody selected: what is best without a record, for which any word will do.
    word();
    return this.blind;
  }

  shares(record: number): Float64Array {
    const out = new Float64Array(this.outputs.length);
    let left = 1;
    this.law.surrogates(record).forEach((v, a) => {
      left -= v;
      if (v > 0) add(out, v, this.rows, this.row[a]);
    });
    out[this.blind] += Math.max(0, left);
    return out;
  }

  private violation(x: number, others: number): number {
    let worst = 0;
    for (let y = 0; y < others; y++) {
      if (y !== x) worst = Math.max(worst, this.law.violation(x, y, this.epsilon, this.budgets, this.delta * 1e-6));
    }
    return worst;
  }

  private rate(x: number, others: number): number {
    let most = 0;
    for (let y = 0; y < others; y++) {
      if (y !== x) most = Math.max(most, this.law.leakage(x, y) / this.metric.distance(x, y));
    }
    return most;
  }

  async audit(options: AuditOptions): Promise<AuditResult> {
    const began = performance.now();
    let first = 0;
    const found = await visited(this.size, options, began, (x) => {
      first = Math.max(first, this.rate(x, x));
      return this.violation(x, x);
    });
    const pairs = (this.size * (this.size - 1)) / 2;
    const covered = (found.seen * (found.seen - 1)) / 2;
    return {
      holds: this.within(found.worst) && first <= this.epsilon,
      epsilon: this.epsilon, claimed: this.epsilon, worst: [0, 0, 0], distance: 0, pairs,
      complete: found.seen === this.size, within: found.seen === this.size ? Infinity : 0, covered, sampled: 0,
      seconds: (performance.now() - began) / 1000,
      account: {
        violation: found.worst, delta: this.delta, first, pairs: covered,
      },
    };
  }

  private within(violation: number): boolean {
    return violation <= this.delta;
  }

  protected ownFacts(record: number) {
    const violation = this.violation(record, this.size);
    const holds = this.within(violation) && this.rate(record, this.size) <= this.epsilon;
    return { holds, epsilon: this.epsilon, violation };
  }
}

/** Refuse parameters of coins under which some outcome is certain or impossible. */
export function checkSelection(said: Selection): void {
  const { decay, alpha, rate, radius, tail } = said;
  const right = ["exponential", "power", "logistic"].includes(decay) && alpha > 0 && alpha < 1
    && Number.isFinite(rate) && rate >= 0 && !(decay === "power" && rate === 0)
    && (radius === null || (Number.isFinite(radius) && radius > 0))
    && (tail === "clip" || (tail > 0 && tail < 1));
  if (!right) throw new FormatError("damaged", "the selection cannot be used");
}
