/** Rows that a server sends for a ball or a round: read, compared with their signature, weighed. */

import { type Weights, weightsFrom } from "./audit";
import { type Bytes, canonicalJson, fromBase64, sha256, utf8 } from "./bytes";
import { FormatError } from "./errors";
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
  readonly centre: number;
  readonly records: readonly number[];
  readonly outputs: readonly number[];
  readonly floors: readonly string[];
  readonly blocks: readonly string[];
  readonly signature: string;
}

/** What is signed of some rows, whichever way they travel. */
export async function rowsBytes(
  deployment: string, version: number, kind: "anchors" | "records", rows: Rows,
): Promise<Bytes> {
  const { members, outputs, weights } = rows;
  const digest = await sha256(utf8(canonicalJson({ [kind]: members, outputs, weights })));
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

/** The rows of a ball that came in blocks. */
export async function unpackBall(ball: BallRows): Promise<Rows> {
  const count = ball.records.length;
  const m = ball.outputs.length;
  const right = ball.floors.length === m && ball.floors.every((digits) => DIGITS.test(digits))
    && count <= MOST_ROWS && ball.blocks.length === Math.ceil(count / BLOCK_ROWS);
  if (!right) throw new FormatError("damaged", "rows of another shape arrived");
  const floors = BigUint64Array.from(ball.floors, BigInt);
  const rows: { member: number; weights: string[] }[] = [];
  for (const [number, block] of ball.blocks.entries()) {
    const n = Math.min(BLOCK_ROWS, count - number * BLOCK_ROWS);
    const most = 4 * n + Math.ceil((n * m) / 8) + 1 + 8 * n * m;
    const { low, high } = decodeBlock(await inflate(fromBase64(block), most), n, floors);
    for (let i = 0; i < n; i++) {
      const weights = Array.from(
        { length: m }, (_, y) => String((BigInt(high[i * m + y]) << 32n) | BigInt(low[i * m + y])),
      );
      rows.push({ member: ball.records[number * BLOCK_ROWS + i], weights });
    }
  }
  rows.sort((a, b) => a.member - b.member);
  return {
    members: rows.map(({ member }) => member), outputs: ball.outputs,
    weights: rows.map(({ weights }) => weights),
  };
}
