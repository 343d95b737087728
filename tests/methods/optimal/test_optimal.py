"""The flagship: bound <= optimum <= loss always, known optima, degenerate cases, ways to stop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp import Domain, Mechanism, Problem, load, optimal
from panda_mdp.errors import GapWarning, MethodError, Stopped
from panda_mdp.methods.certify import Progress
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.methods.optimal.optimal import CpuEngine
from panda_mdp.table.bound import Proved

EXACT = {5: 1.228677, 7: 1.394617}
"""Least expected displacement on an n x n grid of spacing 1 at epsilon 1, inputs = outputs."""


def grid(n: int) -> Problem:
    axis = np.arange(n, dtype=float)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return displacement_problem(Domain.from_vectors(points), np.arange(n * n), 1.0)


def random_problem(seed: int) -> Problem:
    """Any metric, any number of outputs, priors with zeros, losses of any shape and scale."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 15))
    kind = seed % 6
    if kind < 2:
        domain = random_domain(("haversine", "matrix")[kind], size, seed)
    else:
        domain = Domain.from_vectors(rng.normal(size=(size, (1, 2, 3, 6)[kind - 2])))
    outputs = rng.choice(size, int(rng.integers(1, size + 1)), replace=False)
    shape = (size, len(outputs))
    loss = (
        domain.distances(None, outputs),
        rng.random(shape),
        rng.exponential(size=shape) ** 3 * 1e4,
        np.round(rng.random(shape)),
    )[int(rng.integers(4))]
    prior = rng.dirichlet(np.ones(size)) * (rng.random(size) < 0.8)
    prior = prior / prior.sum() if prior.sum() > 0 else None
    near = float(np.median(domain.neighbours(1)[1]))
    return Problem(domain, outputs, loss, float(rng.choice([0.1, 1.0, 4.0])) / near, prior=prior)


@pytest.mark.parametrize("seed", range(60))
def test_bound_optimum_loss_in_this_order(seed):
    problem = random_problem(seed)
    exact = solve_lp(problem, pairs="all", algorithm="simplex")
    assert exact.details["stopped"] == "solved"
    optimum = exact.details["highs_objective"]
    scale = float(problem.prior @ problem.loss.max(axis=1))
    # A hundredth of next to nothing is beyond single precision: such a run is ended by hand.
    within_precision = optimum > 1e-4 * scale

    def give_up(now: Progress) -> None:
        if now.iterations > 60_000 and not within_precision:
            raise KeyboardInterrupt

    mechanism = optimal(problem, progress=give_up)
    assert isinstance(mechanism, Mechanism)
    assert mechanism.audit.holds
    # Both bounds are rigorous and both tables private, so each bound is below each loss.
    slack = 1e-12 * scale
    assert mechanism.lower_bound <= exact.loss + slack
    assert exact.lower_bound <= mechanism.loss + slack
    assert mechanism.lower_bound <= mechanism.loss + slack
    assert mechanism.lower_bound <= optimum + 1e-6 * scale
    assert mechanism.loss >= optimum - 1e-6 * scale
    if within_precision:
        assert mechanism.details["stopped"] == "gap reached"
        assert mechanism.gap <= 0.01
    else:
        assert mechanism.loss <= optimum + 5e-6 * scale


@pytest.mark.parametrize("n", [5, 7])
def test_exact_optima_of_grids(n):
    mechanism = optimal(grid(n))
    assert mechanism.lower_bound <= EXACT[n] + 5e-7
    assert EXACT[n] - 5e-7 <= mechanism.loss <= 1.01 * EXACT[n]
    assert mechanism.audit.holds
    assert mechanism.gap <= 0.01


def test_a_smaller_gap_is_reached():
    mechanism = optimal(grid(5), gap=1e-3)
    assert mechanism.gap <= 1e-3
    assert mechanism.lower_bound == pytest.approx(EXACT[5], rel=1e-3)


def test_the_graph_grows_where_it_is_too_sparse():
    # Neighbours alone leave 500 clustered points in 20 dimensions a third below the optimum; here
    # is a small relative of them.
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 20)) * 3
    domain = Domain.from_vectors(
        centres[rng.integers(4, size=80)] + 0.3 * rng.normal(size=(80, 20))
    )
    near = float(np.median(domain.neighbours(1)[1]))
    mechanism = optimal(displacement_problem(domain, np.arange(0, 80, 8), 0.5 / near))
    assert mechanism.details["stopped"] == "gap reached"
    assert mechanism.details["edges"] > 80 * 16


def test_stages_trace_and_details():
    mechanism = optimal(grid(6))
    assert {name for name, _ in mechanism.stages} >= {"graph", "solve", "bound", "repair", "audit"}
    assert all(seconds >= 0 for _, seconds in mechanism.stages)
    trace = mechanism.details["trace"]
    assert trace
    seconds, iterations, losses, bounds = zip(*trace, strict=True)
    assert list(seconds) == sorted(seconds)
    assert list(iterations) == sorted(iterations)
    assert list(losses) == sorted(losses, reverse=True)
    assert list(bounds) == sorted(bounds)
    # What is kept are shorter multipliers: they may prove more, and give away 1e-4 at the most.
    assert trace[-1][2] == mechanism.loss
    assert mechanism.bound.words == "proved"
    assert trace[-1][3] * (1 - 1e-4) <= mechanism.lower_bound <= mechanism.loss
    assert mechanism.details["backend"] == "cpu"
    assert mechanism.details["iterations"] == iterations[-1]


