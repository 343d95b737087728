/**
 * Reports on their way. What waits here was drawn, charged and handed over by the person; what was
 * drawn stays in the books, encrypted, and is opened when it is sent. Sending is safe to repeat: the
 * server counts an id once. A report does not say which table it was drawn from, so the page looks
 * whether that one is still in force.
 */

import { type Api, ApiError } from "./api";
import { exclusively, read, write } from "./database";
import type { Ledger, Release } from "./ledger";

export interface Report {
  readonly id: string;
  /** The entry of the books that paid for it. */
  readonly entry: string;
  readonly deployment: string;
  readonly version: number;
  readonly at: number;
  readonly state: "waiting" | "accepted" | "refused";
  readonly problem: string | null;
}

export class Outbox {
  constructor(private readonly ledger: Ledger) {}

  private get database(): IDBDatabase {
    return this.ledger.database;
  }

  /** Hand a release over for sending. The same one is sent once. */
  async put(deployment: string, release: Release): Promise<void> {
    const { report, entry, version } = release;
    const state = release.state === "accepted" ? "accepted" : "waiting";
    await this.note({
      id: report, entry, deployment, version, at: Date.now(), state, problem: null,
    });
  }

  async all(): Promise<Report[]> {
    const reports = (await read(this.database, "outbox", (s) => s.getAll())) as Report[];
    return reports.sort((a, b) => a.at - b.at);
  }

  /** Send what waits. Stops quietly where the server cannot be reached; later is fine. */
  async flush(api: Api, token: string): Promise<void> {
    await exclusively("panda-mdp outbox", async () => {
      const waiting = (await this.all()).filter(({ state }) => state === "waiting");
      if (!waiting.length) return;
      let inForce: Map<string, number>;
      try {
        inForce = new Map((await api.deployments()).map(({ name, version }) => [name, version]));
      } catch (error) {
        for (const report of waiting) await this.note({ ...report, problem: (error as Error).message });
        return;
      }
      for (const report of waiting) {
        try {
          const drawn = await this.ledger.drawn(report.entry);
          const problem = !drawn
            ? "what was drawn was erased"
            : inForce.get(report.deployment) !== report.version
              ? "the table was replaced since it was drawn" : null;
          if (!drawn || problem) {
            await this.note({ ...report, state: "refused", problem });
            continue;
          }
          await api.report({ ...report, output: drawn.output }, token);
          await this.note({ ...report, state: "accepted", problem: null });
          await this.ledger.settle(report.entry, "accepted");
        } catch (error) {
          if (!(error instanceof ApiError) || error.later) {
            await this.note({ ...report, problem: (error as Error).message });
            return;
          }
          if (error.aboutToken) {
            await this.note({ ...report, problem: error.message });
            throw error;
          }
          await this.note({ ...report, state: "refused", problem: error.message });
        }
      }
    });
  }

  /** Forget reports that need nothing any more. */
  async tidy(): Promise<void> {
    const done = (await this.all()).filter((report) => report.state !== "waiting");
    await write(this.database, "outbox", (outbox) => {
      for (const report of done) outbox.delete(report.id);
    });
  }

  private async note(report: Report): Promise<void> {
    await write(this.database, "outbox", (outbox) => outbox.put(report));
  }
}
