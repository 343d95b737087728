/** The token: pasted, or from the link's fragment, which browsers do not send to servers. */

import { token } from "../dom";

const NAME = "panda-mdp.token";

export interface LinkFacts {
  readonly token: string | null;
  /** The operator's key as the link names it. */
  readonly key: string | null;
  readonly deployment: string | null;
}

/** Read the fragment, and take it out of the address bar and the history. */
export function readLink(): LinkFacts {
  const facts = new URLSearchParams(location.hash.slice(1));
  const found = {
    token: token(facts.get("token") ?? ""),
    key: facts.get("key")?.toLowerCase() ?? null,
    deployment: facts.get("deployment"),
  };
  if (facts.has("token")) {
    facts.delete("token");
    const rest = facts.toString();
    history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
  }
  return found;
}

export class TokenBox {
  private held: string | null;

  constructor(given: string | null) {
    this.held = given ?? sessionStorage.getItem(NAME);
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
  }
}
