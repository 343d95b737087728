/** Sums of numbers as they are written: ten times 0.1 is 1. */

interface Decimal {
  readonly digits: bigint;
  readonly places: number;
}

function parse(value: number): Decimal {
  const [mantissa, power] = value.toExponential().split("e");
  const [whole, fraction = ""] = mantissa.split(".");
  const places = fraction.length - Number(power);
  const digits = BigInt(whole + fraction);
  return places >= 0 ? { digits, places } : { digits: digits * 10n ** BigInt(-places), places: 0 };
}

function add(a: Decimal, b: Decimal): Decimal {
  const places = Math.max(a.places, b.places);
  const scaled = (x: Decimal) => x.digits * 10n ** BigInt(places - x.places);
  return { digits: scaled(a) + scaled(b), places };
}

function totalOf(values: readonly number[]): Decimal {
  return values.map(parse).reduce(add, { digits: 0n, places: 0 });
}

export function total(values: readonly number[]): number {
  const sum = totalOf(values);
  return Number(`${sum.digits}e-${sum.places}`);
}

/** Whether the exact sum is above the limit. */
export function exceeds(values: readonly number[], limit: number): boolean {
  const most = parse(limit);
  return add(totalOf(values), { digits: -most.digits, places: most.places }).digits > 0n;
}
