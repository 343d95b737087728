/** Places without a map: parts of the map by direction, then the places in them. */

import type { Haversine } from "../core/metric";
import { countWords, distanceWords, eighth, wind } from "../core/words";
import { make } from "../dom";
import type { Plane } from "../map/plane";
import { words } from "../words";

interface Area {
  readonly records: number[];
  /** Eighths from north over east; -1 in the centre. */
  readonly direction: number;
  readonly km: number;
}

/** About as many areas as places in each, halved along the longer side. */
export function areasOf(xy: Float32Array): number[][] {
  const size = xy.length / 2;
  const most = Math.max(12, Math.ceil(Math.sqrt(size)));
  const out: number[][] = [];
  const split = (part: number[]): void => {
    if (part.length <= most) {
      out.push(part);
      return;
    }
    const range = (axis: number) => {
      let [low, high] = [Infinity, -Infinity];
      for (const k of part) {
        low = Math.min(low, xy[2 * k + axis]);
        high = Math.max(high, xy[2 * k + axis]);
      }
      return high - low;
    };
    const axis = range(0) > range(1) ? 0 : 1;
    part.sort((a, b) => xy[2 * a + axis] - xy[2 * b + axis]);
    split(part.slice(0, part.length >> 1));
    split(part.slice(part.length >> 1));
  };
  split(Array.from({ length: size }, (_, k) => k));
  return out;
}

export class PlaceList {
  private areas: Area[] = [];

  constructor(
    private readonly area: HTMLSelectElement, private readonly place: HTMLSelectElement,
  ) {
    area.addEventListener("change", () => this.fillPlaces());
  }

  /** The record that is selected. */
  get chosen(): number {
    return Number(this.place.value);
  }

  /** `named` says what a place in metres is near, where that is known. */
  fill(metric: Haversine, plane: Plane, named: (x: number, y: number) => string | null): void {
    const xy = plane.points(metric.lat, metric.lon);
    this.describe = (record) => {
      const [x, y] = [xy[2 * record], xy[2 * record + 1]];
      const name = named(x, y);
      const where = words().listed(distanceWords(Math.hypot(x, y) / 1000), wind(x, y));
      const numbers = `(${metric.lat[record].toFixed(5)}, ${metric.lon[record].toFixed(5)})`;
      return name ? `${name}: ${where} ${numbers}` : `${where} ${numbers}`;
    };
    this.areas = areasOf(xy).map((records) => {
      const x = records.reduce((sum, k) => sum + xy[2 * k], 0) / records.length;
      const y = records.reduce((sum, k) => sum + xy[2 * k + 1], 0) / records.length;
      const km = Math.hypot(x, y) / 1000;
      const reach = Math.max(...records.map((k) => Math.hypot(xy[2 * k] - x, xy[2 * k + 1] - y)));
      const direction = 1000 * km < reach / 2 ? -1 : eighth(x, y);
      // From west to east, so that neighbours in the list are neighbours on the map.
      records.sort((a, b) => xy[2 * a] - xy[2 * b]);
      return { records, direction, km };
    });
    this.areas.sort((a, b) => a.direction - b.direction || a.km - b.km);
    const said = words();
    const groups = [-1, 0, 1, 2, 3, 4, 5, 6, 7].map((direction) => {
      const label = direction < 0 ? said.centre : said.winds[direction];
      const group = make("optgroup", { label });
      this.areas.forEach((area, k) => {
        if (area.direction !== direction) return;
        group.append(make(
          "option", { value: String(k) },
          said.listedArea(label, distanceWords(area.km), countWords(area.records.length)),
        ));
      });
      return group;
    }).filter((group) => group.childElementCount > 0);
    this.area.replaceChildren(...groups);
    this.fillPlaces();
  }

  describe: (record: number) => string = String;

  private fillPlaces(): void {
    const area = this.areas[Number(this.area.value)];
    this.place.replaceChildren(
      ...area.records.map((k) => make("option", { value: String(k) }, this.describe(k))),
    );
  }
}
