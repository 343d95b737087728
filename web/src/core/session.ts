/** What the page works with: one deployment, its table checked, before any place is known. */

import type { Api, Deployment, TableInfo } from "./api";
import type { Bytes } from "./bytes";
import { FormatError, SignatureError } from "./errors";
import { type KeyStore, pinnedKey } from "./keypin";
import type { Charge } from "./ledger";
import { type OperatorKey, tableBytes, verify } from "./signing";
import { checkLog, type LogHead } from "./log";
import { checkSeen, readStatement, type Statement, statementBytes } from "./statement";
import { CompactTable } from "./table";

export interface Session {
  readonly deployment: Deployment;
  readonly info: TableInfo;
  readonly table: CompactTable;
  readonly file: Bytes;
  readonly stated: Statement;
  /** The head of the operator's log, which has the table and the statement; null without a log. */
  readonly log: LogHead | null;
  readonly key: OperatorKey;
  /** Whether the key was seen for the first time, and so taken on trust. */
  readonly firstKey: boolean;
}

/** Deployments that this page can serve: whole public tables. */
export function usable(deployments: readonly Deployment[]): Deployment[] {
  return deployments.filter(({ kind, table }) => kind === "table" && table !== undefined);
}

/** The operator's key, as it was pinned. */
export async function trustedKey(
  api: Api, expected: string | null, store: KeyStore = localStorage,
): Promise<{ key: OperatorKey; first: boolean }> {
  const service = await api.service();
  return pinnedKey(store, service.key, expected);
}

/** Fetch the whole table, and check signature, checksum and that all claims agree. */
export async function openSession(
  api: Api, deployment: Deployment, trusted: { key: OperatorKey; first: boolean },
  onProgress: (share: number) => void, store: KeyStore = localStorage,
): Promise<Session> {
  const info = deployment.table;
  if (!info) throw new FormatError("noTable");
  if (info.key_id !== trusted.key.id) throw new SignatureError("otherKey");
  await verify(trusted.key.public, tableBytes(info), info.signature);
  const stated = await readStatement(trusted.key, deployment);
  const log = await checkLog(api, trusted.key, store, [
    tableBytes(info), await statementBytes(deployment.name, deployment.statement),
  ]);
  const file = await api.tableFile(info, onProgress);
  const table = await CompactTable.read(file);
  const claims = [
    table.epsilon === info.epsilon,
    table.epsilon === deployment.guarantee?.epsilon,
    deployment.guarantee?.delta === 0,
    table.header.domain.fingerprint === info.domain,
    (await table.fingerprint()) === info.domain,
    table.size === info.records,
    table.outputs.length === info.outputs,
  ];
  if (claims.includes(false)) throw new FormatError("otherTable");
  await checkSeen(store, stated);
  return { deployment, info, table, file, stated, log, key: trusted.key, firstKey: trusted.first };
}

/** What a report of this session is charged as. */
export function chargeOf(session: Session, server: string): Charge {
  return {
    account: "haversine km",
    unit: "km",
    server,
    deployment: session.deployment.name,
    version: session.deployment.version,
    domain: session.info.domain,
    epsilon: session.table.epsilon,
  };
}
