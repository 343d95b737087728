"""The audit of the composed mechanism against brute force over all anchor sets."""

from __future__ import annotations

from math import nextafter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pair_violations import pair_bound, violation

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.panda.certificate import Limits, certify
from panda_mdp.panda.margins import MarginPlan
from panda_mdp.panda.panda_table import Seen
from panda_mdp.panda.run import PandaNoGuarantee, PandaResult
from panda_mdp.panda.selection import Account, PandaOptions

LEAN = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def problem_on(domain: pm.Domain, epsilon: float = 2.0) -> pm.Problem:
    outputs = np.arange(min(3, domain.size))
    return pm.Problem(domain, outputs, domain.distances(None, outputs), epsilon)


def fixed_run(problem: pm.Problem, selection, sets, delta: float = 0.05) -> PandaNoGuarantee:
    """A study whose users uploaded given sets."""
    scheme = selection.scheme(problem, delta, pm.PandaOptions(gap=0.1))
    records = np.arange(len(sets)) % problem.size
    return PandaNoGuarantee.over(scheme, records, tuple(sets), seeded=True)


def logs_of(rows: np.ndarray) -> np.ndarray:
    """Logarithms; an output that nobody uses tells nothing."""
    return np.log(np.where(rows > 0, rows, 1.0))


def checked(check, wanted: int = 12) -> None:
    """Run a property that says when it has asserted something; fail where it seldom does."""
    reached: list[int] = []
    check(reached)
    assert len(reached) >= wanted, "the property was hardly ever checked"


def brute_losses(brute, run, x: int, x2: int) -> np.ndarray:
    """max_y |l + log ratio| of every set in the run's table; infinite for the empty one."""
    table = run.table
    rows = np.full((run.problem.size, run.problem.outputs_count), np.nan)
    rows[table.anchors] = logs_of(table.matrix)
    out = np.full(len(brute.sets), np.inf)
    for k in range(len(brute.sets)):
        s, s2 = brute.surrogate[x, k], brute.surrogate[x2, k]
        if s >= 0:
            ratio = rows[s] - rows[s2]
            out[k] = np.abs(float(brute.ratio(x, x2)[k]) + ratio).max()
    return out


def test_violation_probability_is_exact_where_the_table_is_settled(
    small_cases, brute_force
) -> None:
    """Two users uploaded every candidate: whatever a third draws, the table stays."""

    def check(reached: list[int]) -> None:
        @given(case=small_cases)
        @LEAN
        def holds(case) -> None:
            domain, selection = case
            brute = brute_force(domain, selection)
            problem = problem_on(domain)
            run = fixed_run(problem, selection, [brute.candidates] * 2)
            for x, x2 in [(0, 1), (domain.size - 1, 0)]:
                losses = brute_losses(brute, run, x, x2)
                found = violation(run, x, x2)
                assert found.method == "all anchor sets"
                limit = problem.epsilon * domain.distance(x, x2)
                # A loss at the limit itself may fall on either side.
                assume((np.abs(losses - limit) > 1e-9).all())
                beyond = losses > limit
                expected = max(float(brute.probabilities[h][beyond].sum()) for h in (x, x2))
                assert found.lower == found.upper == pytest.approx(expected, rel=1e-12)
                # The effective epsilon holds with probability 1 - delta, and nothing smaller.
                for h in (x, x2):
                    worse = losses > found.epsilon * domain.distance(x, x2) * (1 + 1e-9) + 1e-9
                    assert float(brute.probabilities[h][worse].sum()) <= run.scheme.delta * (
                        1 + 1e-9
                    )
            reached.append(1)

        holds()

    checked(check)


