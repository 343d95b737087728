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


def test_the_map_shows_every_records_error(problem):
    city, small = problem
    table = pm.exponential(small)
    figure = plot.draw_attacker_error(table, city=city)
    shown = np.sort(np.asarray(figure.axes[0].collections[-1].get_array()))
    assert shown == pytest.approx(np.sort(pm.attack(table).error_by_record))
