/**
 * One-use tokens, signed blindly (RFC 9474, RSABSSA-SHA384-PSS-Deterministic): the server signs a
 * number that it cannot read, and a report shows the signature in place of a token that names somebody.
 * Everything is made of a secret of this browser, so that a lost answer is asked for again in the
 * same words.
 */

import { type Api } from "./api";
import { type Bytes, fromBase64 } from "./bytes";
import { PandaError, SignatureError } from "./errors";
import type { Ledger, OneUse } from "./ledger";
import { checkIssuer, freshLog } from "./log";
import { chargeOf, type Session } from "./session";
import { joined } from "./signing";

const BITS = 2048;
const EXPONENT = 65_537;
const SALT_BYTES = 48;
const HASH_BYTES = 48;
/** Tokens of one person in a period, whatever the quota is. */
export const MOST_ONE_USE = 100;

export interface Issuer {
  readonly period: number;
  /** The number of the period's key, in base 64. */
  readonly modulus: string;
}

function numberOf(bytes: Uint8Array): bigint {
  let digits = "0x0";
  for (const byte of bytes) digits += byte.toString(16).padStart(2, "0");
  return BigInt(digits);
}

function bytesOf(value: bigint, length: number): Bytes {
  const digits = value.toString(16).padStart(2 * length, "0");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

function base64(bytes: Bytes): string {
  return btoa(String.fromCharCode(...bytes));
}

async function sha384(...parts: Uint8Array[]): Promise<Bytes> {
  const joint = new Uint8Array(await new Blob(parts as Bytes[]).arrayBuffer());
  return new Uint8Array(await crypto.subtle.digest("SHA-384", joint));
}

/** EMSA-PSS of RFC 8017 with SHA-384, as a number of so many bits. */
async function encodePss(message: Bytes, salt: Bytes, bits: number): Promise<bigint> {
  const digest = await sha384(new Uint8Array(8), await sha384(message), salt);
  const length = Math.ceil(bits / 8) - HASH_BYTES - 1;
  let padded = numberOf(Uint8Array.of(1, ...salt));
  const mask: number[] = [];
  for (let block = 0; mask.length < length; block++) mask.push(...await sha384(digest, Uint8Array.of(0, 0, 0, block)));
  padded ^= numberOf(Uint8Array.from(mask.slice(0, length)));
  const encoded = numberOf(Uint8Array.of(...bytesOf(padded, length), ...digest, 0xbc));
  return encoded & ((1n << BigInt(bits)) - 1n);
}

/** A number to the power of the public exponent. */
function raised(value: bigint, modulus: bigint): bigint {
  let power = value % modulus;
  for (let step = EXPONENT; step > 1; step >>= 1) power = (power * power) % modulus;
  return (power * value) % modulus;
}

function inverse(value: bigint, modulus: bigint): bigint {
  let [a, b, x, y] = [value % modulus, modulus, 1n, 0n];
  while (b > 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y];
  if (a !== 1n) throw new SignatureError("noIssuer");
  return ((x % modulus) + modulus) % modulus;
}

/** The message, hidden by a random factor. */
export async function blind(message: Bytes, salt: Bytes, factor: bigint, modulus: bigint): Promise<bigint> {
  const encoded = await encodePss(message, salt, modulus.toString(2).length - 1);
  inverse(encoded, modulus);
  return (encoded * raised(factor, modulus)) % modulus;
}

/** The signature over the message, of the one over its hidden form; refused where it is none. */
export async function finish(message: Bytes, signature: bigint, factor: bigint, modulus: bigint): Promise<Bytes> {
  const length = Math.ceil(modulus.toString(2).length / 8);
  const plain = bytesOf((signature * inverse(factor, modulus)) % modulus, length);
  const name = (bytes: Bytes) => base64(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
  const form = { kty: "RSA", n: name(bytesOf(modulus, length)), e: "AQAB", alg: "PS384", ext: true };
  const way = { name: "RSA-PSS", hash: "SHA-384", saltLength: SALT_BYTES };
  const key = await crypto.subtle.importKey("jwk", form, way, false, ["verify"]);
  if (!(await crypto.subtle.verify(way, key, plain, message))) throw new SignatureError("notIssued");
  return plain;
}

/** A version 4 UUID of 16 random bytes. */
function uuid(random: Bytes): string {
  const bytes = random.map((byte, k) => (k === 6 ? (byte & 15) | 64 : k === 8 ? (byte & 63) | 128 : byte));
  const digits = numberOf(bytes).toString(16).padStart(32, "0");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/**
 * Have the one-use tokens of the running period signed, all that the quota allows at once; how many
 * are at hand then. The server knows who collects and not, later, whose a report is, unless address
 * or time tell it.
 */
export async function collect(api: Api, session: Session, ledger: Ledger, token: string): Promise<number> {
  const charge = chargeOf(session, api.server);
  const before = await ledger.oneUse(charge);
  if (before !== null) return before;
  const { name } = session.deployment;
  const issuer = await api.issuer(name);
  await checkIssuer(await freshLog(api, session.keys, session.store), name, issuer);
  const { period } = issuer;
  if (period !== ledger.quotaPeriod(charge)) throw new PandaError("otherPeriod");
  const modulus = numberOf(fromBase64(issuer.modulus));
  if (modulus.toString(2).length !== BITS || modulus % 2n === 0n) throw new SignatureError("noIssuer");
  const made = [];
  for (let k = 0; k < Math.min(charge.quota ?? 1, MOST_ONE_USE); k++) {
    const { server, deployment } = charge;
    const drawn = await ledger.secret({ server, deployment, ...issuer, number: k }, 16 + SALT_BYTES + BITS / 4);
    const id = uuid(drawn.slice(0, 16));
    const message = joined(["panda-mdp report 1", name, String(period), id]);
    const factor = numberOf(drawn.slice(16 + SALT_BYTES)) % modulus;
    made.push({ id, message, factor, hidden: await blind(message, drawn.slice(16, 16 + SALT_BYTES), factor, modulus) });
  }
  const asked = made.map(({ hidden }) => base64(bytesOf(hidden, BITS / 8)));
  const signatures = await api.issue(name, period, asked, token);
  if (signatures.length !== made.length) throw new SignatureError("notIssued");
  const tokens: OneUse[] = [];
  for (const [k, { id, message, factor }] of made.entries()) {
    const signature = await finish(message, numberOf(fromBase64(signatures[k])), factor, modulus);
    tokens.push({ id, proof: { period, signature: base64(signature) } });
  }
  return ledger.keepTokens(charge, period, tokens);
}
