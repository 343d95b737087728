"""Calibration: what it finds runs and is confirmed; what does not fit is explained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.city.draw import draw_problem
from panda_mdp.errors import MethodError
from panda_mdp.panda.candidates import covering_radius, spread_out
from panda_mdp.panda.leakage import leakage

SIZE = 40


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    rng = np.random.default_rng(8)
    domain = pm.Domain.from_vectors(rng.normal(size=(SIZE, 2)) * 2, unit="km")
    outputs = rng.choice(SIZE, 5, replace=False)
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 2.0)


def test_the_frontier_trades_loss_for_download_and_secrecy(problem) -> None:
    found = pm.calibrate(
        problem, 0.01, pm.SearchSpace(("ball", "candidates"), centre_shares=(0.4, 0.5))
    )
    assert found.best is not None
    assert not found.best.degenerate
    assert {trial.degenerate for trial in found.frontier} == {True, False}
    worth = [(t.loss, t.anchors, t.selection_epsilon) for t in found.frontier]
    every = {(t.loss, t.anchors, t.selection_epsilon) for t in found.tried if t.fits}
    beaten = {
        a: sum(b != a and all(p <= q for p, q in zip(b, a, strict=True)) for b in every)
        for a in every
    }
    assert worth == sorted(a for a, by in beaten.items() if by == 0)
    assert 1 in beaten.values(), "some trial is beaten by a single other one"
    run = pm.panda(problem, range(4), found.selection, 0.01)
    assert pm.audit_panda(run).holds
    assert run.scheme.expected_loss == pytest.approx(found.best.loss, rel=0.05)
    assert found.best.loss >= pm.optimal(problem, 1e-3).lower_bound


def test_the_whole_table_for_everybody_is_no_success(problem) -> None:
    found = pm.calibrate(problem, 1e-7, pm.SearchSpace(("candidates",), candidate_counts=(SIZE,)))
    assert found.best is None
    assert all(trial.degenerate for trial in found.frontier)
    assert found.selection is None
    assert "optimal(problem)" in repr(found)


def test_a_selection_that_looks_at_the_record_can_fit(problem) -> None:
    """A gentle decay and a generous delta: confirmed by the audit."""
    search = pm.SearchSpace(
        ("coins",), candidate_counts=(SIZE,), decays=("logistic",), rates=(0.003,)
    )
    found = pm.calibrate(problem, 0.05, search)
    looking = [trial for trial in found.tried if trial.fits]
    assert looking
    selection = looking[0].selection
    assert leakage(selection.on(problem.domain), 0, 1) > 0
    run = pm.panda(problem, range(6), selection, 0.05)
    audit = pm.audit_panda(run)
    assert audit.holds
    assert audit.violation <= 0.05


def test_limits_bind_and_are_said(problem) -> None:
    search = pm.SearchSpace(("candidates",), most_anchors=12, candidate_counts=(10, 20))
    small = pm.calibrate(problem, 1e-7, search)
    assert small.selection is not None
    assert small.best.anchors <= 12
    none = pm.calibrate(problem, 1e-7, replace(search, most_anchors=1.0))
    assert none.selection is None
    assert "nothing of" in repr(none)
    assert "most_anchors" in none.binding
    excess = [trial.excess for trial in none.tried]
    assert min(excess) < max(excess)
    assert f"Nearest: {none.tried[int(np.argmin(excess))].selection!r}" in none.binding
    assert f"by a factor {min(excess):.3g}. " in none.binding
    search = pm.SearchSpace(("ball",), centre_shares=(0.5,), most_selection_epsilon=0.1)
    quiet = pm.calibrate(problem, 0.1, search)
    assert "most_selection_epsilon" in quiet.binding


@pytest.mark.parametrize("limit", [0.99, 0.6])
def test_an_upload_tells_no_more_than_is_allowed(problem, limit) -> None:
    """Half of epsilon 2 for the centre is 1; coins cost what they cost without the limit."""
    search = pm.SearchSpace(("ball",), centre_shares=(0.5,), rounds=0, most_selection_epsilon=limit)
    for trial in pm.calibrate(problem, 0.1, search).tried:
        assert (trial.failure, trial.selection_epsilon) == ("upload", 1.0)
        assert trial.excess == pytest.approx(1 / limit)
    coins = pm.SearchSpace(
        ("coins",), candidate_counts=(SIZE,), decays=("logistic",), rates=(0.003,)
    )
    tried = pm.calibrate(problem, 0.05, coins).tried
    dear = [trial for trial in tried if trial.selection_epsilon > problem.epsilon]
    assert any(trial.selection_epsilon < 2 * problem.epsilon for trial in dear)
    assert all(trial.failure == "cost" for trial in dear)
    fitting = [trial for trial in tried if trial.fits]
    cost = max(trial.selection_epsilon for trial in fitting)
    search = replace(coins, most_selection_epsilon=limit * cost)
    for trial in pm.calibrate(problem, 0.05, search).tried:
        assert not trial.fits or trial.selection_epsilon <= limit * cost
        assert trial.selection_epsilon != cost or trial.failure == "upload"


def test_more_than_delta_does_not_fit(problem) -> None:
    """One candidate, tossed for with 0.95: nobody has an anchor with more than delta = 0.04."""
    search = pm.SearchSpace(
        ("coins",), candidate_counts=(1,), decays=("exponential",), rates=(1e-4,)
    )
    tried = pm.calibrate(problem, 0.04, search).tried
    seldom = [trial for trial in tried if trial.selection.alpha == 0.95]
    assert seldom
    for trial in seldom:
        assert trial.failure == "surrogates" and 1 < trial.excess < 2


def test_why_nothing_fits_names_the_condition(problem) -> None:
    search = pm.SearchSpace(("coins",), decays=("power",), rates=(0.5,), candidate_counts=(SIZE,))
    none = pm.calibrate(problem, 1e-7, search)
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
    run = pm.panda(problem, range(10), found.selection, 1e-7)
    assert pm.audit_panda(run).holds
    chosen = spread_out(problem.domain, 100)
    reach = 1.001 * covering_radius(problem.domain, chosen)
    spread = pm.BernoulliAnchors("exponential", 1 - 1e-7 / 4, 0.0, reach, candidates=chosen)
    margin, certified = (
        spread.scheme(problem, 1e-7, pm.PandaOptions(budgets=budgets)).expected_loss
        for budgets in ("margin", "certificate")
    )
    assert certified < 0.7 * margin
    assert found.best.loss < certified


def test_rounds_look_between_the_shares_and_never_lose() -> None:
    rng = np.random.default_rng(2)
    domain = pm.Domain.from_vectors(rng.random((60, 2)) * 12, unit="km")
    outputs = np.arange(4)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 4.0)
    few = pm.SearchSpace(("ball",), centre_shares=(0.2, 0.6), rounds=0)
    coarse = pm.calibrate(problem, 1e-2, few)
    once = pm.calibrate(problem, 1e-2, replace(few, rounds=1))
    best = min((trial for trial in coarse.tried if trial.fits), key=lambda trial: trial.loss)
    assert not best.degenerate and len({trial.loss for trial in coarse.tried}) > 1
    looked = {(trial.selection.epsilon, trial.selection.delta) for trial in once.tried}
    before = {(trial.selection.epsilon, trial.selection.delta) for trial in coarse.tried}
    share, part = best.selection.epsilon, best.selection.delta
    assert looked - before == {(4.0 * (0.2 + 0.6) / 2, part), (share, part / 4)} - before
    fine = pm.calibrate(problem, 1e-2, replace(few, rounds=2))
    assert len(coarse.tried) == 6
    assert 6 < len(fine.tried) <= 12
    assert fine.best.loss <= coarse.best.loss
    assert {trial.selection.delta for trial in fine.tried} >= {1e-2, 2.5e-3}
    assert all(trial.selection.delta <= 1e-2 for trial in fine.tried)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"most_anchors": 0}, "most_anchors is 0"),
        ({"most_anchors": float("nan")}, "most_anchors is nan"),
        ({"most_selection_epsilon": -1.0}, "most_selection_epsilon is -1"),
        ({"centre_shares": (0.3, 1.5)}, "a share of epsilon lies between"),
        ({"centre_shares": (0.0,)}, "a share of epsilon lies between"),
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
