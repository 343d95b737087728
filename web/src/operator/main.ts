/** The operator's page: what runs, what came in, and what it says about where people are. */

import { Api, ApiError, type Deployment, type TableInfo } from "../core/api";
import { EverywhereTable } from "../core/everywhere";
import { Haversine } from "../core/metric";
import { PandaTable } from "../core/panda";
import { signingKeys, tableBytes, verifyAny } from "../core/signing";
import { headerOf } from "../core/container";
import { CompactTable } from "../core/table";
import { bytesWords, countWords, epsilonWords, percentWords, periodWords } from "../core/words";
import { by, make, say, token as tokenIn } from "../dom";
import { Plane } from "../map/plane";
import { Acts } from "./acts";
import { hoursChart } from "./hours";
import { type Counts, DensityMaps, type Estimate, type Places } from "./maps";

const NAME = "panda-mdp.admin";
const EVERY_MS = 10_000;

interface Round {
  readonly round: number;
  readonly state: string;
  readonly users: number;
  readonly opened: string;
  readonly closes_at: string | null;
  readonly error: string | null;
}

interface DomainDetail {
  readonly kind: string;
  readonly lat: number[] | null;
  readonly lon: number[] | null;
  readonly streets: boolean;
}

const api = Api.ofPage();
let admin: string | null = null;
let maps: DensityMaps | null = null;
let acts: Acts | null = null;
let chosen: string | null = null;
let timer = 0;
let turn = 0;
let shownFor = "";
let estimating = false;
const known = new Map<string, Promise<Places | null>>();

by("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const found = tokenIn(by<HTMLInputElement>("token").value);
  if (!found) {
    by("enter-said").textContent = "A token begins with pmt_.";
    return;
  }
  if (by<HTMLInputElement>("keep").checked) sessionStorage.setItem(NAME, found);
  void enter(found);
});
by("leave").addEventListener("click", () => {
  sessionStorage.removeItem(NAME);
  location.reload();
});
by("refresh").addEventListener("click", () => void refresh(true));

const before = sessionStorage.getItem(NAME);
if (before) void enter(before);

async function enter(found: string): Promise<void> {
  try {
    await api.admin("tokens?limit=1", found);
  } catch (error) {
    const text = error instanceof Error ? error.message : "unknown";
    by("enter-said").textContent = `Not accepted: ${text}.`;
    return;
  }
  admin = found;
  by<HTMLInputElement>("token").value = "";
  by("door").hidden = true;
  by("desk").hidden = false;
  by("refresh").hidden = false;
  by("leave").hidden = false;
  maps = new DensityMaps();
  acts = new Acts(api, found, () => refresh(true));
  await refresh(true);
}

/**
 * Everything again; the estimate, which costs work, only where reports came in or on demand. Of
 * several at a time the one that began last is shown: an older answer may know less.
 */
