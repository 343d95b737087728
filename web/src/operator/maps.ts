/** Three maps that move together: reports, the estimate, and how unsure it is. */

import type { Streets } from "../core/api";
import { distanceWords, percentWords } from "../core/words";
import { by, make } from "../dom";
import { MapView } from "../map/mapview";
import type { Plane } from "../map/plane";
import { type Field, gridFor, kernelWidth, picture, shade, smooth } from "./density";

export interface Places {
  readonly plane: Plane;
  readonly xy: Float32Array;
  readonly lat: ArrayLike<number>;
  readonly lon: ArrayLike<number>;
  readonly outputs: ArrayLike<number>;
  readonly streets: Streets | null;
}

export interface Counts {
  readonly reports: number;
  readonly outputs: readonly number[];
  readonly counts: readonly number[];
  readonly per_hour: readonly { readonly hour: string; readonly count: number }[];
}

export interface ZoneEstimate {
  readonly raw: number;
  readonly share: number;
  readonly low: number;
  readonly high: number;
  readonly told_apart: boolean;
}

export interface Estimate {
  readonly records: readonly number[];
  readonly share: readonly number[];
  /** The number of each record's zone. */
  readonly zone: readonly number[];
  readonly zones: readonly ZoneEstimate[];
  readonly users: number;
  readonly reports: number;
  readonly confidence: number;
}

export class DensityMaps {
  private readonly maps: MapView[];
  private readonly pictures: (HTMLCanvasElement | null)[] = [null, null, null];
  private fields: (Field | null)[] = [null, null, null];
  private places: Places | null = null;
  private top = 1;
  private moving = false;

  constructor() {
    this.maps = ["map-reported", "map-estimated", "map-unsure"].map((id, k) => {
      const map = new MapView(by(id), { onMove: () => this.follow(k) });
      map.painter = (pen) => this.paint(pen, map, k);
      return map;
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.colour());
  }

  setPlaces(places: Places): void {
    this.places = places;
    this.fields = [null, null, null];
    this.pictures.fill(null);
    for (const map of this.maps) {
      map.setPlaces(places.plane, places.xy);
      map.setStreets(places.streets);
    }
  }

  /** Both densities on one scale. Returns what the maps show, in words. */
  show(counts: Counts, estimate: Estimate | null): string {
    const { places } = this;
    if (!places) return "";
    const width = kernelWidth(places.xy, places.outputs);
    const grid = gridFor(places.xy, width);
    const total = Math.max(1, counts.counts.reduce((a, b) => a + b, 0));
    const reported = smooth(
      grid, places.xy, counts.outputs, counts.counts.map((count) => count / total), width,
    );
    this.fields = [reported, null, null];
    if (estimate && estimate.records.length) {
      const sizes = estimate.zones.map(() => 0);
      for (const zone of estimate.zone) sizes[zone] += 1;
      const half = estimate.zone.map((zone) => {
        const { low, high } = estimate.zones[zone];
        return (high - low) / 2 / sizes[zone];
      });
      this.fields[1] = smooth(grid, places.xy, estimate.records, estimate.share, width);
      this.fields[2] = smooth(grid, places.xy, estimate.records, half, width);
    }
    // One scale for the two that are compared, so that a colour means the same in both.
    this.top = Math.max(
      1e-12, ...this.fields.slice(0, 2).flatMap((field) => (field ? [field.values.reduce((a, b) => Math.max(a, b), 0)] : [])),
    );
    this.colour();
    const smoothing = `All maps are smoothed over ${distanceWords(width / 1000)} and share one scale, `
      + "in share of people per square km.";
    if (!estimate) return `${smoothing} There is no estimate yet.`;
    return `${smoothing} The estimate undoes the table's noise by penalised likelihood `
      + `(${estimate.reports.toLocaleString("en")} reports of ${estimate.users.toLocaleString("en")} users). `
      + `The third map is half the width of the ${percentWords(estimate.confidence)} limits of each of `
      + `${estimate.zones.length} zones of near places, spread over the zone. The limits hold wherever `
      + "people are; where the map is as strong as the second, the reports say little.";
  }

  private dark(): boolean {
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  private colour(): void {
    const dark = this.dark();
    this.fields.forEach((field, k) => {
      this.pictures[k] = field && picture(field, this.top, dark);
    });
    for (const map of this.maps) map.draw();
    const bar = make("canvas", { width: "150", height: "1" });
    const pen = bar.getContext("2d");
    for (let x = 0; x < 150 && pen; x++) {
      pen.fillStyle = `rgb(${shade(x / 149, dark).join(" ")})`;
      pen.fillRect(x, 0, 1, 1);
    }
    const scale = by("scale");
    const most = `${Number((100 * this.top).toPrecision(2)).toLocaleString("en")} %`;
    scale.replaceChildren(make("span", {}, "0"), bar, make("span", {}, `${most} per km²`));
    scale.setAttribute("aria-label", `Colour scale from 0 to ${most} of people per square km`);
  }

  private paint(pen: CanvasRenderingContext2D, map: MapView, which: number): void {
    const field = this.fields[which];
    const image = this.pictures[which];
    if (field && image) {
      pen.imageSmoothingEnabled = true;
      pen.imageSmoothingQuality = "high";
      pen.globalCompositeOperation = this.dark() ? "screen" : "multiply";
      pen.drawImage(
        image, map.px(field.x), map.py(field.y + field.rows * field.cell),
        field.columns * field.cell * map.view.scale, field.rows * field.cell * map.view.scale,
      );
      pen.globalCompositeOperation = "source-over";
    }
    if (which === 0 && this.places) {
      pen.fillStyle = map.colour("ink");
      pen.globalAlpha = 0.55;
      const { xy, outputs } = this.places;
      for (let k = 0; k < outputs.length; k++) {
        pen.beginPath();
        pen.arc(map.px(xy[2 * outputs[k]]), map.py(xy[2 * outputs[k] + 1]), 1.5, 0, 7);
        pen.fill();
      }
      pen.globalAlpha = 1;
    }
  }

  private follow(leader: number): void {
    if (this.moving || !this.maps) return;
    this.moving = true;
    this.maps.forEach((map, k) => {
      if (k !== leader) map.moveTo(this.maps[leader].view);
    });
    this.moving = false;
  }
}
