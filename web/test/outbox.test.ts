import { IDBFactory } from "fake-indexeddb";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Api } from "../src/core/api";
import { openDatabase, read, STORES, write } from "../src/core/database";
import { type Charge, Ledger, type Release } from "../src/core/ledger";
import { Outbox } from "../src/core/outbox";

const charge: Charge = {
  account: "haversine km", unit: "km", server: "https://a/v1/", deployment: "city", version: 3,
  domain: "ab", epsilon: 1,
};
const kept = new Map<string, string>();
const marks = {
  getItem: (name: string) => kept.get(name) ?? null,
  setItem: (name: string, value: string) => void kept.set(name, value),
};
const api = new Api(new URL("https://panda.test/v1/"));
let ledger: Ledger;
let outbox: Outbox;
let inForce: number;

beforeEach(async () => {
  kept.clear();
  inForce = 3;
  ledger = await Ledger.open(
    { epsilon: 1, period_epsilon: 9, period_s: 60 }, { factory: new IDBFactory(), marks },
  );
  outbox = new Outbox(ledger);
});

afterEach(() => vi.unstubAllGlobals());

function answering(...answers: (Response | Error)[]) {
  const calls: { url: string; body: string; token: string | null }[] = [];
  vi.stubGlobal("fetch", async (url: URL, options: RequestInit) => {
    if (options.method === "POST") calls.push({
      url: url.href,
      body: String(options.body),
      token: new Headers(options.headers).get("authorization"),
    });
    if (url.href.endsWith("/deployments")) {
      return new Response(JSON.stringify({ deployments: [{ name: "city", version: inForce }] }));
    }
    const next = answers.shift();
    if (!next || next instanceof Error) throw next ?? new Error("no answer left");
    return next;
  });
  return calls;
}

const accepted = () => new Response("{}", { status: 201 });
const failed = (status: number, code: string) =>
  new Response(JSON.stringify({ error: { code, message: `it is ${code}` } }), { status });

test("a report holds the output and an id, and nothing else", async () => {
  const calls = answering(accepted());
  const release = await ledger.release(charge, 4711, () => 12);
  await outbox.put("city", release);
  await outbox.flush(api, "pmt_x");
  expect(calls).toEqual([{
    url: "https://panda.test/v1/deployments/city/reports",
    body: JSON.stringify({ id: release.report, output: 12 }),
    token: "Bearer pmt_x",
  }]);
  expect(await outbox.all()).toEqual([]);
  expect((await ledger.known(charge, 4711))?.state).toBe("accepted");
});

test("without a network reports wait, and go with the same id later, once", async () => {
  const calls = answering(new TypeError("offline"), failed(503, "unavailable"), accepted());
  const release = await ledger.release(charge, 1, () => 12);
  await outbox.put("city", release);
  await outbox.put("city", await ledger.release(charge, 1, () => 99));
  for (let k = 0; k < 4; k++) await outbox.flush(api, "pmt_x");
  expect(calls).toHaveLength(3);
  expect(new Set(calls.map(({ body }) => body)).size).toBe(1);
  expect(await outbox.all()).toEqual([]);
});

test("a refused report says why; a bad token keeps it", async () => {
  answering(failed(401, "token_expired"), failed(409, "wrong_version"));
  await outbox.put("city", await ledger.release(charge, 1, () => 12));
  await expect(outbox.flush(api, "pmt_x")).rejects.toThrow("token_expired");
  expect((await outbox.all())[0].state).toBe("waiting");
  await outbox.flush(api, "pmt_y");
  expect((await outbox.all())[0]).toMatchObject({
    state: "refused", problem: { problem: "server", code: "wrong_version" },
  });
  // Tried again, it is the same report.
  const calls = answering(accepted());
  await outbox.put("city", (await ledger.known(charge, 1)) as Release);
  await outbox.flush(api, "pmt_y");
  expect(JSON.parse(calls[0].body)).toMatchObject({ output: 12 });
  expect(await outbox.all()).toEqual([]);
});

/** Everything that the books and the box hold, bytes as numbers. */
async function stored(): Promise<string> {
  const all = await Promise.all(STORES.map((name) => read(ledger.database, name, (s) => s.getAll())));
  return JSON.stringify(all, (_, value) => (value instanceof Uint8Array ? Array.from(value) : value));
}

test("what waits is encrypted, and what was sent is nowhere", async () => {
  answering(new TypeError("offline"), accepted());
  const release = await ledger.release(charge, 4711, () => 987_123);
  await outbox.put("city", release);
  await outbox.flush(api, "pmt_x");
  expect((await outbox.all()).map(({ state }) => state)).toEqual(["waiting"]);
  expect(await stored()).not.toContain("987123");
  await outbox.flush(api, "pmt_x");
  expect(await stored()).not.toContain("987123");
  expect(await outbox.all()).toEqual([]);
  // Not even who holds the key reads it any more.
  expect((await ledger.drawn(release.entry))?.output).toBeNull();
});

test("a page that is closed after the answer sends nothing twice", async () => {
  const calls = answering(accepted());
  const release = await ledger.release(charge, 1, () => 12);
  await outbox.put("city", release);
  const [row] = await outbox.all();
  await outbox.flush(api, "pmt_x");
  // As if the row had not been dropped yet.
  await write(ledger.database, "outbox", (s) => s.put(row));
  await outbox.flush(api, "pmt_x");
  expect(calls).toHaveLength(1);
  expect(await outbox.all()).toEqual([]);
});

test("reports that an earlier version left lose their outputs", async () => {
  const factory = new IDBFactory();
  const old = await new Promise<IDBDatabase>((resolve) => {
    const asked = factory.open("panda-mdp", 1);
    asked.onupgradeneeded = () => {
      const made = asked.result;
      made.createObjectStore("settings");
      const entries = made.createObjectStore("entries", { keyPath: "id" });
      entries.createIndex("memo", "memo");
      entries.createIndex("period", "period");
      made.createObjectStore("outbox", { keyPath: "id" });
    };
    asked.onsuccess = () => resolve(asked.result);
  });
  const row = { entry: "e", deployment: "city", version: 3, at: 1, problem: null, output: 987_123 };
  await write(old, "outbox", (s) => {
    s.put({ ...row, id: "a", state: "accepted" });
    s.put({ ...row, id: "b", state: "waiting" });
  });
  old.close();
  const now = await openDatabase(factory);
  const { output: _, ...rest } = row;
  expect(await read(now, "outbox", (s) => s.getAll())).toEqual([{ ...rest, id: "b", state: "waiting" }]);
});

test("what was drawn from a table that was replaced is not sent", async () => {
  const calls = answering(accepted());
  await outbox.put("city", await ledger.release(charge, 1, () => 12));
  inForce = 4;
  await outbox.flush(api, "pmt_x");
  expect(calls).toEqual([]);
  expect((await outbox.all())[0]).toMatchObject({
    state: "refused", problem: { problem: "replaced" },
  });
});

test("a report that waited over the end of a period is sent", async () => {
  let now = 1000;
  kept.clear();
  const late = await Ledger.open(
    { epsilon: 1, period_epsilon: 9, period_s: 60 },
    { factory: new IDBFactory(), marks, clock: () => now },
  );
  const box = new Outbox(late);
  const calls = answering(accepted());
  await box.put("city", await late.release(charge, 1, () => 12));
  now += 120;
  await late.balance("haversine km");
  await box.flush(api, "pmt_x");
  expect(calls).toHaveLength(1);
});
