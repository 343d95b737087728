/** The operator's signature over a table, and the key that it must be made with. */

import { type Bytes, fromBase64, sha256, utf8 } from "./bytes";
import { SignatureError } from "./errors";

export interface OperatorKey {
  /** The first 16 hexadecimal digits of the key's SHA-256. */
  readonly id: string;
  readonly algorithm: string;
  /** 32 bytes in base 64. */
  readonly public: string;
}

export interface SignedTable {
  readonly name: string;
  readonly version: number;
  readonly sha256: string;
  readonly size_bytes: number;
  readonly domain: string;
  readonly epsilon: number;
}

/** A number as Python's `repr` of a float writes it: both take the fewest digits that suffice. */
export function pythonRepr(value: number): string {
  if (!Number.isFinite(value)) throw new SignatureError("notFinite");
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [mantissa, power] = Math.abs(value).toExponential().split("e");
  const digits = mantissa.replace(".", "");
  const exponent = Number(power);
  const sign = value < 0 ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    const size = String(Math.abs(exponent)).padStart(2, "0");
    const rest = digits.length > 1 ? `.${digits.slice(1)}` : "";
    return `${sign}${digits[0]}${rest}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
}

export function joined(lines: string[]): Bytes {
  // A line break inside a field would let one statement pass for another.
  if (lines.some((line) => !/^[\x20-\x7e]*$/.test(line))) {
    throw new SignatureError("notPrintable");
  }
  return utf8(lines.map((line) => `${line}\n`).join(""));
}

/** What is signed of a table: its name, version, file and claim. */
export function tableBytes(table: SignedTable): Bytes {
  return joined([
    "panda-mdp table 1",
    table.name,
    String(table.version),
    table.sha256,
    String(table.size_bytes),
    table.domain,
    pythonRepr(table.epsilon),
  ]);
}

export async function keyId(publicKey: string): Promise<string> {
  return (await sha256(fromBase64(publicKey))).slice(0, 16);
}

/** Refuse unless `signature` (base 64) is the key's over `data`. */
export async function verify(publicKey: string, data: Bytes, signature: string): Promise<void> {
  let key: CryptoKey;
  try {
    key = await crypto.subtle.importKey(
      "raw", fromBase64(publicKey), { name: "Ed25519" }, false, ["verify"],
    );
  } catch {
    throw new SignatureError("noEd25519");
  }
  const good = await crypto.subtle
    .verify({ name: "Ed25519" }, key, fromBase64(signature), data)
    .catch(() => false);
  if (!good) throw new SignatureError("signature");
}
