"""How good estimates are: five cases, coverage of the limits, and a large one.

    python benchmarks/estimates.py                 five cases, before and after, and coverage
    python benchmarks/estimates.py --surveys 200   more surveys for each line of the coverage
    python benchmarks/estimates.py --large         a million reports over 5,000 places

Before: the iterative Bayesian update from the uniform distribution, stopped after 300 steps.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import panda_mdp as pm
from panda_mdp.meaning.estimate import estimate_counts, estimate_groups, zone_matrix

KINDS = ("one place", "three places", "cluster", "uniform", "visits")


def grid(side: int, step: float) -> tuple[np.ndarray, pm.Domain]:
    axis = step * np.arange(side)
    xy = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return xy, pm.Domain.from_vectors(xy)


def truth(kind: str, xy: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shares of records; visits fall off with a power of a random rank, as real ones do."""
    size = len(xy)
    if kind == "one place":
        return np.eye(size)[rng.integers(size)]
    if kind == "three places":
        shares = np.zeros(size)
        shares[rng.choice(size, 3, replace=False)] = rng.dirichlet(np.full(3, 3.0))
        return shares
    if kind == "cluster":
        near = np.exp(-((xy - xy[rng.integers(size)]) ** 2).sum(axis=1) / (2 * 0.4**2))
        return near / near.sum()
    if kind == "uniform":
        return np.full(size, 1.0 / size)
    visits = 1.0 / (1 + rng.permutation(size))
    return visits / visits.sum()


def iterative_update(matrix: np.ndarray, counts: np.ndarray, steps: int = 300) -> np.ndarray:
    shares = np.full(len(matrix), 1.0 / len(matrix))
    for _ in range(steps):
        expected = shares @ matrix
        shares = shares * (matrix @ (counts / expected)) / counts.sum()
    return shares


def five_cases(table: pm.Mechanism, xy: np.ndarray) -> None:
    matrix, rng = table.matrix, np.random.default_rng(0)
    print(f"a record reports itself {np.diag(matrix).mean():.1%} of the time; 10,000 reports")
    print(f"{'truth':<14}{'reports':>9}{'before':>9}{'after':>9}   total variation to the truth")
    zones = {k: [k] for k in range(len(xy))}
    for kind in KINDS:
        shares = truth(kind, xy, rng)
        counts = rng.multinomial(10_000, shares @ matrix).astype(float)
        found = estimate_counts(counts, table, zones)
        before = iterative_update(matrix, counts)
        off = [np.abs(p - shares).sum() / 2 for p in (counts / 10_000, before, found.records[0])]
        print(f"{kind:<14}" + "".join(f"{value:9.3f}" for value in off))


def coverage(table: pm.Mechanism, xy: np.ndarray, surveys: int) -> None:
    side = np.minimum(3 * xy // (xy.max() + 1e-9), 2).astype(int)
    _, zones = zone_matrix((3 * side[:, 0] + side[:, 1]).tolist(), table.problem.domain)
    matrix, rng = np.array(table.matrix), np.random.default_rng(1)
    print(f"\n{surveys} surveys x 9 zones a line; epsilon {table.epsilon:g}")
    print(f"{'reports':>9}  {'truth':<14}{'held':>7}{'low':>7}{'high':>7}{'width':>8}{'error':>8}")
    for reports in (300, 10_000, 1_000_000):
        for kind in KINDS:
            shares = np.stack([truth(kind, xy, rng) for _ in range(surveys)])
            counts = np.stack([rng.multinomial(reports, f @ matrix) for f in shares])
            share, low, high, _, _ = estimate_groups(matrix, counts.astype(float), zones)
            true = shares @ zones
            below, above = (low > true + 1e-9).mean(), (high < true - 1e-9).mean()
            print(
                f"{reports:9,}  {kind:<14}{1 - below - above:7.1%}{below:7.1%}{above:7.1%}"
                f"{(high - low).mean():8.4f}{np.abs(share - true).mean():8.4f}",
                flush=True,
            )


def large() -> None:
    """The table and its peak first: making it is not the estimate."""
    city = pm.synthetic_city(6000, seed=0)
    rng = np.random.default_rng(0)
    domain = city.domain(np.sort(rng.choice(city.size, 5000, replace=False)))
    outputs = np.arange(0, 5000, 10)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 5.0)
    table = pm.exponential(problem)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    shares = rng.dirichlet(np.full(5000, 0.3))
    counts = rng.multinomial(1_000_000, shares @ table.matrix)
    reports = rng.permutation(np.repeat(outputs, counts))
    start = time.perf_counter()
    found = pm.estimate(reports, table)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    _, zones = zone_matrix(None, domain)
    off = np.abs(found.share[0] - shares @ zones).max()
    print(f"1,000,000 reports, 5,000 places, {len(found.zones)} zones: {seconds:.1f} s, peak "
          f"{peak:.0f} MB (table alone {before:.0f} MB), largest error {off:.4f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--surveys", type=int, default=40)
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    if given.large:
        large()
        return
    xy, domain = grid(10, 0.3)
    near, far = (
        pm.exponential(pm.Problem(domain, np.arange(100), domain.distances(), epsilon))
        for epsilon in (25.0, 9.0)
    )
    five_cases(near, xy)
    coverage(far, xy, given.surveys)


if __name__ == "__main__":
    main()
