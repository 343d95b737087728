/** Asks the worker. What is asked stays on this device. */

import type { AuditResult, OwnAudit } from "../core/audit";
import type { Place } from "../core/area";
import type { Source } from "../core/plan";

export type Asked =
  | { kind: "load"; source: Source; limit: number }
  | { kind: "audit"; limit: number }
  | { kind: "own"; id: number; record: number; distances: number[]; place: Place };

export type Answered =
  | { kind: "progress"; share: number }
  | { kind: "audited"; result: AuditResult; budgets: Float64Array | null }
  | { kind: "own"; id: number; result: OwnAudit }
  | { kind: "failed"; message: string };

export class Auditor {
  private readonly worker = new Worker(new URL("./audit.worker.ts", import.meta.url), {
    type: "module",
  });
  private readonly waiting = new Map<number, (result: OwnAudit) => void>();
  private count = 0;
  onProgress: (share: number) => void = () => undefined;
  onAudited: (result: AuditResult, budgets: Float64Array | null) => void = () => undefined;
  onFailed: (message: string) => void = () => undefined;

  constructor() {
    this.worker.addEventListener("message", (event: MessageEvent<Answered>) => {
      const answer = event.data;
      if (answer.kind === "progress") this.onProgress(answer.share);
      else if (answer.kind === "audited") this.onAudited(answer.result, answer.budgets);
      else if (answer.kind === "failed") this.onFailed(answer.message);
      else {
        this.waiting.get(answer.id)?.(answer.result);
        this.waiting.delete(answer.id);
      }
    });
    this.worker.addEventListener("error", () => this.onFailed("the audit could not be started"));
  }

  load(source: Source, limit: number): void {
    this.worker.postMessage({ kind: "load", source, limit } satisfies Asked);
  }

  auditAll(limit: number): void {
    this.worker.postMessage({ kind: "audit", limit } satisfies Asked);
  }

  own(record: number, distances: readonly number[], place: Place): Promise<OwnAudit> {
    const id = ++this.count;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.worker.postMessage(
        { kind: "own", id, record, distances: [...distances], place } satisfies Asked,
      );
    });
  }

  close(): void {
    this.worker.terminate();
  }
}
