/** PAnDA in TypeScript against the vectors of the library: files, laws, budgets, accounts, draws. */

import { describe, expect, test } from "vitest";
import type { AuditOptions } from "../src/core/audit";
import { Container } from "../src/core/container";
import { weightsFrom } from "../src/core/audit";
import { cellOf, commonRow, Lattice, placeOf } from "../src/core/lattice";
import { leafHash, rootFrom, rootOf } from "../src/core/log";
import { CoinLaw, quantiseProbability, type Selection } from "../src/core/coins";
import { FormatError, SignatureError } from "../src/core/errors";
import { Haversine } from "../src/core/metric";
import { PandaTable } from "../src/core/panda";
import { AnchorsChecks, checksOf } from "../src/core/plan";
import { areTiles, type BallRows, unpackBall } from "../src/core/rows";
import { sha256, utf8 } from "../src/core/bytes";
import { pythonRepr } from "../src/core/signing";
import { bytesOf, vectors } from "./vectors";

interface File {
  file: string;
  epsilon: number;
  delta: number;
  selection_epsilon: number;
  violation: number;
  outputs: number[];
  shares: number[][];
  draws: { record: number; words: string[]; output: number }[];
}

const all: AuditOptions = { limit: 600, samples: 0, onProgress: () => undefined };
const files = vectors<Record<string, File>>("panda.json");

describe.each(Object.entries(files))("%s", (_, said) => {
  const read = () => PandaTable.read(bytesOf(said.file));

  test("words draw the outputs of the library", async () => {
    const table = await read();
    expect(Array.from(table.outputs)).toEqual(said.outputs);
    for (const { record, words, output } of said.draws) {
      const left = [...words];
      const column = table.draw(record, () => BigInt(left.shift() as string));
      expect([said.outputs[column], left.length]).toEqual([output, 0]);
    }
  });

  test("reports are distributed as in the library", async () => {
    const table = await read();
    said.shares.forEach((expected, record) => {
      const found = table.shares(record);
      expected.forEach((share, y) => expect(Math.abs(found[y] - share)).toBeLessThan(1e-12));
    });
  });

  test("both phases are accounted for over all pairs", async () => {
    const table = await read();
    const found = await table.audit(all);
    expect(found).toMatchObject({ holds: true, complete: true, claimed: said.epsilon, pairs: 780 });
    expect(found.account?.violation).toBeCloseTo(said.violation, 9);
    expect(found.account?.first).toBeCloseTo(said.selection_epsilon, 9);
    let worst = 0;
    for (let record = 0; record < table.size; record++) {
      const own = table.own(record, [0.5, 2]);
      expect(own.holds).toBe(true);
      worst = Math.max(worst, own.violation ?? 0);
      for (const { guess, distance } of own.told) {
        const nats = said.epsilon * distance;
        const most = (Math.exp(nats) + said.delta) / (1 + Math.exp(nats));
        if (guess !== null) expect(guess).toBeLessThanOrEqual(most);
      }
    }
    expect(worst).toBeLessThanOrEqual(said.delta);
    expect(worst).toBeGreaterThanOrEqual(0.2 * said.violation);
  });

  test("a changed byte is noticed", async () => {
    const bytes = bytesOf(said.file);
    for (const at of [0, 300, bytes.length >> 1, bytes.length - 90, bytes.length - 1]) {
      const wrong = bytes.slice();
      wrong[at] ^= 1;
      await expect(PandaTable.read(wrong)).rejects.toBeInstanceOf(FormatError);
    }
    await expect(PandaTable.read(bytes.slice(0, 50))).rejects.toBeInstanceOf(FormatError);
  });
});

test("a table that tells more than it says is refused, for all and for one", async () => {
  for (const { file, delta } of Object.values(files)) {
    const table = await PandaTable.read(bytesOf(file));
    if (delta === 0) {
      // Of balls the rows are audited, at what the file's numbers leave for them.
      const law = Object.assign(Object.create(Lattice.prototype), (table as unknown as { law: Lattice }).law, { second: 1.2 });
      const sharper = Object.assign(Object.create(Object.getPrototypeOf(table)), table, { law }) as PandaTable;
      expect((await sharper.audit(all)).holds).toBe(false);
      expect(Array.from({ length: 40 }, (_, x) => sharper.own(x, []).holds)).toContain(false);
      continue;
    }
    const less = Object.assign(Object.create(Object.getPrototypeOf(table)), table, {
      header: { ...table.header, selection: { ...table.header.selection, delta: table.delta / 100 } },
    }) as PandaTable;
    const result = await less.audit(all);
    expect(result.holds).toBe(false);
    expect(Array.from({ length: 40 }, (_, x) => less.own(x, []).holds)).toContain(false);
    const closer = Object.assign(Object.create(Object.getPrototypeOf(table)), table, {
      header: { ...table.header, epsilon: table.epsilon / 3 },
    }) as PandaTable;
    expect((await closer.audit(all)).holds).toBe(false);
  }
});

