"""The words, against the browser page's rules, and that nothing personal shows by accident."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.meaning.explain import distance_words, guess_between_two, guess_words


@pytest.fixture(scope="module")
def table():
    domain = random_domain("haversine", 30, seed=8)
    return pm.exponential(displacement_problem(domain, range(0, 30, 2), 5.0))


@pytest.mark.parametrize(
    ("km", "said"),
    [
        (0, "0 m"),
        (0.0094, "9 m"),
        (0.0996, "100 m"),
        (0.125, "130 m"),
        (0.9951, "1 km"),
        (9.96, "10 km"),
    ],
)
def test_distances_are_said_as_the_browser_says_them(km, said):
    assert distance_words(km) == said


def test_the_famous_sentence_holds_for_every_pair(table):
    """62 times in 100 at 100 m is an upper bound on every best guess between two records."""
    explanation = pm.explain(table)
    assert "100 m: right at most 62 times in 100" in explanation.text
    matrix, apart = table.matrix, table.problem.domain.distances()
    for i in range(30):
        for j in range(i):
            best = 0.5 * np.maximum(matrix[i], matrix[j]).sum()
            assert best <= guess_between_two(5.0 * apart[i, j]) + 1e-12


def test_spread_is_that_of_the_row(table):
    domain, record = table.problem.domain, 4
    text = pm.explain(table, record).text
    row, apart = table.matrix[record], domain.distances([record], table.problem.outputs)[0]
    said = distance_words
    half, most = (
        next(d for d in sorted(apart) if row[apart <= d].sum() >= share) for share in (0.5, 0.9)
    )
    where = f"lie {said(float(apart @ row))} from it on average: half within {said(half)}, nine in"
    assert f"{where} ten within {said(most)}." in text
    assert f"reported {guess_words(row[2])}" in text
    assert f"likeliest report is drawn {guess_words(row.max())}" in text


def test_nothing_of_a_record_is_in_the_repr_or_an_error(table):
    assert repr(pm.explain(table, 17)) == "Explanation(one record, <hidden>)"
    with pytest.raises(MethodError) as caught:
        pm.explain(table, 4242)
    assert "4242" not in str(caught.value)


def test_a_table_without_a_guarantee_says_so_first():
    domain = random_domain("haversine", 4)
    problem = displacement_problem(domain, range(4), 0.5)
    text = pm.explain(pm.NoGuarantee.from_matrix(problem, np.eye(4))).text
    assert text.startswith("NO GUARANTEE")


def test_other_units_have_their_own_distances():
    domain = pm.Domain.from_vectors(np.arange(5.0)[:, None], unit="year")
    text = pm.explain(pm.exponential(displacement_problem(domain, range(5), 0.4))).text
    assert "4 years: right at most 83 times in 100" in text
    assert "snap" not in text


def test_a_table_of_least_loss_says_what_that_costs():
    domain = pm.Domain.from_points([41.90, 41.91, 41.92], [12.49, 12.50, 12.49])
    problem = displacement_problem(domain, range(3), 2.0)
    plain = pm.optimal(problem)
    assert "helps who guesses" in pm.explain(plain).text
    assert "helps who guesses" not in pm.explain(pm.exponential(problem)).text
    assert "helps who guesses" not in pm.explain(pm.dominate(problem, pm.exponential(problem))).text
    other = pm.exponential(problem)
    said = pm.explain(plain, 1, against=other).text
    hits = [100 * pm.attack(table).hit_by_record[1] for table in (plain, other)]
    assert "your place exactly: {:.1f}, {:.1f}.".format(*hits) in said


def test_words_are_called_words_with_what_is_kept_and_left_open() -> None:
    domain = pm.Domain.from_vectors([[0.0], [1.0], [5.0]]).with_labels(["cat", "dog", "car"])
    problem = pm.Problem(domain, [2, 0, 1], domain.distances(None, [2, 0, 1]), epsilon=2.0)
    table = pm.exponential(problem)
    rows = table.matrix[:, [1, 2, 0]]
    kept = np.diag(rows)
    said = pm.explain(table, record=0).text
    assert f"Words are kept {round(100 * kept.mean())} times in 100" in said
    assert f"kept most {100 * kept.max():.0f} times in 100" in said
    left = sorted((column >= 0.01 * column.max()).sum() for column in rows.T)
    assert f"leaves {left[1]} words open in the median and {left[0]} at least" in said
    assert f"most often as cat ({round(100 * rows[0, 0])} times in 100), dog (" in said
    assert "two words" in said and "record" not in said.replace("records", "").split("prior")[0]
    choice = pm.choose_epsilon(problem, within=1.0, odds=4)
    assert choice.reason.startswith("words within 1 unit")
    assert "Words are kept" in choice.text
    places = pm.Domain.from_points([41.9, 41.91], [12.5, 12.51]).with_labels(["a", "b"])
    where = pm.exponential(pm.Problem(places, [0, 1], places.distances(), 1.0))
    assert "Words are kept" not in pm.explain(where).text
