/**
 * The compact table (docs/format.md): every field checked, one block decoded when a row is wanted.
 *
 * Weights have 62 bits. They are decoded as pairs of 32-bit halves, in numbers that are exact
 * throughout (codes are below 2^52), and handed out as 64-bit integers.
 */

import { type Bytes, hex, sha256, utf8 } from "./bytes";
import { FormatError } from "./errors";
import { Euclidean, Haversine, Matrix, type Metric } from "./metric";

const MAGIC = "panda-mdp compact\n";
const FORMAT = "panda-mdp compact table";
export const BLOCK_ROWS = 256;
const MOST_BITS = 46;
const HALF = 2 ** 32;
const DEGREES = 1e7;

export interface Header {
  readonly format: string;
  readonly version: number;
  readonly method: string;
  readonly epsilon: number;
  readonly loss: number;
  readonly lower_bound: number | null;
  readonly loss_unit?: string;
  readonly subject: string;
  readonly domain: {
    readonly kind: string;
    readonly unit: string;
    readonly records: number;
    readonly dimensions: number;
    readonly fingerprint: string;
  };
  readonly outputs: number;
  readonly sections: Record<string, number>;
  readonly arrays: Record<string, string>;
  readonly blocks: number[];
  readonly compact: { readonly loss_cost: number; readonly loss_before: number };
}

function refuse(wrong: boolean, what: string): void {
  if (wrong) throw new FormatError("damaged", `${what} is out of range`);
}

/** What was deflated, refused beyond `most` bytes. */
export async function inflate(
  bytes: Bytes, most: number, format: CompressionFormat = "deflate",
): Promise<Bytes> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format));
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

function bigPlanes(bytes: Uint8Array, count: number): bigint[] {
  const width = bytes.length ? bytes[0] : 9;
  refuse(width > 8 || bytes.length !== 1 + width * count, "the width of a number");
  return Array.from({ length: count }, (_, i) => {
    let folded = 0n;
    for (let k = width - 1; k >= 0; k--) folded = folded * 256n + BigInt(bytes[1 + k * count + i]);
    return folded & 1n ? -((folded + 1n) / 2n) : folded / 2n;
  });
}

function cumulate(values: Float64Array): Float64Array {
  for (let i = 1; i < values.length; i++) values[i] += values[i - 1];
  return values;
}

/** Rows of a block: low and high halves of each weight, row by row. */
export interface Rows {
  readonly count: number;
  readonly low: Uint32Array;
  readonly high: Uint32Array;
}

export class CompactTable {
  private constructor(
    readonly header: Header,
    readonly metric: Metric,
    /** The record of each row of the file. */
    readonly order: Int32Array,
    /** The row of the file of each record. */
    readonly place: Int32Array,
    /** The outputs as records. */
    readonly outputs: Int32Array,
    readonly floors: BigUint64Array,
    private readonly blocks: Bytes[],
  ) {}

  get size(): number {
    return this.order.length;
  }

  get epsilon(): number {
    return this.header.epsilon;
  }

  get blockCount(): number {
    return this.blocks.length;
  }

  /** The distances of a map, in km. */
  get places(): Haversine {
    if (this.metric instanceof Haversine) return this.metric;
    throw new FormatError("noMap");
  }

  async fingerprint(): Promise<string> {
    return fingerprint(this.places);
  }

