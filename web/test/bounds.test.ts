/** The parts of the audit's proof, one by one: each test fails where its part is left out. */

import { expect, test, vi } from "vitest";
import { audit, auditRecord, decodeAll, type Weights } from "../src/core/audit";
import { utf8 } from "../src/core/bytes";
import { Euclidean, Matrix, type Metric } from "../src/core/metric";
import { verify } from "../src/core/signing";
import type { CompactTable } from "../src/core/table";
import { vectors } from "./vectors";

const options = { limit: 60, samples: 0, onProgress: () => undefined };
const TILE = 48;

function weightsOf(logs: number[][]): Weights {
  const outputs = logs[0].length;
  const flat = Float64Array.from(logs.flat());
  // Rows differ in their integers wherever they differ in their logarithms.
  const high = Uint32Array.from(flat, (value) => Math.round(1e6 * (value + 1)));
  return { size: logs.length, outputs, low: new Uint32Array(flat.length), high, logs: flat, broken: -1 };
}

function tableOf(metric: Metric, outputs: number, epsilon = 1): CompactTable {
  return { metric, outputs: new Int32Array(outputs), epsilon, size: metric.size } as unknown as CompactTable;
}

function onLine(places: number[]): Euclidean {
  return new Euclidean(Float64Array.from(places), places.length, 1, "km");
}

/** The largest rate, by definition. */
function direct(metric: Metric, { logs, outputs: m, size }: Weights): number {
  let most = 0;
  for (let a = 0; a < size; a++) {
    for (let b = a + 1; b < size; b++) {
      for (let y = 0; y < m; y++) {
        most = Math.max(most, Math.abs(logs[a * m + y] - logs[b * m + y]) / metric.distance(a, b));
      }
    }
  }
  return most;
}

test("the worst pair may lie across the border of two tiles", async () => {
  const places = Array.from({ length: 2 * TILE }, (_, k) => 0.1 * k);
  const logs = places.map((_, k) => [0.2 + 0.3 * (k % 2)]);
  // The steepest step inside a tile, and a steeper one between the last and the first of two.
  logs[10] = [0];
  logs[11] = [1];
  logs[12] = [0.5];
  logs[TILE - 2] = [0.5];
  logs[TILE - 1] = [0];
  logs[TILE] = [1.05];
  logs[TILE + 1] = [0.5];
  const metric = onLine(places);
  const weights = weightsOf(logs);
  const found = await audit(tableOf(metric, 1), weights, options);
  expect(found.complete).toBe(true);
  expect(new Set(found.worst.slice(0, 2))).toEqual(new Set([TILE - 1, TILE]));
  expect(found.epsilon).toBeGreaterThanOrEqual(direct(metric, weights));
});

test.each([["above", 1], ["below", -1]])("a far tile that lies wholly %s is not passed over", async (_, sign) => {
  const places = Array.from({ length: 2 * TILE }, (_, k) => (k < TILE ? 0.1 * k : 10 + 0.1 * (k - TILE)));
  const logs = places.map((_, k) => [20 + sign * ((k < TILE ? 0 : 6) + 0.1 * (k % 2))]);
  const metric = onLine(places);
  const weights = weightsOf(logs);
  const found = await audit(tableOf(metric, 1), weights, options);
  const [a, b] = found.worst;
  expect(Math.floor(a / TILE)).not.toBe(Math.floor(b / TILE));
  expect(found.epsilon).toBeGreaterThanOrEqual(direct(metric, weights));
});

test("the rounding of logarithms is paid for: never below the exact rate", async () => {
  // log(1 + x) > x - x^2 / 2, and x is exact; the difference of two rounded logarithms is not.
  const metric = new Matrix(Float64Array.from([0, 1, 1, 0]), 2, "km");
  let short = 0;
  for (let k = 1; k <= 200; k++) {
    const step = 2 ** 24;
    const one = 2 ** 61 + 2 ** 50 * k;
    const logs = Float64Array.from([Math.log(one), Math.log(one + step)]);
    const weights: Weights = {
      size: 2, outputs: 1, low: Uint32Array.from([0, step]),
      high: new Uint32Array(2).fill(one / 2 ** 32),
      logs, broken: -1,
    };
    const x = step / one;
    const exact = x - (x * x) / 2;
    if (logs[1] - logs[0] < exact * (1 - 4e-15)) short++;
    const found = await audit(tableOf(metric, 1), weights, options);
    expect(found.epsilon).toBeGreaterThanOrEqual(exact);
    expect(auditRecord(tableOf(metric, 1), weights, 0, []).epsilon).toBeGreaterThanOrEqual(exact);
  }
  // Without the allowance the audit would have been wrong this often.
  expect(short).toBeGreaterThan(20);
});

test("a signature that cannot be checked is none", async () => {
  const { key, table } = vectors<{
    key: { public: string }; table: { bytes: string; signature: string };
  }>("signing.json");
  const broken = vi.spyOn(crypto.subtle, "verify").mockRejectedValue(new Error("out of order"));
  try {
    await expect(verify(key.public, utf8(table.bytes), table.signature)).rejects.toThrow("does not match");
  } finally {
    broken.mockRestore();
  }
  await verify(key.public, utf8(table.bytes), table.signature);
});

test("the verdict is against the epsilon that is claimed, not a larger one", async () => {
  const metric = onLine([0, 1, 3]);
  const weights = weightsOf([[0.5], [1.5], [1]]);
  const { epsilon } = await audit(tableOf(metric, 1, 2), weights, options);
  for (const [claimed, holds] of [[epsilon, true], [0.999 * epsilon, false]] as const) {
    expect((await audit(tableOf(metric, 1, claimed), weights, options)).holds).toBe(holds);
    expect(auditRecord(tableOf(metric, 1, claimed), weights, 0, []).holds).toBe(holds);
  }
});

test("a weight of zero beside positive ones is noticed when the rows are decoded", async () => {
  const rows = (high: number[]) => ({
    size: 3, outputs: new Int32Array(2), blockCount: 1, order: Int32Array.from([0, 1, 2]),
    block: async () => ({ count: 3, low: new Uint32Array(6), high: Uint32Array.from(high) }),
  }) as unknown as CompactTable;
  expect((await decodeAll(rows([1, 2, 1, 0, 1, 2]))).broken).toBe(1);
  expect((await decodeAll(rows([1, 0, 1, 0, 1, 0]))).broken).toBe(-1);
});
