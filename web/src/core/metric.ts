/**
 * Distances, by the same formulas and with the same error bounds as the library's
 * (docs/audit.md): nothing small is ever left over from a rounded difference.
 */

export const EARTH_RADIUS_KM = 6371.0088;
const RADIANS = Math.PI / 180;

export interface Metric {
  readonly size: number;
  readonly unit: string;
  /** Bound on the relative error of a computed distance. */
  readonly relativeError: number;
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
