/** The language of the page: the person's choice, else the browser's, else English. */

import type { PandaError } from "../core/errors";
import { en, type Words } from "./en";
import { it } from "./it";

export const LANGUAGES = { en: "English", it: "Italiano" } as const;
export type Language = keyof typeof LANGUAGES;
const ALL: Record<Language, Words> = { en, it };
const NAME = "panda-mdp.language";

let chosen: Language = "en";

export function language(): Language {
  return chosen;
}

export function setLanguage(wanted: Language): void {
  chosen = wanted;
}

export function words(): Words {
  return ALL[chosen];
}

function known(text: string | null | undefined): Language | null {
  const name = text?.slice(0, 2).toLowerCase();
  return name === "en" || name === "it" ? name : null;
}

/** Take the language that was chosen before, or that the browser prefers. */
export function startLanguage(store: Pick<Storage, "getItem">, preferred: readonly string[]): void {
  const first = preferred.map(known).find((name) => name !== null);
  setLanguage(known(store.getItem(NAME)) ?? first ?? "en");
}

export function keepLanguage(store: Pick<Storage, "setItem">, wanted: Language): void {
  store.setItem(NAME, wanted);
}

/** What is wrong and what helps, in the page's language. */
export function problem(error: PandaError): { message: string; remedy: string } {
  const { codes, problems } = words();
  if (error.code && chosen !== "en") {
    const said = codes[error.code as keyof Words["codes"]];
    // A code of a later server is said in the server's own words.
    if (said) return { message: said, remedy: "" };
  }
  const tell = problems[error.problem] as (...facts: (string | number)[]) => string[];
  const [message, remedy] = tell(...error.facts);
  return { message, remedy };
}
