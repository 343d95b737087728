/** Numbers in words that a person reads without a manual. */

export function distanceWords(km: number): string {
  if (km < 0.0095) return `${Math.max(0, Math.round(1000 * km))} m`;
  if (km < 0.995) {
    const metres = 1000 * km;
    return `${metres < 100 ? Math.round(metres) : Math.round(metres / 10) * 10} m`;
  }
  return `${km < 9.95 ? Number(km.toFixed(1)) : Math.round(km)} km`;
}

export function percentWords(share: number): string {
  if (share > 0 && share < 0.001) return "below 0.1 %";
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function factorWords(factor: number): string {
  if (factor >= 1e6) return "more than a million";
  if (factor >= 100) return Math.round(factor).toLocaleString("en");
  return factor.toPrecision(factor < 10 ? 2 : 3).replace(/\.0$/, "");
}

/** How often a guess between two is right, of 100. */
export function guessWords(guess: number): string {
  const percent = 100 * guess;
  if (percent >= 99.95) return "nearly always";
  return `${percent >= 99 ? percent.toFixed(1) : Math.round(percent)} times in 100`;
}

export function countWords(count: number): string {
  return count.toLocaleString("en");
}

export function bytesWords(bytes: number): string {
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

const WINDS = [
  "north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west",
];

/** The direction from east and north offsets. */
export function wind(east: number, north: number): string {
  const turn = Math.round((Math.atan2(east, north) / (2 * Math.PI)) * 8);
  return WINDS[(turn + 8) % 8];
}

export function spanWords(seconds: number): string {
  const hours = seconds / 3600;
  if (hours >= 36) return `${Math.round(hours / 24)} days`;
  if (hours >= 1.5) return `${Math.round(hours)} hours`;
  const [count, unit] = seconds < 90 ? [Math.round(seconds), "second"] : [Math.round(seconds / 60), "minute"];
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

export function periodWords(seconds: number): string {
  if (seconds === 86400) return "day";
  if (seconds === 604800) return "week";
  if (seconds === 3600) return "hour";
  return `period of ${spanWords(seconds)}`;
}

/** An epsilon as a person may read it. */
export function epsilonWords(value: number): string {
  return String(Number(value.toPrecision(4)));
}
