"""Flows and centres on an accelerator, against those of the host."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.methods.optimal.columns import Columns, accelerated
from panda_mdp.methods.optimal.stars import Stars
from panda_mdp.table.bound import star_prices

pytest.importorskip("jax")


def words(size: int, epsilon: float) -> pm.Problem:
    """Records whose peaks fill no row."""
    domain = pm.Domain.from_vectors(np.random.default_rng(7).normal(size=(size, 30)))
    return pm.Problem(domain, np.arange(size), domain.distances(), epsilon)


@pytest.mark.parametrize("epsilon", [0.2, 0.3])
def test_flows_and_steps_are_those_of_the_host(epsilon: float) -> None:
    problem = words(70, epsilon)
    stars = Stars(problem)
    start = star_prices(problem, stars.prices)
    given = problem, stars.decay, stars.cost, start, stars.columns
    columns = Columns(*given)
    here, device = columns.machine, accelerated(columns.tuning)
    decay, box = device.put(stars.decay), np.stack([columns.least, columns.most])
    most_paid = 0
    for _ in range(8):
        columns.advance()
        spare = columns.cost - columns.asked
        paid = np.argsort(spare, axis=1)[:, :8]
        most_paid = max(most_paid, (spare < 0).sum(axis=1).max())
        due = np.maximum(-np.take_along_axis(spare, paid, axis=1), 0)
        own = np.where(due > 0, np.take_along_axis(columns.heights, paid, axis=1), 0.0)
        asked = paid, due, np.maximum(spare, 0), own
        for one, other in zip(
            device.block(decay, *asked), here.block(stars.decay, *asked), strict=True
        ):
            assert one == pytest.approx(other, rel=1e-6, abs=1e-12)
        # A list that is filled up with zeros.
        known, rest = device.put(columns.known, 290), (columns.prices, box, 1e-4)
        found = device.newton(known, columns.worth, *rest)
        for one, other in zip(found, here.newton(columns.known, columns.worth, *rest), strict=True):
            assert one == pytest.approx(other, rel=1e-6, abs=1e-9)
    assert most_paid > 2


def test_optimal_chooses_columns_and_closes_on_a_device() -> None:
    problem = words(90, 0.6)
    best = pm.optimal(problem, gap=0.03, backend="jax", time_limit=60)
    assert best.details["iterations"] == 0 and best.gap is not None and best.gap <= 0.03
    assert best.audit.holds and best.bound is not None and best.bound.words == "proved"
    assert best.loss < 0.99 * problem.mean_loss.min()