  /** Read a whole file: checksum, header, places; the rows are decoded when they are wanted. */
  static async read(file: Bytes): Promise<CompactTable> {
    const { header, sections } = await unpack(file);
    const { records, dimensions, kind, unit } = header.domain;
    const count = header.outputs;
    refuse(!(Number.isInteger(records) && records > 0 && records <= 2 ** 24), "the size");
    refuse(!(Number.isInteger(count) && count > 0 && count <= 65536), "the number of outputs");
    const integers = async (name: string, length: number) =>
      cumulate(planes(await inflate(sections[name], 1 + 8 * length), length));
    const floats = async (name: string, length: number): Promise<Float64Array> => {
      if (header.arrays[name] === "degrees") {
        return (await integers(name, length)).map((value) => value / DEGREES);
      }
      const plain = await inflate(sections[name], 8 * length);
      refuse(plain.length !== 8 * length, "the length of an array");
      return new Float64Array(plain.buffer);
    };

    const order = Int32Array.from(await integers("order", records));
    const place = new Int32Array(records).fill(-1);
    order.forEach((record, row) => {
      refuse(!(record >= 0 && record < records) || place[record] !== -1, "a record");
      place[record] = row;
    });
    const outputs = Int32Array.from(await integers("outputs", count));
    refuse(outputs.some((output) => !(output >= 0 && output < records)), "an output");
    const floors = new BigUint64Array(count);
    let floor = 0n;
    bigPlanes(await inflate(sections.floors, 1 + 8 * count), count).forEach((step, column) => {
      floor += step;
      refuse(floor < 0n || floor > 1n << 62n, "a floor");
      floors[column] = floor;
    });

    let metric: Metric;
    if (kind === "haversine") {
      // Coordinates lie in the order of the file's rows.
      const turned = (values: Float64Array) => Float64Array.from(place, (row) => values[row]);
      const lat = turned(await floats("lat", records));
      const lon = turned(await floats("lon", records));
      refuse(lat.some((value) => !(Math.abs(value) <= 90)), "a latitude");
      refuse(lon.some((value) => !(Math.abs(value) <= 180)), "a longitude");
      metric = new Haversine(lat, lon);
    } else if (kind === "euclidean") {
      metric = new Euclidean(
        await floats("vectors", records * dimensions), records, dimensions, unit,
      );
    } else if (kind === "matrix") {
      metric = new Matrix(await floats("distances", records * records), records, unit);
    } else {
      throw new FormatError("metric", kind);
    }

    const blocks: Bytes[] = [];
    let at = 0;
    for (const length of header.blocks) {
      blocks.push(sections.blocks.subarray(at, at + length) as Bytes);
      at += length;
    }
    refuse(at !== sections.blocks.length, "the length of a block");
    refuse(blocks.length !== Math.ceil(records / BLOCK_ROWS), "the number of blocks");
    return new CompactTable(header, metric, order, place, outputs, floors, blocks);
  }

  private latest: { index: number; rows: Rows } | null = null;

  /** The rows of a block, in the order of the file; the latest one stays at hand. */
  async block(index: number): Promise<Rows> {
    if (this.latest?.index === index) return this.latest.rows;
    const count = Math.min(BLOCK_ROWS, this.size - BLOCK_ROWS * index);
    const most = 4 * count + Math.ceil((count * this.outputs.length) / 8) + 1
      + 8 * count * this.outputs.length;
    const rows = decodeBlock(await inflate(this.blocks[index], most), count, this.floors);
    this.latest = { index, rows };
    return rows;
  }

  /** The weights of a record, summing to 2^62. */
  async row(record: number): Promise<BigUint64Array> {
    const place = this.place[record];
    const rows = await this.block(Math.floor(place / BLOCK_ROWS));
    const m = this.outputs.length;
    const from = (place % BLOCK_ROWS) * m;
    return BigUint64Array.from(
      { length: m },
      (_, y) => (BigInt(rows.high[from + y]) << 32n) | BigInt(rows.low[from + y]),
    );
  }
}

/** A domain's name for certificates, computed from the places themselves. */
export async function fingerprint({ lat, lon }: Haversine): Promise<string> {
  const tag = utf8("haversine|km");
  const array = (values: Float64Array) => [
    utf8(`<f8(${values.length},)`), Float64Array.from(values).buffer as ArrayBuffer,
  ];
  const parts = [utf8(`|u1(${tag.length},)`), tag, ...array(lat), ...array(lon)];
  return sha256(new Uint8Array(await new Blob(parts).arrayBuffer()));
}

