/** Numbers in words that a person reads without a manual, in the page's language. */

import { language, words } from "../words";

function number(value: number, digits = 0): string {
  return value.toLocaleString(language(), { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function distanceWords(km: number): string {
  if (km < 0.0095) return `${Math.max(0, Math.round(1000 * km))} m`;
  if (km < 0.995) {
    const metres = 1000 * km;
    return `${metres < 100 ? Math.round(metres) : Math.round(metres / 10) * 10} m`;
  }
  return `${km < 9.95 ? number(km, Number.isInteger(Number(km.toFixed(1))) ? 0 : 1) : number(km)} km`;
}

export function percentWords(share: number): string {
  if (share > 0 && share < 0.001) return words().below;
  return `${number(100 * share, share < 0.1 && share > 0 ? 1 : 0)} %`;
}

export function factorWords(factor: number): string {
  if (factor >= 1e6) return words().million;
  if (factor >= 100) return number(Math.round(factor));
  return number(factor, 1).replace(/[.,]0$/, "");
}

/** How often a guess between two is right, of 100. */
export function guessWords(guess: number): string {
  const percent = 100 * guess;
  if (percent >= 99.95) return words().nearlyAlways;
  return words().inHundred(number(percent, percent >= 99 ? 1 : 0));
}

export function countWords(count: number): string {
  return number(count);
}

export function bytesWords(bytes: number): string {
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${number(bytes / 1e6, 1)} MB`;
}

/** The direction from east and north offsets, as a number of eighths from north over east. */
export function eighth(east: number, north: number): number {
  return (Math.round((Math.atan2(east, north) / (2 * Math.PI)) * 8) + 8) % 8;
}

/** The direction from east and north offsets. */
export function wind(east: number, north: number): string {
  return words().winds[eighth(east, north)];
}

export function spanWords(seconds: number): string {
  const said = words();
  const hours = seconds / 3600;
  if (hours >= 36) return said.days(Math.round(hours / 24));
  if (hours >= 1.5) return said.hours(Math.round(hours));
  return seconds < 90 ? said.seconds(Math.round(seconds)) : said.minutes(Math.round(seconds / 60));
}

export function periodWords(seconds: number): string {
  const said = words();
  if (seconds === 86400) return said.day;
  if (seconds === 604800) return said.week;
  if (seconds === 3600) return said.hour;
  return said.periodOf(spanWords(seconds));
}

/** An epsilon as a person may read it. */
export function epsilonWords(value: number): string {
  const shown = Number(value.toPrecision(4));
  return shown.toLocaleString(language(), { maximumSignificantDigits: 4, useGrouping: false });
}
