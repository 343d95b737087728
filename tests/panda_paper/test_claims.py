"""Verdicts follow from rows: change the rows and they change, take them away and they are open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from panda_mdp.survey.bench import Outcome
from panda_paper.claims import CLAIMS, Claim, Finding, trend
from panda_paper.items import EXACT, ITEMS, NOISE, PUBLISHED, TEXT, Cell, Setting
from panda_paper.results import Results
from panda_paper.tables import claims_rows

Row = tuple[Cell, Outcome]
Judge = Callable[..., dict[str, Finding]]


def rows_for(name: str, *methods: str, kind: str = "", **values: Any) -> list[Row]:
    """A row for every cell of an item's methods, first repeat; values may be functions of K."""
    out = []
    for cell in ITEMS[name].draws():
        if cell.method in methods and cell.repeat == 0 and kind in ("", cell.kind):
            found = {k: v(cell.setting.records) if callable(v) else v for k, v in values.items()}
            seconds = float(found.pop("seconds", 1.0))
            out.append((cell, Outcome(found, (("all", seconds),))))
    assert out, f"{name} has no {methods}"
    return out


def claim_of(key: str) -> Claim:
    (claim,) = [claim for claim in CLAIMS if claim.key == key]
    return claim


@pytest.fixture
def judge(results_of: Callable[[list[Row]], Results]) -> Judge:
    return lambda key, rows: claim_of(key).judge(results_of(rows))


def test_without_rows_everything_is_open(results_of: Callable[[list[Row]], Results]) -> None:
    rows = claims_rows(results_of([]))
    assert {row["claim"] for row in rows} == {claim.key for claim in CLAIMS}
    assert {row["verdict"] for row in rows} == {"cannot be checked"}
    assert all("panda-mdp reproduce" in row["measured"] for row in rows)


