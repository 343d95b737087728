/** Draws from integer weights: exact, 62 random bits, no float involved. */

export const BITS = 62n;
export const TOTAL = 1n << BITS;

/** The column that 62 bits select: the first whose cumulative weight exceeds them. */
export function choose(row: BigUint64Array, bits: bigint): number {
  let left = bits & (TOTAL - 1n);
  for (let column = 0; column < row.length; column++) {
    if (left < row[column]) return column;
    left -= row[column];
  }
  throw new RangeError("the weights of a row do not sum to 2^62");
}

/** A column drawn with the operating system's generator. */
export function draw(row: BigUint64Array): number {
  return choose(row, crypto.getRandomValues(new BigUint64Array(1))[0]);
}

/** Weights as probabilities, for eyes and averages. */
export function shares(row: BigUint64Array): Float64Array {
  return Float64Array.from(row, (weight) => Number(weight) / Number(TOTAL));
}
