"""Exact arithmetic and small metric spaces for tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import mpmath as mp
import numpy as np
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.csgraph import shortest_path

import panda_mdp as pm
from panda_mdp import Domain, Problem
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.space.metrics import EARTH_RADIUS_KM

DIGITS = 50


def exact_haversine(lat, lon, lat2, lon2) -> mp.mpf:
    """Great-circle distance in km of float degrees, to 50 digits."""
    with mp.workdps(DIGITS):
        phi, lam, phi2, lam2 = (mp.radians(mp.mpf(float(v))) for v in (lat, lon, lat2, lon2))
        h = mp.sin((phi - phi2) / 2) ** 2
        h += mp.cos(phi) * mp.cos(phi2) * mp.sin((lam - lam2) / 2) ** 2
        return 2 * mp.mpf(EARTH_RADIUS_KM) * mp.asin(mp.sqrt(h))


def exact_distance(domain: Domain, i: int, j: int) -> mp.mpf:
    """The distance of two records without rounding."""
    metric = domain.metric
    if metric.kind == "haversine":
        return exact_haversine(metric.lat[i], metric.lon[i], metric.lat[j], metric.lon[j])
    if metric.kind == "euclidean":
        with mp.workdps(DIGITS):
            pairs = zip(metric.vectors[i], metric.vectors[j], strict=True)
            return mp.sqrt(mp.fsum((mp.mpf(float(a)) - mp.mpf(float(b))) ** 2 for a, b in pairs))
    if metric.kind == "angular":
        with mp.workdps(DIGITS):
            u, v = ([mp.mpf(float(a)) for a in metric.vectors[k]] for k in (i, j))
            lengths = [mp.sqrt(mp.fsum(a * a for a in w)) for w in (u, v)]
            u, v = ([a / n for a in w] for w, n in zip((u, v), lengths, strict=True))
            minus = mp.sqrt(mp.fsum((a - b) ** 2 for a, b in zip(u, v, strict=True)))
            plus = mp.sqrt(mp.fsum((a + b) ** 2 for a, b in zip(u, v, strict=True)))
            return 2 * mp.atan2(minus, plus)
    return mp.mpf(float(metric.distances[i, j]))


def exact_epsilon(domain: Domain, weights: np.ndarray) -> mp.mpf:
    """max log(w_xy / w_x'y) / d(x, x') over all ordered pairs and outputs, to 50 digits."""
    rows = [[int(w) for w in row] for row in weights]
    worst = mp.mpf(0)
    with mp.workdps(DIGITS):
        for i in range(len(rows)):
            for j in range(len(rows)):
                for a, b in zip(rows[i], rows[j], strict=True):
                    if i == j or a <= b:
                        continue
                    if b == 0:
                        return mp.inf
                    worst = max(worst, mp.log(mp.mpf(a) / b) / exact_distance(domain, i, j))
    return worst


def is_private(domain: Domain, matrix: np.ndarray, epsilon: float) -> bool:
    """Whether z_xy <= exp(epsilon d) z_x'y for all ordered pairs and outputs, by brute force."""
    for i in range(domain.size):
        for j in range(domain.size):
            if i == j:
                continue
            with mp.workdps(DIGITS):
                limit = mp.exp(mp.mpf(epsilon) * exact_distance(domain, i, j))
                pairs = zip(matrix[i], matrix[j], strict=True)
                if any(_exact(a) > limit * _exact(b) for a, b in pairs):
                    return False
    return True


def _exact(value) -> mp.mpf:
    return mp.mpf(int(value)) if isinstance(value, int | np.integer) else mp.mpf(float(value))


def random_domain(kind: str, size: int, seed: int = 0) -> Domain:
    """A domain of distinct random records of one kind of metric."""
    rng = np.random.default_rng(seed)
    if kind == "haversine":
        return Domain.from_points(41.8 + 0.2 * rng.random(size), 12.4 + 0.2 * rng.random(size))
    if kind == "euclidean":
        return Domain.from_vectors(rng.normal(size=(size, 3)))
    if kind == "angular":
        return Domain.from_vectors(rng.normal(size=(size, 4)), metric="angular")
    steps = rng.uniform(0.5, 2.0, size=(size, size))
    return Domain.from_matrix(shortest_path(np.triu(steps, k=1) + np.triu(steps, k=1).T))


KINDS = ("haversine", "euclidean", "angular", "matrix")


def displacement_problem(
    domain: Domain, outputs: Sequence[int], epsilon: float, prior: np.ndarray | None = None
) -> Problem:
    """A problem whose loss is the distance between the record and what is reported."""
    return Problem(domain, outputs, domain.distances(None, outputs), epsilon, prior=prior)


