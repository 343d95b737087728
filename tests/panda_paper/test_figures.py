"""Every figure runs at toy size, draws what it computed, and says it in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from panda_mdp.errors import MethodError
from panda_mdp.survey.bench import Outcome
from panda_paper.accounts import run_accounts
from panda_paper.figures import DRAWINGS, Look, draw_series, same_draws, subplots, unfinished
from panda_paper.items import FIGURES, ITEMS, PUBLISHED, TEXT, Cell, Kind, Setting
from panda_paper.results import Row, Rows
from panda_paper.runner import KINDS
from panda_paper.study import Study, Workspace

NAMES = [figure.name for figure in FIGURES]


def row(
    method: str, values: dict[str, object], size: int = 500, repeat: int = 0, **setting: float
) -> Row:
    """A row as a run would leave it."""
    cell = Cell("method", method, Setting(size, **setting), repeat)  # type: ignore[arg-type]
    return Row(cell, Outcome(values, (("all", 1.0),)), None, "here", "2026-01-01T00:00:00+00:00")


def test_every_figure_is_an_item_with_a_drawing() -> None:
    assert list(DRAWINGS) == NAMES
    assert set(NAMES) <= set(ITEMS)


def test_figures_share_the_cells_of_the_tables() -> None:
    table = set(ITEMS["table4"].cells())
    figure = {cell for cell in ITEMS["figure23"].cells() if cell.kind == "method"}
    assert figure and figure <= table


def test_the_axes_are_the_papers() -> None:
    assert {s.users for s in ITEMS["figure8"].settings} == {20, 50, 100, 150, 200}
    epsilons = [s.epsilon for s in ITEMS["figure11"].settings]
    assert epsilons == [2.5, 5.0, 7.5, 10.0, 12.5, 15.0]
    deltas = [s.delta for s in ITEMS["figure16"].settings]
    assert deltas == [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.15]
    assert {s.records for s in ITEMS["figure7"].settings} == {500, 1000, 2000, 3000, 4000, 5000}


def test_restricting_keeps_the_parts_that_have_the_methods() -> None:
    figure = ITEMS["figure7"]
    small = figure.restricted(records=[500], methods=["PAnDA-e text"], repeats=1)
    assert [(cell.method, cell.setting.records) for cell in small.cells()] == [
        ("PAnDA-e text", 500)
    ]
    with pytest.raises(MethodError, match="no method of figure7 'optimal'"):
        figure.restricted(methods=["optimal"])


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_at_toy_size(name: str, toy_figures: Any) -> None:
    rows = toy_figures.rows[name]
    assert rows and {one.status for one in rows} == {"done"}, [one.outcome.note for one in rows]
    files = {path.suffix: path for path in toy_figures.files[name]}
    assert set(files) == {".png", ".svg", ".md"}
    assert files[".png"].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in files[".svg"].read_text()[:2000]
    text = files[".md"].read_text()
    assert text.count("\n- ") >= 1 and "nan" not in text
    assert "no results yet" not in files[".svg"].read_text()


def test_audited_epsilons_stand_beside_claimed_ones(toy_figures: Any) -> None:
    rows = toy_figures.rows["figure12"]
    for method in PUBLISHED:
        found = [one for one in rows if one.cell.method == method]
        assert all(one.value("audited_epsilon") > one.value("claimed_epsilon") for one in found)
        assert not any(one.value("holds") for one in found)
    ours = [one for one in rows if one.cell.method in ("optimal", "loss exponential", "ball")]
    assert ours and all(one.value("holds") for one in ours)


def test_relaxed_bounds_are_below_the_exact_optimum_over_the_anchors(toy_figures: Any) -> None:
    rows = [one for one in toy_figures.rows["figure23"] if one.value("relaxed_m") is not None]
    assert len(rows) == len({(one.cell.method, one.cell.setting.records) for one in rows}) >= 6
    for one in rows:
        assert one.value("relaxed_m") > 0
        loss = Rows(toy_figures.rows["figure23"]).of(one.cell.method).series("loss_m")
        ratio = loss.at(one.cell.setting.records) / one.value("relaxed_m")
        assert one.value("ratio") == pytest.approx(ratio, rel=1e-9)
    assert len(Rows(rows).of(PUBLISHED[0]).numbers("ratio")) == 2


def test_text_shares_and_coverage(toy_figures: Any) -> None:
    seen = set()
    for one in toy_figures.rows["figure13"]:
        kind = "real" if one.cell.kind == "bound" else "share"
        parts = [one.value(f"{kind}_{name}") for name in ("selection", "margin", "rest")]
        assert sum(parts) == pytest.approx(1, abs=1e-9)
        seen.add((kind, one.cell.method))
    assert len(seen) == 9
    covered = Rows(toy_figures.rows["figure7"]).curves(TEXT, "anchors")
    assert 0 < covered.share <= 1 < covered.high


def test_the_expected_union_grows_with_users(toy_figures: Any) -> None:
    rows = toy_figures.rows["figure8"]
    accounts = Rows(one for one in rows if one.cell.kind == "accounts")
    series = accounts.of(TEXT[0]).series("anchors", "users")
    assert series.x.tolist() == [2, 10, 20] and (np.diff(series.mean) >= 0).all()


def test_unknown_methods_are_refused(tmp_path: Path, toy_figures: Any) -> None:
    work = Workspace(toy_figures.study)
    for kind in set(get_args(Kind)) - {"method"}:
        with pytest.raises(MethodError, match="there is no decay 'linear'"):
            KINDS[kind](work.draw(Cell(kind, "linear", Setting(20, outputs=4, users=2), 0)))


def test_accounts_are_the_same_again(toy_figures: Any) -> None:
    study: Study = toy_figures.study
    cell = Cell("accounts", TEXT[2], Setting(40, outputs=4, users=3), 1)
    first, second = (run_accounts(Workspace(study).draw(cell)) for _ in range(2))
    assert first.values == second.values


def test_series_are_means_with_196_deviations() -> None:
    rows = [row("EM", {"loss_m": value}, repeat=k) for k, value in enumerate((10.0, 14.0))]
    rows += [row("EM", {"loss_m": 7.0}, size=1000), row("LP", {"loss_m": 1.0})]
    rows += [row("EM", {"loss_m": float("inf")}, size=2000), row("EM", {}, size=3000)]
    series = Rows(rows).of("EM").series("loss_m")
    assert series.x.tolist() == [500, 1000, 2000]
    assert series.mean.tolist() == [12.0, 7.0, np.inf]
    assert series.spread[0] == pytest.approx(1.96 * np.std([10, 14], ddof=1))
    assert series.spread[1:].tolist() == [0, 0]
    assert series.at(1000) == 7.0 and np.isnan(series.at(3000))
    assert Rows(rows).of("EM").mean("seconds") == 1.0
    assert np.isnan(Rows(rows).of("BR").mean("loss_m"))


def test_infinite_epsilons_stand_at_the_edge() -> None:
    rows = [
        row(name, {"violated_pairs": 0.2, "audited_epsilon": found}, size=size)
        for name, values in {PUBLISHED[0]: (np.inf, np.inf), PUBLISHED[1]: (40.0, np.inf)}.items()
        for size, found in zip((500, 1000), values, strict=True)
    ]
    figure = DRAWINGS["figure12"].draw(rows, "Nowhere")
    axes = figure.axes[1]
    assert "∞" in [text.get_text() for text in axes.texts]
    marked = {
        tuple(line.get_xdata())
        for line in axes.get_lines()
        if line.get_transform() == axes.get_xaxis_transform()
    }
    assert marked >= {(500.0, 1000.0), (1000.0,)}
    assert set(axes.get_legend_handles_labels()[1]) >= set(PUBLISHED[:2])


def test_a_figure_without_rows_says_so() -> None:
    for name, drawing in DRAWINGS.items():
        figure = drawing.draw([], "Nowhere")
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        assert "no results yet" in texts, name


def test_what_did_not_finish_is_listed() -> None:
    refused = row("PAnDA-e", {})
    refused = Row(
        refused.cell, Outcome({}, (), "infeasible", "costs too much"), None, "here", refused.date
    )
    assert unfinished([refused, refused]) == [
        "PAnDA-e: 2 cells infeasible; for example costs too much"
    ]


def test_variants_that_agree_are_both_seen() -> None:
    rows = [
        row(name, {"loss_m": 200.0}, size=size, repeat=0, delta=1e-7)
        for name in PUBLISHED
        for size in (500, 1000, 5000)
    ]
    _, (axes,) = subplots(1, "x")
    (panel, *_) = DRAWINGS["figure10"].panels
    for series in Rows(rows).curves(PUBLISHED, "loss_m"):
        draw_series(axes, series, panel.look("", series.label))
    first, second, third = (line.get_xdata() for line in axes.get_lines())
    assert (first < second).all() and (second < third).all()
    assert np.abs(third - first).max() < 0.03 * 4500, "but where they belong"


def test_bars_end_above_zero() -> None:
    rows = [row("EM", {"loss_m": value}, repeat=k) for k, value in enumerate((1.0, 100.0))]
    _, (axes,) = subplots(1, "x")
    draw_series(axes, Rows(rows).of("EM").series("loss_m"), Look("black", "o"))
    (bar,) = axes.collections[0].get_segments()
    assert 0 < bar[0, 1] < 50.5 < bar[1, 1]


def test_balls_are_compared_on_the_draws_of_the_optimum() -> None:
    cells = [
        Cell("method", name, Setting(2000), repeat)
        for name, repeats in [("EM", 3), ("optimal", 1), ("ball", 3)]
        for repeat in range(repeats)
    ]
    rows = [Row(cell, Outcome({"loss_m": 1.0}), None, "", "") for cell in cells]
    left = [(row.cell.method, row.cell.repeat) for row in same_draws(Rows(rows))]
    assert left == [("EM", 0), ("EM", 1), ("EM", 2), ("optimal", 0), ("ball", 0)]
    assert same_draws(Rows(rows[4:])) == tuple(rows[4:])
