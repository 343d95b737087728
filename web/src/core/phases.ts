/**
 * The steps between Phase I and the report, where a server has the rows: a ball around the centre that
 * was drawn, or a round over everybody's anchors. What was drawn is in the books before each step,
 * so that all of them can be done again; an output is drawn once.
 */

import { type Api, ApiError } from "./api";
import { audit, LOG_ERROR, rowOf, type Weights } from "./audit";
import { FormatError, PandaError, PrivacyError } from "./errors";
import { commonRow, placeOf } from "./lattice";
import type { Charge, Ledger, Release } from "./ledger";
import { Haversine } from "./metric";
import { AnchorsPlan, BallPlan } from "./plan";
import { quantise } from "./quantise";
import { taken } from "./panda";
import { areTiles, type Rows, rowsBytes, unpackBall, weighed } from "./rows";
import { draw } from "./sampler";
import { checkRound, freshLog } from "./log";
import type { Session } from "./session";
import { nearest } from "./snap";
import { verifyAny } from "./signing";

const POLL_MS = 500;
const LONGEST_POLL_MS = 5000;
/** Budgets are trimmed by ten times as much, relatively and absolutely. */
const BUDGET_ERROR = 1e-12;

export interface Waiting {
  /** For how long a round may take before the person is sent away, in milliseconds. */
  readonly wait: number;
  /** Whether somebody still waits. */
  readonly still: () => boolean;
}

/** A release with its output, whatever lay between; others come back as they are. */
export async function finish(
  api: Api, session: Session, ledger: Ledger, record: number, release: Release, token: string,
  waiting: Waiting,
): Promise<Release> {
  if (release.output !== null || release.state !== "charged") return release;
  const { plan } = session;
  if (plan instanceof BallPlan) return finishBall(api, session, plan, ledger, record, release, token);
  if (plan instanceof AnchorsPlan) return finishRound(api, session, plan, ledger, record, release, token, waiting);
  throw new PandaError("erased");
}

/** Refuse a second anchor set for a round before it is paid: a server would read it and not take it. */
export async function refuseSecondSet(
  api: Api, session: Session, ledger: Ledger, charge: Charge, record: number,
): Promise<void> {
  if (session.plan.kind !== "anchors" || (await ledger.known(charge, record))) return;
  const others = await ledger.unfinished(charge.server, charge.deployment);
  if (!others.length) return;
  const { round } = await api.deployment(charge.deployment);
  if (others.some((other) => other.round === round && round != null)) throw new PandaError("oneSet", round as number);
}

/** The member nearest to a record, by its place in `members`; of several the first. */
function nearestMember(metric: Haversine, members: readonly number[], record: number): number {
  let best = 0;
  for (let k = 1; k < members.length; k++) {
    if (metric.distance(record, members[k]) < metric.distance(record, members[best])) best = k;
  }
  return best;
}

/** Draw an entry's output from a row. */
async function drawOnce(
  ledger: Ledger, release: Release, outputs: ArrayLike<number>, row: BigUint64Array,
): Promise<Release> {
  return ledger.amend(release.entry, () => ({ output: outputs[draw(row)] }));
}

async function finishBall(
  api: Api, session: Session, plan: BallPlan, ledger: Ledger, cell: number, release: Release, token: string,
): Promise<Release> {
  const { centre } = release;
  if (centre === undefined) throw new PandaError("erased");
  const { name, version } = session.deployment;
  const { root, table, outputs, tiles } = plan.balls;
  const sent = await api.ball(name, centre, token);
  if (sent.version !== version || sent.version !== release.version) throw new PandaError("replaced");
  if (!areTiles(sent, tiles)) throw new FormatError("otherBall");
  const places = sent.lat.map((lat, k) => ({ lat, lon: sent.lon[k] }));
  const inside = plan.law.inside(places, sent.sizes, centre);
  if (!same(sent.centre, centre) || !inside) throw new FormatError("otherBall");
  // All reach into the ball, so no more than that is unpacked.
  const weights = taken(await unpackBall(sent, root, tiles, outputs.length), inside);
  const ball = new Haversine(Float64Array.from(sent.lat), Float64Array.from(sent.lon)).take(inside);
  // That rows fade is proved; what they tell of two records inside is audited.
  const claim = { metric: ball, outputs, epsilon: table };
  const whole = { limit: Infinity, samples: 0, onProgress: () => undefined };
  if (ball.size > 1 && !(await audit(claim, weights, whole)).holds) throw new PrivacyError("notPrivate");
  const place = placeOf(cell);
  const { record, km } = nearest(ball, place.lat, place.lon);
  const depth = Math.min(plan.law.depth(plan.law.among(place), centre), plan.balls.snap - km);
  const { common, spread } = commonRow(weights);
  const coin = BigInt.asUintN(62, crypto.getRandomValues(new BigUint64Array(1))[0]);
  // Whoever is outside, or near no record of the ball, always reports from the common row.
  const outside = coin < plan.law.share(depth, spread);
  return drawOnce(ledger, release, outputs, outside ? common : rowOf(weights, record));
}