def test_progress_is_reported():
    seen = []
    mechanism = optimal(grid(6), progress=seen.append)
    assert seen[-1].loss == mechanism.loss
    assert seen[-1].lower_bound == mechanism.details["trace"][-1][3]


def test_a_good_start_is_kept():
    problem = grid(5)
    best = solve_lp(problem, "all", "simplex")
    assert optimal(problem, initial=best.matrix).loss <= best.loss * 1.001


def test_another_problem_starts_from_the_multipliers_of_one_before(tmp_path):
    domain = random_domain("haversine", 300)
    chosen = np.arange(0, 300, 20)
    loss = domain.distances(None, chosen)
    first = Problem(domain, chosen, loss, 6.0 / np.median(loss))
    before = optimal(first, backend="cpu")
    kept = load(before.save(tmp_path / "before.pmdp"))
    prior = first.prior * np.random.default_rng(4).uniform(0.9, 1.1, 300)
    for changed in (
        replace(first, epsilon=1.1 * first.epsilon),
        replace(first, epsilon=0.9 * first.epsilon),
        replace(first, prior=prior / prior.sum()),
    ):
        anew = optimal(changed, backend="cpu")
        again = optimal(changed, backend="cpu", initial=kept)
        assert again.gap <= 0.01 and again.lower_bound <= anew.loss
        assert again.details["iterations"] <= anew.details["iterations"] / 2


@pytest.mark.parametrize(
    ("stretched", "unit"), [(2.0, 1.0), (1e3, 1.0), (1.0, 1e-3), (1.0, 1e-9), (1.0, 1e-40)]
)
def test_a_start_from_other_records_or_units_costs_nothing(stretched, unit):
    """Multipliers of records elsewhere, or of losses in another unit, are no start."""
    points = np.random.default_rng(0).uniform(0, 5, (40, 2))

    def problem(scale: float, unit: float) -> Problem:
        apart = np.linalg.norm(points[:, None] - points, axis=-1)
        domain = Domain.from_matrix(scale * apart)
        outputs = np.arange(0, 40, 2)
        return Problem(domain, outputs, unit * domain.distances(None, outputs), 2.0 / scale)

    before = optimal(problem(1.0, 1.0), backend="cpu")
    assert optimal(problem(stretched, unit), backend="cpu", initial=before).gap <= 0.01


def test_a_proof_that_names_all_pairs_does_not_fill_the_graph():
    """Columns between peaks prove by nearly every ordered pair of the records."""
    domain = Domain.from_vectors(np.random.default_rng(0).normal(size=(100, 12)))
    words = Problem(domain, np.arange(100), domain.distances(), 1.2)
    before = optimal(words, backend="cpu")
    assert isinstance(before.bound, Proved) and len(before.bound.multipliers.pairs) > 9000
    again = optimal(
        replace(words, epsilon=1.08), backend="cpu", initial=before, time_limit=1, gap=1e-9
    )
    assert again.audit.holds
    assert again.details["edges"] < 4000


# Ways to stop early: always a certified table.


@pytest.mark.parametrize("seconds", [1e-9, 0.05, 0.3])
def test_time_limit(seconds):
    mechanism = optimal(grid(9), gap=1e-9, time_limit=seconds)
    assert isinstance(mechanism, Mechanism)
    assert mechanism.audit.holds
    assert mechanism.details["stopped"] == "time limit"
    assert 0 <= mechanism.lower_bound <= mechanism.loss


@pytest.mark.parametrize("backend", ["auto", "cpu"])
@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_returns_the_best_certified_table(backend, number):
    seen = []

    def interrupt(now: Progress) -> None:
        seen.append(now)
        if len(seen) == number:
            raise KeyboardInterrupt

    problem = grid(4)
    mechanism = optimal(problem, gap=1e-9, backend=backend, progress=interrupt)
    assert mechanism.details["stopped"] == "interrupted"
    assert mechanism.audit.holds
    assert mechanism.lower_bound <= mechanism.loss
    assert mechanism.loss <= float((problem.prior @ problem.loss).min()) * (1 + 1e-6)


def test_a_gap_out_of_reach_ends_with_what_it_has():
    with pytest.warns(GapWarning, match="precision reached"):
        mechanism = optimal(grid(3), gap=1e-12)
    assert mechanism.details["stopped"] == "precision reached"
    assert mechanism.audit.holds


# Degenerate cases.


def test_records_one_metre_apart():
    rng = np.random.default_rng(3)
    lat, lon = 41.9 + 0.02 * rng.random(40), 12.5 + 0.02 * rng.random(40)
    domain = Domain.from_points(np.concatenate([lat, lat + 9e-6]), np.concatenate([lon, lon]))
    assert domain.neighbours(1)[1].max() < 0.0011
    mechanism = optimal(displacement_problem(domain, np.arange(0, 80, 8), 5.0))
    assert mechanism.details["stopped"] == "gap reached"


