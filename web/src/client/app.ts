/** The page at work: from a place to a report. */

import type { Api } from "../core/api";
import { ApiError } from "../core/api";
import type { AuditResult, OwnAudit } from "../core/audit";
import { PandaError, PrivacyError } from "../core/errors";
import { pinTable, tableChanged } from "../core/keypin";
import { type Ledger, type Release } from "../core/ledger";
import { spread } from "../core/meaning";
import type { Outbox } from "../core/outbox";
import { draw, shares } from "../core/sampler";
import { SNAP_KM } from "../core/statement";
import { checkPlace, nearest, snap, type Snap } from "../core/snap";
import { distanceWords, wind } from "../core/words";
import { by, say } from "../dom";
import { MapView } from "../map/mapview";
import { Plane } from "../map/plane";
import { Auditor } from "./auditor";
import { PlaceList } from "./list";
import { paintScene, type Scene } from "./painter";
import { chargeOf, type Session } from "./session";
import type { TokenBox } from "./token";
import * as views from "./views";

/** Seconds that the first audit may take before it samples the rest. */
const FIRST_LIMIT = 20;

interface Picked {
  readonly lat: number;
  readonly lon: number;
  readonly snap: Snap;
  readonly row: BigUint64Array;
  own: OwnAudit | null;
  release: Release | null;
}

export class App {
  private readonly map: MapView;
  private readonly auditor = new Auditor();
  private readonly list: PlaceList;
  private readonly plane: Plane;
  private readonly scene: Scene;
  private audited: AuditResult | null = null;
  private picked: Picked | null = null;
  private asked = 0;
  private turn = 0;
  private busy = false;
  /** Whether the table was replaced since the last visit and the person has not agreed yet. */
  private replaced: boolean;

  constructor(
    private readonly api: Api, private readonly session: Session, private readonly ledger: Ledger,
    private readonly outbox: Outbox, private readonly tokens: TokenBox,
  ) {
    const { table } = session;
    const { lat, lon } = table.places;
    this.plane = Plane.around(lat, lon);
    const records = this.plane.points(lat, lon);
    this.scene = {
      records,
      outputs: Array.from(table.outputs, (k) => [records[2 * k], records[2 * k + 1]] as const),
      shares: null, place: null, record: null, drawn: null, grown: 1, shown: 0,
    };
    this.map = new MapView(by("map"), {
      onPick: (a, b) => void this.pick(a, b),
      onCursor: (a, b) => this.hear(a, b),
    });
    this.map.painter = (pen, map) => paintScene(pen, map, this.scene);
    this.map.setPlaces(this.plane, records);
    this.list = new PlaceList(by("list-area"), by("list-place"));
    this.list.fill(table.places, this.plane);
    views.showSigned(session);
    views.showCertificate(session);
    views.showCheck("audit", "wait", "Checking its privacy in this page…");
    const { deployment, info } = session;
    this.replaced = tableChanged(localStorage, deployment.name, info.sha256);
    if (this.replaced) views.showReplaced(info, () => void this.acceptTable());
    else pinTable(localStorage, deployment.name, info.sha256);
    this.listen();
    this.startAudit();
    by("hint").hidden = false;
  }

  async start(): Promise<void> {
    await this.showBooks();
    await this.showAction();
    await Promise.all([this.showStreets(), this.flush()]);
  }

  private async showStreets(): Promise<void> {
    const domain = this.session.info.streets;
    try {
      this.map.setStreets(domain ? await this.api.streets(domain) : null);
    } catch {
      // Streets are for the eye; the map works without them.
      this.map.setStreets(null);
    }
  }

  private async acceptTable(): Promise<void> {
    pinTable(localStorage, this.session.deployment.name, this.session.info.sha256);
    this.replaced = false;
    by("alarm").hidden = true;
    await this.showAction();
  }

