import { expect, test } from "vitest";
import { NameLayer } from "../src/map/names";
import { Plane } from "../src/map/plane";

const plane = new Plane(44.65, 10.93);
const named = (name: string, lat: number, lon: number) => ({ name, lat, lon, kind: "street" as const });
const layer = new NameLayer([
  named("Corso Canalgrande", 44.647, 10.93), named("Via dei Canali", 44.65, 10.93),
  named("Canaletto", 44.66, 10.93), named("Via Nicolò Biondo", 44.655, 10.94),
], plane);

test("names that begin with the text come first, then words, then parts", () => {
  expect(layer.search("canal", 8).map(({ name }) => name))
    .toEqual(["Canaletto", "Corso Canalgrande", "Via dei Canali"]);
  expect(layer.search("CANAL", 1)).toHaveLength(1);
  expect(layer.search("nicolo", 8)[0].name).toBe("Via Nicolò Biondo");
  expect(layer.search("c", 8)).toEqual([]);
  expect(layer.search("roma", 8)).toEqual([]);
});

test("a place is near a name within 250 m, or near none", () => {
  expect(layer.near(plane.x(10.9301), plane.y(44.6501))).toBe("Via dei Canali");
  expect(layer.near(plane.x(10.90), plane.y(44.60))).toBeNull();
});
