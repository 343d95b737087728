/**
 * The identity of a table (docs/format.md): SHA-256 over everything that has a meaning, however its
 * file is written. The same as the library's `table.identity`, to the bit.
 */

import { type Bytes, escaped, sha256, utf8 } from "./bytes";
import type { Container } from "./container";
import { pythonRepr } from "./signing";

/** What belongs to the problem; the rest is the table's, but for what is said in another form. */
const PROBLEM = [
  "lat", "lon", "vectors", "distances", "edges", "steps", "nodes", "outputs", "output_lat", "output_lon", "prior",
];
const REALS = ["lat", "lon", "vectors", "distances", "output_lat", "output_lon", "prior", "loss", "mesh_area"];
const APART = /^(loss|floor|order|blocks|bound_.*)$/;

interface Array64 {
  readonly shape: readonly number[];
  readonly real: boolean;
  readonly bytes: Bytes;
}

/** JSON in one form alone, all its numbers as floats. */
export function floatJson(value: unknown): string {
  if (typeof value === "number") return pythonRepr(value);
  if (Array.isArray(value)) return `[${value.map(floatJson).join(",")}]`;
  if (value === null || typeof value !== "object") return escaped(JSON.stringify(value));
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([name, part]) => `${escaped(JSON.stringify(name))}:${floatJson(part)}`).join(",")}}`;
}

async function arrayOf(open: Container, name: string): Promise<Array64> {
  const { shape } = open.section(name);
  const real = REALS.includes(name);
  const values = await (real ? open.floats(name, ...shape) : open.integers(name, ...shape));
  return { shape, real, bytes: new Uint8Array(values.buffer as ArrayBuffer) };
}

function told(kind: string, { shape, bytes }: Pick<Array64, "shape" | "bytes">): Bytes[] {
  return [utf8(`${kind}(${shape.join(", ")}${shape.length === 1 ? "," : ""})`), bytes];
}

async function digest(parts: readonly Bytes[]): Promise<string> {
  return sha256(new Uint8Array(await new Blob(parts as Bytes[]).arrayBuffer()));
}

async function identify(said: object, arrays: ReadonlyMap<string, Array64>): Promise<string> {
  const names = [...arrays.keys()].sort();
  const words = utf8(floatJson({ ...said, arrays: names }));
  const parts = told("|u1", { shape: [words.length], bytes: words });
  for (const name of names) {
    const array = arrays.get(name) as Array64;
    parts.push(...told(array.real ? "<f8" : "<i8", array));
  }
  return digest(parts);
}

/** The identity of the table of a file; `rows` are its weights, record by record, where they lie in blocks. */
export async function identityOf(open: Container, rows?: readonly [readonly number[], BigUint64Array]): Promise<string> {
  const { epsilon, domain, outputs, loss, mesh, selection } = open.header;
  const [asked, made] = [new Map<string, Array64>(), new Map<string, Array64>()];
  for (const name of open.names) {
    if (!APART.test(name)) (PROBLEM.includes(name) ? asked : made).set(name, await arrayOf(open, name));
  }
  if (rows) made.set("weights", { shape: rows[0], real: false, bytes: new Uint8Array(rows[1].buffer as ArrayBuffer) });
  const leftOut = open.has("loss") ? await digest(told("<f8", await arrayOf(open, "loss"))) : loss.digest;
  const problem = await identify({ epsilon, domain, outputs, loss: { ...loss, digest: leftOut } }, asked);
  return identify({ problem, ...(mesh ? { mesh } : {}), ...(selection ? { selection } : {}) }, made);
}
