"""Verdicts follow from rows: change the rows and they change, take them away and they are open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from panda_mdp.survey.bench import Outcome
from panda_paper.claims import CLAIMS, Finding, checklist, tally
from panda_paper.evidence import exact_runs
from panda_paper.items import EXACT, ITEMS, PUBLISHED, TEXT, Cell, Setting
from panda_paper.results import CityResults, Row, Rows, rows_of

DATE = "2026-01-01T00:00:00+00:00"


def city(rows: list[Row]) -> CityResults:
    return CityResults(Path("nowhere"), {"city": "nowhere"}, {}, Rows(rows))


def rows_for(name: str, method: str, **values: Any) -> list[Row]:
    """A row for every cell of an item's method, first repeat; values may be functions of K."""
    out = []
    for cell in ITEMS[name].cells():
        if cell.method == method and cell.repeat == 0:
            found = {k: v(cell.setting.records) if callable(v) else v for k, v in values.items()}
            seconds = float(found.pop("seconds", 1.0))
            out.append(Row(cell, Outcome(found, (("all", seconds),)), None, "here", DATE))
    assert out, f"{name} has no {method}"
    return out


def finding(key: str, rows: list[Row]) -> Finding:
    (claim,) = [claim for claim in CLAIMS if claim.key == key]
    return claim.evaluate(city(rows))


def test_without_rows_everything_is_open() -> None:
    for found in checklist(city([])).values():
        assert found.published == found.exact == "cannot be checked"
        assert "panda-mdp reproduce" in found.figures


