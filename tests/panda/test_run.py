"""Both phases together: what is returned, what raises, and what never shows."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pair_violations import violation

import panda_mdp as pm
from panda_mdp.errors import (
    EmptyAnchorsError,
    MethodError,
    NotForReleaseError,
    PhaseOneCostError,
    PrivacyError,
    SurrogateError,
)
from panda_mdp.panda.coins import CoinScheme
from panda_mdp.panda.law import surrogates
from panda_mdp.panda.leakage import leakage
from panda_mdp.panda.run import PandaNoGuarantee, PandaResult

SIZE = 40


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    rng = np.random.default_rng(11)
    domain = pm.Domain.from_vectors(rng.normal(size=(SIZE, 2)) * 2, unit="km")
    outputs = rng.choice(SIZE, 6, replace=False)
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 2.0)


@pytest.fixture(scope="module")
def everything() -> pm.BernoulliAnchors:
    """Anchors drawn without regard to the record: the whole domain, almost surely."""
    return pm.BernoulliAnchors("exponential", alpha=1 - 2e-8, rate=0.0, neighbours=SIZE)


@pytest.fixture(scope="module")
def sparse() -> pm.BernoulliAnchors:
    return pm.BernoulliAnchors("exponential", radius=1.5, tail=0.02)


def test_a_run_that_fits_has_the_guarantee_and_the_optimal_loss(problem, everything) -> None:
    run = pm.panda(problem, [3, 17, 3, 29], everything)
    assert isinstance(run, PandaResult)
    assert run.guarantee == pm.Guarantee(2.0, 1e-7, "km")
    best = pm.optimal(problem)
    assert run.anchor_loss <= best.loss * 1.02
    assert run.lower_bound <= best.loss
    assert 1.0 <= run.ratio < 1.02
    own = (problem.loss[[3, 17, 3, 29]] * run.table.rows(np.array([3, 17, 3, 29]))).sum(axis=1)
    assert run.loss == pytest.approx(own.mean(), rel=1e-12)
    audit = pm.audit_panda(run)
    assert audit.holds
    assert audit.violation <= 1e-7
    assert all(found.violations == 0 for found in audit.sets)
    assert run.sample(2) in problem.outputs


def test_a_public_candidate_set_fits_with_a_margin(problem) -> None:
    """Surrogates are the nearest of few candidates; the margin pays for the distance."""
    chosen = np.arange(0, SIZE, 2)
    selection = pm.BernoulliAnchors(
        "exponential",
        alpha=1 - 2e-8,
        rate=0.0,
        radius=12.0,
        candidates=chosen,
        neighbours=SIZE,
    )
    losses = []
    for budgets in ("margin", "certificate"):
        run = pm.panda(problem, range(8), selection, options=pm.PandaOptions(budgets=budgets))
        assert isinstance(run, PandaResult)
        assert pm.audit_panda(run).holds
        losses.append((run.shares.margin, run.scheme.expected_loss))
    assert losses[0][0] > 0.1
    assert losses[1] < losses[0]


def test_the_papers_defaults_raise_and_tell_what_to_do(problem) -> None:
    with pytest.raises(PhaseOneCostError) as caught:
        pm.panda(problem, [1, 2], pm.BernoulliAnchors())
    text = str(caught.value)
    for word in ("Phase I costs", "epsilon is 2", "calibrate", "BallAnchors", "study_panda"):
        assert word in text
    assert isinstance(caught.value, ValueError)
    # What the refusal ends with can be pasted.
    call = text.split("This call works: ")[1]
    names = {"panda": pm.panda, "BallAnchors": pm.BallAnchors, "problem": problem, "users": [1, 2]}
    assert isinstance(eval(call, names), PandaResult)  # noqa: S307


def test_only_what_the_certificate_refuses_is_refused(problem) -> None:
    """Twenty neighbours cover too little for the paper's argument, and the guarantee holds."""
    selection = pm.BernoulliAnchors("exponential", 0.99, 0.0, radius=12.0, neighbours=20)
    scheme = selection.scheme(problem, 0.15, pm.PandaOptions(budgets="margin"))
    assert scheme.conditions.uncovered > 0.15
    assert scheme.account.violation <= 0.15
    assert scheme.failure is None