@st.composite
def domains(draw: st.DrawFn, smallest: int = 2, largest: int = 9) -> Domain:
    """Small metric spaces of all kinds, ties and near-duplicates included."""
    size = draw(st.integers(smallest, largest))
    kind = draw(st.sampled_from(["haversine", "euclidean", "matrix"]))
    if kind == "haversine":
        degrees = st.one_of(st.integers(-80, 80), st.floats(-89.0, 89.0))
        places = st.tuples(degrees, st.one_of(st.integers(-180, 179), st.floats(-179.0, 179.0)))
        chosen = draw(st.lists(places, min_size=size, max_size=size, unique_by=_key))
        return Domain.from_points([p[0] for p in chosen], [p[1] for p in chosen])
    if kind == "euclidean":
        dimensions = draw(st.integers(1, 3))
        coordinate = st.one_of(st.integers(-4, 4), st.floats(-4.0, 4.0, width=16))
        vectors = st.tuples(*[coordinate] * dimensions)
        chosen = draw(st.lists(vectors, min_size=size, max_size=size, unique_by=_key))
        return Domain.from_vectors(np.array(chosen, dtype=float))
    steps = np.zeros((size, size))
    upper = np.triu_indices(size, k=1)
    lengths = st.one_of(st.integers(1, 9), st.floats(0.01, 9.0))
    steps[upper] = draw(st.lists(lengths, min_size=len(upper[0]), max_size=len(upper[0])))
    return Domain.from_matrix(shortest_path(steps + steps.T))


def _key(values: tuple[float, ...]) -> tuple[float, ...]:
    # Distinct after rounding: what lies nearer than 1e-6 is for the tests that aim at it.
    return tuple(round(float(v), 6) + 0.0 for v in values)


@st.composite
def weight_tables(draw: st.DrawFn, rows: int, zeros: bool = True) -> np.ndarray:
    """Integer tables, rows summing to 2^62: random, equal, nearly equal, with or without zeros."""
    count = draw(st.integers(1, 4))
    cuts = st.lists(st.integers(1, TOTAL - 1), min_size=count - 1, max_size=count - 1, unique=True)
    table = []
    for _ in range(rows):
        if table and draw(st.booleans()):
            row = list(table[-1])
            if count > 1 and draw(st.booleans()) and row[0] > 1:
                row[0] -= 1
                row[1] += 1
        else:
            edges = [0, *sorted(draw(cuts)), TOTAL]
            row = [b - a for a, b in itertools.pairwise(edges)]
        table.append(row)
    result = np.array(table, dtype=np.int64)
    if zeros and count > 1 and draw(st.integers(0, 3)) == 0:
        column = draw(st.integers(0, count - 1))
        other = (column + 1) % count
        who = slice(None) if draw(st.booleans()) else slice(0, 1)
        result[who, other] += result[who, column]
        result[who, column] = 0
    return result


def plain_problem(seed: int) -> Problem:
    """A small problem as people have them: up to 15 records of any metric, moderate losses."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 16))
    domain = random_domain(KINDS[seed % 4], size, seed)
    outputs = rng.permutation(size)[: int(rng.integers(1, size + 1))]
    apart = domain.distances(None, outputs)
    loss = {
        0: lambda: apart,
        1: lambda: apart**2,
        2: lambda: rng.uniform(0.1, 5, apart.shape),
        3: lambda: (apart > np.median(apart)) + 0.01 * rng.random(apart.shape),
    }[seed // 4 % 4]()
    nats = 10 ** rng.uniform(-1.5, 1.0)
    epsilon = nats / float(np.median(domain.neighbours(1)[1]))
    prior = rng.dirichlet(np.ones(size)) if seed % 3 else None
    return Problem(domain, outputs, loss, epsilon, prior=prior)


def lp_optimum(problem: Problem) -> float:
    """The least loss by HiGHS, as it comes with SciPy: the LP over all pairs, nothing of ours."""
    size, outputs = problem.loss.shape
    i, j = np.nonzero(~np.eye(size, dtype=bool))
    growth = np.exp(-problem.epsilon * problem.domain.distances()[i, j])
    count = len(i)
    pairs = sparse.coo_matrix((growth, (np.arange(count), i)), (count, size))
    pairs = pairs - sparse.coo_matrix((np.ones(count), (np.arange(count), j)), (count, size))
    answer = linprog(
        problem.weighted_loss.ravel(),
        A_ub=sparse.kron(pairs, sparse.eye(outputs), format="csr"),
        b_ub=np.zeros(count * outputs),
        A_eq=sparse.kron(sparse.eye(size), np.ones((1, outputs)), format="csr"),
        b_eq=np.ones(size),
        # With its own 1e-7 it finds optima that no private table reaches.
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return float(answer.fun)


def wide_problem(seed: int) -> Problem:
    """A small problem whose losses and prior span many orders of magnitude, zeros included."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 13))
    outputs = int(rng.integers(1, min(size, 10) + 1))
    domain = random_domain(KINDS[seed % 4], size, seed)
    epsilon = 10 ** rng.uniform(-1.5, 1.5) / float(np.median(domain.neighbours(1)[1]))
    span = rng.uniform(0, 6)
    loss = 10 ** rng.uniform(-span, span, (size, outputs))
    if seed % 3 == 0:
        loss[rng.random(loss.shape) < 0.3] = 0
    if seed % 5 == 0:
        loss = np.where(rng.random(loss.shape) < 0.2, loss * 1e5, loss)
    prior = None
    if seed % 2:
        prior = 10 ** rng.uniform(-span, 0, size)
        prior /= prior.sum()
    return Problem(domain, rng.permutation(size)[:outputs], loss, epsilon, prior=prior)


def save_compact(mechanism: pm.Mechanism, path: str | os.PathLike[str]) -> pm.Mechanism:
    """The compact form of a table, which is also written to a file."""
    table = pm.compact(mechanism)
    table.save(path)
    return table
