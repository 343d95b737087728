/** The page at work: from a place to a report. */

import type { Api } from "../core/api";
import { ApiError } from "../core/api";
import { collect } from "../core/blind";
import type { AuditResult, OwnAudit } from "../core/audit";
import { PandaError, PrivacyError } from "../core/errors";
import { finish, refuseSecondSet } from "../core/phases";
import { AnchorsPlan, shownAt } from "../core/plan";
import { pinTable, tableChanged } from "../core/keypin";
import { type Ledger, type Release } from "../core/ledger";
import { spread } from "../core/meaning";
import type { Outbox, Report } from "../core/outbox";
import { isOver } from "../core/statement";
import { cellOf } from "../core/lattice";
import { checkPlace, nearest, type Snap } from "../core/snap";
import { distanceWords, wind } from "../core/words";
import { by, invitation, say } from "../dom";
import { MapView } from "../map/mapview";
import { NameLayer } from "../map/names";
import { Plane } from "../map/plane";
import { problem, words } from "../words";
import { Auditor } from "./auditor";
import { Finder } from "./finder";
import { PlaceList } from "./list";
import { paintScene, type Scene } from "./painter";
import { chargeOf, type Session } from "../core/session";
import type { TokenBox } from "./token";
import * as views from "./views";

/** Seconds that the first audit may take before it samples the rest. */
const FIRST_LIMIT = 20;
const AGAIN_MS = 30_000;
/** Milliseconds that one step waits for a round; then the page asks again by itself. */
const ROUND_MS = 20_000;

interface Picked {
  readonly lat: number;
  readonly lon: number;
  readonly snap: Snap;
  /** What stands for the place in the books: a record, or a cell of the grid where no map is here. */
  readonly number: number;
  /** How reports of this place are distributed; null where rows come after Phase I. */
  readonly shares: Float64Array | null;
  own: OwnAudit | null;
  release: Release | null;
  /** What was drawn, for as long as this place is shown; seen by nobody before it was sent. */
  output: number | null;
}

export class App {
  private readonly map: MapView;
  private readonly auditor = new Auditor();
  private readonly list: PlaceList;
  private readonly finder: Finder;
  private readonly plane: Plane;
  private readonly scene: Scene;
  private audited: AuditResult | null = null;
  private picked: Picked | null = null;
  private asked = 0;
  private turn = 0;
  private again = 0;
  private busy = false;
  /** A place that was picked while the one before was being sent: taken afterwards. */
  private wanted: [number, number] | null = null;
  /** What became of an invitation, until a place is picked. */
  private remark: { text: string; state: "" | "good" | "bad" } = { text: "", state: "" };
  private step: views.Step = "place";
  /** Whether the table was replaced since the last visit and the person has not agreed yet. */
  private replaced: boolean;

  constructor(
    private readonly api: Api, private readonly session: Session, private readonly ledger: Ledger,
    private readonly outbox: Outbox, private readonly tokens: TokenBox,
  ) {
    const { plan, deployment, agreed } = session;
    const { lat, lon } = plan.places;
    this.plane = Plane.around(lat, lon);
    const records = this.plane.points(lat, lon);
    this.scene = {
      records,
      outputs: Array.from(plan.outputs, (k) => [records[2 * k], records[2 * k + 1]] as const),
      shares: null, place: null, record: null, drawn: null, names: null, grown: 1, shown: 0,
    };
    this.map = new MapView(by("map"), {
      onPick: (a, b) => void this.pick(a, b),
      onCursor: (a, b) => this.hear(a, b),
    });
    this.map.painter = (pen, map) => paintScene(pen, map, this.scene);
    this.map.setPlaces(this.plane, records);
    this.list = new PlaceList(by("list-area"), by("list-place"));
    this.finder = new Finder((a, b) => void this.pick(a, b));
    this.replaced = tableChanged(localStorage, deployment.name, agreed);
    if (!this.replaced) pinTable(localStorage, deployment.name, agreed);
    views.showCheck("audit", "wait", words().auditing);
    this.listen();
    this.startAudit();
    by("hint").hidden = false;
  }

  async start(invited: string | null): Promise<void> {
    await this.relabel();
    if (invited) await this.enrol(invited);
    await Promise.all([this.showStreets(), this.flush()]);
    // What waits to be sent comes before the question of another place.
    if (!by("retry").hidden && !this.picked) this.go("send");
  }

