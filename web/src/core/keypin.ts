/**
 * The operator's key is remembered when it is first seen, and another one is refused.
 *
 * On a first visit the key is taken on trust, unless the link names it (#key=...): then it must be
 * that one. Whoever serves this page serves its script too, so a pin protects against a table that
 * was swapped, and shows a change of operator; it is no defence against a page that lies.
 */

import { SignatureError } from "./errors";
import { keyId, type OperatorKey } from "./signing";

export interface KeyStore {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
}

const NAME = "panda-mdp.key";

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
export function tableChanged(store: KeyStore, deployment: string, sha256: string): boolean {
  const before = pinnedTables(store)[deployment];
  return before !== undefined && before !== sha256;
}

/** Use this table for the deployment from now on. */
export function pinTable(store: KeyStore, deployment: string, sha256: string): void {
  store.setItem(TABLES, JSON.stringify({ ...pinnedTables(store), [deployment]: sha256 }));
}
