/** The vectors that Python and TypeScript share. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Bytes } from "../src/core/bytes";

const path = (name: string) =>
  fileURLToPath(new URL(`../../tests/vectors/${name}`, import.meta.url));

export function bytesOf(name: string): Bytes {
  return new Uint8Array(readFileSync(path(name)));
}

export function vectors<T>(name: string): T {
  return JSON.parse(readFileSync(path(name), "utf8")) as T;
}

export interface TableVector {
  sha256: string;
  identity: string;
  size_bytes: number;
  fingerprint: string;
  epsilon: number;
  audited: number;
  outputs: number[];
  lat: number[];
  lon: number[];
  rows: string[][];
}
