/** The core of the browser's client, for other programs. */

export { Api, ApiError, type Deployment, type Streets, type TableInfo } from "../src/core/api";
export {
  audit, auditRecord, type AuditResult, decodeAll, type OwnAudit, type Weights,
} from "../src/core/audit";
export { Area } from "../src/core/area";
export { canonicalJson, sha256 } from "../src/core/bytes";
export {
  BudgetError, FormatError, LedgerError, PandaError, PrivacyError, SignatureError, SnapError,
} from "../src/core/errors";
export { EverywhereTable } from "../src/core/everywhere";
export { KeyChangedError, type KeyStore, pinnedKey, replacePin, type Trusted, trustedKeys } from "../src/core/keypin";
export { type Allowance, type Balance, type Charge, Ledger, type Release } from "../src/core/ledger";
export { meaning, type Meaning, spread, type Spread } from "../src/core/meaning";
export { Graph, Haversine, haversineKm } from "../src/core/metric";
export { Outbox } from "../src/core/outbox";
export { PandaTable } from "../src/core/panda";
export { type Checks, checksOf, type Plan } from "../src/core/plan";
export { choose, draw, shares } from "../src/core/sampler";
export { keyId, type KeySheet, type OperatorKey, pythonRepr, type SignedTable, tableBytes, verify, verifyAny } from "../src/core/signing";
export { nearest, type Snap } from "../src/core/snap";
export { readStatement, type Statement, statementBytes } from "../src/core/statement";
export { type Answer, type Outcome, Survey, type SurveyOptions } from "../src/core/survey";
export { CompactTable } from "../src/core/table";
