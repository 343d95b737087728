"""Reports of a deployment as an estimate: users, versions, anchors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.meaning.estimate import estimate_counts
from panda_mdp.meaning.shuffled import ShuffledReports
from panda_mdp.panda.law import surrogates
from panda_mdp.protocol.server.estimate import (
    anchors_likelihood,
    estimate_anchors,
    estimate_tables,
)
from panda_mdp.protocol.server.solving import Solution
from panda_mdp.table.encode import encode

LINE = pm.Domain.from_vectors([[0.0], [1.0], [2.0], [4.0]])


def table(epsilon: float = 2.0) -> pm.Mechanism:
    return pm.exponential(pm.Problem(LINE, np.arange(4), LINE.distances(), epsilon))


def solved(union: np.ndarray, row: np.ndarray, matrix: np.ndarray) -> Solution:
    """A round's table: a row of `matrix` for each anchor, outputs by their columns."""
    weights = (matrix * 2.0**62).astype(np.int64)
    return Solution(union, row, weights, np.arange(matrix.shape[1]))


def numbers(found: object, name: str) -> list[float]:
    return [getattr(zone, name) for zone in found.zones]


def test_one_report_of_each_user_is_what_the_library_estimates() -> None:
    counts = [9, 4, 6, 2]
    rows = [(f"u{y}-{k}", 1, y, 1) for y, count in enumerate(counts) for k in range(count)]
    found = estimate_tables({1: encode(table())}, rows)
    expected = estimate_counts(counts, table())
    assert (found.users, found.reports, found.zone) == (21, 21, [0, 1, 2, 3])
    for name in ("raw", "share", "low", "high"):
        np.testing.assert_allclose(numbers(found, name), getattr(expected, name)[0], atol=1e-12)
    np.testing.assert_allclose(found.share, expected.records[0], atol=1e-12)


def test_counts_alone_hide_each_report_among_the_others() -> None:
    """Where each user drew once, from one whole table; else nothing is said."""
    release = table(0.5)
    rows = [(f"u{n}", 1, n % 4, 1) for n in range(400)]
    found = estimate_tables({1: encode(release)}, rows, whole=True)
    assert found.batch is not None and found.batch[1] == 1e-6
    assert found.batch[0] == pytest.approx(ShuffledReports(release, 400).epsilon(1e-6))
    assert found.batch[0] < 0.5 * ShuffledReports(release, 400).local
    twice = [*rows[:-1], ("u399", 1, 3, 2)]
    elsewhere = [*rows, ("u7", 1, 0, 1)]
    for told, whole in ((rows, False), (twice, True), (elsewhere, True), ([], True)):
        assert estimate_tables({1: encode(release)}, told, whole=whole).batch is None
    both = {version: encode(release) for version in (1, 2)}
    assert estimate_tables(both, rows, whole=True).batch is None


def test_repeated_reports_of_one_user_do_not_narrow_the_limits() -> None:
    """Ten copies of everybody's report tell nothing new: users count, not reports."""
    outputs = [int(y) for y in np.random.default_rng(2).choice(4, size=30)]
    found = [
        estimate_tables({1: encode(table())}, [(f"u{n}", 1, y, k) for n, y in enumerate(outputs)])
        for k in (1, 10)
    ]
    assert [part.reports for part in found] == [30, 300]
    for name in ("share", "low", "high"):
        np.testing.assert_allclose(numbers(found[0], name), numbers(found[1], name), atol=1e-9)


def test_a_second_version_of_the_same_table_changes_nothing() -> None:
    """Half of the users through a copy: what the limits allow stays within chance."""
    counts = np.array([40, 10, 30, 20])
    one = [(f"{y}-{k}", 1, y, 1) for y in range(4) for k in range(counts[y])]
    two = [(user, 1 + k % 2, y, 1) for k, (user, _, y, _) in enumerate(one)]
    first = estimate_tables({1: encode(table(3.0))}, one)
    second = estimate_tables({1: encode(table(3.0)), 2: encode(table(3.0))}, two)
    np.testing.assert_allclose(numbers(first, "raw"), numbers(second, "raw"), atol=1e-12)
    for name in ("low", "high"):
        np.testing.assert_allclose(numbers(first, name), numbers(second, name), atol=0.02)


def test_nobody_and_one_user_tell_next_to_nothing() -> None:
    found = estimate_tables({1: encode(table())}, [])
    assert found.share == [0.25] * 4
    assert (numbers(found, "low"), numbers(found, "high")) == ([0.0] * 4, [1.0] * 4)
    found = estimate_tables({1: encode(table())}, [("a", 1, 2, 50)])
    assert found.users == 1 and max(numbers(found, "high")) == 1.0


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
    seen = anchors_likelihood(law, members, told)
    assert seen.shape == (2, 4)
    nearest = chosen[surrogates(LINE, chosen)]
    rows = matrix[row[np.searchsorted(union, nearest)]]
    inside = np.isin(np.arange(4), chosen)
    expected = np.where(inside, w, 1 - w).prod(axis=1) * rows[:, 1] ** 2 * rows[:, 0]
    np.testing.assert_allclose(seen[0], expected / expected.max(), rtol=1e-9)
    # Somebody without anchors has told something by having none.
    alone = (1 - w).prod(axis=1)
    np.testing.assert_allclose(seen[1], alone / alone.max(), rtol=1e-9)


def test_anchors_have_an_estimate_and_no_limits() -> None:
    law = pm.BernoulliAnchors("exponential", 0.8, 0.7, 3.0).on(LINE)
    assert estimate_anchors(law, {}, []).share == [0.25] * 4
    every = np.arange(4)
    solution = solved(every, every, np.eye(4) * 0.7 + 0.075)
    sets = {(1, f"u{n}"): (np.array([n % 2]), solution) for n in range(40)}
    told = [(f"u{n}", 1, n % 2, 1) for n in range(40)]
    found = estimate_anchors(law, sets, told)
    assert sum(found.share) == pytest.approx(1.0) and sum(found.share[:2]) > 0.8
    assert (numbers(found, "low"), numbers(found, "high")) == ([0.0] * 4, [1.0] * 4)
    assert not any(numbers(found, "told_apart"))


def test_what_no_record_makes_is_left_out_of_anchors() -> None:
    domain = pm.Domain.from_vectors(np.arange(4.0))
    law = pm.BernoulliAnchors("exponential", 0.9, 0.5, 2.0).on(domain)
    every = np.arange(4)
    sets = {(1, "a"): (every, solved(every, every, np.tile([1.0, 0.0], (4, 1))))}
    assert len(anchors_likelihood(law, sets, [("a", 1, 0, 1)])) == 1
    assert len(anchors_likelihood(law, sets, [("a", 1, 1, 1)])) == 0
