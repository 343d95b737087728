"""The certificate and the capping of budgets on laws small enough to sum by hand."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.base.threads import within
from panda_mdp.errors import MethodError, TimeLimitError
from panda_mdp.panda.certificate import Limits, cap, certified_budgets, certify
from panda_mdp.panda.law import AnchorLaw


@pytest.fixture
def fair() -> AnchorLaw:
    """Two records 1 from each other, both candidates, fair coins: the four sets have 1/4 each."""
    domain = pm.Domain.from_vectors([[0.0], [1.0]])
    return AnchorLaw(domain, 0.5, lambda apart: np.full(len(apart), 0.5), 0.5, None)


@pytest.mark.parametrize(("delta", "expected"), [(0.04, 1.0), (0.49, 1.0), (0.51, 2.0)])
def test_budgets_are_capped_unless_delta_holds_the_empty_set_as_well(fair, delta, expected) -> None:
    """The whole set leads to two surrogates, the empty one to none: 1/2 in all."""
    budgets = np.array([[0.0, 2.0], [2.0, 0.0]])
    cap(fair, 1.0, budgets, delta)
    assert budgets == pytest.approx(np.array([[0.0, expected], [expected, 0.0]]), abs=1e-11)
    found = certify(fair, 1.0, delta, budgets * (1 - 1e-9))
    assert (found.violation <= delta) == (delta > 0.25)


@pytest.mark.parametrize(("budget", "unsafe"), [(0.5, 0.25), (2.0, 0.5)])
def test_a_budget_above_the_room_is_unsafe_wherever_both_are_selected(fair, budget, unsafe) -> None:
    budgets = np.array([[0.0, budget], [budget, 0.0]])
    assert certify(fair, 1.0, 0.6, budgets).violation == unsafe


def test_both_records_sets_are_looked_at() -> None:
    """Record 0 is far from the candidates 1 and 2: its set is empty with 1/4, theirs with 1/16."""
    domain = pm.Domain.from_vectors([[0.0], [10.0], [11.0]])
    law = AnchorLaw(
        domain, 2.0, lambda apart: np.full(len(apart), 0.75), 0.5, np.array([1, 2], np.int64)
    )
    found = certify(law, 100.0, 0.3, np.zeros((2, 2)))
    assert found.violation == 0.25
    assert found.pair == (0, 1)


def test_budgets_in_blocks_are_the_least_room_between_cells() -> None:
    """Brute force over all pairs of records; limits and blocks forced small."""
    rng = np.random.default_rng(4)
    domain = pm.Domain.from_vectors(rng.random((60, 2)) * 5, unit="km")
    law = pm.BernoulliAnchors.alike(domain, 25, 1e-6).on(domain)
    budgets = certified_budgets(law, 2.0, 1e-6, limits=Limits(records=10, block_entries=130))
    assert np.array_equal(budgets, certified_budgets(law, 2.0, 1e-6))
    chosen, apart = law.candidates, domain.distances()
    cell = apart[:, chosen].argmin(axis=1)
    for a in range(25):
        for b in range(a):
            least = 2.0 * apart[np.ix_(cell == a, cell == b)].min()
            least = min(least, 2.0 * apart[chosen[a], chosen[b]])
            assert budgets[a, b] == pytest.approx(least, rel=1e-9)
            assert budgets[a, b] <= least
    assert certify(law, 2.0, 1e-6, budgets).violation <= 1e-6
    small = Limits(records=10, candidates=20)
    with pytest.raises(MethodError, match="at most 20 candidates, not 25"):
        certified_budgets(law, 2.0, 1e-6, limits=small)
    coins = pm.BernoulliAnchors("logistic", candidates=chosen).on(domain)
    with pytest.raises(MethodError, match="selected alike by everybody"):
        certified_budgets(coins, 2.0, 1e-6, limits=small)


@pytest.mark.parametrize("count", [1, 4, 9, 80])
def test_nearest_candidates_are_those_of_a_whole_sort_with_ties_by_index(count) -> None:
    """On a lattice many candidates are equally near, also where the list is cut."""
    places = np.stack(np.meshgrid(np.arange(9.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    domain = pm.Domain.from_vectors(places)
    candidates = np.delete(np.arange(81), 40)
    law = AnchorLaw(domain, 0.5, lambda apart: np.full(len(apart), 0.5), 0.5, candidates)
    apart = domain.distances(None, candidates)
    expected = candidates[np.argsort(apart, axis=1, kind="stable")[:, :count]]
    assert np.array_equal(law.ranked(count), expected)


@pytest.mark.parametrize(("chance", "listed"), [(0.5, 64), (0.05, 80)])
def test_likely_surrogates_have_all_the_mass(chance, listed) -> None:
    """Halves leave 2^-64 beyond the nearest 64; twentieths leave 4 %, so that all are listed."""
    places = np.stack(np.meshgrid(np.arange(9.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    domain = pm.Domain.from_vectors(places)
    candidates = np.delete(np.arange(81), 40)
    law = AnchorLaw(domain, 1.5, lambda apart: np.full(len(apart), chance), chance, candidates)
    for x in (0, 40, 77):
        (anchors,), (v,) = law.surrogate_law(np.array([x]))
        whole = law.ranked(80, np.array([x]))[0]
        assert len(anchors) == listed
        assert np.array_equal(anchors, whole[:listed])
        assert v == pytest.approx(chance * (1 - chance) ** np.arange(listed), rel=1e-12)
        assert 1 - v.sum() == pytest.approx((1 - chance) ** 80, abs=1e-14)


@pytest.mark.parametrize("chance", [0.999, 0.9999999])
def test_budgets_of_almost_sure_coins_are_those_of_the_enumeration(chance) -> None:
    """Every pair of records by hand: what is beyond the two nearest candidates fits into delta."""
    rng = np.random.default_rng(8)
    domain = pm.Domain.from_vectors(rng.random((30, 2)))
    candidates, delta, epsilon = np.arange(0, 30, 3), 0.01, 3.0
    law = AnchorLaw(domain, 9.0, lambda apart: np.full(len(apart), chance), chance, candidates)
    apart = domain.distances(None, None)
    nearest = apart[:, candidates].argmin(axis=1)
    expected = epsilon * apart[np.ix_(candidates, candidates)]
    budgets = expected.copy()
    for x in range(30):
        for y in range(30):
            a, b = nearest[x], nearest[y]
            if a != b:
                expected[a, b] = min(expected[a, b], epsilon * apart[x, y])
    cap(law, epsilon, budgets, delta)
    assert budgets == pytest.approx(expected, rel=1e-9)
    assert certify(law, epsilon, delta, budgets * (1 - 1e-9)).violation <= delta


class Ticking:
    """A clock that goes on by a second at every look, and jumps by months at one of them."""

    def __init__(self, jumps_at: int) -> None:
        self.looks = 0
        self.jumps_at = jumps_at

    def __call__(self) -> float:
        self.looks += 1
        return self.looks + 1e7 * (self.looks >= self.jumps_at)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_an_account_of_coins_ends_when_its_time_is_over(rate) -> None:
    """Whatever it is doing when the clock jumps; with time enough it is the one without a limit,
    and blocks of rows change nothing."""
    rng = np.random.default_rng(5)
    domain = pm.Domain.from_vectors(rng.random((300, 2)) * 3.5, unit="km")
    problem = pm.Problem(domain, [0, 1], domain.distances(None, [0, 1]), epsilon=3.0)
    chosen = np.arange(0, 300, 30)
    coins = pm.BernoulliAnchors("exponential", 0.999, rate, 1.0, candidates=chosen)

    def accounted(clock: Ticking, limit: float | None) -> tuple[float, object]:
        with within(1e9, clock):
            found = coins.scheme(problem, 1e-2, pm.PandaOptions(time_limit=limit)).account
        return found.violation, found.pair

    clock = Ticking(1 << 30)
    found = accounted(clock, None)
    looks = clock.looks
    assert looks >= 6
    limited = Ticking(1 << 30)
    assert found == accounted(limited, 1e6)
    with pytest.raises(TimeLimitError):
        accounted(Ticking(1 << 30), 1.5)
    # The clock is read once more for each part's beginning: a jump there ends nothing.
    begun = []
    # Nearly all looks are in the loops of one part: some of these, and all of the last ones.
    for jump in {*range(2, limited.looks, 11), *range(limited.looks - 30, limited.looks + 1)}:
        try:
            begun.append(accounted(Ticking(jump), 1e6))
        except TimeLimitError:
            continue
    assert begun == [found] * len(begun)
    assert len(begun) <= 4


def test_rows_at_a_time_change_no_account() -> None:
    rng = np.random.default_rng(6)
    domain = pm.Domain.from_vectors(rng.random((80, 2)) * 3, unit="km")
    law = pm.BernoulliAnchors("exponential", 0.99, 0.1, 1.0, candidates=np.arange(0, 80, 9)).on(
        domain
    )
    whole = certified_budgets(law, 4.0, 1e-2)
    assert np.array_equal(whole, certified_budgets(law, 4.0, 1e-2, limits=Limits(rows=7)))
    few, all_rows = (certify(law, 4.0, 1e-3, whole, Limits(rows=n)) for n in (7, 1000))
    assert (few.violation, few.pair) == (all_rows.violation, all_rows.pair)
    assert few.violation > 0