async function unpack(file: Bytes): Promise<{ header: Header; sections: Record<string, Bytes> }> {
  const damaged = new FormatError("checksum");
  const start = MAGIC.length + 4;
  if (file.length < start + 32) throw damaged;
  if (new TextDecoder().decode(file.subarray(0, MAGIC.length)) !== MAGIC) {
    throw new FormatError("notCompact");
  }
  const body = file.subarray(0, file.length - 32) as Bytes;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", body));
  if (hex(digest) !== hex(file.subarray(body.length))) throw damaged;
  const length = new DataView(file.buffer, file.byteOffset).getUint32(MAGIC.length, true);
  let header: Header;
  try {
    header = JSON.parse(new TextDecoder().decode(body.subarray(start, start + length))) as Header;
  } catch {
    throw new FormatError("damaged", "the header is not JSON");
  }
  if (header.format !== FORMAT || header.version !== 1) {
    throw new FormatError("otherFormat");
  }
  const sections: Record<string, Bytes> = {};
  let at = start + length;
  for (const [name, size] of Object.entries(header.sections)) {
    refuse(!(Number.isInteger(size) && size >= 0), "the length of a section");
    sections[name] = body.subarray(at, at + size) as Bytes;
    at += size;
  }
  refuse(at !== body.length, "the length of the sections");
  return { header, sections };
}

/** Decode the inflated bytes of a block; every sum is exact. */
export function decodeBlock(bytes: Uint8Array, n: number, floors: BigUint64Array): Rows {
  const m = floors.length;
  const flags = 4 * n;
  const tail = flags + Math.ceil((n * m) / 8);
  if (bytes.length < tail) throw new FormatError("damaged", "a block ends early");
  const raised = new Uint8Array(n * m);
  const rest = new Int32Array(n);
  let stored = 0;
  for (let i = 0; i < n; i++) {
    const parent = bytes[i];
    rest[i] = bytes[2 * n + 2 * i] + 256 * bytes[2 * n + 2 * i + 1];
    refuse(i > 0 && parent >= i, "the row of a parent");
    refuse(bytes[n + i] > MOST_BITS, "a precision");
    refuse(rest[i] >= m, "the column of a rest");
    for (let y = 0; y < m; y++) {
      const bit = y * n + i;
      const flag = (bytes[flags + (bit >> 3)] >> (7 - (bit & 7))) & 1;
      const up = flag ^ (i ? raised[parent * m + y] : 0);
      raised[i * m + y] = up;
      if (up && y !== rest[i]) stored++;
    }
  }
  const listed = planes(bytes.subarray(tail), stored);
  const changes = new Float64Array(n * m);
  for (let y = 0, k = 0; y < m; y++) {
    for (let i = 0; i < n; i++) {
      if (raised[i * m + y] && y !== rest[i]) changes[i * m + y] = listed[k++];
    }
  }
  const floorLow = Uint32Array.from(floors, (floor) => Number(floor & 0xffffffffn));
  const floorHigh = Uint32Array.from(floors, (floor) => Number(floor >> 32n));
  const low = new Uint32Array(n * m);
  const high = new Uint32Array(n * m);
  for (let i = 0; i < n; i++) {
    const from = i * m;
    const near = bytes[i] * m;
    const p = bytes[n + i];
    const scale = 2 ** p;
    low.set(floorLow, from);
    high.set(floorHigh, from);
    let sumLow = 0;
    let sumHigh = 0;
    for (let y = 0; y < m; y++) {
      if (y === rest[i]) continue;
      if (raised[from + y]) {
        const a = i ? high[near + y] : floorHigh[y];
        const b = i ? low[near + y] : floorLow[y];
        const digits = a ? 63 - Math.clz32(a) : 31 - Math.clz32(b);
        const down = digits > p ? digits - p : 0;
        const kept = down >= 32 ? a >>> (down - 32) : a * 2 ** (32 - down) + (down ? b >>> down : b);
        const code = down * scale + kept + changes[from + y];
        refuse(!(code >= 0 && code <= (63 - p) * scale), "a weight");
        const up = Math.max(0, Math.floor(code / scale) - 1);
        // At most p + 1 significant binary digits: exact.
        const weight = (code - up * scale) * 2 ** up;
        high[from + y] = Math.floor(weight / HALF);
        low[from + y] = weight % HALF;
      }
      sumHigh += high[from + y];
      sumLow += low[from + y];
    }
    const carried = sumHigh + Math.floor(sumLow / HALF);
    const odd = sumLow % HALF;
    const restHigh = 2 ** 30 - carried - (odd ? 1 : 0);
    refuse(restHigh < 0, "the sum of a row");
    high[from + rest[i]] = restHigh;
    low[from + rest[i]] = odd ? HALF - odd : 0;
  }
  return { count: n, low, high };
}
