/**
 * The operator's key is remembered when it is first seen, and another one is refused.
 *
 * On a first visit the key is taken on trust, unless the link names it (#key=...): then it must be
 * that one. Whoever serves this page serves its script too, so a pin protects against a table that
 * was swapped, and shows a change of operator; it is no defence against a page that lies.
 */

import { SignatureError } from "./errors";
import { keyId, type KeySheet, type OperatorKey, signingKeys, successor } from "./signing";

export interface KeyStore {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
}

const NAME = "panda-mdp.key";

/** Whom the page believes: the operator, and the keys that sign for it now. */
export interface Trusted {
  readonly key: OperatorKey;
  readonly keys: readonly string[];
  /** Whether the operator's key was seen for the first time, and so taken on trust. */
  readonly first: boolean;
}

/** The operator's key as it was pinned, or its signed successor, and the keys that it certifies. */
export async function trustedKeys(
  store: KeyStore, shown: OperatorKey, sheet: KeySheet | null | undefined, expected: string | null,
  now: number,
): Promise<Trusted> {
  if (!sheet) {
    const { key, first } = await pinnedKey(store, shown, expected);
    return { key, first, keys: [key.public] };
  }
  const operator: OperatorKey = {
    id: await keyId(sheet.operator), algorithm: "Ed25519", public: sheet.operator,
  };
  const known = store.getItem(NAME);
  if (known !== null) {
    const before = (JSON.parse(known) as { public: string }).public;
    if (before !== operator.public && (await successor(before, sheet.successions)) === operator.public) {
      store.setItem(NAME, JSON.stringify({ id: operator.id, public: operator.public }));
    }
  }
  // A link may name a key that has a successor since.
  const named = sheet.successions.map(({ old }) => old);
  let wanted = expected;
  for (const old of named) {
    if (expected !== null && (await keyId(old)) === expected
      && (await successor(old, sheet.successions)) === operator.public) wanted = operator.id;
  }
  const { key, first } = await pinnedKey(store, operator, wanted);
  return { key, first, keys: await signingKeys(key.public, sheet.certificates, now) };
}

export class KeyChangedError extends SignatureError {
  constructor(readonly pinned: string, readonly offered: OperatorKey) {
    super("keyChanged", pinned, offered.id);
  }
}

/** The key to verify with. `expected` is the id that the link names. */
export async function pinnedKey(
  store: KeyStore, offered: OperatorKey, expected: string | null,
): Promise<{ key: OperatorKey; first: boolean }> {
  if (offered.algorithm !== "Ed25519" || (await keyId(offered.public)) !== offered.id) {
    throw new SignatureError("keyName");
  }
  if (expected !== null && expected !== offered.id) throw new KeyChangedError(expected, offered);
  const known = store.getItem(NAME);
  if (known === null) {
    store.setItem(NAME, JSON.stringify({ id: offered.id, public: offered.public }));
    return { key: offered, first: true };
  }
  const pinned = JSON.parse(known) as { id: string; public: string };
  if (pinned.public !== offered.public) throw new KeyChangedError(pinned.id, offered);
  return { key: offered, first: false };
}

/** Accept another key, after the person typed its name as the operator told it. */
export async function replacePin(
  store: KeyStore, offered: OperatorKey, typed: string,
): Promise<boolean> {
  const told = typed.trim().toLowerCase().replaceAll(/[\s-]/g, "");
  if (told !== offered.id || (await keyId(offered.public)) !== offered.id) return false;
  store.setItem(NAME, JSON.stringify({ id: offered.id, public: offered.public }));
  return true;
}

const TABLES = "panda-mdp.tables";

function pinnedTables(store: KeyStore): Record<string, string> {
  return JSON.parse(store.getItem(TABLES) ?? "{}") as Record<string, string>;
}

/** Whether another table than this one was used for the deployment before. */
export function tableChanged(store: KeyStore, deployment: string, identity: string): boolean {
  const before = pinnedTables(store)[deployment];
  return before !== undefined && before !== identity;
}

/** Use this table for the deployment from now on. */
export function pinTable(store: KeyStore, deployment: string, identity: string): void {
  store.setItem(TABLES, JSON.stringify({ ...pinnedTables(store), [deployment]: identity }));
}
