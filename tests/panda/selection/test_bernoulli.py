"""Phase I against brute force over all 2^K anchor sets, and its exact draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import panda_mdp as pm
from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.accounts.leakage import leakage_table, log_likelihoods, suprema, worst_leakage
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors
from panda_mdp.panda.selection.law import members, surrogates
from panda_mdp.privacy.sampler import SeededBits

LEAN = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(data=st.data())
@LEAN
def test_leakage_is_the_supremum_over_all_sets(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    law = selection.on(domain)
    table = leakage_table(law, law.all_rows, domain.distances())
    for x in range(domain.size):
        for x2 in range(domain.size):
            expected = brute.leakage(x, x2)
            assert selection.leakage(domain, x, x2) == pytest.approx(expected, rel=1e-12, abs=1e-17)
            assert table[x, x2] == pytest.approx(expected, rel=1e-12, abs=1e-17)


@given(data=st.data())
@LEAN
def test_worst_leakage_is_the_largest_over_all_pairs(data, small_cases) -> None:
    domain, selection = data.draw(small_cases)
    law = selection.on(domain)
    apart = domain.distances() + np.eye(domain.size)
    rates = leakage_table(law, law.all_rows, domain.distances()) / apart
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
    logs = log_likelihoods(law, law.all_rows, members(domain.size, anchors))
    for x in range(domain.size):
        for x2 in range(domain.size):
            expected = float(brute.ratio(x, x2)[which])
            found = selection.leakage_of(domain, anchors, x, x2)
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)
            assert logs[x] - logs[x2] == pytest.approx(expected, rel=1e-12, abs=1e-13)


@given(data=st.data())
@LEAN
def test_surrogate_probability_is_the_law_of_the_nearest_anchor(
    data, small_cases, brute_force
) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    x = data.draw(st.integers(0, domain.size - 1))
    v = selection.surrogate_probability(domain, x)
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
def test_success_and_margin_follow_the_definition(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    x = data.draw(st.integers(0, domain.size - 2))
    x2 = data.draw(st.integers(x + 1, domain.size - 1))
    epsilon = data.draw(st.sampled_from([0.5, 5.0]))
    values, masses = brute.candidate_values(x, x2, epsilon)
    # Thresholds between the values, so that rounding of equal values decides nothing.
    distinct = np.unique(np.round(values, 9))
    for xi in [*(distinct + 1e-7), -1e9, 1e9]:
        expected = float(masses[values <= xi].sum())
        found = selection.success(domain, x, x2, xi, epsilon)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-300)
    for delta in (0.0, 1e-7, 1e-3, 0.1, 0.5):
        failing = 1 - masses.sum() + np.array([masses[values > v + 1e-9].sum() for v in values])
        if np.abs(failing - delta).min(initial=1.0) < 1e-12:
            continue  # a step of h lies exactly at delta: rounding may choose either side
        found = selection.margin(domain, x, x2, epsilon, delta)
        expected = values[failing <= delta].min(initial=np.inf)
        assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-9)


@given(data=st.data())
@LEAN
def test_success_never_falls_as_the_margin_grows(data, small_cases) -> None:
    domain, selection = data.draw(small_cases)
    xis = np.linspace(-20, 20, 41)
    h = [selection.success(domain, 0, 1, xi, 2.0) for xi in xis]
    assert np.all(np.diff(h) >= 0)
    assert h[-1] <= 1 - selection.shortfall(domain, 0, 1) + 1e-12


def test_numpy_and_compiled_leakages_agree(backend) -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(2).normal(size=(40, 2)))
    law = BernoulliAnchors("exponential", radius=0.7, tail=0.01).on(domain)
    table = leakage_table(law, law.all_rows, domain.distances())
    pairs = [[max(suprema(law, x, x2)) for x2 in range(40)] for x in range(40)]
    assert table == pytest.approx(np.array(pairs), rel=1e-12, abs=1e-15)
    assert worst_leakage(law).rate == pytest.approx(
        (table / (domain.distances() + np.eye(40))).max(), rel=1e-12
    )


def test_probability_is_the_table_of_the_paper() -> None:
    domain = pm.Domain.from_vectors([[0.0], [0.5], [3.0]])
    for decay, h in (
        ("exponential", lambda d: 0.9 * np.exp(-0.7 * d)),
        ("power", lambda d: 0.9 / (1 + d**0.7)),
        ("logistic", lambda d: 1.8 / (1 + np.exp(0.7 * d))),
    ):
        selection = BernoulliAnchors(decay, alpha=0.9, rate=0.7, radius=2.0)
        apart = np.minimum(domain.distances(), 2.0)
        assert selection.probability(domain) == pytest.approx(h(apart), rel=1e-15)
    jump = BernoulliAnchors("power", radius=2.0, tail=0.001).probability(domain)
    assert jump[0, 2] == pytest.approx(0.001, rel=1e-15)


def test_default_radius_is_the_diameter_over_fifty() -> None:
    domain = pm.Domain.from_vectors(np.arange(101.0)[:, None])
    assert BernoulliAnchors().on(domain).radius == 2.0


def test_probabilities_are_integers_over_two_to_the_62() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(1).normal(size=(30, 2)) * 20)
    w = BernoulliAnchors("exponential", rate=3.0, radius=25.0).probability(domain)
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
    for call in (
        lambda: BernoulliAnchors().draw(domain, 4711),
        lambda: BernoulliAnchors().surrogate_probability(domain, 4711),
        lambda: BernoulliAnchors().leakage(domain, 0, 4711),
    ):
        with pytest.raises(MethodError) as caught:
            call()
        assert "4711" not in str(caught.value)


def test_an_anchor_that_is_no_candidate_is_refused() -> None:
    domain = pm.Domain.from_vectors([[0.0], [1.0], [2.0]])
    selection = BernoulliAnchors(candidates=[0, 2], radius=1.0)
    with pytest.raises(MethodError, match="anchor 1 is not among the candidates"):
        selection.leakage_of(domain, [1], 0, 2)


def test_draws_follow_the_law_of_sets() -> None:
    """All 2^K sets, a chi-square test at significance 1e-6."""
    domain = pm.Domain.from_vectors([[0.0], [0.4], [3.0], [5.0]])
    selection = BernoulliAnchors("exponential", alpha=0.8, rate=0.5, radius=1.0)
    w = selection.probability(domain)[1]
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


class CountedBits(SeededBits):
    """Counts the integers that were asked for, and how often."""

    calls = drawn = 0

    def integers(self, count: int) -> IntArray:
        self.calls += 1
        self.drawn += count
        return super().integers(count)


def test_far_records_of_a_large_domain_have_no_coin_each() -> None:
    rng = np.random.default_rng(0)
    domain = pm.Domain.from_vectors(rng.random((128_000, 2)) * 50)
    bits = CountedBits(1)
    anchors = BernoulliAnchors(radius=0.5, tail=1e-4).draw(domain, 77, bits)
    assert np.all(np.diff(anchors) > 0)
    assert bits.drawn < domain.size / 10 and bits.calls < 200
    clipped = CountedBits(1)
    anchors = BernoulliAnchors(radius=0.5).draw(domain, 77, clipped)
    assert len(anchors) > domain.size / 2, "most of them, so at least one number each"
    assert clipped.drawn < 4 * domain.size and clipped.calls < 200


@pytest.mark.parametrize("count", [0, 61, 2.5])
def test_candidates_that_a_domain_does_not_have_are_refused(count) -> None:
    domain = pm.Domain.from_vectors(np.arange(60.0))
    with pytest.raises(MethodError, match=f"count is {count}; a domain of 60 has 1 to 60"):
        pm.BernoulliAnchors.alike(domain, count, 1e-6)
