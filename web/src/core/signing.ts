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
  /** Of the table, however its file is written. */
  readonly identity: string;
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
    table.identity,
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

/** The operator's word for a server's key. Times are seconds since 1970. */
export interface KeyCertificate {
  readonly public: string;
  readonly since: number;
  readonly until: number;
  readonly signature: string;
}

/** An operator's key and the one that takes its place, signed by the former. */
export interface Succession {
  readonly old: string;
  readonly new: string;
  readonly signature: string;
}

/** What an operator publishes about keys. */
export interface KeySheet {
  readonly operator: string;
  readonly certificates: readonly KeyCertificate[];
  readonly successions: readonly Succession[];
}

/** The operator's key, and those that it certifies now; refused where a certificate is not its own. */
export async function signingKeys(
  operator: string, certificates: readonly KeyCertificate[], now: number,
): Promise<string[]> {
  const keys = [operator];
  for (const { public: key, since, until, signature } of certificates) {
    await verify(operator, joined(["panda-mdp key 1", key, String(since), String(until)]), signature);
    if (since <= now && now < until) keys.push(key);
  }
  return keys;
}

/** The key that a known one leads to, each step signed by the one before. */
export async function successor(known: string, successions: readonly Succession[]): Promise<string> {
  let at = known;
  for (let left = successions.length; left > 0; left--) {
    const next = successions.find((step) => step.old === at);
    if (!next) break;
    await verify(at, joined(["panda-mdp successor 1", next.new]), next.signature);
    at = next.new;
  }
  return at;
}

/** Refuse unless one of the keys signed. */
export async function verifyAny(keys: readonly string[], data: Bytes, signature: string): Promise<void> {
  for (const key of keys.slice(0, -1)) {
    try {
      await verify(key, data, signature);
      return;
    } catch (error) {
      if (!(error instanceof SignatureError && error.problem === "signature")) throw error;
    }
  }
  await verify(keys[keys.length - 1], data, signature);
}
