import { expect, test } from "vitest";
import { areasOf } from "../src/client/list";
import { gridFor, kernelWidth, shade, smooth } from "../src/operator/density";
import { fillHours } from "../src/operator/hours";

const xy = Float32Array.from([0, 0, 3000, 0, 0, 4000, 3000, 4000]);

test("a density sums to its shares, and lies where they are", () => {
  const width = kernelWidth(xy, [0, 1, 2, 3]);
  expect(width).toBeCloseTo(0.5 * Math.sqrt(3e6), 6);
  const grid = gridFor(xy, 200);
  const field = smooth(grid, xy, [0, 3], [0.25, 0.75], 200);
  const sum = field.values.reduce((a, b) => a + b, 0) * (field.cell / 1000) ** 2;
  expect(sum).toBeCloseTo(1, 9);
  const top = field.values.indexOf(Math.max(...field.values));
  const x = field.x + ((top % field.columns) + 0.5) * field.cell;
  const y = field.y + (Math.floor(top / field.columns) + 0.5) * field.cell;
  expect(Math.hypot(x - 3000, y - 4000)).toBeLessThan(field.cell);
});

test("the scale is one way on light and the other on dark grounds", () => {
  expect(shade(0, false)).toEqual([254, 232, 56]);
  expect(shade(1, true)).toEqual([254, 232, 56]);
  expect(shade(1, false)[2]).toBeGreaterThan(shade(1, false)[0]);
});

test("hours without reports are hours", () => {
  const now = Date.parse("2026-03-02T10:30:00Z");
  const filled = fillHours([{ hour: "2026-03-02T08:00:00Z", count: 5 }], now);
  expect(filled).toHaveLength(24);
  expect(filled.slice(-3).map(({ count }) => count)).toEqual([5, 0, 0]);
  expect(fillHours([], now)).toHaveLength(24);
  expect(fillHours([{ hour: "2026-01-01T00:00:00Z", count: 1 }], now)).toHaveLength(72);
});

test("the list holds every place once, in parts of about the same size", () => {
  const many = Float32Array.from({ length: 2000 }, (_, k) => Math.sin(k * 7.3) * 1000);
  const areas = areasOf(many);
  const all = areas.flat().sort((a, b) => a - b);
  expect(all).toEqual(Array.from({ length: 1000 }, (_, k) => k));
  expect(Math.max(...areas.map(({ length }) => length))).toBeLessThanOrEqual(32);
});
