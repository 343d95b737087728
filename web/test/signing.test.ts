import { beforeEach, expect, test } from "vitest";
import { canonicalJson, utf8 } from "../src/core/bytes";
import { KeyChangedError, pinnedKey, pinTable, replacePin, tableChanged } from "../src/core/keypin";
import {
  keyId, type OperatorKey, pythonRepr, type SignedTable, tableBytes, verify,
} from "../src/core/signing";
import { vectors } from "./vectors";

interface Signing {
  key: OperatorKey;
  table: { fields: SignedTable; bytes: string; signature: string; refused: string[] };
  epsilons: { value: number; repr: string }[];
  rows: { content: unknown; canonical: string; bytes: string; signature: string };
}

const signing = vectors<Signing>("signing.json");
const { key, table } = signing;

test("what is signed has Python's bytes", () => {
  expect(new TextDecoder().decode(tableBytes(table.fields))).toBe(table.bytes);
  for (const { value, repr } of signing.epsilons) expect(pythonRepr(value)).toBe(repr);
  expect([0, -0, -2.5, 100, 12345678901234567000].map(pythonRepr))
    .toEqual(["0.0", "-0.0", "-2.5", "100.0", "1.2345678901234567e+19"]);
  expect(canonicalJson(signing.rows.content)).toBe(signing.rows.canonical);
  expect(canonicalJson({ b: "é\u007f", a: [1, { d: null, c: true }] }))
    .toBe('{"a":[1,{"c":true,"d":null}],"b":"\\u00e9\\u007f"}');
});

test("the operator's signature is accepted, and nothing else", async () => {
  await verify(key.public, utf8(table.bytes), table.signature);
  await verify(key.public, utf8(signing.rows.bytes), signing.rows.signature);
  for (const wrong of table.refused) {
    await expect(verify(key.public, utf8(table.bytes), wrong)).rejects.toThrow("does not match");
  }
  const changes: Partial<SignedTable>[] = [
    { name: "other" }, { version: 3 }, { sha256: "0".repeat(64) }, { size_bytes: 1 },
    { domain: "0".repeat(64) }, { epsilon: 4.5 }, { identity: "0".repeat(64) },
  ];
  for (const change of changes) {
    const data = tableBytes({ ...table.fields, ...change });
    await expect(verify(key.public, data, table.signature)).rejects.toThrow("does not match");
  }
  expect(() => tableBytes({ ...table.fields, name: "a\nb" })).toThrow("printable");
});

class Memory {
  private readonly kept = new Map<string, string>();

  getItem(name: string): string | null {
    return this.kept.get(name) ?? null;
  }

  setItem(name: string, value: string): void {
    this.kept.set(name, value);
  }
}

let store: Memory;
let other: OperatorKey;

beforeEach(async () => {
  store = new Memory();
  const made = await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"]);
  const raw = new Uint8Array(
    await crypto.subtle.exportKey("raw", (made as CryptoKeyPair).publicKey),
  );
  const text = btoa(String.fromCharCode(...raw));
  other = { id: await keyId(text), algorithm: "Ed25519", public: text };
});

test("the first key is kept and another one refused, until its name is typed", async () => {
  expect(await pinnedKey(store, key, null)).toEqual({ key, first: true });
  expect(await pinnedKey(store, key, null)).toEqual({ key, first: false });
  await expect(pinnedKey(store, other, null)).rejects.toThrow(KeyChangedError);
  expect(await replacePin(store, other, key.id)).toBe(false);
  await expect(pinnedKey(store, other, null)).rejects.toThrow(KeyChangedError);
  expect(await replacePin(store, other, ` ${other.id.toUpperCase()} `)).toBe(true);
  expect(await pinnedKey(store, other, null)).toEqual({ key: other, first: false });
});

test("a link that names a key accepts no other one, and a key must have its own name", async () => {
  await expect(pinnedKey(store, key, other.id)).rejects.toThrow(KeyChangedError);
  expect((await pinnedKey(store, key, key.id)).first).toBe(true);
  await expect(pinnedKey(store, { ...other, id: key.id }, null)).rejects.toThrow("name");
});

test("a table that was replaced is noticed, for its deployment alone", () => {
  expect(tableChanged(store, "city", "aa")).toBe(false);
  pinTable(store, "city", "aa");
  pinTable(store, "other", "bb");
  expect([tableChanged(store, "city", "aa"), tableChanged(store, "city", "cc")]).toEqual([false, true]);
  pinTable(store, "city", "cc");
  expect(tableChanged(store, "city", "cc")).toBe(false);
});
