/**
 * Reads files of tables (docs/format.md): a header, typed sections, a checksum. Lengths are checked
 * before anything is inflated; the sum finds damage, and audits decide: a file claims nothing else.
 */

import { type Bytes, hex } from "./bytes";
import { FormatError } from "./errors";

const MAGIC = "panda-mdp\n";
const FORMAT = "panda-mdp table";
const VERSION = 1;
const DEGREES = 1e7;
const MOST_BYTES = 2 ** 30;
/** What a reader must know beyond the plain table, each with its field of the header. */
const FEATURES = ["mesh", "selection"];
const FIELDS = ["format", "version", "features", "sections", "epsilon", "domain", "outputs", "loss", "notes"];

export interface Header {
  readonly format: string;
  readonly version: number;
  readonly features: readonly string[];
  readonly epsilon: number;
  readonly domain: { readonly kind: string; readonly unit: string; readonly labels: unknown };
  readonly outputs: { readonly kind: string; readonly labels: unknown };
  readonly loss: { readonly power: number | null; readonly unit: string; readonly digest: string | null };
  readonly mesh?: { readonly middle: [number, number]; readonly spacing: number };
  readonly selection?: { readonly kind: string; readonly delta: number } & Record<string, unknown>;
  /** Nobody checks them. */
  readonly notes: {
    readonly method: string;
    readonly details: { readonly compact?: { readonly loss_cost?: number } };
  };
}

interface Section {
  readonly coding: string;
  readonly shape: readonly number[];
  readonly data: Bytes;
}

export function refuse(wrong: boolean, what: string): void {
  if (wrong) throw new FormatError("damaged", `${what} is out of range`);
}

/** What was deflated, refused beyond `most` bytes. */
export async function inflate(bytes: Bytes, most: number): Promise<Bytes> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const reader = stream.getReader();
  const parts: Uint8Array[] = [];
  let length = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      length += value.length;
      if (length > most) throw new FormatError("damaged", "a section is too long");
      parts.push(value);
    }
  } catch (error) {
    await reader.cancel().catch(() => undefined);
    if (error instanceof FormatError) throw error;
    throw new FormatError("damaged", "a section cannot be inflated");
  }
  const out = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** `count` folded numbers of at most 53 bits; they must take all of the bytes. */
export function planes(bytes: Uint8Array, count: number): Float64Array {
  const width = bytes.length ? bytes[0] : 9;
  refuse(width > 7 || bytes.length !== 1 + width * count, "the width of a number");
  const out = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    let folded = 0;
    for (let k = width - 1; k >= 0; k--) folded = folded * 256 + bytes[1 + k * count + i];
    out[i] = folded % 2 ? -(folded + 1) / 2 : folded / 2;
  }
  return out;
}

/** `count` floats: their highest bytes, the next ones, and so on; what is not told is 0. */
function leading(bytes: Uint8Array, count: number): Float64Array {
  const width = bytes.length ? bytes[0] : 9;
  refuse(width > 8 || bytes.length !== 1 + width * count, "the width of a number");
  const out = new Uint8Array(8 * count);
  for (let k = 0, from = 1; k < width; k++) {
    for (let i = 0; i < count; i++, from++) out[8 * i + 7 - k] = bytes[from];
  }
  return new Float64Array(out.buffer);
}

/** What a file says that it is; nothing is checked. */
export function headerOf(file: Bytes): Header {
  const start = MAGIC.length + 4;
  if (new TextDecoder().decode(file.subarray(0, MAGIC.length)) !== MAGIC) throw new FormatError("notTable");
  const length = new DataView(file.buffer, file.byteOffset).getUint32(MAGIC.length, true);
  try {
    return JSON.parse(new TextDecoder().decode(file.subarray(start, start + length))) as Header;
  } catch {
    throw new FormatError("damaged", "the header is not JSON");
  }
}

/** The header and the sections of a file: each section is read at the shape that is due. */
export class Container {
  private constructor(
    readonly header: Header, private readonly sections: ReadonlyMap<string, Section>,
  ) {}

