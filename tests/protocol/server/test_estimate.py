"""The iterative Bayesian update: against known optima, brute force and simulated truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

import panda_mdp as pm
from panda_mdp.panda.law import surrogates
from panda_mdp.protocol.server.estimate import (
    Observations,
    anchors_observations,
    bayesian_update,
    estimate,
    table_observations,
)
from panda_mdp.protocol.server.solving import Solution
from panda_mdp.table.encode import encode

LINE = pm.Domain.from_vectors([[0.0], [1.0], [2.0], [4.0]])


def table(epsilon: float = 2.0) -> pm.Mechanism:
    return pm.exponential(pm.Problem(LINE, np.arange(4), LINE.distances(), epsilon))


def channel(epsilon: float = 2.0) -> np.ndarray:
    return table(epsilon).matrix


def solved(union: np.ndarray, row: np.ndarray, matrix: np.ndarray) -> Solution:
    """A round's table: a row of `matrix` for each anchor, outputs by their columns."""
    weights = (matrix * 2.0**62).astype(np.int64)
    return Solution(union, row, weights, np.arange(matrix.shape[1]))


def log_likelihood(shares: np.ndarray, likelihood: np.ndarray, counts: np.ndarray) -> float:
    return float(counts @ np.log(likelihood @ shares))


def test_it_inverts_a_table_exactly_where_that_can_be_done() -> None:
    """Expected counts of a distribution lead back to it: the table has full rank."""
    matrix, truth = channel(), np.array([0.4, 0.3, 0.2, 0.1])
    counts = 1e6 * (truth @ matrix)
    found, _ = bayesian_update(matrix.T, counts[None, :], steps=20_000, tolerance=1e-12)
    np.testing.assert_allclose(found[0], truth, atol=1e-5)


def test_it_finds_the_largest_likelihood() -> None:
    """A general optimiser over the simplex finds nothing better, corners included."""
    rng = np.random.default_rng(0)
    matrix = channel(1.0)
    for _ in range(5):
        counts = rng.multinomial(40, rng.dirichlet(np.ones(4))).astype(float)
        found, _ = bayesian_update(matrix.T, counts[None, :], steps=50_000, tolerance=1e-13)
        best = log_likelihood(found[0], matrix.T, counts)
        start = np.zeros(4)

        def loss(logits: np.ndarray, counts: np.ndarray = counts) -> float:
            shares = np.exp(logits - logits.max())
            return -log_likelihood(shares / shares.sum(), matrix.T, counts)

        other = -minimize(loss, start, method="Nelder-Mead", options={"maxiter": 20_000}).fun
        assert best >= other - 1e-6


def test_the_likelihood_never_falls() -> None:
    matrix = channel(1.0)
    counts = np.array([7.0, 0.0, 3.0, 11.0])
    values = [
        log_likelihood(
            bayesian_update(matrix.T, counts[None, :], steps=steps, tolerance=0.0)[0][0],
            matrix.T,
            counts,
        )
        for steps in range(1, 30)
    ]
    assert (np.diff(values) >= -1e-12).all()


def test_problems_side_by_side_are_solved_as_alone() -> None:
    matrix = channel()
    counts = np.array([[3.0, 4.0, 5.0, 6.0], [10.0, 0.0, 0.0, 1.0]])
    both, _ = bayesian_update(matrix.T, counts, steps=100, tolerance=0.0)
    for n in range(2):
        alone, _ = bayesian_update(matrix.T, counts[n : n + 1], steps=100, tolerance=0.0)
        np.testing.assert_allclose(both[n], alone[0], rtol=1e-12)


def test_tables_of_several_versions_add_up() -> None:
    """Reports through two tables: the likelihood is the product."""
    weak, strong = channel(0.5), channel(3.0)
    rows = [("a", 1, 0, 3), ("a", 2, 3, 1), ("b", 2, 1, 2)]
    seen = table_observations({1: encode(table(0.5)), 2: encode(table(3.0))}, rows)
    assert (seen.counts.sum(), seen.counts.shape[0]) == (6, 2)
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    direct = 3 * np.log(shares @ weak[:, 0]) + np.log(shares @ strong[:, 3])
    direct += 2 * np.log(shares @ strong[:, 1])
    counts = np.asarray(seen.counts.sum(axis=0))
    assert log_likelihood(shares, seen.likelihood, counts) == pytest.approx(direct)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """60 simulated surveys of 300 people; 95 % intervals, record by record.

    The bootstrap is approximate: between 88 and 99 % are asked for, over 4 x 60 intervals.
    """
    rng = np.random.default_rng(1)
    matrix, truth = channel(3.0), np.array([0.4, 0.3, 0.2, 0.1])
    file, covered = encode(table(3.0)), 0
    for _ in range(60):
        records = rng.choice(4, p=truth, size=300)
        rows = [
            (f"u{n}", 1, int(rng.choice(4, p=matrix[x] / matrix[x].sum())), 1)
            for n, x in enumerate(records)
        ]
        found = estimate(table_observations({1: file}, rows), replicates=60)
        covered += int(((found.low <= truth) & (truth <= found.high)).sum())
    assert 0.88 <= covered / (4 * 60) <= 0.99


