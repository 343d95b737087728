import { beforeAll, beforeEach, expect, test } from "vitest";
import { type Bytes, hex, utf8 } from "../src/core/bytes";
import { checkLog, headBytes, leafHash, type Log, rootOf } from "../src/core/log";
import { keyId, type OperatorKey } from "../src/core/signing";

const kept = new Map<string, string>();
const store = {
  getItem: (name: string) => kept.get(name) ?? null,
  setItem: (name: string, value: string) => void kept.set(name, value),
};
let secret: CryptoKey;
let key: OperatorKey;
const base64 = (bytes: ArrayBuffer) => Buffer.from(bytes).toString("base64");

beforeAll(async () => {
  const made = (await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"])) as CryptoKeyPair;
  secret = made.privateKey;
  const text = base64(await crypto.subtle.exportKey("raw", made.publicKey));
  key = { id: await keyId(text), algorithm: "Ed25519", public: text };
});

beforeEach(() => kept.clear());

/** RFC 6962's definition, word by word. */
async function defined(leaves: string[]): Promise<string> {
  if (leaves.length === 1) return leaves[0];
  let half = 1;
  while (2 * half < leaves.length) half *= 2;
  const [left, right] = [await defined(leaves.slice(0, half)), await defined(leaves.slice(half))];
  const bytes = Uint8Array.from(`01${left}${right}`.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}

async function logOf(...entries: string[]): Promise<Log> {
  const leaves = await Promise.all(entries.map((entry) => leafHash(utf8(entry))));
  const head = { size: leaves.length, root: await rootOf(leaves), at: 1, signature: "" };
  const signature = base64(await crypto.subtle.sign("Ed25519", secret, headBytes(head)));
  return { head: { ...head, signature }, leaves };
}

const check = (log: Log | null, ...entries: Bytes[]) =>
  checkLog({ log: async () => log, server: "https://a/v1/" }, [key.public], store, entries);

test("the root is RFC 6962's, and the hash of a leaf as well", async () => {
  // The first entries of the test vectors that certificate transparency uses.
  expect(await leafHash(utf8(""))).toBe("6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
  for (let count = 1; count <= 9; count++) {
    const leaves = await Promise.all(Array.from({ length: count }, (_, k) => leafHash(utf8(String(k)))));
    expect(await rootOf(leaves)).toBe(await defined(leaves));
  }
});

test("a log that grows is accepted, and has what was signed", async () => {
  expect((await check(await logOf("a", "b"), utf8("b"))).head.size).toBe(2);
  expect((await check(await logOf("a", "b", "c", "d", "e"), utf8("b"), utf8("e"))).head.size).toBe(5);
  await expect(check(await logOf("a", "b", "c", "d", "e"), utf8("x"))).rejects.toThrow("not in the public log");
});

test("a log that was cut, changed or taken away is refused", async () => {
  await check(await logOf("a", "b", "c"), utf8("b"));
  await expect(check(await logOf("a", "b"))).rejects.toThrow("changed");
  await expect(check(await logOf("a", "x", "c", "d"))).rejects.toThrow("changed");
  await expect(check(null)).rejects.toThrow("has no public log");
  // What was seen stays as it was.
  expect((await check(await logOf("a", "b", "c", "d"))).head.size).toBe(4);
});

test("a head that is not signed, or not the leaves', is refused", async () => {
  const log = await logOf("a", "b");
  await expect(check({ ...log, head: { ...log.head, at: 2 } })).rejects.toThrow("signature");
  await expect(check({ ...log, leaves: [...log.leaves].reverse() })).rejects.toThrow("changed");
  await expect(check({ ...log, leaves: log.leaves.slice(1) })).rejects.toThrow("changed");
});

test("a new browser does not believe that there is no log", async () => {
  await expect(check(null)).rejects.toThrow("has no public log");
});
