/**
 * What an operator does: publish, open and close, limits, tokens, and the record of all of it.
 *
 * Nothing is done before it was confirmed in words that name it; the server records each act in
 * the transaction that does it.
 */

import { type Api, type Deployment, PAGE, type TableInfo } from "../core/api";
import { countWords, periodWords } from "../core/words";
import { by, make, say } from "../dom";

interface TokenInfo {
  readonly id: string;
  readonly role: string;
  readonly label: string;
  readonly created: string;
  readonly expires: string | null;
}

interface Action {
  readonly at: string;
  readonly by: string;
  readonly action: string;
  readonly target: string;
  readonly detail: string;
}

const OCTETS = "application/octet-stream";
const time = (text: string | null) => (text ? new Date(text).toLocaleString() : "never");

export class Acts {
  private deployment: Deployment | null = null;
  private tables: readonly TableInfo[] = [];
  private after: string[] = [""];
  private tokensAsked = 0;

  constructor(
    private readonly api: Api, private readonly token: string, private readonly done: () => Promise<void>,
  ) {
    this.form("publish-form", () => this.publish());
    this.form("deploy-form", () => this.deploy());
    this.form("force-form", () => this.force());
    this.form("limits-form", () => this.limit());
    this.form("tokens-form", () => this.make());
    by("toggle").addEventListener("click", () => void this.run(() => this.toggle()));
    by("tokens-next").addEventListener("click", () => void this.run(() => this.showTokens(1)));
    by("tokens-back").addEventListener("click", () => void this.run(() => this.showTokens(-1)));
    by("made-close").addEventListener("click", () => {
      // Shown once: nothing of it stays in the page.
      by<HTMLTextAreaElement>("made-tokens").value = "";
      by("made").hidden = true;
    });
    by("made-save").addEventListener("click", () => this.save());
  }

  /** What acts are about from now on: the deployment whose name the page shows, at the same moment. */
  choose(deployment: Deployment | null): void {
    const same = this.deployment?.name === deployment?.name;
    this.deployment = deployment;
    by("acts-deployment").hidden = !deployment;
    if (!deployment) return;
    by("toggle").textContent = deployment.open ? "Close: take no more reports" : "Open: take reports again";
    by("force-form").hidden = by("limits-form").hidden = deployment.kind === "anchors";
    by("limits-period").textContent = `Reports per token and ${periodWords(deployment.period_s)}`;
    // What somebody types is left alone, unless it was typed for another deployment.
    const put = (id: string, value: string) => {
      const field = by<HTMLInputElement>(id);
      if (!same || document.activeElement !== field) field.value = value;
    };
    put("limit-reports", String(deployment.reports_per_period));
    put("limit-until", deployment.until ?? "");
    put("force-table", this.inForce);
  }

  /** The table that the deployment has now, as the list names it. */
  private get inForce(): string {
    const { table } = this.deployment ?? {};
    return table ? `${table.name}/${table.version}` : "";
  }

  /** Lists of what can be acted upon, as they are now. */
  async show(): Promise<void> {
    ({ tables: this.tables } = await this.api.admin<{ tables: TableInfo[] }>("tables", this.token));
    const options = () => this.tables.map((table) => make(
      "option", { value: `${table.name}/${table.version}` }, `${table.name}, version ${table.version}`,
    ));
    for (const id of ["deploy-table", "force-table"]) {
      const select = by<HTMLSelectElement>(id);
      const before = select.value;
      select.replaceChildren(...options());
      const now = before || (id === "force-table" ? this.inForce : "");
      if (now) select.value = now;
    }
    await this.showTokens(0);
    await this.showActions();
  }

  private form(id: string, act: () => Promise<void>): void {
    by(id).addEventListener("submit", (event) => {
      event.preventDefault();
      void this.run(act);
    });
  }

