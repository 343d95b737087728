/** What lies above the streets: the place, where it may be reported, and what was drawn. */

import type { MapView } from "../map/mapview";
import type { NameLayer } from "../map/names";

export interface Scene {
  /** Places of the outputs, metres. */
  readonly outputs: readonly (readonly [number, number])[];
  /** Places of all records, metres, x and y in turn. */
  readonly records: Float32Array;
  shares: Float64Array | null;
  place: readonly [number, number] | null;
  record: readonly [number, number] | null;
  drawn: readonly [number, number] | null;
  names: NameLayer | null;
  /** From 0 to 1 while the circles grow. */
  grown: number;
  /** From 0 to 1 while the drawn place appears. */
  shown: number;
}

export function paintScene(pen: CanvasRenderingContext2D, map: MapView, scene: Scene): void {
  const near = map.view.scale > 0.3;
  if (near) paintRecords(pen, map, scene);
  const pale = map.colour("pale");
  pen.globalAlpha = scene.shares ? 0.5 : 0.75;
  pen.fillStyle = pale;
  for (const [x, y] of scene.outputs) disc(pen, map.px(x), map.py(y), scene.shares ? 1.8 : 2.6);
  pen.globalAlpha = 1;
  if (scene.shares) paintShares(pen, map, scene, scene.shares);
  scene.names?.paint(pen, map);
  if (scene.place && scene.drawn) paintWay(pen, map, scene.place, scene.drawn, scene.shown);
  if (scene.place && scene.record) paintPlace(pen, map, scene.place, scene.record);
  if (scene.drawn) paintDrawn(pen, map, scene.drawn, scene.shown);
}

function disc(pen: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  pen.beginPath();
  pen.arc(x, y, Math.max(0, radius), 0, 2 * Math.PI);
  pen.fill();
}

function paintRecords(pen: CanvasRenderingContext2D, map: MapView, scene: Scene): void {
  pen.fillStyle = map.colour("pale");
  pen.globalAlpha = Math.min(0.75, (map.view.scale - 0.3) * 4);
  for (let k = 0; k < scene.records.length; k += 2) {
    const [x, y] = [map.px(scene.records[k]), map.py(scene.records[k + 1])];
    if (x > -4 && y > -4 && x < map.width + 4 && y < map.height + 4) disc(pen, x, y, 2.2);
  }
  pen.globalAlpha = 1;
}

/** Circles whose area is the probability; the likeliest one is no blot, whatever its share. */
function paintShares(
  pen: CanvasRenderingContext2D, map: MapView, scene: Scene, shares: Float64Array,
): void {
  const top = shares.reduce((a, b) => Math.max(a, b), 1e-9);
  const room = Math.min(map.width, map.height);
  const size = Math.min(0.075 * room, 46) / Math.sqrt(top);
  const order = Array.from(shares.keys()).sort((a, b) => shares[b] - shares[a]);
  const colour = map.colour("may");
  for (const column of order) {
    const radius = size * Math.sqrt(shares[column]) * scene.grown;
    if (radius < 0.7) break;
    const [x, y] = [map.px(scene.outputs[column][0]), map.py(scene.outputs[column][1])];
    pen.fillStyle = pen.strokeStyle = colour;
    pen.globalAlpha = 0.38;
    disc(pen, x, y, radius);
    pen.globalAlpha = 0.95;
    pen.lineWidth = 1.2;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function paintWay(
  pen: CanvasRenderingContext2D, map: MapView, from: readonly [number, number],
  to: readonly [number, number], shown: number,
): void {
  pen.strokeStyle = map.colour("ink");
  pen.lineWidth = 1.8;
  pen.setLineDash([2, 6]);
  pen.lineCap = "round";
  pen.beginPath();
  pen.moveTo(map.px(from[0]), map.py(from[1]));
  pen.lineTo(
    map.px(from[0] + (to[0] - from[0]) * shown), map.py(from[1] + (to[1] - from[1]) * shown),
  );
  pen.stroke();
  pen.setLineDash([]);
}

function paintPlace(
  pen: CanvasRenderingContext2D, map: MapView, place: readonly [number, number],
  record: readonly [number, number],
): void {
  const [x, y] = [map.px(place[0]), map.py(place[1])];
  const [rx, ry] = [map.px(record[0]), map.py(record[1])];
  const mine = map.colour("mine");
  if (Math.hypot(x - rx, y - ry) > 3) {
    pen.strokeStyle = mine;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(rx, ry);
    pen.stroke();
    pen.fillStyle = map.colour("paper");
    disc(pen, rx, ry, 5);
    pen.beginPath();
    pen.arc(rx, ry, 5, 0, 2 * Math.PI);
    pen.stroke();
  }
  pen.fillStyle = map.colour("paper");
  pen.shadowColor = "#0005";
  pen.shadowBlur = 6;
  disc(pen, x, y, 10);
  pen.shadowBlur = 0;
  pen.fillStyle = mine;
  disc(pen, x, y, 7);
}

/** A pin, because this is the place that is shown to others. */
function paintDrawn(
  pen: CanvasRenderingContext2D, map: MapView, at: readonly [number, number], shown: number,
): void {
  if (shown <= 0) return;
  const [x, y] = [map.px(at[0]), map.py(at[1])];
  const size = 13 * Math.min(1, 0.4 + 0.6 * shown);
  pen.save();
  pen.translate(x, y);
  pen.shadowColor = "#0006";
  pen.shadowBlur = 6;
  pen.beginPath();
  pen.moveTo(0, 0);
  pen.bezierCurveTo(-0.35 * size, -0.9 * size, -size, -1.1 * size, -size, -1.9 * size);
  pen.arc(0, -1.9 * size, size, Math.PI, 0);
  pen.bezierCurveTo(size, -1.1 * size, 0.35 * size, -0.9 * size, 0, 0);
  pen.fillStyle = map.colour("drawn");
  pen.fill();
  pen.shadowBlur = 0;
  pen.strokeStyle = map.colour("paper");
  pen.lineWidth = 2;
  pen.stroke();
  pen.fillStyle = map.colour("paper");
  disc(pen, 0, -1.9 * size, 0.38 * size);
  pen.restore();
}
