"""Columns and flows between peaks and a floor, against the LP over all pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.methods.optimal.test_stars import CASES, exact_optimum, random_problem

import panda_mdp as pm
from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.methods.certify import Budget, certify
from panda_mdp.methods.optimal.columns import PLAIN, Columns, ColumnTuning
from panda_mdp.methods.optimal.optimal import solver_for
from panda_mdp.methods.optimal.stars import Stars
from panda_mdp.space.metrics import Euclidean
from panda_mdp.table.bound import Multipliers, Proved, star_prices


def columns_of(problem: pm.Problem, tuning: ColumnTuning = PLAIN) -> Columns:
    """From the prices of stars on."""
    stars = Stars(problem)
    start = star_prices(problem, stars.prices)
    return Columns(problem, stars.decay, stars.cost, start, stars.columns, tuning)


@pytest.mark.parametrize(("seed", "epsilon", "kind"), CASES)
def test_no_proof_exceeds_the_optimum_and_both_come_near_it(
    seed: int, epsilon: float, kind: str
) -> None:
    problem = random_problem(seed, epsilon, kind)
    optimum, columns = exact_optimum(problem), columns_of(problem)
    for _ in range(30):
        columns.advance()
        assert columns.proof().value <= optimum * (1 + 1e-7)
    assert columns.proof().value >= optimum * 0.93
    private = Stars(problem).near(columns.table())
    assert optimum * (1 - 1e-6) <= private.loss <= optimum * 1.04


@pytest.mark.parametrize("wild", [0.5, 3.0, 30.0])
def test_prices_that_are_too_high_prove_what_is_true_or_nothing(wild: float) -> None:
    """Nothing about where flows end is believed: any prices, cut short, weights of any size."""
    problem = random_problem(0, 0.6)
    optimum, rng = exact_optimum(problem), np.random.default_rng(4)
    columns = columns_of(problem, ColumnTuning(steps=2))
    for _ in range(10):
        columns.asked = rng.uniform(-0.1, wild, problem.size) / problem.size
        columns.best = np.exp(rng.normal(size=columns.heights.shape)), columns.best[1]
        assert columns.proof().value <= optimum * (1 + 1e-7)


@pytest.mark.parametrize(("seed", "epsilon", "kind"), CASES)
def test_a_proof_of_too_many_multipliers_is_a_bound_that_is_stated(
    seed: int, epsilon: float, kind: str
) -> None:
    problem = random_problem(seed, epsilon, kind)
    columns = columns_of(problem, replace(PLAIN, most_named=10))
    plain = columns_of(problem)
    for _ in range(6):
        columns.advance()
        plain.advance()
        stated, proof = columns.proof(), plain.proof()
        assert isinstance(stated, float) and isinstance(proof, Proved)
        assert stated - 0.02 * abs(stated) <= proof.value <= exact_optimum(problem)
        assert stated <= exact_optimum(problem)


def test_columns_that_are_called_for_lie_in_the_cone_and_are_paid_more_than_they_cost() -> None:
    problem = random_problem(1, 0.5)
    columns = columns_of(problem)
    before = len(columns.known)
    for _ in range(4):
        columns.advance()
    assert len(columns.known) > before or (columns.outputs[before:] >= 0).any()
    decay = np.exp(-problem.epsilon * problem.domain.distances())
    for known in columns.known:
        assert (known[:, None] >= decay * known * (1 - 1e-12)).all()


def test_a_file_keeps_the_flows_and_proves_the_bound_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    domain = pm.Domain.from_vectors(rng.normal(size=(60, 20)))
    problem = pm.Problem(domain, np.arange(60), domain.distances(), 0.5)
    best = pm.optimal(problem, gap=0.02, backend="cpu", time_limit=30)
    assert best.gap is not None and best.gap < 0.02
    assert best.loss < 0.99 * problem.mean_loss.min()
    read = pm.load(best.save(tmp_path / "words.pmdp"))
    assert read.lower_bound == best.lower_bound
    assert isinstance(getattr(read.bound, "multipliers", None), Multipliers)


@pytest.mark.parametrize("apart", [0.0, 400.0])
def test_records_that_nobody_has_and_groups_that_are_far_apart(apart: float) -> None:
    """Prices of nobody are 0, and powers of what is far vanish."""
    rng = np.random.default_rng(5)
    groups = np.repeat([[0.0] * 8, [apart] * 8, [-apart] * 8], 4, axis=0)
    domain = pm.Domain.from_vectors(groups + rng.normal(size=(12, 8)))
    prior = np.array([0.0, 0.5, 1, 2, 3, 4, 0, 1, 1, 1, 1, 1])
    problem = pm.Problem(domain, np.arange(12), domain.distances(), 0.4, prior=prior / prior.sum())
    columns = columns_of(problem)
    for _ in range(20):
        columns.advance()
        assert np.isfinite(columns.prices).all()
    proved, loss = columns.proof().value, Stars(problem).near(columns.table()).loss
    assert proved <= loss <= 1.1 * proved
    if apart == 0:
        assert proved <= exact_optimum(problem) * (1 + 1e-7) <= loss * (1 + 1e-6)


@pytest.mark.parametrize(("seed", "epsilon", "kind"), CASES)
def test_rows_that_are_completed_are_private(seed: int, epsilon: float, kind: str) -> None:
    """Of many records nothing is closed: what rows are short of goes to one output."""
    problem, rng = random_problem(seed, epsilon, kind), np.random.default_rng(seed)
    stars = Stars(problem, most_closed=1)
    growth = np.exp(epsilon * problem.domain.distances())[:, :, None]
    # Whatever rows sum to.
    for size in (1e-3, 1.0, 30.0):
        whole = stars.completed(stars.decay * rng.uniform(0, size, problem.size))
        assert whole.min() > 0 and np.ptp(whole.sum(axis=1)) < 1e-9 * whole.sum()
        assert (whole[:, None] <= growth * whole[None] * (1 + 1e-9)).all()
        # One output has no more than it must have.
        less = whole[:, stars.columns == problem.best_single_output] - 1e-6 * whole[0].sum()
        assert less.min() < 0 or (less[:, None] > growth * less[None]).any()
    assert stars.near(stars.decay).audit.holds


def test_many_words_whose_peaks_do_not_fill_have_a_better_table_than_closed_forms() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(7).normal(size=(150, 30)))
    problem = pm.Problem(domain, np.arange(150), domain.distances(), 0.6)
    stars = Stars(problem, most_closed=100)
    assert stars.shares.min() < 0
    start = star_prices(problem, stars.prices)
    columns = Columns(problem, stars.decay, stars.cost, start, stars.columns)
    for _ in range(4):
        columns.advance()
    table = stars.near(columns.table())
    others = pm.exponential(problem), pm.exponential(problem, tight=True)
    assert table.loss < 0.95 * min(problem.mean_loss.min(), *(other.loss for other in others))


@pytest.mark.parametrize("kept", [1, 2])
def test_the_floor_is_known_whatever_else_is_forgotten(kept: int) -> None:
    """Without it a table may not be there: rows are filled with it, also once columns before it in
    the list are gone."""
    columns = columns_of(random_problem(*CASES[0]), replace(PLAIN, kept=kept))
    size = len(columns.prices)
    for _ in range(20):
        columns.advance()
        assert (columns.known == 1).all(axis=1).any()
    assert not (columns.known[:size] == columns.decay).all(), "nothing was forgotten"


@dataclass(frozen=True, eq=False)
class Slow(Euclidean):
    """Distances that take a clock's time, each four tenths of a millisecond."""

    clock: ClassVar[Ticks]

    def block(self, rows: IntArray, cols: IntArray) -> FloatArray:
        self.clock.now += 4e-4 * len(rows) * len(cols)
        return super().block(rows, cols)

    def pairs(self, first: IntArray, second: IntArray) -> FloatArray:
        self.clock.now += 4e-4 * len(first)
        return super().pairs(first, second)


class Ticks:
    """A clock that goes on by a hundredth of a second whenever it is looked at."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


@pytest.mark.parametrize("limit", [70.0, 110.0])
def test_the_limit_is_kept_where_proofs_take_long(limit: float) -> None:
    """A proof of 90 words names nearly all pairs, 3 s by this clock."""
    vectors = np.random.default_rng(7).normal(size=(90, 30))
    clock = Slow.clock = Ticks()
    domain = pm.Domain(Slow(vectors))
    problem = pm.Problem(domain, np.arange(90), domain.distances(), 0.5)
    start = clock.now
    made = certify(solver_for(problem, "cpu"), Budget(1e-9, limit, clock=clock)).mechanism()
    assert clock.now - start <= limit + max(5.0, 0.1 * limit)
    assert made.audit.holds and made.lower_bound is not None
    assert 0 < made.lower_bound < made.loss
    assert isinstance(made.bound, Proved)