  static async open(file: Bytes): Promise<Container> {
    const start = MAGIC.length + 4;
    if (file.length < start + 32) throw new FormatError("checksum");
    if (new TextDecoder().decode(file.subarray(0, MAGIC.length)) !== MAGIC) throw new FormatError("notTable");
    const body = file.subarray(0, file.length - 32) as Bytes;
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
    if (hex(digest) !== hex(file.subarray(body.length))) throw new FormatError("checksum");
    const header = headerOf(file) as Header & {
      readonly sections: Record<string, [string, number[], number]>;
    };
    const length = new DataView(file.buffer, file.byteOffset).getUint32(MAGIC.length, true);
    const features = FEATURES.filter((name) => name in header);
    const known = Object.keys(header).every((name) => FIELDS.includes(name) || features.includes(name));
    const same = known && JSON.stringify(header.features) === JSON.stringify(features);
    if (header.format !== FORMAT || header.version !== VERSION || !same) throw new FormatError("otherFormat");
    const sections = new Map<string, Section>();
    let [at, plain] = [start + length, 0];
    for (const [name, [coding, shape, size]] of Object.entries(header.sections)) {
      refuse([size, ...shape].some((n) => !(Number.isInteger(n) && n >= 0)), "the length of a section");
      sections.set(name, { coding, shape, data: body.subarray(at, at + size) as Bytes });
      at += size;
      plain += shape.length === 3 ? 16 * shape[2] : 8 * count(shape);
    }
    refuse(at !== body.length, "the length of the sections");
    if (plain > MOST_BYTES) throw new FormatError("tooLarge");
    if (!(header.epsilon > 0 && Number.isFinite(header.epsilon))) throw new FormatError("damaged", "epsilon is none");
    return new Container(header, sections);
  }

  get names(): string[] {
    return [...this.sections.keys()];
  }

  has(name: string): boolean {
    return this.sections.has(name);
  }

  /** The length of a section along its first dimension. */
  length(name: string): number {
    return this.section(name).shape[0];
  }

  section(name: string): Section {
    const found = this.sections.get(name);
    if (!found) throw new FormatError("damaged", `${name} is missing`);
    return found;
  }

  private async read(name: string, shape: readonly number[]): Promise<Float64Array | BigInt64Array> {
    const { coding, shape: said, data } = this.section(name);
    if (said.length !== shape.length || said.some((n, k) => n !== shape[k])) {
      throw new FormatError("damaged", `${name} has another shape`);
    }
    const size = count(shape);
    if (coding === "int64") {
      const plain = await inflate(data, 8 * size);
      refuse(plain.length !== 8 * size, "the length of an array");
      return new BigInt64Array(plain.buffer);
    }
    if (coding === "float64") return leading(await inflate(data, 1 + 8 * size), size);
    if (coding !== "integers" && coding !== "degrees") throw new FormatError("damaged", `${name} is coded otherwise`);
    const values = planes(await inflate(data, 1 + 8 * size), size);
    for (let i = 1; i < size; i++) values[i] += values[i - 1];
    return coding === "degrees" ? values.map((value) => value / DEGREES) : values;
  }

  /** Numbers of any size. */
  async integers(name: string, ...shape: number[]): Promise<BigInt64Array> {
    const values = await this.read(name, shape);
    return values instanceof BigInt64Array ? values : BigInt64Array.from(values, BigInt);
  }

  async floats(name: string, ...shape: number[]): Promise<Float64Array> {
    const values = await this.read(name, shape);
    if (values instanceof BigInt64Array) throw new FormatError("damaged", `${name} holds integers`);
    return values;
  }

  /** Records of a domain of this size. */
  async records(name: string, size: number, ...shape: number[]): Promise<Int32Array> {
    const given = await this.integers(name, ...shape);
    if (given.some((record) => record < 0n || record >= BigInt(size))) {
      throw new FormatError("damaged", `${name} holds no records`);
    }
    return Int32Array.from(given, Number);
  }

  /** The probabilities of the records, or the same for all. */
  async prior(size: number): Promise<Float64Array> {
    return this.has("prior") ? this.floats("prior", size) : new Float64Array(size).fill(1 / size);
  }
}

function count(shape: readonly number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}
