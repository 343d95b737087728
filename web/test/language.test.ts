import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterEach, expect, test } from "vitest";
import { ApiError } from "../src/core/api";
import { FormatError, PandaError, PrivacyError } from "../src/core/errors";
import { distanceWords, epsilonWords, factorWords, percentWords, spanWords } from "../src/core/words";
import { language, LANGUAGES, problem, setLanguage, startLanguage, words } from "../src/words";
import { en } from "../src/words/en";
import { it } from "../src/words/it";

afterEach(() => setLanguage("en"));

/** Every word by its path; sentences are said with facts that can be told apart. */
function said(part: unknown, path = ""): Map<string, string> {
  const out = new Map<string, string>();
  if (typeof part === "string") out.set(path, part);
  else if (typeof part === "function") {
    const facts = Array.from({ length: part.length }, (_, k) => 71 + k);
    out.set(path, [part(...facts)].flat().join(" "));
  } else {
    for (const [name, inner] of Object.entries(part as object)) {
      for (const entry of said(inner, path ? `${path}.${name}` : name)) out.set(...entry);
    }
  }
  return out;
}

test("both languages have every word, and every fact in it", () => {
  const [english, italian] = [said(en), said(it)];
  expect([...italian.keys()].sort()).toEqual([...english.keys()].sort());
  for (const [path, text] of english) {
    const other = italian.get(path) ?? "";
    if (!path.startsWith("codes.")) expect(text.trim(), path).not.toBe("");
    expect(other.trim(), path).not.toBe("");
    const facts = (sentence: string) => new Set(sentence.match(/\b7[1-9]\b/g) ?? []);
    expect(facts(other), path).toEqual(facts(text));
  }
});

test("Italian is not English", () => {
  const [english, italian] = [said(en), said(it)];
  const same = [...english].filter(([path, text]) => italian.get(path) === text).map(([path]) => path);
  // What is a name, a formula, or the server's own words.
  expect(same.filter((path) => !["factEpsilon", "problems.server"].includes(path))).toEqual([]);
});

test("the page asks for words that exist, and holds none of its own", () => {
  const page = readFileSync(fileURLToPath(new URL("../index.html", import.meta.url)), "utf8");
  const asked = [...page.matchAll(/data-word(?:-label|-placeholder)?="([^"]+)"/g)].map(([, name]) => name);
  expect(asked.length).toBeGreaterThan(50);
  expect(asked.filter((name) => typeof (en as Record<string, unknown>)[name] !== "string")).toEqual([]);
  const body = page.slice(page.indexOf("<body>"), page.indexOf("<noscript>"));
  const own = body.replaceAll(/<[^>]+>/g, " ").split(/\s+/).filter(Boolean);
  expect(own).toEqual([]);
});

test("the language is the chosen one, else the browser's, else English", () => {
  const store = (kept: string | null) => ({ getItem: () => kept });
  startLanguage(store(null), ["de-AT", "it-CH", "en"]);
  expect(language()).toBe("it");
  startLanguage(store("en"), ["it"]);
  expect(language()).toBe("en");
  startLanguage(store("xx"), ["de"]);
  expect(language()).toBe("en");
  expect(Object.keys(LANGUAGES)).toEqual(["en", "it"]);
});

test("numbers and spans are written as the language writes them", () => {
  setLanguage("it");
  expect([0.118, 1.26].map(distanceWords)).toEqual(["120 m", "1,3 km"]);
  expect([percentWords(0.031), factorWords(7.39), epsilonWords(2.5)]).toEqual(["3,1 %", "7,4", "2,5"]);
  expect([15, 1, 60, 3600].map(spanWords)).toEqual(["15 secondi", "1 secondo", "60 secondi", "60 minuti"]);
});

test("errors are said in the language, and the server's by their code", () => {
  const holes = new PrivacyError("holes", 40, 10);
  expect(holes.message).toContain("points 40 km from all of its places");
  setLanguage("it");
  expect(problem(holes).message).toContain("punti a 40 km da tutti");
  expect(problem(new ApiError(409, "round_closed", "this deployment is closed")).message)
    .toBe(words().codes.round_closed);
  // A code that this page does not know is said as the server says it.
  expect(problem(new ApiError(400, "odd", "something odd")).message).toBe("something odd");
  expect(problem(new PandaError("offline")).message).toBe("il server non è raggiungibile");
});

test("a table along a graph is refused with what it is and who reads it", () => {
  const refused = new FormatError("metric", "graph");
  expect(problem(refused).message).toContain("follows streets or density, a graph of the operator's");
  expect(problem(refused).remedy).toContain("Python client");
  setLanguage("it");
  expect(problem(refused).message).toContain("segue le strade o la densità");
  expect(problem(new FormatError("metric", "taxi")).message).toContain("taxi");
});
