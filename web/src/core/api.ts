/** The server's API. Everything that is read here is public and the same for everyone. */

import type { Bytes } from "./bytes";
import { sha256 } from "./bytes";
import { FormatError, PandaError } from "./errors";
import { keep, kept, keepOnly } from "./keep";
import type { Issuer } from "./blind";
import type { Proof } from "./ledger";
import type { Log } from "./log";
import type { Selection } from "./coins";
import type { Centre } from "./lattice";
import type { BallRows } from "./rows";
import type { KeySheet, OperatorKey, SignedTable } from "./signing";

export interface TableInfo extends SignedTable {
  readonly unit: string;
  readonly records: number;
  readonly outputs: number;
  readonly audited_epsilon: number;
  readonly loss: number;
  readonly lower_bound: number | null;
  readonly gap: number | null;
  readonly loss_cost: number;
  readonly signature: string;
  readonly key_id: string;
  readonly created: string;
  /** The id of a domain whose streets may be drawn below this table. */
  readonly streets: string | null;
}

/** The paper's Phase I, and which records may become anchors; all of them where none are named. */
export interface AnchorsSelection extends Selection {
  readonly candidates: readonly number[] | null;
}

export interface Deployment {
  readonly name: string;
  readonly kind: "table" | "panda" | "ball" | "anchors";
  readonly version: number;
  readonly open: boolean;
  readonly period_s: number;
  readonly reports_per_period: number;
  readonly collector?: string;
  readonly purpose?: string;
  readonly until?: string | null;
  readonly retention_days?: number | null;
  readonly one_use?: boolean;
  readonly created: string;
  /** What the operator signed, as the very text that was signed. */
  readonly statement: string;
  readonly signature: string;
  readonly guarantee: { readonly epsilon: number; readonly delta: number; readonly unit: string } | null;
  readonly table?: TableInfo;
  readonly domain?: string;
  readonly epsilon?: number;
  readonly delta?: number;
  readonly epsilon_1?: number;
  readonly edge?: number;
  readonly radius?: number;
  /** Of kind ball: how far the record may be whose row a place takes, the root over the table's
   * tiles, how many they are, and the places of outputs and of what the plane comes from. */
  readonly snap?: number;
  readonly rows?: string;
  readonly tiles?: number;
  readonly places?: { readonly lat: readonly number[]; readonly lon: readonly number[] };
  /** For kind panda "ball" or "coins"; for kind anchors the parameters of the coins. */
  readonly selection?: AnchorsSelection;
  readonly outputs?: readonly number[];
  readonly round?: number | null;
  readonly reasons?: readonly string[];
}

export interface DomainDetail {
  readonly kind: string;
  readonly lat: readonly number[] | null;
  readonly lon: readonly number[] | null;
  readonly streets: boolean;
}

export interface RoundInfo {
  readonly round: number;
  readonly state: "open" | "solving" | "solved" | "failed";
  readonly error?: string | null;
}

export interface RoundRows {
  readonly round: number;
  readonly anchors: readonly number[];
  readonly outputs: readonly number[];
  readonly weights: readonly (readonly string[])[];
  readonly signature: string;
}

export interface Streets {
  readonly lat: readonly number[];
  readonly lon: readonly number[];
  readonly u: readonly number[];
  readonly v: readonly number[];
  readonly names?: readonly PlaceName[];
}

/** The name of a street or a landmark, and where it stands, in degrees. */
export interface PlaceName {
  readonly name: string;
  readonly lat: number;
  readonly lon: number;
  readonly kind: "street" | "landmark";
}

/** Tokens on one page of the list. */
export const PAGE = 50;

/** An answer of the server that is not a success, by its stable code; or none at all, status 0. */
export class ApiError extends PandaError {
  override readonly code: string;

  constructor(readonly status: number, code: string, message = "", remedy = "") {
    super(status === 0 ? "offline" : "server", message, remedy);
    this.code = code;
  }

