/** The audit, beside the page so that the page stays smooth. */

import { AnchorsChecks, type Checks, checksOf } from "../core/plan";
import type { Asked, Answered } from "./auditor";

let loaded: Promise<Checks> | null = null;
let first: Promise<void> = Promise.resolve();

function tell(message: Answered): void {
  postMessage(message);
}

async function run(limit: number): Promise<void> {
  if (!loaded) return;
  const checks = await loaded;
  const result = await checks.audit({
    limit,
    samples: 200_000,
    onProgress: (share) => tell({ kind: "progress", share: 0.1 + 0.9 * share }),
  });
  tell({ kind: "audited", result, budgets: checks instanceof AnchorsChecks ? checks.budgets : null });
}

addEventListener("message", (event: MessageEvent<Asked>) => {
  const asked = event.data;
  const work = async () => {
    if (asked.kind === "load") {
      loaded = checksOf(asked.source, (share) => tell({ kind: "progress", share: 0.1 * share }));
      first = run(asked.limit);
      await first;
    } else if (asked.kind === "audit") {
      await run(asked.limit);
    } else if (loaded) {
      const checks = await loaded;
      // What a record's anchors may tell is known once the budgets are.
      if (checks instanceof AnchorsChecks) await first;
      const result = checks.own(asked.record, asked.distances, asked.place);
      tell({ kind: "own", id: asked.id, result });
    }
  };
  work().catch((error: unknown) => {
    tell({ kind: "failed", message: error instanceof Error ? error.message : "unknown" });
  });
});
