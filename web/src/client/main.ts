/** Start: trust, table, books, then the page. */

import { Api, ApiError, type Deployment } from "../core/api";
import { PandaError } from "../core/errors";
import { KeyChangedError, replacePin } from "../core/keypin";
import { Ledger } from "../core/ledger";
import { Outbox } from "../core/outbox";
import { by, make } from "../dom";
import { App } from "./app";
import { openSession, trustedKey, usable } from "./session";
import { limitsFrom } from "../core/statement";
import { readLink, TokenBox } from "./token";
import { grouped, showAlarm, showCheck } from "./views";

async function start(): Promise<void> {
  if (!crypto.subtle) {
    throw new PandaError(
      "this page was loaded without encryption, and browsers then lock the tools that it needs",
      "Open it with https.",
    );
  }
  const link = readLink();
  const api = Api.ofPage();
  showCheck("signature", "wait", "Waiting for the operator's signature…");
  showCheck("audit", "wait", "Waiting for the table…");
  showCheck("offline", "wait", "Preparing to work offline…");
  const trusted = await trustedKey(api, link.key);
  const all = await api.deployments();
  const offered = usable(all);
  const chosen = choose(offered, link.deployment);
  if (!chosen) {
    throw new PandaError(
      all.length
        ? "this server has deployments, but none with a public table, which this page needs"
        : "this server has no deployment yet",
      all.length ? "Use the client of the panda-mdp library for them." : "Come back later.",
    );
  }
  fillDeployments(offered, chosen);
  by("loading-text").textContent = "Loading the table";
  const session = await openSession(api, chosen, trusted, (share) => {
    by("loading-bar").style.width = `${100 * share}%`;
  });
  const { epsilon } = session.table;
  const ledger = await Ledger.open(limitsFrom(session.stated, epsilon));
  void navigator.storage?.persist?.();
  const app = new App(api, session, ledger, new Outbox(ledger), new TokenBox(link.token));
  by("loading").hidden = true;
  showNet(api.stale);
  await app.start();
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
    net.textContent = "Offline";
  };
  show();
  addEventListener("online", () => {
    stale = false;
    show();
  });
  addEventListener("offline", show);
}

async function workOffline(): Promise<void> {
  const without = () => showCheck("offline", "note", "Needs a network: this browser keeps nothing");
  if (!navigator.serviceWorker) return without();
  try {
    await navigator.serviceWorker.register("sw.js");
    await navigator.serviceWorker.ready;
    showCheck("offline", "good", "Works offline from now on; reports then wait for the network");
  } catch {
    without();
  }
}

/** A changed key is refused until its name, told by the operator in another way, is typed. */
function refuseKey(error: KeyChangedError): void {
  const field = make("input", { autocomplete: "off", spellcheck: "false", "aria-label": "Name of the new key" });
  const said = make("p", { class: "small", role: "status" });
  const form = make(
    "form", { class: "fields inline" },
    make("label", {}, "Name of the new key, as the operator told you ", field),
    make("button", { type: "submit" }, "Accept"), said,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await replacePin(localStorage, error.offered, field.value)) location.reload();
    else said.textContent = "That is not the name of the key that this server shows.";
  });
  showAlarm(
    "The operator's key has changed", error,
    make("p", {}, "Known: ", make("code", {}, grouped(error.pinned))), form,
  );
}

start().catch((error: unknown) => {
  const known = error instanceof Error ? error : new Error("something unknown went wrong");
  by("loading").dataset.failed = "yes";
  by("loading-text").textContent = "The map cannot be shown";
  for (const item of document.querySelectorAll<HTMLElement>("#checks li")) {
    if (item.dataset.state === "wait") item.hidden = true;
  }
  if (error instanceof KeyChangedError) refuseKey(error);
  else if (error instanceof ApiError && error.status === 0) showAlarm("No connection", error);
  else showAlarm("This page stops here", known);
});
