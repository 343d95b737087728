"""The law of a ball's centre: private by audit, level where it can be, never wider than before."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

import panda_mdp as pm
from panda_mdp.panda.candidates import central, spread_out
from panda_mdp.panda.centres import draw_law, level_shares, radius_for
from panda_mdp.privacy.quantise import TOTAL


def centres_on(points: np.ndarray, epsilon: float, every: int = 1) -> pm.Problem:
    domain = pm.Domain.from_vectors(points, unit="km")
    centres = np.arange(0, domain.size, every)
    return pm.Problem(domain, centres, domain.distances(None, centres), epsilon)


def grid(side: int, step: float) -> np.ndarray:
    return step * np.stack(np.meshgrid(*[np.arange(side)] * 2), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("epsilon", [0.4, 1.5, 6.0])
@pytest.mark.parametrize("delta", [1e-1, 1e-4])
def test_a_tighter_law_is_private_and_has_smaller_balls(every, epsilon, delta) -> None:
    points = np.random.default_rng(3).normal(size=(90, 2)) * 3
    problem = centres_on(points, epsilon, every)
    plain, tight = pm.exponential(problem, tight=True), draw_law(problem, delta)
    weights = tight.weights.astype(object)
    for x in range(problem.size):
        for y in range(x):
            ratio = max(max(a, b) / min(a, b) for a, b in zip(weights[x], weights[y], strict=True))
            assert np.log(ratio) <= epsilon * problem.domain.distance(x, y) * (1 + 1e-9)
    radii = [radius_for(law.problem.loss, law.weights, delta) for law in (plain, tight)]
    # Exponents of the exponential law are searched to 1e-4, those of the others to 1 %.
    assert radii[1] <= radii[0] * 1.02


def test_on_a_grid_the_tail_is_nearly_that_of_planar_laplace_noise() -> None:
    """(1 + a r) exp(-a r) is the least miss of any law on the plane; borders are kinder."""
    problem = centres_on(grid(21, 0.5), 1.0)
    ideal = brentq(lambda r: (1 + r) * np.exp(-r) - 1e-2, 1, 30)
    plain, tight = (
        radius_for(law.problem.loss, law.weights, 1e-2)
        for law in (pm.exponential(problem, tight=True), draw_law(problem, 1e-2))
    )
    assert tight <= 1.1 * ideal
    assert plain > 1.2 * tight


def test_where_the_fit_is_exact_it_is_the_tight_constraints_mechanism() -> None:
    line = pm.Domain.from_vectors(np.arange(9.0)[:, None])
    problem = pm.Problem(line, np.arange(9), line.distances(), 1.0)
    known = pm.tight_constraints(problem)
    law = draw_law(problem, 1e-3)
    assert law.matrix == pytest.approx(known.matrix, rel=1e-4)


def test_shares_are_never_negative_and_level_the_sums() -> None:
    points = np.random.default_rng(0).normal(size=(60, 2))
    domain = pm.Domain.from_vectors(points)
    decay = np.exp(-domain.distances())
    shares = level_shares(decay)
    assert shares.min() >= 0
    sums, plain = decay @ shares, decay.sum(axis=1)
    assert np.ptp(np.log(sums)) < 0.3 * np.ptp(np.log(plain))


def test_the_radius_is_exact_in_integers() -> None:
    apart = np.array([[0.0, 1.0, 2.0]])
    tail = int(TOTAL) // 1000
    weights = np.array([[int(TOTAL) - 3 * tail, 2 * tail, tail]])
    assert radius_for(apart, weights, 1e-3) == 1.0
    assert radius_for(apart, weights, 0.9e-3) == 2.0
    assert radius_for(apart, weights, 3.1e-3) == 0.0


def test_one_centre() -> None:
    problem = centres_on(np.arange(4.0)[:, None], 1.0, every=4)
    assert draw_law(problem, 1e-2).weights.tolist() == [[int(TOTAL)]] * 4


def test_central_records_stand_for_their_cells() -> None:
    points = np.random.default_rng(5).normal(size=(120, 2)) * 4
    domain = pm.Domain.from_vectors(points)
    for count in (1, 7, 40, 120):
        chosen = central(domain, count)
        assert len(np.unique(chosen)) == count
        spread = domain.distances(None, spread_out(domain, count)).min(axis=1).sum()
        assert domain.distances(None, chosen).min(axis=1).sum() <= spread * (1 + 1e-12)
