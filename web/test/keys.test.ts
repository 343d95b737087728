/** Key sheets: an operator's key that stays offline, keys that it certifies, and its successor. */

import { beforeAll, beforeEach, expect, test } from "vitest";
import { utf8 } from "../src/core/bytes";
import { KeyChangedError, trustedKeys } from "../src/core/keypin";
import { joined, keyId, type KeySheet, verifyAny } from "../src/core/signing";

interface Pair { secret: CryptoKey; text: string }
let operator: Pair;
let server: Pair;
let next: Pair;
const kept = new Map<string, string>();
const store = {
  getItem: (name: string) => kept.get(name) ?? null,
  setItem: (name: string, value: string) => void kept.set(name, value),
};
const base64 = (bytes: ArrayBuffer) => btoa(String.fromCharCode(...new Uint8Array(bytes)));
const sign = async (pair: Pair, data: BufferSource) => base64(await crypto.subtle.sign("Ed25519", pair.secret, data));

async function made(): Promise<Pair> {
  const pair = (await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"])) as CryptoKeyPair;
  return { secret: pair.privateKey, text: base64(await crypto.subtle.exportKey("raw", pair.publicKey)) };
}

async function sheet(by: Pair, since: number, until: number, follows?: Pair): Promise<KeySheet> {
  const lines = ["panda-mdp key 1", server.text, String(since), String(until)];
  const certificates = [{ public: server.text, since, until, signature: await sign(by, joined(lines)) }];
  const successions = follows
    ? [{ old: follows.text, new: by.text, signature: await sign(follows, joined(["panda-mdp successor 1", by.text])) }]
    : [];
  return { operator: by.text, certificates, successions };
}

const shown = async () => ({ id: await keyId(server.text), algorithm: "Ed25519", public: server.text });
const trust = async (given: KeySheet | null, expected: string | null = null, now = 50) =>
  trustedKeys(store, await shown(), given, expected, now);

beforeAll(async () => {
  [operator, server, next] = await Promise.all([made(), made(), made()]);
});
beforeEach(() => kept.clear());

test("the operator's key is pinned, and what it certifies now may sign", async () => {
  const found = await trust(await sheet(operator, 10, 100));
  expect(found).toMatchObject({ first: true, keys: [operator.text, server.text] });
  expect(found.key.id).toBe(await keyId(operator.text));
  await verifyAny(found.keys, utf8("x"), await sign(server, utf8("x")));
  await expect(verifyAny(found.keys, utf8("x"), await sign(next, utf8("x")))).rejects.toThrow("does not match");
  // Another server's key under the same operator asks nobody anything.
  expect((await trust(await sheet(operator, 20, 200))).first).toBe(false);
});

test("a certificate counts for its days, and must be the operator's", async () => {
  expect((await trust(await sheet(operator, 60, 100))).keys).toEqual([operator.text]);
  expect((await trust(await sheet(operator, 10, 50))).keys).toEqual([operator.text]);
  const forged = { ...(await sheet(next, 10, 100)), operator: operator.text };
  await expect(trust(forged)).rejects.toThrow("does not match");
});

test("a successor that the pinned key signed is followed, another one refused", async () => {
  await trust(await sheet(operator, 10, 100));
  expect((await trust(await sheet(next, 10, 100, operator))).key.public).toBe(next.text);
  expect((await trust(await sheet(next, 10, 100, operator), await keyId(operator.text))).key.public).toBe(next.text);
  kept.clear();
  await trust(await sheet(operator, 10, 100));
  await expect(trust(await sheet(next, 10, 100))).rejects.toBeInstanceOf(KeyChangedError);
  await expect(trust(null)).rejects.toBeInstanceOf(KeyChangedError);
  const stolen = await sheet(next, 10, 100, server);
  await expect(trust({ ...stolen, successions: [{ ...stolen.successions[0], old: operator.text }] }))
    .rejects.toThrow("does not match");
});

test("a link's key must be the operator's", async () => {
  await expect(trust(await sheet(operator, 10, 100), await keyId(server.text))).rejects.toBeInstanceOf(KeyChangedError);
  expect((await trust(await sheet(operator, 10, 100), await keyId(operator.text))).first).toBe(true);
});
