/** A few helpers instead of a framework. */

import { language, words } from "./words";
import type { Words } from "./words/en";

type Child = Node | string | null;

export function make<K extends keyof HTMLElementTagNameMap>(
  name: K, attributes: Record<string, string> = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

export function svg(
  name: string, attributes: Record<string, string | number> = {}, ...children: Child[]
): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

export function by<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element ${id}`);
  return element as T;
}

/** Write the page's own words, in its language; what is said later keeps its element's name. */
export function fillWords(root: HTMLElement): void {
  const said = words();
  const word = (name: string | undefined) => said[name as keyof Words] as string;
  root.lang = language();
  document.title = said.title;
  for (const element of root.querySelectorAll<HTMLElement>("[data-word]")) {
    if (!element.dataset.said) element.textContent = word(element.dataset.word);
  }
  for (const element of root.querySelectorAll<HTMLElement>("[data-word-label]")) {
    element.setAttribute("aria-label", word(element.dataset.wordLabel));
  }
  for (const element of root.querySelectorAll<HTMLElement>("[data-word-placeholder]")) {
    element.setAttribute("placeholder", word(element.dataset.wordPlaceholder));
  }
}

/** Tell screen readers something that is seen elsewhere. */
export function say(text: string): void {
  const voice = by("say");
  // The same words twice would be said once.
  voice.textContent = voice.textContent === text ? `${text}\u00a0` : text;
}

export function token(text: string): string | null {
  const found = /pmt_[0-9a-f]{12}_[A-Za-z0-9_-]{43}/.exec(text);
  return found ? found[0] : null;
}

export function invitation(text: string): string | null {
  const found = /pmi_[0-9a-f]{12}_[A-Za-z0-9_-]{43}/.exec(text);
  return found ? found[0] : null;
}
