"""The audit of the composed mechanism against brute force over all anchor sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import panda_mdp as pm
from panda_mdp.errors import MethodError, MissingDependencyError
from panda_mdp.panda.audit import scan_pairs
from panda_mdp.panda.certify import certify, pair_bound
from panda_mdp.panda.plan import PandaPlan
from panda_mdp.panda.violation import interval, violation

LEAN = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def problem_on(domain: pm.Domain, epsilon: float = 2.0) -> pm.Problem:
    outputs = np.arange(min(3, domain.size))
    return pm.Problem(domain, outputs, domain.distances(None, outputs), epsilon)


def brute_losses(brute, run, x: int, x2: int) -> np.ndarray:
    """max_y |l + log ratio| of every set; infinite for the empty one."""
    table = run.tables[0]
    rows = np.full((run.problem.size, run.problem.outputs_count), np.nan)
    rows[table.anchors] = np.log(table.matrix)
    out = np.full(len(brute.sets), np.inf)
    for k in range(len(brute.sets)):
        s, s2 = brute.surrogate[x, k], brute.surrogate[x2, k]
        if s >= 0:
            ratio = rows[s] - rows[s2]
            out[k] = np.abs(float(brute.ratio(x, x2)[k]) + ratio).max()
    return out


@given(data=st.data())
@LEAN
def test_violation_probability_is_exact_over_all_sets(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    problem = problem_on(domain)
    users = np.repeat(np.arange(domain.size), 6)
    run = pm.panda(problem, users, selection, 0.05, enforce=False, relaxed=False, seed=1, gap=0.1)
    for x, x2 in [(0, 1), (domain.size - 1, 0)]:
        losses = brute_losses(brute, run, x, x2)
        found = violation(run, x, x2, draws=10)
        assert found.method == "all anchor sets"
        limit = problem.epsilon * domain.distance(x, x2)
        if not np.isnan(losses).any():
            assert found.lower == found.upper
        beyond = losses > limit
        known = ~np.isnan(losses)
        expected = max(float(brute.probabilities[h][beyond & known].sum()) for h in (x, x2))
        assert found.lower <= expected * (1 + 1e-12) or np.isnan(losses).any()
        assert found.upper >= expected * (1 - 1e-12)
        if not np.isnan(losses).any():
            assert found.upper == pytest.approx(expected, rel=1e-12)
            # The effective epsilon holds with probability 1 - delta, and nothing smaller does.
            for h in (x, x2):
                worse = losses > found.epsilon * domain.distance(x, x2) * (1 + 1e-9) + 1e-9
                assert float(brute.probabilities[h][worse].sum()) <= run.delta * (1 + 1e-9)


@given(data=st.data())
@LEAN
def test_the_loss_of_a_drawn_set_is_exact_over_all_pairs(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    problem = problem_on(domain)
    run = (
        pm.panda(
            problem, [0, domain.size - 1], selection, 0.05, enforce=False, relaxed=False, gap=0.1
        )
        if brute.probabilities[:, 0].max() < 1e-9
        else None
    )
    if run is None:
        return
    audit = pm.audit_panda(run)
    for chosen, found in zip(run.anchor_sets, audit.sets, strict=True):
        code = int((brute.sets == np.isin(np.arange(domain.size), chosen)).all(axis=1).argmax())
        worst, count = 0.0, 0
        for x in range(domain.size):
            for x2 in range(x):
                rows = np.log(run.tables[0].rows(brute.surrogate[[x, x2], code]))
                loss = np.abs(float(brute.ratio(x, x2)[code]) + rows[0] - rows[1]).max()
                worst = max(worst, loss / domain.distance(x, x2))
                count += loss > problem.epsilon * domain.distance(x, x2) + 1e-9
        assert found.epsilon == pytest.approx(worst, rel=1e-9, abs=1e-12)
        assert found.violations == count


@given(data=st.data())
@LEAN
def test_the_certificate_enumerates_surrogates_of_one_set(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    law = selection.on(domain)
    problem = problem_on(domain)
    plan = PandaPlan.over(problem, selection, law.candidates, 0.3, enforce=False)
    place = {int(a): k for k, a in enumerate(plan.anchors)}
    worst = 0.0
    for x in range(domain.size):
        for x2 in range(x):
            cost = brute.leakage(x, x2)
            room = problem.epsilon * domain.distance(x, x2) - cost
            if abs(room) < 1e-9:
                return
            unsafe = np.ones(len(brute.sets), dtype=bool)
            for k in range(len(brute.sets)):
                s, s2 = brute.surrogate[x, k], brute.surrogate[x2, k]
                if s >= 0:
                    unsafe[k] = plan.budgets[place[s], place[s2]] > room * (1 - 1e-12)
            if room < 0:
                unsafe[:] = True
            expected = max(float(brute.probabilities[h][unsafe].sum()) for h in (x, x2))
            found = pair_bound(law, problem.epsilon, plan.budgets, cost, (x, x2))
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-15)
            worst = max(worst, expected)
    certificate = certify(law, problem.epsilon, 0.3, plan.budgets)
    assert certificate.violation >= worst * (1 - 1e-9)
    assert certificate.violation <= worst + 0.3 * 1e-6 * 200


@given(data=st.data())
@LEAN
def test_the_papers_violation_multiplies_two_users_laws(data, small_cases, brute_force) -> None:
    domain, selection = data.draw(small_cases)
    brute = brute_force(domain, selection)
    problem = problem_on(domain)
    users = np.repeat(np.arange(domain.size), 6)
    run = pm.panda(problem, users, selection, 0.05, enforce=False, relaxed=False, seed=2, gap=0.1)
    table = run.tables[0]
    if len(table.anchors) < len(brute.candidates):
        return
    x, x2 = 0, domain.size - 1
    v, v2 = brute.surrogate_probability(x), brute.surrogate_probability(x2)
    limit = problem.epsilon * domain.distance(x, x2)
    logs = np.log(table.matrix)
    expected = 1 - v.sum() * v2.sum()
    for i, a in enumerate(table.anchors):
        for j, b in enumerate(table.anchors):
            if brute.leakage(x, x2) + np.abs(logs[i] - logs[j]).max() > limit:
                expected += v[a] * v2[b]
    found = violation(run, x, x2, definition="paper")
    assert found.lower <= expected * (1 + 1e-9) + 1e-15
    assert expected * (1 - 1e-9) - 1e-15 <= found.upper <= expected + 0.05 * 3e-3


def test_an_overclaiming_run_is_not_confirmed() -> None:
    """Phase I alone tells more than epsilon: every set's audit says so."""
    domain = pm.Domain.from_vectors(np.random.default_rng(3).normal(size=(40, 2)), unit="km")
    problem = problem_on(domain, 1.0)
    selection = pm.BernoulliAnchors("exponential", rate=2.0, radius=1.0)
    run = pm.panda(problem, [1, 2, 3], selection, enforce=False, relaxed=False)
    audit = pm.audit_panda(run, draws=60, seed=5)
    assert not audit.holds
    assert audit.claimed is None
    assert "NO GUARANTEE" in repr(audit)
    assert max(found.selection_epsilon for found in audit.sets) > 1.0
    assert audit.drawn.low > 0.3
    assert audit.drawn.certain <= audit.drawn.possible <= 60