  /** Whether the same request may succeed later. */
  get later(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }

  get aboutToken(): boolean {
    return this.status === 401 || this.status === 403;
  }
}

export class Api {
  /** Whether the last public answer came from this device because the server was out of reach. */
  stale = false;

  constructor(readonly base: URL) {}

  static ofPage(): Api {
    return new Api(new URL("v1/", document.baseURI));
  }

  /** What the books call this server. */
  get server(): string {
    return this.base.href;
  }

  async service(): Promise<{ version: string; key: OperatorKey; keys?: KeySheet | null }> {
    return this.json(new URL("../v1", this.base));
  }

  async deployments(): Promise<Deployment[]> {
    return (await this.json<{ deployments: Deployment[] }>("deployments")).deployments;
  }

  async deployment(name: string): Promise<Deployment> {
    return this.json<Deployment>(`deployments/${encodeURIComponent(name)}`);
  }

  /** A whole domain, always. */
  async domain(name: string): Promise<DomainDetail> {
    return this.json<DomainDetail>(`domains/${encodeURIComponent(name)}`);
  }

  /** Streets for drawing, or null where the domain has none. */
  async streets(domain: string): Promise<Streets | null> {
    return this.unlessMissing<Streets>(`domains/${encodeURIComponent(domain)}/streets`);
  }

  /** The operator's whole log, or null where there is none. */
  async log(): Promise<Log | null> {
    return this.unlessMissing<Log>("log");
  }

  private async unlessMissing<T>(path: string): Promise<T | null> {
    try {
      return await this.json<T>(path);
    } catch (error) {
      if (error instanceof ApiError && error.code === "not_found") return null;
      throw error;
    }
  }

  /** The whole file of a table, always whole, with the SHA-256 that was promised. */
  async tableFile(table: TableInfo, onProgress: (share: number) => void): Promise<Bytes> {
    const url = this.fileOf(table);
    const right = async (bytes: Bytes) =>
      bytes.length === table.size_bytes && (await sha256(bytes)) === table.sha256;
    const before = await kept(url);
    if (before) {
      // Tables never change, so what is here is good if it is what was promised.
      const bytes = new Uint8Array(await before.arrayBuffer());
      if (await right(bytes)) {
        onProgress(1);
        return bytes;
      }
    }
    const bytes = await collect(await this.send(url, {}), table.size_bytes, onProgress);
    if (!(await right(bytes))) {
      throw new FormatError("notAnnounced");
    }
    await keep(url, bytes, "application/octet-stream");
    return bytes;
  }

  /** Let go of kept tables that are in force nowhere. */
  async tidy(deployments: readonly Deployment[]): Promise<void> {
    const tables = deployments.flatMap(({ table }) => (table ? [table] : []));
    await keepOnly(tables.map((table) => this.fileOf(table)));
  }

  private fileOf(table: TableInfo): URL {
    return new URL(`tables/${encodeURIComponent(table.name)}/${table.version}/file`, this.base);
  }

  /** Send what was drawn, with the token; with a one-use token in its place where there is one. */
  async report(
    report: { id: string; deployment: string; output: number; table?: string | null; proof?: Proof },
    token: string | null,
  ): Promise<void> {
    const { id, output, table, proof } = report;
    await this.post(`deployments/${encodeURIComponent(report.deployment)}/reports`, proof ? null : token, {
      id, ...(table ? { table } : {}), output, ...(proof ? { proof } : {}),
    });
  }

  /** The key that signs one-use tokens now; asked for without a token, and never from this device. */
  async issuer(deployment: string): Promise<Issuer> {
    const path = `deployments/${encodeURIComponent(deployment)}/issuer`;
    return (await this.send(path, {})).json() as Promise<Issuer>;
  }

  /** The signatures over hidden messages of the running period. */
  async issue(deployment: string, period: number, blinded: readonly string[], token: string): Promise<string[]> {
    const path = `deployments/${encodeURIComponent(deployment)}/issue`;
    const answer = await this.post(path, token, { period, blinded });
    return ((await answer.json()) as { signatures: string[] }).signatures;
  }

