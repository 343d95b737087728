"""Phase I against brute force over all 2^K anchor sets, and its exact draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import panda_mdp as pm
from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.law import flip, numerators, quantise_probability, surrogates
from panda_mdp.panda.leakage import cost_table, leakage, worst_leakage
from panda_mdp.panda.margins import candidate_values
from panda_mdp.privacy.quantise import TOTAL, SeededBits

LEAN = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(data=st.data())
@LEAN
def test_leakage_is_the_supremum_over_all_sets(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    law = selection.on(domain)
    table = cost_table(law, law.all_rows, domain.distances())
    for x in range(domain.size):
        for x2 in range(domain.size):
            expected = brute.leakage(x, x2)
            assert leakage(law, x, x2) == pytest.approx(expected, rel=1e-12, abs=1e-17)
            assert table[x, x2] == pytest.approx(expected, rel=1e-12, abs=1e-17)


@given(data=st.data())
@LEAN
def test_worst_leakage_is_the_largest_over_all_pairs(data, small_cases) -> None:
    domain, selection = data.draw(small_cases)
    law = selection.on(domain)
    apart = domain.distances() + np.eye(domain.size)
    rates = cost_table(law, law.all_rows, domain.distances()) / apart
    found = worst_leakage(law)
    assert found.rate == pytest.approx(rates.max(), rel=1e-12)
    assert found.rate == pytest.approx(rates[found.pair], rel=1e-12)


@given(data=st.data())
@LEAN
def test_leakage_of_a_set_is_its_log_likelihood_ratio(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    law = selection.on(domain)
    which = data.draw(st.integers(0, len(brute.sets) - 1))
    anchors = np.flatnonzero(brute.sets[which])
    logs = law.log_likelihoods(anchors)
    for x in range(domain.size):
        for x2 in range(domain.size):
            expected = float(brute.ratio(x, x2)[which])
            assert logs[x] - logs[x2] == pytest.approx(expected, rel=1e-12, abs=1e-13)


@given(data=st.data())
@LEAN
def test_surrogate_probability_is_the_law_of_the_nearest_anchor(
    data, small_cases, brute_force
) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    x = data.draw(st.integers(0, domain.size - 1))
    v = np.zeros(domain.size)
    (anchors,), (chances,) = selection.on(domain).surrogate_law(np.array([x]))
    v[anchors] = chances
    assert v == pytest.approx(brute.surrogate_probability(x).astype(float), rel=1e-12, abs=1e-300)
    empty = float(brute.probabilities[x][0])
    assert v.sum() + empty == pytest.approx(1.0, rel=1e-14)


@given(data=st.data())
@LEAN
def test_surrogates_are_the_nearest_with_ties_to_the_lowest(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    which = data.draw(st.integers(1, len(brute.sets) - 1))
    anchors = np.flatnonzero(brute.sets[which])
    assert np.array_equal(anchors[surrogates(domain, anchors)], brute.surrogate[:, which])


@given(data=st.data())
@LEAN
def test_failure_and_margin_follow_the_definition(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    x = data.draw(st.integers(0, domain.size - 2))
    x2 = data.draw(st.integers(x + 1, domain.size - 1))
    epsilon = data.draw(st.sampled_from([0.5, 5.0]))
    values, masses = brute.candidate_values(x, x2, epsilon)
    pair = candidate_values(selection.on(domain), x, x2, epsilon)
    # Thresholds between the values, so that rounding of equal values decides nothing.
    distinct = np.unique(np.round(values, 9))
    for xi in [*(distinct + 1e-7), -1e9, 1e9]:
        expected = float(1 - masses.sum() + masses[values > xi].sum())
        failing = pair.shortfall + np.sort(pair.mass[pair.delta > xi]).sum()
        assert failing == pytest.approx(expected, rel=1e-12, abs=1e-16)
    for delta in (0.0, 1e-7, 1e-3, 0.1, 0.5):
        failing = 1 - masses.sum() + np.array([masses[values > v + 1e-9].sum() for v in values])
        if np.abs(failing - delta).min(initial=1.0) < 1e-12:
            continue  # a step of h lies exactly at delta: rounding may choose either side
        found = pair.margin(delta)
        expected = values[failing <= delta].min(initial=np.inf)
        assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-9)


def test_one_pair_and_all_pairs_agree() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(2).normal(size=(40, 2)))
    law = BernoulliAnchors("exponential", radius=0.7, tail=0.01).on(domain)
    table = cost_table(law, law.all_rows, domain.distances())
    pairs = [[leakage(law, x, x2) for x2 in range(40)] for x in range(40)]
    assert table == pytest.approx(np.array(pairs), rel=1e-12, abs=1e-15)
    assert worst_leakage(law).rate == pytest.approx(
        (table / (domain.distances() + np.eye(40))).max(), rel=1e-12
    )


def probability(selection, domain) -> np.ndarray:
    return selection.on(domain).dense(np.arange(domain.size))


def test_probability_is_the_table_of_the_paper() -> None:
    domain = pm.Domain.from_vectors([[0.0], [0.5], [3.0]])
    for decay, h in (
        ("exponential", lambda d: 0.9 * np.exp(-0.7 * d)),
        ("power", lambda d: 0.9 / (1 + d**0.7)),
        ("logistic", lambda d: 1.8 / (1 + np.exp(0.7 * d))),
    ):
        selection = BernoulliAnchors(decay, alpha=0.9, rate=0.7, radius=2.0)
        apart = np.minimum(domain.distances(), 2.0)
        assert probability(selection, domain) == pytest.approx(h(apart), rel=1e-15)
    jump = probability(BernoulliAnchors("power", radius=2.0, tail=0.001), domain)
    assert jump[0, 2] == pytest.approx(0.001, rel=1e-15)


def test_default_radius_is_the_diameter_over_fifty() -> None:
    domain = pm.Domain.from_vectors(np.arange(101.0)[:, None])
    assert BernoulliAnchors().on(domain).radius == 2.0


def test_probabilities_are_integers_over_two_to_the_62() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(1).normal(size=(30, 2)) * 20)
    w = probability(BernoulliAnchors("exponential", rate=3.0, radius=25.0), domain)
    scaled = w * 2.0**62
    assert np.array_equal(scaled, np.rint(scaled))
    assert w.min() == 2.0**-62
    assert w.max() < 1


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"alpha": 1.0}, "Proposition 2"),
        ({"alpha": 0.0}, "alpha"),
        ({"rate": -1.0}, "rate"),
        ({"decay": "power", "rate": 0.0}, "d\\^0"),
        ({"radius": 0.0}, "radius"),
        ({"tail": 0.0}, "tail"),
        ({"tail": "cut"}, "tail"),
        ({"decay": "cubic"}, "decay"),
        ({"candidates": []}, "candidates"),
        ({"candidates": [1, 1]}, "candidates"),
    ],
)
def test_options_out_of_range_are_refused(options, word) -> None:
    with pytest.raises(MethodError, match=word):
        BernoulliAnchors(**options)


def test_errors_do_not_show_the_record() -> None:
    domain = pm.Domain.from_vectors([[0.0], [1.0]])
    with pytest.raises(MethodError) as caught:
        BernoulliAnchors().draw(domain, 4711)
    assert "4711" not in str(caught.value)


def test_an_anchor_that_is_no_candidate_is_refused() -> None:
    domain = pm.Domain.from_vectors([[0.0], [1.0], [2.0]])
    selection = BernoulliAnchors(candidates=[0, 2], radius=1.0)
    with pytest.raises(MethodError, match="anchor 1 is not among the candidates"):
        selection.on(domain).check([1])


def test_draws_follow_the_law_of_sets() -> None:
    """All 2^K sets, a chi-square test at significance 1e-6."""
    domain = pm.Domain.from_vectors([[0.0], [0.4], [3.0], [5.0]])
    selection = BernoulliAnchors("exponential", alpha=0.8, rate=0.5, radius=1.0)
    w = probability(selection, domain)[1]
    count = 20_000
    found = np.zeros(16)
    for _ in range(count):
        found[(1 << selection.draw(domain, 1)).sum()] += 1
    sets = (np.arange(16)[:, None] >> np.arange(4)) & 1
    expected = np.where(sets, w, 1 - w).prod(axis=1) * count
    assert ((found - expected) ** 2 / expected).sum() < 55.0  # chi-square, 15 degrees, 1e-6: 54.3


def test_draws_with_a_named_seed_repeat_and_others_do_not() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(0).normal(size=(300, 2)))
    selection = BernoulliAnchors("logistic", alpha=0.5)
    first = selection.draw(domain, 5, SeededBits(3))
    assert np.array_equal(first, selection.draw(domain, 5, SeededBits(3)))
    assert not np.array_equal(selection.draw(domain, 5), selection.draw(domain, 5))


class Script:
    """Random integers from a list."""

    def __init__(self, words: list[int]) -> None:
        self.words = list(words)

    def integers(self, count: int) -> IntArray:
        taken, self.words = self.words[:count], self.words[count:]
        return np.array(taken, dtype=np.int64)


def test_a_coin_succeeds_for_exactly_its_numerator_of_words() -> None:
    """A coin of 3 / 2^62 succeeds for the words 0, 1 and 2, not for 3."""
    found = flip(np.full(5, 3 * 2.0**-62), Script([0, 1, 2, 3, TOTAL - 1]))
    assert found.tolist() == [True, True, True, False, False]


def test_quantised_probabilities_are_exact_in_float() -> None:
    values = np.array([0.0, 1e-30, 2.0**-62, 1e-5, 0.3, 0.95, 1 - 2.0**-53, 1.0])
    found = quantise_probability(values)
    integers = numerators(found)
    assert np.array_equal(integers.astype(object) / TOTAL, found.astype(object))
    assert integers.min() == 1
    assert integers.max() < TOTAL


def test_as_many_random_bits_are_asked_for_whatever_the_record() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(0).random((500, 2)) * 50)
    law = BernoulliAnchors(radius=5.0, tail=1e-4, candidates=np.arange(0, 500, 2)).on(domain)
    for record in (0, 77, 499):
        bits = Script([TOTAL - 1] * 300)
        assert len(law.draw(record, bits)) == 0
        assert len(bits.words) == 50


@pytest.mark.parametrize("count", [0, 61, 2.5])
def test_candidates_that_a_domain_does_not_have_are_refused(count) -> None:
    domain = pm.Domain.from_vectors(np.arange(60.0))
    with pytest.raises(MethodError, match=f"count is {count}; a domain of 60 has 1 to 60"):
        pm.BernoulliAnchors.alike(domain, count, 1e-6)
