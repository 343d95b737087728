import { expect, test } from "vitest";
import { audit, auditRecord, decodeAll, type Weights } from "../src/core/audit";
import { meaning, spread } from "../src/core/meaning";
import { shares } from "../src/core/sampler";
import { CompactTable } from "../src/core/table";
import { bytesOf, type TableVector, vectors } from "./vectors";

const table = await CompactTable.read(bytesOf("city.pmdp"));
const weights = await decodeAll(table);
const options = { limit: 60, samples: 1000, onProgress: () => undefined };

/** The definition, without tiles or bounds. */
function plain(of: Weights): { epsilon: number; pair: Set<number> } {
  let best = 0;
  let pair = new Set<number>();
  const { logs, outputs: m } = of;
  for (let a = 0; a < of.size; a++) {
    for (let b = a + 1; b < of.size; b++) {
      let gap = 0;
      for (let y = 0; y < m; y++) gap = Math.max(gap, Math.abs(logs[a * m + y] - logs[b * m + y]));
      const rate = gap / table.metric.distance(a, b);
      if (rate > best) {
        best = rate;
        pair = new Set([a, b]);
      }
    }
  }
  return { epsilon: best, pair };
}

function spoiled(change: (copy: { low: Uint32Array; high: Uint32Array; logs: Float64Array }) => void): Weights {
  const copy = {
    ...weights, low: weights.low.slice(), high: weights.high.slice(), logs: weights.logs.slice(),
  };
  change(copy);
  return copy;
}

test("the audit finds the worst of all pairs, and the library's epsilon", async () => {
  const found = await audit(table, weights, options);
  const direct = plain(weights);
  expect(found.complete && found.holds).toBe(true);
  expect(found.pairs).toBe((280 * 279) / 2);
  expect(found.covered).toBe(found.pairs);
  expect(new Set(found.worst.slice(0, 2))).toEqual(direct.pair);
  // Never below the exact value, and above it by rounding alone.
  expect(found.epsilon).toBeGreaterThanOrEqual(direct.epsilon);
  expect(found.epsilon - direct.epsilon).toBeLessThan(1e-12 / found.distance);
  expect(found.epsilon).toBeCloseTo(vectors<TableVector>("table.json").audited, 10);
});

test("one weight that tells too much is found", async () => {
  const bad = spoiled(({ logs }) => {
    logs[137 * 12 + 4] += 5;
  });
  const found = await audit(table, bad, options);
  expect(found.holds).toBe(false);
  expect(found.worst).toContain(137);
  expect(found.worst[2]).toBe(table.outputs[4]);
  expect(auditRecord(table, bad, 137, []).holds).toBe(false);
  expect(auditRecord(table, weights, 137, []).holds).toBe(true);
});

test("an output that only some records can have has no bound", async () => {
  const bad = spoiled(({ low, high }) => {
    low[30 * 12 + 3] = high[30 * 12 + 3] = 0;
  });
  const found = await audit(table, { ...bad, broken: 3 }, options);
  expect(found.epsilon).toBe(Infinity);
  expect(found.holds).toBe(false);
  expect(found.worst.slice(1)).toEqual([30, table.outputs[3]]);
  expect(auditRecord(table, { ...bad, broken: 3 }, 5, []).holds).toBe(false);
});

test("equal rows tell nothing apart, however near", async () => {
  const { outputs: m } = weights;
  const same = spoiled(({ low, high, logs }) => {
    for (let k = 1; k < weights.size; k++) {
      low.copyWithin(k * m, 0, m);
      high.copyWithin(k * m, 0, m);
      logs.copyWithin(k * m, 0, m);
    }
  });
  const found = await audit(table, same, options);
  expect(found.epsilon).toBe(0);
  expect(found.holds).toBe(true);
});

test("without time it says what was covered, and samples the rest", async () => {
  const found = await audit(table, weights, { ...options, limit: -1, samples: 500 });
  expect(found.complete).toBe(false);
  expect(found.covered).toBeLessThan(found.pairs);
  expect(found.within).toBe(0);
  expect(found.sampled).toBe(500);
});

test("one record against all others", async () => {
  const all = await audit(table, weights, options);
  const rates = Array.from({ length: table.size }, (_, k) => auditRecord(table, weights, k, []).epsilon);
  expect(Math.max(...rates)).toBe(all.epsilon);
  const own = auditRecord(table, weights, 10, [0.5, 1, 1e-6]);
  expect(own.pairs).toBe(279);
  for (const told of own.told.slice(0, 2)) {
    expect(told.records).toBeGreaterThan(0);
    expect(told.guess).toBeGreaterThan(0.5);
    // What the table allows is not above what is promised.
    expect(told.guess).toBeLessThanOrEqual(meaning(table.epsilon, told.distance).guess);
  }
  expect(own.told[2]).toEqual({ distance: 1e-6, guess: null, records: 0 });
});

test("what epsilon means", () => {
  expect(meaning(2, 0.5).factor).toBeCloseTo(Math.E, 12);
  expect(meaning(2, 0.5).guess).toBeCloseTo(Math.E / (1 + Math.E), 12);
  expect(meaning(4, 0).guess).toBe(0.5);
  expect(meaning(1e6, 10).guess).toBe(1);
});

test("the spread of reports around a place", async () => {
  const row = shares(await table.row(20));
  const { lat, lon } = table.places;
  const found = spread(table.places, lat[20], lon[20], table.outputs, row);
  let expected = 0;
  row.forEach((share, column) => {
    expected += share * table.metric.distance(20, table.outputs[column]);
  });
  expect(found.expected).toBeCloseTo(expected, 12);
  expect(found.half).toBeLessThanOrEqual(found.most);
  expect(found.steps.reduce((sum, step) => sum + step.share, 0)).toBeCloseTo(1, 12);
  expect(found.top).toBe(Math.max(...row));
});
