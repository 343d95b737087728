"""Flows and centres on an accelerator, against those of the host."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.methods.optimal.columns import Columns, Host, accelerated
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
    columns, there = (Columns(*given, machine=machine) for machine in (Host, accelerated))
    device = there.machine
    box, most_paid = np.stack([columns.least, columns.most]), 0
    for _ in range(8):
        columns.advance()
        asked = 0.97 * columns.proved + 0.03 * columns.prices
        most_paid = max(most_paid, (columns.cost < asked[:, None]).sum(axis=0).max())
        heights = columns.heights.copy()
        found = device.flows(*there.here, device.put(heights), asked)
        wanted = columns.machine.flows(*columns.here, heights, asked)
        for name in ("heights", "best", "sharpest", "most", "called"):
            both = (np.asarray(getattr(flows, name)) for flows in (found, wanted))
            assert next(both) == pytest.approx(next(both), rel=1e-6, abs=1e-12)
        # A list that is filled up with zeros.
        known = device.put(columns.known)
        known = device.rows(known, known[:1], np.arange(len(known)))
        steps = (
            machine.newton(those, columns.worth, columns.prices, box, 1e-4)
            for machine, those in ((device, known), (columns.machine, columns.known))
        )
        for one, other in zip(*steps, strict=True):
            assert one == pytest.approx(other, rel=1e-6, abs=1e-9)
    assert most_paid > 4, "all outputs were in one block"


def test_optimal_chooses_columns_and_closes_on_a_device() -> None:
    problem = words(90, 0.6)
    best = pm.optimal(problem, gap=0.03, backend="jax", time_limit=60)
    assert best.details["iterations"] == 0 and best.gap is not None and best.gap <= 0.03
    assert best.audit.holds and best.bound is not None and best.bound.words == "proved"
    assert best.loss < 0.99 * problem.mean_loss.min()
