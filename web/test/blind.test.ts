import { IDBFactory } from "fake-indexeddb";
import { beforeAll, beforeEach, expect, test } from "vitest";
import type { Api } from "../src/core/api";
import { blind, collect, finish, type Issuer } from "../src/core/blind";
import { hex, utf8 } from "../src/core/bytes";
import { Ledger } from "../src/core/ledger";
import { checkIssuer, checkRound, headBytes, leafHash, type Log, rootOf } from "../src/core/log";
import { chargeOf, type Session } from "../src/core/session";
import { vectors } from "./vectors";

type Vector = Record<"name" | "n" | "d" | "input_msg" | "salt" | "inv" | "blinded_msg" | "blind_sig" | "sig", string>;
const bytes = (digits: string) => Uint8Array.from(digits.replace("0x", "").match(/../g) ?? [], (pair) => parseInt(pair, 16));
const whole = (digits: string) => BigInt(`0x${digits.replace("0x", "")}`);

function power(base: bigint, exponent: bigint, modulus: bigint): bigint {
  let found = 1n;
  for (let at = base % modulus, left = exponent; left > 0n; left >>= 1n, at = (at * at) % modulus) {
    if (left & 1n) found = (found * at) % modulus;
  }
  return found;
}

function inverse(value: bigint, modulus: bigint): bigint {
  let [a, b, x, y] = [value, modulus, 1n, 0n];
  while (b > 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y];
  return ((x % modulus) + modulus) % modulus;
}

test("hidden messages and signatures are the RFC's", async () => {
  const salted = vectors<Vector[]>("blind.json").filter(({ salt }) => bytes(salt).length === 48);
  expect(salted.length).toBeGreaterThan(0);
  for (const { n, input_msg: message, salt, inv, blinded_msg, blind_sig, sig } of salted) {
    const modulus = whole(n);
    const factor = inverse(whole(inv), modulus);
    expect(await blind(bytes(message), bytes(salt), factor, modulus)).toBe(whole(blinded_msg));
    expect(hex(await finish(bytes(message), whole(blind_sig), factor, modulus))).toBe(sig.replace("0x", ""));
    await expect(finish(bytes(message), whole(blind_sig) ^ 1n, factor, modulus)).rejects.toThrow("did not sign");
  }
});

const kept = new Map<string, string>();
const store = {
  getItem: (name: string) => kept.get(name) ?? null,
  setItem: (name: string, value: string) => void kept.set(name, value),
};
const DAY = 86_400;
const base64 = (from: ArrayBuffer | Uint8Array) => Buffer.from(from as Uint8Array).toString("base64");
const block = (value: bigint) => base64(bytes(value.toString(16).padStart(512, "0")));
let secret: CryptoKey;
let operator: string;
let modulus: bigint;
let exponent: bigint;
let now: number;
let ledger: Ledger;

