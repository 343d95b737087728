/**
 * The operator's public log: everything that was signed for good, in the order of signing. It is
 * fetched whole, so that nobody's question tells which state was seen last.
 *
 *   leaf   SHA-256(0x00 || entry)        node   SHA-256(0x01 || left || right)      (RFC 6962)
 */

import type { Api } from "./api";
import type { Issuer } from "./blind";
import { type Bytes, hex } from "./bytes";
import { SignatureError } from "./errors";
import type { KeyStore } from "./keypin";
import { joined, verifyAny } from "./signing";

export interface LogHead {
  readonly size: number;
  readonly root: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly signature: string;
}

export interface Log {
  readonly head: LogHead;
  readonly leaves: readonly string[];
}

const SEEN = "panda-mdp.log";
const NODE_BYTES = 32;

async function hashed(prefix: number, ...parts: Uint8Array[]): Promise<Bytes> {
  const bytes = new Uint8Array(1 + parts.reduce((sum, part) => sum + part.length, 0));
  bytes[0] = prefix;
  let at = 1;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

export async function leafHash(entry: Bytes): Promise<string> {
  return hex(await hashed(0, entry));
}

/** A hash from its digits. */
function hashOf(digits: string): Bytes {
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/**
 * The root of the tree over `count` leaves, of which some are known, by number; `beside` has the
 * nodes beside the way up, level by level, ascending. Null where those are too few or too many.
 */
export async function rootFrom(
  leaves: ReadonlyMap<number, string>, count: number, beside: Bytes,
): Promise<string | null> {
  let known = new Map([...leaves].map(([at, leaf]) => [at, hashOf(leaf)]));
  let read = 0;
  for (let wide = count; wide > 1; wide = Math.ceil(wide / 2)) {
    const above = new Map<number, Bytes>();
    for (const at of [...known.keys()].sort((a, b) => a - b)) {
      if (above.has(at >> 1)) continue;
      const node = known.get(at) as Bytes;
      if ((at ^ 1) >= wide) {
        above.set(at >> 1, node);
        continue;
      }
      let other = known.get(at ^ 1);
      if (!other) {
        other = beside.slice(read, (read += NODE_BYTES));
        if (read > beside.length) return null;
      }
      above.set(at >> 1, await (at & 1 ? hashed(1, other, node) : hashed(1, node, other)));
    }
    known = above;
  }
  const root = known.get(0);
  return root && read === beside.length ? hex(root) : null;
}

/** The root over leaves, at least one: the largest power of two of them lies on the left. */
export async function rootOf(leaves: readonly string[]): Promise<string> {
  const full: { size: number; top: Bytes }[] = [];
  for (const leaf of leaves) {
    let part = { size: 1, top: hashOf(leaf) };
    for (let last = full.at(-1); last?.size === part.size; last = full.at(-1)) {
      full.pop();
      part = { size: 2 * part.size, top: await hashed(1, last.top, part.top) };
    }
    full.push(part);
  }
  let top = full.pop()?.top ?? new Uint8Array();
  for (let left = full.pop(); left; left = full.pop()) top = await hashed(1, left.top, top);
  return hex(top);
}

export function headBytes({ size, root, at }: LogHead): Bytes {
  return joined(["panda-mdp log 1", String(size), root, String(at)]);
}

type Source = Pick<Api, "log" | "server">;

/** The log as it is now; refused where it is denied, is not what its head says, or is no continuation
 * of the one seen before. It is remembered, so that none that was shown once can be taken back. */
export async function freshLog(api: Source, keys: readonly string[], store: KeyStore): Promise<Log> {
  const all = JSON.parse(store.getItem(SEEN) ?? "{}") as Record<string, LogHead>;
  const before = all[api.server];
  const log = await api.log();
  if (!log) throw new SignatureError("logDenied");
  const { head, leaves } = log;
  await verifyAny(keys, headBytes(head), head.signature);
  if (leaves.length !== head.size || (await rootOf(leaves)) !== head.root) {
    throw new SignatureError("logForked");
  }
  if (before && (head.size < before.size || (await rootOf(leaves.slice(0, before.size))) !== before.root)) {
    throw new SignatureError("logForked");
  }
  store.setItem(SEEN, JSON.stringify({ ...all, [api.server]: head }));
  return log;
}

/** The number of an entry, which must be in the log. */
async function numberOf({ leaves }: Log, entry: Bytes): Promise<number> {
  const number = leaves.indexOf(await leafHash(entry));
  if (number < 0) throw new SignatureError("notLogged");
  return number;
}

/** The fresh log, which must have some entries: without one, every new browser could be given a table
 * of its own. */
export async function checkLog(
  api: Source, keys: readonly string[], store: KeyStore, entries: readonly Bytes[],
): Promise<Log> {
  const log = await freshLog(api, keys, store);
  for (const entry of entries) await numberOf(log, entry);
  return log;
}

/** Refuse a round that is not the latest one: its number is in the address of what is sent, so one that
 * a server shows to a single person would mark that person. */
export async function checkRound(log: Log, name: string, round: number | null | undefined): Promise<void> {
  if (round == null) return;
  const entry = (number: number) => joined(["panda-mdp round 1", name, String(number)]);
  await numberOf(log, entry(round));
  if (log.leaves.includes(await leafHash(entry(round + 1)))) throw new SignatureError("roundOver", round);
}

/** Refuse a key of one-use tokens that is not the one of its period: a key for a single person would
 * mark what it signs. A period is in the log once, and its key right behind it. */
export async function checkIssuer(log: Log, name: string, issuer: Issuer): Promise<void> {
  const lines = ["panda-mdp issuer 1", name, String(issuer.period)];
  const first = await numberOf(log, joined(lines));
  const number = await numberOf(log, joined([...lines, issuer.modulus]));
  if (number !== first + 1 || log.leaves.lastIndexOf(log.leaves[first]) !== first) {
    throw new SignatureError("noIssuer");
  }
}
