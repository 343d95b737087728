/** What the page works with: one deployment, checked, before any place is known. */

import type { Api, Deployment, TableInfo } from "./api";
import { Area } from "./area";
import { type Bytes, sha256, utf8 } from "./bytes";
import { CoinLaw } from "./coins";
import { FormatError, PrivacyError, SignatureError } from "./errors";
import { EverywhereTable } from "./everywhere";
import { type KeyStore, type Trusted, trustedKeys } from "./keypin";
import type { Charge } from "./ledger";
import { APART_KM, Lattice } from "./lattice";
import { checkLog, checkRound, type LogHead } from "./log";
import { Haversine } from "./metric";
import { checkSelection, PandaTable } from "./panda";
import { AnchorsPlan, BallPlan, EverywherePlan, PandaPlan, type Plan, TablePlan } from "./plan";
import { keyId, type OperatorKey, tableBytes, verifyAny } from "./signing";
import {
  checkSeen, LEAST_AREA_KM2, LEAST_PLACES, readStatement, SNAP_KM, type Statement, statementBytes,
} from "./statement";
import { headerOf } from "./container";
import { checkOutputs } from "./rows";
import { CompactTable, fingerprint } from "./table";

export interface Session {
  readonly deployment: Deployment;
  /** The table in force; null for rounds of anchors, which have none. */
  readonly info: TableInfo | null;
  readonly plan: Plan;
  /** What stands for places outside, and how far a point of it is from a record at most, in km. */
  readonly area: Pick<Area, "clamp">;
  readonly holeKm: number;
  readonly stated: Statement;
  /** The head of the operator's log, which has the table and the statement. */
  readonly log: LogHead;
  readonly key: OperatorKey;
  /** Public keys that sign for the operator now. */
  readonly keys: readonly string[];
  /** Whether the key was seen for the first time, and so taken on trust. */
  readonly firstKey: boolean;
  /** The id of a domain whose streets may be drawn. */
  readonly streets: string | null;
  /** Where keys, heads and statements are remembered. */
  readonly store: KeyStore;
  /** What was agreed to: the table's identity, or the statement's where there is none. */
  readonly agreed: string;
}

/** Room in the books for a one-use token. */
const PROOF_BYTES = 512;
const KINDS: readonly string[] = ["table", "panda", "ball", "anchors"];

/** Deployments that this page can serve: about places on a map, with a proven guarantee. */
export function usable(deployments: readonly Deployment[]): Deployment[] {
  return deployments.filter(({ kind, table, guarantee, statement }) => {
    if (!KINDS.includes(kind) || guarantee === null) return false;
    if (kind !== "anchors" && table === undefined) return false;
    try {
      return (JSON.parse(statement) as Statement).metric === "haversine";
    } catch {
      return false;
    }
  });
}

/** The operator's key, as it was pinned or succeeded, and the keys that sign for it. */
export async function trustedKey(
  api: Api, expected: string | null, store: KeyStore = localStorage,
): Promise<Trusted> {
  const service = await api.service();
  return trustedKeys(store, service.key, service.keys, expected, Date.now() / 1000);
}

/** Fetch everything that the deployment consists of; check signatures, checksums and claims. */
export async function openSession(
  api: Api, deployment: Deployment, trusted: Trusted,
  onProgress: (share: number) => void, store: KeyStore = localStorage,
): Promise<Session> {
  const { key, keys } = trusted;
  const info = deployment.kind === "anchors" ? null : deployment.table ?? null;
  if (!info && deployment.kind !== "anchors") throw new FormatError("noTable");
  if (info) {
    const names = await Promise.all(keys.map(keyId));
    if (!names.includes(info.key_id)) throw new SignatureError("otherKey");
    await verifyAny(keys, tableBytes(info), info.signature);
  }
  const stated = await readStatement(keys, deployment);
  const log = await checkLog(api, keys, store, [
    ...(info ? [tableBytes(info)] : []), await statementBytes(deployment.name, deployment.statement),
  ]);
  if (!info) await checkRound(log, deployment.name, deployment.round);
  const { plan, streets } = await planOf(api, deployment, info, onProgress);
  const domain = info ? info.domain : stated.domain;
  const claims = [
    plan.epsilon === deployment.guarantee?.epsilon,
    plan.delta === deployment.guarantee?.delta,
    // Without the map: the signed statement has the places that are shown.
    plan.kind === "ball" || (await fingerprint(plan.places, plan.labels)) === domain,
    stated.domain === domain,
    !info || plan.kind === "ball" || plan.places.size === info.records,
    !info || plan.outputs.length === info.outputs,
    !info || plan.kind === "ball" || plan.epsilon === info.epsilon,
    !info || !plan.table || (await plan.table.identity()) === info.identity,
  ];
  if (claims.includes(false)) throw new FormatError("otherTable");
  const { area, holeKm } = checkedArea(plan);
  await checkSeen(store, stated);
  const agreed = info ? info.identity : await sha256(utf8(deployment.name + stated.selection + stated.epsilon));
  return {
    deployment, info, plan, area, holeKm, stated, log: log.head, key, keys, firstKey: trusted.first, streets, store,
    agreed,
  };
}