  /** One question at a time, where the screen is narrow; a wide one shows them all. */
  private go(step: views.Step): void {
    this.step = step;
    void this.showAction();
    by("panel").scrollTop = 0;
    by("step-title").focus({ preventScroll: true });
  }

  /** Say everything again, in the language that was chosen. */
  async relabel(): Promise<void> {
    const { session, picked } = this;
    views.showSigned(session);
    views.showNotice(session.stated);
    views.showCertificate(session);
    if (this.audited) views.showAudit(this.audited, session.plan);
    if (this.replaced) views.showReplaced(session, () => void this.acceptTable());
    this.list.fill(session.plan.places, this.plane, (x, y) => this.named(x, y));
    this.finder.setNames(this.scene.names);
    if (picked) this.showPicked(picked);
    await this.showBooks();
    await this.showAction();
  }

  private named(x: number, y: number): string | null {
    return this.scene.names?.near(x, y) ?? null;
  }

  private async showStreets(): Promise<void> {
    const domain = this.session.streets;
    try {
      const streets = domain ? await this.api.streets(domain) : null;
      this.map.setStreets(streets);
      const names = streets?.names ?? [];
      this.scene.names = names.length ? new NameLayer(names, this.plane) : null;
    } catch {
      // Streets are for the eye; the map works without them.
      this.map.setStreets(null);
    }
    await this.relabel();
  }

  private async acceptTable(): Promise<void> {
    pinTable(localStorage, this.session.deployment.name, this.session.agreed);
    this.replaced = false;
    by("alarm").hidden = true;
    await this.showAction();
  }