def test_isolated_records_report_their_cheapest_output():
    domain = Domain.from_vectors(1e3 * np.arange(60.0)[:, None])
    with pytest.warns(GapWarning, match="negligible"):
        mechanism = optimal(displacement_problem(domain, np.arange(60), 1.0))
    assert mechanism.loss <= 1e-3
    assert mechanism.details["stopped"] is Stopped.NEGLIGIBLE
    assert mechanism.audit.holds


def test_one_output_is_reported_always():
    problem = displacement_problem(random_domain("haversine", 50), [7], 2.0)
    mechanism = optimal(problem)
    assert (mechanism.matrix == 1.0).all()
    assert mechanism.gap <= 1e-9


def test_a_constant_loss_costs_what_it_costs():
    domain = random_domain("euclidean", 50)
    mechanism = optimal(Problem(domain, [0, 1, 2], np.full((50, 3), 4.0), 1.0))
    assert mechanism.loss == pytest.approx(4.0)
    assert mechanism.gap <= 1e-9


def test_a_loss_of_zero():
    domain = random_domain("matrix", 50)
    mechanism = optimal(Problem(domain, [0, 1, 2], np.zeros((50, 3)), 1.0))
    assert mechanism.loss == mechanism.lower_bound == 0.0
    assert mechanism.gap == 0.0


def test_an_optimum_of_zero_is_met_within_the_absolute_tolerance():
    # Every record has a free output, and all records share one.
    rng = np.random.default_rng(0)
    loss = rng.random((60, 4))
    loss[:, 2] = 0.0
    mechanism = optimal(Problem(random_domain("haversine", 60), [0, 1, 2, 3], loss, 1.0))
    assert mechanism.details["stopped"] == "gap reached"
    assert mechanism.loss <= 1e-7


def test_a_prior_on_one_record():
    domain = random_domain("haversine", 50)
    prior = np.zeros(50)
    prior[13] = 1.0
    problem = displacement_problem(domain, [2, 13, 30], 3.0, prior)
    mechanism = optimal(problem)
    # All records report what is best for the only one that counts.
    assert mechanism.loss <= 1e-6 * float(problem.loss.max())


@pytest.mark.parametrize("kind", ["haversine", "euclidean", "matrix"])
def test_a_tiny_epsilon_makes_all_rows_equal(kind):
    domain = random_domain(kind, 50)
    problem = displacement_problem(domain, [0, 20, 40], 1e-9 / domain.diameter)
    mechanism = optimal(problem)
    assert np.ptp(mechanism.matrix, axis=0).max() <= 2e-9
    assert mechanism.loss == pytest.approx(float((problem.prior @ problem.loss).min()), rel=0.01)


@pytest.mark.parametrize("kind", ["haversine", "euclidean", "matrix"])
def test_a_huge_epsilon_binds_nothing(kind):
    domain = random_domain(kind, 50)
    near = float(domain.neighbours(1)[1].min())
    problem = displacement_problem(domain, [0, 20, 40], 100 / near)
    mechanism = optimal(problem, gap=1e-4)
    assert mechanism.loss == pytest.approx(float(problem.loss.min(axis=1).mean()), rel=1e-4)
    assert mechanism.gap <= 1e-4


def test_two_records():
    # Randomised response: (1, e^-epsilon d) / (1 + e^-epsilon d).
    problem = Problem(Domain.from_vectors([[0.0], [1.0]]), [0, 1], [[0, 1], [1, 0]], 2.0)
    mechanism = optimal(problem, gap=1e-3)
    assert mechanism.loss == pytest.approx(1 / (1 + np.exp(2)), rel=1e-3)


# Options.


@pytest.mark.parametrize("gap", [0.0, -1.0, np.nan, np.inf])
def test_gap_is_checked(gap):
    with pytest.raises(MethodError, match="gap is"):
        optimal(grid(3), gap=gap)


@pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan])
def test_time_limit_is_checked(seconds):
    with pytest.raises(MethodError, match="time_limit is"):
        optimal(grid(3), time_limit=seconds)


def test_backend_is_checked():
    with pytest.raises(MethodError, match="backend is 'tpu'"):
        optimal(grid(3), backend="tpu")


@pytest.mark.parametrize(
    ("initial", "says"),
    [
        (np.ones((9, 8)), "shape"),
        (np.zeros((9, 9)), "positive entry"),
        (np.full((9, 9), np.nan), "finite"),
        (-np.ones((9, 9)), "not negative"),
    ],
)
def test_initial_is_checked(initial, says):
    with pytest.raises(MethodError, match=says):
        optimal(grid(3), initial=initial)


@pytest.mark.parametrize(
    ("trouble", "error", "says"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory", MethodError, r"9 records x 9 outputs do not fit"),
        ("something else", RuntimeError, "something else"),
    ],
)
def test_a_full_device_is_said_in_words(trouble, error, says):
    class Full(CpuEngine):
        def solver(self, *_):
            raise RuntimeError(trouble)

    with pytest.raises(error, match=says):
        optimal(grid(3), backend=Full())
