"""Ball anchors: what both phases promise, on the numbers that draws are made of, and their cost."""

from __future__ import annotations

import numpy as np
import pytest
from pair_violations import violation

import panda_mdp as pm
from panda_mdp.errors import MethodError, PhaseOneCostError, PrivacyError
from panda_mdp.panda.run import PandaResult
from panda_mdp.privacy.quantise import TOTAL, SeededBits

SIZE = 18


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    rng = np.random.default_rng(5)
    domain = pm.Domain.from_vectors(rng.normal(size=(SIZE, 2)) * 3, unit="km")
    outputs = rng.choice(SIZE, 6, replace=False)
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 4.0)


@pytest.fixture(scope="module")
def scheme(problem):
    return pm.BallAnchors(2.0, radius=2.5).scheme(problem, options=pm.PandaOptions(gap=0.05))


def test_both_phases_tell_epsilon_at_most_by_every_release(problem, scheme) -> None:
    """All centres that are not rarer than 1e-15, all reports, all pairs; and most of it."""
    apart, most = problem.domain.distances(), 0.0
    np.fill_diagonal(apart, np.inf)
    for centre, chances in scheme.law.releases():
        rows, row = scheme.rows(np.array(centre), scheme.whole_table)
        logs = np.log(chances)[:, None] + np.log(rows[row])
        most = max(most, float((np.abs(logs[:, None] - logs).max(axis=2) / apart).max()))
    assert 3.0 < most <= 4.0
    told = scheme.selection_epsilon + scheme.mechanism.audit.epsilon + scheme.edge
    assert scheme.audited_epsilon == told <= 4.0


def test_parts_of_the_budget_are_all_of_it(scheme) -> None:
    """A report from a ball that was told before costs what the centre has left, edge included."""
    assert scheme.further == pm.Guarantee(2.0, 0.0, "km")
    shares = scheme.shares(np.arange(3))
    assert (shares.selection, shares.margin) == (0.5, 0.05 / 2)
    assert shares.remaining == pytest.approx(0.475, abs=1e-12)


def test_claimed_and_audited_guarantee_agree(problem, scheme) -> None:
    run = pm.panda(problem, range(10), scheme.selection, 0.01)
    assert isinstance(run, PandaResult)
    # No delta is needed, whatever was allowed.
    assert run.guarantee == pm.Guarantee(4.0, 0.0, "km")
    audit = pm.audit_panda(run)
    assert audit.holds and audit.violation == 0
    assert all(found.selection_epsilon <= 2.0 and found.violations == 0 for found in audit.sets)
    for x, x2 in [(0, 1), (3, 17), (11, 12)]:
        found = violation(run, x, x2)
        assert found.lower == found.upper == 0
        assert 0 < found.epsilon <= 4.0
    assert run.loss > 0 and run.sample(0) in problem.outputs