@pytest.mark.parametrize("seed", range(4))
def test_sets_that_were_not_drawn_get_tables_of_their_own(seed, brute_force) -> None:
    """One user alone: AnPO solved for every set that could have been drawn is the truth.

    The table of the set that happened to be drawn says nothing about the others.
    """
    rng = np.random.default_rng(seed)
    domain = pm.Domain.from_vectors(rng.random((5, 1)) * 3, unit="km")
    problem = problem_on(domain, 6.0)
    selection = pm.BernoulliAnchors("exponential", 0.8, 0.05, radius=9.0, neighbours=5)
    brute = brute_force(domain, selection)
    run = fixed_run(problem, selection, [np.arange(5)], 0.3)
    scheme = run.scheme
    assert scheme.affordable
    tables = {}
    for k, member in enumerate(brute.sets):
        if member.any():
            tables[k] = scheme.solve((np.flatnonzero(member),))
    for x in range(5):
        for x2 in range(x):
            losses = np.full(len(brute.sets), np.inf)
            for k, table in tables.items():
                rows = logs_of(table.rows(brute.surrogate[[x, x2], k]))
                losses[k] = np.abs(float(brute.ratio(x, x2)[k]) + rows[0] - rows[1]).max()
            beyond = losses > problem.epsilon * domain.distance(x, x2) + 1e-9
            truth = max(float(brute.probabilities[h][beyond].sum()) for h in (x, x2))
            found = violation(run, x, x2)
            assert found.lower <= truth * (1 + 1e-9)
            assert truth * (1 - 1e-9) <= found.upper
            assert truth <= scheme.account.violation * (1 + 1e-9)


def test_the_loss_of_a_drawn_set_is_exact_over_all_pairs(small_cases, brute_force) -> None:
    def check(reached: list[int]) -> None:
        @given(case=small_cases, data=st.data())
        @LEAN
        def holds(case, data) -> None:
            domain, selection = case
            brute = brute_force(domain, selection)
            problem = problem_on(domain)
            codes = data.draw(
                st.lists(st.integers(1, len(brute.sets) - 1), min_size=2, max_size=2), "sets"
            )
            run = fixed_run(problem, selection, [np.flatnonzero(brute.sets[k]) for k in codes])
            audit = pm.audit_panda(run)
            for code, found in zip(codes, audit.sets, strict=True):
                worst, alone, count = 0.0, 0.0, 0
                for x in range(domain.size):
                    for x2 in range(x):
                        rows = logs_of(run.table.rows(brute.surrogate[[x, x2], code]))
                        leak = float(brute.ratio(x, x2)[code])
                        loss = np.abs(leak + rows[0] - rows[1]).max()
                        distance = domain.distance(x, x2)
                        worst, alone = max(worst, loss / distance), max(alone, abs(leak) / distance)
                        assume(abs(loss - problem.epsilon * distance) > 1e-9)
                        count += loss > problem.epsilon * distance
                assert found.epsilon == pytest.approx(worst, rel=1e-9, abs=1e-12)
                assert found.selection_epsilon == pytest.approx(alone, rel=1e-9, abs=1e-12)
                assert found.violations == count
            reached.append(1)

        holds()

    checked(check)


def test_the_certificate_enumerates_surrogates_of_one_set(small_cases, brute_force) -> None:
    def check(reached: list[int]) -> None:
        @given(case=small_cases, listed=st.sampled_from([64, 2, 1]))
        @settings(LEAN, max_examples=24)
        def holds(case, listed) -> None:
            domain, selection = case
            brute = brute_force(domain, selection)
            law = selection.on(domain)
            problem = problem_on(domain)
            plan = MarginPlan.over(
                problem, law, law.candidates, 0.3, neighbours=selection.neighbours
            )
            place = {int(a): k for k, a in enumerate(plan.anchors)}
            ranked = law.ranked(listed)
            worst = 0.0
            for x in range(domain.size):
                for x2 in range(x):
                    cost = brute.leakage(x, x2)
                    room = problem.epsilon * domain.distance(x, x2) - cost
                    assume(abs(room) > 1e-9)
                    unsafe = np.ones(len(brute.sets), dtype=bool)
                    for k in range(len(brute.sets)):
                        s, s2 = brute.surrogate[x, k], brute.surrogate[x2, k]
                        # Equal surrogates are safe as soon as both lists see them.
                        if s >= 0 and s in ranked[x] and s2 in ranked[x2]:
                            unsafe[k] = plan.budgets[place[s], place[s2]] > room * (1 - 1e-12)
                    if room < 0:
                        unsafe[:] = True
                    expected = max(float(brute.probabilities[h][unsafe].sum()) for h in (x, x2))
                    if listed == 64:
                        found = pair_bound(law, problem.epsilon, plan.budgets, cost, (x, x2))
                        assert found == pytest.approx(expected, rel=1e-9, abs=1e-15)
                    worst = max(worst, expected)
            certificate = certify(
                law, problem.epsilon, 0.3, plan.budgets, limits=Limits(listed=listed)
            )
            # What lies beyond the lists counts as unsafe, all of it.
            assert certificate.violation == pytest.approx(worst, rel=1e-9, abs=0.3 * 1e-6 * 200)
            assert certificate.violation >= worst * (1 - 1e-9)
            reached.append(1)

        holds()

    checked(check, 24)


