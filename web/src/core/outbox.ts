/**
 * Reports on their way. What waits here was drawn, charged and handed over by the person; it holds
 * outputs, which the server will see, and nothing that led to them. Sending is safe to repeat: the
 * server counts an id once.
 */

import { type Api, ApiError } from "./api";
import { exclusively, read, write } from "./database";

export interface Report {
  readonly id: string;
  readonly deployment: string;
  readonly version: number;
  readonly output: number;
  readonly at: number;
  readonly state: "waiting" | "accepted" | "refused";
  readonly problem: string | null;
}

export class Outbox {
  constructor(private readonly database: IDBDatabase) {}

  async put(deployment: string, version: number, output: number): Promise<Report> {
    const report: Report = {
      id: crypto.randomUUID(), deployment, version, output, at: Date.now(), state: "waiting",
      problem: null,
    };
    await write(this.database, "outbox", (outbox) => outbox.add(report));
    return report;
  }

  async all(): Promise<Report[]> {
    const reports = (await read(this.database, "outbox", (s) => s.getAll())) as Report[];
    return reports.sort((a, b) => a.at - b.at);
  }

  /** Send what waits. Stops quietly where the server cannot be reached; later is fine. */
  async flush(api: Api, token: string): Promise<void> {
    await exclusively("panda-mdp outbox", async () => {
      for (const report of await this.all()) {
        if (report.state !== "waiting") continue;
        try {
          await api.report(report, token);
          await this.note({ ...report, state: "accepted", problem: null });
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
