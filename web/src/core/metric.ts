/**
 * Distances, by the same formulas and with the same error bounds as the library's
 * (docs/audit.md): nothing small is ever left over from a rounded difference.
 */

import { FormatError } from "./errors";

export const EARTH_RADIUS_KM = 6371.0088;
const RADIANS = Math.PI / 180;

export interface Metric {
  readonly size: number;
  readonly unit: string;
  /** Bound on the relative error of a computed distance. */
  readonly relativeError: number;
  /** Pairs whose ratios imply those of all others, two records after the other; none: all pairs. */
  readonly generating?: Int32Array;
  distance(first: number, second: number): number;
}

/** cos of degrees to full relative accuracy: near a pole, the sine of the exact complement. */
export function latitudeCosine(lat: number): number {
  const size = Math.abs(lat);
  return size > 45 ? Math.sin((90 - size) * RADIANS) : Math.cos(lat * RADIANS);
}

/** |lon - lon2| the short way round, in degrees. */
export function longitudeGap(lon: number, lon2: number): number {
  const gap = Math.abs(lon - lon2);
  return gap <= 180 ? gap : 180 - Math.max(lon, lon2) + (180 + Math.min(lon, lon2));
}

/** Great-circle distance in km between places given in degrees. */
export function haversineKm(lat: number, lon: number, lat2: number, lon2: number): number {
  return arcKm(lat, lon, latitudeCosine(lat), lat2, lon2, latitudeCosine(lat2));
}

function arcKm(
  lat: number, lon: number, cos: number, lat2: number, lon2: number, cos2: number,
): number {
  const halfLat = ((lat - lat2) * RADIANS) / 2;
  const halfLon = (longitudeGap(lon, lon2) * RADIANS) / 2;
  const cosines = cos * cos2;
  const a = Math.sin(halfLat) ** 2 + cosines * Math.sin(halfLon) ** 2;
  if (a <= 0.5) return 2 * EARTH_RADIUS_KM * Math.asin(Math.sqrt(a));
  // arcsin loses half its digits near the antipode; measure from the antipode instead.
  const halfSum = ((lat + lat2) * RADIANS) / 2;
  const rest = Math.sin(halfSum) ** 2 + cosines * Math.cos(halfLon) ** 2;
  return EARTH_RADIUS_KM * (Math.PI - 2 * Math.asin(Math.sqrt(Math.min(rest, 1))));
}

export class Haversine implements Metric {
  readonly unit = "km";
  readonly relativeError = 5e-15;
  readonly size: number;
  private readonly cosines: Float64Array;

  constructor(readonly lat: Float64Array, readonly lon: Float64Array) {
    this.size = lat.length;
    this.cosines = Float64Array.from(lat, latitudeCosine);
  }

  distance(first: number, second: number): number {
    const { lat, lon, cosines } = this;
    return arcKm(
      lat[first], lon[first], cosines[first], lat[second], lon[second], cosines[second],
    );
  }

  /** Some of the places. */
  take(records: readonly number[]): Haversine {
    return new Haversine(
      Float64Array.from(records, (k) => this.lat[k]), Float64Array.from(records, (k) => this.lon[k]),
    );
  }

  /** Distance in km from a place, in degrees, to a record. */
  distanceFrom(lat: number, lon: number, record: number): number {
    return arcKm(
      lat, lon, latitudeCosine(lat), this.lat[record], this.lon[record], this.cosines[record],
    );
  }
}

export class Euclidean implements Metric {
  readonly relativeError: number;

  constructor(
    readonly vectors: Float64Array, readonly size: number, readonly dimensions: number,
    readonly unit: string,
  ) {
    // Plain sums of squares: one rounding for each dimension.
    this.relativeError = (dimensions / 2 + 6) * 2 ** -53;
  }

  distance(first: number, second: number): number {
    const { vectors, dimensions } = this;
    let sum = 0;
    for (let k = 0; k < dimensions; k++) {
      const gap = vectors[first * dimensions + k] - vectors[second * dimensions + k];
      sum += gap * gap;
    }
    return Math.sqrt(sum);
  }
}

export class Matrix implements Metric {
  readonly relativeError = 0;

  constructor(readonly distances: Float64Array, readonly size: number, readonly unit: string) {}

  distance(first: number, second: number): number {
    return this.distances[first * this.size + second];
  }
}

/** A step of a path, of the unit. */
const STEP = 2 ** -30;
const MOST_STEPS = 2 ** 53;

/**
 * Shortest paths over edges between records. Lengths are whole steps, so sums are exact; what holds
 * along every edge holds between all records, as a shortest path multiplies it.
 */
export class Graph implements Metric {
  readonly relativeError = 0;
  readonly generating: Int32Array;
  private readonly starts: Int32Array;
  private readonly ends: Int32Array;
  private readonly lengths: Float64Array;
  private latest: { source: number; away: Float64Array } | null = null;