  private async run(act: () => Promise<void>): Promise<void> {
    const said = by("acts-said");
    said.textContent = "";
    try {
      await act();
    } catch (error) {
      said.textContent = error instanceof Error ? `Not done: ${error.message}.` : "Not done.";
    }
  }

  private async act(
    title: string, detail: string, method: "POST" | "PATCH" | "DELETE", path: string,
    body?: unknown, type?: string,
  ): Promise<Response | null> {
    if (!(await confirmed(title, detail))) return null;
    const response = await this.api.act(method, path, this.token, body, type);
    say(`Done: ${title}`);
    await this.done();
    return response;
  }

  private async publish(): Promise<void> {
    const file = by<HTMLInputElement>("publish-file").files?.[0];
    const name = by<HTMLInputElement>("publish-name").value.trim();
    if (!file || !name) return;
    const next = 1 + Math.max(0, ...this.tables.filter((t) => t.name === name).map((t) => t.version));
    const made = await this.act(
      `Publish ${file.name} as ${name}, version ${next}?`,
      "The server audits it over all pairs and signs it with your key. Published tables do not change "
        + "and cannot be taken back.",
      "POST", `tables/${encodeURIComponent(name)}`, await file.arrayBuffer(), OCTETS,
    );
    if (made) by<HTMLFormElement>("publish-form").reset();
  }

  private async deploy(): Promise<void> {
    const value = (id: string) => by<HTMLInputElement>(id).value.trim();
    const name = value("deploy-name");
    const body = {
      kind: value("deploy-kind"), name, table: ref(value("deploy-table")),
      reports_per_period: Number(value("deploy-reports")), period_s: Number(value("deploy-period")),
      collector: value("deploy-collector"), purpose: value("deploy-purpose"),
      until: value("deploy-until") || null,
    };
    const made = await this.act(
      `Open ${name} with table ${value("deploy-table")}?`,
      `People read, signed by you: collected by "${body.collector || "(not said)"}", for `
        + `"${body.purpose || "(not said)"}", until ${body.until ?? "no promised end"}; `
        + `${body.reports_per_period} per ${periodWords(body.period_s)}.`,
      "POST", "deployments", body,
    );
    if (made) by<HTMLFormElement>("deploy-form").reset();
  }

  private async toggle(): Promise<void> {
    const { deployment } = this;
    if (!deployment) return;
    await this.act(
      deployment.open ? `Close ${deployment.name}?` : `Open ${deployment.name} again?`,
      deployment.open
        ? "Reports are refused from now on, also those that wait on people's devices."
        : "Reports are taken again.",
      "PATCH", pathOf(deployment), { open: !deployment.open },
    );
  }

  private async force(): Promise<void> {
    const { deployment } = this;
    if (!deployment) return;
    const wanted = by<HTMLSelectElement>("force-table").value;
    await this.act(
      `Put table ${wanted} into force for ${deployment.name}?`,
      "Everyone fetches and audits it anew, is asked whether to use it, and pays again for what was "
        + "drawn and not sent yet.",
      "PATCH", pathOf(deployment), { table: ref(wanted) },
    );
  }

  private async limit(): Promise<void> {
    const { deployment } = this;
    if (!deployment) return;
    const reports = Number(by<HTMLInputElement>("limit-reports").value);
    const until = by<HTMLInputElement>("limit-until").value;
    await this.act(
      `Allow ${reports} ${reports === 1 ? "report" : "reports"} per token and period in ${deployment.name}`
        + `${until ? `, until ${until}` : ""}?`,
      "It is signed under the next version. The server refuses more at once; people's own limits stay theirs.",
      "PATCH", pathOf(deployment), { reports_per_period: reports, ...(until ? { until } : {}) },
    );
  }