  /** The rows around a centre that was drawn. */
  async ball(deployment: string, centre: Centre, token: string): Promise<BallRows> {
    const path = `deployments/${encodeURIComponent(deployment)}/balls`;
    return (await this.post(path, token, { centre })).json() as Promise<BallRows>;
  }

  /** Anchors that were drawn, for a round that is open. */
  async upload(deployment: string, round: number, anchors: readonly number[], token: string): Promise<void> {
    await this.post(`${roundPath(deployment, round)}/anchors`, token, { anchors });
  }

  async round(deployment: string, round: number): Promise<RoundInfo> {
    return (await this.send(roundPath(deployment, round), {})).json() as Promise<RoundInfo>;
  }

  /** The rows of the anchors that this token uploaded. */
  async roundRows(deployment: string, round: number, token: string): Promise<RoundRows> {
    return this.admin<RoundRows>(`${roundPath(deployment, round)}/rows`, token);
  }

  /** A token of one's own for an invitation, which is sent in the body and nowhere else. */
  async enrol(code: string): Promise<string> {
    const answer = await this.send("enrol", {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ code }),
    });
    return ((await answer.json()) as { token: string }).token;
  }

  private async post(path: string, token: string | null, body: unknown): Promise<Response> {
    return this.send(path, {
      method: "POST",
      headers: { "content-type": "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) },
      body: JSON.stringify(body),
    });
  }

  /** Something that only the operator may read. */
  async admin<T>(path: string, token: string): Promise<T> {
    const response = await this.send(path, { headers: { authorization: `Bearer ${token}` } });
    return (await response.json()) as T;
  }

  /** Something that only the operator may do; `body` is JSON unless it is bytes. */
  async act(
    method: "POST" | "PATCH" | "DELETE", path: string, token: string, body?: unknown,
    type = "application/json",
  ): Promise<Response> {
    const headers: Record<string, string> = { authorization: `Bearer ${token}` };
    if (body === undefined) return this.send(path, { method, headers });
    headers["content-type"] = type;
    const sent = body instanceof ArrayBuffer ? body : JSON.stringify(body);
    return this.send(path, { method, headers, body: sent });
  }

  private async json<T>(path: string | URL): Promise<T> {
    const url = new URL(path, this.base);
    try {
      const text = await (await this.send(url, {})).text();
      this.stale = false;
      await keep(url, text, "application/json");
      return JSON.parse(text) as T;
    } catch (error) {
      if (!(error instanceof ApiError && error.later)) throw error;
      const before = await kept(url);
      if (!before) throw error;
      this.stale = true;
      return (await before.json()) as T;
    }
  }

  private async send(path: string | URL, options: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(new URL(path, this.base), {
        ...options,
        credentials: "omit",
        referrerPolicy: "no-referrer",
        redirect: "error",
      });
    } catch {
      throw new ApiError(0, "");
    }
    if (response.ok) return response;
    let code = "internal";
    let message = `the server answered ${response.status}`;
    let remedy = "";
    try {
      const { error } = (await response.json()) as {
        error: { code: string; message: string; remedy?: string };
      };
      code = error.code;
      message = error.message;
      remedy = error.remedy ?? "";
    } catch {
      // A proxy's own page says no more than its status.
    }
    throw new ApiError(response.status, code, message, remedy);
  }
}

function roundPath(deployment: string, round: number): string {
  return `deployments/${encodeURIComponent(deployment)}/rounds/${round}`;
}

async function collect(
  response: Response, size: number, onProgress: (share: number) => void,
): Promise<Bytes> {
  const bytes = new Uint8Array(size);
  const reader = response.body?.getReader();
  let at = 0;
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > size) throw new FormatError("tooLong");
    bytes.set(value, at);
    at += value.length;
    onProgress(at / size);
  }
  return bytes.subarray(0, at);
}
