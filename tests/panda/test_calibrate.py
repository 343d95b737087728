"""Calibration: what it finds runs and is confirmed; what does not fit is explained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.city.draw import draw_problem
from panda_mdp.errors import MethodError
from panda_mdp.methods.coarse import spread_out
from panda_mdp.panda.calibrate import MISSED, RUNGS, wire_bytes
from panda_mdp.panda.candidates import covering_radius
from panda_mdp.panda.lattice import radius_for
from panda_mdp.panda.leakage import leakage
from panda_mdp.table.encode import encode

SIZE = 40


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    rng = np.random.default_rng(8)
    domain = pm.Domain.from_vectors(rng.normal(size=(SIZE, 2)) * 2, unit="km")
    outputs = rng.choice(SIZE, 5, replace=False)
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 2.0)


@pytest.fixture(scope="module")
def found(problem):
    return pm.calibrate(
        problem, 0.01, pm.SearchSpace(("ball", "candidates"), centre_shares=(0.4, 0.5))
    )


def test_the_frontier_has_no_dominated_point(found) -> None:
    worth = [(t.loss, t.download, t.selection_epsilon) for t in found.frontier]
    every = {(t.loss, t.download, t.selection_epsilon) for t in found.tried if t.fits}
    beaten = {
        a: sum(b != a and all(p <= q for p, q in zip(b, a, strict=True)) for b in every)
        for a in every
    }
    assert worth == sorted(a for a, by in beaten.items() if by == 0)
    assert 1 in beaten.values(), "some trial is beaten by a single other one"
    assert found.knee in found.frontier


def test_what_fits_runs_as_it_was_weighed(problem, found) -> None:
    """Same centres, same radius, same bytes: the trial is what a user gets."""
    balls = [t for t in found.tried if t.fits and isinstance(t.selection, pm.BallAnchors)]
    trial = min(balls, key=lambda trial: trial.loss)
    run = pm.panda(problem, range(4), trial.selection, trial.delta, pm.PandaOptions(gap=0.02))
    assert pm.audit_panda(run).holds
    assert run.scheme.expected_loss == pytest.approx(trial.loss, rel=1e-9)
    assert len(run.public.wire) == trial.download
    assert trial.loss >= pm.optimal(problem, 1e-3).lower_bound
    told = {(t.selection.epsilon, t.selection.radius): t.selection_epsilon for t in balls}
    assert told == {key: key[0] for key in told}
    assert {key[1] for key in told} == {
        radius_for(spent, missed) for spent, _ in told for missed in MISSED
    }


def test_more_delta_and_more_bytes_never_lose_more(problem) -> None:
    """What is valid for less is a candidate for more, down to the same numbers."""
    search = pm.SearchSpace(("ball",), centre_shares=(0.4,))
    before: set[tuple[float, int]] = set()
    for delta in (1e-5, 1e-4, 0.03, 0.5):
        answer = pm.calibrate(problem, delta, search)
        balls = {(t.loss, t.download) for t in answer.tried if t.fits and t.selection is not None}
        assert before <= balls
        assert all(trial.delta <= delta for trial in answer.tried)
        before = balls
    assert len(before) == len(MISSED)
    least = np.inf
    sizes = sorted(trial.download for trial in answer.tried if trial.fits)
    for most in (sizes[0] - 1, sizes[0], sizes[-1]):
        best = pm.calibrate(problem, 0.5, replace(search, most_bytes=most)).best
        assert best is not None or most < sizes[0]
        assert best is None or (best.loss <= least and best.download <= most)
        least = np.inf if best is None else best.loss


def test_more_delta_never_loses_more_with_coins_and_candidates_either(problem) -> None:
    """Half of all draws may tell more: what a ten-thousandth allowed is still among the trials."""
    search = pm.SearchSpace(candidate_counts=(SIZE // 2,), decays=("logistic",), rates=(0.003,))
    search = replace(search, centre_shares=(0.4,))
    losses, before = [], set[tuple[float, int]]()
    for delta in (1e-4, 0.1, 0.5):
        answer = pm.calibrate(problem, delta, search)
        phased = [t for t in answer.tried if t.fits and t.selection is not None]
        fitting = {(trial.loss or 0.0, trial.download) for trial in phased}
        assert before <= fitting
        before = fitting
        losses.append(min(loss for loss, _ in fitting))
    assert losses == sorted(losses, reverse=True)
    # Coins that look at the record fit at the larger deltas alone, so there is something to see.
    assert len(before) > len(MISSED) + 1


def test_the_whole_table_is_said_where_nothing_loses_less(problem, found) -> None:
    """The best is never worse than `optimal` in both loss and bytes."""
    whole = next(trial for trial in found.tried if trial.selection is None)
    table = pm.compact(pm.optimal(problem, 0.02))
    assert whole.loss == pytest.approx(table.loss, rel=1e-9)
    named = len(encode(table, losses=False))
    assert whole.download == wire_bytes(table)
    assert 0 < named - whole.download < 1_000, "notes alone"
    assert found.best is found.frontier[0]
    assert found.best.loss <= whole.loss
    assert (found.selection is None) == (found.best is whole) == bool(found.binding)
    assert "fetch the whole table" in found.binding
    assert "optimal(problem)" in repr(found)


def test_a_selection_that_looks_at_the_record_can_fit(problem) -> None:
    """A gentle decay and a generous delta: confirmed by the audit."""
    search = pm.SearchSpace(
        ("coins",), candidate_counts=(SIZE,), decays=("logistic",), rates=(0.003,)
    )
    found = pm.calibrate(problem, 0.05, search)
    looking = [trial for trial in found.tried if trial.fits and trial.selection is not None]
    assert looking
    trial = looking[-1]
    assert leakage(trial.selection.on(problem.domain), 0, 1) > 0
    run = pm.panda(problem, range(6), trial.selection, trial.delta)
    audit = pm.audit_panda(run)
    assert audit.holds
    assert audit.violation <= trial.delta <= 0.05


def test_limits_bind_and_are_said(problem) -> None:
    search = pm.SearchSpace(("candidates",), candidate_counts=(10, 20))
    sizes = [trial.download for trial in pm.calibrate(problem, 1e-7, search).tried[1:]]
    small = pm.calibrate(problem, 1e-7, replace(search, most_bytes=min(sizes)))
    assert [trial.failure for trial in small.tried[1:]] == ["", "bytes"]
    none = pm.calibrate(problem, 1e-7, replace(search, most_bytes=1.0))
    assert none.selection is None
    assert "nothing of" in repr(none)
    assert "most_bytes" in none.binding
    excess = [trial.excess for trial in none.tried]
    assert min(excess) < max(excess)
    assert f"Nearest: {none.tried[int(np.argmin(excess))]}" in none.binding
    assert f"by a factor {min(excess):.3g}. " in none.binding
    search = pm.SearchSpace(("ball",), centre_shares=(0.5,), most_selection_epsilon=0.1)
    quiet = pm.calibrate(problem, 0.1, search)
    assert {trial.failure for trial in quiet.tried} == {"", "upload"}


@pytest.mark.parametrize("limit", [0.99, 0.6])
def test_an_upload_tells_no_more_than_is_allowed(problem, limit) -> None:
    """Half of epsilon 2 for the centre is 1; coins cost what they cost without the limit."""
    search = pm.SearchSpace(("ball",), centre_shares=(0.5,), most_selection_epsilon=limit)
    for trial in pm.calibrate(problem, 0.1, search).tried[1:]:
        assert (trial.failure, trial.selection_epsilon) == ("upload", 1.0)
        assert trial.excess == pytest.approx(1 / limit)
    coins = pm.SearchSpace(
        ("coins",), candidate_counts=(SIZE,), decays=("logistic",), rates=(0.01,)
    )
    tried = pm.calibrate(problem, 0.05, coins).tried[1:]
    dear = [trial for trial in tried if trial.selection_epsilon > problem.epsilon]
    assert any(trial.selection_epsilon < 2 * problem.epsilon for trial in dear)
    assert all(trial.failure == "cost" for trial in dear)
    fitting = [trial for trial in tried if trial.fits]
    cost = max(trial.selection_epsilon for trial in fitting)
    search = replace(coins, most_selection_epsilon=limit * cost)
    for trial in pm.calibrate(problem, 0.05, search).tried:
        assert not trial.fits or trial.selection_epsilon <= limit * cost
        assert trial.selection_epsilon != cost or trial.failure == "upload"


def test_coins_that_cost_too_much_are_looked_at_for_one_delta(problem) -> None:
    """What they cost does not depend on delta; what is within epsilon is tried for each."""
    search = pm.SearchSpace(("coins",), candidate_counts=(1,), decays=("exponential",))
    for rate, deltas in ((50.0, {RUNGS[0]}), (1e-4, set(RUNGS[:3]))):
        tried = pm.calibrate(problem, 0.04, replace(search, rates=(rate,))).tried[1:]
        usual = [trial for trial in tried if trial.selection.alpha == 0.95]
        assert {trial.delta for trial in usual} == deltas
        if rate == 50.0:
            assert {trial.failure for trial in usual} == {"cost"}


def test_more_than_delta_does_not_fit(problem) -> None:
    """One candidate, tossed for with 0.95: nobody has an anchor with more than delta = 0.04."""
    search = pm.SearchSpace(
        ("coins",), candidate_counts=(1,), decays=("exponential",), rates=(1e-4,)
    )
    tried = pm.calibrate(problem, 0.04, search).tried[1:]
    seldom = [trial for trial in tried if trial.selection.alpha == 0.95]
    assert {trial.delta for trial in seldom} == set(RUNGS[:3])
    for trial in seldom:
        assert trial.failure == "surrogates"
        assert 1 < trial.excess * trial.delta / 0.05 < 1.05, "0.05, and what the decay adds"


def test_why_nothing_fits_names_the_condition(problem) -> None:
    search = pm.SearchSpace(("coins",), decays=("power",), rates=(0.5,), candidate_counts=(SIZE,))
    none = pm.calibrate(problem, 1e-7, replace(search, most_bytes=1e3))
    assert none.selection is None
    assert "Phase I costs more than epsilon" in none.binding
    call = none.binding.rsplit(": ", 1)[1]
    assert eval(call, {"optimal": pm.optimal, "problem": problem}).audit.holds  # noqa: S307
    for delta in (0.0, "0.1"):
        with pytest.raises(MethodError, match=f"delta is {delta!r:.1}"):
            pm.calibrate(problem, delta)


def test_expected_loss_is_exact_over_sets_and_reports(brute_force) -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(1).normal(size=(7, 2)))
    problem = pm.Problem(domain, [0, 3, 5], domain.distances(None, [0, 3, 5]), 1.0)
    selection = pm.BernoulliAnchors("power", alpha=0.7, radius=1.0)
    brute = brute_force(domain, selection)
    scheme = selection.scheme(problem, 0.3)
    table = scheme.whole_table.matrix
    total = 0.0
    for x in range(7):
        for k in range(len(brute.sets)):
            s = brute.surrogate[x, k]
            blind = problem.loss[x, problem.best_single_output]
            loss = blind if s < 0 else table[s] @ problem.loss[x]
            total += problem.prior[x] * float(brute.probabilities[x, k]) * loss
    assert scheme.expected_loss == pytest.approx(total, rel=1e-9)


@pytest.mark.data
def test_candidates_on_rome_lose_little(road_maps) -> None:
    city = road_maps("rome")
    problem = draw_problem(city, 200, 20, 1, 5.0, 0).problem
    found = pm.calibrate(problem, 1e-7, pm.SearchSpace(("candidates",), candidate_counts=(100,)))
    half = found.tried[1]
    run = pm.panda(problem, range(10), half.selection, 1e-7)
    assert pm.audit_panda(run).holds
    chosen = spread_out(problem.domain, 100)
    reach = 1.001 * covering_radius(problem.domain, chosen)
    spread = pm.BernoulliAnchors("exponential", 1 - 1e-7 / 4, 0.0, reach, candidates=chosen)
    margin, certified = (
        spread.scheme(problem, 1e-7, pm.PandaOptions(budgets=budgets)).expected_loss
        for budgets in ("margin", "certificate")
    )
    assert certified < 0.7 * margin
    assert half.loss < certified


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"most_bytes": 0}, "most_bytes is 0"),
        ({"most_bytes": float("nan")}, "most_bytes is nan"),
        ({"most_selection_epsilon": -1.0}, "most_selection_epsilon is -1"),
        ({"centre_shares": (0.3, 1.5)}, "a share in centre_shares is "),
        ({"centre_shares": (0.0,)}, "a share in centre_shares is "),
        ({"families": ("balls",)}, "a family is 'balls'"),
        ({"candidate_counts": [SIZE + 1]}, f"count is {SIZE + 1}"),
    ],
)
def test_limits_that_mean_nothing_are_refused(problem, wrong, said) -> None:
    with pytest.raises(MethodError, match=said):
        pm.calibrate(problem, 0.01, pm.SearchSpace(**({"families": ("candidates",)} | wrong)))


@pytest.mark.parametrize("epsilon", ["x", None, 0.0, float("nan"), float("inf")])
def test_a_centre_that_tells_no_number_is_refused(epsilon) -> None:
    with pytest.raises(MethodError, match="epsilon is "):
        pm.BallAnchors(epsilon)
