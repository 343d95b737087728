/**
 * A deployment as the page draws from it. A plan is made of public things alone, before any place is
 * known; what it costs is the page's own reckoning.
 *
 *   table     epsilon of the table; `everywhere` where it is private at every point of an area
 *   panda     (epsilon, delta) of the file: both phases run here, and one report is sent
 *   ball      epsilon_1 + epsilon_2: a centre is sent, rows come back, a report is sent
 *   anchors   (epsilon, delta): anchors are sent, a round is solved, a report is sent
 */

import {
  audit, type AuditOptions, type AuditResult, auditRecord, decodeAll, type OwnAudit,
} from "./audit";
import type { Bytes } from "./bytes";
import { CoinLaw, type Selection } from "./coins";
import { FormatError } from "./errors";
import type { Place } from "./area";
import { EverywhereTable } from "./everywhere";
import type { First } from "./ledger";
import { type Lattice, placeOf } from "./lattice";
import { Haversine } from "./metric";
import { PandaTable, systemWord } from "./panda";
import { draw, shares } from "./sampler";
import { CompactTable } from "./table";

/** What another thread needs to check a plan by itself. */
export type Source =
  | { readonly kind: "table" | "panda" | "everywhere"; readonly file: Bytes }
  | {
    readonly kind: "ball"; readonly size: number; readonly first: number;
  }
  | {
    readonly kind: "anchors"; readonly lat: Float64Array; readonly lon: Float64Array;
    readonly selection: Selection; readonly candidates: Int32Array;
    readonly epsilon: number; readonly delta: number;
  };

/** What can be said about a plan, over all pairs and for one record. */
export interface Checks {
  audit(options: AuditOptions): Promise<AuditResult>;
  own(record: number, distances: readonly number[], place?: Place): OwnAudit;
}

export interface Plan {
  readonly kind: Source["kind"];
  readonly places: Haversine;
  /** Places that reports can name. */
  readonly outputs: Int32Array;
  readonly epsilon: number;
  readonly delta: number;
  readonly source: Source;
  /** What reports are drawn from, where all of it is here. */
  readonly table?: { identity(): Promise<string> };
  /** What records are called, where their file says so. */
  readonly labels?: unknown;
  /** Pr[report | record], for eyes; null where rows come after Phase I. */
  shares(record: number, place: Place): Promise<Float64Array | null>;
  /** The first draw for a record: a report, or what Phase I gives. */
  first(record: number, place: Place): Promise<First>;
}

export class TablePlan implements Plan {
  readonly kind = "table";
  readonly delta = 0;
  readonly source: Source;

  constructor(readonly table: CompactTable, file: Bytes) {
    this.source = { kind: "table", file };
  }

  get labels(): unknown {
    return this.table.header.domain.labels;
  }

  get places(): Haversine {
    return this.table.places;
  }

  get outputs(): Int32Array {
    return this.table.outputs;
  }

  get epsilon(): number {
    return this.table.epsilon;
  }

  async shares(record: number): Promise<Float64Array> {
    return shares(await this.table.row(record));
  }

  async first(record: number): Promise<First> {
    return { output: this.outputs[draw(await this.table.row(record))] };
  }
}

/** A place is not snapped: each report draws a vertex of its triangle, and pays. An answer that is
 * kept would tell that the same vertex was drawn again, which depends on the place beyond epsilon. */
export class EverywherePlan implements Plan {
  readonly kind = "everywhere";
  readonly delta = 0;
  readonly source: Source;

  constructor(readonly table: EverywhereTable, file: Bytes) {
    this.source = { kind: "everywhere", file };
  }

  get labels(): unknown {
    return this.table.header.domain.labels;
  }

  get places(): Haversine {
    return this.table.metric;
  }

  get outputs(): Int32Array {
    return this.table.outputs;
  }

  get epsilon(): number {
    return this.table.epsilon;
  }

  async shares(_: number, place: Place): Promise<Float64Array> {
    return this.table.shares(place);
  }

