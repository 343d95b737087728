/** The audit, beside the page so that the page stays smooth. */

import { audit, auditRecord, decodeAll, type Weights } from "../core/audit";
import { CompactTable } from "../core/table";
import type { Asked, Answered } from "./auditor";

let loaded: Promise<{ table: CompactTable; weights: Weights }> | null = null;

function tell(message: Answered): void {
  postMessage(message);
}

async function load(file: ArrayBuffer) {
  const table = await CompactTable.read(new Uint8Array(file));
  const weights = await decodeAll(table, (share) => tell({ kind: "progress", share: 0.1 * share }));
  return { table, weights };
}

async function run(limit: number): Promise<void> {
  if (!loaded) return;
  const { table, weights } = await loaded;
  const result = await audit(table, weights, {
    limit,
    samples: 200_000,
    onProgress: (share) => tell({ kind: "progress", share: 0.1 + 0.9 * share }),
  });
  tell({ kind: "audited", result });
}

addEventListener("message", (event: MessageEvent<Asked>) => {
  const asked = event.data;
  const work = async () => {
    if (asked.kind === "load") {
      loaded = load(asked.file);
      await run(asked.limit);
    } else if (asked.kind === "audit") {
      await run(asked.limit);
    } else if (loaded) {
      const { table, weights } = await loaded;
      const result = auditRecord(table, weights, asked.record, asked.distances);
      tell({ kind: "own", id: asked.id, result });
    }
  };
  work().catch((error: unknown) => {
    tell({ kind: "failed", message: error instanceof Error ? error.message : "unknown" });
  });
});
