/**
 * A person's books, by the rules of the library's ledger:
 *
 * - Charged first: an entry with its cost and what was drawn is durable before it is shown or sent.
 * - Never refunded, and never below what was seen: a clock that is set back stays in the latest
 *   period.
 * - One writer: looking up, drawing and charging happen under one lock, across tabs.
 * - Same record, same answer within a period, found by a keyed hash; the books never hold a record.
 * - Lost books are not empty books: the running period then counts as spent.
 *
 * The keys are the browser's and cannot be read out, not even by this page.
 */

import { type Bytes, canonicalJson, hex, utf8 } from "./bytes";
import { answer, exclusively, openDatabase, read, write } from "./database";
import { exceeds, total } from "./decimal";
import { BudgetError, LedgerError } from "./errors";
import type { KeyStore } from "./keypin";
import { pythonRepr } from "./signing";
import type { Centre } from "./lattice";

const LOCK = "panda-mdp ledger";
const MARK = "panda-mdp.ledger";
/** Room for what is drawn, the same whatever it is; anchors take a bit for each record besides. */
const BOX_BYTES = 512;
/** What encryption adds: a nonce and a tag. */
const SEALED_BYTES = 28;

export interface Allowance {
  /** The most that one release may cost, per unit. */
  readonly epsilon: number;
  /** The most that all releases of a period may cost together, per unit. */
  readonly period_epsilon: number;
  /** The length of a period in seconds; fixed once the books are open. */
  readonly period_s: number;
  /** The same two for delta; 0 where nothing is said. */
  readonly delta?: number;
  readonly period_delta?: number;
}

export interface Charge {
  /** Epsilons add within an account: all maps share the great-circle distance in km. */
  readonly account: string;
  readonly unit: string;
  readonly server: string;
  readonly deployment: string;
  readonly version: number;
  /** The fingerprint of the domain. */
  readonly domain: string;
  readonly epsilon: number;
  readonly delta?: number;
  /** The identity of the table that is drawn from, where the log has it for everybody. */
  readonly table?: string | null;
  /** Whether what was drawn answers for later versions too: anchors for later rounds. */
  readonly lasting?: boolean;
  /** Whether every release draws and pays, and none is looked up again. */
  readonly fresh?: boolean;
  /** Whether reports come with one-use tokens. */
  readonly oneUse?: boolean;
  /** Bytes that anchors or a one-use token take, where there are any. */
  readonly room?: number;
  /** Reports that the deployment takes in a period of so many seconds; no more are drawn. */
  readonly quota?: number;
  readonly quotaS?: number;
}

/** What became of an entry; the charge stays in any case. */
export type State = "charged" | "accepted" | "given_up";

/** What a report shows in place of a token: a signature over its id and its period. */
export interface Proof {
  readonly period: number;
  readonly signature: string;
}

/** A one-use token, and the id of the report that it is for. */
export interface OneUse {
  readonly id: string;
  readonly proof: Proof;
}

/** What was drawn: all that may ever be sent of it. */
export interface Drawn {
  /** The id of the report, so that sending it again is safe. */
  readonly report: string;
  readonly version: number;
  /** Null before Phase II, and erased once the server has it. */
  readonly output: number | null;
  readonly table?: string | null;
  readonly proof?: Proof;
  /** A centre, whose ball is asked for. */
  readonly centre?: Centre;
  /** An anchor set, the round it was aimed at, and whether it is known to have arrived. */
  readonly anchors?: readonly number[];
  readonly round?: number | null;
  readonly uploaded?: boolean;
}

/** What a plan draws first: a report, or what Phase I gives. */
export type First = Pick<Drawn, "output" | "centre" | "anchors">;

export interface Release extends Drawn {
  readonly entry: string;
  readonly state: State;
  /** Whether it was drawn before, and cost nothing now. */
  readonly repeated: boolean;
}

export interface Entry {
  readonly id: string;
  readonly period: number;
  readonly at: number;
  readonly account: string;
  readonly unit: string;
  readonly server: string;
  readonly deployment: string;
  readonly epsilon: number;
  readonly delta?: number;
  readonly state: State;
  readonly memo: string | null;
  readonly box: Bytes | null;
}

export interface Balance {
  readonly period: number;
  /** When the period ends, seconds since 1970. */
  readonly ends: number;
  readonly reports: number;
  readonly spent: number;
  readonly left: number;
  /** Delta that is spent. */
  readonly delta: number;
  /** Whether the running period is closed because the books were lost. */
  readonly blocked: boolean;
}

