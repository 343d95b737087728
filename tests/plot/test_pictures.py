"""Every picture can be drawn, says its units, and is written whole."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from panda_mdp import (
    City,
    Domain,
    Mechanism,
    NoGuarantee,
    Problem,
    distance_loss,
    exponential,
    synthetic_city,
    travel_loss,
)
from panda_mdp.errors import InvalidInputError, MethodError, MissingDependencyError
from panda_mdp.plot import (
    draw_city,
    draw_expected_loss,
    draw_local_epsilon,
    draw_record,
    save_figure,
)
from panda_mdp.plot.style import round_length


@pytest.fixture(scope="module")
def city() -> City:
    return synthetic_city(300, seed=2)


@pytest.fixture(scope="module")
def mechanism(city: City) -> Mechanism:
    domain = city.domain(120)
    outputs = np.arange(0, 120, 10)
    return exponential(Problem(domain, outputs, travel_loss(city, domain, outputs, [7]), 3.0))


def words(figure: object) -> str:
    """All text in a figure."""
    from matplotlib.text import Text

    found = figure.findobj(Text)  # type: ignore[attr-defined]
    return "\n".join(text.get_text() for text in found)


def test_city(city: City, mechanism: Mechanism) -> None:
    assert "300 junctions" in words(draw_city(city))
    assert "120 records" in words(draw_city(city, domain=mechanism.problem.domain))


def test_record(city: City, mechanism: Mechanism) -> None:
    told = words(draw_record(mechanism, 5, city=city, tasks=[7]))
    assert "epsilon 3 per km" in told and "80% of reports within" in told and "task" in told
    # The areas are the probabilities.
    figure = draw_record(mechanism, 5)
    circles = figure.axes[0].collections[1].get_sizes()
    np.testing.assert_allclose(circles / circles.sum(), mechanism.matrix[5], rtol=1e-9)
    with pytest.raises(MethodError, match=r"0\.\.119") as caught:
        draw_record(mechanism, 4711)
    assert "4711" not in str(caught.value)


def test_values_per_record(city: City, mechanism: Mechanism) -> None:
    assert "expected loss [km]" in words(draw_expected_loss(mechanism, city=city))
    told = words(draw_local_epsilon(mechanism))
    assert "local epsilon [1/km]" in told and "promised 3 per km" in told


def test_unbounded_epsilons_are_marked() -> None:
    domain = Domain.from_points([41.0, 41.1, 41.2], [12.0, 12.1, 12.0])
    problem = Problem(domain, [0, 1], np.ones((3, 2)), 1.0)
    broken = NoGuarantee.from_matrix(problem, [[1, 0], [0.5, 0.5], [0.5, 0.5]])
    assert "unbounded" in words(draw_local_epsilon(broken))


def test_road_domains_are_drawn_with_their_city(city: City) -> None:
    domain = city.road_domain(60)
    outputs = np.arange(0, 60, 6)
    table = exponential(Problem(domain, outputs, distance_loss(domain, outputs), 3.0))
    assert "true place" in words(draw_record(table, 3, city=city))
    assert "true place" in words(draw_record(table, 3))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_files_are_written_whole(city: City, tmp_path: Path, suffix: str) -> None:
    path = save_figure(draw_city(city), tmp_path / "deep" / f"city.{suffix}")
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(start)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_wrong_suffix_and_missing_matplotlib(
    city: City, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInputError, match=r"city\.bmp"):
        save_figure(draw_city(city), tmp_path / "city.bmp")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"panda-mdp\[plot\]"):
        draw_city(city)


@pytest.mark.parametrize(("length", "rounded"), [(1.0, 1.0), (9.99, 5.0), (0.021, 0.02)])
def test_round_lengths(length: float, rounded: float) -> None:
    assert round_length(length) == pytest.approx(rounded)
