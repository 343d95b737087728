/**
 * What the operator signed about a deployment. The page believes this and nothing beside it, and
 * within limits of its own, which no operator moves.
 */

import type { AnchorsSelection, Deployment } from "./api";
import { type Bytes, canonicalJson, sha256, utf8 } from "./bytes";
import { FormatError, SignatureError } from "./errors";
import type { KeyStore } from "./keypin";
import type { Allowance } from "./ledger";
import { joined, pythonRepr, verifyAny } from "./signing";

export interface Statement {
  readonly statement: string;
  readonly name: string;
  readonly kind: string;
  readonly version: number;
  /** Seconds since 1970. */
  readonly issued: number;
  readonly metric: string;
  readonly unit: string;
  readonly domain: string;
  readonly epsilon: number | null;
  readonly delta: number;
  readonly period_s: number;
  readonly reports_per_period: number;
  readonly table_identity: string | null;
  readonly epsilon_1?: number | null;
  readonly edge?: number | null;
  readonly radius?: number | null;
  readonly snap?: number | null;
  /** The root over the tiles that balls are cut from, and how many they are. */
  readonly rows?: string | null;
  readonly tiles?: number | null;
  readonly places?: string | null;
  /** Lists and selections by the SHA-256 of their canonical JSON. */
  readonly outputs?: string | null;
  readonly selection?: string | null;
  /** Who collects the reports, what for, and the last day (UTC) on which they are taken. */
  readonly collector?: string;
  readonly purpose?: string;
  readonly until?: string | null;
  /** Days after which the server erases a report. */
  readonly retention_days?: number | null;
  /** Reports come with one-use tokens, which name nobody. */
  readonly one_use?: boolean;
}

/** Whether the last day of collecting is over. */
export function isOver(stated: Statement, now: number): boolean {
  return stated.until ? now >= Date.parse(`${stated.until}T00:00:00Z`) + 86_400_000 : false;
}

/** The most that the page begins with, whatever is suggested; a person may allow more. */
export const MOST_EPSILON = 10;
export const MOST_PERIOD_EPSILON = 30;
export const MOST_DELTA = 0.01;
export const MOST_PERIOD_DELTA = 0.05;
export const LEAST_PERIOD_S = 3600;
export const MOST_PERIOD_S = 31 * 86_400;
/** What the page takes part in, whatever is signed: so many places, in an area of so many square km,
 * no point of which is farther from all of them. Decided before any place is known. */
export const LEAST_PLACES = 10;
export const LEAST_AREA_KM2 = 0.1;
export const SNAP_KM = 10;

export async function statementBytes(name: string, text: string): Promise<Bytes> {
  return joined(["panda-mdp deployment 1", name, await sha256(utf8(text))]);
}

/** The statement about a deployment; refused unless it is signed and says what the server says. */
export async function readStatement(keys: readonly string[], said: Deployment): Promise<Statement> {
  await verifyAny(keys, await statementBytes(said.name, said.statement), said.signature);
  let stated: Statement;
  try {
    stated = JSON.parse(said.statement) as Statement;
  } catch {
    throw new SignatureError("noStatement");
  }
  const same: [unknown, unknown][] = [
    [stated.statement, "panda-mdp deployment 1"],
    [stated.name, said.name],
    [stated.kind, said.kind],
    // Rounds come and go under one deployment.
    [stated.version, said.kind === "anchors" ? 1 : said.version],
    [stated.period_s, said.period_s],
    [stated.reports_per_period, said.reports_per_period],
    [stated.collector ?? "", said.collector ?? ""],
    [stated.purpose ?? "", said.purpose ?? ""],
    [stated.until ?? null, said.until ?? null],
    [stated.retention_days ?? null, said.retention_days ?? null],
    [stated.one_use ?? false, said.one_use ?? false],
    [stated.epsilon, said.guarantee?.epsilon ?? null],
    [stated.delta, said.kind === "anchors" ? said.delta : said.guarantee?.delta],
    [stated.metric, "haversine"],
    [stated.unit, "km"],
  ];
  if (said.kind === "anchors") {
    const { selection, outputs } = said;
    if (!selection || !outputs) throw new SignatureError("saidOtherwise");
    same.push(
      [stated.outputs, await sha256(utf8(canonicalJson(outputs)))],
      [stated.selection, await sha256(utf8(selectionJson(selection)))],
    );
  } else {
    same.push([stated.domain, said.table?.domain], [stated.table_identity, said.table?.identity]);
  }
  if (said.kind === "ball") {
    const { lat = [], lon = [] } = said.places ?? {};
    const places = [lat, lon].map((side) => `[${side.map(pythonRepr).join(",")}]`).join(",");
    same.push(
      [stated.snap, said.snap], [stated.tiles, said.tiles], [stated.places, await sha256(utf8(`[${places}]`))],
      [stated.epsilon_1, said.epsilon_1], [stated.edge, said.edge], [stated.radius, said.radius],
      [stated.rows, said.rows], [stated.outputs, await sha256(utf8(canonicalJson(said.outputs)))],
    );
  }
  if (same.some(([a, b]) => a !== b)) throw new SignatureError("saidOtherwise");
  if (stated.one_use && said.kind !== "table" && said.kind !== "panda") throw new FormatError("otherTable");
  return stated;
}

/** Canonical JSON of a selection: its numbers are floats, which Python writes with a point. */
export function selectionJson(said: AnchorsSelection): string {
  const float = (value: number | null) => (value === null ? "null" : pythonRepr(value));
  const fields = {
    alpha: float(said.alpha),
    candidates: JSON.stringify(said.candidates ?? null),
    decay: JSON.stringify(said.decay),
    neighbours: String(said.neighbours),
    radius: float(said.radius),
    rate: float(said.rate),
    tail: said.tail === "clip" ? '"clip"' : float(said.tail),
  };
  return `{${Object.entries(fields).map(([name, text]) => `"${name}":${text}`).join(",")}}`;
}

const SEEN = "panda-mdp.statements";

/** Refuse a statement that is older than one seen before, or another one of its version. */
export async function checkSeen(store: KeyStore, stated: Statement): Promise<void> {
  const all = JSON.parse(store.getItem(SEEN) ?? "{}") as
    Record<string, { version: number; issued: number; content: string }>;
  const { issued, ...rest } = stated;
  const content = await sha256(utf8(canonicalJson(rest)));
  const before = all[stated.name];
  if (before) {
    const older = stated.version < before.version
      || (stated.version === before.version && issued < before.issued);
    if (older) throw new SignatureError("older", stated.version, before.version);
    if (stated.version === before.version && content !== before.content) {
      throw new SignatureError("twoStatements");
    }
  }
  store.setItem(SEEN, JSON.stringify({
    ...all, [stated.name]: { version: stated.version, issued, content },
  }));
}

/** What the books begin with: what is suggested, within the page's own bounds. */
export function limitsFrom(stated: Statement, epsilon: number): Allowance {
  const delta = Math.min(stated.delta, MOST_DELTA);
  return {
    delta,
    period_delta: Math.min(delta * stated.reports_per_period, MOST_PERIOD_DELTA),
    epsilon: Math.min(epsilon, MOST_EPSILON),
    period_epsilon: Math.min(epsilon * stated.reports_per_period, MOST_PERIOD_EPSILON),
    period_s: Math.min(Math.max(stated.period_s, LEAST_PERIOD_S), MOST_PERIOD_S),
  };
}
