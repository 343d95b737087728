/** The panel: what each section says. Nothing here decides anything. */

import type { AuditResult, OwnAudit } from "../core/audit";
import type { TableInfo } from "../core/api";
import type { PandaError } from "../core/errors";
import type { Allowance, Balance } from "../core/ledger";
import { meaning, type Spread } from "../core/meaning";
import type { Snap } from "../core/snap";
import {
  bytesWords, countWords, distanceWords, epsilonWords, factorWords, guessWords, percentWords,
  periodWords, spanWords,
} from "../core/words";
import { by, make } from "../dom";
import { distanceChart } from "./chart";
import type { Session } from "./session";

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
  const known = session.firstKey ? "seen here for the first time" : "the one you know";
  showCheck(
    "signature", "good", `Signed by the operator, with key ${grouped(session.key.id)}, ${known}`,
  );
}

export function showCertificate(session: Session): void {
  const { info, table, key } = session;
  const compact = table.header.compact;
  const facts: [string, string][] = [
    ["Table", `${info.name}, version ${info.version}, ${bytesWords(info.size_bytes)}`],
    ["Records", `${countWords(table.size)} places, ${countWords(table.outputs.length)} outputs`],
    ["Promised", `epsilon ${epsilonWords(table.epsilon)} per km`],
    ["Method", table.header.method],
    ["Average loss", `${lossWords(info.loss, table.header.loss_unit)} as the operator counts it`
      + (info.gap === null ? "" : `, at most ${percentWords(info.gap)} above the best possible`)],
    ["Rounding", `cost ${percentWords(compact.loss_cost)} of that`],
    ["SHA-256", info.sha256],
    ["Key", key.public],
    ["Made", new Date(info.created).toLocaleString()],
  ];
  by("certificate").replaceChildren(
    ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
}

function lossWords(loss: number, unit: string | undefined): string {
  return unit === "km" ? distanceWords(loss) : `${loss.toPrecision(4)} ${unit ?? ""}`;
}

/** What the audit covered, in words that claim no more than that. */
export function auditWords(result: AuditResult): string {
  const pairs = countWords(result.pairs);
  if (result.complete) {
    return `This page compared all ${pairs} pairs of places over all outputs, in `
      + `${result.seconds.toFixed(1)} s, on the integers that are drawn from. The largest epsilon `
      + `among them is ${result.epsilon.toFixed(6)} per km; ${epsilonWords(result.claimed)} is `
      + "promised.";
  }
  return `This page compared all pairs of places nearer than ${distanceWords(result.within)} `
    + `(${countWords(result.covered)} of ${pairs} pairs, or proved them by a bound), and `
    + `${countWords(result.sampled)} of all pairs drawn at random. The largest epsilon among them `
    + `is ${result.epsilon.toFixed(6)} per km; ${epsilonWords(result.claimed)} is promised. Pairs `
    + "farther apart were not all compared. Your own place is compared with every other one before "
    + "anything is drawn.";
}

export function showAudit(result: AuditResult): void {
  by("audit-said").textContent = auditWords(result);
  by("audit-all").hidden = result.complete || !result.holds;
  if (!result.holds) {
    showCheck(
      "audit", "bad",
      `The table is not as private as it says: epsilon ${result.epsilon.toPrecision(4)} instead `
        + `of ${epsilonWords(result.claimed)} per km. Nothing can be reported with it.`,
    );
  } else if (result.complete) {
    showCheck("audit", "good", `Privacy checked in this page: all ${countWords(result.pairs)} pairs`);
  } else {
    showCheck(
      "audit", "good",
      `Privacy checked in this page: all pairs within ${distanceWords(result.within)}, `
        + `${countWords(result.sampled)} others at random`,
    );
  }
}

export function showPlace(snap: Snap, lat: number, lon: number, limitKm: number, epsilon: number): void {
  by("place-said").replaceChildren(
    make("span", {}, `${lat.toFixed(5)}, ${lon.toFixed(5)}`),
    `. The nearest place that the table knows is ${distanceWords(snap.km)} away.`,
  );
  const factor = Math.exp(epsilon * snap.km);
  const cost = by("snap-said");
  cost.hidden = false;
  cost.textContent = `It stands for yours, and the step counts like distance: odds between your `
    + `place and another may change by a further factor of ${factorWords(factor)} for your `
    + `${distanceWords(snap.km)}, and as much for the other's step. Places more than `
    + `${distanceWords(limitKm)} from all known ones are refused.`;
}

export function showSpread(spread: Spread, byRecord: number, itself: number): void {
  by("spread").hidden = false;
  by("expected").textContent = distanceWords(spread.expected);
  by("chart").replaceChildren(distanceChart(spread));
  const moved = distanceWords(byRecord) !== distanceWords(spread.expected);
  by("spread-said").textContent = `Half of all reports would fall within `
    + `${distanceWords(spread.half)}, nine in ten within ${distanceWords(spread.most)}. The `
    + `likeliest single one has ${percentWords(spread.top)}. `
    + (itself > 0
      ? `${percentWords(itself)} of them would name the place that stands for yours.`
      : "None would name the place that stands for yours.")
    + (moved ? ` Without snapping it would be ${distanceWords(byRecord)} on average.` : "");
}

export function showMeaning(epsilon: number, own: OwnAudit | null): void {
  by("meaning").hidden = false;
  const rows = DISTANCES.map((distance, k) => {
    const most = meaning(epsilon, distance);
    const here = own?.told[k].guess ?? null;
    const gauge = make("div", { class: "gauge", "aria-hidden": "true" });
    for (const [name, guess] of [["most", most.guess], ["here", here]] as const) {
      if (guess === null) continue;
      const bar = make("i", { class: name });
      // The left end is pure guessing.
      bar.style.width = `${200 * (guess - 0.5)}%`;
      gauge.append(bar);
    }
    const detail = make(
      "p", { class: "small" },
      `Odds change by a factor of ${factorWords(most.factor)} at most.`,
      own && here !== null
        ? ` From your place, with the ${countWords(own.told[k].records)} places within `
          + `${distanceWords(distance)}: ${guessWords(here)}.`
        : null,
    );
    return make(
      "li", {},
      make(
        "div", { class: "line" }, make("span", {}, `${distanceWords(distance)} apart`),
        make("span", {}, `at most ${guessWords(most.guess)}`),
      ),
      gauge, detail,
    );
  });
  by("meaning-rows").replaceChildren(...rows);
  by("meaning-said").textContent = own
    ? `Your place was compared with all ${countWords(own.pairs)} others: epsilon `
      + `${own.epsilon.toFixed(4)} per km at most, ${epsilonWords(epsilon)} is promised.`
      + (meaning(epsilon, 0.5).guess > 0.95 ? " Such an epsilon protects little at 500 m." : "")
    : "Comparing your place with all others…";
}

export function showBudget(
  balance: Balance, allowance: Allowance, cost: number, free: boolean, advice: number,
): void {
  by("books").hidden = false;
  const period = periodWords(allowance.period_s);
  const whole = Math.min(24, Math.max(1, Math.floor(allowance.period_epsilon / cost + 1e-9)));
  const spent = Math.min(whole, Math.ceil(balance.spent / cost - 1e-9));
  const bar = by("budget");
  bar.replaceChildren(...Array.from({ length: whole }, (_, k) => {
    const next = !free && k === spent;
    return make("i", { class: k < spent ? "spent" : next ? "next" : "" });
  }));
  const said = `Epsilon ${epsilonWords(balance.spent)} of ${epsilonWords(allowance.period_epsilon)} `
    + `per km is spent this ${period}.`;
  bar.setAttribute("aria-label", said);
  const ends = spanWords(Math.max(0, balance.ends - Date.now() / 1000));
  by("budget-said").textContent = balance.blocked
    ? `The books of this browser were lost, so what was spent is unknown. The next ${period} `
      + `begins in ${ends}.`
    : `${said} ${free
      ? "This place was drawn for already, so it costs nothing more and the answer is the same."
      : `A new place costs ${epsilonWords(cost)}.`} Costs add up over places: somebody who sees `
      + `all your reports of a ${period} learns at most that much per km. The next ${period} begins `
      + `in ${ends}.`;
  by("limit-period").textContent = period;
  const limit = by<HTMLInputElement>("limit");
  if (document.activeElement !== limit) limit.value = String(allowance.period_epsilon);
  by("advice").textContent = `The operator suggests ${advice} ${advice === 1 ? "report" : "reports"} `
    + `a ${period}: epsilon ${epsilonWords(advice * cost)}. The limit is yours, and this page keeps it.`;
}

export function showAction(text: string, state: "" | "good" | "bad" = ""): void {
  const said = by("action-said");
  said.textContent = text;
  said.dataset.state = state;
}

/** Something that stops everything. */
export function showAlarm(title: string, error: PandaError | Error, ...more: Node[]): void {
  const remedy = "remedy" in error ? error.remedy : "";
  const alarm = by("alarm");
  alarm.classList.remove("notice");
  alarm.replaceChildren(
    make("h2", {}, title), make("p", {}, `${error.message}.`), make("p", {}, remedy), ...more,
  );
  alarm.hidden = false;
}

/** The operator put another table in force: nothing is wrong with that, but it is not silent. */
export function showReplaced(info: TableInfo, accept: () => void): void {
  const button = make("button", { type: "button" }, "Use the new table");
  button.addEventListener("click", accept);
  const alarm = by("alarm");
  alarm.classList.add("notice");
  alarm.replaceChildren(
    make("h2", {}, "The table was replaced since your last visit"),
    make(
      "p", {},
      `Version ${info.version} is in force now, with epsilon ${epsilonWords(info.epsilon)} per km. `
        + "It has the operator's signature, and this page checks its privacy like the first one's.",
    ),
    button,
  );
  alarm.hidden = false;
}
