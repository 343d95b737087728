/** Errors that a person can read: what is wrong, and what helps. They never hold a place. */

import { en } from "../words/en";

export type Problem = keyof typeof en.problems;

export class PandaError extends Error {
  readonly remedy: string;
  /** The server's stable code, where the problem is an answer of it. */
  readonly code: string | null = null;

  /** The words are those of `problems` in the dictionary; `facts` go into them. */
  constructor(readonly problem: Problem, ...facts: (string | number)[]) {
    const tell = en.problems[problem] as (...given: (string | number)[]) => string[];
    const [message, remedy] = tell(...facts);
    super(message);
    this.name = new.target.name;
    this.remedy = remedy;
    this.facts = facts;
  }

  readonly facts: readonly (string | number)[];
}

/** A file that is damaged or foreign. */
export class FormatError extends PandaError {}
/** A signature or key that is not the one expected. */
export class SignatureError extends PandaError {}
/** A place that no record stands for. */
export class SnapError extends PandaError {}
/** A table that is not as private as it says. */
export class PrivacyError extends PandaError {}
/** A release that is more than what was allowed. */
export class BudgetError extends PandaError {}
/** Books that cannot be trusted. */
export class LedgerError extends PandaError {}
