/** From probabilities to the integers that are drawn from, as `privacy.quantise` of the library. */

import { type Weights, weightsOf } from "./audit";

const TOTAL = 2 ** 62;
const WHOLE = 1n << 62n;
const LESS = 1 - 2 ** -40;

/** Rows of integers that sum to 2^62 exactly, from rows that sum to about 1. */
export function quantise(matrix: Float64Array, size: number, m: number): Weights {
  const low = new Uint32Array(size * m);
  const high = new Uint32Array(size * m);
  const row = new Array<bigint>(m);
  for (let x = 0; x < size; x++) {
    const given = matrix.subarray(x * m, (x + 1) * m);
    const sum = given.reduce((a, b) => a + b, 0);
    let missing = WHOLE;
    for (let y = 0; y < m; y++) {
      row[y] = BigInt(Math.floor((given[y] / sum) * (TOTAL * LESS)));
      missing -= row[y];
    }
    const rest = Number(missing) * LESS;
    for (let y = 0; y < m; y++) {
      const more = BigInt(Math.floor((given[y] / sum) * rest));
      row[y] += more;
      missing -= more;
    }
    // The last units go to the largest entries in turn.
    const rank = Array.from(given.keys()).filter((y) => given[y] > 0).sort((a, b) => given[b] - given[a] || a - b);
    const each = missing / BigInt(rank.length);
    let left = missing % BigInt(rank.length);
    for (const y of rank) {
      row[y] += each + (left > 0n ? 1n : 0n);
      if (left > 0n) left--;
    }
    for (let y = 0; y < m; y++) {
      low[x * m + y] = Number(row[y] & 0xffffffffn);
      high[x * m + y] = Number(row[y] >> 32n);
    }
  }
  return weightsOf(low, high, size, m);
}
