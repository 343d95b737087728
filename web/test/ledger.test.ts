import { IDBFactory } from "fake-indexeddb";
import { beforeEach, expect, test } from "vitest";
import { exceeds, total } from "../src/core/decimal";
import { BudgetError, LedgerError } from "../src/core/errors";
import { type Allowance, type Charge, type Entry, Ledger } from "../src/core/ledger";
import { read, write } from "../src/core/database";

const DAY = 86400;
const allowance: Allowance = { epsilon: 2, period_epsilon: 5, period_s: DAY };
const charge: Charge = {
  account: "haversine km", unit: "km", server: "https://a/v1/", deployment: "city", version: 1,
  domain: "ab", epsilon: 2,
};

class Memory {
  readonly kept = new Map<string, string>();

  getItem(name: string): string | null {
    return this.kept.get(name) ?? null;
  }

  setItem(name: string, value: string): void {
    this.kept.set(name, value);
  }
}

let factory: IDBFactory;
let marks: Memory;
let now: number;
const clock = () => now;
const open = (limits = allowance) => Ledger.open(limits, { factory, marks, clock });

beforeEach(() => {
  factory = new IDBFactory();
  marks = new Memory();
  now = 20000 * DAY + 100;
});

test("the same record has the same answer in a period, and pays once", async () => {
  const ledger = await open();
  let drawn = 0;
  const draw = () => [7, 8, 9][drawn++];
  const first = await ledger.release(charge, 41, draw);
  expect(first).toMatchObject({ output: 7, version: 1, state: "charged", repeated: false });
  // The same report: sent again, it is counted once.
  expect(await ledger.release(charge, 41, draw)).toEqual({ ...first, repeated: true });
  expect((await ledger.known(charge, 41))?.output).toBe(7);
  expect(await ledger.known(charge, 42)).toBeNull();
  expect((await ledger.balance(charge.account)).spent).toBe(2);
  // Another tab, or the page loaded again, sees the same books.
  const again = await open();
  expect((await again.release(charge, 41, draw)).report).toBe(first.report);
  now += DAY;
  expect(await ledger.release(charge, 41, draw)).toMatchObject({ output: 8, repeated: false });
});

test("a limit refuses before anything is drawn", async () => {
  const ledger = await open();
  await ledger.release(charge, 1, () => 5);
  await ledger.release(charge, 2, () => 5);
  const never = () => expect.unreachable("drawn beyond the limit");
  await expect(ledger.release(charge, 3, never)).rejects.toThrow(BudgetError);
  expect((await ledger.excess(charge))?.message).toContain("epsilon 4 of 5 is spent");
  expect((await ledger.balance(charge.account)).reports).toBe(2);
  await expect(ledger.release({ ...charge, epsilon: 2.5 }, 3, never)).rejects.toThrow("allowed");
  await ledger.changeAllowance({ epsilon: 2, period_epsilon: 6 });
  expect((await ledger.release(charge, 3, () => 6)).output).toBe(6);
  now += DAY;
  expect((await ledger.balance(charge.account)).left).toBe(6);
});

