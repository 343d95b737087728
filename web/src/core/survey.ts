/**
 * A survey for other programs: everything that the page does between a place and a report, without
 * the page. Signatures, claims and all pairs are checked before a place is taken, charges are
 * durable before anything is drawn, and only what was drawn ever leaves.
 */

import { Api } from "./api";
import type { AuditResult } from "./audit";
import { collect } from "./blind";
import { PandaError, PrivacyError } from "./errors";
import type { KeyStore } from "./keypin";
import { type Allowance, type Balance, Ledger, type LedgerOptions, type Release } from "./ledger";
import { Outbox } from "./outbox";
import { finish, refuseSecondSet } from "./phases";
import { cellOf } from "./lattice";
import {
  AnchorsChecks, AnchorsPlan, BallPlan, type Checks, checksOf, EverywherePlan, type Plan, shownAt, TablePlan,
} from "./plan";
import { chargeOf, openSession, type Session, trustedKey, usable } from "./session";
import { checkPlace, nearest } from "./snap";
import { limitsFrom } from "./statement";

export interface SurveyOptions {
  /** Which deployment; the first open one by default. */
  readonly deployment?: string;
  /** The id of the operator's key, as you have it from elsewhere; otherwise the first is pinned. */
  readonly key?: string;
  /** Where keys and tables are pinned; `localStorage` by default. */
  readonly store?: KeyStore;
  /** The database of the books; `indexedDB` by default. */
  readonly factory?: IDBFactory;
  /** Limits of your own, in place of what is suggested; the period stays as it was begun. */
  readonly limits?: Partial<Allowance>;
  /** Seconds for the audit; one that cannot cover all pairs in it is refused. */
  readonly auditSeconds?: number;
  /** Where true positions come from; the browser's by default. */
  readonly geolocation?: Pick<Geolocation, "getCurrentPosition">;
}

/** A drawn place: one of the table's public outputs. */
export interface Answer {
  readonly output: number;
  readonly lat: number;
  readonly lon: number;
}

/** What became of a report: accepted, with what was sent; or waiting for the network or refused. */
export interface Outcome {
  readonly state: "accepted" | "waiting" | "refused";
  /** Null where it was sent before in this period and erased, or was not sent yet. */
  readonly answer: Answer | null;
}

const UNAVAILABLE = 2;
/** How long a report waits for a round; called again, it goes on where it was. */
const ROUND_MS = 60_000;

export class Survey {
  private constructor(
    readonly api: Api, readonly session: Session, readonly audited: AuditResult,
    private readonly checks: Checks, private readonly ledger: Ledger,
    private readonly outbox: Outbox, private readonly source: SurveyOptions["geolocation"] | undefined,
    /** In 19 of 20 draws, whatever the place, the answer lies within so many km of it. A fact of
     * the table alone: one about the row that was drawn from would tell the place. Infinite where
     * rows come after Phase I. */
    readonly accuracyKm: number,
  ) {}

  /** Fetch a survey, check it and audit all pairs. Raises unless everything holds. */
  static async open(server: string | URL, options: SurveyOptions = {}): Promise<Survey> {
    const base = String(server);
    const api = new Api(new URL("v1/", base.endsWith("/") ? base : `${base}/`));
    const store = options.store ?? localStorage;
    const trusted = await trustedKey(api, options.key ?? null, store);
    const offered = usable(await api.deployments());
    const chosen = offered.find(({ name, open }) => options.deployment ? name === options.deployment : open);
    if (!chosen) throw new PandaError("noDeployment");
    const session = await openSession(api, chosen, trusted, () => undefined, store);
    const { plan } = session;
    const checks = plan instanceof AnchorsPlan && plan.source.kind === "anchors"
      ? new AnchorsChecks(plan.source, plan.law) : await checksOf(plan.source);
    const audited = await checks.audit({
      limit: options.auditSeconds ?? 600, samples: 0, onProgress: () => undefined,
    });
    if (plan instanceof AnchorsPlan && checks instanceof AnchorsChecks) plan.budgets = checks.budgets;
    if (!audited.holds || !audited.complete) throw new PrivacyError("notPrivate");
    const limits = { ...limitsFrom(session.stated, plan.epsilon), ...options.limits };
    const given: LedgerOptions = { marks: store, ...(options.factory ? { factory: options.factory } : {}) };
    const ledger = await Ledger.open(limits, given);
    return new Survey(
      api, session, audited, checks, ledger, new Outbox(ledger), options.geolocation,
      await farthest(plan),
    );
  }

  /** What is spent in the running period. */
  async balance(): Promise<Balance> {
    return this.ledger.balance(chargeOf(this.session, this.api.server).account);
  }

  /**
   * A place in place of the true one. Charged once per period and place: the same place has the
   * same answer. Whether you use it must not depend on what it is. Balls and anchors have a server
   * in between and answer to `report` alone.
   */
  async draw(lat: number, lon: number): Promise<Answer> {
    const { kind } = this.session.plan;
    // Before anything is paid for.
    if (kind === "ball" || kind === "anchors") throw new PandaError("needsReport");
    const { output } = await this.release(lat, lon);
    if (output === null) throw new PandaError("erased");
    return this.answer(output);
  }

