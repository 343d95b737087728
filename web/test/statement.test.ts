import { headBytes, leafHash, type Log, rootOf } from "../src/core/log";
import { IDBFactory } from "fake-indexeddb";
import { beforeAll, beforeEach, expect, test, vi } from "vitest";
import { chargeOf, openSession } from "../src/core/session";
import type { Api, Deployment, TableInfo } from "../src/core/api";
import { type Bytes, sha256 } from "../src/core/bytes";
import { keyId, type OperatorKey, tableBytes, verify } from "../src/core/signing";
import {
  isOver, LEAST_PERIOD_S, limitsFrom, MOST_EPSILON, MOST_PERIOD_EPSILON, MOST_PERIOD_S, type Statement,
  statementBytes,
} from "../src/core/statement";
import { PrivacyError } from "../src/core/errors";
import { Survey } from "../src/core/survey";
import { CompactTable } from "../src/core/table";
import { bytesOf, vectors } from "./vectors";

const file = bytesOf("city.pmdp");
const kept = new Map<string, string>();
const store = {
  getItem: (name: string) => kept.get(name) ?? null,
  setItem: (name: string, value: string) => void kept.set(name, value),
};
/** What was published so far, as the log has it. */
let leaves: string[] = [];
async function publicLog(): Promise<Log> {
  const head = { size: leaves.length, root: await rootOf(leaves), at: 1, signature: "" };
  return { head: { ...head, signature: await sign(headBytes(head)) }, leaves };
}
const api = { tableFile: async () => file, log: publicLog, server: "here" } as unknown as Api;
let secret: CryptoKey;
let key: OperatorKey;
let info: TableInfo;
let stated: Statement;

const base64 = (bytes: ArrayBuffer) => btoa(String.fromCharCode(...new Uint8Array(bytes)));
const sign = async (data: Bytes) =>
  base64(await crypto.subtle.sign({ name: "Ed25519" }, secret, data));

