"""Cells of the tables: what each method reports, and the artifact's baselines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.survey.bench import Outcome
from panda_paper.accounts import run_clustering
from panda_paper.items import EXACT, NOISE, Cell, Setting, paper_row
from panda_paper.methods import (
    METHODS,
    exact,
    representative_problem,
    representatives,
    table_outcome,
)
from panda_paper.runner import run_method
from panda_paper.study import Study, draw_cell

SETTING = Setting(60, outputs=8, users=6)


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Study:
    folder: Path = tmp_path_factory.mktemp("cells")
    return Study(synthetic_city(400, 0), "synthetic", folder, synthetic=True)


def run(work: Study, method: str, setting: Setting = SETTING) -> Outcome:
    return run_method(draw_cell(work, Cell("method", method, setting, 0), 60.0))


@pytest.mark.parametrize("method", ["EM", "EM+BR", "loss exponential", "optimal", "LP+CA", "ball"])
def test_what_this_library_guarantees_holds_by_audit(work: Study, method: str) -> None:
    found = run(work, method)
    assert found.status == "done"
    assert found.values["holds"] is True
    assert found.values["audited_epsilon"] <= 5.0
    assert found.seconds > 0
    assert found.values["loss_m"] > 0


@pytest.mark.parametrize(
    "method", ["LP+CA 8x8", "LP+CA published", "LP+BD published", "EM swapped"]
)
def test_variants_without_a_guarantee_say_so(work: Study, method: str) -> None:
    found = run(work, method)
    assert found.status == "done"
    assert found.note
    assert found.values["holds"] == (found.values["audited_epsilon"] <= 5.0)


def test_losses_agree_where_they_must(work: Study) -> None:
    losses = {name: run(work, name).values["loss_m"] for name in ("EM", "EM+BR", "optimal", "LP")}
    assert losses["EM+BR"] <= losses["EM"]
    assert losses["optimal"] <= losses["EM+BR"]
    assert losses["LP"] == pytest.approx(losses["optimal"], rel=0.01)
    near_only = run(work, "LP+BD published").values["loss_m"]
    assert near_only <= losses["optimal"] * 1.2


def test_the_optimum_is_certified(work: Study) -> None:
    values = run(work, "optimal").values
    assert values["gap"] <= 0.01
    assert values["lower_bound_m"] <= values["loss_m"] <= 1.01 * values["lower_bound_m"]


def test_the_real_prior_reaches_every_method(work: Study) -> None:
    real = Setting(60, outputs=8, users=6, prior="real")
    for method in ("EM", "optimal", "PAnDA-e published"):
        assert run(work, method, real).values["loss_m"] != run(work, method).values["loss_m"]


@pytest.mark.parametrize("method", ["PAnDA-e", "PAnDA-p", "PAnDA-l"])
def test_exact_accounting_says_why_it_does_not_fit(work: Study, method: str) -> None:
    found = run(work, method)
    assert found.status == "infeasible"
    assert "selects no anchor within the radius, and delta is" in found.note
    assert found.values["shortfall"] > 1e-7
    assert "loss_m" not in found.values


def test_exact_accounting_reports_a_guarantee_where_parameters_fit(work: Study) -> None:
    generous = pm.BernoulliAnchors(
        "exponential", alpha=1 - 1e-9, rate=0.0, radius=0.5, neighbours=60
    )
    found = exact(draw_cell(work, Cell("method", "PAnDA-e", SETTING, 0), 60.0), generous)
    assert found.status == "done"
    assert found.values["holds"] is True
    assert found.values["violation"] <= 1e-7
    assert found.values["loss_m"] > 0


def test_published_accounting_shows_its_claim_and_its_audit(work: Study) -> None:
    found = run(work, "PAnDA-e published")
    values = found.values
    assert values["claimed_epsilon"] == 5.0
    assert values["holds"] is False
    assert values["audited_epsilon"] > 5.0
    assert "NO GUARANTEE" in found.note
    assert [name for name, _ in found.stages] == ["draw anchors", "leakage and margins", "LP"]
    assert values["lp_seconds"] <= found.seconds
    total = values["share_selection"] + values["share_margin"] + values["share_rest"]
    assert total == pytest.approx(1)


def test_representatives_are_nearest_to_their_cells_centres() -> None:
    lat = np.array([0.0, 0.4, 0.05, 1.0, 0.9])
    lon = np.array([0.0, 0.4, 0.3, 1.0, 0.8])
    # Cells of 0.5 x 0.5: nodes 0, 1, 2 in one (centre .25, .25), 3 and 4 in another (.75, .75).
    assert representatives(lat, lon, 2).tolist() == [2, 4]


def test_the_artifacts_coarse_problem_has_a_tenth_of_epsilon(work: Study) -> None:
    draw = draw_cell(work, Cell("bound", "z", SETTING, 0))
    apart = np.array([[0.0, 2.0], [2.0, 0.0]])
    cells = representative_problem(draw.problem, apart, np.array([3, 4]))
    assert cells.epsilon == 0.5
    assert np.array_equal(cells.loss[:2], draw.problem.loss[[3, 4]])
    assert cells.prior[:2].tolist() == [0.5, 0.5]


def test_clustering_of_anchors_and_records(work: Study) -> None:
    for method in ("Origin", "PAnDA-e"):
        found = run_clustering(draw_cell(work, Cell("clustering", method, SETTING, 0)))
        assert 0 <= found.values["coefficient"] <= 1
    assert found.values["anchors"] <= 60


def test_unknown_methods_are_refused(work: Study) -> None:
    with pytest.raises(pm.errors.MethodError, match="no method 'XY'"):
        run(work, "XY")


def test_every_row_of_the_paper_has_a_method() -> None:
    rows = {*NOISE, "LP", "LP+CA", "LP+BD", "LP+EM", *EXACT}
    assert rows <= set(METHODS)
    assert {paper_row(name) for name in METHODS} == rows | {"loss", "optimal", "ball"}


def test_a_solver_that_failed_is_told(work: Study) -> None:
    problem = draw_cell(work, Cell("method", "EM", SETTING, 0)).problem
    table = pm.exponential(problem)
    failed = replace(table, details={**table.details, "stopped": "failed", "table": "exponential"})
    assert (
        table_outcome(failed, 1.0, 60.0).note == "the solver failed: this is the exponential table"
    )
    assert table_outcome(table, 1.0, 60.0).note == ""
