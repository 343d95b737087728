/** Bytes as text and back, and the digest that everything is named by. */

export type Bytes = Uint8Array<ArrayBuffer>;

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromBase64(text: string): Bytes {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

export function utf8(text: string): Bytes {
  return new TextEncoder().encode(text) as Bytes;
}

export async function sha256(bytes: Bytes): Promise<string> {
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}

/** JSON with sorted keys, no spaces and ASCII only: the same bytes as Python's `canonical_json`. */
export function canonicalJson(value: unknown): string {
  const sorted = (part: unknown): unknown => {
    if (Array.isArray(part)) return part.map(sorted);
    if (part !== null && typeof part === "object") {
      const entries = Object.entries(part as Record<string, unknown>);
      entries.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
      return Object.fromEntries(entries.map(([name, inner]) => [name, sorted(inner)]));
    }
    return part;
  };
  return escaped(JSON.stringify(sorted(value)));
}

/** JSON in ASCII. */
export function escaped(json: string): string {
  const escape = (letter: string) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return json.replace(/[\u007f-\uffff]/g, escape);
}
