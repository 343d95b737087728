/** Errors that a person can read: what is wrong, and what helps. They never hold a place. */

export class PandaError extends Error {
  readonly remedy: string;

  constructor(message: string, remedy = "") {
    super(message);
    this.name = new.target.name;
    this.remedy = remedy;
  }
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