def test_without_enforcement_there_is_a_result_that_says_what_it_is(problem, sparse, tmp_path):
    run = pm.study_panda(problem, [1, 2, 30], sparse)
    assert isinstance(run, PandaNoGuarantee)
    assert "NO PRIVACY GUARANTEE" in repr(run)
    assert run.guarantee is None
    assert run.reasons
    with pytest.raises(NotForReleaseError):
        run.save(tmp_path / "no.pmdp")
    with pytest.raises(NotForReleaseError):
        run.sample(0)
    assert not list(tmp_path.iterdir())
    assert not pm.audit_panda(run).holds


def test_a_guarantee_cannot_be_made_up(problem, sparse) -> None:
    run = pm.study_panda(problem, [1, 2], sparse, seed=1)
    fields = {name: getattr(run, name) for name in run.__dataclass_fields__}
    with pytest.raises(PrivacyError, match="no guarantee"):
        PandaResult(**fields)


def test_nothing_shows_records_or_seeds(problem, sparse, everything) -> None:
    users, seed = [37, 38], 987654321
    run = pm.study_panda(problem, users, sparse, seed=seed)
    safe = pm.panda(problem, users, everything, seed=seed)
    for shown in (repr(run), repr(safe), repr(run.scheme.selection), repr(pm.audit_panda(run))):
        assert not re.search(r"\b(37|38)\b", shown)
        assert str(seed) not in shown
    for bad in ([4711], [-5], [0.5], ["x"]):
        with pytest.raises(MethodError) as caught:
            pm.panda(problem, bad, everything)
        assert "4711" not in str(caught.value)
        assert "-5" not in str(caught.value)


def test_a_seeded_run_is_repeatable_and_not_for_release(problem, everything) -> None:
    first = pm.panda(problem, [1, 2], everything, seed=4)
    again = pm.panda(problem, [1, 2], everything, seed=4)
    for one, two in zip(first.anchor_sets, again.anchor_sets, strict=True):
        assert np.array_equal(one, two)
    assert "NOT FOR RELEASE" in repr(first)
    with pytest.raises(NotForReleaseError):
        first.sample(0)


def test_the_table_does_not_depend_on_the_records(problem, sparse) -> None:
    """Same anchors, other records: the server computes the same table."""
    scheme = sparse.scheme(problem, 1e-7)
    sets = (np.array([1, 4, 9]), np.array([4, 20, 31]))
    first, second = (
        PandaNoGuarantee.over(scheme, np.array(records), sets, seeded=False)
        for records in ([1, 4], [20, 39])
    )
    assert np.array_equal(first.table.mechanism.weights, second.table.mechanism.weights)


def test_solvers_agree(problem, sparse) -> None:
    selection = pm.BernoulliAnchors("exponential", alpha=0.6, rate=0.02, radius=1.0, tail=0.5)
    losses = {
        solver: pm.study_panda(
            problem, range(6), selection, 0.3, pm.PandaOptions(solver=solver, gap=0.01), seed=3
        ).anchor_loss
        for solver in ("optimal", "benders", "highs")
    }
    best = min(losses.values())
    assert max(losses.values()) <= best * 1.021


def test_weights_of_the_objective(problem) -> None:
    """The paper's weights serve the anchors themselves best."""
    selection = pm.BernoulliAnchors("exponential", alpha=0.6, rate=0.02, radius=1.0, tail=0.5)
    paper, ours = (
        pm.study_panda(
            problem, range(6), selection, 0.3, pm.PandaOptions(weights=weights), seed=3
        ).anchor_loss
        for weights in ("prior", "surrogate")
    )
    assert paper <= ours * 1.011


def test_loss_goes_through_the_surrogate(problem, sparse) -> None:
    users = np.array([5, 6, 7])
    run = pm.study_panda(problem, users, sparse, seed=8)
    expected = []
    for n, (record, chosen) in enumerate(zip(users, run.anchor_sets, strict=True)):
        at = surrogates(problem.domain, chosen, np.array([record]))[0]
        expected.append(run.table.rows(run.anchor_sets[n])[at] @ problem.loss[record])
    assert run.loss == pytest.approx(np.mean(expected), rel=1e-12)


def test_empty_sets_are_named_by_position_only(problem) -> None:
    selection = pm.BernoulliAnchors("exponential", alpha=1e-6, rate=0.1, tail=1e-9, neighbours=SIZE)
    with pytest.raises(EmptyAnchorsError, match="no user drew any anchor"):
        pm.study_panda(problem, [37], selection, 0.5)


