import { expect, test } from "vitest";
import { choose, draw, shares } from "../src/core/sampler";
import { CompactTable } from "../src/core/table";
import { bytesOf, vectors } from "./vectors";

interface Draw {
  record: number;
  word: string;
  column: number;
  output: number;
}

test("the same random bits draw the same output as in Python", async () => {
  const table = await CompactTable.read(bytesOf("city.pmdp"));
  const { draws } = vectors<{ draws: Draw[] }>("draws.json");
  expect(draws.length).toBeGreaterThan(400);
  for (const { record, word, column, output } of draws) {
    const drawn = choose(await table.row(record), BigInt(word));
    expect(drawn).toBe(column);
    expect(table.outputs[drawn]).toBe(output);
  }
});

test("each output is drawn for exactly its weight of words", () => {
  const row = new BigUint64Array([0n, 3n, 1n << 61n, 0n, (1n << 61n) - 3n]);
  expect([0n, 2n, 3n, (1n << 61n) + 2n, (1n << 61n) + 3n, (1n << 62n) - 1n].map((u) => choose(row, u)))
    .toEqual([1, 1, 2, 2, 4, 4]);
  // The two bits above 2^62 do not matter.
  expect(choose(row, (3n << 62n) + 2n)).toBe(1);
  expect(() => choose(new BigUint64Array([1n]), 5n)).toThrow(RangeError);
});

test("draws use the operating system's generator and follow the row", () => {
  const row = new BigUint64Array([1n << 60n, 3n << 60n]);
  const count = 4000;
  let first = 0;
  for (let k = 0; k < count; k++) if (draw(row) === 0) first++;
  // Six standard deviations of a fair quarter.
  expect(Math.abs(first - count / 4)).toBeLessThan(6 * Math.sqrt((count * 3) / 16));
  expect(Array.from(shares(row))).toEqual([0.25, 0.75]);
});