  private async make(): Promise<void> {
    const count = Number(by<HTMLInputElement>("tokens-count").value);
    const days = Number(by<HTMLInputElement>("tokens-days").value);
    const label = by<HTMLInputElement>("tokens-label").value.trim();
    const role = by<HTMLSelectElement>("tokens-role").value;
    const made = await this.act(
      `Make ${count} ${role} ${count === 1 ? "token" : "tokens"}?`,
      (role === "admin" ? "An admin token can do everything that this page does. " : "")
        + (days ? `They end after ${days} days.` : "They do not end by themselves."),
      "POST", "tokens", { role, label, count, ...(days ? { expires_in_s: 86_400 * days } : {}) },
    );
    if (!made) return;
    const { tokens } = (await made.json()) as { tokens: { token: string }[] };
    by<HTMLTextAreaElement>("made-tokens").value = tokens.map(({ token }) => token).join("\n");
    by("made").hidden = false;
    by("made-tokens").focus();
  }

  private save(): void {
    const text = by<HTMLTextAreaElement>("made-tokens").value;
    const link = make("a", { href: URL.createObjectURL(new Blob([`${text}\n`])), download: "tokens.txt" });
    link.click();
    URL.revokeObjectURL(link.href);
  }

  private async revoke(token: TokenInfo): Promise<void> {
    await this.act(
      `Revoke token ${token.id}${token.label ? ` (${token.label})` : ""}?`,
      "It stops working at once and for good. Its reports stay.",
      "DELETE", `tokens/${token.id}`,
    );
  }

  /** A page of the tokens: the next, the one before, or the same again. */
  private async showTokens(step: -1 | 0 | 1): Promise<void> {
    if (step < 0 && this.after.length > 1) this.after.pop();
    const last = by("tokens-next").dataset.after;
    if (step > 0 && last) this.after.push(last);
    const after = this.after[this.after.length - 1];
    const asked = ++this.tokensAsked;
    const { tokens, total } = await this.api.admin<{ tokens: TokenInfo[]; total: number }>(
      `tokens?limit=${PAGE}&after=${after}`, this.token,
    );
    // Pages are asked for by clicks and by the clock: an answer that was overtaken is dropped.
    if (asked !== this.tokensAsked) return;
    by("tokens-said").textContent = `${countWords(total)} valid`;
    by("tokens-next").dataset.after = tokens[tokens.length - 1]?.id ?? "";
    by("tokens-next").hidden = tokens.length < PAGE;
    by("tokens-back").hidden = this.after.length < 2;
    const rows = tokens.map((token) => {
      const button = make(
        "button", { type: "button", class: "plain", "aria-label": `Revoke ${token.id}` }, "Revoke",
      );
      button.addEventListener("click", () => void this.run(() => this.revoke(token)));
      return make(
        "tr", {}, ...[token.id, token.role, token.label, time(token.created), time(token.expires)]
          .map((text) => make("td", {}, text)), make("td", {}, button),
      );
    });
    fill("tokens-table", ["Id", "Role", "Label", "Made", "Ends", "Act"], rows);
  }

  private async showActions(): Promise<void> {
    const { actions } = await this.api.admin<{ actions: Action[] }>("actions?limit=100", this.token);
    const rows = actions.map((act) => make(
      "tr", {}, ...[time(act.at), act.by || "the server's machine", act.action, act.target, act.detail]
        .map((text) => make("td", {}, text)),
    ));
    fill("actions-table", ["When", "Token", "Act", "On", "Details"], rows);
  }
}

function pathOf({ name }: Deployment): string {
  return `deployments/${encodeURIComponent(name)}`;
}

function ref(text: string): { name: string; version: number } {
  const at = text.lastIndexOf("/");
  return { name: text.slice(0, at), version: Number(text.slice(at + 1)) };
}

function fill(id: string, head: readonly string[], rows: HTMLElement[]): void {
  by(id).replaceChildren(
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...rows),
  );
}

/** Ask in a dialog of the page; Escape is no. */
function confirmed(title: string, detail: string): Promise<boolean> {
  const dialog = by<HTMLDialogElement>("confirm");
  by("confirm-title").textContent = title;
  by("confirm-detail").textContent = detail;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
