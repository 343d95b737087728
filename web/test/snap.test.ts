import { expect, test } from "vitest";
import { Area } from "../src/core/area";
import { SnapError } from "../src/core/errors";
import { Haversine, haversineKm } from "../src/core/metric";
import { checkPlace, nearest } from "../src/core/snap";
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
      const far = () => nearest(metric, place.lat, place.lon).km;
      if (place.lat > 90 || place.lon < -180 || place.lon > 360) expect(far).toThrow(SnapError);
      else expect(far()).toBeGreaterThan(place.limit_km);
      continue;
    }
    const found = nearest(metric, place.lat, place.lon);
    expect(found.record).toBe(place.record);
    expect(Math.abs(found.km - place.km)).toBeLessThanOrEqual(snapping.relative_error * place.km);
  }
});

test("a refusal names no place", () => {
  expect(() => checkPlace(97.123, 11.456)).toThrow(/^(?!.*(97|11\.4)).*$/);
});

interface Areas {
  lat: number[];
  lon: number[];
  size_km2: number;
  hole_km: number;
  cases: { lat: number; lon: number; to_lat: number; to_lon: number }[];
}

test("areas, their holes and the nearest points of them are Python's", () => {
  for (const { lat, lon, size_km2, hole_km, cases } of vectors<{ sets: Areas[] }>("areas.json").sets) {
    const metric = new Haversine(Float64Array.from(lat), Float64Array.from(lon));
    const area = Area.around(metric);
    expect(area.size).toBeCloseTo(size_km2, 6);
    expect(area.hole(metric)).toBeCloseTo(hole_km, 6);
    for (const { to_lat, to_lon, ...place } of cases) {
      const found = area.clamp(place);
      expect(haversineKm(found.lat, found.lon, to_lat, to_lon)).toBeLessThan(1e-6);
    }
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
