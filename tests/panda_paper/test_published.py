"""Published accounting: follows the artifact, claims nothing, and is audited on right distances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.base.arrays import IntArray
from panda_mdp.compute.numba.margins import last_factor_leakage, second_largest_margins
from panda_mdp.errors import MethodError, SolverError
from panda_paper.items import Cell, Setting
from panda_paper.published import (
    FLOOR,
    PublishedRun,
    clusters,
    near_probability,
    published_law,
    run_published,
    solve_near,
)
from panda_paper.study import Draw, Study


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    generator = np.random.default_rng(5)
    lat = 41.9 + generator.uniform(0, 0.05, 60)
    lon = 12.5 + generator.uniform(0, 0.05, 60)
    domain = pm.Domain.from_points(lat, lon)
    outputs = np.arange(6)
    return pm.Problem(domain, outputs, domain.distances(None, outputs), 5.0)


STUDY = Study(pm.synthetic_city(60, 0), "rome", Path("nowhere"))
USERS = np.arange(0, 60, 5)


def drawn(problem: pm.Problem, method: str, users: IntArray = USERS, seed: int = 1) -> Draw:
    """The draw of a cell of a problem that is given."""
    cell = Cell("method", method, Setting(problem.size), seed)
    return Draw(cell, STUDY, None, problem, users, 0.0)


@pytest.fixture(scope="module")
def run(problem: pm.Problem) -> PublishedRun:
    return run_published(drawn(problem, "PAnDA-e published"))


def test_it_is_no_mechanism(run: PublishedRun) -> None:
    assert not isinstance(run, pm.Mechanism)
    assert not hasattr(run, "sample")
    assert not hasattr(run, "save")
    assert "NO GUARANTEE" in repr(run)


@pytest.mark.parametrize(
    ("decay", "near", "tail"),
    [
        ("exponential", 0.95 * np.exp(-0.2), 0.95 * np.exp(-20 * 0.7)),
        ("power", 0.95 / 1.75, 0.95 / (1 + np.exp(10) * 1.7**5)),
        ("logistic", 1.9 / (1 + np.exp(0.4)), 1.9 / (1 + np.exp(20 * 0.7))),
    ],
)
def test_selection_constants(decay: str, near: float, tail: float) -> None:
    # Two places 56 km apart: gamma = d_max / 80 = 0.7 km at K = 2.
    apart = 56.0
    lon = np.rad2deg(apart / 6371.0088)
    domain = pm.Domain.from_points([0.0, 0.0], [0.0, lon])
    selection = published_law(decay, domain, "rome")  # type: ignore[arg-type]
    assert selection.radius == pytest.approx(0.7, rel=1e-3)
    assert near_probability(decay, np.array([1.0]))[0] == pytest.approx(near)  # type: ignore[arg-type]
    assert selection.tail == pytest.approx(tail, rel=2e-2)
    assert selection.tail <= 0.95e-4


def test_radii_differ_by_city_and_size() -> None:
    generator = np.random.default_rng(0)
    domain = pm.Domain.from_points(generator.uniform(41, 42, 750), generator.uniform(12, 13, 750))
    rome = published_law("exponential", domain, "rome")
    assert domain.diameter / rome.radius == pytest.approx(90)
    london = published_law("exponential", domain, "london")
    assert domain.diameter / london.radius == pytest.approx(150)
    elsewhere = published_law("power", domain, "atlantis")
    assert domain.diameter / elsewhere.radius == pytest.approx(95)


def test_leakage_is_the_last_factor_of_each_product() -> None:
    w = np.array([[0.9, 0.5, 0.1, 0.2], [0.3, 0.6, 0.1, 0.1]])
    found = last_factor_leakage(w)
    # Above: records 0 and 3, the last is 3; not above: 1 and 2, the last is 2, with equal w.
    assert found[0, 1] == pytest.approx(np.log(0.2 / 0.1) + np.log(0.9 / 0.9))
    # The other way round only record 1 is above; the last of the others is 3.
    assert found[1, 0] == pytest.approx(np.log(0.6 / 0.5) + np.log(0.9 / 0.8))
    assert np.array_equal(np.diag(found), [0, 0])


def test_margins_are_the_second_largest_where_the_target_is_out_of_reach() -> None:
    base = np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 4.0], [2.0, 3.0, 0.0]])
    law = np.array([[0.6, 0.3, 0.05], [0.1, 0.2, 0.6]])
    # Anchor 0 is record 0, anchor 1 is record 2; all three are candidates of both.
    half_start, half = np.array([0, 1, 2]), np.array([0, 2])
    near_start, near = np.array([0, 3, 6, 9]), np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    arguments = (base, law, half_start, half, near_start, near)
    found = second_largest_margins(*arguments, 1 - 1e-7)
    # Candidates less base[0, 2]: -0.5 three times, 0.5 twice, 1.5, 2.5, 3.5; 0 is passed over.
    assert found[0, 1] == 2.5
    # -0.5 has a mass of .15, then 0.5 adds .03 and .12.
    assert second_largest_margins(*arguments, 0.2)[0, 1] == 0.5
    assert second_largest_margins(*arguments, 0.1)[0, 1] == 0.0, "a negative margin is none"
    assert np.allclose(found, second_largest_margins.py_func(*arguments, 1 - 1e-7))


def test_only_near_anchors_are_constrained_and_boundary_rows_have_a_floor() -> None:
    # Three anchors: two within 0.8 km of each other, one far away.
    apart = np.array([[0.0, 0.5, 9.0], [0.5, 0.0, 9.0], [9.0, 9.0, 0.0]])
    cost = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    label = clusters(apart, 0)
    matrix = solve_near(cost, apart, 5.0 * apart, label)
    # Every anchor is a cluster of its own here, so the near two are boundary anchors.
    assert matrix[0] == pytest.approx(matrix[1][::-1], abs=1e-6)
    assert matrix[0, 0] / matrix[1, 0] == pytest.approx(np.exp(2.5), rel=1e-5)
    assert matrix[2].tolist() == [0.0, 1.0]
    loose = solve_near(cost, apart, 50.0 * apart, label)
    assert loose[0, 1] == pytest.approx(FLOOR, rel=1e-6)
    spent = solve_near(cost, apart, 0.0 * apart, label)
    assert spent[0] == pytest.approx(spent[1], abs=1e-9), "no budget makes equal rows"
    one_way = 5.0 * apart
    one_way[0, 1] = 0.0
    together = solve_near(cost, apart, one_way, np.zeros(3, dtype=np.int64))
    assert together[0] == pytest.approx(together[1], abs=1e-9), "the smaller budget of a cluster"
    with pytest.raises(SolverError, match="HiGHS ended with"):
        many = np.random.default_rng(0).uniform(size=(60, 40))
        near = np.full((60, 60), 0.1) - 0.1 * np.eye(60)
        solve_near(many, near, near, clusters(near, 0), algorithm="ipm", time_limit=0.0)


def test_losses_shares_and_stages(run: PublishedRun, problem: pm.Problem) -> None:
    rows = (problem.loss[run.anchors] * run.matrix).sum(axis=1)
    assert run.anchor_loss == pytest.approx(rows.mean())
    assert sum(run.shares) == pytest.approx(1)
    assert [name for name, _ in run.stages] == [
        "draw anchors",
        "leakage and margins",
        "LP",
    ]
    assert np.allclose(run.matrix.sum(axis=1), 1)


def test_the_audit_finds_what_brute_force_finds(run: PublishedRun, problem: pm.Problem) -> None:
    w = run.law.dense(np.arange(problem.size))
    apart = problem.domain.distances()
    worst = []
    sets = (run.anchors[:2], run.anchors[3:7], run.anchors[4:5])
    for chosen in sets:
        inside = np.zeros(problem.size, dtype=bool)
        inside[chosen] = True
        likelihood = np.log(np.where(inside, w, 1 - w)).sum(axis=1)
        nearest = chosen[apart[:, chosen].argmin(axis=1)]
        rows = run.matrix[np.searchsorted(run.anchors, nearest)]
        with np.errstate(divide="ignore"):
            joint = likelihood[:, None] + np.log(rows)
        largest = 0.0
        for x in range(problem.size):
            for x2 in range(x):
                both = np.isfinite(joint[x]) | np.isfinite(joint[x2])
                with np.errstate(invalid="ignore"):
                    gap = np.abs(joint[x] - joint[x2])[both].max()
                largest = max(largest, gap / apart[x, x2])
        worst.append(largest)
    found = run.audit(sets)
    assert found["audited_sets"] == 3
    assert found["audited_epsilon"] == pytest.approx(max(worst), rel=1e-6)
    assert found["audited_epsilon"] > problem.epsilon, "the finding: what is claimed does not hold"


def test_swapped_distances_change_the_run_and_not_the_domain(problem: pm.Problem) -> None:
    right = run_published(drawn(problem, "PAnDA-p published"))
    swapped = run_published(drawn(problem, "PAnDA-p swapped"))
    assert swapped.problem.domain is problem.domain
    exchanged = pm.Domain.from_points(problem.domain.lon, problem.domain.lat)
    assert swapped.law.radius == pytest.approx(exchanged.diameter / 80)
    assert swapped.law.radius != right.law.radius


def test_no_anchor_at_all_is_refused(problem: pm.Problem) -> None:
    """One user selects the own record with probability .95, so some draws have nothing."""
    with pytest.raises(MethodError, match="no user drew any anchor"):
        for seed in range(500):
            run_published(drawn(problem, "PAnDA-e published", np.array([0]), seed))
