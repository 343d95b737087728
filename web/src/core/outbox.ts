/**
 * Reports on their way. What waits here was drawn, charged and handed over by the person; what was
 * drawn stays in the books, encrypted, is opened when it is sent, and is erased when the server has
 * it. Sending is safe to repeat: the server counts an id once. A report does not say which table it was drawn from, so the page looks
 * whether that one is still in force.
 */

import { type Api, ApiError } from "./api";
import { PandaError, type Problem } from "./errors";
import { exclusively, read, write } from "./database";
import type { Ledger, Release } from "./ledger";

export interface Report {
  readonly id: string;
  /** The entry of the books that paid for it. */
  readonly entry: string;
  readonly deployment: string;
  readonly version: number;
  readonly at: number;
  readonly state: "waiting" | "refused";
  readonly problem: Trouble | null;
}

/** Why a report was not accepted, as an error says it. */
export interface Trouble {
  readonly problem: Problem;
  readonly facts: readonly (string | number)[];
  readonly code: string | null;
}

function trouble(error: unknown): Trouble {
  const known = error instanceof PandaError ? error : new PandaError("unknown");
  return { problem: known.problem, facts: known.facts, code: known.code };
}

export class Outbox {
  constructor(private readonly ledger: Ledger) {}

  private get database(): IDBDatabase {
    return this.ledger.database;
  }

  /** Hand a release over for sending, once more if it was refused. What was accepted stays so. */
  async put(deployment: string, release: Release): Promise<void> {
    if (release.state === "accepted" || release.output === null) return;
    const { report, entry, version } = release;
    await this.note({
      id: report, entry, deployment, version, at: Date.now(), state: "waiting", problem: null,
    });
  }

  async all(): Promise<Report[]> {
    const reports = (await read(this.database, "outbox", (s) => s.getAll())) as Report[];
    return reports.sort((a, b) => a.at - b.at);
  }

  /** Send what waits: without a token what has a one-use token alone. Stops quietly where the server
   * cannot be reached; later is fine. */
  async flush(api: Api, token: string | null): Promise<void> {
    await exclusively("panda-mdp outbox", async () => {
      const waiting = (await this.all()).filter(({ state }) => state === "waiting");
      if (!waiting.length) return;
      let inForce: Map<string, number | null>;
      try {
        inForce = new Map((await api.deployments()).map(
          // Whoever has rows of a round in force may report, and nobody else.
          ({ name, kind, version }) => [name, kind === "anchors" ? null : version],
        ));
      } catch (error) {
        for (const report of waiting) await this.note({ ...report, problem: trouble(error) });
        return;
      }
      for (const report of waiting) {
        try {
          const drawn = await this.ledger.drawn(report.entry);
          const output = drawn?.output ?? null;
          if (drawn?.state === "accepted") {
            // The page was closed between the answer and this.
            await this.drop([report.id]);
            continue;
          }
          if (output === null) throw new PandaError("erased");
          if (!token && !drawn?.proof) continue;
          const version = inForce.get(report.deployment);
          if (version !== null && version !== report.version) throw new PandaError("replaced");
          const { table = null, proof } = drawn ?? {};
          await api.report({ ...report, output, table, ...(proof ? { proof } : {}) }, token);
          await this.ledger.accepted(report.entry);
          await this.drop([report.id]);
        } catch (error) {
          const problem = trouble(error);
          if (error instanceof ApiError && error.aboutToken) {
            await this.note({ ...report, problem });
            throw error;
          }
          if (!(error instanceof PandaError) || (error instanceof ApiError && error.later)) {
            await this.note({ ...report, problem });
            return;
          }
          await this.note({ ...report, state: "refused", problem });
        }
      }
    });
  }

  /** Forget all reports, also those that wait. */
  async clear(): Promise<void> {
    await this.drop((await this.all()).map(({ id }) => id));
  }

  private async drop(ids: readonly string[]): Promise<void> {
    await write(this.database, "outbox", (outbox) => {
      for (const id of ids) outbox.delete(id);
    });
  }

  private async note(report: Report): Promise<void> {
    await write(this.database, "outbox", (outbox) => outbox.put(report));
  }
}
