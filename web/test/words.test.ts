import { expect, test } from "vitest";
import {
  bytesWords, distanceWords, factorWords, guessWords, percentWords, periodWords, spanWords, wind,
} from "../src/core/words";

test("distances", () => {
  expect([0, 0.0042, 0.043, 0.118, 0.812, 0.9951, 1.26, 23.4].map(distanceWords))
    .toEqual(["0 m", "4 m", "43 m", "120 m", "810 m", "1 km", "1.3 km", "23 km"]);
});

test("shares, factors and guesses", () => {
  expect([0.0004, 0.031, 0.31].map(percentWords)).toEqual(["below 0.1 %", "3.1 %", "31 %"]);
  expect([1.221, 2, 54.6, 2981, 1e9].map(factorWords))
    .toEqual(["1.2", "2", "54.6", "2,981", "more than a million"]);
  expect([0.55, 0.982, 0.9953, 0.99999].map(guessWords))
    .toEqual(["55 times in 100", "98 times in 100", "99.5 times in 100", "nearly always"]);
});

test("times, sizes and directions", () => {
  expect([90, 7200, 200000].map(spanWords)).toEqual(["2 minutes", "2 hours", "2 days"]);
  expect([86400, 3600, 7200].map(periodWords)).toEqual(["day", "hour", "period of 2 hours"]);
  expect([9116, 2700000].map(bytesWords)).toEqual(["9 kB", "2.7 MB"]);
  expect([wind(0, 1), wind(1, 1), wind(-1, 0), wind(-0.1, -1)])
    .toEqual(["north", "north-east", "west", "south"]);
});

test("short spans are said in seconds, and one is not several", () => {
  expect([15, 1, 60, 95, 150, 3600].map(spanWords))
    .toEqual(["15 seconds", "1 second", "60 seconds", "2 minutes", "3 minutes", "60 minutes"]);
});
