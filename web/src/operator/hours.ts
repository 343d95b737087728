/** Reports per hour as bars. Hours without reports are hours too. */

import { countWords } from "../core/words";
import { svg } from "../dom";

export interface Hour {
  readonly hour: string;
  readonly count: number;
}

const [HEIGHT, FOOT, HEAD] = [150, 20, 14];
const MOST = 72;

/** The last hours up to now, gaps filled with zeros. */
export function fillHours(hours: readonly Hour[], now: number): { at: number; count: number }[] {
  const counts = new Map(
    hours.map(({ hour, count }) => [Math.floor(Date.parse(hour) / 3.6e6), count]),
  );
  const last = Math.floor(now / 3.6e6);
  const first = Math.min(last - 23, Math.max(last - MOST + 1, Math.min(last, ...counts.keys())));
  return Array.from({ length: last - first + 1 }, (_, k) => ({
    at: (first + k) * 3.6e6, count: counts.get(first + k) ?? 0,
  }));
}

/** A chart as wide as its place, so that its text is not stretched. */
export function hoursChart(hours: readonly Hour[], width: number, now = Date.now()): SVGElement {
  const bars = fillHours(hours, now);
  const top = Math.max(1, ...bars.map(({ count }) => count));
  const step = width / bars.length;
  const body = HEIGHT - FOOT - HEAD;
  const clock = (at: number) => new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const every = Math.max(1, Math.ceil((bars.length * 90) / width));
  return svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${HEIGHT}`, role: "img",
      "aria-label": `Reports of the last ${bars.length} hours, at most ${countWords(top)} in one`,
    },
    svg("line", { x1: 0, x2: width, y1: HEAD, y2: HEAD }),
    svg("text", { x: 0, y: HEAD - 4 }, `${countWords(top)} in an hour`),
    svg("g", { class: "bars" }, ...bars.map(({ at, count }, k) => {
      const high = (count / top) * body;
      return svg(
        "rect",
        {
          x: (k * step + 1).toFixed(1), width: Math.max(1, step - 2).toFixed(1),
          y: (HEAD + body - high).toFixed(1), height: high.toFixed(1), rx: 2,
        },
        svg("title", {}, `${clock(at)}: ${countWords(count)}`),
      );
    })),
    svg("line", { x1: 0, x2: width, y1: HEIGHT - FOOT, y2: HEIGHT - FOOT }),
    ...bars.flatMap(({ at }, k) => (bars.length - 1 - k) % every === 0
      ? [svg(
        "text",
        {
          x: Math.min(width - 2, k * step + (k * step < 30 ? 0 : step / 2)), y: HEIGHT - 5,
          "text-anchor": k === bars.length - 1 ? "end" : k * step < 30 ? "start" : "middle",
        },
        clock(at),
      )]
      : []),
  );
}
