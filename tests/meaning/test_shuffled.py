"""Batches without an order: against sums over all batches, and against the batch itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import InvalidInputError
from panda_mdp.meaning.shuffled import ShuffledReports

LINE = pm.Domain.from_vectors([[0.0], [0.5], [1.0]])


def table(epsilon: float) -> pm.Mechanism:
    return pm.exponential(pm.Problem(LINE, np.arange(3), LINE.distances(), epsilon))


def blanket_delta(rows: np.ndarray, reports: int, epsilon: float) -> float:
    """The formula, summed over every sequence of blanket reports and every pair of records."""
    law = rows.min(axis=0)
    part = float(law.sum())
    law = law / part
    best = 0.0
    for first, second in itertools.product(rows, rows):
        loss, total = (first - math.exp(epsilon) * second) / law, 0.0
        for count in range(1, reports + 1):
            chance = math.comb(reports, count) * part**count * (1 - part) ** (reports - count)
            for drawn in itertools.product(range(rows.shape[1]), repeat=count):
                total += chance * float(law[list(drawn)].prod() * max(0.0, loss[list(drawn)].sum()))
        best = max(best, total / (part * reports))
    return best


def shuffled_delta(rows: np.ndarray, reports: int, epsilon: float) -> float:
    """The batch itself: all records of the others, all multisets of outputs."""
    best = 0.0
    for others in itertools.combinations_with_replacement(range(len(rows)), reports - 1):
        laws = []
        for record in range(len(rows)):
            law: dict[tuple[int, ...], float] = {}
            for drawn in itertools.product(range(rows.shape[1]), repeat=reports):
                people = (record, *others)
                chance = math.prod(rows[x, y] for x, y in zip(people, drawn, strict=True))
                key = tuple(sorted(drawn))
                law[key] = law.get(key, 0.0) + chance
            laws.append(law)
        for a, b in itertools.product(laws, laws):
            best = max(best, sum(max(0.0, a[k] - math.exp(epsilon) * b[k]) for k in a))
    return best


@pytest.mark.parametrize(("reports", "epsilon"), [(2, 0.0), (2, 0.2), (3, 0.2), (5, 0.1)])
def test_it_is_the_sum_over_all_batches_and_above_the_truth(reports: int, epsilon: float) -> None:
    release = table(1.0)
    found = ShuffledReports(release, reports).delta(epsilon)
    exact = blanket_delta(release.matrix, reports, epsilon)
    assert exact <= found <= exact * (1 + 1e-3) + 1e-9
    if reports <= 3:
        assert shuffled_delta(release.matrix, reports, epsilon) <= found + 1e-12


def test_rows_that_no_single_pair_dominates_are_bounded_too() -> None:
    """Four records, skewed rows: the law that stands for all pairs is above each of them."""
    domain = pm.Domain.from_matrix(1.0 - np.eye(4))
    rng = np.random.default_rng(2)
    matrix = rng.dirichlet(np.full(3, 20.0), size=4)
    release = pm.Mechanism.from_matrix(
        pm.Problem(domain, pm.Outputs.labels("abc"), np.zeros((4, 3)), 4.0), matrix
    )
    batch = ShuffledReports(release, 4)
    for epsilon in (0.0, 0.1, 0.3):
        exact = blanket_delta(release.matrix, 4, epsilon)
        assert exact <= batch.delta(epsilon) <= 1.2 * exact + 1e-9


def test_ten_thousand_reports_hide_five_times_better() -> None:
    batch = ShuffledReports(table(4.0), 10_000)
    assert batch.local == pytest.approx(2.0, rel=1e-6)
    epsilon = batch.epsilon(1e-6)
    assert epsilon < batch.local / 5
    # The search is right: its delta holds there and not at 1 % less.
    assert batch.delta(epsilon) <= 1e-6 < batch.delta(0.99 * epsilon)
    assert batch.delta(batch.local) < 1e-8
    assert batch.epsilon(1e-3) < epsilon < ShuffledReports(table(4.0), 1000).epsilon(1e-6)


@pytest.mark.parametrize(
    ("reports", "epsilon", "delta", "said"),
    [
        (1, 0.1, 0.1, "hides nobody"),
        (5, -1.0, 0.1, "from 0 on"),
        (5, 0.1, 0.0, "between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    reports: int, epsilon: float, delta: float, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        batch = ShuffledReports(table(1.0), reports)
        batch.delta(epsilon)
        batch.epsilon(delta)