beforeAll(async () => {
  const made = (await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"])) as CryptoKeyPair;
  secret = made.privateKey;
  const text = base64(await crypto.subtle.exportKey("raw", made.publicKey));
  key = { id: await keyId(text), algorithm: "Ed25519", public: text };
  const table = await CompactTable.read(file);
  info = {
    name: "city", version: 1, sha256: await sha256(file), size_bytes: file.length, identity: await table.identity(),
    domain: await table.fingerprint(), epsilon: table.epsilon, unit: "km", records: table.size,
    outputs: table.outputs.length, audited_epsilon: table.epsilon, loss: 0, lower_bound: null,
    gap: null, loss_cost: 0, signature: "", key_id: key.id, created: "", streets: null,
  };
  stated = {
    statement: "panda-mdp deployment 1", name: "main", kind: "table", version: 1, issued: 100,
    metric: "haversine", unit: "km", domain: info.domain, epsilon: table.epsilon, delta: 0,
    period_s: 86_400, reports_per_period: 3, table_identity: info.identity,
  };
});

test("whether tokens are used once is what the operator signed, and for reports alone", async () => {
  const trusted = { key, keys: [key.public], first: false };
  const open = async (said: boolean) =>
    openSession(api, await described({ stated: { one_use: true }, said: { one_use: said } }), trusted, () => {}, store);
  expect(chargeOf(await open(true), "here")).toMatchObject({ oneUse: true, room: 512 });
  await expect(open(false)).rejects.toMatchObject({ problem: "saidOtherwise" });
});

beforeEach(() => {
  kept.clear();
  leaves = [];
});

/** A deployment as its server describes it, with what its operator signed. */
async function described(
  changes: { info?: Partial<TableInfo>; stated?: Partial<Statement>; said?: Partial<Deployment> } = {},
): Promise<Deployment> {
  const table = { ...info, ...changes.info };
  const signed = { ...stated, ...changes.stated };
  const text = JSON.stringify(signed);
  const entries = [tableBytes(table), await statementBytes("main", text)];
  leaves = [...new Set([...leaves, ...(await Promise.all(entries.map(leafHash)))])];
  return {
    name: "main", kind: "table", version: signed.version, open: true,
    period_s: signed.period_s, reports_per_period: signed.reports_per_period, created: "",
    guarantee: { epsilon: signed.epsilon ?? 0, delta: 0, unit: "km" },
    table: { ...table, signature: await sign(tableBytes(table)) },
    statement: text, signature: await sign(await statementBytes("main", text)),
    ...changes.said,
  };
}

const open = async (deployment: Deployment) =>
  openSession(api, deployment, { key, keys: [key.public], first: true }, () => undefined, store);

test("what is signed and not in the public log is refused, and so is a server without one", async () => {
  const deployment = await described();
  leaves = leaves.slice(0, 1);
  await expect(open(deployment)).rejects.toThrow("not in the public log");
  const denied = { ...api, log: async () => null } as unknown as Api;
  await expect(openSession(denied, deployment, { key, keys: [key.public], first: true }, () => undefined, store))
    .rejects.toThrow("has no public log");
});

test("what the operator signed is believed", async () => {
  expect((await open(await described())).stated.reports_per_period).toBe(3);
});

test.each([
  { period_s: 15 }, { reports_per_period: 1_000_000 }, { version: 7 },
  { statement: "{}" }, { name: "other" }, { collector: "somebody else" }, { until: "2999-01-01" },
] as Partial<Deployment>[])("what is only said is not: %o", async (said) => {
  await expect(open(await described({ said }))).rejects.toThrow(/signature|signed/);
});

test("who collects, why and until when is what was signed, and the last day counts", async () => {
  const notice = { collector: "the city", purpose: "bicycle racks", until: "2026-11-16" };
  const session = await open(await described({ stated: notice, said: notice }));
  expect(session.stated).toMatchObject(notice);
  expect(isOver(session.stated, Date.parse("2026-11-16T23:59:59Z"))).toBe(false);
  expect(isOver(session.stated, Date.parse("2026-11-17T00:00:00Z"))).toBe(true);
  expect(isOver(stated, 9e15)).toBe(false);
});

test.each([
  { domain: "0".repeat(64) }, { table_identity: "0".repeat(64) }, { unit: "m" }, { metric: "matrix" },
] as Partial<Statement>[])("a statement about something else is refused: %o", async (changes) => {
  await expect(open(await described({ stated: changes }))).rejects.toThrow("signed");
});

test("the file's epsilon is the signed one", async () => {
  // Statement and guarantee name the file's; the table's own signature names another.
  await expect(open(await described({ info: { epsilon: info.epsilon / 2 } })))
    .rejects.toThrow("not what the survey says");
  // All signatures agree with each other and not with the file.
  const half = info.epsilon / 2;
  await expect(open(await described({ info: { epsilon: half }, stated: { epsilon: half } })))
    .rejects.toThrow("not what the survey says");
});

test("the statement's epsilon is the file's, and what the server says is the statement's", async () => {
  const half = info.epsilon / 2;
  await expect(open(await described({ stated: { epsilon: half } }))).rejects.toThrow("not what the survey says");
  const guarantee = { epsilon: info.epsilon, delta: 0, unit: "km" };
  await expect(open(await described({ stated: { epsilon: half }, said: { guarantee } })))
    .rejects.toThrow("other things");
});

test("a program refuses a signed table that is not private, or that it had no time to audit", async () => {
  // The same weights with a smaller epsilon on the label.
  const text = new TextDecoder("latin1").decode(file.subarray(0, -32));
  const body = Uint8Array.from(text.replace('"epsilon":4.0', '"epsilon":3.0'), (c) => c.charCodeAt(0));
  const forged = new Uint8Array([...body, ...new Uint8Array(await crypto.subtle.digest("SHA-256", body))]);
  const right = await described();
  const digest = await sha256(forged);
  const identity = await (await CompactTable.read(forged)).identity();
  const wrong = await described({
    info: { epsilon: 3, sha256: digest, identity, size_bytes: forged.length },
    stated: { epsilon: 3, table_identity: identity },
  });
  const serving = (deployment: Deployment, bytes: Bytes) => vi.stubGlobal("fetch", async (url: URL) => {
    if (url.href.endsWith("/log")) return Response.json(await publicLog());
    if (url.href.endsWith("/v1")) return Response.json({ version: "0", key });
    return url.href.endsWith("/deployments") ? Response.json({ deployments: [deployment] }) : new Response(bytes);
  });
  const start = (auditSeconds: number) =>
    Survey.open("https://panda.test", { store, factory: new IDBFactory(), auditSeconds });
  try {
    serving(wrong, forged);
    await expect(start(60)).rejects.toThrow(PrivacyError);
    kept.clear();
    serving(right, file);
    await expect(start(-1)).rejects.toThrow(PrivacyError);
    expect((await start(60)).audited.complete).toBe(true);
  } finally {
    vi.unstubAllGlobals();
  }
});

test("a past state is called one, and two statements about one version are noticed", async () => {
  await open(await described({ stated: { version: 2, issued: 200 } }));
  await expect(open(await described())).rejects.toThrow("older than version 2");
  await expect(open(await described({ stated: { version: 2, issued: 300, period_s: 7200 } })))
    .rejects.toThrow("two different statements");
  // Signed again, with the same content.
  await open(await described({ stated: { version: 2, issued: 400 } }));
});

test("the page has bounds of its own", () => {
  const most = limitsFrom({ ...stated, period_s: 1, reports_per_period: 1_000_000 }, 2_000_000);
  expect(most).toEqual({
    delta: 0, period_delta: 0, epsilon: MOST_EPSILON, period_epsilon: MOST_PERIOD_EPSILON, period_s: LEAST_PERIOD_S,
  });
  expect(limitsFrom({ ...stated, period_s: 1e9 }, 2).period_s).toBe(MOST_PERIOD_S);
  expect(limitsFrom({ ...stated, delta: 0.004 }, 2)).toMatchObject({ delta: 0.004, period_delta: 0.012 });
  expect(limitsFrom({ ...stated, delta: 0.5 }, 2)).toMatchObject({ delta: 0.01, period_delta: 0.03 });
  expect(limitsFrom(stated, 2)).toEqual({ delta: 0, period_delta: 0, epsilon: 2, period_epsilon: 6, period_s: 86_400 });
});

test("what is signed about a deployment has Python's bytes", async () => {
  const { key: operator, name, text, bytes, signature, refused } = vectors<{
    key: OperatorKey; name: string; text: string; bytes: string; signature: string; refused: string[];
  }>("statement.json");
  const data = await statementBytes(name, text);
  expect(new TextDecoder().decode(data)).toBe(bytes);
  await verify(operator.public, data, signature);
  for (const wrong of refused) await expect(verify(operator.public, data, wrong)).rejects.toThrow("does not match");
});

test("a statement that somebody else signed is refused, whatever it says", async () => {
  const other = await sign(await statementBytes("main", "something else"));
  await expect(open(await described({ said: { signature: other } }))).rejects.toThrow(/signature/);
});
