"""Pictures of PAnDA: the anchors of a simulated user, and the frontier."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import panda_mdp as pm

pytest.importorskip("matplotlib")

from panda_mdp.plot import draw_anchors, draw_calibration, save_figure


@pytest.fixture(scope="module")
def problem() -> pm.Problem:
    rng = np.random.default_rng(2)
    domain = pm.Domain.from_points(41.8 + 0.2 * rng.random(40), 12.4 + 0.2 * rng.random(40))
    outputs = np.arange(0, 40, 5)
    return pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 1.0)


def test_every_record_is_drawn_once_and_the_user_on_top(problem, tmp_path: Path) -> None:
    run = pm.panda(problem, [7, 8], pm.BallAnchors(0.4, radius=4.0), seed=1)
    figure = draw_anchors(run, 1)
    axes = figure.axes[0]
    marks = [len(part.get_offsets()) for part in axes.collections]
    chosen = len(run.anchor_sets[1])
    assert {problem.size - chosen, chosen, 1} <= set(marks)
    texts = " ".join(text.get_text() for text in axes.get_legend().get_texts())
    assert f"anchors, {chosen / problem.size:.0%}" in texts
    assert save_figure(figure, tmp_path / "anchors.png").stat().st_size > 5_000


def test_the_frontier_shows_what_fits(problem, tmp_path: Path) -> None:
    found = pm.calibrate(problem, 2e-2, pm.SearchSpace(("candidates",)))
    figure = draw_calibration(found, problem)
    axes = figure.axes[0]
    drawn = sum(len(part.get_offsets()) for part in axes.collections)
    assert drawn == sum(trial.fits for trial in found.tried)
    highest = max(trial.loss for trial in found.tried if trial.fits)
    assert axes.get_ylim()[1] > 1.1 * highest
    # A line joins the frontier, of which every point says what the upload tells; one is the knee.
    (line,) = axes.lines
    assert len(line.get_xdata()) == len(axes.texts) == len(found.frontier)
    assert sum("(knee)" in text.get_text() for text in axes.texts) == 1
    assert "frontier" in " ".join(text.get_text() for text in axes.get_legend().get_texts())
    assert save_figure(figure, tmp_path / "frontier.png").stat().st_size > 5_000
