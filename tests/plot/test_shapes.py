"""What pictures say, on shapes and numbers that used to mislead."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm

pytest.importorskip("matplotlib")

from panda_mdp import plot


@pytest.fixture(scope="module")
def thin() -> pm.Mechanism:
    """A long, thin city, outputs at every record, epsilon so large that nearly all stay."""
    rng = np.random.default_rng(0)
    along = np.sort(rng.uniform(0, 0.18, 60))
    domain = pm.Domain.from_points(40.7 + along, -74.0 + along * 0.7 + rng.uniform(0, 0.01, 60))
    outputs = np.arange(60)
    return pm.exponential(pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 400.0))


def test_nobody_is_said_to_lie_within_0_km(thin: pm.Mechanism) -> None:
    figure = plot.draw_record(thin, 5)
    said = figure.get_suptitle()
    assert "0 km" not in said.split("reports")[1]
    assert "at the record itself" in said


def test_the_legend_lies_below_the_data_and_names_the_ring_and_the_area() -> None:
    rng = np.random.default_rng(1)
    domain = pm.Domain.from_points(40.7 + rng.uniform(0, 0.1, 50), -74 + rng.uniform(0, 0.02, 50))
    outputs = np.arange(50)
    table = pm.exponential(pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 2.0))
    figure = plot.draw_record(table, 5)
    figure.canvas.draw()
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().y1 <= axes.get_window_extent().y0 + 1
    texts = [text.get_text() for text in legend.get_texts()]
    assert "holds 80% of reports" in texts
    assert any(text.startswith("probability: this area is ") and "%" in text for text in texts)


def test_colour_bars_have_no_offset_and_no_arrow_without_a_value_beyond(thin: pm.Mechanism) -> None:
    figure = plot.draw_local_epsilon(thin)
    figure.canvas.draw()
    bar = figure.axes[1]
    assert bar.yaxis.get_major_formatter().get_offset() == ""
