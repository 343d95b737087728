/** Rows that a server sends for a ball or a round: read, compared with their signature, weighed. */

import { type Weights, weightsFrom, weightsOf } from "./audit";
import { type Bytes, canonicalJson, fromBase64, sha256, utf8 } from "./bytes";
import { FormatError, SignatureError } from "./errors";
import type { Centre } from "./lattice";
import { leafHash, rootFrom } from "./log";
import { joined } from "./signing";
import { inflate } from "./container";
import { decodeBlock } from "./table";

const DIGITS = /^(0|[1-9][0-9]{0,18})$/;
const MOST_ROWS = 1_000_000;
const TILE = 64;

export interface Rows {
  /** Records of the domain, ascending. */
  readonly members: readonly number[];
  readonly outputs: readonly number[];
  readonly weights: readonly (readonly string[])[];
}

export interface BallRows {
  readonly version: number;
  readonly centre: Centre;
  /** Numbers of tiles, ascending, and how many records each has. */
  readonly tiles: readonly number[];
  readonly sizes: readonly number[];
  readonly lat: readonly number[];
  readonly lon: readonly number[];
  readonly floors: readonly string[];
  readonly blocks: readonly string[];
  /** Base64 of the nodes beside the way from the tiles to the root that the operator signed. */
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

/** Whether an answer has the form of tiles of a table of `count` tiles: places for all of their records. */
export function areTiles(ball: BallRows, count: number): boolean {
  const { tiles, sizes, lat, lon, blocks } = ball;
  const records = sizes.reduce((sum, size) => sum + size, 0);
  return tiles.length === sizes.length && tiles.length === blocks.length
    && sizes.every((size) => Number.isInteger(size) && size > 0 && size <= TILE) && records <= MOST_ROWS
    && lat.length === records && lon.length === records && [...lat, ...lon].every(Number.isFinite)
    && tiles.every((tile, k) => Number.isInteger(tile) && tile > (k ? tiles[k - 1] : -1) && tile < count);
}

/** The rows of a ball's tiles; refused unless they are those of the table with this root, and the
 * proof has no more than that takes: of no tiles there is none. */
export async function unpackBall(ball: BallRows, root: string, count: number, m: number): Promise<Weights> {
  if (!(ball.floors.length === m && ball.floors.every((digits) => DIGITS.test(digits)))) {
    throw new FormatError("damaged", "rows of another shape arrived");
  }
  const floors = BigUint64Array.from(ball.floors, BigInt);
  const size = ball.lat.length;
  const low = new Uint32Array(size * m);
  const high = new Uint32Array(size * m);
  const leaves = new Map<number, string>();
  let from = 0;
  for (const [k, block] of ball.blocks.entries()) {
    const n = ball.sizes[k];
    const most = 4 * n + Math.ceil((n * m) / 8) + 1 + 8 * n * m;
    const rows = decodeBlock(await inflate(fromBase64(block), most), n, floors);
    low.set(rows.low, from * m);
    high.set(rows.high, from * m);
    leaves.set(ball.tiles[k], await tileLeaf(ball, from, n, low, high));
    from += n;
  }
  const found = leaves.size ? await rootFrom(leaves, count, fromBase64(ball.proof)) : ball.proof || root;
  if (found !== root) throw new SignatureError("signature");
  return weightsOf(low, high, size, m);
}

/** A leaf of the tree over tiles: of each record, by latitude and then longitude, both in degrees and
 * its weights in 8 bytes each, low first. */
async function tileLeaf(
  { lat, lon, floors }: BallRows, from: number, n: number, low: Uint32Array, high: Uint32Array,
): Promise<string> {
  const m = floors.length;
  const order = Array.from({ length: n }, (_, i) => from + i).sort((a, b) => lat[a] - lat[b] || lon[a] - lon[b]);
  const leaf = new DataView(new ArrayBuffer(n * (16 + 8 * m)));
  let at = 0;
  for (const record of order) {
    leaf.setFloat64(at, lat[record], true);
    leaf.setFloat64(at + 8, lon[record], true);
    for (let y = 0, k = record * m; y < m; y++, k++) {
      leaf.setUint32(at + 16 + 8 * y, low[k], true);
      leaf.setUint32(at + 20 + 8 * y, high[k], true);
    }
    at += 16 + 8 * m;
  }
  return leafHash(new Uint8Array(leaf.buffer));
}