def test_every_claim_names_items_that_exist() -> None:
    assert len({claim.key for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.items and set(claim.items) <= set(ITEMS)
        assert claim.command("rome.npz").startswith("panda-mdp reproduce ")


def test_lower_losses_are_judged_at_every_size() -> None:
    rows = [r for name in PUBLISHED for r in rows_for("table4", name, loss_m=250.0)]
    rows += rows_for("table4", "EM", loss_m=1300.0)
    rows += rows_for("table4", "EM+BR", loss_m=1100.0)
    assert finding("C2", rows).published == "holds"
    assert finding("76.40 % lower loss", rows).published == "holds"
    assert "77.3%" in finding("76.40 % lower loss", rows).figures
    worse = [
        replace(r, outcome=Outcome({"loss_m": 1200.0})) if r.cell.setting.records == 3000 else r
        for r in rows
    ]
    assert finding("C2", worse).published == "does not hold"
    assert finding("76.40 % lower loss", worse).published == "does not hold"


def test_times_are_compared_and_limits_count() -> None:
    rows = [r for name in PUBLISHED for r in rows_for("table2", name, seconds=10, anchors=5)]
    rows += rows_for("table2", "EM", seconds=0.1) + rows_for("table2", "LP+CA 8x8", seconds=20)
    stopped = [
        Row(r.cell, Outcome({}, (("stopped", 1800.0),), "time limit"), 1800.0, "here", DATE)
        for r in rows_for("table2", "LP")
    ]
    found = finding("C1", rows + stopped)
    assert found.published == "holds" and "LP+BD" in found.figures
    quick = rows_for("table2", "LP+CA 8x8", seconds=5)
    kept = [r for r in rows if r.cell.method != "LP+CA 8x8"]
    assert finding("C1", kept + quick).published == "does not hold"


@pytest.mark.parametrize(
    ("share", "word"), [(0.08, "does not hold"), (0.2, "holds"), (0.6, "does not hold")]
)
def test_coverage_is_the_papers_neither_less_nor_more(share: float, word: str) -> None:
    rows = [
        r
        for name in PUBLISHED
        for r in rows_for("figure7", name, anchors=lambda k: min(share * k, 450))
    ]
    assert finding("14.81 % anchors", rows).published == word


def test_violations_and_audits_decide_the_guarantee() -> None:
    broken = [
        r
        for name in PUBLISHED
        for r in rows_for("figure12", name, violated_pairs=0.3, audited_epsilon=float("inf"))
    ]
    assert finding("guarantee", broken).published == "does not hold"
    assert "infinite" in finding("guarantee", broken).figures
    assert finding("violation below 1e-7", broken).published == "does not hold"
    kept = [
        r
        for name in PUBLISHED
        for r in rows_for("figure12", name, violated_pairs=0.0, audited_epsilon=4.9)
    ]
    assert finding("guarantee", kept).published == "holds"
    assert finding("violation below 1e-7", kept).published == "holds"


def test_exact_accounting_is_judged_by_its_conditions() -> None:
    rows = [
        r
        for name in PUBLISHED
        for r in rows_for("figure12", name, violated_pairs=0.3, audited_epsilon=50.0)
    ]
    conditions = {"cost_epsilon": 30.0, "shortfall": 0.1, "anchors": 500.0}
    text = [r for name in TEXT for r in rows_for("figure7", name, fits=False, **conditions)]
    found = finding("guarantee", rows + text)
    assert found.exact == "does not hold" and "costs 30 to 30 /km" in found.exact_figures
    fitting = [r for name in TEXT for r in rows_for("figure7", name, fits=True, **conditions)]
    assert finding("guarantee", rows + fitting).exact == "holds"


def test_only_the_tables_runs_say_whether_anything_fits() -> None:
    # Clustering coefficients have rows of the same names, which are always done.
    other = [r for name in EXACT for r in rows_for("clustering", name, coefficient=0.5)]
    assert "no run" in exact_runs(city(other))["runs"]
    tried = [replace(r, outcome=Outcome({}, (), "infeasible", "")) for r in table_rows()]
    rows = [*other, *published_losses(), *tried]
    assert exact_runs(city(rows))["runs"] == f"none of {len(tried)} runs fits"
    assert finding("C2", rows).exact == "does not hold"
    one = [*other, *published_losses(), *tried[1:], *table_rows()[:1]]
    assert exact_runs(city(one))["fitting"] == 1
    assert finding("C2", one).exact == "cannot be checked", "its own row would have to be judged"


def published_losses() -> list[Row]:
    rows = [r for name in PUBLISHED for r in rows_for("table4", name, loss_m=250.0)]
    return rows + rows_for("table4", "EM", loss_m=1300.0)


def table_rows() -> list[Row]:
    return [r for name in EXACT for r in rows_for("table4", name, loss_m=250.0)]


def test_budget_shares_have_ten_points_of_room() -> None:
    def shares(first: float, second: float) -> list[Row]:
        parts = {
            "share_selection": first,
            "share_margin": second,
            "share_rest": 1 - first - second,
        }
        return [r for name in PUBLISHED for r in rows_for("figure13", name, **parts)]

    assert finding("67/24/9 % of the budget", shares(0.25, 0.1)).published == "holds"
    assert finding("67/24/9 % of the budget", shares(0.9, 0.05)).published == "does not hold"


def test_margins_are_settled_by_their_curves() -> None:
    def curves(power: list[float]) -> list[Row]:
        rates = [0.1, 0.5, 1.0]
        out: list[Row] = []
        for decay in ("exponential", "logistic", "power"):
            within = power if decay == "power" else [1.0, 2.0, 3.0]
            none = [0.5, 0.9, 1.0]
            out += rows_for("figure6", decay, rates=rates, within=within, none=none, margin=within)
        return out

    assert finding("margin grows with lambda", curves([1.0, 2.0, 3.0])).exact == "holds"
    assert finding("margin falls with lambda", curves([1.0, 2.0, 3.0])).exact == "does not hold"
    mixed = finding("margin grows with lambda", curves([3.0, 2.0, 1.0]))
    assert mixed.exact == "does not hold"
    assert "exponential grows 4" in mixed.exact_figures and "power falls 4" in mixed.exact_figures
    assert "80%" in mixed.exact_figures


def test_estimates_against_real_margins() -> None:
    def rows(estimated: float) -> list[Row]:
        values = {"real": 2.0, "estimated": estimated, "none": 0.5, "uncovered": 1.0}
        return [
            r
            for decay in ("exponential", "power", "logistic")
            for r in rows_for("figure18", decay, **values)
        ]

    assert finding("margins 13.3 % above", rows(2.27)).exact == "holds"
    assert finding("margins 13.3 % above", rows(4.0)).exact == "does not hold"


def test_the_ratio_needs_a_bound() -> None:
    rows = [
        r
        for name in PUBLISHED
        for r in rows_for("figure23", name, ratio=1.36)
        if r.cell.kind == "bound"
    ]
    assert finding("ratio 1.3649", rows).published == "holds"
    below = [replace(r, outcome=Outcome({"ratio": 0.8})) for r in rows]
    assert finding("ratio 1.3649", below).published == "does not hold"


def test_verdicts_on_real_rows_are_complete(toy_figures: Any) -> None:
    rows = [one for found in toy_figures.rows.values() for one in found]
    results = city(rows)
    found = checklist(results)
    assert found["guarantee"].published == "does not hold"
    assert found["violation below 1e-7"].published == "does not hold"
    counts = tally([one.published for one in found.values()])
    assert sum(counts.values()) == len(CLAIMS)
    assert counts["cannot be checked"] <= 3


def test_rows_are_found_at_any_size() -> None:
    item = ITEMS["table4"]
    other = Row(
        Cell("method", "EM", Setting(777), 4),
        Outcome({"loss_m": 1.0}),
        None,
        "here",
        DATE,
    )
    assert rows_of(item, [other]) == (other,)
    own = replace(other, cell=replace(other.cell, setting=Setting(500)))
    assert rows_of(item, [other, own]) == (own,)