test("a file says what is missing", async () => {
  const archive = await Container.open(bytesOf(files.balls.file));
  await expect(archive.floats("none", 3)).rejects.toThrow("missing");
  await expect(archive.floats("lat", 39)).rejects.toThrow("another shape");
  await expect(archive.records("outputs", 10, 6)).rejects.toThrow("no records");
});

interface Phases {
  ball: {
    lat: number[]; lon: number[]; epsilon_1: number; exponent: number; box: number[][]; radius: number;
    second: number; edge: number;
    draws: { record: number; words: string[]; centre: [number, number] }[];
    places: { lat: number; lon: number; grid: [number, number]; words: string[]; centre: [number, number]; depth: number }[];
    tiles: {
      rows: string; tiles: number; places: { lat: number[]; lon: number[] }; digest: string;
      epsilon_1: number; radius: number; edge: number; snap: number; sent: BallRows;
    };
    balls: {
      centre: [number, number]; records: number[]; weights: string[][]; shares: string[]; common: string[];
    }[];
  };
  anchors: {
    lat: number[]; lon: number[]; selection: Selection; epsilon: number; delta: number;
    probability: number[][]; leakage: number[]; budgets: number[][]; violation: number;
    sets: { record: number; words: string[]; anchors: number[] }[];
  };
}
const { ball, anchors } = vectors<Phases>("phases.json");
const metricOf = ({ lat, lon }: { lat: number[]; lon: number[] }) =>
  new Haversine(Float64Array.from(lat), Float64Array.from(lon));

test("the lattice's law, its balls and how their rows fade are the library's", async () => {
  const metric = metricOf(ball);
  const law = new Lattice(metric, ball.epsilon_1, ball.radius, ball.second, ball.edge);
  expect(Math.abs(law.exponent / ball.exponent - 1)).toBeLessThan(1e-12);
  expect(law.box).toEqual(ball.box);
  for (const { record, words, centre } of ball.draws) {
    expect(law.draw(law.at(record), () => BigUint64Array.from(words, BigInt))).toEqual(centre);
  }
  for (const { centre, records, weights, shares, common } of ball.balls) {
    expect(law.ball(centre)).toEqual(records);
    const m = common.length;
    const found = commonRow(weightsFrom(BigInt64Array.from(weights.flat(), BigInt), records.length, m));
    expect(Array.from(found.common, String)).toEqual(common);
    shares.forEach((share, x) => {
      const mine = law.share(law.depth(law.at(x), centre), found.spread);
      expect(Math.abs(Number(mine) / Number(share) - 1)).toBeLessThan(1e-9);
      expect(mine === 2n ** 62n).toBe(!records.includes(x));
    });
  }
});

test("places nearer than rounding allows have no law of centres", () => {
  const near = new Haversine(Float64Array.of(41, 41.00000001), Float64Array.of(12, 12));
  expect(() => new Lattice(near, 1, 1, 2, 0.1)).toThrow();
  const far = new Haversine(Float64Array.of(0, 80), Float64Array.of(0, 80));
  expect(new Lattice(far, 1e5, 1, 2, 0.1).box[1][0]).toBeLessThan(2 ** 31);
  expect(() => new Lattice(far, 1e6, 1, 2, 0.1)).toThrow("finer than points can be sent");
  for (const [radius, edge] of [[0, 0.1], [1, 0], [1, 2], [Infinity, 0.1]]) {
    expect(() => new Lattice(metricOf(ball), 1, radius, 2, edge)).toThrow();
  }
});

test("any leaves of a tree lead to its root, and no others", async () => {
  const leaves = await Promise.all([...Array(13).keys()].map((k) => leafHash(Uint8Array.of(k))));
  const root = await rootOf(leaves);
  expect(await rootFrom(new Map([...leaves.entries()]), 13, new Uint8Array())).toBe(root);
  expect(await rootFrom(new Map([...leaves.entries()]), 13, new Uint8Array(32))).toBe(null);
  expect(await rootFrom(new Map([...leaves.entries()].slice(1)), 13, new Uint8Array())).toBe(null);
});

test("a place draws as the library's does, from its cell of the grid, wherever it is", () => {
  const law = new Lattice(metricOf(ball), ball.epsilon_1, ball.radius, ball.second, ball.edge);
  for (const { lat, lon, grid, words, centre, depth } of ball.places) {
    const cell = cellOf({ lat, lon });
    expect(placeOf(cell)).toEqual({ lat: grid[0] / 10_000, lon: grid[1] / 10_000 });
    expect(cellOf({ lat, lon: lon + 360 })).toBe(cell);
    expect(cellOf(placeOf(cell))).toBe(cell);
    const at = law.among(placeOf(cell));
    expect(law.draw(at, () => BigUint64Array.from(words, BigInt))).toEqual(centre);
    expect(law.depth(at, centre)).toBeCloseTo(depth, 9);
  }
});

const { tiles } = ball;