def test_an_overclaiming_run_is_not_confirmed() -> None:
    """Phase I alone tells more than epsilon: every set's audit says so."""
    domain = pm.Domain.from_vectors(np.random.default_rng(3).normal(size=(40, 2)), unit="km")
    problem = problem_on(domain, 1.0)
    selection = pm.BernoulliAnchors("exponential", rate=2.0, radius=1.0)
    run = pm.study_panda(problem, [1, 2, 3], selection)
    audit = pm.audit_panda(run)
    assert not audit.holds
    assert audit.claimed is None
    assert "NO GUARANTEE" in repr(audit)
    assert max(found.selection_epsilon for found in audit.sets) > 1.0


@pytest.mark.parametrize(
    ("bound", "holds"), [(0.0, True), (0.1, True), (nextafter(0.1, 1), False), (1.0, False)]
)
def test_a_claim_holds_only_where_the_account_is_within_its_delta(bound, holds) -> None:
    problem = problem_on(pm.Domain.from_vectors([[0.0], [1.0]]))
    selection = pm.BernoulliAnchors("exponential", 0.99, 0.0, radius=5.0)
    scheme = selection.scheme(problem, 0.1).holding(account=Account(bound, (0, 1)))
    sets = (np.array([0, 1]),)
    run = PandaResult.over(scheme, np.array([0]), sets, seeded=True)
    audit = pm.audit_panda(run)
    assert audit.holds is holds
    assert audit.violation == bound
    study = PandaNoGuarantee.over(scheme, np.array([0]), sets, seeded=True)
    assert not pm.audit_panda(study).holds


@pytest.mark.parametrize("kind", ["ball", "coins"])
def test_what_a_server_sees_is_anchors_and_report_together(kind: str) -> None:
    """Over all releases it is a law, its sum over anchors that of reports, and it tells more."""
    domain = pm.Domain.from_vectors(np.random.default_rng(2).random((12, 2)) * 3)
    outputs = [0, 4, 8, 11]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 6.0)
    selection: Any = {
        "ball": pm.BallAnchors(2.5),
        "coins": pm.BernoulliAnchors.alike(domain, 5, 1e-2),
    }[kind]
    table = pm.PandaTable(selection.scheme(problem, 0.3, PandaOptions()))
    seen = table.seen
    # Of balls, centres that come once in a hundred million draws are left out.
    rare = 1e-6 if kind == "ball" else 1e-12
    np.testing.assert_allclose(seen.matrix.sum(axis=1), 1, rtol=rare)
    alone = seen.matrix.reshape(12, -1, len(outputs)).sum(axis=1)
    np.testing.assert_allclose(alone, table.matrix, atol=rare)
    from_both = pm.attack(seen)
    report = pm.attack(Seen(problem, table.matrix, "report alone"))
    assert from_both.vulnerability >= report.vulnerability - rare
    assert from_both.error <= report.error + 1e-9
    if kind == "ball":
        assert from_both.vulnerability > 1.05 * report.vulnerability


def test_sets_of_many_candidates_are_not_visited() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(2).random((20, 2)) * 3)
    problem = pm.Problem(domain, [0, 4], pm.distance_loss(domain, [0, 4]), 3.0)
    selection = pm.BernoulliAnchors.alike(domain, 16, 1e-2)
    table = pm.PandaTable(selection.scheme(problem, 1e-2, PandaOptions()))
    with pytest.raises(MethodError, match="2\\^16 sets"):
        _ = table.seen
