"""Every figure runs at toy size, draws what it computed, and says it in a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from panda_mdp.errors import MethodError
from panda_mdp.plot.style import new_figure
from panda_mdp.survey.bench import Outcome
from panda_paper.accounts import run_accounts
from panda_paper.figures import FIGURES, draw_figure, draw_panel, drawn_rows, panels
from panda_paper.items import ITEMS, PUBLISHED, TEXT, Cell, Setting
from panda_paper.results import SPREAD, Results, means_of
from panda_paper.runner import KINDS
from panda_paper.study import draw_cell

NAMES = [*FIGURES]
Make = Callable[[Any], Results]


def row(
    method: str, values: dict[str, object], size: int = 500, repeat: int = 0, **setting: float
) -> tuple[Cell, Outcome]:
    """A row as a run would leave it."""
    cell = Cell("method", method, Setting(size, **setting), repeat)  # type: ignore[arg-type]
    return cell, Outcome(values, (("all", 1.0),))


def test_every_figure_is_an_item_with_a_drawing() -> None:
    assert [item.name for item in ITEMS.values() if item.measure is None] == NAMES


def test_figures_share_the_cells_of_the_tables() -> None:
    table = set(ITEMS["table4"].draws())
    figure = {cell for cell in ITEMS["figure23"].draws() if cell.kind == "method"}
    assert figure and figure <= table


def test_the_axes_are_the_papers() -> None:
    def values(name: str, field: str) -> list[float]:
        return sorted({getattr(cell.setting, field) for cell in ITEMS[name].plan})

    assert values("figure8", "users") == [20, 50, 100, 150, 200]
    assert values("figure11", "epsilon") == [2.5, 5.0, 7.5, 10.0, 12.5, 15.0]
    assert values("figure16", "delta") == [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.15]
    assert values("figure7", "records") == [500, 1000, 2000, 3000, 4000, 5000]


def test_restricting_keeps_the_parts_that_have_the_methods() -> None:
    figure = ITEMS["figure7"]
    small = figure.restricted(records=[500], methods=["PAnDA-e text"], repeats=1)
    assert [(cell.method, cell.setting.records) for cell in small.draws()] == [
        ("PAnDA-e text", 500)
    ]
    assert figure.restricted(methods=["optimal"]).plan == {}


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_at_toy_size(name: str, toy_figures: Any) -> None:
    study, results = toy_figures
    rows = results.of(name)
    assert len(rows) and {*rows["status"]} == {"done"}, [*rows["note"]]
    assert (study.folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (study.folder / f"{name}.svg").read_text()[:2000]
    assert "no results yet" not in (study.folder / f"{name}.svg").read_text()
    text = (study.folder / f"{name}.md").read_text()
    assert text.count("\n| ") > len([*panels(name)]) and "nan" not in text


def test_audited_epsilons_stand_beside_claimed_ones(toy_figures: Any) -> None:
    rows = toy_figures[1].of("figure12")
    theirs = rows[rows["method"].isin(PUBLISHED)]
    assert len(theirs) and (theirs["audited_epsilon"] > theirs["claimed_epsilon"]).all()
    assert not theirs["holds"].any()
    ours = rows[rows["method"].isin(("optimal", "loss exponential", "ball"))]
    assert len(ours) and ours["holds"].all()


def test_relaxed_bounds_are_below_the_exact_optimum_over_the_anchors(toy_figures: Any) -> None:
    rows = toy_figures[1].of("figure23")
    bounds = rows[rows["relaxed_m"].notna()].set_index(["method", "records"])
    assert len(bounds) >= 6 and bounds.index.is_unique and (bounds["relaxed_m"] > 0).all()
    losses = rows[rows["loss_m"].notna()].groupby(["method", "records"])["loss_m"].mean()
    ratios = losses.loc[bounds.index] / bounds["relaxed_m"]
    assert bounds["ratio"].to_numpy() == pytest.approx(ratios.to_numpy(), rel=1e-9)


def test_text_shares_and_coverage(toy_figures: Any) -> None:
    _, results = toy_figures
    rows = results.of("figure13")
    seen = 0
    for kind in ("share", "real"):
        parts = rows[[f"{kind}_{name}" for name in ("selection", "margin", "rest")]].dropna()
        assert parts.sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-9)
        seen += len({*rows["method"][parts.index]})
    assert seen == 9
    covered = results.of("figure7")
    covered = covered[covered["method"].isin(TEXT)]
    assert (covered["anchors"] <= covered["records"] + 1e-9).all() and len(covered)


def test_the_expected_union_grows_with_users(toy_figures: Any) -> None:
    rows = toy_figures[1].of("figure8")
    means = means_of(rows[rows["method"] == TEXT[0]], "anchors", ["users"])
    assert means.index.tolist() == [2, 10, 20] and (np.diff(means) >= 0).all()


def test_unknown_methods_are_refused(toy_figures: Any) -> None:
    study, _ = toy_figures
    options = (("alpha", 0.9), ("part", 16.0))
    for kind in set(KINDS) - {"method"}:
        cell = Cell(kind, "linear", Setting(20, outputs=4, users=2), options=options)
        with pytest.raises(MethodError, match="there is no decay 'linear'"):
            KINDS[kind](draw_cell(study, cell))


def test_accounts_are_the_same_again(toy_figures: Any) -> None:
    cell = Cell("accounts", TEXT[2], Setting(40, outputs=4, users=3), 1)
    first, second = (run_accounts(draw_cell(toy_figures[0], cell)) for _ in range(2))
    assert first.values == second.values


def test_curves_are_means_with_196_deviations(results_of: Make) -> None:
    rows = [row("EM", {"loss_m": value}, repeat=k) for k, value in enumerate((10.0, 14.0))]
    rows += [row("EM", {"loss_m": 7.0}, size=1000), row("LP", {"loss_m": 1.0})]
    rows += [row("EM", {"loss_m": float("inf")}, size=2000), row("EM", {}, size=3000)]
    table = results_of(rows).rows
    mine = table[table["method"] == "EM"]
    means, spreads = (means_of(mine, "loss_m", ["records"], of=of) for of in ("mean", "std"))
    assert means.to_dict() == {500: 12.0, 1000: 7.0, 2000: np.inf}
    assert SPREAD * spreads[500] == pytest.approx(1.96 * np.std([10, 14], ddof=1))
    assert spreads[[1000, 2000]].isna().all()
    assert means_of(mine, "seconds", ["records"])[500] == 1.0
    assert means_of(table[table["method"] == "BR"], "loss_m", ["records"]).empty


def test_infinite_epsilons_stand_at_the_edge(results_of: Make) -> None:
    rows = [
        row(name, {"violated_pairs": 0.2, "audited_epsilon": found}, size=size)
        for name, values in {PUBLISHED[0]: (np.inf, np.inf), PUBLISHED[1]: (40.0, np.inf)}.items()
        for size, found in zip((500, 1000), values, strict=True)
    ]
    figure = draw_figure("figure12", results_of(rows).rows, "Nowhere")
    axes = figure.axes[1]
    assert "∞" in [text.get_text() for text in axes.texts]
    marked = {
        tuple(line.get_xdata())
        for line in axes.get_lines()
        if line.get_transform() == axes.get_xaxis_transform()
    }
    assert marked >= {(500.0, 1000.0), (1000.0,)}
    assert set(axes.get_legend_handles_labels()[1]) >= set(PUBLISHED[:2])


def test_a_figure_without_rows_says_so(results_of: Make) -> None:
    empty = results_of([]).rows
    for name in NAMES:
        figure = draw_figure(name, empty, "Nowhere")
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        assert "no results yet" in texts, name
        assert drawn_rows(name, empty) == []


def test_variants_that_agree_are_both_seen(results_of: Make) -> None:
    rows = [
        row(name, {"loss_m": 200.0}, size=2000, users=users)
        for name in PUBLISHED
        for users in (20, 50, 200)
    ]
    figure = draw_figure("figure10", results_of(rows).rows, "Nowhere")
    figure.canvas.draw()
    axes = figure.axes[0]
    first, second, third = (
        line.get_transform().transform(line.get_xydata())[:, 0] for line in axes.get_lines()[:3]
    )
    assert (first < second).all() and (second < third).all()
    assert np.abs(third - first).max() < 0.03 * axes.bbox.width, "but where they belong"


def test_bars_end_above_zero(results_of: Make) -> None:
    rows = [row("EM", {"loss_m": value}, repeat=k) for k, value in enumerate((1.0, 100.0))]
    axes = new_figure(4, 3).subplots()
    lines = [{"value": "loss_m", "methods": ["EM"]}]
    draw_panel(axes, {"title": "x", "y": "y", "lines": lines}, results_of(rows).rows)
    (bar,) = axes.collections[0].get_segments()
    assert 0 < bar[0, 1] < 50.5 < bar[1, 1]


def test_balls_are_compared_on_the_draws_of_the_optimum() -> None:
    for name in ("figure10", "figure11", "figure16"):
        draws = ITEMS[name].draws()
        assert {one.repeat for one in draws if one.method in ("ball", "optimal")} == {0}
        assert {one.repeat for one in draws if one.method == "EM"} >= {0}