interface Keys {
  readonly memo: CryptoKey;
  readonly box: CryptoKey;
}

export interface LedgerOptions {
  readonly factory?: IDBFactory;
  readonly marks?: KeyStore;
  readonly clock?: () => number;
}

function check(allowance: Allowance): void {
  const { epsilon, period_epsilon, period_s, delta = 0, period_delta = 0 } = allowance;
  for (const value of [delta, period_delta]) {
    if (!(value >= 0 && value < 1)) throw new LedgerError("limitDelta", value);
  }
  for (const value of [epsilon, period_epsilon, period_s]) {
    if (!(Number.isFinite(value) && value > 0)) {
      throw new LedgerError("limit", value);
    }
  }
}

export class Ledger {
  private constructor(
    readonly database: IDBDatabase,
    private readonly keys: Keys,
    private readonly marks: KeyStore,
    private readonly clock: () => number,
  ) {}

  /** Open the books; where there are none, begin them with `allowance`. */
  static async open(allowance: Allowance, options: LedgerOptions = {}): Promise<Ledger> {
    check(allowance);
    const marks = options.marks ?? localStorage;
    const clock = options.clock ?? (() => Date.now() / 1000);
    const database = await openDatabase(options.factory ?? indexedDB);
    return exclusively(LOCK, async () => {
      let keys = (await read(database, "settings", (s) => s.get("keys"))) as Keys | undefined;
      if (!keys) {
        keys = {
          memo: await crypto.subtle.generateKey({ name: "HMAC", hash: "SHA-256" }, false, ["sign"]),
          box: await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, [
            "encrypt", "decrypt",
          ]),
        };
        const made = keys;
        const lost = marks.getItem(MARK) !== null;
        const running = Math.floor(clock() / allowance.period_s);
        await write(database, "settings", (settings) => {
          settings.put(made, "keys");
          settings.put({ ...allowance }, "allowance");
          if (lost) settings.put(running, "blocked");
        });
        marks.setItem(MARK, "1");
      }
      return new Ledger(database, keys, marks, clock);
    });
  }

  async allowance(): Promise<Allowance> {
    return (await read(this.database, "settings", (s) => s.get("allowance"))) as Allowance;
  }

  /** Other limits from now on. The length of the period stays. */
  async changeAllowance(limits: Omit<Allowance, "period_s">): Promise<void> {
    await exclusively(LOCK, async () => {
      const after = { ...(await this.allowance()), ...limits };
      check(after);
      await write(this.database, "settings", (settings) => settings.put(after, "allowance"));
    });
  }

  async balance(account: string): Promise<Balance> {
    return exclusively(LOCK, () => this.balanceNow(account));
  }

  /** The answer that a record has in this period already, if any. */
  async known(charge: Charge, record: number): Promise<Release | null> {
    return exclusively(LOCK, async () => {
      const memo = await this.memo(charge, record, await this.rollOver());
      const entry = memo === null ? null : await this.find(memo);
      const before = entry && (await this.opened(entry));
      return before && stillValid(before, charge) ? before : null;
    });
  }

  /**
   * The answer for a record: the one it has in this period, at no cost, or a new one, charged and
   * durable before this returns. `draw` is called at most once, and only if the charge is allowed.
   */
  async release(
    charge: Charge, record: number, draw: () => number | First | Promise<First>,
  ): Promise<Release> {
    return exclusively(LOCK, async () => {
      const period = await this.rollOver();
      const memo = await this.memo(charge, record, period);
      const before = memo === null ? null : await this.find(memo);
      if (before) {
        const found = await this.opened(before);
        if (stillValid(found, charge)) return found;
      }
      await this.refuseBeyond(charge);
      if (before) await this.put({ ...before, state: "given_up", memo: null });
      const first = await draw();
      const drawn: Drawn = {
        ...await this.named(charge), version: charge.version, table: charge.table ?? null,
        ...(typeof first === "number" ? { output: first } : first),
      };
      const entry: Entry = {
        id: crypto.randomUUID(),
        period,
        at: Math.floor(this.clock()),
        account: charge.account,
        unit: charge.unit,
        server: charge.server,
        deployment: charge.deployment,
        epsilon: charge.epsilon,
        ...(charge.delta ? { delta: charge.delta } : {}),
        state: "charged",
        memo,
        box: null,
      };
      await this.put({ ...entry, box: await this.lock(entry, drawn, charge.room) });
      this.marks.setItem(MARK, "1");
      return { ...drawn, entry: entry.id, state: "charged", repeated: false };
    });
  }

  /** What was drawn for an entry, unless it was forgotten. */
  async drawn(id: string): Promise<Release | null> {
    return exclusively(LOCK, async () => {
      const entry = (await read(this.database, "entries", (s) => s.get(id))) as Entry | undefined;
      return entry?.box ? this.opened(entry) : null;
    });
  }

  /** Releases of a deployment in this period that are between Phase I and their output. */
  async unfinished(server: string, deployment: string): Promise<Release[]> {
    return exclusively(LOCK, async () => {
      const period = await this.rollOver();
      const store = this.database.transaction("entries").objectStore("entries");
      const entries = (await answer(store.index("period").getAll(period))) as Entry[];
      const mine = entries.filter((entry) => entry.box && entry.state === "charged"
        && entry.server === server && entry.deployment === deployment);
      const opened = [];
      for (const entry of mine) opened.push(await this.opened(entry));
      return opened.filter(({ output }) => output === null);
    });
  }

  /** Note how far a release is. An output that was drawn stands, whoever drew it. */
  async amend(id: string, change: (drawn: Drawn) => Partial<Drawn>): Promise<Release> {
    return exclusively(LOCK, async () => {
      const entry = (await read(this.database, "entries", (s) => s.get(id))) as Entry | undefined;
      if (!entry?.box) throw new LedgerError("erased");
      const before = await this.unlock(entry);
      if (entry.state === "charged" && before.output === null) {
        // As long as it was, so that its length tells nothing.
        const room = Math.max(0, entry.box.length - SEALED_BYTES - BOX_BYTES);
        const box = await this.lock(entry, { ...before, ...change(before) }, room);
        await this.put({ ...entry, box });
        return this.opened({ ...entry, box });
      }
      return this.opened(entry);
    });
  }

  /**
   * The server has what was drawn: it is erased here. The memo stays for the period, so that the
   * same record is not drawn for again, and the seal over the cost stays with it.
   */
  async accepted(id: string): Promise<void> {
    await exclusively(LOCK, async () => {
      const entry = (await read(this.database, "entries", (s) => s.get(id))) as Entry | undefined;
      if (!entry?.box) return;
      const { report, version } = await this.unlock(entry);
      const erased: Drawn = { report, version, output: null };
      await this.put({ ...entry, state: "accepted", box: await this.lock(entry, erased) });
    });
  }

  /** The number of the running period of a quota. */
  quotaPeriod({ quotaS = 86_400 }: Charge): number {
    return Math.floor(this.clock() / quotaS);
  }

  /** One-use tokens at hand for the running period; null where none were collected. */
  async oneUse(charge: Charge): Promise<number | null> {
    return exclusively(LOCK, async () => (await this.tokens(charge))?.length ?? null);
  }

  /** Have one-use tokens at hand, unless another tab has them; how many there are. */
  async keepTokens(charge: Charge, period: number, tokens: readonly OneUse[]): Promise<number> {
    return exclusively(LOCK, async () => {
      if (!(await this.tokens(charge))) await this.putTokens(charge, period, tokens);
      return (await this.tokens(charge))?.length ?? 0;
    });
  }

  /** Bytes of a context that nobody else can compute, the same every time. */
  async secret(context: Record<string, unknown>, length: number): Promise<Bytes> {
    const bytes = new Uint8Array(32 * Math.ceil(length / 32));
    for (let at = 0; at < bytes.length; at += 32) {
      const message = utf8(canonicalJson({ secret: context, at }));
      bytes.set(new Uint8Array(await crypto.subtle.sign("HMAC", this.keys.memo, message)), at);
    }
    return bytes.subarray(0, length);
  }

  /** Why a release would be too much, or null where it is not. */
  async excess(charge: Charge): Promise<BudgetError | null> {
    return exclusively(LOCK, async () => {
      await this.rollOver();
      return this.reason(charge);
    });
  }

  /** Erase all memos and all that was drawn; the charges stay. */
  async forget(): Promise<void> {
    await exclusively(LOCK, async () => {
      const all = (await read(this.database, "entries", (s) => s.getAll())) as Entry[];
      await write(this.database, "entries", (entries) => {
        for (const entry of all) {
          const state = entry.state === "charged" ? "given_up" : entry.state;
          entries.put({ ...entry, state, memo: null, box: null });
        }
      });
    });
  }

  private async tokens(charge: Charge): Promise<readonly OneUse[] | null> {
    const name = tokensName(charge);
    const found = (await read(this.database, "settings", (s) => s.get(name))) as
      { period: number; box: Bytes } | undefined;
    if (!found || found.period !== this.quotaPeriod(charge)) return null;
    return JSON.parse(await this.unseal(found.box, utf8(name))) as OneUse[];
  }

  private async putTokens(charge: Charge, period: number, tokens: readonly OneUse[]): Promise<void> {
    const name = tokensName(charge);
    const box = await this.seal(JSON.stringify(tokens), utf8(name));
    await write(this.database, "settings", (settings) => settings.put({ period, box }, name));
  }

  /** What a report is called: a new id, or that of a one-use token, which is no more at hand. */
  private async named(charge: Charge): Promise<Pick<Drawn, "report" | "proof">> {
    if (!charge.oneUse) return { report: crypto.randomUUID() };
    const [next, ...others] = (await this.tokens(charge)) ?? [];
    if (!next) throw new BudgetError("noOneUse");
    await this.putTokens(charge, next.proof.period, others);
    return { report: next.id, proof: next.proof };
  }

  private async balanceNow(account: string): Promise<Balance> {
    const period = await this.rollOver();
    const allowance = await this.allowance();
    const costs = await this.costs(account, period);
    const spent = total(costs);
    const blocked = (await read(this.database, "settings", (s) => s.get("blocked"))) as
      | number | undefined;
    return {
      period,
      ends: (period + 1) * allowance.period_s,
      reports: costs.length,
      spent,
      left: Math.max(0, allowance.period_epsilon - spent),
      delta: total(await this.costs(account, period, (entry) => entry.delta ?? 0)),
      blocked: blocked !== undefined && period <= blocked,
    };
  }

  private async costs(
    account: string, period: number, of: (entry: Entry) => number = ({ epsilon }) => epsilon,
  ): Promise<number[]> {
    const store = this.database.transaction("entries").objectStore("entries");
    const found = (await answer(store.index("period").getAll(period))) as Entry[];
    const mine = found.filter((entry) => entry.account === account);
    // Opening the box checks that the cost is the one that was charged.
    for (const entry of mine) if (entry.box) await this.unlock(entry);
    return mine.map(of);
  }

  private async reason(charge: Charge): Promise<BudgetError | null> {
    const allowance = await this.allowance();
    const balance = await this.balanceNow(charge.account);
    if (balance.blocked) return new BudgetError("booksLost");
    if (charge.unit !== "km") return new BudgetError("otherUnit", charge.unit);
    if (charge.quota !== undefined && (await this.taken(charge)) >= charge.quota) {
      return new BudgetError("quotaSpent", charge.quota);
    }
    if (charge.oneUse) {
      const tokens = await this.tokens(charge);
      if (!tokens) return new BudgetError("noOneUse");
      if (!tokens.length) return new BudgetError("quotaSpent", charge.quota ?? 1);
    }
    if (charge.epsilon > allowance.epsilon) {
      return new BudgetError("reportCost", charge.epsilon, allowance.epsilon);
    }
    const costs = await this.costs(charge.account, balance.period);
    if (exceeds([...costs, charge.epsilon], allowance.period_epsilon)) {
      return new BudgetError(
        "periodSpent", balance.spent, allowance.period_epsilon, charge.epsilon,
      );
    }
    const delta = charge.delta ?? 0;
    if (delta > (allowance.delta ?? 0)) {
      return new BudgetError("reportDelta", delta, allowance.delta ?? 0);
    }
    const deltas = await this.costs(charge.account, balance.period, (entry) => entry.delta ?? 0);
    if (exceeds([...deltas, delta], allowance.period_delta ?? 0)) {
      return new BudgetError("periodDelta", total(deltas), allowance.period_delta ?? 0, delta);
    }
    return null;
  }

  /** Reports that were drawn for a deployment in the running period of its quota. */
  private async taken({ server, deployment, quotaS = 86_400 }: Charge): Promise<number> {
    const all = await read<Entry[]>(this.database, "entries", (store) => store.getAll());
    const running = Math.floor(this.clock() / quotaS);
    return all.filter((entry) => entry.server === server && entry.deployment === deployment
      && Math.floor(entry.at / quotaS) >= running).length;
  }

  private async refuseBeyond(charge: Charge): Promise<void> {
    const why = await this.reason(charge);
    if (why !== null) throw why;
  }

  /** The running period, never before one that was seen; ended periods lose their memos. */
  private async rollOver(): Promise<number> {
    const { period_s } = await this.allowance();
    const seen = (await read(this.database, "settings", (s) => s.get("period"))) as
      | number | undefined;
    const running = Math.floor(this.clock() / period_s);
    const period = seen === undefined ? running : Math.max(running, seen);
    if (period !== seen) {
      await write(this.database, "settings", (settings) => settings.put(period, "period"));
      const all = (await read(this.database, "entries", (s) => s.getAll())) as Entry[];
      const reports = (await read(this.database, "outbox", (s) => s.getAll())) as
        { entry: string; state: string }[];
      // What still waits to be sent is kept until it was.
      const waiting = new Set(reports.filter(({ state }) => state === "waiting").map(({ entry }) => entry));
      await write(this.database, "entries", (entries) => {
        for (const entry of all) {
          if (entry.period >= period) continue;
          entries.put({ ...entry, memo: null, box: waiting.has(entry.id) ? entry.box : null });
        }
      });
    }
    return period;
  }

  private async memo(charge: Charge, record: number, period: number): Promise<string | null> {
    if (charge.fresh) return null;
    const { server, deployment, domain } = charge;
    const message = canonicalJson({ server, deployment, domain, period, record });
    return hex(new Uint8Array(await crypto.subtle.sign("HMAC", this.keys.memo, utf8(message))));
  }

  private async put(entry: Entry): Promise<void> {
    await write(this.database, "entries", (entries) => entries.put(entry));
  }

  private async opened(entry: Entry): Promise<Release> {
    return { ...(await this.unlock(entry)), entry: entry.id, state: entry.state, repeated: true };
  }

  private async find(memo: string): Promise<Entry | null> {
    const store = this.database.transaction("entries").objectStore("entries");
    return ((await answer(store.index("memo").get(memo))) as Entry | undefined) ?? null;
  }

  /** Encrypted, of one length whatever it holds, and bound to its entry and cost. */
  private async lock(entry: Entry, drawn: Drawn, room = 0): Promise<Bytes> {
    return this.seal(JSON.stringify(drawn).padEnd(BOX_BYTES + room), about(entry));
  }

  private async unlock(entry: Entry): Promise<Drawn> {
    return JSON.parse(await this.unseal(entry.box as Bytes, about(entry))) as Drawn;
  }

  private async seal(text: string, additionalData: Bytes): Promise<Bytes> {
    const nonce = crypto.getRandomValues(new Uint8Array(12));
    const sealed = await crypto.subtle.encrypt(
      { name: "AES-GCM", iv: nonce, additionalData }, this.keys.box, utf8(text),
    );
    const box = new Uint8Array(12 + sealed.byteLength);
    box.set(nonce);
    box.set(new Uint8Array(sealed), 12);
    return box;
  }

  private async unseal(box: Bytes, additionalData: Bytes): Promise<string> {
    try {
      const plain = await crypto.subtle.decrypt(
        { name: "AES-GCM", iv: box.subarray(0, 12), additionalData }, this.keys.box, box.subarray(12),
      );
      return new TextDecoder().decode(plain);
    } catch {
      throw new LedgerError("seal");
    }
  }
}

/** Where the one-use tokens of a deployment lie. */
function tokensName({ server, deployment }: Charge): string {
  return `one-use ${server} ${deployment}`;
}

/** Whether what was drawn answers for this table: it was accepted, or can still be. */
function stillValid(before: Release, charge: Charge): boolean {
  return before.state === "accepted" || charge.lasting === true || before.version === charge.version;
}

function about(entry: Entry): Bytes {
  const { id, period, at, account, server, deployment, unit } = entry;
  const facts = [id, period, at, account, server, deployment, pythonRepr(entry.epsilon), unit,
    ...(entry.delta ? [pythonRepr(entry.delta)] : []),
  ];
  return utf8(canonicalJson(facts));
}
