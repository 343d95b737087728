/** Names of streets and landmarks: written on the map, searched, and said of a place. */

import type { PlaceName } from "../core/api";
import type { MapView } from "./mapview";
import type { Plane } from "./plane";

/** Beyond so many metres a name does not describe a place. */
const NEAR_M = 250;
const MOST_SHOWN = 60;

function plain(text: string): string {
  return text.normalize("NFD").replaceAll(/\p{M}/gu, "").toLowerCase();
}

export class NameLayer {
  private readonly xy: Float32Array;
  private readonly plain: string[];

  constructor(readonly names: readonly PlaceName[], plane: Plane) {
    this.xy = plane.points(names.map(({ lat }) => lat), names.map(({ lon }) => lon));
    this.plain = names.map(({ name }) => plain(name));
  }

  /** Names that begin with a text, then those with a word that does, then those that hold it. */
  search(text: string, most: number): PlaceName[] {
    const wanted = plain(text.trim());
    if (wanted.length < 2) return [];
    const ranked: { rank: number; k: number }[] = [];
    this.plain.forEach((name, k) => {
      const at = name.indexOf(wanted);
      if (at < 0) return;
      const rank = at === 0 ? 0 : /[\s'-]/.test(name[at - 1]) ? 1 : 2;
      ranked.push({ rank, k });
    });
    ranked.sort((a, b) => a.rank - b.rank || a.k - b.k);
    return ranked.slice(0, most).map(({ k }) => this.names[k]);
  }

  /** The nearest name to a place in metres, if there is one near. */
  near(x: number, y: number): string | null {
    let [best, metres] = [-1, NEAR_M];
    for (let k = 0; k < this.names.length; k++) {
      const apart = Math.hypot(this.xy[2 * k] - x, this.xy[2 * k + 1] - y);
      if (apart < metres) [best, metres] = [k, apart];
    }
    return best < 0 ? null : this.names[best].name;
  }

  /** Write the names that fit: landmarks first, then in the order of the list. */
  paint(pen: CanvasRenderingContext2D, map: MapView): void {
    const { scale } = map.view;
    // Far out a name would cover whole quarters.
    if (scale < 0.04) return;
    const boxes: [number, number, number, number][] = [];
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    pen.strokeStyle = map.colour("ground");
    for (const kind of ["landmark", "street"] as const) {
      if (kind === "street" && scale < 0.09) continue;
      const bold = kind === "landmark";
      pen.font = `${bold ? 600 : 500} ${bold ? 12.5 : 11.5}px system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif`;
      for (let k = 0; k < this.names.length && boxes.length < MOST_SHOWN; k++) {
        if (this.names[k].kind !== kind) continue;
        const [x, y] = [map.px(this.xy[2 * k]), map.py(this.xy[2 * k + 1])];
        if (x < 0 || y < 0 || x > map.width || y > map.height) continue;
        const { name } = this.names[k];
        const half = pen.measureText(name).width / 2 + 5;
        const top = y + (bold ? 11 : 0);
        const box: [number, number, number, number] = [x - half, top - 9, x + half, top + 9];
        if (boxes.some((b) => b[0] < box[2] && box[0] < b[2] && b[1] < box[3] && box[1] < b[3])) continue;
        boxes.push(box);
        pen.lineWidth = 3.5;
        pen.strokeText(name, x, top);
        pen.fillStyle = map.colour(bold ? "ink" : "pale");
        if (bold) {
          pen.beginPath();
          pen.arc(x, y, 2.6, 0, 7);
          pen.fill();
        }
        pen.fillText(name, x, top);
      }
    }
    pen.textBaseline = "alphabetic";
  }
}