def test_draws_of_both_phases_follow_their_law(problem, scheme) -> None:
    """A small ball, so that many report from the common row; every draw has a coin of its own."""
    small = pm.BallAnchors(2.0, radius=0.8).scheme(problem).holding(mechanism=scheme.mechanism)
    count, bits = 40_000, SeededBits(1)
    for one in (scheme, small):
        records = np.tile([2, 9], count // 2)
        columns = one.draw_reports(records, one.draw_selections(records, bits), bits)
        for record in (2, 9):
            found = np.bincount(columns[records == record], minlength=6) / (count / 2)
            spread = np.sqrt(one.marginal[record] * (1 - one.marginal[record]) / (count / 2))
            assert (np.abs(found - one.marginal[record]) <= 6 * spread + 1e-4).all()
        np.testing.assert_allclose(one.marginal.sum(axis=1), 1, atol=1e-9)


def test_a_record_draws_from_its_own_row_and_from_the_common_one(problem, scheme) -> None:
    """By words that are given: the coin decides which row, the word the column of it."""

    class Given:
        def __init__(self, *words: int) -> None:
            self.words = list(words)

        def integers(self, count: int) -> np.ndarray:
            return np.full(count, self.words.pop(0))

    centre = scheme.law.draw(4, SeededBits(3))
    share, common = scheme.fading(centre)
    own = np.asarray(scheme.mechanism.weights[np.array([4])])[0]
    for coin, row in ((0, common), (int(share[4]) - 1, common), (int(share[4]), own)):
        for word in (0, TOTAL // 3, TOTAL - 1):
            column = int(np.searchsorted(np.cumsum(row), word, side="right"))
            report = scheme.report(np.array(centre), scheme.whole_table, 4, Given(word, coin))
            assert report == column


def test_losses_and_sizes_are_summed_over_centres_and_reports(problem, scheme) -> None:
    loss = size = 0.0
    for centre, chances in scheme.law.releases():
        rows, row = scheme.rows(np.array(centre), scheme.whole_table)
        loss += float(problem.prior * chances @ (rows[row] * problem.loss).sum(axis=1))
        size += float(problem.prior @ chances) * len(scheme.law.ball(centre))
    assert scheme.expected_loss == pytest.approx(loss, rel=1e-9)
    assert scheme.expected_anchors == pytest.approx(size, rel=1e-9)


def test_balls_that_miss_less_lose_less_and_are_larger(problem, scheme) -> None:
    sizes, losses = [], []
    for radius in (1.0, 2.5, 6.0, 15.0):
        one = pm.BallAnchors(2.0, radius).scheme(problem).holding(mechanism=scheme.mechanism)
        sizes.append(one.expected_anchors)
        losses.append(one.expected_loss)
    assert np.all(np.diff(sizes) > 0) and np.all(np.diff(losses) < 0)
    assert losses[-1] == pytest.approx(scheme.mechanism.loss, rel=1e-3)


def test_what_does_not_fit_raises(problem) -> None:
    for centre, edge in ((4.0, None), (3.0, 1.0)):
        with pytest.raises(PhaseOneCostError, match="nothing is left"):
            pm.panda(problem, [1], pm.BallAnchors(centre, edge=edge))
    for wrong in ({"radius": 0.0}, {"edge": -1.0}, {"radius": np.inf}, {"epsilon": 0.0}):
        with pytest.raises(MethodError):
            pm.BallAnchors(**({"epsilon": 1.0} | wrong))


def test_metrics_without_a_plane_are_told_of_coins() -> None:
    table = np.array([[0.0, 1, 2], [1, 0, 1.5], [2, 1.5, 0]])
    domains = (
        pm.Domain.from_matrix(table),
        pm.Domain.from_vectors(np.eye(3)),
        pm.Domain.from_graph([(0, 1), (1, 2)], [1.0, 1.0]),
    )
    for domain in domains:
        asked = pm.Problem(domain, [0, 1], domain.distances(None, [0, 1]), 2.0)
        with pytest.raises(MethodError, match=r"drawn in a plane.*BernoulliAnchors"):
            pm.panda(asked, [1], pm.BallAnchors(0.5))


def test_a_table_that_spends_more_than_is_left_has_no_account(problem, scheme) -> None:
    greedy = scheme.holding(mechanism=pm.optimal(problem, 0.1))
    assert greedy.account.violation == 1.0
    with pytest.raises(PrivacyError):
        pm.PandaTable(greedy)


@pytest.mark.data
def test_balls_on_rome_cost_what_is_said(road_maps) -> None:
    """Rome 300 x 30 at 5 per km: docs/panda.md compares them with the form that was before."""
    from panda_mdp.city.draw import draw_problem

    asked = draw_problem(road_maps("rome"), 300, 30, 1, 5.0, 0).problem
    table = pm.PandaTable(pm.BallAnchors(1.0).scheme(asked, options=pm.PandaOptions(gap=0.02)))
    assert table.guarantee == pm.Guarantee(5.0, 0.0, "km")
    assert table.loss < 0.412 and table.download < 20_000