/** The area of a plan; refused where it is small, has few places, or holes. */
function checkedArea(plan: Plan): { area: Pick<Area, "clamp">; holeKm: number } {
  const mesh = plan instanceof EverywherePlan ? plan.table.mesh : null;
  const balls = plan instanceof BallPlan ? plan.balls : null;
  const area = mesh ? mesh.outline : Area.around(plan.places);
  const count = balls ? balls.records : plan.places.size;
  if (count < LEAST_PLACES || area.size < LEAST_AREA_KM2) {
    throw new PrivacyError("smallArea", count, Number(area.size.toPrecision(2)));
  }
  const holeKm = mesh ? mesh.resolution : balls ? balls.snap : area.hole(plan.places);
  if (holeKm > SNAP_KM) throw new PrivacyError("holes", Number(holeKm.toPrecision(3)), SNAP_KM);
  // A centre is drawn for a place wherever it is.
  return { area: balls ? { clamp: (place) => place } : area, holeKm };
}

/** A table over places: how far apart records are by other metrics is the operator's word. */
async function mapTable(file: Bytes): Promise<CompactTable> {
  const table = await CompactTable.read(file);
  const { kind } = table.header.domain;
  if (kind !== "haversine") throw new FormatError("metric", kind);
  return table;
}

async function planOf(
  api: Api, deployment: Deployment, info: TableInfo | null, onProgress: (share: number) => void,
): Promise<{ plan: Plan; streets: string | null }> {
  if (info && (deployment.kind === "table" || deployment.kind === "panda")) {
    const file: Bytes = await api.tableFile(info, onProgress);
    let plan: Plan;
    if (deployment.kind === "panda") plan = new PandaPlan(await PandaTable.read(file), file);
    else if (headerOf(file).mesh) plan = new EverywherePlan(await EverywhereTable.read(file), file);
    else plan = new TablePlan(await mapTable(file), file);
    return { plan, streets: info.streets };
  }
  if (deployment.kind === "ball") return { plan: ballPlan(deployment, info), streets: info?.streets ?? null };
  const name = deployment.domain ?? "";
  const detail = await api.domain(name);
  if (detail.kind !== "haversine" || !detail.lat || !detail.lon) throw new FormatError("noMap");
  const places = new Haversine(Float64Array.from(detail.lat), Float64Array.from(detail.lon));
  const streets = info?.streets ?? (detail.streets ? name : null);
  const { selection, outputs, epsilon, delta } = deployment;
  if (!selection || !outputs || !epsilon || !delta) throw new FormatError("otherTable");
  checkSelection(selection);
  const everyone = Int32Array.from({ length: places.size }, (_, k) => k);
  const candidates = selection.candidates ? Int32Array.from(selection.candidates).sort() : everyone;
  const all = [...candidates, ...outputs];
  const distinct = new Set(candidates).size === candidates.length && new Set(outputs).size === outputs.length;
  if (!distinct || all.some((record) => !(Number.isInteger(record) && record >= 0 && record < places.size))) {
    throw new FormatError("otherTable");
  }
  const law = new CoinLaw(places, selection, candidates);
  return { plan: new AnchorsPlan(places, Int32Array.from(outputs), law, epsilon, delta), streets };
}

function ballPlan(deployment: Deployment, info: TableInfo | null): BallPlan {
  const { epsilon_1: first, edge, radius, snap, rows: root, tiles, places: shown, outputs, guarantee } = deployment;
  if (!info || !first || !edge || !radius || !snap || !root || !tiles || !shown || !outputs || !guarantee) {
    throw new FormatError("otherTable");
  }
  checkOutputs(outputs, info.records);
  if (shown.lat.length !== shown.lon.length || outputs.length > shown.lat.length) throw new FormatError("otherTable");
  const places = new Haversine(Float64Array.from(shown.lat), Float64Array.from(shown.lon));
  const second = info.epsilon + edge;
  // Rounding may make the server claim a trifle more; never less is charged.
  if (first + second > guarantee.epsilon * (1 + 1e-12)) throw new FormatError("otherTable");
  const law = new Lattice(places, first, radius, second, edge);
  if (!(law.least <= APART_KM)) throw new FormatError("otherTable");
  const balls = { outputs, root, tiles, records: info.records, table: info.epsilon, snap };
  return new BallPlan(places, law, balls, guarantee.epsilon);
}

/** What a report of this session is charged as. */
export function chargeOf(session: Session, server: string): Charge {
  const { plan, deployment, stated, info } = session;
  const lasting = plan.kind === "anchors";
  return {
    account: "haversine km",
    unit: "km",
    server,
    deployment: deployment.name,
    version: lasting ? 1 : deployment.version,
    domain: stated.domain,
    epsilon: plan.epsilon,
    delta: plan.delta,
    table: info?.identity ?? null,
    quota: stated.reports_per_period,
    quotaS: stated.period_s,
    lasting,
    fresh: plan.kind === "everywhere",
    oneUse: stated.one_use ?? false,
    room: lasting ? 8 * plan.places.size : stated.one_use ? PROOF_BYTES : 0,
  };
}