def test_every_claim_names_items_that_exist_and_is_decided_by_something() -> None:
    assert len({claim.key for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.items and set(claim.items) <= set(ITEMS)
        sides = [*claim.published, *claim.exact]
        assert any("low" in one or "high" in one for one in sides), claim.key
        assert {one["item"] for one in (*sides, *claim.ours)} <= set(ITEMS)


def test_lower_losses_are_judged_at_every_size(judge: Judge) -> None:
    rows = rows_for("table4", *PUBLISHED, loss_m=250.0) + rows_for("table4", "EM", loss_m=1300.0)
    rows += rows_for("table4", "EM+BR", loss_m=1100.0)
    assert judge("C2", rows)["published"].verdict == "holds"
    found = judge("76.40 % lower loss", rows)["published"]
    assert found.verdict == "holds"
    assert found.measured["loss in EM+BR's"] == pytest.approx(250 / 1100)
    worse = [
        (cell, Outcome({"loss_m": 1200.0})) if cell.setting.records == 3000 else (cell, outcome)
        for cell, outcome in rows
    ]
    assert judge("C2", worse)["published"].verdict == "does not hold"
    assert judge("76.40 % lower loss", worse)["published"].verdict == "does not hold"


def test_times_are_compared_and_limits_count(judge: Judge) -> None:
    rows = rows_for("table2", *PUBLISHED, seconds=10) + rows_for("table2", "EM", seconds=0.1)
    stopped = Outcome({}, (("stopped", 1800.0),), "time limit")
    rows += [(cell, stopped) for cell, _ in rows_for("table2", "LP")]
    found = judge("C1", [*rows, *rows_for("table2", "LP+CA 8x8", seconds=20)])["published"]
    assert found.verdict == "holds"
    assert found.measured["longest time in those of LP, LP+CA, LP+BD, LP+EM"] == 0.5
    quick = [*rows, *rows_for("table2", "LP+CA 8x8", seconds=5)]
    assert judge("C1", quick)["published"].verdict == "does not hold"


@pytest.mark.parametrize(
    ("share", "word"), [(0.08, "does not hold"), (0.2, "holds"), (0.6, "does not hold")]
)
def test_coverage_is_the_papers_neither_less_nor_more(
    share: float, word: str, judge: Judge
) -> None:
    rows = rows_for("figure7", *PUBLISHED, anchors=lambda k: min(share * k, 450))
    assert judge("14.81 % anchors", rows)["published"].verdict == word


@pytest.mark.parametrize(
    ("share", "audited", "word"), [(0.3, float("inf"), "does not hold"), (0.0, 4.9, "holds")]
)
def test_violations_and_audits_decide_the_guarantee(
    share: float, audited: float, word: str, judge: Judge
) -> None:
    values = {"violated_pairs": share, "audited_epsilon": audited, "claimed_epsilon": 5.0}
    rows = rows_for("figure12", *PUBLISHED, **values)
    found = judge("guarantee", rows)["published"]
    assert found.verdict == word
    assert found.measured["largest audited epsilon, in the claimed"] == audited / 5
    assert judge("violation below 1e-7", rows)["published"].verdict == word


def test_exact_accounting_is_judged_by_its_conditions(judge: Judge) -> None:
    ran = rows_for("table4", *EXACT, loss_m=250.0)
    conditions = {"kind": "accounts", "cost_epsilon": 30.0, "shortfall": 0.1}
    fitting = [*ran, *rows_for("figure7", *TEXT, fits=True, **conditions)]
    assert judge("guarantee", fitting)["exact"].verdict == "holds"
    unfit = [*ran, *rows_for("figure7", *TEXT, fits=False, **conditions)]
    found = judge("guarantee", unfit)["exact"]
    assert found.verdict == "does not hold"
    assert found.measured["least cost of Phase I at the worst pair, /km"] == 30
    refused = [(cell, Outcome({}, (), "infeasible", "")) for cell, _ in ran]
    assert judge("C2", refused)["exact"].verdict == "does not hold"
    # Clustering coefficients have rows of the same names, which are always done.
    other = rows_for("clustering", *EXACT, coefficient=0.5)
    assert judge("C2", [*other, *refused])["exact"].verdict == "does not hold"


def test_budget_shares_have_ten_points_of_room(judge: Judge) -> None:
    def verdict(first: float, second: float) -> str:
        parts = {
            "share_selection": first,
            "share_margin": second,
            "share_rest": 1 - first - second,
        }
        rows = rows_for("figure13", *PUBLISHED, kind="method", **parts)
        return judge("67/24/9 % of the budget", rows)["published"].verdict

    assert verdict(0.25, 0.1) == "holds"
    assert verdict(0.9, 0.05) == "does not hold"


def test_margins_are_settled_by_their_curves(judge: Judge) -> None:
    def found(key: str, power: list[float]) -> Finding:
        rows: list[Row] = []
        for decay in ("exponential", "logistic", "power"):
            within = power if decay == "power" else [1.0, 2.0, 3.0]
            values = {"rates": [0.1, 0.5, 1.0], "within": within, "none": [0.5, 0.9, 1.0]}
            for name in ("figure6", "figure6-wide"):
                rows += rows_for(name, decay, **values)
        return judge(key, rows)["exact"]

    assert found("margin grows with lambda", [1.0, 2.0, 3.0]).verdict == "holds"
    assert found("margin falls with lambda", [1.0, 2.0, 3.0]).verdict == "does not hold"
    mixed = found("margin grows with lambda", [3.0, 2.0, 1.0])
    assert mixed.verdict == "does not hold"
    assert mixed.measured["share of curves that grow"] == pytest.approx(2 / 3)
    assert mixed.measured["share of pairs without any margin"] == pytest.approx(0.8)


@pytest.mark.parametrize(("estimated", "word"), [(2.27, "holds"), (4.0, "does not hold")])
def test_estimates_against_real_margins(estimated: float, word: str, judge: Judge) -> None:
    values = {"real": 2.0, "estimated": estimated, "none": 0.5, "uncovered": 1.0}
    rows = rows_for("figure18", "exponential", "power", "logistic", **values)
    assert judge("margins 13.3 % above", rows)["exact"].verdict == word


@pytest.mark.parametrize(("ratio", "word"), [(1.36, "holds"), (0.8, "does not hold")])
def test_the_ratio_needs_a_bound(ratio: float, word: str, judge: Judge) -> None:
    rows = rows_for("figure23", *PUBLISHED, kind="bound", ratio=ratio)
    assert judge("ratio 1.3649", rows)["published"].verdict == word


def test_verdicts_on_real_rows_are_complete(toy_figures: Any) -> None:
    _, results = toy_figures
    found = {claim.key: claim.judge(results)["published"].verdict for claim in CLAIMS}
    assert found["guarantee"] == found["violation below 1e-7"] == "does not hold"
    # C1, C2, the size, the reduction, the guideline and the speed rest on tables alone.
    assert Counter(found.values())["cannot be checked"] <= 7


def test_losses_that_fall_as_epsilon_grows(judge: Judge) -> None:
    least = {**dict.fromkeys(PUBLISHED, 100), **dict.fromkeys(NOISE, 1000)}
    rows = [
        (cell, Outcome({"loss_m": least[cell.method] / cell.setting.epsilon}))
        for cell, _ in rows_for("figure11", *least)
    ]
    assert judge("loss against epsilon", rows)["published"].verdict == "holds"
    rising = [
        (cell, Outcome({"loss_m": 10 * cell.setting.epsilon}))
        for cell, _ in rows_for("figure11", "EM")
    ]
    assert judge("loss against epsilon", [*rows, *rising])["published"].verdict == "does not hold"


def test_rows_are_found_at_toy_size(results_of: Callable[[list[Row]], Results]) -> None:
    (toy, *_) = ITEMS["table4"].toy().draws()
    other = Cell("method", "EM", Setting(777))
    found = results_of([(toy, Outcome({"loss_m": 1.0})), (other, Outcome({"loss_m": 1.0}))])
    assert [*found.of("table4")["cell"]] == [toy]
    own = replace(other, setting=Setting(500))
    found.add(own, Outcome({"loss_m": 1.0}), None)
    assert [*found.of("table4")["cell"]] == [own]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([1.0, 0.999, 3.0], "grows"),
        ([1.0, 0.9, 3.0], "neither"),
        ([3.0, 3.01, 1.0], "falls"),
        ([float("nan"), 1.0, float("inf"), 2.0], "grows"),
        ([2.0, 2.0, 2.0], "nothing to see"),
        ([], "nothing to see"),
    ],
)
def test_trend(values: list[float], word: str) -> None:
    assert trend(values) == word
