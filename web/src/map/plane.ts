/** A small part of the earth as a plane, in metres; for drawing and pointing only. */

const METRES = (Math.PI / 180) * 6371008.8;

export class Plane {
  private readonly along: number;

  constructor(readonly lat: number, readonly lon: number) {
    this.along = METRES * Math.cos((lat * Math.PI) / 180);
  }

  static around(lat: ArrayLike<number>, lon: ArrayLike<number>): Plane {
    const middle = (values: ArrayLike<number>) => {
      let [low, high] = [Infinity, -Infinity];
      for (let k = 0; k < values.length; k++) {
        low = Math.min(low, values[k]);
        high = Math.max(high, values[k]);
      }
      return (low + high) / 2;
    };
    return new Plane(middle(lat), middle(lon));
  }

  x(lon: number): number {
    return (lon - this.lon) * this.along;
  }

  y(lat: number): number {
    return (lat - this.lat) * METRES;
  }

  latOf(y: number): number {
    return this.lat + y / METRES;
  }

  lonOf(x: number): number {
    return this.lon + x / this.along;
  }

  points(lat: ArrayLike<number>, lon: ArrayLike<number>, scale = 1): Float32Array {
    const out = new Float32Array(2 * lat.length);
    for (let k = 0; k < lat.length; k++) {
      out[2 * k] = this.x(lon[k] * scale);
      out[2 * k + 1] = this.y(lat[k] * scale);
    }
    return out;
  }
}