def test_a_set_that_is_empty_reports_without_the_record(problem) -> None:
    """An error would tell that nothing was drawn: delta counts such sets, and all have one row."""
    selection = pm.BernoulliAnchors.alike(problem.domain, 6, 1e-2)
    scheme = selection.scheme(problem, 1e-2, pm.PandaOptions(gap=0.1))
    everything = selection.on(problem.domain).candidates
    sets = (everything, everything[:0], everything[:0])
    run = PandaResult.over(scheme, np.array([0, 3, 5]), sets, seeded=False)
    assert run.guarantee.delta == 1e-2 and np.isfinite(run.loss)
    reports = {run.sample(user) for user in (1, 2) for _ in range(20)}
    # What is best without a record.
    best = problem.outputs[int((problem.prior @ problem.loss).argmin())]
    assert reports == {int(best)}
    assert run.table.rows(run.anchor_sets[1]).shape == (0, problem.outputs_count)


def test_the_papers_margin_does_not_imply_the_standard_definition() -> None:
    """Five records on a line: the paper's violation is within delta, one user's is not."""
    places = np.array([0.16, 0.51, 0.98, 1.76, 2.48])
    domain = pm.Domain.from_vectors(places[:, None], unit="km")
    problem = pm.Problem(domain, range(5), domain.distances(), 10.0)
    selection = pm.BernoulliAnchors("exponential", alpha=0.95, rate=0.1, radius=50.0, neighbours=5)
    paper = pm.PandaOptions(budgets="margin")
    with pytest.raises(SurrogateError, match="independent sets") as caught:
        pm.panda(problem, [1], selection, 0.1, paper)
    assert caught.value.value > caught.value.limit == 0.1
    assert caught.value.pair == (1, 3)
    users = np.repeat(np.arange(5), 8)
    run = pm.study_panda(problem, users, selection, 0.1, paper, seed=1)
    assert len(run.anchors) == 5
    assert isinstance(run.scheme, CoinScheme)
    assert run.scheme.margins(run.anchors).clipped == 0
    one_user = violation(run, 1, 3)
    # Proposition 4: surrogates of independent sets, the leakage at its supremum.
    limit = 10.0 * domain.distance(1, 3) - leakage(run.scheme.law, 1, 3)
    (first, second), (v, v2) = run.scheme.law.surrogate_law(np.array([1, 3]))
    logs = np.log(run.table.matrix)
    spread = np.abs(logs[first][:, None] - logs[second]).max(axis=2)
    two_users = 1 - v.sum() * v2.sum() + (np.outer(v, v2) * (spread > limit)).sum()
    assert 0.08 < two_users <= 0.1 < one_user.lower == one_user.upper
    assert isinstance(run, PandaNoGuarantee)


def test_options_are_checked(problem, sparse) -> None:
    for options, word in (
        ({"pairs": "some"}, "pairs"),
        ({"weights": "mine"}, "weights"),
        ({"solver": "magic"}, "solver"),
    ):
        with pytest.raises(MethodError, match=word):
            pm.PandaOptions(**options)
    with pytest.raises(MethodError, match="delta"):
        pm.panda(problem, [1], sparse, delta=2.0)
    with pytest.raises(MethodError, match="empty"):
        pm.panda(problem, [], sparse)
    with pytest.raises(MethodError, match="selection is a str"):
        pm.panda(problem, [1], "ball")
    run = pm.panda(problem, [1], pm.BallAnchors(1.5))
    with pytest.raises(MethodError, match="users"):
        run.sample(5)


def test_stages_are_timed(problem, sparse) -> None:
    run = pm.study_panda(problem, [1, 2], sparse)
    names = [name for name, _ in run.stages]
    assert names[0] == "draw anchors"
    assert any("AnPO" in name for name in names)
    assert run.seconds > 0


@pytest.mark.data
def test_the_papers_parameters_on_rome_raise(road_maps) -> None:
    city = road_maps("rome")
    domain = city.domain(1000, seed=0)
    outputs = np.arange(100)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 5.0)
    users = np.arange(50)
    for decay in ("power", "exponential", "logistic"):
        with pytest.raises(PhaseOneCostError) as caught:
            pm.panda(problem, users, pm.BernoulliAnchors(decay))
        x, x2 = caught.value.pair
        rate = leakage(pm.BernoulliAnchors(decay).on(domain), x, x2) / domain.distance(x, x2)
        assert caught.value.value == pytest.approx(rate, rel=1e-9)
        assert caught.value.value > 5.0


def test_a_bad_seed_is_not_shown(problem, sparse) -> None:
    for seed in (-987654, "987654"):
        with pytest.raises(MethodError) as caught:
            pm.study_panda(problem, [1], sparse, seed=seed)
        assert "987654" not in str(caught.value)