  private listen(): void {
    by("zoom-in").addEventListener("click", () => this.map.zoom(1.5));
    by("zoom-out").addEventListener("click", () => this.map.zoom(1 / 1.5));
    by("zoom-all").addEventListener("click", () => this.map.fit());
    by("draw").addEventListener("click", () => void this.draw());
    by("report").addEventListener("click", () => void this.report());
    by("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.report();
    });
    by("list-pick").addEventListener("click", () => {
      const { lat, lon } = this.session.table.places;
      const record = this.list.chosen;
      void this.pick(lat[record], lon[record]);
    });
    by("by-numbers").addEventListener("submit", (event) => {
      event.preventDefault();
      const numbers = by<HTMLInputElement>("numbers").value.split(/[,;\s]+/).filter(Boolean);
      const [lat, lon] = numbers.map(Number);
      if (numbers.length === 2 && Number.isFinite(lat) && Number.isFinite(lon)) {
        by("numbers-said").textContent = "";
        void this.pick(lat, lon);
      } else {
        by("numbers-said").textContent = "Two numbers in degrees, such as 41.9022, 12.4539.";
      }
    });
    by("limits").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.changeLimit(Number(by<HTMLInputElement>("limit").value));
    });
    by("forget").addEventListener("click", () => void this.forget());
    by("audit-all").addEventListener("click", () => {
      by("audit-all").hidden = true;
      views.showCheck("audit", "wait", "Checking all pairs…");
      this.auditor.auditAll(3600);
    });
    window.addEventListener("online", () => void this.flush());
  }

  private startAudit(): void {
    this.auditor.onProgress = (share) => {
      if (by("check-audit").dataset.state !== "wait") return;
      views.showCheck(
        "audit", "wait", `Checking its privacy in this page: ${Math.floor(100 * share)} %`,
      );
    };
    this.auditor.onAudited = (result) => {
      this.audited = result;
      views.showAudit(result);
      if (!result.holds) {
        views.showAlarm("This table is refused", new PrivacyError(
          "the page's own check found two places that reports tell apart better than promised",
          "Do not use this deployment. Tell the operator.",
        ));
      }
      void this.showAction();
    };
    this.auditor.onFailed = (message) => {
      views.showCheck("audit", "bad", `The privacy check failed: ${message}`);
    };
    this.auditor.load(this.session.file, FIRST_LIMIT);
  }

  /** What the cursor is at, for those who do not see it. */
  private hear(lat: number, lon: number): void {
    clearTimeout(this.asked);
    this.asked = window.setTimeout(() => {
      const [x, y] = [this.plane.x(lon), this.plane.y(lat)];
      const near = nearest(this.session.table.places, lat, lon);
      say(
        `${distanceWords(Math.hypot(x, y) / 1000)} ${wind(x, y)} of the centre; nearest known place `
          + `${distanceWords(near.km)} away`,
      );
    }, 350);
  }

  private async pick(lat: number, lon: number): Promise<void> {
    if (this.busy) return;
    const { table } = this.session;
    const limit = SNAP_KM;
    let place: { lat: number; lon: number };
    let found: Snap;
    try {
      place = checkPlace(lat, lon);
      found = snap(table.places, place.lat, place.lon, limit);
    } catch (error) {
      const message = error instanceof PandaError ? `${error.message}. ${error.remedy}` : "";
      views.showAction(message, "bad");
      return;
    }
    const turn = ++this.turn;
    // What could be done with the place before cannot be done with this one yet.
    for (const id of ["draw", "report"]) by<HTMLButtonElement>(id).disabled = true;
    const row = await table.row(found.record);
    if (turn !== this.turn) return;
    const picked: Picked = { ...place, snap: found, row, own: null, release: null };
    this.picked = picked;
    const at = (record: number) =>
      [this.scene.records[2 * record], this.scene.records[2 * record + 1]] as const;
    Object.assign(this.scene, {
      place: [this.plane.x(place.lon), this.plane.y(place.lat)],
      record: at(found.record), shares: shares(row), drawn: null, shown: 0,
    });
    by("hint").hidden = true;
    by("legend").hidden = false;
    by("legend-drawn").hidden = true;
    this.grow();
    const { lat: lats, lon: lons } = table.places;
    const probabilities = shares(row);
    const around = spread(table.places, place.lat, place.lon, table.outputs, probabilities);
    const ofRecord = spread(
      table.places, lats[found.record], lons[found.record], table.outputs, probabilities,
    );
    views.showPlace(found, place.lat, place.lon, limit, table.epsilon);
    const column = table.outputs.indexOf(found.record);
    views.showSpread(around, ofRecord.expected, column < 0 ? 0 : probabilities[column]);
    views.showMeaning(table.epsilon, null);
    await this.recall();
    const narrow = matchMedia("(max-width: 820px)").matches;
    by(narrow ? "spread" : "place-title").scrollIntoView({
      behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
    });
    say(`Place taken. Reports would lie ${distanceWords(around.expected)} away on average.`);
    const own = await this.auditor.own(found.record, views.DISTANCES);
    if (this.picked !== picked) return;
    picked.own = own;
    views.showMeaning(table.epsilon, own);
    await this.showAction();
  }

  /** Show an answer that this place has already. */
  private async recall(): Promise<void> {
    const picked = this.picked;
    if (!picked) return;
    const before = await this.ledger.known(this.charge, picked.snap.record);
    if (this.picked !== picked) return;
    picked.release = before;
    if (before && !this.scene.drawn) this.showDrawn(before.output, false);
    await this.showBooks();
    await this.showAction();
  }

  private get charge() {
    return chargeOf(this.session, this.api.server);
  }

  private grow(): void {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.scene.grown = 1;
      this.map.draw();
      return;
    }
    const began = performance.now();
    const step = (now: number) => {
      const t = Math.min(1, (now - began) / 380);
      this.scene.grown = 1 - (1 - t) ** 3;
      this.map.draw();
      if (t < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  /** Draw: charged and durable before the drawn place is seen, even by the person. */
  private async draw(): Promise<void> {
    const picked = this.picked;
    if (!picked || this.busy || this.replaced || !picked.own?.holds || this.audited?.holds === false) {
      return;
    }
    this.busy = true;
    try {
      const { outputs } = this.session.table;
      picked.release = await this.ledger.release(
        this.charge, picked.snap.record, () => outputs[draw(picked.row)],
      );
      this.showDrawn(picked.release.output, true);
      await this.showBooks();
      await this.showAction();
    } catch (error) {
      this.fail(error);
    } finally {
      this.busy = false;
    }
  }

  private showDrawn(output: number, animate: boolean): void {
    const { records, place } = this.scene;
    this.scene.drawn = [records[2 * output], records[2 * output + 1]];
    by("legend-drawn").hidden = false;
    if (!animate || matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.scene.shown = 1;
      this.map.draw();
    } else {
      const began = performance.now();
      const step = (now: number) => {
        this.scene.shown = Math.min(1, (now - began) / 650);
        this.map.draw();
        if (this.scene.shown < 1) requestAnimationFrame(step);
      };
      requestAnimationFrame(step);
    }
    if (place) this.map.show([place, this.scene.drawn], 2600);
  }

  private async report(): Promise<void> {
    const release = this.picked?.release;
    if (!release || this.busy) return;
    if (!this.tokens.value) {
      const keep = by<HTMLInputElement>("token-keep").checked;
      if (!this.tokens.take(by<HTMLInputElement>("token").value, keep)) {
        views.showAction("A token begins with pmt_; the operator hands it out.", "bad");
        by("token").focus();
        return;
      }
    }
    this.busy = true;
    by<HTMLButtonElement>("report").disabled = true;
    try {
      await this.outbox.put(this.session.deployment.name, release);
      await this.flush();
    } catch (error) {
      this.fail(error);
    } finally {
      this.busy = false;
    }
  }

  /** Send what waits, if there is a token. */
  private async flush(): Promise<void> {
    const { value } = this.tokens;
    if (value) {
      try {
        await this.outbox.flush(this.api, value);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        this.tokens.drop();
        await this.showAction();
        views.showAction(`The token was not accepted: ${error.message}.`, "bad");
        return;
      }
    }
    await this.recall();
    await this.showAction();
    const waiting = (await this.outbox.all()).some(({ state }) => state === "waiting");
    if (waiting && value) setTimeout(() => void this.flush(), 30_000);
  }

  private async changeLimit(value: number): Promise<void> {
    try {
      await this.ledger.changeAllowance({
        epsilon: Math.max(value, this.session.table.epsilon), period_epsilon: value,
      });
      await this.showBooks();
      await this.showAction();
    } catch (error) {
      this.fail(error);
    }
  }

  private async forget(): Promise<void> {
    await this.ledger.forget();
    await this.outbox.tidy();
    this.scene.drawn = null;
    by("legend-drawn").hidden = true;
    this.map.draw();
    await this.recall();
    say("What was drawn is forgotten; what was spent stays spent.");
  }

  private fail(error: unknown): void {
    const text = error instanceof PandaError ? `${error.message}. ${error.remedy}` : String(error);
    views.showAction(text.charAt(0).toUpperCase() + text.slice(1), "bad");
    say(text);
  }

  private async showBooks(): Promise<void> {
    const { deployment, table } = this.session;
    views.showBudget(
      await this.ledger.balance(this.charge.account), await this.ledger.allowance(),
      table.epsilon, this.picked?.release != null, deployment.reports_per_period,
    );
  }

  /** The one thing to do next, and why not where it cannot be done. */
  private async showAction(): Promise<void> {
    // First everything that takes time, so that what is shown changes at once.
    const reports = await this.outbox.all();
    const why = await this.ledger.excess(this.charge);
    const { picked, session } = this;
    const drawButton = by<HTMLButtonElement>("draw");
    const reportButton = by<HTMLButtonElement>("report");
    const release = picked?.release ?? null;
    const mine = release && reports.find(({ id }) => id === release.report);
    drawButton.hidden = release !== null;
    reportButton.hidden = release === null || release.state === "accepted" || mine?.state === "waiting";
    reportButton.disabled = !session.deployment.open;
    const waiting = reports.filter(({ state }) => state === "waiting");
    const needsToken = !this.tokens.value && (!reportButton.hidden || waiting.length > 0);
    by("token-form").hidden = !needsToken;
    if (!reportButton.hidden && !needsToken) by<HTMLInputElement>("token").value = "";

    if (!session.deployment.open) {
      drawButton.disabled = true;
      views.showAction("This deployment is closed and takes no reports.", "bad");
      return;
    }
    if (!picked) {
      drawButton.disabled = true;
      views.showAction(waiting.length ? waitingWords(waiting.length, needsToken) : "");
      return;
    }
    if (release) {
      const km = this.kmTo(release.output);
      if (release.state === "accepted" || mine?.state === "accepted") {
        views.showAction(`Reported: a place ${distanceWords(km)} from yours. Thank you.`, "good");
      } else if (mine?.state === "waiting") {
        views.showAction(waitingWords(waiting.length, needsToken));
      } else if (mine?.state === "refused") {
        views.showAction(`The server refused the report: ${mine.problem}.`, "bad");
      } else {
        views.showAction(
          `Drawn: a place ${distanceWords(km)} from yours. Nothing is sent yet. It is paid for; `
            + "whether you send it should not depend on what was drawn, since not sending tells "
            + "something that no limit covers.",
        );
      }
      return;
    }
    const { own } = picked;
    drawButton.disabled = why !== null || this.replaced || !own?.holds || this.audited?.holds === false;
    if (this.audited?.holds === false || (own && !own.holds)) {
      views.showAction("Nothing can be drawn: the privacy check failed for this table.", "bad");
    } else if (this.replaced) {
      views.showAction("The table was replaced. Say above whether to use the new one.", "bad");
    } else if (why !== null) {
      views.showAction(`Nothing more can be drawn: ${why}.`, "bad");
    } else {
      views.showAction(own ? "" : "Comparing your place with all others…");
    }
  }

  private kmTo(output: number): number {
    const { picked, session } = this;
    return picked ? session.table.places.distanceFrom(picked.lat, picked.lon, output) : 0;
  }
}

function waitingWords(count: number, needsToken: boolean): string {
  const what = count === 1 ? "One report waits" : `${count} reports wait`;
  return needsToken
    ? `${what} for a token.`
    : `${what} for the network and ${count === 1 ? "goes" : "go"} out by itself; this page may stay `
      + "open or be opened again later.";
}
