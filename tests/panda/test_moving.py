"""What is told of people who move: looked at over all pairs of ways of a small domain."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.panda.moving import Moving, Way
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.privacy.discrete_laplace import geometric, happens

LEAVING = 0.6


@pytest.fixture(scope="module")
def moving() -> Moving:
    line = pm.Domain.from_vectors([[float(i)] for i in range(5)])
    problem = pm.Problem(line, [0, 4], line.distances(None, [0, 4]), epsilon=3.0)
    table = PandaTable(pm.BallAnchors(epsilon=1.0, radius=3.0).scheme(problem))
    return Moving(table, LEAVING, most=3)


def leaving_law(moving: Moving, levels: np.ndarray) -> np.ndarray:
    """The probability of leaving at each look, and of never, from the numbers that are drawn."""
    threshold, coin = map(float, moving.rates)
    j = np.arange(int(40 / threshold))
    left = np.exp(-threshold * j) * -np.expm1(-threshold)
    found = []
    for level in levels:
        leaves = np.exp(-coin * np.maximum(level + j, 0))
        found.append(float((left * leaves).sum()))
        left = left * (1 - leaves)
    return np.array([*found, float(left.sum())])


def test_moments_of_leaving_keep_their_epsilon_over_all_pairs_of_ways(moving: Moving) -> None:
    size, worst = moving.table.problem.size, 0.0
    distance = moving.table.problem.domain.distances()
    for centre in ((0, 0), (2, 0), (4, 1)):
        levels = moving.levels(np.array(centre))
        ways = [np.array(way) for way in product(range(size), repeat=3)]
        laws = [np.log(leaving_law(moving, levels[way])) for way in ways[::3]]
        for way, law in zip(ways[::3], laws, strict=True):
            for other, law2 in zip(ways[::3], laws, strict=True):
                apart = distance[way, other].max()
                assert np.abs(law - law2).max() <= LEAVING * apart + 1e-9
                if apart:
                    worst = max(worst, float(np.abs(law - law2).max() / apart))
    # The account is not idle either.
    assert worst > 0.5 * LEAVING


def leaves_at_once(moving: Moving, levels: np.ndarray) -> np.ndarray:
    """The probability of leaving at the first look, summed over thresholds in closed form."""
    threshold, coin = map(float, moving.rates)
    q, level = np.exp(-threshold), levels.astype(float)
    deep = (1 - q) * np.exp(-coin * np.maximum(level, 0)) / (1 - q * np.exp(-coin))
    beyond = q ** np.maximum(-level, 0)
    return 1 - beyond + beyond * deep


def test_centre_and_moment_together_keep_theirs(moving: Moving) -> None:
    """All centres that can be drawn: for the first record, then a look at the second."""
    law, distance = moving.table.scheme.law, moving.table.problem.domain.distances()
    everyone = np.arange(moving.table.problem.size)
    for centre, chances in law.releases(1e-12):
        leaves = leaves_at_once(moving, moving.levels(np.array(centre)))
        for part in (leaves, 1 - leaves):
            told = np.log(chances)[:, None] + np.log(part)
            for x, x2 in product(everyone, repeat=2):
                gap = np.abs(told[x][:, None] - told[x2])
                allowed = distance[x, x2] + LEAVING * np.maximum(distance[x, x2], distance)
                assert (gap <= allowed + 1e-9).all()


def test_draws_follow_that_law(moving: Moving) -> None:
    chances, left = [], 0
    for _ in range(1_500):
        way = Way(moving)
        centre = way.look(0)
        assert centre is not None
        chances.append(float(leaves_at_once(moving, moving.levels(centre)[[4]])[0]))
        left += way.look(4) is not None
    expected = np.array(chances)
    assert 150 < expected.sum() < 1_350
    assert abs(left - expected.sum()) < 5 * np.sqrt((expected * (1 - expected)).sum())


def test_noise_is_geometric_and_coins_are_exponential() -> None:
    rate = Fraction(3, 7)
    drawn = np.array([geometric(rate) for _ in range(20_000)])
    q = np.exp(-3 / 7)
    for z in range(4):
        expected = (1 - q) * q**z
        spread = 5 * np.sqrt(expected * (1 - expected) / len(drawn))
        assert abs((drawn == z).mean() - expected) < spread
    for exponent in (Fraction(0), Fraction(1, 3), Fraction(5, 2)):
        share = np.mean([happens(exponent) for _ in range(20_000)])
        expected = float(np.exp(-float(exponent)))
        assert abs(share - expected) <= 5 * np.sqrt(expected * (1 - expected) / 20_000)


def test_who_is_as_deep_as_asked_or_less_leaves_for_certain(moving: Moving) -> None:
    """Depths are counted from `depth` on: the deeper somebody has to be, the sooner they leave."""
    demanding = Moving(moving.table, LEAVING, most=3, depth=1.25)
    for centre in ((0, 0), (2, 0), (4, 1)):
        deep = moving.table.scheme.law.depths(centre)
        given = np.array(centre)
        np.testing.assert_array_equal(
            demanding.levels(given), np.floor((deep - 1.25) / moving.step).astype(int)
        )
        assert ((demanding.levels(given) <= 0) == (deep - 1.25 < moving.step)).all()
        assert (demanding.levels(given) < moving.levels(given)).all()


def test_each_ball_has_a_threshold_of_its_own(moving: Moving) -> None:
    """Where leaving hardly depends on depth, exp(-coin T) is uniform on 0 to 1: whoever left at
    once leaves the next ball at once with 1/2, and with 2/3 where both have one threshold."""
    shy = Moving(moving.table, 1e-4, most=3)
    left, again = 0, 0
    for _ in range(2_000):
        way = Way(shy)
        way.look(2)
        if way.look(2) is not None:
            left, again = left + 1, again + (way.look(2) is not None)
    assert abs(left - 1_000) < 5 * np.sqrt(500)
    assert abs(again - left / 2) < 5 * np.sqrt(left / 4)


def test_a_day_has_so_many_balls_and_says_what_it_told(moving: Moving) -> None:
    way = Way(moving)
    with pytest.raises(MethodError, match="no ball yet"):
        way.report(0)
    for step in range(200):
        way.look(4 * (step % 2))
    assert way.balls == 3
    assert way.report(2) in (0, 4)
    # Three centres, two of which could be left, and one report of what the centre leaves.
    assert way.guarantee.epsilon == pytest.approx(3 * 1.0 + 2 * LEAVING + 1 * 2.0)
    assert moving.guarantee(1) == way.guarantee
    assert moving.guarantee(0, balls=1).epsilon == pytest.approx(1.0 + LEAVING)
    assert repr(way) == "Way(3 balls, 1 reports)"
    with pytest.raises(MethodError, match="from 1 to 3 balls"):
        moving.guarantee(1, balls=4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"leaving": 0.0}, "positive"),
        ({"most": 0}, "a day has a ball"),
        ({"depth": np.inf}, "finite"),
    ],
)
def test_what_means_nothing_is_refused(moving: Moving, given: dict, words: str) -> None:
    with pytest.raises(MethodError, match=words):
        Moving(moving.table, **{"leaving": 1.0, **given})
    coins = pm.BernoulliAnchors.alike(moving.table.problem.domain, 3, 1e-2)
    with pytest.raises(MethodError, match="people keep balls"):
        Moving(PandaTable(coins.scheme(moving.table.problem, 1e-2)), 1.0)
