"""Mechanisms of the literature on words: what they are, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError, NotForReleaseError
from panda_mdp.methods.words import GROUP, RARE, REPLACED, RULES, as_words, field_table


def problem_of(vectors: np.ndarray, epsilon: float, seed: int = 0) -> pm.Problem:
    """Every record is an output, in some order."""
    domain = pm.Domain.from_vectors(vectors)
    order = np.random.default_rng(seed).permutation(domain.size)
    return pm.Problem(domain, order, domain.distances(None, order), epsilon)


def words(count: int = 45) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 6)) * 3


def by_record(table: pm.Mechanism) -> np.ndarray:
    """The matrix with its columns in the order of the records."""
    return table.matrix[:, np.argsort(table.problem.outputs)]


@pytest.mark.parametrize("name", RULES)
def test_rows_do_not_depend_on_the_order_of_outputs(name: str) -> None:
    one, two = (field_table(name, problem_of(words(12), 1.0, seed)) for seed in (0, 5))
    np.testing.assert_allclose(by_record(one), by_record(two), atol=1e-12)


def test_tem_is_private_and_scores_all_words_beyond_its_radius_alike() -> None:
    table = field_table("tem", problem_of(words(), 4.0))
    assert isinstance(table, pm.Mechanism)
    rows, far = by_record(table), table.problem.domain.distances()
    radius = 2 / 4.0 * np.log(0.999 * 44 / 0.001)
    for row, distance in zip(rows, far, strict=True):
        beyond = row[distance > radius]
        assert np.ptp(beyond) < 1e-15
        ratio = row[distance < radius] / row.max()
        np.testing.assert_allclose(ratio, np.exp(-2 * distance[distance < radius]), rtol=1e-9)
    # Without a word beyond it, it is the exponential mechanism: SanText.
    near = problem_of(words() / 20, 4.0)
    plain = pm.exponential(near).matrix
    np.testing.assert_allclose(field_table("tem", near).matrix, plain, rtol=1e-13)


def test_santext_plus_shows_words_that_are_not_sensitive() -> None:
    table = field_table("santext_plus", problem_of(words(), 1.0))
    common = np.arange(45) < 45 - round(RARE * 45)
    rows = by_record(table)
    assert (rows[:, common] * ~np.eye(45, dtype=bool)[:, common]).max() == 0
    np.testing.assert_allclose(np.diag(rows)[common], 1 - REPLACED, rtol=1e-12)
    assert table.audit.epsilon == np.inf
    with pytest.raises(NotForReleaseError):
        table.sample(0)


def test_custext_never_leaves_a_group() -> None:
    table = field_table("custext", problem_of(words(), 1.0))
    linked = by_record(table) > 0
    assert np.array_equal(linked, linked.T)
    assert sorted(linked.sum(axis=1)) == sorted([45 - 2 * GROUP] * 5 + [GROUP] * 40)
    assert table.audit.epsilon == np.inf
    # One group is epsilon-DP, whatever the distances are.
    few = np.log(by_record(field_table("custext", problem_of(words(9), 1.0))))
    assert np.ptp(few, axis=0).max() <= 1 + 1e-12


def test_diffractor_is_the_truncated_geometric_mechanism_along_its_lists() -> None:
    pair = field_table("diffractor", problem_of(np.array([[0.0], [9.0]]), 0.7))
    np.testing.assert_allclose(np.diag(by_record(pair)), 1 / (1 + np.exp(-0.7)), rtol=1e-12)
    # Words that are near by less than a place in the list are told apart by more than epsilon d.
    near = field_table("diffractor", problem_of(np.array([[0.0], [0.5], [1.0]]), 0.7))
    assert near.audit.epsilon > 0.7 * 1.5
    assert not near.audit.holds


def test_noise_in_one_dimension_has_the_shares_of_laplace() -> None:
    table = field_table("words_laplace", problem_of(np.array([[0.0], [1.0]]), 2.0))
    stay = 1 - np.exp(-2.0 / 2) / 2
    assert np.abs(np.diag(by_record(table)) - stay).max() < 5 * np.sqrt(stay * (1 - stay) / 100)


def test_noise_needs_vectors_and_words_every_record() -> None:
    domain = pm.Domain.from_matrix([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(MethodError, match="needs vectors"):
        field_table("words_laplace", pm.Problem(domain, [0, 1], domain.distances(), 1.0))
    with pytest.raises(MethodError, match="make every record an output"):
        field_table("tem", pm.Problem(domain, [0], domain.distances(None, [0]), 1.0))


def test_words_that_are_kept_and_topics_that_are_told() -> None:
    problem = problem_of(words(60) * 20, 1.0)
    shown = as_words(pm.NoGuarantee.from_matrix(problem, np.eye(60)[:, problem.outputs]))
    # Topics have words in common: even of texts that are shown some are not told.
    assert shown["kept"] == pytest.approx(1) and 0.7 < shown["topics"] < 1
    even = as_words(pm.NoGuarantee.from_matrix(problem, np.full((60, 60), 1 / 60)))
    assert even["kept"] == pytest.approx(1 / 60)
    # One of ten is guessed.
    assert even["topics"] == pytest.approx(0.1, abs=0.06)
    made = pm.exponential(problem)
    own = made.matrix[np.arange(60), np.argsort(problem.outputs)]
    assert as_words(made)["kept"] == pytest.approx(own.mean())


def test_places_and_reports_that_are_no_words_have_no_topics() -> None:
    flat = problem_of(words(30)[:, :2], 1.0)
    assert as_words(pm.exponential(flat)) == {}
    domain = pm.Domain.from_vectors(words(30))
    some = pm.Problem(domain, [0, 1], domain.distances(None, [0, 1]), 1.0)
    assert as_words(pm.exponential(some)) == {}
