/** The panel: what each section says. Nothing here decides anything. */

import type { AuditResult, OwnAudit } from "../core/audit";
import { PandaError } from "../core/errors";
import type { Allowance, Balance } from "../core/ledger";
import { meaning, type Spread } from "../core/meaning";
import { BallPlan, type Plan, TablePlan } from "../core/plan";
import type { Snap } from "../core/snap";
import { isOver, type Statement } from "../core/statement";
import {
  bytesWords, countWords, distanceWords, epsilonWords, factorWords, guessWords, percentWords,
  periodWords, spanWords,
} from "../core/words";
import { by, make } from "../dom";
import { language, problem, words } from "../words";
import { distanceChart } from "./chart";
import type { Session } from "../core/session";

export const DISTANCES = [0.1, 0.5, 2];

type Verdict = "wait" | "good" | "bad" | "note";

export function showCheck(
  name: "signature" | "audit" | "offline", state: Verdict, text: string,
): void {
  const item = by(`check-${name}`);
  item.dataset.state = state;
  const inner = item.querySelector("span");
  if (inner) inner.textContent = text;
}

export function grouped(id: string): string {
  return id.replaceAll(/(.{4})(?=.)/g, "$1 ");
}

export function showSigned(session: Session): void {
  showCheck("signature", "good", words().signed(grouped(session.key.id), session.firstKey));
}

