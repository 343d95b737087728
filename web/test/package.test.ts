/** The package as somebody else installs it: packed, installed in an empty folder, run by Node. */

import { execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sha256 } from "../src/core/bytes";
import { headBytes, leafHash, rootOf } from "../src/core/log";
import { keyId, tableBytes } from "../src/core/signing";
import { statementBytes } from "../src/core/statement";
import { CompactTable } from "../src/core/table";
import { bytesOf } from "./vectors";

const WEB = fileURLToPath(new URL("..", import.meta.url));
let folder = "";

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "panda-core-"));
  execFileSync(process.execPath, [join(WEB, "package/build.mjs"), folder], { stdio: "pipe" });
  const [tarball] = readdirSync(folder).filter((name) => name.endsWith(".tgz"));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "user", private: true, type: "module" }));
  execFileSync(
    "npm", ["install", "--offline", "--no-audit", "--no-fund", "--silent", `./${tarball}`],
    { cwd: folder, stdio: "pipe" },
  );
  for (const name of ["fake-indexeddb"]) {
    symlinkSync(join(WEB, "node_modules", name), join(folder, "node_modules", name));
  }
}, 120_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Run a module in the folder; what it printed as JSON. */
async function run(text: string): Promise<unknown> {
  const name = `run-${Math.random().toString(36).slice(2)}.mjs`;
  writeFileSync(join(folder, name), text);
  const { execFile } = await import("node:child_process");
  return new Promise((resolve, reject) => {
    execFile(process.execPath, [name], { cwd: folder }, (error, out, err) => {
      if (error) reject(new Error(err));
      else resolve(JSON.parse(out));
    });
  });
}

test("the installed package agrees with the library's vectors", async () => {
  const checked = await run(`
    import { readFileSync } from "node:fs";
    import { createRequire } from "node:module";
    import { choose, CompactTable, EverywhereTable, Haversine, PandaTable, haversineKm, sha256, nearest, tableBytes, verify } from "panda-mdp-core";
    const at = createRequire(import.meta.url).resolve("panda-mdp-core").replace("dist/index.js", "vectors/");
    const read = (name) => JSON.parse(readFileSync(at + name, "utf8"));
    const file = new Uint8Array(readFileSync(at + "city.pmdp"));
    const table = await CompactTable.read(file);
    const expected = read("table.json");
    let rows = 0, draws = 0, snaps = 0, distances = 0, refused = 0;
    if (await sha256(file) !== expected.sha256) throw new Error("sha256");
    for (let k = 0; k < expected.rows.length; k++) {
      if (String(Array.from(await table.row(k))) !== String(expected.rows[k])) throw new Error("row " + k);
      rows++;
    }
    for (const { record, word, output } of read("draws.json").draws) {
      if (table.outputs[choose(await table.row(record), BigInt(word))] !== output) throw new Error("draw");
      draws++;
    }
    for (const { lat, lon, cases } of read("snapping.json").sets) {
      const metric = new Haversine(Float64Array.from(lat), Float64Array.from(lon));
      for (const c of cases) {
        let found = null;
        try {
          const near = nearest(metric, c.lat, c.lon);
          found = near.km <= c.limit_km ? near.record : null;
        } catch { /* no place */ }
        if (found !== c.record) throw new Error("snap");
        snaps++;
      }
    }
    const { relative_error, pairs } = read("distances.json");
    for (const { from, to, km } of pairs) {
      if (Math.abs(haversineKm(...from, ...to) - km) > relative_error * km) throw new Error("distance");
      distances++;
    }
    const { key, table: signed } = read("signing.json");
    await verify(key.public, tableBytes(signed.fields), signed.signature);
    for (const wrong of signed.refused) {
      await verify(key.public, tableBytes(signed.fields), wrong).catch(() => refused++);
    }
    for (const { file, outputs, draws: cases } of Object.values(read("panda.json"))) {
      const phased = await PandaTable.read(new Uint8Array(readFileSync(at + file)));
      for (const { record, words, output } of cases) {
        const left = [...words];
        if (outputs[phased.draw(record, () => BigInt(left.shift()))] !== output) throw new Error(file);
        draws++;
      }
    }
    const area = await EverywhereTable.read(new Uint8Array(readFileSync(at + "area.pmdp")));
    for (const { vertices, words, output, ...place } of read("area.json").cases) {
      if (vertices === null) continue;
      const left = [...words];
      if (area.outputs[area.draw(place, () => BigInt(left.shift()))] !== output) throw new Error("area");
      draws++;
    }
    console.log(JSON.stringify({ rows, draws, snaps, distances, refused }));
  `) as Record<string, number>;
  expect(checked).toMatchObject({ rows: 280, refused: 2 });
  expect(Math.min(checked.draws, checked.snaps, checked.distances)).toBeGreaterThan(40);
});