  private listen(): void {
    by("zoom-in").addEventListener("click", () => this.map.zoom(1.5));
    by("zoom-out").addEventListener("click", () => this.map.zoom(1 / 1.5));
    by("zoom-all").addEventListener("click", () => this.map.fit());
    by("send").addEventListener("click", () => void this.send());
    by("next").addEventListener("click", () => this.go(this.step === "place" ? "told" : "send"));
    by("back").addEventListener("click", () => this.go(this.step === "told" || this.picked?.release ? "place" : "told"));
    by("retry").addEventListener("click", () => void this.retry());
    by("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (by<HTMLButtonElement>("send").disabled) void this.retry();
      else void this.send();
    });
    by("list-pick").addEventListener("click", () => {
      const { lat, lon } = this.session.plan.places;
      const record = this.list.chosen;
      void this.pick(lat[record], lon[record]);
    });
    by("limits").addEventListener("submit", (event) => {
      event.preventDefault();
      const value = (id: string) => Number(by<HTMLInputElement>(id).value);
      void this.changeLimit(value("limit"), value("limit-delta"));
    });
    by("forget").addEventListener("click", () => void this.forget());
    by("audit-all").addEventListener("click", () => {
      by("audit-all").hidden = true;
      views.showCheck("audit", "wait", words().auditingAll);
      this.auditor.auditAll(3600);
    });
    window.addEventListener("online", () => void this.flush());
  }

  private startAudit(): void {
    this.auditor.onProgress = (share) => {
      if (by("check-audit").dataset.state !== "wait") return;
      views.showCheck("audit", "wait", words().auditingShare(Math.floor(100 * share)));
    };
    this.auditor.onAudited = (result, budgets) => {
      this.audited = result;
      const { plan } = this.session;
      if (plan instanceof AnchorsPlan && budgets) plan.budgets = budgets;
      views.showAudit(result, this.session.plan);
      if (!result.holds) views.showAlarm(words().tableRefused, new PrivacyError("notPrivate"));
      void this.showAction();
    };
    this.auditor.onFailed = (message) => {
      views.showCheck("audit", "bad", words().auditFailed(message));
    };
    this.auditor.load(this.session.plan.source, FIRST_LIMIT);
  }

  /** What the cursor is at, for those who do not see it. */
  private hear(lat: number, lon: number): void {
    clearTimeout(this.asked);
    this.asked = window.setTimeout(() => {
      const [x, y] = [this.plane.x(lon), this.plane.y(lat)];
      const near = nearest(this.session.plan.places, lat, lon);
      const name = this.named(x, y);
      const where = words().hear(
        distanceWords(Math.hypot(x, y) / 1000), wind(x, y), distanceWords(near.km),
      );
      say(name ? `${words().near(name)}; ${where}` : where);
    }, 350);
  }

  private async pick(lat: number, lon: number): Promise<void> {
    if (this.busy) {
      this.wanted = [lat, lon];
      return;
    }
    const { plan } = this.session;
    let place: { lat: number; lon: number };
    let found: Snap;
    try {
      place = this.session.area.clamp(checkPlace(lat, lon));
      found = nearest(plan.places, place.lat, place.lon);
    } catch (error) {
      views.showAction(views.problemWords(error), "bad");
      return;
    }
    const turn = ++this.turn;
    // What could be done with the place before cannot be done with this one yet.
    by<HTMLButtonElement>("send").disabled = true;
    const shares = await plan.shares(found.record, place);
    if (turn !== this.turn) return;
    const number = plan.kind === "ball" ? cellOf(place) : found.record;
    const picked: Picked = { ...place, snap: found, number, shares, own: null, release: null, output: null };
    this.picked = picked;
    const { records } = this.scene;
    Object.assign(this.scene, {
      place: [this.plane.x(place.lon), this.plane.y(place.lat)],
      record: plan.kind === "ball" ? [this.plane.x(place.lon), this.plane.y(place.lat)]
        : [records[2 * found.record], records[2 * found.record + 1]],
      shares, drawn: null, shown: 0,
    });
    by("hint").hidden = true;
    by("legend").hidden = false;
    by("legend-drawn").hidden = true;
    by("legend-may").hidden = shares === null;
    this.map.include(this.plane.x(place.lon), this.plane.y(place.lat));
    this.grow();
    const mean = this.showPicked(picked);
    await this.recall();
    by("place-title").scrollIntoView({
      behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
    });
    say(mean === null ? words().spreadLater : words().placeTaken(distanceWords(mean)));
    const own = await this.auditor.own(found.record, views.DISTANCES, place);
    if (this.picked !== picked) return;
    picked.own = own;
    views.showMeaning(plan, own);
    await this.showAction();
  }

  /** Everything that is said of a place; how far its reports lie on average, where that is known. */
  private showPicked(picked: Picked): number | null {
    const { plan } = this.session;
    const name = this.named(this.plane.x(picked.lon), this.plane.y(picked.lat));
    views.showPlace(picked.snap, picked, name, this.session.holeKm, plan);
    views.showMeaning(plan, picked.own);
    if (!picked.shares) {
      views.showLater(plan);
      return null;
    }
    const around = spread(plan.places, picked.lat, picked.lon, plan.outputs, picked.shares);
    const column = plan.outputs.indexOf(picked.snap.record);
    views.showSpread(plan, around, column < 0 ? 0 : picked.shares[column], picked.snap.km);
    return around.expected;
  }

  /** Look up whether this place has its answer already. */
  private async recall(): Promise<void> {
    const picked = this.picked;
    if (!picked) return;
    // Where every report is drawn anew, the place has the one that was drawn for it here.
    const before = this.charge.fresh
      ? picked.release && await this.ledger.drawn(picked.release.entry)
      : await this.ledger.known(this.charge, picked.number);
    if (this.picked !== picked) return;
    picked.release = before;
    if (before?.state === "accepted" && picked.output !== null && !this.scene.drawn) {
      this.showDrawn(picked.output);
    }
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

  private async enrol(code: string): Promise<boolean> {
    try {
      await this.tokens.exchange(code);
      this.remark = { text: words().enrolled, state: "" };
      say(this.remark.text);
      return true;
    } catch (error) {
      const why = problem(error instanceof PandaError ? error : new PandaError("unknown")).message;
      this.remark = { text: words().notEnrolled(why), state: "bad" };
      views.showAction(this.remark.text, "bad");
      return false;
    }
  }

  private async takeToken(): Promise<boolean> {
    if (this.tokens.value) return true;
    const keep = by<HTMLInputElement>("token-keep").checked;
    const typed = by<HTMLInputElement>("token").value;
    const code = invitation(typed);
    if (code) return this.enrol(code);
    if (this.tokens.take(typed, keep)) return true;
    views.showAction(words().tokenWrong, "bad");
    by("token").focus();
    return false;
  }

  /** One step: charged and durable, drawn, handed over for sending; seen once the server has it. */
  private async send(): Promise<void> {
    const picked = this.picked;
    if (this.busy || this.refusal(picked)) return;
    if (await this.collects()) return this.collect();
    if (!picked) return;
    this.busy = true;
    by<HTMLButtonElement>("send").disabled = true;
    try {
      if (!this.charge.oneUse && !(await this.takeToken())) {
        by<HTMLButtonElement>("send").disabled = false;
        return;
      }
      views.showAction(words().sending);
      await this.draw(picked);
      await this.flush();
    } catch (error) {
      await this.stopped(picked, error);
    } finally {
      this.busy = false;
      const wanted = this.wanted;
      this.wanted = null;
      if (wanted) void this.pick(...wanted);
    }
  }

  /** Whether one-use tokens come before anything can be reported. */
  private async collects(): Promise<boolean> {
    return (await this.ledger.excess(this.charge))?.problem === "noOneUse" && this.picked?.release == null;
  }

  /** Have one-use tokens signed: a step of its own, so that some time can pass before the report. */
  private async collect(): Promise<void> {
    this.busy = true;
    try {
      if (!(await this.takeToken())) return;
      views.showAction(words().collecting);
      const count = await collect(this.api, this.session, this.ledger, this.tokens.value ?? "");
      this.remark = { text: words().collected(count), state: "good" };
      await this.showAction();
      say(this.remark.text);
    } catch (error) {
      if (error instanceof ApiError && error.aboutToken) this.tokens.drop();
      await this.showAction();
      this.fail(error);
    } finally {
      this.busy = false;
    }
  }

  /** Draw what is not drawn yet, both phases, and hand it over for sending. */
  private async draw(picked: Picked): Promise<void> {
    const { session, charge } = this;
    const record = picked.number;
    await refuseSecondSet(this.api, session, this.ledger, charge, record);
    const first = await this.ledger.release(charge, record, () => (
      session.plan.first(record, { lat: picked.lat, lon: picked.lon })
    ));
    picked.release = first;
    const release = await finish(
      this.api, session, this.ledger, record, first, this.tokens.value ?? "",
      { wait: ROUND_MS, still: () => this.picked === picked },
    );
    picked.release = release;
    picked.output = release.output;
    await this.outbox.put(session.deployment.name, release);
  }

  /** What came between the two phases, or before. Rounds take their time: the page asks again. */
  private async stopped(picked: Picked, error: unknown): Promise<void> {
    if (error instanceof ApiError && error.aboutToken) this.tokens.drop();
    await this.recall();
    const open = error instanceof PandaError && error.problem === "roundOpen";
    if (open) views.showAction(words().waitsForRound(Number(error.facts[0])));
    else this.fail(error);
    const later = open || (error instanceof ApiError && error.later);
    if (later && picked.release?.state === "charged") {
      this.again = window.setTimeout(() => {
        if (this.picked === picked) void this.send();
      }, open ? 1000 : AGAIN_MS);
    }
  }

  private async retry(): Promise<void> {
    if (this.busy || !(this.charge.oneUse || (await this.takeToken()))) return;
    const release = this.picked?.release;
    if (release) await this.outbox.put(this.session.deployment.name, release);
    await this.flush();
  }

  private showDrawn(output: number): void {
    const { records, place } = this.scene;
    const at = shownAt(this.session.plan, output);
    this.scene.drawn = [records[2 * at], records[2 * at + 1]];
    by("legend-drawn").hidden = false;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
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

  /** Send what waits, if there is a token. */
  private async flush(): Promise<void> {
    clearTimeout(this.again);
    const { value } = this.tokens;
    const able = Boolean(value) || this.charge.oneUse === true;
    if (able) {
      try {
        await this.outbox.flush(this.api, value);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        this.tokens.drop();
        await this.showAction();
        views.showAction(words().tokenRefused(problem(error).message), "bad");
        return;
      }
    }
    await this.recall();
    await this.showAction();
    const waiting = (await this.outbox.all()).some(({ state }) => state === "waiting");
    if (waiting && able) this.again = window.setTimeout(() => void this.flush(), AGAIN_MS);
  }

  private async changeLimit(value: number, delta: number): Promise<void> {
    const { plan } = this.session;
    try {
      await this.ledger.changeAllowance({
        epsilon: Math.max(value, plan.epsilon), period_epsilon: value,
        delta, period_delta: delta,
      });
      await this.showBooks();
      await this.showAction();
    } catch (error) {
      this.fail(error);
    }
  }

  private async forget(): Promise<void> {
    await this.ledger.forget();
    await this.outbox.clear();
    if (this.picked) this.picked.output = null;
    this.scene.drawn = null;
    by("legend-drawn").hidden = true;
    this.map.draw();
    await this.recall();
    say(words().forgotten);
  }

  private fail(error: unknown): void {
    const text = views.problemWords(error);
    views.showAction(text, "bad");
    say(text);
  }

  private async showBooks(): Promise<void> {
    const { deployment, plan } = this.session;
    views.showBudget(
      await this.ledger.balance(this.charge.account), await this.ledger.allowance(),
      plan, this.picked?.release != null, deployment.reports_per_period,
    );
  }

  /** Why nothing may be drawn for a place, whatever the books say. */
  private refusal(picked: Picked | null): { text: string; bad: boolean } | null {
    const { session, audited } = this;
    const said = words();
    if (!session.deployment.open || isOver(session.stated, Date.now())) {
      return { text: said.closed, bad: true };
    }
    if (audited?.holds === false || picked?.own?.holds === false) {
      return { text: said.checkFailed, bad: true };
    }
    if (session.plan.kind === "everywhere" && picked && !audited) return { text: said.comparing, bad: false };
    if (this.replaced) return { text: said.replacedSay, bad: true };
    return picked && !picked.own ? { text: said.comparing, bad: false } : null;
  }

  /** The one thing to do next, and why not where it cannot be done. */
  private async showAction(): Promise<void> {
    // First everything that takes time, so that what is shown changes at once.
    const reports = await this.outbox.all();
    const why = await this.ledger.excess(this.charge);
    const { picked } = this;
    const said = words();
    const release = picked?.release ?? null;
    const done = release?.state === "accepted";
    const between = release?.state === "charged" && release.output === null;
    const mine = release && reports.find(({ id }) => id === release.report);
    const waiting = reports.filter(({ state }) => state === "waiting");
    const refusal = this.refusal(picked);
    const collects = release === null && why?.problem === "noOneUse";
    const sendable = !refusal && (collects || (picked !== null && !done && !mine && (release !== null || why === null)));
    const needsToken = !this.tokens.value && (collects || (!this.charge.oneUse && (sendable || waiting.length > 0)));
    const send = by<HTMLButtonElement>("send");
    send.hidden = done || Boolean(mine);
    send.disabled = !sendable;
    send.textContent = collects ? said.collect : between ? said.goOn : said.send;
    by("send-note").hidden = send.hidden;
    by("retry").hidden = !(mine || waiting.length);
    views.showStep(this.step, picked !== null, done);
    by("token-form").hidden = !needsToken;
    if (this.tokens.value) by<HTMLInputElement>("token").value = "";

    if (done && picked) {
      const text = picked.output === null ? said.sentBefore : this.sentWords(picked, picked.output);
      views.showReported(text, picked.shares !== null);
      views.showAction(text, "good");
    } else if (refusal && (refusal.bad || !mine)) {
      views.showAction(refusal.text, refusal.bad ? "bad" : "");
    } else if (mine?.state === "refused") {
      views.showAction(said.refused(troubleWords(mine)), "bad");
    } else if (mine || (!picked && waiting.length)) {
      const text = needsToken ? said.waitingToken(waiting.length) : said.waiting(waiting.length);
      const held = mine?.problem?.problem === "server" ? ` (${troubleWords(mine)})` : "";
      views.showAction(text + held);
    } else if (between) {
      views.showAction(said.unfinished);
    } else if (release) {
      views.showAction(said.sendFree);
    } else if (collects) {
      views.showAction(said.collectFirst);
    } else if (picked && why !== null) {
      views.showAction(said.nothingMore(problem(why).message), "bad");
    } else {
      views.showAction(this.remark.text, this.remark.state);
    }
  }

  private sentWords(picked: Picked, output: number): string {
    const { plan } = this.session;
    if (output === picked.snap.record && !this.charge.fresh && plan.kind !== "ball") return words().sentItself;
    const { records } = this.scene;
    const at = shownAt(plan, output);
    const name = this.named(records[2 * at], records[2 * at + 1]);
    const km = plan.places.distanceFrom(picked.lat, picked.lon, at);
    return words().sent(distanceWords(km), name ? `, ${words().near(name)}` : "");
  }
}

function troubleWords({ problem: why }: Report): string {
  if (!why) return words().problems.unknown()[0];
  const error = new PandaError(why.problem, ...why.facts);
  return problem(Object.assign(error, { code: why.code })).message;
}
