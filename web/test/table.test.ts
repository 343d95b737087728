import { expect, test } from "vitest";
import { audit, auditRecord, decodeAll } from "../src/core/audit";
import { fromBase64, sha256 } from "../src/core/bytes";
import { FormatError } from "../src/core/errors";
import { planes } from "../src/core/container";
import { EverywhereTable } from "../src/core/everywhere";
import { Graph } from "../src/core/metric";
import { PandaTable } from "../src/core/panda";
import { CompactTable } from "../src/core/table";
import { bytesOf, type TableVector, vectors } from "./vectors";

interface Listed {
  name: string;
  file: string;
  identity: string;
  audited: number;
  away: number[];
}

const expected = vectors<TableVector>("table.json");
const file = bytesOf("city.pmdp");

test("every row, place and output is the library's, to the last bit", async () => {
  const table = await CompactTable.read(file);
  expect(await sha256(file)).toBe(expected.sha256);
  expect(await table.fingerprint()).toBe(expected.fingerprint);
  expect(table.epsilon).toBe(expected.epsilon);
  expect(Array.from(table.outputs)).toEqual(expected.outputs);
  expect(Array.from(table.places.lat)).toEqual(expected.lat);
  expect(Array.from(table.places.lon)).toEqual(expected.lon);
  for (let record = 0; record < expected.rows.length; record++) {
    const row = await table.row(record);
    expect(Array.from(row, String)).toEqual(expected.rows[record]);
    expect(row.reduce((a, b) => a + b, 0n)).toBe(1n << 62n);
  }
});

test("every kind of file has the library's identity, which is of what it means", async () => {
  const table = await CompactTable.read(file);
  expect(await table.identity()).toBe(expected.identity);
  const panda = vectors<Record<string, { file: string; identity: string }>>("panda.json");
  for (const said of Object.values(panda)) {
    expect(await (await PandaTable.read(bytesOf(said.file))).identity()).toBe(said.identity);
  }
  const area = vectors<{ file: string; identity: string }>("area.json");
  expect(await (await EverywhereTable.read(bytesOf(area.file))).identity()).toBe(area.identity);
  const listed = vectors<Listed[]>("identities.json");
  expect(listed.length).toBe(14);
  for (const said of listed) {
    const read = await CompactTable.read(fromBase64(said.file));
    expect(`${said.name} ${await read.identity()}`).toBe(`${said.name} ${said.identity}`);
  }
  const noted = new TextDecoder("latin1").decode(file.subarray(0, -32)).replace('"method":"', '"method":"n');
  const bytes = Uint8Array.from(noted, (letter) => letter.charCodeAt(0));
  new DataView(bytes.buffer).setUint32(10, new DataView(file.buffer, file.byteOffset).getUint32(10, true) + 1, true);
  const again = new Uint8Array([...bytes, ...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))]);
  expect(await (await CompactTable.read(again)).identity()).toBe(expected.identity);
});

test("every metric has the library's distances and audit", async () => {
  for (const { name, file: stored, audited, away } of vectors<Listed[]>("identities.json")) {
    const read = await CompactTable.read(fromBase64(stored));
    const found = await audit(read, await decodeAll(read), { limit: 60, samples: 0, onProgress: () => undefined });
    expect([name, found.holds, found.complete]).toEqual([name, true, true]);
    expect(found.epsilon / audited).toBeCloseTo(1, 9);
    away.forEach((distance, k) => {
      expect(Math.abs(read.metric.distance(0, k) - distance)).toBeLessThanOrEqual(1e-12 * distance);
    });
  }
});

