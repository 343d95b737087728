"""What phones have today, as exact tables."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.methods.references import android_grid, at_displacement, decimals, rounding

KM = 1 / 111.195


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(4)
    places = rng.uniform(0, 6, (30, 2))
    domain = pm.Domain.from_points(41.9 + KM * places[:, 0], 12.5 + KM * places[:, 1])
    return pm.Problem(domain, np.arange(30), domain.distances(), 2.0)


def test_the_offset_is_integrated(problem):
    """Drawn often, a Gaussian offset of a quarter of the cell lands in each cell as said."""
    table = android_grid(problem, 2.0)
    assert isinstance(table, pm.NoGuarantee)
    at = problem.domain.plane[0]
    drawn = np.floor((at + np.random.default_rng(1).normal(0, 0.5, (200_000, 2))) / 2.0)
    centres = problem.domain.metric.project(
        *(getattr(table.problem.reports, c) for c in ("lat", "lon"))
    )
    cells = np.floor(centres / 2.0)
    shares = np.array([(drawn == cell).all(axis=1).mean() for cell in cells])
    assert table.matrix[0] == pytest.approx(shares, abs=0.005)
    east = norm.cdf((cells[0, 0] + 1 - at[0] / 2) * 4) - norm.cdf((cells[0, 0] - at[0] / 2) * 4)
    north = norm.cdf((cells[0, 1] + 1 - at[1] / 2) * 4) - norm.cdf((cells[0, 1] - at[1] / 2) * 4)
    assert table.matrix[0, 0] == pytest.approx(east * north, abs=1e-12)


def test_far_cells_have_their_small_chances(problem):
    """An offset goes on beyond what is often drawn: seven deviations away a cell has 10^-12."""
    table = android_grid(problem, 2.0)
    reports = table.problem.reports
    at, centres = problem.domain.plane[3], problem.domain.metric.project(reports.lat, reports.lon)
    edges = np.round(centres) - 1, np.round(centres) + 1
    low, high = (norm.cdf((edge - at) / 0.5) for edge in edges)
    chances = (high - low).prod(axis=1)
    assert ((chances > 0) & (chances < 1e-9)).any()
    np.testing.assert_allclose(table.matrix[3], chances, rtol=1e-6, atol=1e-15)
    assert chances.sum() == pytest.approx(1, abs=1e-14)


def test_rounding_reports_the_centre_of_its_cell(problem):
    table = rounding(problem, 1.0)
    assert np.sort(table.matrix, axis=1)[:, -1] == pytest.approx(1)
    # No place of a square is farther from its middle than half its diagonal.
    assert table.loss <= 0.5**0.5 * 1.001


def test_only_places_have_cells():
    line = pm.Domain.from_vectors([[0.0], [1.0]])
    with pytest.raises(MethodError, match="cells are for places"):
        android_grid(pm.Problem(line, [0], line.distances(None, [0]), 1.0))


def test_degrees_are_rounded_as_they_are_written(problem):
    table = decimals(problem, 2)
    metric, reports = problem.domain.metric, table.problem.reports
    told = table.matrix.argmax(axis=1)
    assert table.matrix.max(axis=1) == pytest.approx(1)
    for record in range(problem.size):
        written = f"{metric.lat[record]:.2f},{metric.lon[record]:.2f}"
        assert written == f"{reports.lat[told[record]]:.2f},{reports.lon[told[record]]:.2f}"
    with pytest.raises(MethodError, match="0 to 15 decimals"):
        decimals(problem, -1)


def test_a_displacement_is_met_in_a_few_tables(problem):
    """They are what takes the time; one that no table of the family has is refused."""
    made = []

    def make(at):
        made.append(at.epsilon)
        return pm.remap(pm.planar_laplace(at))

    table = at_displacement(problem, make, 0.6)
    assert table.loss == pytest.approx(0.6, rel=1e-3)
    assert len(made) == len(set(made)) <= 6
    with pytest.raises(MethodError, match="the displacement is 50, and it lies between"):
        at_displacement(problem, make, 50.0)