test("tiles of a ball are read, proved, and found around the centre", async () => {
  const { sent, rows: root, tiles: count } = tiles;
  expect(areTiles(sent, count)).toBe(true);
  expect((await unpackBall(sent, root, count, sent.floors.length)).size).toBe(sent.lat.length);
  const law = new Lattice(metricOf(tiles.places), tiles.epsilon_1, tiles.radius, 2 + tiles.edge, tiles.edge);
  const places = sent.lat.map((lat, k) => ({ lat, lon: sent.lon[k] }));
  const inside = law.inside(places, sent.sizes, sent.centre);
  expect(inside?.length).toBeGreaterThan(0);
  expect(inside?.length).toBeLessThan(places.length);
  const moved = places.map(({ lat, lon }) => ({ lat: lat + 1, lon }));
  expect(law.inside(moved, sent.sizes, sent.centre)).toBe(null);
  const rounded = [tiles.places.lat, tiles.places.lon].map((side) => `[${side.map(pythonRepr).join(",")}]`).join(",");
  expect(await sha256(utf8(`[${rounded}]`))).toBe(tiles.digest);
});

test("forged tiles of a ball are refused", async () => {
  const { sent, rows: root, tiles: count } = tiles;
  const m = sent.floors.length;
  const forged: Partial<BallRows>[] = [
    { lat: [sent.lat[0] + 1e-12, ...sent.lat.slice(1)] },
    { lat: [...sent.lat].reverse(), lon: [...sent.lon].reverse() },
    { tiles: sent.tiles.map((tile) => (tile + 1) % count) },
    { proof: sent.proof.slice(44) },
    { proof: `AAAA${sent.proof}` },
    { tiles: [], sizes: [], lat: [], lon: [], blocks: [] },
  ];
  for (const changes of forged) {
    await expect(unpackBall({ ...sent, ...changes }, root, count, m)).rejects.toBeInstanceOf(SignatureError);
  }
  await expect(unpackBall(sent, "0".repeat(64), count, m)).rejects.toBeInstanceOf(SignatureError);
  await expect(unpackBall(sent, root, count, m + 1)).rejects.toBeInstanceOf(FormatError);
  const shapes: Partial<BallRows>[] = [
    { lat: sent.lat.slice(1) }, { sizes: sent.sizes.map((size) => size + 1) }, { tiles: sent.tiles.slice(1) },
    { tiles: sent.tiles.map(() => -1) }, { tiles: sent.tiles.map(() => count) }, { sizes: sent.sizes.map(() => 0) },
  ];
  for (const changes of shapes) expect(areTiles({ ...sent, ...changes }, count)).toBe(false);
});

test("of no tiles there is no proof, and a surplus one is refused", async () => {
  const none = { ...tiles.sent, tiles: [], sizes: [], lat: [], lon: [], blocks: [], proof: "" };
  const m = none.floors.length;
  expect((await unpackBall(none, tiles.rows, tiles.tiles, m)).size).toBe(0);
  await expect(unpackBall({ ...none, proof: "AAAA" }, tiles.rows, tiles.tiles, m)).rejects.toThrow(SignatureError);
});

test("coins, what they tell, and budgets are the library's", async () => {
  const size = anchors.lat.length;
  const everyone = Int32Array.from({ length: size }, (_, k) => k);
  const law = new CoinLaw(metricOf(anchors), anchors.selection, everyone);
  anchors.probability.forEach((row, x) => row.forEach((p, a) => {
    expect(Math.abs(law.probability(x, a) / p - 1)).toBeLessThan(1e-12);
  }));
  anchors.leakage.forEach((nats, k) => expect(law.leakage(0, k + 1)).toBeCloseTo(nats, 9));
  for (const { record, words, anchors: chosen } of anchors.sets) {
    expect(law.select(record, BigUint64Array.from(words, BigInt))).toEqual(chosen);
  }
  const source = {
    kind: "anchors" as const, lat: law.metric.lat, lon: law.metric.lon, selection: anchors.selection,
    candidates: everyone, epsilon: anchors.epsilon, delta: anchors.delta,
  };
  const checks = (await checksOf(source)) as AnchorsChecks;
  const found = await checks.audit(all);
  expect(found.holds).toBe(true);
  expect(found.account?.violation).toBeCloseTo(anchors.violation, 6);
  anchors.budgets.forEach((row, a) => row.forEach((nats, b) => {
    expect((checks.budgets as Float64Array)[a * size + b]).toBeCloseTo(nats, 6);
  }));
  expect(checks.own(3, [1])).toMatchObject({ holds: true, pairs: 23 });
  // Rows that use these budgets keep this delta and no smaller one.
  const tight = new AnchorsChecks({ ...source, delta: anchors.delta / 2 });
  tight.budgets = checks.budgets;
  expect((await tight.audit(all)).holds).toBe(false);
});

test("probabilities never round to certainty", () => {
  expect(quantiseProbability(0)).toBe(2 ** -62);
  expect(quantiseProbability(1)).toBe(1 - 2 ** -53);
  expect(quantiseProbability(0.5)).toBe(0.5);
});