test("getCurrentPosition hands over what was drawn, and a report is sent once", async () => {
  const file = bytesOf("city.pmdp");
  const table = await CompactTable.read(file);
  const pair = (await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"])) as CryptoKeyPair;
  const base64 = (bytes: ArrayBuffer) => Buffer.from(bytes).toString("base64");
  const sign = async (data: BufferSource) => base64(await crypto.subtle.sign("Ed25519", pair.privateKey, data));
  const text = base64(await crypto.subtle.exportKey("raw", pair.publicKey));
  const key = { id: await keyId(text), algorithm: "Ed25519", public: text };
  const fields = {
    name: "city", version: 1, sha256: await sha256(file), size_bytes: file.length, identity: await table.identity(),
    domain: await table.fingerprint(), epsilon: table.epsilon,
  };
  const info = {
    ...fields, unit: "km", records: table.size, outputs: table.outputs.length,
    audited_epsilon: table.epsilon, loss: 0, lower_bound: null, gap: null, loss_cost: 0,
    signature: await sign(tableBytes(fields)), key_id: key.id, created: "", streets: null,
  };
  const said = { name: "main", kind: "table", version: 1, period_s: 86_400, reports_per_period: 9 };
  const statement = JSON.stringify({
    ...said, statement: "panda-mdp deployment 1", issued: 1, metric: "haversine", unit: "km",
    domain: info.domain, epsilon: table.epsilon, delta: 0, table_identity: info.identity,
  });
  const deployment = {
    ...said, open: true, created: "", statement, signature: await sign(await statementBytes("main", statement)),
    guarantee: { epsilon: table.epsilon, delta: 0, unit: "km" }, table: info,
  };
  const entries = [tableBytes(fields), await statementBytes("main", statement)];
  const leaves = await Promise.all(entries.map(leafHash));
  const unsigned = { size: 2, root: await rootOf(leaves), at: 1, signature: "" };
  const head = { ...unsigned, signature: await sign(headBytes(unsigned)) };
  const posted: { id: string; output: number }[] = [];
  const server = createServer((request, response) => {
    const answer = (body: unknown, status = 200) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    if (request.method === "POST") {
      let body = "";
      request.on("data", (part) => (body += part)).on("end", () => {
        posted.push(JSON.parse(body));
        answer({}, 201);
      });
    } else if (request.url === "/v1") answer({ version: "0", key });
    else if (request.url === "/v1/deployments") answer({ deployments: [deployment] });
    else if (request.url === "/v1/log") answer({ head, leaves });
    else response.end(file);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { lat, lon } = table.places;
  const { port } = server.address() as AddressInfo;
  try {
    const found = await run(`
      import { IDBFactory } from "fake-indexeddb";
      import { Survey } from "panda-mdp-core";
      const kept = new Map();
      const store = { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => void kept.set(k, v) };
      const at = (latitude, longitude) => ({
        getCurrentPosition: (good) => good({ coords: { latitude, longitude, altitude: 52, speed: 1 } }),
      });
      const open = (geolocation) => Survey.open("http://127.0.0.1:${port}", {
        key: "${key.id}", store, factory, geolocation, limits: { period_epsilon: 9 },
      });
      const factory = new IDBFactory();
      const survey = await open(at(${lat[20]}, ${lon[20]}));
      const ask = (s) => new Promise((good, bad) => s.getCurrentPosition(good, bad));
      const [one, two] = [await ask(survey), await ask(survey)];
      const spent = (await survey.balance()).spent;
      const sent = await survey.report(${lat[100]}, ${lon[100]}, "pmt_x");
      const again = await survey.report(${lat[100]}, ${lon[100]}, "pmt_x");
      const over = await ask(await open(at(${lat[200]}, ${lon[200]}))).catch((error) => error);
      const far = await survey.report(0, 0, "pmt_x").catch((error) => error);
      const wrong = await Survey.open("http://127.0.0.1:${port}", { key: "0", store, factory }).catch((e) => e.name);
      console.log(JSON.stringify({
        coords: one.coords, same: JSON.stringify(one.coords) === JSON.stringify(two.coords), spent, sent, again,
        over: [over.code, over.message], far: far.problem, wrong, accuracy: survey.accuracyKm,
      }));
    `) as Record<string, any>;
    const outputs = Array.from(table.outputs, (k) => `${lat[k]} ${lon[k]}`);
    expect(outputs).toContain(`${found.coords.latitude} ${found.coords.longitude}`);
    expect(found.coords).toMatchObject({ altitude: null, speed: null, heading: null });
    expect(found.coords.accuracy).toBe(1000 * found.accuracy);
    expect(found.same).toBe(true);
    expect(found.spent).toBe(4);
    expect(found.sent).toMatchObject({ state: "accepted", answer: { output: posted[0].output } });
    expect(found.again).toEqual({ state: "accepted", answer: null });
    expect(posted).toHaveLength(1);
    expect(Object.keys(posted[0]).sort()).toEqual(["id", "output", "table"]);
    expect(found.over).toEqual([2, expect.stringContaining("epsilon 8 of 9 is spent")]);
    // From the other side of the earth it is the budget that ends it, and not the distance.
    expect(found.far).toBe("periodSpent");
    expect(found.wrong).toBe("KeyChangedError");
  } finally {
    server.close();
  }
});
