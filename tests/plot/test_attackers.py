"""Pictures of attackers show the attackers' numbers."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp import plot


@pytest.fixture(scope="module")
def problem():
    city = pm.synthetic_city(nodes=300, seed=1)
    domain = city.domain(records=20, seed=1)
    return city, pm.Problem(domain, range(0, 20, 2), pm.distance_loss(domain, range(0, 20, 2)), 3.0)


def test_the_frontier_falls_and_stays_above_its_bounds(problem):
    points = plot.frontier(problem[1], (0.01, 0.1))
    assert [point.slack for point in points] == [0.0, 0.01, 0.1]
    assert points[0].value >= points[1].value >= points[2].value
    for point in points[1:]:
        assert point.bound <= point.value
        assert point.loss <= (1 + point.slack) * points[0].loss
    figure = plot.draw_frontier(points, unit="km")
    reached = figure.axes[0].lines[0].get_ydata()
    assert reached == pytest.approx([100 * point.value for point in points])


def test_the_map_shows_every_records_error(problem):
    city, small = problem
    table = pm.exponential(small)
    figure = plot.draw_attacker_error(table, city=city)
    shown = np.sort(np.asarray(figure.axes[0].collections[-1].get_array()))
    assert shown == pytest.approx(np.sort(pm.attack(table).error_by_record))
