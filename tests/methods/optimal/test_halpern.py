"""What all machines share: edges in order, upper bounds on growth, restarts and the weight."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from helpers import DIGITS, KINDS, displacement_problem, exact_distance, random_domain

from panda_mdp.base.arrays import incidence
from panda_mdp.methods.optimal.halpern import (
    ARTIFICIAL,
    CHECK,
    PACE,
    SCALE_ANEW,
    SMALLEST,
    Halpern,
    root_scale,
)
from panda_mdp.methods.optimal.program import all_pairs, growths
from panda_mdp.table.bound import total_from_below


class Recorder(Halpern):
    """A machine that iterates by a script and writes down what it is asked."""

    residuals = ()
    travel = (1.0, 1.0)

    def __init__(self):
        super().__init__()
        self.anchored, self.steps, self.rescaled = 0, [], []
        self._restart()

    def _anchor(self):
        self.anchored += 1

    def _iterate(self, steps, since):
        self.steps.append((steps, since))
        return self.residuals[len(self.steps) - 1] ** 2

    def _rescale(self):
        self.rescaled.append((self.iterations, self.anchored))

    def _travel(self):
        return self.travel


def recorder() -> Recorder:
    solver = Recorder()
    solver.iterations = 10_000  # far enough for no restart by length alone
    return solver


@pytest.mark.parametrize("kind", KINDS)
def test_growth_is_bounded_from_above_and_closely(kind):
    problem = displacement_problem(random_domain(kind, 20, seed=1), [0, 3, 7, 11], 2.0)
    graph = all_pairs(problem.domain, problem.epsilon)
    _, above = growths(problem, graph.length)
    with mp.workdps(DIGITS):
        for e, (i, j) in enumerate(graph.ends.tolist()):
            true = mp.exp(mp.mpf(problem.epsilon) * exact_distance(problem.domain, i, j))
            assert true <= float(above[e]) <= true * (1 + mp.mpf(1e-12))


def test_the_table_is_scaled_by_its_root():
    z = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    scale = root_scale(z)
    assert scale.mean() == pytest.approx(1.0)
    ratio = scale / np.sqrt(np.maximum(z, SMALLEST))
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-12)


@pytest.mark.parametrize(
    ("residuals", "restarts"),
    [
        ((1.0, 0.5, 0.3), []),
        ((1.0, 0.9, 0.95), []),  # it stalls, but has not come far enough
        ((1.0, 0.5, 0.19), [3]),  # far enough at once
        ((1.0, 0.5, 0.6), [3]),  # far enough for one that stalls
        ((1.0, 0.1, 1.0, 0.9), [2]),  # counted anew after a restart
    ],
)
def test_restarts_follow_the_residual(residuals, restarts):
    solver = recorder()
    solver.residuals = residuals
    anchored = solver.anchored
    seen = []
    for block in range(1, len(residuals) + 1):
        solver.advance(1)
        assert solver.residual == pytest.approx(residuals[block - 1])
        if solver.anchored > anchored:
            anchored = solver.anchored
            seen.append(block)
    assert seen == restarts
    since = [s for _, s in solver.steps]
    assert all(steps == CHECK for steps, _ in solver.steps)
    assert since == [
        CHECK * (k - max([0, *[r for r in restarts if r <= k]])) for k in range(len(since))
    ]


def test_a_long_way_without_a_restart_ends_in_one():
    solver = recorder()
    solver.residuals = (1.0,) * 20
    solver.iterations = 0
    solver.advance(CHECK * 12)
    lengths = np.diff([k for k, (_, since) in enumerate(solver.steps) if since == 0])
    # The first blocks restart each; later stretches are a share of all iterations so far.
    assert lengths[0] == 1
    assert lengths[-1] > 1
    assert solver._since < ARTIFICIAL * solver.iterations + CHECK


def test_the_scale_follows_the_table_at_restarts_whenever_iterations_have_doubled():
    solver = recorder()
    solver.iterations = 0
    solver.residuals = [1.0] * 40
    solver.advance(40 * CHECK)
    seen = solver.rescaled
    at = [iterations for iterations, _ in seen]
    assert at[0] == SCALE_ANEW
    assert all(b >= 2 * a for a, b in itertools.pairwise(at))
    assert len(at) >= 4
    # A restart follows each of them.
    assert solver.anchored > seen[-1][1]


def test_advance_makes_whole_blocks():
    solver = recorder()
    solver.residuals = (1.0,) * 5
    solver.advance(2 * CHECK + 1)
    assert solver.iterations == 10_000 + 3 * CHECK


@pytest.mark.parametrize(
    ("travel", "weight"),
    [
        ((1.0, 1.0), 1.0),
        ((1.0, 16.0), 2.0),  # half way, in logarithms, to sqrt(16)
        ((16.0, 1.0), 0.5),
        ((1e-20, 1e20), PACE.most_weight),  # a primal at rest moves by rounding alone
        ((1e20, 1e-20), 1 / PACE.most_weight),
        ((0.0, 1.0), 1.0),
        ((1.0, 0.0), 1.0),
    ],
)
def test_the_weight_balances_travel_within_bounds(travel, weight):
    solver = recorder()
    solver.travel = travel
    solver.residuals = (1.0, 0.1)
    solver.advance(2 * CHECK)
    assert solver.weight == pytest.approx(weight)


def test_incidence_lists_every_slot_under_its_record():
    ends = np.random.default_rng(0).integers(0, 9, (30, 2))
    start, slot = incidence(ends, 10)
    assert sorted(slot.tolist()) == list(range(60))
    for record in range(10):
        mine = slot[start[record] : start[record + 1]]
        assert (ends.ravel()[mine] == record).all()
    assert start[9] == start[10]


def test_sums_are_rounded_down():
    rng = np.random.default_rng(0)
    values = rng.normal(size=1000) * 10.0 ** rng.integers(-8, 8, 1000)
    with mp.workdps(DIGITS):
        exact = mp.fsum(mp.mpf(float(v)) for v in values)
    assert exact * (1 - mp.sign(exact) * mp.mpf(2e-15)) <= total_from_below(values) < exact
    assert total_from_below(-values) < -exact
    assert total_from_below(np.zeros(3)) == 0.0
    assert total_from_below(np.array([1.0, np.nan])) == -math.inf
    assert total_from_below(np.array([np.inf, -np.inf])) == -math.inf