function facts(id: string, rows: readonly (readonly [string, string])[]): void {
  by(id).replaceChildren(
    ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
}

/** Who collects, what for, until when: as it was signed. */
export function showNotice(stated: Statement): void {
  const said = words();
  by("who").hidden = false;
  const last = stated.until
    && new Date(`${stated.until}T00:00:00Z`).toLocaleDateString(language(), { dateStyle: "long", timeZone: "UTC" });
  const end = !last ? said.noEnd : isOver(stated, Date.now()) ? `${last} (${said.untilOver})` : last;
  facts("notice", [
    [said.collects, stated.collector || said.notSaid],
    [said.purpose, stated.purpose || said.notSaid],
    [said.until, end],
    [said.erased, stated.retention_days ? said.erasedAfter(stated.retention_days) : said.notSaid],
  ]);
}

function howWords({ kind }: Plan): string {
  const said = words();
  return { table: said.howTable, everywhere: said.howEverywhere, panda: said.howPanda, ball: said.howBall, anchors: said.howAnchors }[kind];
}

function promiseWords({ epsilon, delta }: Plan): string {
  const said = words();
  return delta > 0
    ? said.factDelta(epsilonWords(epsilon), epsilonWords(delta)) : said.factEpsilon(epsilonWords(epsilon));
}

export function showCertificate(session: Session): void {
  const { info, plan, key } = session;
  const said = words();
  const table = plan instanceof TablePlan ? plan.table.header : null;
  const outputs = info ? info.outputs : plan.outputs.length;
  const rows: (readonly [string, string])[] = [
    [said.factRecords, said.factCounts(countWords(info?.records ?? plan.places.size), countWords(outputs))],
    [said.factPromised, promiseWords(plan)],
    [said.factPhases, howWords(plan)],
  ];
  if (info) {
    rows.unshift([said.factTable, said.factVersion(info.name, info.version, bytesWords(info.size_bytes))]);
    if (table) rows.push([said.factMethod, table.notes.method]);
    rows.push([said.factLoss, said.factLossSaid(lossWords(info.loss, table?.loss.unit))
      + (info.gap === null ? "" : said.factGap(percentWords(info.gap)))]);
    if (table) rows.push([said.factRounding, said.factCost(percentWords(info.loss_cost))]);
    rows.push([said.factIdentity, info.identity], ["SHA-256", info.sha256]);
  }
  rows.push(
    [said.factKey, key.public],
    [said.factLog, `${said.logGood(countWords(session.log.size))}: ${session.log.root}`],
    [said.factMade, new Date(info?.created ?? session.deployment.created).toLocaleString(language())],
  );
  facts("certificate", rows);
}

function lossWords(loss: number, unit: string | undefined): string {
  return unit === "km" ? distanceWords(loss) : `${loss.toPrecision(4)} ${unit ?? ""}`;
}

/** What the audit covered, in words that claim no more than that. */
export function auditWords(result: AuditResult, plan: Plan): string {
  const said = words();
  const pairs = countWords(result.pairs);
  const seconds = result.seconds.toFixed(1);
  const [found, claimed] = [result.epsilon.toFixed(6), epsilonWords(result.claimed)];
  if (plan.kind === "ball") return said.auditBallSaid(claimed);
  const { account } = result;
  if (account) {
    const [violation, delta] = [probabilityWords(account.violation), epsilonWords(account.delta)];
    return result.complete
      ? said.auditPandaSaid(pairs, seconds, claimed, account.first.toFixed(6), violation, delta)
      : said.auditPandaPartSaid(countWords(Math.round(account.pairs)), pairs, seconds, violation, delta);
  }
  if (result.complete && result.triangles !== undefined) {
    return said.auditEverywhereSaid(countWords(result.triangles), pairs, seconds, found, claimed);
  }
  if (result.complete) return said.auditComplete(pairs, seconds, found, claimed);
  return said.auditSampled(
    distanceWords(result.within), countWords(result.covered), pairs, countWords(result.sampled),
    found, claimed,
  );
}

export function showAudit(result: AuditResult, plan: Plan): void {
  by("audit-said").textContent = auditWords(result, plan);
  by("audit-all").hidden = result.complete || !result.holds;
  const said = words();
  const pairs = countWords(result.pairs);
  const { account } = result;
  if (!result.holds) {
    showCheck("audit", "bad", said.auditBad(result.epsilon.toPrecision(4), epsilonWords(result.claimed)));
  } else if (plan.kind === "ball") {
    showCheck("audit", "good", said.auditBall());
  } else if (account) {
    showCheck("audit", "good", result.complete
      ? said.auditPanda(pairs, probabilityWords(account.violation), epsilonWords(account.delta))
      : said.auditPandaPart(distanceWords(result.within), countWords(Math.round(account.pairs))));
  } else if (result.complete) {
    showCheck("audit", "good", result.triangles === undefined
      ? said.auditGood(pairs) : said.auditEverywhere(countWords(result.triangles)));
  } else {
    const part = said.auditPart(distanceWords(result.within), countWords(result.sampled));
    showCheck("audit", "good", part);
  }
}

/** A small probability, rounded up so that it claims no more than was found. */
export function probabilityWords(value: number): string {
  if (value === 0) return "0";
  const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
  return epsilonWords(Math.ceil(value / unit - 1e-9) * unit);
}

export function showPlace(
  snap: Snap, place: { lat: number; lon: number }, name: string | null, limitKm: number, plan: Plan,
): void {
  const said = words();
  const where = by("place-said");
  where.dataset.said = "yes";
  where.replaceChildren(
    make("span", {}, `${place.lat.toFixed(5)}, ${place.lon.toFixed(5)}`),
    name ? ` (${said.near(name)})` : "",
    plan.kind === "everywhere" ? said.placePoint
      : plan.kind === "ball" ? said.placeBall : said.placeSaid(distanceWords(snap.km)),
  );
  const cost = by("snap-said");
  cost.hidden = plan.kind === "everywhere";
  cost.textContent = plan instanceof BallPlan
    ? said.snapBall(factorWords(Math.exp(2 * plan.balls.table * limitKm)), distanceWords(limitKm))
    : said.snapSaid(
      factorWords(Math.exp(plan.epsilon * snap.km)), distanceWords(snap.km), distanceWords(limitKm),
    );
}

/** How often the place itself is reported, and how far reports lie: real numbers of this row. */
export function showSpread(plan: Plan, spread: Spread, itself: number, snapKm: number): void {
  const said = words();
  by("spread").hidden = by("spread-numbers").hidden = by("chart").hidden = false;
  by("spread-title").textContent = said.spreadTitle;
  by("how-said").textContent = howWords(plan);
  // A point is none of the places that reports can name.
  by("itself-row").hidden = plan.kind === "everywhere";
  by("itself").textContent = percentWords(itself);
  by("half").textContent = distanceWords(spread.half);
  by("most").textContent = distanceWords(spread.most);
  by("chart").replaceChildren(distanceChart(spread));
  by("spread-said").textContent = said.spreadSaid(distanceWords(spread.expected), percentWords(spread.top))
    + (plan.kind === "everywhere" ? "" : itself > 0 ? said.spreadRecord(distanceWords(snapKm)) : ` ${said.spreadNever}`);
}

/** Where rows come after Phase I there is nothing to show of a place before. */
export function showLater(plan: Plan): void {
  by("spread").hidden = false;
  by("spread-title").textContent = words().spreadTitle;
  by("spread-numbers").hidden = by("chart").hidden = true;
  by("how-said").textContent = howWords(plan);
  by("spread-said").textContent = words().spreadLater;
}

function comparedWords({ source, epsilon, delta }: Plan, own: OwnAudit): string {
  const said = words();
  const count = countWords(own.pairs);
  if (source.kind === "everywhere") return said.comparedPoint(own.epsilon.toFixed(4), epsilonWords(epsilon));
  if (source.kind === "ball") return said.comparedBall(epsilonWords(source.first));
  if (own.violation !== undefined) {
    return said.comparedPanda(count, probabilityWords(own.violation), epsilonWords(delta));
  }
  return said.compared(count, own.epsilon.toFixed(4), epsilonWords(epsilon));
}

export function showMeaning(plan: Plan, own: OwnAudit | null): void {
  const { epsilon, delta } = plan;
  const said = words();
  by("meaning").hidden = false;
  by("delta-explained").hidden = delta === 0;
  const rows = DISTANCES.map((distance, k) => {
    const most = meaning(epsilon, distance, delta);
    const here = own?.told[k].guess ?? null;
    const gauge = make("div", { class: "gauge", "aria-hidden": "true" });
    for (const [name, guess] of [["most", most.guess], ["here", here]] as const) {
      if (guess === null) continue;
      const bar = make("i", { class: name });
      // The left end is pure guessing.
      bar.style.width = `${200 * (guess - 0.5)}%`;
      gauge.append(bar);
    }
    const km = distanceWords(distance);
    const detail = make(
      "p", { class: "small" }, said.oddsChange(factorWords(most.factor)),
      delta > 0 ? said.saveDelta(epsilonWords(delta)) : null,
      own && here !== null
        ? said.fromHere(countWords(own.told[k].records), km, guessWords(here)) : null,
    );
    return make(
      "li", {},
      make(
        "div", { class: "line" }, make("span", {}, said.apart(km)),
        make("span", {}, said.atMost(guessWords(most.guess))),
      ),
      gauge, detail,
    );
  });
  by("meaning-rows").replaceChildren(...rows);
  by("meaning-said").textContent = own
    ? comparedWords(plan, own)
      + (meaning(epsilon, 0.5).guess > 0.95 ? said.protectsLittle : "")
    : said.comparing;
}

export function showBudget(
  balance: Balance, allowance: Allowance, plan: Plan, free: boolean, advice: number,
): void {
  const said = words();
  const cost = plan.epsilon;
  by("books").hidden = false;
  const period = periodWords(allowance.period_s);
  const whole = Math.min(24, Math.max(1, Math.floor(allowance.period_epsilon / cost + 1e-9)));
  const spent = Math.min(whole, Math.ceil(balance.spent / cost - 1e-9));
  const bar = by("budget");
  bar.replaceChildren(...Array.from({ length: whole }, (_, k) => {
    const next = !free && k === spent;
    return make("i", { class: k < spent ? "spent" : next ? "next" : "" });
  }));
  const sum = said.spent(epsilonWords(balance.spent), epsilonWords(allowance.period_epsilon), period);
  bar.setAttribute("aria-label", sum);
  const ends = spanWords(Math.max(0, balance.ends - Date.now() / 1000));
  by("budget-said").textContent = balance.blocked
    ? said.spentLost(period, ends)
    : [
      sum, balance.delta > 0 ? said.spentDelta(epsilonWords(balance.delta), epsilonWords(allowance.period_delta ?? 0)) : "",
      free ? said.spentFree : said.spentCost(epsilonWords(cost)), said.spentRest(period, ends),
    ].filter(Boolean).join(" ");
  by("limit-label").textContent = said.limitLabel(period);
  const limit = by<HTMLInputElement>("limit");
  if (document.activeElement !== limit) limit.value = String(allowance.period_epsilon);
  by("keeps-said").hidden = plan.kind === "everywhere";
  by("limit-delta-row").hidden = plan.delta === 0 && !allowance.period_delta;
  by("limit-delta-label").textContent = said.limitDelta(period);
  const delta = by<HTMLInputElement>("limit-delta");
  if (document.activeElement !== delta) delta.value = String(allowance.period_delta ?? 0);
  by("advice").textContent = said.advice(advice, period, epsilonWords(advice * cost));
}

const STEPS = ["place", "told", "send"] as const;
export type Step = (typeof STEPS)[number];

/** The question that a narrow screen shows, and the way to the ones beside it. */
export function showStep(step: Step, picked: boolean, done: boolean): void {
  const said = words();
  const ended = done && step === "send";
  document.body.dataset.step = ended ? "done" : step;
  by("step-count").textContent = said.stepOf(STEPS.indexOf(step) + 1, STEPS.length);
  by("step-title").textContent = said.steps[ended ? "done" : step];
  by("back").hidden = step === "place";
  by("next").hidden = step === "send";
  by<HTMLButtonElement>("next").disabled = !picked;
}

/** What was sent is said with the map; here is what it was drawn from. */
export function showReported(text: string, known: boolean): void {
  by("spread-title").textContent = words().spreadDone;
  by("how-said").textContent = known ? words().spreadFrom : text;
}

export function showAction(text: string, state: "" | "good" | "bad" = ""): void {
  const said = by("action-said");
  said.textContent = text;
  said.dataset.state = state;
}

/** What is wrong and what helps, as one sentence. */
export function problemWords(error: unknown): string {
  const { message, remedy } = problem(error instanceof PandaError ? error : new PandaError("unknown"));
  const text = `${message}.${remedy ? ` ${remedy}` : ""}`;
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Something that stops everything. */
export function showAlarm(title: string, error: unknown, ...more: Node[]): void {
  const alarm = by("alarm");
  alarm.classList.remove("notice");
  alarm.replaceChildren(make("h2", {}, title), make("p", {}, problemWords(error)), ...more);
  alarm.hidden = false;
}

/** The operator put another table in force: nothing is wrong with that, but it is not silent. */
export function showReplaced({ info, deployment, plan }: Session, accept: () => void): void {
  const said = words();
  const button = make("button", { type: "button" }, said.replacedUse);
  button.addEventListener("click", accept);
  const alarm = by("alarm");
  alarm.classList.add("notice");
  alarm.replaceChildren(
    make("h2", {}, said.replacedTitle),
    make("p", {}, said.replacedSaid(info?.version ?? deployment.version, epsilonWords(plan.epsilon))),
    button,
  );
  alarm.hidden = false;
}
