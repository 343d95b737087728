/** From a place to the record that stands for it, as `Domain.snap` of the library does it. */

import { SnapError } from "./errors";
import type { Haversine } from "./metric";

export interface Snap {
  readonly record: number;
  readonly km: number;
}

/** A longitude up to 360 as one in [-180, 180], or a refusal. */
export function checkPlace(lat: number, lon: number): { lat: number; lon: number } {
  if (!(lat >= -90 && lat <= 90 && lon >= -180 && lon <= 360)) {
    throw new SnapError("noPlace");
  }
  return { lat, lon: lon >= 180 ? lon - 360 : lon };
}

/** The nearest record; of several the one with the lowest index. */
export function nearest(metric: Haversine, lat: number, lon: number): Snap {
  const place = checkPlace(lat, lon);
  let record = 0;
  let km = Infinity;
  for (let k = 0; k < metric.size; k++) {
    const apart = metric.distanceFrom(place.lat, place.lon, k);
    if (apart < km) {
      km = apart;
      record = k;
    }
  }
  return { record, km };
}