  async first(_: number, place: Place): Promise<First> {
    return { output: this.outputs[this.table.draw(place, systemWord)] };
  }
}

export class PandaPlan implements Plan {
  readonly kind = "panda";
  readonly source: Source;

  constructor(readonly table: PandaTable, file: Bytes) {
    this.source = { kind: "panda", file };
  }

  get labels(): unknown {
    return this.table.header.domain.labels;
  }

  get places(): Haversine {
    return this.table.metric;
  }

  get outputs(): Int32Array {
    return this.table.outputs;
  }

  get epsilon(): number {
    return this.table.epsilon;
  }

  get delta(): number {
    return this.table.delta;
  }

  async shares(record: number): Promise<Float64Array> {
    return this.table.shares(record);
  }

  async first(record: number): Promise<First> {
    return { output: this.outputs[this.table.draw(record, systemWord)] };
  }
}

/** What balls are cut from. */
export interface Balls {
  /** Records of the table; their places come first among those that are shown. */
  readonly outputs: readonly number[];
  /** The root over all tiles of the table, how many there are, and of how many records. */
  readonly root: string;
  readonly tiles: number;
  readonly records: number;
  /** What its rows tell, per km. */
  readonly table: number;
  /** How far from a place the record is whose row it takes, at most, in km. */
  readonly snap: number;
}

/** Nobody needs the map: `places` are those of the outputs, and what the plane of centres comes from. */
export class BallPlan implements Plan {
  readonly kind = "ball";
  readonly delta = 0;
  readonly outputs: Int32Array;
  readonly source: Source;

  constructor(
    readonly places: Haversine, readonly law: Lattice, readonly balls: Balls, readonly epsilon: number,
  ) {
    this.outputs = Int32Array.from(balls.outputs.keys());
    this.source = { kind: "ball", size: balls.records, first: law.epsilon };
  }

  async shares(): Promise<null> {
    return null;
  }

  async first(cell: number): Promise<First> {
    const words = (count: number) => crypto.getRandomValues(new BigUint64Array(count));
    return { output: null, centre: this.law.draw(this.law.among(placeOf(cell)), words) };
  }
}

/** Which of a plan's places an output is. */
export function shownAt(plan: Plan, output: number): number {
  return plan instanceof BallPlan ? plan.balls.outputs.indexOf(output) : output;
}

export class AnchorsPlan implements Plan {
  readonly kind = "anchors";
  readonly source: Source;
  /** What rows may differ by between candidates, in nats; null until the page has computed it. */
  budgets: Float64Array | null = null;

  constructor(
    readonly places: Haversine, readonly outputs: Int32Array, readonly law: CoinLaw,
    readonly epsilon: number, readonly delta: number,
  ) {
    const { selection, candidates } = law;
    this.source = { kind: "anchors", lat: places.lat, lon: places.lon, selection, candidates, epsilon, delta };
  }

  async shares(): Promise<null> {
    return null;
  }

  async first(record: number): Promise<First> {
    const words = crypto.getRandomValues(new BigUint64Array(this.law.candidates.length));
    return { output: null, anchors: this.law.select(record, words) };
  }
}

class TableChecks implements Checks {
  constructor(readonly table: CompactTable, readonly weights: Awaited<ReturnType<typeof decodeAll>>) {}

  audit(options: AuditOptions): Promise<AuditResult> {
    return audit(this.table, this.weights, options);
  }

  own(record: number, distances: readonly number[]): OwnAudit {
    return auditRecord(this.table, this.weights, record, distances);
  }
}

/** The centre's law holds by proof, at every place; the rows of a ball are audited when they come. */
class BallChecks implements Checks {
  constructor(private readonly given: Extract<Source, { kind: "ball" }>) {}

  async audit(): Promise<AuditResult> {
    const { size, first } = this.given;
    const pairs = (size * (size - 1)) / 2;
    return {
      holds: true, epsilon: first, claimed: first, worst: [0, 0, 0], distance: 0, pairs, complete: true,
      within: Infinity, covered: pairs, sampled: 0, seconds: 0,
    };
  }

