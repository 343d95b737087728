/** How far away reports fall: a small histogram. */

import type { Spread } from "../core/meaning";
import { distanceWords, percentWords } from "../core/words";
import { svg } from "../dom";
import { words } from "../words";

const [WIDTH, HEIGHT, FOOT, HEAD] = [380, 104, 18, 16];
const BINS = 22;

export function distanceChart(spread: Spread): SVGElement {
  const last = spread.steps.reduce(
    (found, step) => {
      found.sum += step.share;
      return found.sum < 0.995 ? { ...found, km: step.km } : found;
    },
    { sum: 0, km: spread.most },
  ).km;
  const end = niceEnd(Math.max(last, 1.2 * spread.expected));
  const bins = new Float64Array(BINS);
  for (const { km, share } of spread.steps) {
    bins[Math.min(BINS - 1, Math.floor((km / end) * BINS))] += share;
  }
  const top = bins.reduce((a, b) => Math.max(a, b), 1e-9);
  const x = (km: number) => (km / end) * WIDTH;
  const body = HEIGHT - FOOT - HEAD;
  const bars = Array.from(bins, (share, k) => {
    const high = (share / top) * body;
    return svg("rect", {
      x: ((k * WIDTH) / BINS + 1).toFixed(1),
      y: (HEAD + body - high).toFixed(1),
      width: (WIDTH / BINS - 2).toFixed(1),
      height: high.toFixed(1),
      rx: 2,
    });
  });
  const mean = x(spread.expected);
  const side = mean > WIDTH - 90 ? "end" : "start";
  return svg(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": words().chartSaid(
        distanceWords(spread.half), distanceWords(spread.most), percentWords(spread.top),
      ),
    },
    svg("g", { class: "bars" }, ...bars),
    svg("line", { class: "rule", x1: 0, x2: WIDTH, y1: HEIGHT - FOOT, y2: HEIGHT - FOOT }),
    svg("line", { class: "mean", x1: mean, x2: mean, y1: 4, y2: HEIGHT - FOOT }),
    svg("text", { x: mean + (side === "start" ? 5 : -5), y: 11, "text-anchor": side }, words().chartMean),
    ...[0, 0.5, 1].map((share) => svg(
      "text",
      {
        x: share * WIDTH, y: HEIGHT - 4,
        "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle",
      },
      share === 0 ? words().chartHere : distanceWords(share * end),
    )),
  );
}

function niceEnd(km: number): number {
  const power = 10 ** Math.floor(Math.log10(km));
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * power).find((value) => value >= km) ?? km;
}