async function finishRound(
  api: Api, session: Session, plan: AnchorsPlan, ledger: Ledger, record: number, begun: Release,
  token: string, waiting: Waiting,
): Promise<Release> {
  const { name } = session.deployment;
  let release = await upload(api, session, ledger, begun, token);
  const { anchors, round } = release;
  if (!anchors || round === undefined || round === null) throw new PandaError("erased");
  const state = await solved(api, name, round, waiting);
  if (state === "failed") {
    release = await ledger.amend(release.entry, () => ({ uploaded: false, round: null }));
    throw new PandaError("roundFailed", round);
  }
  const sent = await api.roundRows(name, round, token);
  const rows: Rows = { members: sent.anchors, outputs: sent.outputs, weights: sent.weights };
  await verifyAny(session.keys, await rowsBytes(name, sent.round, rows), sent.signature);
  const right = sent.round === round && same(rows.members, anchors) && same(rows.outputs, plan.outputs);
  if (!right) throw new FormatError("otherRound");
  // Without anchors all outputs are as likely: an error would tell that none was drawn.
  const none = !anchors.length;
  const weights = none ? quantise(new Float64Array(rows.outputs.length).fill(1), 1, rows.outputs.length) : weighed(rows);
  if (!none) checkBudgets(plan, anchors, weights);
  const row = none ? 0 : nearestMember(plan.places, anchors, record);
  return drawOnce(ledger, release, rows.outputs, rowOf(weights, row));
}

function same(given: readonly number[], wanted: ArrayLike<number>): boolean {
  return given.length === wanted.length && given.every((value, k) => value === wanted[k]);
}

/** The same anchors go to a later round where the one that was meant has closed. */
async function upload(
  api: Api, session: Session, ledger: Ledger, begun: Release, token: string,
): Promise<Release> {
  const { name: deployment } = session.deployment;
  let release = begun;
  if (release.uploaded) return release;
  const send = async () => {
    const { round, anchors } = release;
    if (!anchors || round === undefined || round === null) throw new PandaError("erased");
    await api.upload(deployment, round, anchors, token);
    return ledger.amend(release.entry, () => ({ uploaded: true, version: round }));
  };
  if (release.round !== undefined && release.round !== null) {
    // Sent before, and perhaps accepted: the same set is accepted again.
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof ApiError && error.code === "round_closed")) throw error;
    }
  }
  const { round } = await api.deployment(deployment);
  if (round === undefined || round === null) throw new PandaError("noRound");
  if (round !== session.deployment.round) {
    await checkRound(await freshLog(api, session.keys, session.store), deployment, round);
  }
  release = await ledger.amend(release.entry, () => ({ round }));
  return send();
}

/** Ask until the round is solved or has failed. When to ask depends on the clock alone. */
async function solved(api: Api, deployment: string, round: number, waiting: Waiting): Promise<"solved" | "failed"> {
  const began = performance.now();
  for (let pause = POLL_MS; ; pause = Math.min(1.5 * pause, LONGEST_POLL_MS)) {
    const { state } = await api.round(deployment, round);
    if (state === "solved" || state === "failed") return state;
    if (performance.now() + pause - began > waiting.wait || !waiting.still()) throw new PandaError("roundOpen", round);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/** Refuse rows that differ by more than the certificate counted with. */
export function checkBudgets(plan: AnchorsPlan, anchors: readonly number[], weights: Weights): void {
  const { budgets, law } = plan;
  if (!budgets) throw new PandaError("notAudited");
  const n = law.candidates.length;
  const at = anchors.map((anchor) => law.candidates.indexOf(anchor));
  const m = weights.outputs;
  let wrong = weights.broken >= 0 || at.includes(-1);
  for (let a = 0; a < at.length && !wrong; a++) {
    for (let b = 0; b < a && !wrong; b++) {
      let gap = 0;
      let equal = true;
      for (let y = 0, i = a * m, j = b * m; y < m; y++, i++, j++) {
        gap = Math.max(gap, Math.abs(weights.logs[i] - weights.logs[j]));
        equal &&= weights.low[i] === weights.low[j] && weights.high[i] === weights.high[j];
      }
      const room = budgets[at[a] * n + at[b]] * (1 + BUDGET_ERROR) + BUDGET_ERROR;
      wrong = !equal && gap + LOG_ERROR > room;
    }
  }
  if (wrong) throw new PrivacyError("notPrivate");
}
