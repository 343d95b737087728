/** Tables for every point in TypeScript against the vectors of the library. */

import { expect, test } from "vitest";
import { EverywhereTable } from "../src/core/everywhere";
import { FormatError, SnapError } from "../src/core/errors";
import { Mesh, vertexOf } from "../src/core/mesh";
import { bytesOf, vectors } from "./vectors";

interface Case {
  lat: number;
  lon: number;
  vertices: number[] | null;
  weights: number[];
  shares: number[];
  words: string[];
  output: number;
}
const said = vectors<{ epsilon: number; everywhere: number; audited: number; triangles: number; cases: Case[] }>("area.json");
const read = () => EverywhereTable.read(bytesOf("area.pmdp"));

test("places lie in the library's triangles and draw its outputs", async () => {
  const table = await read();
  let outside = 0;
  for (const { lat, lon, vertices, weights, shares, words, output } of said.cases) {
    if (vertices === null) {
      outside++;
      expect(() => table.locate({ lat, lon })).toThrow(SnapError);
      continue;
    }
    const located = table.locate({ lat, lon });
    expect(located.vertices).toEqual(vertices);
    expect(located.weights.reduce((a, b) => a + b)).toBe(2 ** 30);
    // Sines may differ in the last bit: a weight by a few units of 2^-30.
    located.weights.forEach((weight, k) => expect(Math.abs(weight - weights[k])).toBeLessThan(64));
    table.shares({ lat, lon }).forEach((share, y) => expect(Math.abs(share - shares[y])).toBeLessThan(1e-6));
    const left = [...words];
    const column = table.draw({ lat, lon }, () => BigInt(left.shift() as string));
    expect([table.outputs[column], left.length]).toEqual([output, 0]);
  }
  expect(outside).toBeGreaterThan(3);
  expect(outside).toBeLessThan(40);
});

test("every point is audited, as in the library", async () => {
  const table = await read();
  const found = await table.audit({ limit: 60, samples: 0, onProgress: () => undefined });
  expect(found).toMatchObject({ holds: true, complete: true, triangles: said.triangles });
  expect(found.epsilon).toBeCloseTo(Math.max(said.everywhere, said.audited), 9);
  const here = { lat: 41.9001, lon: 12.4912 };
  const own = table.own(here, [0.3, 5]);
  expect(own.holds).toBe(true);
  expect(own.epsilon).toBeCloseTo(said.everywhere, 9);
  expect(own.told[1].records).toBe(table.metric.size);
  const tight = Object.assign(Object.create(EverywhereTable.prototype), table, {
    header: { ...table.header, epsilon: said.everywhere * 0.999 },
  }) as EverywhereTable;
  expect((await tight.audit({ limit: 60, samples: 0, onProgress: () => undefined })).holds).toBe(false);
  expect(tight.own(here, []).holds).toBe(false);
});

test("a mesh that lacks a triangle, or whose places are elsewhere, is refused", async () => {
  const { mesh, header } = await read();
  const { middle, spacing } = header.mesh;
  const make = (vertices = mesh.vertices, area = mesh.area, places = mesh.places) =>
    new Mesh(middle, spacing, vertices, area, places);
  expect(make().spacing).toBe(spacing);
  const inner = mesh.locate(41.9, 12.491)?.vertices[0] as number;
  const keep = Array.from(mesh.vertices.keys()).filter((k) => k !== inner);
  expect(() => make(keep.map((k) => mesh.vertices[k]), mesh.area, mesh.places.take(keep))).toThrow(FormatError);
  const moved = mesh.places.take(Array.from(mesh.vertices.keys()));
  moved.lat[3] += 1e-6;
  expect(() => make(mesh.vertices, mesh.area, moved)).toThrow(FormatError);
  expect(() => make(mesh.vertices, [...mesh.area].reverse())).toThrow(FormatError);
  expect(() => make(mesh.vertices, mesh.area.map(([u, v]) => [9 * u, 9 * v] as const))).toThrow(FormatError);
});

test("thirty bits select the vertex", () => {
  const located = { vertices: [7, 8, 9], weights: [2 ** 29, 2 ** 28, 2 ** 28] } as const;
  const word = (units: number) => BigInt(units) << 32n;
  expect([0, 2 ** 29 - 1, 2 ** 29, 2 ** 29 + 2 ** 28 - 1, 2 ** 30 - 1].map((u) => vertexOf(located, word(u))))
    .toEqual([7, 7, 8, 8, 9]);
  // The two bits above do not matter.
  expect(vertexOf(located, word(0) + (3n << 62n))).toBe(7);
});
