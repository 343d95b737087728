/** Start: trust, table, books, then the page. */

import { Api, ApiError, type Deployment } from "../core/api";
import { PandaError } from "../core/errors";
import { KeyChangedError, replacePin } from "../core/keypin";
import { Ledger } from "../core/ledger";
import { Outbox } from "../core/outbox";
import { by, fillWords, make } from "../dom";
import { keepLanguage, type Language, language, LANGUAGES, setLanguage, startLanguage, words } from "../words";
import { App } from "./app";
import { openSession, trustedKey, usable } from "../core/session";
import { limitsFrom } from "../core/statement";
import { readLink, TokenBox } from "./token";
import { grouped, showAlarm, showCheck, showStep } from "./views";

let app: App | null = null;

/** The language can be changed at any time; the page says everything again. */
function offerLanguages(): void {
  startLanguage(localStorage, navigator.languages ?? []);
  const select = by<HTMLSelectElement>("language");
  select.replaceChildren(
    ...Object.entries(LANGUAGES).map(([code, name]) => make("option", { value: code, lang: code }, name)),
  );
  select.value = language();
  select.addEventListener("change", () => {
    setLanguage(select.value as Language);
    keepLanguage(localStorage, language());
    fillWords(document.documentElement);
    void app?.relabel();
    showOffline();
  });
  fillWords(document.documentElement);
  showStep("place", false, false);
}

async function start(): Promise<void> {
  if (!crypto.subtle) throw new PandaError("unencrypted");
  const said = words();
  const link = readLink();
  const api = Api.ofPage();
  showCheck("signature", "wait", said.waitSignature);
  showCheck("audit", "wait", said.waitTable);
  showOffline();
  const trusted = await trustedKey(api, link.key);
  const all = await api.deployments();
  const offered = usable(all);
  const chosen = choose(offered, link.deployment);
  if (!chosen) throw new PandaError(all.length ? "noneUsable" : "noDeployment");
  fillDeployments(offered, chosen);
  by("loading-text").textContent = said.loadingTable;
  const session = await openSession(api, chosen, trusted, (share) => {
    by("loading-bar").style.width = `${100 * share}%`;
  });
  const ledger = await Ledger.open(limitsFrom(session.stated, session.plan.epsilon));
  void navigator.storage?.persist?.();
  const tokens = new TokenBox(link.token, (code) => api.enrol(code));
  app = new App(api, session, ledger, new Outbox(ledger), tokens);
  by("loading").hidden = true;
  showNet(api.stale);
  await app.start(link.invitation);
  await api.tidy(all);
  await workOffline();
}

function choose(offered: readonly Deployment[], wanted: string | null): Deployment | undefined {
  return offered.find(({ name }) => name === wanted)
    ?? offered.find(({ open }) => open)
    ?? offered[0];
}

function fillDeployments(offered: readonly Deployment[], chosen: Deployment): void {
  const select = by<HTMLSelectElement>("deployment");
  select.replaceChildren(...offered.map(({ name }) => make("option", { value: name }, name)));
  select.value = chosen.name;
  by("deployment-label").hidden = false;
  select.addEventListener("change", () => {
    location.hash = new URLSearchParams({ deployment: select.value }).toString();
    location.reload();
  });
}

function showNet(stale: boolean): void {
  const net = by("net");
  const show = () => {
    const offline = stale || !navigator.onLine;
    net.hidden = !offline;
  };
  show();
  addEventListener("online", () => {
    stale = false;
    show();
  });
  addEventListener("offline", show);
}

let offline: "wait" | "good" | "note" = "wait";

function showOffline(): void {
  const said = words();
  const text = { wait: said.waitOffline, good: said.worksOffline, note: said.needsNet }[offline];
  showCheck("offline", offline, text);
}

async function workOffline(): Promise<void> {
  offline = "note";
  try {
    if (navigator.serviceWorker) {
      await navigator.serviceWorker.register("sw.js");
      await navigator.serviceWorker.ready;
      offline = "good";
    }
  } catch {
    // A browser that allows no service worker works with a network alone.
  }
  showOffline();
}

/** A changed key is refused until its name, told by the operator in another way, is typed. */
function refuseKey(error: KeyChangedError): void {
  const text = words();
  const field = make("input", { autocomplete: "off", spellcheck: "false", "aria-label": text.keyName });
  const said = make("p", { class: "small", role: "status" });
  const form = make(
    "form", { class: "fields inline" },
    make("label", {}, text.keyAsk, field),
    make("button", { type: "submit" }, text.keyAccept), said,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await replacePin(localStorage, error.offered, field.value)) location.reload();
    else said.textContent = text.keyWrong;
  });
  showAlarm(
    text.keyChanged, error,
    make("p", {}, text.keyKnown, make("code", {}, grouped(error.pinned))), form,
  );
}

offerLanguages();
start().catch((error: unknown) => {
  const said = words();
  by("loading").dataset.failed = "yes";
  by("loading-text").textContent = said.loadingFailed;
  for (const item of document.querySelectorAll<HTMLElement>("#checks li")) {
    if (item.dataset.state === "wait") item.hidden = true;
  }
  if (error instanceof KeyChangedError) {
    refuseKey(error);
    return;
  }
  const retry = make("button", { type: "button" }, said.tryAgain);
  retry.addEventListener("click", () => location.reload());
  const alone = error instanceof ApiError && error.status === 0;
  showAlarm(alone ? said.noConnection : said.stops, error, retry);
});