beforeAll(async () => {
  const made = (await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"])) as CryptoKeyPair;
  secret = made.privateKey;
  operator = base64(await crypto.subtle.exportKey("raw", made.publicKey));
  const form = { name: "RSA-PSS", modulusLength: 2048, publicExponent: Uint8Array.of(1, 0, 1), hash: "SHA-384" };
  const { privateKey } = await crypto.subtle.generateKey(form, true, ["sign", "verify"]);
  const { n, d } = await crypto.subtle.exportKey("jwk", privateKey);
  [modulus, exponent] = [n, d].map((text) => BigInt(`0x${Buffer.from(text as string, "base64url").toString("hex")}`));
});

beforeEach(async () => {
  kept.clear();
  now = 20_000 * DAY + 5;
  const limits = { epsilon: 1, period_epsilon: 9, period_s: DAY };
  ledger = await Ledger.open(limits, { factory: new IDBFactory(), marks: store, clock: () => now });
});

async function logOf(...entries: string[]): Promise<Log> {
  const leaves = await Promise.all(entries.map((entry) => leafHash(utf8(entry))));
  const head = { size: leaves.length, root: await rootOf(leaves), at: 1, signature: "" };
  const signature = base64(await crypto.subtle.sign("Ed25519", secret, headBytes(head)));
  return { head: { ...head, signature }, leaves };
}

const issuer = (): Issuer => ({ period: Math.floor(now / DAY), modulus: block(modulus) });
const entries = ({ period, modulus: text }: Issuer) =>
  [`panda-mdp issuer 1\ncity\n${period}\n`, `panda-mdp issuer 1\ncity\n${period}\n${text}\n`];

/** A server that signs what it is asked for; `lost` answers do not arrive. */
function server(options: { lost?: number; log?: string[]; sign?: (value: bigint) => bigint } = {}) {
  const asked: string[][] = [];
  let lost = options.lost ?? 0;
  const sign = options.sign ?? ((value: bigint) => power(value, exponent, modulus));
  const api = {
    server: "https://a/v1/",
    log: async () => logOf("before", ...(options.log ?? entries(issuer()))),
    issuer: async () => issuer(),
    issue: async (_: string, __: number, blinded: string[]) => {
      asked.push(blinded);
      if (lost-- > 0) throw new Error("lost");
      return blinded.map((text) => block(sign(BigInt(`0x${Buffer.from(text, "base64").toString("hex")}`))));
    },
  };
  return { api: api as unknown as Api, asked };
}

const session = (quota: number) => ({
  deployment: { name: "city", version: 1 }, info: { sha256: "ab" }, keys: [operator], store,
  plan: { kind: "table", epsilon: 1, delta: 0, places: { size: 40 } },
  stated: { domain: "cd", reports_per_period: quota, period_s: DAY, one_use: true },
}) as unknown as Session;

test("tokens are collected once, and each pays for one report that names nobody", async () => {
  const { api, asked } = server();
  const given = session(2);
  const charge = chargeOf(given, api.server);
  expect(await ledger.excess(charge)).toMatchObject({ problem: "noOneUse" });
  await expect(ledger.release(charge, 3, () => 5)).rejects.toThrow("no one-use token");
  expect(await collect(api, given, ledger, "pmt_x")).toBe(2);
  expect(await collect(api, given, ledger, "pmt_x")).toBe(2);
  expect(asked.length).toBe(1);
  const first = await ledger.release(charge, 3, () => 5);
  const second = await ledger.release(charge, 4, () => 6);
  expect(first.proof?.period).toBe(20_000);
  expect(new Set([first.report, second.report]).size).toBe(2);
  // The signature is over the very id, so no other report can use it.
  const way = { name: "RSA-PSS", hash: "SHA-384", saltLength: 48 };
  const url = Buffer.from(bytes(modulus.toString(16))).toString("base64url");
  const key = await crypto.subtle.importKey("jwk", { kty: "RSA", n: url, e: "AQAB" }, way, false, ["verify"]);
  const holds = (id: string) => crypto.subtle.verify(
    way, key, Buffer.from(first.proof?.signature ?? "", "base64"), utf8(`panda-mdp report 1\ncity\n20000\n${id}\n`),
  );
  expect([await holds(first.report), await holds(second.report)]).toEqual([true, false]);
  expect(await ledger.excess(charge)).toMatchObject({ problem: "quotaSpent" });
  // The same place has its answer and its token.
  expect((await ledger.release(charge, 3, () => 9)).report).toBe(first.report);
  now += DAY;
  expect(await ledger.excess(charge)).toMatchObject({ problem: "noOneUse" });
});

test("a lost answer is asked for again in the same words", async () => {
  const { api, asked } = server({ lost: 1 });
  await expect(collect(api, session(3), ledger, "pmt_x")).rejects.toThrow("lost");
  expect(await collect(api, session(3), ledger, "pmt_x")).toBe(3);
  expect(asked[0]).toEqual(asked[1]);
  expect(new Set(asked[0]).size).toBe(3);
});

test("a signature of another key, or none, is refused", async () => {
  const { api } = server({ sign: (value) => value });
  await expect(collect(api, session(1), ledger, "pmt_x")).rejects.toThrow("did not sign");
  expect(await ledger.oneUse(chargeOf(session(1), api.server))).toBeNull();
});

test("a key for a single person is refused", async () => {
  const [period, key] = entries(issuer());
  const other = `panda-mdp issuer 1\ncity\n${issuer().period}\n${block(modulus + 2n)}\n`;
  for (const log of [[period, other], [key], [period, "between", key], [period, key, period]]) {
    const { api, asked } = server({ log });
    kept.clear();
    await expect(collect(api, session(1), ledger, "pmt_x")).rejects.toThrow(/public log/);
    expect(asked).toEqual([]);
  }
  await checkIssuer(await logOf("a", period, key, "b"), "city", issuer());
});

test("a round that is not the log's latest is refused", async () => {
  const round = (number: number) => `panda-mdp round 1\ncity\n${number}\n`;
  const log = await logOf("a", round(1), round(2));
  await checkRound(log, "city", 2);
  await checkRound(log, "city", null);
  await expect(checkRound(log, "city", 1)).rejects.toThrow("is over");
  await expect(checkRound(log, "city", 3)).rejects.toThrow("not in the public log");
  await expect(checkRound(log, "rome", 2)).rejects.toThrow("not in the public log");
});