def test_sampling_never_claims_to_see_small_probabilities() -> None:
    for draws in (10, 1000):
        low, high = interval(0, draws, 0.99)
        assert low == 0.0
        assert high > 3 / draws
    low, high = interval(7, 7, 0.99)
    assert high == 1.0
    assert low < 1.0
    with pytest.raises(MethodError, match="draws"):
        pm.audit_panda(None, draws=-1)


def test_options_of_a_violation_are_checked() -> None:
    domain = pm.Domain.from_vectors([[0.0], [1.0], [2.0]])
    run = pm.panda(
        problem_on(domain), [0], pm.BernoulliAnchors(radius=5.0), 0.5, enforce=False, seed=3
    )
    with pytest.raises(MethodError, match="two different records"):
        violation(run, 1, 1)
    with pytest.raises(MethodError, match="definition"):
        violation(run, 0, 1, definition="mine")


def test_numpy_and_compiled_audits_of_a_set_agree(backend) -> None:
    rng = np.random.default_rng(6)
    domain = pm.Domain.from_vectors(rng.normal(size=(25, 2)), unit="km")
    likelihood, row = rng.normal(size=25), rng.integers(0, 4, 25)
    logs = np.log(rng.dirichlet(np.ones(3), size=4))
    found = scan_pairs(domain, likelihood, row, logs, 1.0)
    worst, count = 0.0, 0
    for x in range(25):
        for x2 in range(x):
            loss = np.abs(likelihood[x] - likelihood[x2] + logs[row[x]] - logs[row[x2]]).max()
            worst = max(worst, loss / domain.distance(x, x2))
            count += loss > domain.distance(x, x2)
    assert found[0] == pytest.approx(worst, rel=1e-12)
    assert found[2] == count
    logs[2, 1] = -np.inf
    assert scan_pairs(domain, likelihood, row, logs, 1.0)[0] == np.inf


def test_without_numba_margins_say_what_is_missing(without_numba) -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(0).normal(size=(8, 2)))
    selection = pm.BernoulliAnchors(radius=1.0)
    assert selection.margin(domain, 0, 1, 2.0, 0.5) < np.inf
    with pytest.raises(MissingDependencyError, match="pip install numba"):
        PandaPlan.over(problem_on(domain), selection, range(8), enforce=False)
