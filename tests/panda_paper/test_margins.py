"""Margins of the figures against brute force over all anchor sets."""

from __future__ import annotations

from itertools import product
from math import log

import numpy as np
import pytest

from panda_mdp import BernoulliAnchors, Domain, Problem
from panda_mdp.panda.coins import Decay
from panda_mdp.panda.margins import MarginPlan, candidate_values
from panda_paper.accounts import clustering_coefficient, covered, mean_margins, random_pairs
from panda_paper.items import DECAYS

PLACES = [[0.16], [0.51], [0.98], [1.76], [2.48]]
EPSILON, RADIUS = 4.0, 1.3


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.from_vectors(PLACES)


def leakage(w: np.ndarray, x: int, x2: int) -> float:
    """sup over all sets of the log-likelihood ratio, by visiting them."""
    best = 0.0
    for chosen in product([False, True], repeat=len(w)):
        ratio = sum(
            log(w[x, a] / w[x2, a]) if inside else log((1 - w[x, a]) / (1 - w[x2, a]))
            for a, inside in enumerate(chosen)
        )
        best = max(best, abs(ratio))
    return best


def surrogate_law(domain: Domain, w: np.ndarray, x: int) -> dict[int, float]:
    """How often each record within the radius is the nearest anchor of x, over all sets."""
    apart = domain.distances()
    law: dict[int, float] = {}
    for chosen in product([False, True], repeat=len(w)):
        chance = float(
            np.prod([w[x, a] if inside else 1 - w[x, a] for a, inside in enumerate(chosen)])
        )
        near = [a for a, inside in enumerate(chosen) if inside and apart[x, a] < RADIUS]
        if near:
            nearest = min(near, key=lambda a: (apart[x, a], a))
            law[nearest] = law.get(nearest, 0.0) + chance
    return law


def brute(domain: Domain, w: np.ndarray, x: int, x2: int, delta: float) -> dict[str, float]:
    """The smallest of all candidate values that does it, and the same given anchors nearby."""
    apart = domain.distances()

    def budget(a: int, b: int) -> float:
        return 0.0 if a == b else EPSILON * apart[a, b] - leakage(w, a, b)

    law, law2 = surrogate_law(domain, w, x), surrogate_law(domain, w, x2)
    values = [
        (budget(a, b) - budget(x, x2), p * q) for a, p in law.items() for b, q in law2.items()
    ]
    reached = sum(mass for _, mass in values)

    def least(wanted: float) -> float:
        for xi, _ in sorted(values):
            if sum(mass for value, mass in values if value <= xi + 1e-12) >= wanted - 1e-15:
                return xi
        return float("inf")

    margin = least(1 - delta)
    exists = margin < float("inf")
    return {
        "margin": margin if exists else float("nan"),
        "none": 0.0 if exists else 1.0,
        "within": least((1 - delta) * reached),
    }


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("delta", [0.02, 0.2])
def test_margins_are_those_of_all_sets(domain: Domain, decay: Decay, delta: float) -> None:
    selection = BernoulliAnchors(decay, alpha=0.8, rate=0.9, radius=RADIUS)
    w = selection.on(domain).dense(np.arange(domain.size))
    seen = set()
    for x, x2 in [(0, 1), (1, 3), (0, 4)]:
        found = mean_margins(selection.on(domain), np.array([[x, x2]]), EPSILON, delta)
        wanted = brute(domain, w, x, x2, delta)
        assert found == pytest.approx(wanted, abs=1e-9, nan_ok=True)
        seen.add(found["none"])
    assert 1.0 in seen if delta < 0.1 else 0.0 in seen


def test_estimates_are_the_largest_real_margins_of_the_windows(domain: Domain) -> None:
    problem = Problem(domain, [0, 4], domain.distances(None, [0, 4]), EPSILON)
    selection = BernoulliAnchors("exponential", alpha=0.8, rate=0.9, radius=RADIUS)
    everyone, delta = np.arange(5), 0.3
    law = selection.on(domain)
    real, guess = (
        MarginPlan.over(problem, law, everyone, delta, neighbours=count) for count in (1, 2)
    )
    for x in range(5):
        for y in range(x):
            own = candidate_values(law, x, y, EPSILON).margin(delta)
            if np.isfinite(own):
                assert real.margin[x, y] == pytest.approx(max(0.0, own), abs=1e-9)
    windows = {x: [x, int(domain.neighbours(1)[0][x, 0])] for x in range(5)}
    # Below the deltas at which coverage counts, both use delta itself.
    assert guess.uncovered_pairs == guess.pair_count
    for x in range(5):
        for y in range(x):
            largest = max(
                real.margin[a, b] if a != b else 0.0 for a in windows[x] for b in windows[y]
            )
            assert guess.margin[x, y] >= largest - 1e-9


def test_expected_union_is_that_of_all_sets(domain: Domain) -> None:
    selection = BernoulliAnchors("power", alpha=0.7, rate=0.8, radius=RADIUS)
    w = selection.on(domain).dense(np.arange(domain.size))
    users = np.array([1, 3])
    expected = 0.0
    for first in product([0, 1], repeat=5):
        for second in product([0, 1], repeat=5):
            chance = 1.0
            for user, chosen in zip(users, (first, second), strict=True):
                for a, inside in enumerate(chosen):
                    chance *= w[user, a] if inside else 1 - w[user, a]
            expected += chance * len({a for a in range(5) if first[a] or second[a]})
    assert covered(selection.on(domain), users).sum() == pytest.approx(expected, abs=1e-12)


def test_pairs_are_distinct_records_and_repeatable(domain: Domain) -> None:
    pairs = random_pairs(domain, 200, 3)
    assert (pairs[:, 0] != pairs[:, 1]).all() and set(pairs.ravel()) == set(range(5))
    np.testing.assert_array_equal(pairs, random_pairs(domain, 200, 3))


def test_clustering_coefficients() -> None:
    triangle = Domain.from_vectors([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8], [5.0, 5.0], [6.0, 5.0]])
    assert clustering_coefficient(triangle, 1.2) == pytest.approx(3 / 5)
    assert clustering_coefficient(triangle, 1.2, np.array([0, 1, 2])) == 1.0
    assert clustering_coefficient(triangle, 0.1) == 0.0
    path = Domain.from_vectors([[0.0], [1.0], [2.0]])
    assert clustering_coefficient(path, 1.0) == 0.0