def test_repeated_reports_of_one_user_do_not_narrow_the_interval() -> None:
    """Ten copies of everybody's report tell nothing new: users are drawn, not reports."""
    rng = np.random.default_rng(2)
    outputs = [int(y) for y in rng.choice(4, size=30)]
    once = [(f"u{n}", 1, y, 1) for n, y in enumerate(outputs)]
    often = [(f"u{n}", 1, y, 10) for n, y in enumerate(outputs)]
    tables = {1: encode(table())}
    first = estimate(table_observations(tables, once))
    second = estimate(table_observations(tables, often))
    np.testing.assert_allclose(first.share, second.share, atol=1e-9)
    np.testing.assert_allclose(first.low, second.low, atol=1e-9)
    np.testing.assert_allclose(first.high, second.high, atol=1e-9)


def test_nothing_and_one_user_have_no_interval() -> None:
    found = estimate(table_observations({1: encode(table())}, []))
    assert found.share == [0.25] * 4 and found.high == [1.0] * 4
    found = estimate(table_observations({1: encode(table())}, [("a", 1, 2, 50)]))
    assert found.low == [0.0] * 4 and found.high == [1.0] * 4
    assert np.argmax(found.share) == 2


def test_the_probability_of_a_set_is_the_product_of_its_coins() -> None:
    selection = pm.BernoulliAnchors("exponential", 0.8, 0.7, 3.0, candidates=np.array([0, 1, 3]))
    law = selection.on(LINE)
    w = selection.on(LINE).dense(np.arange(LINE.size))
    sets = [
        np.array(chosen, dtype=np.int64)
        for size in range(4)
        for chosen in itertools.combinations([0, 1, 3], size)
    ]
    logs = np.array([law.log_likelihoods(chosen) for chosen in sets])
    for chosen, log in zip(sets, logs, strict=True):
        coins = np.where(np.isin([0, 1, 3], chosen), w[:, [0, 1, 3]], 1 - w[:, [0, 1, 3]])
        expected = np.log(coins).sum(axis=1)
        np.testing.assert_allclose(log - log[0], expected - expected[0], rtol=1e-12, atol=1e-12)


def test_anchors_count_as_evidence_with_the_reports() -> None:
    selection = pm.BernoulliAnchors("exponential", 0.8, 0.7, 3.0)
    law, w = selection.on(LINE), selection.on(LINE).dense(np.arange(LINE.size))
    union, row = np.array([0, 1, 3]), np.array([0, 1, 1])
    matrix = np.array([[0.7, 0.3], [0.2, 0.8]])
    solution = solved(union, row, matrix)
    chosen = np.array([0, 3])
    sets = {"a": chosen, "b": np.array([], dtype=np.int64), "silent": union}
    members = {(1, user): (anchors, solution) for user, anchors in sets.items()}
    told = [("a", 1, 1, 2), ("a", 1, 0, 1), ("b", 1, 0, 1)]
    seen = anchors_observations(law, members, told)
    assert seen.counts.shape == (2, 2)
    nearest = chosen[surrogates(LINE, chosen)]
    rows = matrix[row[np.searchsorted(union, nearest)]]
    inside = np.isin(np.arange(4), chosen)
    expected = np.where(inside, w, 1 - w).prod(axis=1) * rows[:, 1] ** 2 * rows[:, 0]
    np.testing.assert_allclose(seen.likelihood[0], expected / expected.max(), rtol=1e-9)
    # Somebody without anchors has told something by having none.
    alone = (1 - w).prod(axis=1)
    np.testing.assert_allclose(seen.likelihood[1], alone / alone.max(), rtol=1e-9)


def test_observations_of_nobody_are_empty() -> None:
    law = pm.BernoulliAnchors("exponential", 0.8, 0.7, 3.0).on(LINE)
    seen = anchors_observations(law, {}, [])
    assert isinstance(seen, Observations) and seen.counts.sum() == 0
    assert estimate(seen).share == [0.25] * 4


def test_reports_that_no_record_makes_tell_nothing():
    table = np.array([[0.9, 0.1], [0.1, 0.9], [0.0, 0.0]])
    with_them, _ = bayesian_update(table, np.array([[66.0, 34.0, 50.0]]))
    without, _ = bayesian_update(table[:2], np.array([[66.0, 34.0]]))
    np.testing.assert_allclose(with_them, without)
    alone, _ = bayesian_update(table, np.array([[0.0, 0.0, 7.0]]))
    np.testing.assert_allclose(alone, 0.5)


def test_what_no_record_makes_is_left_out_of_anchors_observations() -> None:
    domain = pm.Domain.from_vectors(np.arange(4.0))
    law = pm.BernoulliAnchors("exponential", 0.9, 0.5, 2.0).on(domain)
    every = np.arange(4)
    matrix = np.tile([1.0, 0.0], (4, 1))
    sets = {(1, "a"): (every, solved(every, every, matrix))}
    assert anchors_observations(law, sets, [("a", 1, 0, 1)]).counts.sum() == 1
    found = anchors_observations(law, sets, [("a", 1, 1, 1)])
    assert found.counts.sum() == 0
    assert np.isfinite(estimate(found).share).all()