  constructor(
    edges: Int32Array, steps: Float64Array, readonly size: number, readonly unit: string,
    readonly places: Haversine | null,
  ) {
    this.generating = edges;
    this.starts = new Int32Array(size + 1);
    for (const end of edges) this.starts[end + 1]++;
    for (let x = 0; x < size; x++) this.starts[x + 1] += this.starts[x];
    const at = this.starts.slice();
    this.ends = new Int32Array(edges.length);
    this.lengths = new Float64Array(edges.length);
    for (let e = 0; e < steps.length; e++) {
      for (const side of [0, 1]) {
        const place = at[edges[2 * e + side]]++;
        this.ends[place] = edges[2 * e + 1 - side];
        this.lengths[place] = steps[e];
      }
    }
    this.check(edges, steps);
  }

  /** Edges ascend, join all records, and none has a path around it that is as short. */
  private check(edges: Int32Array, steps: Float64Array): void {
    const { starts, ends, lengths, size } = this;
    let sum = 0;
    for (let e = 0; e < steps.length; e++) {
      const [i, j] = [edges[2 * e], edges[2 * e + 1]];
      const after = e === 0 || edges[2 * e - 2] < i || (edges[2 * e - 2] === i && edges[2 * e - 1] < j);
      if (!(i < j && after && steps[e] >= 1)) throw new FormatError("damaged", "an edge is out of order or has no length");
      sum += steps[e];
    }
    if (sum >= MOST_STEPS) throw new FormatError("damaged", "the edges are too long");
    if (size > 0 && this.search(0, Infinity).some((away) => away === Infinity)) {
      throw new FormatError("damaged", "some records are joined by no path");
    }
    for (let x = 0; x < size; x++) {
      let longest = 0;
      for (let k = starts[x]; k < starts[x + 1]; k++) longest = Math.max(longest, lengths[k]);
      const away = this.search(x, longest);
      for (let k = starts[x]; k < starts[x + 1]; k++) {
        for (let q = starts[ends[k]]; q < starts[ends[k] + 1]; q++) {
          if (ends[q] !== x && away[ends[q]] + lengths[q] <= lengths[k]) {
            throw new FormatError("damaged", "an edge is no shorter than a path around it");
          }
        }
      }
    }
  }

  private readonly away = { values: new Float64Array(0), touched: [] as number[] };

  /** Steps from a record to all others, Infinity beyond the limit; the array is overwritten by the next search. */
  private search(source: number, limit: number): Float64Array {
    const { starts, ends, lengths, away } = this;
    if (away.values.length !== this.size) away.values = new Float64Array(this.size).fill(Infinity);
    for (const record of away.touched) away.values[record] = Infinity;
    away.touched = [source];
    away.values[source] = 0;
    const heap = new Heap();
    heap.push(0, source);
    for (let next = heap.pop(); next; next = heap.pop()) {
      const [far, record] = next;
      if (far > away.values[record]) continue;
      for (let k = starts[record]; k < starts[record + 1]; k++) {
        const found = far + lengths[k];
        if (found > limit || found >= away.values[ends[k]]) continue;
        if (away.values[ends[k]] === Infinity) away.touched.push(ends[k]);
        away.values[ends[k]] = found;
        heap.push(found, ends[k]);
      }
    }
    return away.values;
  }

  distance(first: number, second: number): number {
    for (let k = this.starts[first]; k < this.starts[first + 1]; k++) {
      if (this.ends[k] === second) return STEP * this.lengths[k];
    }
    if (this.latest?.source !== first) {
      this.latest = { source: first, away: this.search(first, Infinity).map((steps) => STEP * steps) };
    }
    return this.latest.away[second];
  }
}

/** Records by how far away they are, the nearest first. */
class Heap {
  private readonly keys: number[] = [];
  private readonly values: number[] = [];

  push(key: number, value: number): void {
    const { keys, values } = this;
    let at = keys.length;
    while (at > 0 && keys[(at - 1) >> 1] > key) {
      keys[at] = keys[(at - 1) >> 1];
      values[at] = values[(at - 1) >> 1];
      at = (at - 1) >> 1;
    }
    keys[at] = key;
    values[at] = value;
  }

  pop(): [number, number] | null {
    const { keys, values } = this;
    if (!keys.length) return null;
    const top: [number, number] = [keys[0], values[0]];
    const [key, value] = [keys.pop() as number, values.pop() as number];
    const size = keys.length;
    for (let at = 0; size > 0;) {
      let child = 2 * at + 1;
      if (child + 1 < size && keys[child + 1] < keys[child]) child++;
      if (child >= size || keys[child] >= key) {
        keys[at] = key;
        values[at] = value;
        break;
      }
      keys[at] = keys[child];
      values[at] = values[child];
      at = child;
    }
    return top;
  }
}