test("along a graph every edge is looked at, and edges that are none are refused", async () => {
  const stored = vectors<Listed[]>("identities.json").find(({ name }) => name === "streets") as Listed;
  const read = await CompactTable.read(fromBase64(stored.file));
  const weights = await decodeAll(read);
  const graph = read.metric as Graph;
  expect(read.places.size).toBe(12);
  // The largest ratio over all pairs is that of an edge; at every record more is noticed.
  let most = 0;
  for (let a = 0; a < 12; a++) {
    for (let b = 0; b < a; b++) {
      for (let y = 0; y < 3; y++) {
        most = Math.max(most, Math.abs(weights.logs[3 * a + y] - weights.logs[3 * b + y]) / graph.distance(a, b));
      }
    }
  }
  const options = { limit: 60, samples: 0, onProgress: () => undefined };
  expect((await audit(read, weights, options)).epsilon / most).toBeCloseTo(1, 9);
  for (let a = 0; a < 12; a++) {
    const logs = weights.logs.map((value, k) => value + (k === 3 * a ? 4 : 0));
    expect((await audit(read, { ...weights, logs }, options)).holds).toBe(false);
    expect(auditRecord(read, { ...weights, logs }, a, []).holds).toBe(false);
  }
  const edges = (...ends: number[]) => Int32Array.from(ends);
  const steps = (...lengths: number[]) => Float64Array.from(lengths);
  const made = new Graph(edges(0, 1, 0, 2, 1, 3), steps(2 ** 30, 2 ** 29, 2 ** 28), 4, "km", null);
  expect([made.distance(2, 3), made.distance(3, 2), made.distance(0, 0)]).toEqual([1.75, 1.75, 0]);
  const refused: [Int32Array, Float64Array, number][] = [
    [edges(0, 2, 0, 1, 1, 3), steps(2, 1, 1), 4],
    [edges(0, 1, 0, 1, 1, 2), steps(2, 2, 1), 3],
    [edges(1, 0, 1, 2), steps(1, 1), 3],
    [edges(0, 1, 1, 2), steps(1, 0), 3],
    [edges(0, 1, 2, 3), steps(1, 1), 4],
    [edges(0, 1, 0, 2, 1, 2), steps(1, 2, 1), 3],
    [edges(0, 1, 1, 2), steps(2 ** 52, 2 ** 52), 3],
  ];
  for (const [ends, lengths, size] of refused) {
    expect(() => new Graph(ends, lengths, size, "km", null)).toThrow(FormatError);
  }
});

test("a file with any byte changed is refused", async () => {
  for (let at = 0; at < file.length; at += 97) {
    const changed = file.slice();
    changed[at] ^= 1;
    await expect(CompactTable.read(changed)).rejects.toThrow(FormatError);
  }
  await expect(CompactTable.read(file.slice(0, -1))).rejects.toThrow("truncated or damaged");
  await expect(CompactTable.read(new Uint8Array(0))).rejects.toThrow(FormatError);
});

test("a changed file with a right checksum is refused or decodes to rows that sum up", async () => {
  let refused = 0;
  for (let at = 100; at < file.length - 32; at += 389) {
    const changed = file.slice();
    changed[at] ^= 0x11;
    const body = changed.subarray(0, -32);
    changed.set(new Uint8Array(await crypto.subtle.digest("SHA-256", body)), body.length);
    try {
      const table = await CompactTable.read(changed);
      for (const record of [0, 279]) {
        const row = await table.row(record);
        expect(row.reduce((a, b) => a + b, 0n)).toBe(1n << 62n);
      }
    } catch (error) {
      expect(error).toBeInstanceOf(FormatError);
      refused++;
    }
  }
  expect(refused).toBeGreaterThan(5);
});

test("folded numbers", () => {
  expect(Array.from(planes(new Uint8Array([1, 0, 1, 2, 3, 255]), 5))).toEqual([0, -1, 1, -2, -128]);
  expect(Array.from(planes(new Uint8Array([2, 0, 1, 1, 0]), 2))).toEqual([128, -1]);
  expect(Array.from(planes(new Uint8Array([0]), 3))).toEqual([0, 0, 0]);
  expect(() => planes(new Uint8Array([1, 0]), 2)).toThrow("the width of a number");
});