async function refresh(all: boolean): Promise<void> {
  clearTimeout(timer);
  const mine = ++turn;
  try {
    const deployments = await api.deployments();
    if (mine !== turn) return;
    if (!deployments.some(({ name }) => name === chosen)) chosen = deployments[0]?.name ?? null;
    showList(deployments);
    const deployment = deployments.find(({ name }) => name === chosen);
    by("shown").hidden = !deployment;
    by("name").textContent = deployment?.name ?? "No deployment yet";
    acts?.choose(deployment ?? null);
    if (deployment) await showDeployment(deployment, all, () => mine === turn);
    // Lists under somebody's hands do not change by themselves.
    if (all && mine === turn) await acts?.show();
    if (mine !== turn) return;
    by("problem").textContent = "";
    by("fresh").textContent = api.stale
      ? "the server is out of reach; this is what it said before" : `as of ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    if (mine !== turn) return;
    by("problem").textContent = error instanceof Error ? `${error.message}.` : "Something failed.";
    if (error instanceof ApiError && error.aboutToken) return;
  }
  timer = window.setTimeout(() => void refresh(false), EVERY_MS);
}

function showList(deployments: readonly Deployment[]): void {
  by("deployments").replaceChildren(...deployments.map((deployment) => {
    const button = make(
      "button", { type: "button", "aria-current": String(deployment.name === chosen) },
      deployment.name,
      make("span", {}, `${deployment.kind}, version ${deployment.version}${deployment.open ? "" : ", closed"}`),
    );
    button.addEventListener("click", () => {
      chosen = deployment.name;
      void refresh(true);
    });
    return make("li", {}, button);
  }));
}

async function showDeployment(
  deployment: Deployment, all: boolean, latest: () => boolean,
): Promise<void> {
  const chip = by("state");
  chip.textContent = deployment.open ? "open" : "closed";
  chip.dataset.state = deployment.open ? "open" : "closed";
  const path = `deployments/${encodeURIComponent(deployment.name)}`;
  const counts = await api.admin<Counts>(`${path}/counts`, admin as string);
  if (!latest()) return;
  showFigures(deployment, counts);
  const hours = by("hours");
  hours.replaceChildren(hoursChart(counts.per_hour, Math.max(240, hours.clientWidth)));
  await showCertificate(deployment.table);
  await showRounds(deployment, path);
  if (!latest()) return;
  const state = `${deployment.name}/${deployment.version}/${counts.reports}`;
  // The estimate may take minutes; the rest of the page goes on meanwhile.
  if ((all || state !== shownFor) && !(estimating && state === shownFor)) {
    const fresh = shownFor.split("/")[0] !== deployment.name;
    shownFor = state;
    estimating = true;
    showMaps(deployment, path, counts, fresh).catch((error: unknown) => {
      by("maps-said").textContent = `No maps: ${error instanceof Error ? error.message : "unknown"}.`;
    }).finally(() => {
      estimating = false;
    });
  }
}

function showFigures(deployment: Deployment, counts: Counts): void {
  const hour = Math.floor(Date.now() / 3.6e6);
  const lately = counts.per_hour.find(({ hour: at }) => Math.floor(Date.parse(at) / 3.6e6) === hour);
  const { guarantee } = deployment;
  const figures: [string, string][] = [
    [countWords(counts.reports), "reports"],
    [countWords(lately?.count ?? 0), "in this hour"],
    [guarantee ? epsilonWords(guarantee.epsilon) : "none", guarantee ? `epsilon per ${guarantee.unit}` : "guarantee"],
    [guarantee && guarantee.delta > 0 ? guarantee.delta.toExponential(0) : "0", "delta"],
    [`${deployment.reports_per_period}`, `reports per token and ${periodWords(deployment.period_s)}`],
    [deployment.until ?? "open", deployment.until ? "last day (UTC)" : "no promised end"],
  ];
  by("figures").replaceChildren(
    ...figures.map(([value, name]) => make("li", {}, make("strong", {}, value), make("span", {}, name))),
  );
}

async function showCertificate(info: TableInfo | undefined): Promise<void> {
  by("certificate-card").hidden = !info;
  if (!info) return;
  const { key, keys: sheet } = await api.service();
  const keys = sheet
    ? await signingKeys(sheet.operator, sheet.certificates, Date.now() / 1000) : [key.public];
  const signed = await verifyAny(keys, tableBytes(info), info.signature).then(
    () => "good, checked in this page", () => "DOES NOT MATCH",
  );
  const facts: [string, string][] = [
    ["Table", `${info.name}, version ${info.version}`],
    ["Size", `${countWords(info.records)} records x ${countWords(info.outputs)} outputs, ${bytesWords(info.size_bytes)}`],
    ["Epsilon", `${epsilonWords(info.epsilon)} promised, ${info.audited_epsilon.toFixed(6)} audited over all pairs, per ${info.unit}`],
    ["Loss", info.loss.toPrecision(5)],
    ["Lower bound", info.lower_bound === null ? "none" : info.lower_bound.toPrecision(5)],
    ["Gap", info.gap === null ? "unknown" : `${(100 * info.gap).toFixed(2)} % above the best possible at most`],
    ["Rounding", `cost ${percentWords(info.loss_cost)}`],
    ["Identity", info.identity],
    ["SHA-256", info.sha256],
    ["Signature", signed],
    ["Key", info.key_id],
    ["Made", new Date(info.created).toLocaleString()],
  ];
  by("certificate").replaceChildren(
    ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
}

async function showRounds(deployment: Deployment, path: string): Promise<void> {
  const card = by("rounds-card");
  card.hidden = deployment.kind !== "anchors";
  if (card.hidden) return;
  const { rounds } = await api.admin<{ rounds: Round[] }>(`${path}/rounds`, admin as string);
  const time = (text: string | null) => (text ? new Date(text).toLocaleString() : "by hand");
  fillTable(
    by("rounds"), ["Round", "State", "Users", "Opened", "Closes"],
    rounds.map((round) => [
      String(round.round), round.error ? `${round.state}: ${round.error}` : round.state,
      countWords(round.users), time(round.opened), time(round.closes_at),
    ]),
  );
}

function fillTable(table: HTMLElement, head: string[], rows: string[][]): void {
  table.replaceChildren(
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text) => make("td", {}, text))))),
  );
}

async function showMaps(
  deployment: Deployment, path: string, counts: Counts, fresh: boolean,
): Promise<void> {
  const places = await placesOf(deployment);
  if (chosen !== deployment.name) return;
  by("maps").hidden = places === null;
  if (!places || !maps) return;
  if (fresh) {
    maps.setPlaces(places);
    maps.show(counts, null);
  }
  let estimate: Estimate | null = null;
  if (counts.reports > 0) {
    by("maps-said").textContent = "Estimating where people are; this takes a while for large tables…";
    try {
      estimate = await api.admin<Estimate>(`${path}/estimate`, admin as string);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }
  if (chosen !== deployment.name) return;
  by("maps-said").textContent = maps.show(counts, estimate);
  if (estimate) showNumbers(places, estimate);
  say(`Maps of ${deployment.name} are up to date.`);
}

function showNumbers(places: Places, estimate: Estimate): void {
  const middle = estimate.zones.map((_, zone) => {
    const mine = estimate.records.filter((_, k) => estimate.zone[k] === zone);
    const mean = (of: ArrayLike<number>): number => mine.reduce((sum, k) => sum + of[k], 0) / mine.length;
    return [mean(places.lat).toFixed(4), mean(places.lon).toFixed(4), String(mine.length)];
  });
  const order = estimate.zones.map((_, k) => k)
    .sort((a, b) => estimate.zones[b].share - estimate.zones[a].share);
  fillTable(
    by("numbers-table"),
    ["Latitude", "Longitude", "Places", "Reports", "Share", `${percentWords(estimate.confidence)} limits`],
    order.map((k) => {
      const { raw, share, low, high, told_apart: toldApart } = estimate.zones[k];
      const limits = `${percentWords(low)} to ${percentWords(high)}`;
      return [
        ...middle[k], percentWords(raw), percentWords(share),
        toldApart ? limits : `${limits}; cannot be told apart here`,
      ];
    }),
  );
}

/** The places of a deployment's records, or null where they are not on a map. */
function placesOf(deployment: Deployment): Promise<Places | null> {
  const key = `${deployment.name}/${deployment.version}`;
  const before = known.get(key);
  if (before) return before;
  const found = load(deployment);
  known.set(key, found);
  found.catch(() => known.delete(key));
  return found;
}

async function load(deployment: Deployment): Promise<Places | null> {
  const { table: info } = deployment;
  let lat: ArrayLike<number>;
  let lon: ArrayLike<number>;
  let outputs: ArrayLike<number>;
  let streetsOf: string | null;
  if (info) {
    const file = await api.tableFile(info, () => undefined);
    const points = headerOf(file).mesh !== undefined;
    const reader = deployment.kind === "panda" ? PandaTable : points ? EverywhereTable : CompactTable;
    const table = await reader.read(file);
    if (!(table.metric instanceof Haversine)) return null;
    ({ lat, lon } = table.metric);
    outputs = table.outputs;
    streetsOf = info.streets;
  } else {
    const path = `domains/${encodeURIComponent(deployment.domain ?? "")}`;
    const detail = await api.admin<DomainDetail>(path, admin as string);
    if (!detail.lat || !detail.lon) return null;
    ({ lat, lon } = { lat: detail.lat, lon: detail.lon });
    outputs = deployment.outputs ?? [];
    streetsOf = detail.streets ? (deployment.domain ?? null) : null;
  }
  const plane = Plane.around(lat, lon);
  const streets = streetsOf ? await api.streets(streetsOf) : null;
  return { plane, xy: plane.points(lat, lon), lat, lon, outputs, streets };
}