  own(_: number, distances: readonly number[]): OwnAudit {
    const { size, first } = this.given;
    const told = distances.map((distance) => ({ distance, guess: null, records: 0 }));
    return { holds: true, epsilon: first, pairs: size - 1, told };
  }
}

/** The certificate over all pairs, with budgets that the rows of a round must keep. */
export class AnchorsChecks implements Checks {
  readonly law: CoinLaw;
  budgets: Float64Array | null = null;

  constructor(private readonly given: Extract<Source, { kind: "anchors" }>, law?: CoinLaw) {
    this.law = law ?? new CoinLaw(new Haversine(given.lat, given.lon), given.selection, given.candidates);
  }

  private pair(x: number, y: number): number {
    const { epsilon, delta } = this.given;
    return this.law.violation(x, y, epsilon, this.budgets as Float64Array, delta * 1e-6);
  }

  async audit(options: AuditOptions): Promise<AuditResult> {
    const began = performance.now();
    const { epsilon, delta } = this.given;
    const { law } = this;
    this.budgets ??= await law.budgets(
      epsilon, delta, (share) => options.onProgress(share / 2),
    );
    let [worst, first] = [0, 0];
    for (let x = 0; x < law.size; x++) {
      for (let y = 0; y < x; y++) {
        worst = Math.max(worst, this.pair(x, y));
        first = Math.max(first, law.leakage(x, y) / law.metric.distance(x, y));
      }
      if (x % 16 === 0) {
        options.onProgress(0.5 + x / law.size / 2);
        await new Promise((resolve) => setTimeout(resolve));
      }
    }
    const violation = worst;
    const pairs = (law.size * (law.size - 1)) / 2;
    return {
      holds: violation <= delta && first <= epsilon, epsilon, claimed: epsilon, worst: [0, 0, 0],
      distance: 0, pairs, complete: true, within: Infinity, covered: pairs, sampled: 0,
      seconds: (performance.now() - began) / 1000,
      account: { violation, delta, pairs, first },
    };
  }

  own(record: number, distances: readonly number[]): OwnAudit {
    const { delta } = this.given;
    let violation = 0;
    for (let y = 0; y < this.law.size; y++) {
      if (y !== record) violation = Math.max(violation, this.pair(record, y));
    }
    return {
      holds: violation <= delta, epsilon: this.given.epsilon,
      pairs: this.law.size - 1, violation,
      told: distances.map((distance) => ({ distance, guess: null, records: 0 })),
    };
  }
}

class PandaChecks implements Checks {
  constructor(private readonly table: PandaTable) {}

  audit(options: AuditOptions): Promise<AuditResult> {
    return this.table.audit(options);
  }

  own(record: number, distances: readonly number[]): OwnAudit {
    return this.table.own(record, distances);
  }
}

class EverywhereChecks implements Checks {
  constructor(private readonly table: EverywhereTable) {}

  audit(options: AuditOptions): Promise<AuditResult> {
    return this.table.audit(options);
  }

  own(_: number, distances: readonly number[], place?: Place): OwnAudit {
    if (!place) throw new FormatError("noMap");
    return this.table.own(place, distances);
  }
}

/** Checks of a plan, from what it was made of. */
export async function checksOf(
  source: Source, onProgress: (share: number) => void = () => undefined,
): Promise<Checks> {
  if (source.kind === "table") {
    const table = await CompactTable.read(source.file);
    return new TableChecks(table, await decodeAll(table, onProgress));
  }
  if (source.kind === "panda") return new PandaChecks(await PandaTable.read(source.file));
  if (source.kind === "everywhere") return new EverywhereChecks(await EverywhereTable.read(source.file));
  if (source.kind === "ball") return new BallChecks(source);
  if (source.kind === "anchors") return new AnchorsChecks(source);
  throw new FormatError("otherFormat");
}
