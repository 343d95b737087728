import { expect, test } from "vitest";
import { SnapError } from "../src/core/errors";
import { Haversine, haversineKm } from "../src/core/metric";
import { snap } from "../src/core/snap";
import { vectors } from "./vectors";

interface Case {
  lat: number;
  lon: number;
  limit_km: number;
  record: number | null;
  km: number | null;
}

interface Snapping {
  relative_error: number;
  sets: { name: string; lat: number[]; lon: number[]; cases: Case[] }[];
}

const snapping = vectors<Snapping>("snapping.json");

test.each(snapping.sets)("snapping is Python's: $name", ({ lat, lon, cases }) => {
  const metric = new Haversine(Float64Array.from(lat), Float64Array.from(lon));
  for (const place of cases) {
    if (place.record === null || place.km === null) {
      expect(() => snap(metric, place.lat, place.lon, place.limit_km)).toThrow(SnapError);
      continue;
    }
    const found = snap(metric, place.lat, place.lon, place.limit_km);
    expect(found.record).toBe(place.record);
    expect(Math.abs(found.km - place.km)).toBeLessThanOrEqual(snapping.relative_error * place.km);
  }
});

test("a refusal names neither the place nor its distance", () => {
  const metric = new Haversine(Float64Array.of(45), Float64Array.of(9));
  try {
    snap(metric, 47.123, 11.456, 0.5);
    expect.unreachable();
  } catch (error) {
    expect(String(error)).not.toMatch(/47|11\.4|2\d\d/);
  }
});

test("distances are Python's to 1e-12", () => {
  interface Pair {
    from: [number, number];
    to: [number, number];
    km: number;
  }
  const { relative_error, pairs } = vectors<{ relative_error: number; pairs: Pair[] }>("distances.json");
  for (const { from, to, km } of pairs) {
    const found = haversineKm(...from, ...to);
    expect(Math.abs(found - km)).toBeLessThanOrEqual(relative_error * km);
  }
});
