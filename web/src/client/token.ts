/**
 * The token: pasted, exchanged for an invitation, or from the link's fragment, which browsers do not
 * send to servers. An invitation works once, so the token that comes of it stays in this browser.
 */

import { invitation, token } from "../dom";

const NAME = "panda-mdp.token";
const ENROLLED = "panda-mdp.enrolled";

export interface LinkFacts {
  readonly token: string | null;
  readonly invitation: string | null;
  /** The operator's key as the link names it. */
  readonly key: string | null;
  readonly deployment: string | null;
}

/** Read the fragment, and take it out of the address bar and the history. */
export function readLink(): LinkFacts {
  const facts = new URLSearchParams(location.hash.slice(1));
  const found = {
    token: token(facts.get("token") ?? ""),
    invitation: invitation(facts.get("invite") ?? ""),
    key: facts.get("key")?.toLowerCase() ?? null,
    deployment: facts.get("deployment"),
  };
  if (facts.has("token") || facts.has("invite")) {
    facts.delete("token");
    facts.delete("invite");
    const rest = facts.toString();
    history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
  }
  return found;
}

export class TokenBox {
  private held: string | null;

  constructor(given: string | null, private readonly enrol: (code: string) => Promise<string>) {
    this.held = given ?? sessionStorage.getItem(NAME) ?? localStorage.getItem(ENROLLED);
  }

  /** Exchange an invitation for a token of one's own, unless this browser has one already. */
  async exchange(code: string): Promise<void> {
    if (this.held) return;
    this.held = await this.enrol(code);
    localStorage.setItem(ENROLLED, this.held);
  }

  get value(): string | null {
    return this.held;
  }

  /** Take what was pasted; it is kept beyond this page's life only where the person says so. */
  take(text: string, keepIt: boolean): boolean {
    const found = token(text);
    if (!found) return false;
    this.held = found;
    if (keepIt) sessionStorage.setItem(NAME, found);
    else sessionStorage.removeItem(NAME);
    return true;
  }

  drop(): void {
    this.held = null;
    sessionStorage.removeItem(NAME);
    localStorage.removeItem(ENROLLED);
  }
}
