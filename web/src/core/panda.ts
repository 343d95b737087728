/**
 * Tables of PAnDA: the law of Phase I, the rows of Phase II, and the account of
 * both, computed again on these very integers (docs/panda.md, docs/format.md).
 *
 *   balls   a centre is drawn; inside its ball a record has its own row, outside a common one
 *   coins   candidates are selected by coins; the nearest selected one's row is used
 *
 * Neither the centre nor the selected candidates leave this device: one report does.
 */

import {
  audit, type AuditOptions, auditRecord, type AuditResult, HALF, LOG_ERROR, type OwnAudit, rowOf, type Told,
  TOTAL, type Weights, weightsFrom,
} from "./audit";
import type { Bytes } from "./bytes";
import { CoinLaw, flip, type Selection } from "./coins";
import { EdgeAccount } from "./edge";
import { Container, type Header } from "./container";
import { FormatError } from "./errors";
import { identityOf } from "./identity";
import { Haversine } from "./metric";
import { choose } from "./sampler";

/** Ends of balls are distances between records: equal ones must not differ by rounding. */
const EDGE = 1 + 4e-15;

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
    return identityOf(this.open);
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
    const outputs = await archive.records("outputs", m, size);
    const count = whole(archive.length("weights"));
    if (count * m > MOST_ENTRIES) throw new FormatError("tooLarge");
    const rows = weightsFrom(await archive.integers("weights", count, m), count, m);
    const parts = [{ ...header, selection }, metric, outputs, rows] as const;
    if (selection.kind === "ball" && count === size) return PandaBalls.from(archive, ...parts);
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
  private readonly inside: Uint8Array;
  private edge: EdgeAccount | null = null;

  private constructor(
    header: PhasedHeader, metric: Haversine, outputs: Int32Array, rows: Weights,
    readonly centres: Int32Array, readonly law: Weights, readonly outside: Weights,
    /** What the file says of centre and table, which the audits confirm or refuse. */
    readonly first: number, readonly second: number, readonly radius: number, open: Container,
  ) {
    super(header, metric, outputs, rows, open);
    const count = centres.length;
    this.inside = new Uint8Array(metric.size * count);
    for (let x = 0; x < metric.size; x++) {
      for (let c = 0; c < count; c++) {
        this.inside[x * count + c] = Number(metric.distance(x, centres[c]) <= radius * EDGE);
      }
    }
  }

  static async from(
    archive: Container, header: PhasedHeader, metric: Haversine, outputs: Int32Array, rows: Weights,
  ): Promise<PandaBalls> {
    const said = header.selection;
    const count = whole(archive.length("centres"));
    const size = metric.size;
    if (count * size > MOST_ENTRIES) throw new FormatError("tooLarge");
    const centres = await archive.records("centres", count, size);
    const law = weightsFrom(await archive.integers("centre_weights", size, count), size, count);
    const m = outputs.length;
    if (said.outside !== "common") throw new FormatError("otherFormat");
    const outside = weightsFrom(await archive.integers("outside_weights", count, m), count, m);
    if (new Set(centres).size < count) throw new FormatError("damaged", "a centre is named twice");
    const made = new PandaBalls(
      header, metric, outputs, rows, centres, law, outside, real(said.epsilon),
      real(said.table_epsilon), real(said.radius), archive,
    );
    made.checkTwins(outside);
    return made;
  }

  /** Who sees a ball cannot tell centres with the same one apart; nor may the row outside. */
  private checkTwins(outside: Weights): void {
    const seen = new Map<string, number>();
    const { size, outputs: m } = outside;
    for (let c = 0; c < size; c++) {
      let key = "";
      for (let x = 0; x < this.size; x++) key += this.inside[x * size + c];
      const twin = seen.get(key);
      if (twin === undefined) seen.set(key, c);
      else if (rowOf(outside, c).some((weight, y) => weight !== rowOf(outside, twin)[y]) && m > 0) {
        throw new FormatError("damaged", "two centres have the same ball and different rows outside");
      }
    }
  }

  private rowsOf(record: number, centre: number): [Weights, number] {
    if (this.inside[record * this.centres.length + centre]) return [this.rows, record];
    return [this.outside, centre];
  }

  draw(record: number, word: Source): number {
    const centre = choose(rowOf(this.law, record), word());
    const [weights, row] = this.rowsOf(record, centre);
    return choose(rowOf(weights, row), word());
  }

  shares(record: number): Float64Array {
    const out = new Float64Array(this.outputs.length);
    const { low, high, outputs: count } = this.law;
    let own = 0;
    for (let c = 0; c < count; c++) {
      const share = (high[record * count + c] * HALF + low[record * count + c]) / TOTAL;
      if (this.inside[record * count + c]) own += share;
      else add(out, share, ...this.rowsOf(record, c));
    }
    add(out, own, this.rows, record);
    return out;
  }

  private get lawClaim() {
    return { metric: this.metric, outputs: this.centres, epsilon: this.first };
  }

  private get rowsClaim() {
    return { metric: this.metric, outputs: this.outputs, epsilon: this.second };
  }

  async audit(options: AuditOptions): Promise<AuditResult> {
    const began = performance.now();
    const left = () => ({ ...options, limit: options.limit - (performance.now() - began) / 1000 });
    const law = await audit(this.lawClaim, this.law, { ...left(), onProgress: (s) => options.onProgress(s / 3) });
    const rows = await audit(
      this.rowsClaim, this.rows, { ...left(), onProgress: (s) => options.onProgress((1 + s) / 3) },
    );
    const room = this.epsilon - law.epsilon;
    const fits = law.holds && rows.holds && rows.epsilon <= room;
    const edge = this.account;
    const found = await visited(
      this.size, { ...options, onProgress: (s) => options.onProgress((2 + s) / 3) }, began,
      (x) => edge.worst(x, room, this.delta),
    );
    return {
      ...rows,
      holds: fits && found.worst <= this.delta,
      epsilon: law.epsilon + rows.epsilon,
      claimed: this.epsilon,
      complete: law.complete && rows.complete && found.seen === this.size,
      within: Math.min(law.within, rows.within),
      seconds: (performance.now() - began) / 1000,
      account: {
        violation: found.worst, delta: this.delta, first: law.epsilon,
        pairs: (found.seen / this.size) * rows.pairs,
      },
    };
  }

  private get account(): EdgeAccount {
    const { metric, rows, law: centres, outside, inside } = this;
    this.edge ??= new EdgeAccount({ metric, rows, centres, outside, inside });
    return this.edge;
  }

  protected ownFacts(record: number) {
    const law = auditRecord(this.lawClaim, this.law, record, []);
    const rows = auditRecord(this.rowsClaim, this.rows, record, []);
    const epsilon = law.epsilon + rows.epsilon;
    const violation = this.account.worst(record, this.epsilon - law.epsilon, this.delta);
    const holds = law.holds && rows.holds && epsilon <= this.epsilon && violation <= this.delta;
    return { holds, epsilon, violation };
  }
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
    const candidates = await archive.records("candidates", n, size);
    const row = await archive.records("anchor_rows", n, rows.size);
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
