/** What epsilon means at a distance, and what a row of the table means for a place. */

import type { Haversine } from "./metric";

export interface Meaning {
  readonly distance: number;
  /** By how much, at most, a report multiplies the odds between two places this far apart. */
  readonly factor: number;
  /** How often, at most, somebody who thinks both equally likely guesses right after a report. */
  readonly guess: number;
}

/**
 * For epsilon-mDP: odds change by exp(epsilon d) at most, and whoever must tell two places apart
 * succeeds with probability exp(epsilon d) / (1 + exp(epsilon d)) at most. With a delta both hold
 * save with that probability, and the guess is (exp(epsilon d) + delta) / (1 + exp(epsilon d)).
 */
export function meaning(epsilon: number, distance: number, delta = 0): Meaning {
  const nats = epsilon * distance;
  const guess = 1 / (1 + Math.exp(-nats)) + delta / (1 + Math.exp(nats));
  return { distance, factor: Math.exp(nats), guess };
}

export interface Spread {
  /** Expected distance in km from the place to the reported one. */
  readonly expected: number;
  /** Half, and nine tenths, of all reports lie within so many km of the place. */
  readonly half: number;
  readonly most: number;
  /** Probability of the likeliest report. */
  readonly top: number;
  /** Distances of the outputs with their probabilities, near ones first. */
  readonly steps: readonly { readonly km: number; readonly share: number }[];
}

/** Where reports of a place would lie: distances between the place itself and the outputs. */
export function spread(
  metric: Haversine, lat: number, lon: number, outputs: Int32Array, shares: Float64Array,
): Spread {
  const steps = Array.from(outputs, (output, column) => ({
    km: metric.distanceFrom(lat, lon, output),
    share: shares[column],
  })).sort((a, b) => a.km - b.km);
  const quantile = (share: number): number => {
    let sum = 0;
    for (const step of steps) {
      sum += step.share;
      if (sum >= share) return step.km;
    }
    return steps[steps.length - 1].km;
  };
  return {
    expected: steps.reduce((sum, step) => sum + step.km * step.share, 0),
    half: quantile(0.5),
    most: quantile(0.9),
    top: shares.reduce((a, b) => Math.max(a, b), 0),
    steps,
  };
}