test("requests at the same time draw once and never pass the limit", async () => {
  const ledger = await open();
  let drawn = 0;
  const same = await Promise.all(
    Array.from({ length: 8 }, () => ledger.release(charge, 3, () => drawn++)),
  );
  expect(new Set(same.map(({ output }) => output)).size).toBe(1);
  expect(drawn).toBe(1);
  const others = await Promise.allSettled(
    Array.from({ length: 8 }, (_, k) => ledger.release(charge, 100 + k, () => 1)),
  );
  expect(others.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
});

test("the charge is durable before the answer is known", async () => {
  const ledger = await open();
  let kept = -1;
  await ledger.release(charge, 5, () => 77).then(async () => {
    kept = ((await read(ledger.database, "entries", (s) => s.getAll())) as Entry[]).length;
  });
  expect(kept).toBe(1);
  // A draw that fails costs nothing, because nothing was known yet.
  await expect(ledger.release(charge, 6, () => {
    throw new Error("no bits");
  })).rejects.toThrow("no bits");
  expect((await ledger.balance(charge.account)).reports).toBe(1);
});

test("the books hold neither the record nor the output, and memos end with the period", async () => {
  const ledger = await open();
  const record = 987654;
  await ledger.release(charge, record, () => 13579);
  const [entry] = (await read(ledger.database, "entries", (s) => s.getAll())) as Entry[];
  const text = JSON.stringify({ ...entry, box: Array.from(entry.box ?? []) });
  expect(text).not.toContain(String(record));
  expect(text).not.toContain("13579");
  expect(entry.memo).toHaveLength(64);
  await ledger.release(charge, record + 1, () => 2);
  const sizes = ((await read(ledger.database, "entries", (s) => s.getAll())) as Entry[])
    .map(({ box }) => box?.length);
  expect(new Set(sizes).size).toBe(1);
  now += DAY;
  await ledger.balance(charge.account);
  const after = (await read(ledger.database, "entries", (s) => s.getAll())) as Entry[];
  expect(after.map(({ memo, box }) => [memo, box])).toEqual([[null, null], [null, null]]);
});

test("a clock that is set back brings no new allowance", async () => {
  const ledger = await open();
  await ledger.release(charge, 1, () => 1);
  await ledger.release(charge, 2, () => 1);
  now -= 3 * DAY;
  await expect(ledger.release(charge, 3, () => 1)).rejects.toThrow(BudgetError);
  expect((await ledger.release(charge, 1, () => 9)).repeated).toBe(true);
});

test("lost books count the running period as spent", async () => {
  await (await open()).release(charge, 1, () => 1);
  factory = new IDBFactory();
  const ledger = await open();
  expect((await ledger.balance(charge.account)).blocked).toBe(true);
  await expect(ledger.release(charge, 1, () => 1)).rejects.toThrow("lost");
  now += DAY;
  expect((await ledger.release(charge, 1, () => 4)).output).toBe(4);
});

test("a cost that was made smaller by hand is noticed", async () => {
  const ledger = await open();
  await ledger.release(charge, 1, () => 1);
  const [entry] = (await read(ledger.database, "entries", (s) => s.getAll())) as Entry[];
  await write(ledger.database, "entries", (entries) => entries.put({ ...entry, epsilon: 0.1 }));
  await expect(ledger.balance(charge.account)).rejects.toThrow(LedgerError);
});

test("forgetting erases answers and keeps the charges", async () => {
  const ledger = await open();
  await ledger.release(charge, 1, () => 1);
  await ledger.forget();
  expect(await ledger.known(charge, 1)).toBeNull();
  expect((await ledger.balance(charge.account)).spent).toBe(2);
});

test("what was not accepted is drawn again for another version, and paid again", async () => {
  const ledger = await open();
  const first = await ledger.release(charge, 1, () => 1);
  const next = { ...charge, version: 2 };
  expect(await ledger.known(next, 1)).toBeNull();
  expect(await ledger.release(next, 1, () => 3)).toMatchObject({ output: 3, repeated: false });
  expect((await ledger.balance(charge.account)).spent).toBe(4);
  const all = (await read(ledger.database, "entries", (s) => s.getAll())) as Entry[];
  expect(all.find(({ id }) => id === first.entry)?.state).toBe("given_up");
});

test("what was accepted stays the answer of the period, whatever the version", async () => {
  const ledger = await open();
  const first = await ledger.release(charge, 1, () => 1);
  await ledger.accepted(first.entry);
  const again = await ledger.release({ ...charge, version: 2 }, 1, () => 3);
  const { table: _, ...kept } = first;
  expect(again).toEqual({ ...kept, output: null, state: "accepted", repeated: true });
});

test("what the server has is erased here, and the seal over its cost stays", async () => {
  const ledger = await open();
  const first = await ledger.release(charge, 1, () => 24680);
  const before = ((await read(ledger.database, "entries", (s) => s.getAll())) as Entry[])[0];
  await ledger.accepted(first.entry);
  const after = ((await read(ledger.database, "entries", (s) => s.getAll())) as Entry[])[0];
  expect(after.box).not.toEqual(before.box);
  expect(after.box?.length).toBe(before.box?.length);
  expect((await ledger.drawn(first.entry))?.output).toBeNull();
  expect((await ledger.balance(charge.account)).spent).toBe(2);
  await write(ledger.database, "entries", (entries) => entries.put({ ...after, epsilon: 0.1 }));
  await expect(ledger.balance(charge.account)).rejects.toThrow(LedgerError);
});

test("costs add as they are written", () => {
  expect(total(Array.from({ length: 10 }, () => 0.1))).toBe(1);
  expect(exceeds(Array.from({ length: 10 }, () => 0.1), 1)).toBe(false);
  expect(exceeds([0.1, 0.2], 0.3)).toBe(false);
  expect(exceeds([1e-9, 0.3], 0.3)).toBe(true);
  expect(exceeds([1e21, 1], 1e21)).toBe(true);
  expect(total([])).toBe(0);
});

test("delta is counted beside epsilon, for a report and for the period", async () => {
  const ledger = await Ledger.open(
    { ...allowance, epsilon: 10, period_epsilon: 100, delta: 0.01, period_delta: 0.015 },
    { factory: new IDBFactory(), marks, clock },
  );
  const some = { ...charge, epsilon: 1, delta: 0.01 };
  await expect(ledger.release({ ...some, delta: 0.02 }, 1, () => 1)).rejects.toThrow("delta 0.02 and 0.01");
  await ledger.release(some, 1, () => 1);
  expect((await ledger.balance(charge.account)).delta).toBe(0.01);
  await expect(ledger.release(some, 2, () => 2)).rejects.toThrow("delta 0.01 of 0.015 is spent");
  // Without a delta there is room.
  await ledger.release({ ...some, delta: 0 }, 3, () => 3);
});

test("a release between two phases is amended until it has an output, at one length", async () => {
  const ledger = await Ledger.open({ ...allowance, epsilon: 10, period_epsilon: 100 }, {
    factory: new IDBFactory(), marks, clock,
  });
  const wide = { ...charge, lasting: true, room: 400 };
  const first = await ledger.release(wide, 5, () => ({ output: null, anchors: [1, 2, 3] }));
  const boxes = async () => {
    const entries = await read(ledger.database, "entries", (s) => s.getAll());
    return (entries as { box: Uint8Array }[]).map(({ box }) => box.length);
  };
  const before = await boxes();
  expect(await ledger.unfinished(charge.server, charge.deployment)).toHaveLength(1);
  await ledger.amend(first.entry, () => ({ round: 4 }));
  const done = await ledger.amend(first.entry, () => ({ output: 7 }));
  expect(done).toMatchObject({ output: 7, round: 4, anchors: [1, 2, 3], state: "charged" });
  // What was drawn stands.
  expect((await ledger.amend(first.entry, () => ({ output: 8 }))).output).toBe(7);
  expect(await boxes()).toEqual(before);
  expect(await ledger.unfinished(charge.server, charge.deployment)).toEqual([]);
  expect((await ledger.release({ ...wide, version: 9 }, 5, () => 1)).output).toBe(7);
  await ledger.accepted(first.entry);
  expect(await ledger.drawn(first.entry)).toMatchObject({ output: null, state: "accepted" });
  expect((await ledger.drawn(first.entry))?.anchors).toBeUndefined();
});