  /**
   * Collect the running period's one-use tokens, for surveys that take reports with them alone; how
   * many are at hand then. The server sees who collects: do it some time before a report, or from
   * another network.
   */
  async collect(token: string): Promise<number> {
    return collect(this.api, this.session, this.ledger, token);
  }

  /** Draw and send, in one step; sending is repeated by `flush` where there was no network. The token
   * may be null where one-use tokens were collected. */
  async report(lat: number, lon: number, token: string | null): Promise<Outcome> {
    const first = await this.release(lat, lon);
    if (first.state === "accepted") return { state: "accepted", answer: null };
    const release = await finish(
      this.api, this.session, this.ledger, this.recordOf(lat, lon), first, token ?? "",
      { wait: ROUND_MS, still: () => true },
    );
    await this.outbox.put(this.session.deployment.name, release);
    await this.flush(token);
    const left = (await this.outbox.all()).find(({ id }) => id === release.report);
    if (left) return { state: left.state, answer: null };
    return { state: "accepted", answer: release.output === null ? null : this.answer(release.output) };
  }

  /** Send what waits. */
  async flush(token: string | null): Promise<void> {
    await this.outbox.flush(this.api, token);
  }

  /**
   * In place of `navigator.geolocation.getCurrentPosition`, with the same arguments: the position
   * that it hands over was drawn, and has neither altitude nor heading nor speed.
   */
  readonly getCurrentPosition = (
    success: PositionCallback, failure?: PositionErrorCallback | null, options?: PositionOptions,
  ): void => {
    const source = this.source ?? navigator.geolocation;
    const taken = ({ coords }: GeolocationPosition) => {
      this.draw(coords.latitude, coords.longitude).then(
        (answer) => success(positionOf(answer, 1000 * this.accuracyKm)),
        (error: unknown) => failure?.(positionError(error)),
      );
    };
    source.getCurrentPosition(taken, failure, options);
  };

  private recordOf(lat: number, lon: number): number {
    const place = this.session.area.clamp(checkPlace(lat, lon));
    const { plan } = this.session;
    if (plan instanceof BallPlan) return cellOf(place);
    if (plan instanceof EverywherePlan) return plan.table.locate(place).vertices[0];
    return nearest(plan.places, place.lat, place.lon).record;
  }

  private async release(lat: number, lon: number): Promise<Release> {
    const { plan } = this.session;
    const record = this.recordOf(lat, lon);
    const place = this.session.area.clamp(checkPlace(lat, lon));
    if (!this.checks.own(record, [], place).holds) throw new PrivacyError("notPrivate");
    const charge = chargeOf(this.session, this.api.server);
    await refuseSecondSet(this.api, this.session, this.ledger, charge, record);
    return this.ledger.release(charge, record, () => plan.first(record, place));
  }

  private answer(output: number): Answer {
    const { plan } = this.session;
    const at = shownAt(plan, output);
    return { output, lat: plan.places.lat[at], lon: plan.places.lon[at] };
  }
}

/** The largest distance, over all records, within which 19 of 20 of its reports lie. */
async function farthest(plan: Plan): Promise<number> {
  const { places, outputs } = plan;
  let most = 0;
  // As the rows lie in the file, so that every block is read once.
  const order = plan instanceof TablePlan ? plan.table.order : places.lat.keys();
  for (const record of order) {
    // Vertices beyond the rim of an area are nobody's place.
    if (plan instanceof EverywherePlan && !plan.table.mesh.locate(places.lat[record], places.lon[record])) continue;
    const shares = await plan.shares(record, { lat: places.lat[record], lon: places.lon[record] });
    if (!shares) return Infinity;
    const steps = Array.from(outputs, (output, y) => ({ km: places.distance(record, output), share: shares[y] }))
      .sort((a, b) => a.km - b.km);
    let sum = 0;
    for (const { km, share } of steps) {
      sum += share;
      if (sum >= 0.95) {
        most = Math.max(most, km);
        break;
      }
    }
  }
  return most;
}

function positionOf({ lat, lon }: Answer, accuracy: number): GeolocationPosition {
  const coords = {
    latitude: lat, longitude: lon, accuracy, altitude: null, altitudeAccuracy: null, heading: null,
    speed: null,
  };
  const timestamp = Date.now();
  return {
    coords: { ...coords, toJSON: () => coords }, timestamp, toJSON: () => ({ coords, timestamp }),
  };
}

function positionError(error: unknown): GeolocationPositionError {
  const message = error instanceof PandaError ? `${error.message}. ${error.remedy}`.trim() : "unknown";
  return { code: UNAVAILABLE, message, PERMISSION_DENIED: 1, POSITION_UNAVAILABLE: 2, TIMEOUT: 3 };
}
