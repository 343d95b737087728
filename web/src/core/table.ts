/**
 * A table in blocks (docs/format.md): every field checked, one block decoded when a row is wanted.
 *
 * Weights have 62 bits. They are decoded as pairs of 32-bit halves, in numbers that are exact
 * throughout (codes are below 2^52), and handed out as 64-bit integers.
 */

import { type Bytes, sha256, utf8 } from "./bytes";
import { Container, type Header, inflate, planes, refuse } from "./container";
import { FormatError } from "./errors";
import { identityOf } from "./identity";
import { Euclidean, Graph, Haversine, Matrix, type Metric } from "./metric";

export const BLOCK_ROWS = 256;
const MOST_BITS = 46;
const HALF = 2 ** 32;

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
    private readonly open: Container,
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

  /** Where the records lie on a map. */
  get places(): Haversine {
    if (this.metric instanceof Haversine) return this.metric;
    if (this.metric instanceof Graph && this.metric.places) return this.metric.places;
    throw new FormatError("noMap");
  }

  async fingerprint(): Promise<string> {
    return fingerprint(this.places, this.header.domain.labels);
  }

  /** Read a whole file: checksum, header, places; the rows are decoded when they are wanted. */
  static async read(file: Bytes): Promise<CompactTable> {
    const open = await Container.open(file);
    if (open.header.selection) throw new FormatError("otherFormat");
    return CompactTable.of(open);
  }

  /** The rows of a file that was opened, whatever is drawn from them. */
  static async of(open: Container): Promise<CompactTable> {
    const { header } = open;
    if (header.mesh || header.outputs.kind !== "records" || !open.has("blocks")) {
      throw new FormatError("otherFormat");
    }
    const [records, count] = [open.length("order"), open.length("floor")];
    refuse(!(records > 0 && records <= 2 ** 24), "the size");
    refuse(!(count > 0 && count <= 65536), "the number of outputs");
    const order = await open.records("order", records, records);
    const place = new Int32Array(records).fill(-1);
    order.forEach((record, row) => {
      refuse(place[record] !== -1, "a record");
      place[record] = row;
    });
    const outputs = await open.records("outputs", records, count);
    const floors = BigUint64Array.from(await open.integers("floor", count), (floor) => {
      refuse(floor < 0n || floor > 1n << 62n, "a floor");
      return floor;
    });
    return new CompactTable(
      header, await metricOf(open, records), order, place, outputs, floors, blocksOf(open, records), open,
    );
  }

  /** SHA-256 over everything that has a meaning. */
  async identity(): Promise<string> {
    const m = this.outputs.length;
    const weights = new BigUint64Array(this.size * m);
    const halves = new Uint32Array(weights.buffer);
    for (let b = 0; b < this.blockCount; b++) {
      const { count, low, high } = await this.block(b);
      for (let i = 0, from = 0; i < count; i++) {
        for (let y = 0, to = 2 * m * this.order[b * BLOCK_ROWS + i]; y < m; y++, from++) {
          halves[to++] = low[from];
          halves[to++] = high[from];
        }
      }
    }
    return identityOf(this.open, [[this.size, m], weights]);
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

async function placesOf(open: Container, records: number): Promise<Haversine> {
  const [lat, lon] = [await open.floats("lat", records), await open.floats("lon", records)];
  refuse(lat.some((value) => !(Math.abs(value) <= 90)), "a latitude");
  refuse(lon.some((value) => !(Math.abs(value) <= 180)), "a longitude");
  return new Haversine(lat, lon);
}

async function metricOf(open: Container, records: number): Promise<Metric> {
  const { kind, unit } = open.header.domain;
  if (kind === "haversine") return placesOf(open, records);
  if (kind === "graph") {
    const count = open.length("steps");
    const edges = await open.records("edges", records, count, 2);
    const steps = await open.integers("steps", count);
    refuse(steps.some((length) => length < 1n || length >= 1n << 53n), "the length of an edge");
    const places = open.has("lat") || open.has("lon") ? await placesOf(open, records) : null;
    return new Graph(edges, Float64Array.from(steps, Number), records, unit, places);
  }
  if (kind === "euclidean") {
    const dimensions = open.section("vectors").shape[1];
    return new Euclidean(await open.floats("vectors", records, dimensions), records, dimensions, unit);
  }
  if (kind === "matrix") return new Matrix(await open.floats("distances", records, records), records, unit);
  throw new FormatError("metric", kind);
}

function blocksOf(open: Container, records: number): Bytes[] {
  const { data } = open.section("blocks");
  const blocks: Bytes[] = [];
  for (let at = 0; at < data.length;) {
    refuse(at + 4 > data.length, "the length of a block");
    const end = at + 4 + new DataView(data.buffer, data.byteOffset + at).getUint32(0, true);
    refuse(end > data.length, "the length of a block");
    blocks.push(data.subarray(at + 4, end) as Bytes);
    at = end;
  }
  refuse(blocks.length !== Math.ceil(records / BLOCK_ROWS), "the number of blocks");
  return blocks;
}

/** A domain's name, computed from the places and labels themselves. */
export async function fingerprint({ lat, lon }: Haversine, labels: unknown = null): Promise<string> {
  const tag = utf8("haversine|km");
  const array = (values: Float64Array) => [
    utf8(`<f8(${values.length},)`), Float64Array.from(values).buffer as ArrayBuffer,
  ];
  const parts = [utf8(`|u1(${tag.length},)`), tag, ...array(lat), ...array(lon)];
  const places = await sha256(new Uint8Array(await new Blob(parts).arrayBuffer()));
  return labels === null ? places : sha256(utf8(`${places}|${JSON.stringify(labels)}`));
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
