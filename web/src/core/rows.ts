/** Rows that a server sends for a ball or a round: read, compared with their signature, weighed. */

import { type Weights, weightsFrom, weightsOf } from "./audit";
import { type Bytes, canonicalJson, fromBase64, sha256, utf8 } from "./bytes";
import { FormatError, SignatureError } from "./errors";
import type { Centre } from "./lattice";
import { leafHash, rootFrom } from "./log";
import { joined } from "./signing";
import { inflate } from "./container";
import { BLOCK_ROWS, decodeBlock } from "./table";

const DIGITS = /^(0|[1-9][0-9]{0,18})$/;
const MOST_ROWS = 1_000_000;

export interface Rows {
  /** Records of the domain, ascending. */
  readonly members: readonly number[];
  readonly outputs: readonly number[];
  readonly weights: readonly (readonly string[])[];
}

export interface BallRows {
  readonly version: number;
  readonly centre: Centre;
  readonly records: readonly number[];
  readonly floors: readonly string[];
  readonly blocks: readonly string[];
  /** Base64 of the nodes beside the way from the rows to the root that the operator signed. */
  readonly proof: string;
}

export function checkOutputs(outputs: readonly number[], size: number): void {
  const right = new Set(outputs).size === outputs.length
    && outputs.every((output) => Number.isInteger(output) && output >= 0 && output < size);
  if (!right) throw new FormatError("damaged", "the outputs are no distinct records");
}

/** What is signed of the rows of a round. */
export async function rowsBytes(deployment: string, version: number, rows: Rows): Promise<Bytes> {
  const { members, outputs, weights } = rows;
  const digest = await sha256(utf8(canonicalJson({ anchors: members, outputs, weights })));
  return joined(["panda-mdp rows 1", deployment, String(version), digest]);
}

/** Decimal digits as integers; refused unless every row sums to 2^62. */
export function weighed({ members, outputs, weights }: Rows): Weights {
  const m = outputs.length;
  const right = weights.length === members.length
    && weights.every((row) => row.length === m && row.every((digits) => DIGITS.test(digits)));
  if (!right || m === 0) throw new FormatError("damaged", "rows of another shape arrived");
  const integers = new BigInt64Array(members.length * m);
  weights.forEach((row, k) => row.forEach((digits, y) => {
    integers[k * m + y] = BigInt.asIntN(64, BigInt(digits));
  }));
  return weightsFrom(integers, members.length, m);
}

/** The rows of a ball that came in blocks: records, ascending, and their weights. */
export async function unpackBall(ball: BallRows, m: number): Promise<{ records: number[]; weights: Weights }> {
  const count = ball.records.length;
  const right = ball.floors.length === m && ball.floors.every((digits) => DIGITS.test(digits))
    && count <= MOST_ROWS && ball.blocks.length === Math.ceil(count / BLOCK_ROWS);
  if (!right) throw new FormatError("damaged", "rows of another shape arrived");
  const floors = BigUint64Array.from(ball.floors, BigInt);
  const order = Array.from(ball.records.keys()).sort((a, b) => ball.records[a] - ball.records[b]);
  const place = new Int32Array(count);
  order.forEach((from, to) => { place[from] = to; });
  const low = new Uint32Array(count * m);
  const high = new Uint32Array(count * m);
  for (const [number, block] of ball.blocks.entries()) {
    const n = Math.min(BLOCK_ROWS, count - number * BLOCK_ROWS);
    const most = 4 * n + Math.ceil((n * m) / 8) + 1 + 8 * n * m;
    const rows = decodeBlock(await inflate(fromBase64(block), most), n, floors);
    for (let i = 0; i < n; i++) {
      const to = place[number * BLOCK_ROWS + i] * m;
      low.set(rows.low.subarray(i * m, (i + 1) * m), to);
      high.set(rows.high.subarray(i * m, (i + 1) * m), to);
    }
  }
  return { records: order.map((from) => ball.records[from]), weights: weightsOf(low, high, count, m) };
}

/** Refuse rows that are not those of the table of `size` records with this root, and a proof that has
 * more than that takes: of no rows there is none. */
export async function checkProof(
  root: string, size: number, records: readonly number[], weights: Weights, proof: string,
): Promise<void> {
  if (!records.length && !proof) return;
  const { low, high, outputs: m } = weights;
  const leaves = new Map<number, string>();
  for (const [k, record] of records.entries()) {
    const leaf = new DataView(new ArrayBuffer(4 + 8 * m));
    leaf.setUint32(0, record, true);
    for (let y = 0; y < m; y++) {
      leaf.setUint32(4 + 8 * y, low[k * m + y], true);
      leaf.setUint32(8 + 8 * y, high[k * m + y], true);
    }
    leaves.set(record, await leafHash(new Uint8Array(leaf.buffer)));
  }
  if ((await rootFrom(leaves, size, fromBase64(proof))) !== root) throw new SignatureError("signature");
}
