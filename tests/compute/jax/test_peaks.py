"""Passes over all pairs on a device against those of the host, to the last unit."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.base.factored import FactoredRows, falls
from panda_mdp.compute.jax import peaks
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.stars import factored
from panda_mdp.space.embeddings import Embeddings
from panda_mdp.table.bound import star_prices

SIZE = 600
"""More rows than one block has, and no multiple of it."""


def words(seed: int = 0, size: int = SIZE) -> pm.Domain:
    """Vectors of 40 dimensions on a lattice, about 9 apart."""
    vectors = np.random.default_rng(seed).normal(size=(size, 40))
    return Embeddings(tuple(f"w{k}" for k in range(size)), vectors).domain("euclidean")


def problem_of(power: float, on_device: bool) -> pm.Problem:
    domain = words()
    order = np.random.default_rng(1).permutation(SIZE)
    loss = DistanceLoss(domain, order, power)
    vars(loss)["on_device"] = on_device
    prior = np.random.default_rng(2).dirichlet(np.full(SIZE, 3.0))
    return pm.Problem(domain, order, loss, 1.5, prior=prior)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_a_solve_on_a_device_ends_as_on_the_host(power: float) -> None:
    there, here = (problem_of(power, device) for device in (True, False))
    made, prices = factored(there, device=True)
    on_host, host_prices = factored(here)
    assert made is not None and on_host is not None
    assert prices is not None and host_prices is not None
    assert isinstance(made.weights, FactoredRows) and isinstance(on_host.weights, FactoredRows)
    assert made.weights.rate == on_host.weights.rate
    assert made.weights.peaks == pytest.approx(on_host.weights.peaks, rel=1e-5)
    assert prices == pytest.approx(host_prices, rel=1e-5, abs=1e-5 * host_prices.max())
    assert made.loss == pytest.approx(on_host.loss, rel=1e-6)
    # The same integers, looked at by the other.
    again = pm.Mechanism(here, on_host.weights, "given", backend="jax")
    fresh = FactoredRows(
        **{n: getattr(on_host.weights, n) for n in FactoredRows.__dataclass_fields__}
    )
    device_facts = peaks.row_facts(fresh)
    assert device_facts == fresh.facts
    assert again.audit == on_host.audit
    over = pm.Mechanism(there, fresh, "given")
    assert over.loss == pytest.approx(on_host.loss, rel=1e-13)


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_prices_are_proved_alike(power: float) -> None:
    there, here = (problem_of(power, device) for device in (True, False))
    prices = np.random.default_rng(3).uniform(0, 2 / SIZE, SIZE)
    proved, wanted = (star_prices(problem, prices) for problem in (there, here))
    assert proved == pytest.approx(wanted, rel=1e-12)
    assert (proved < prices).any() and (proved == prices).any()
    assert there.mean_loss == pytest.approx(here.mean_loss, rel=1e-13)


def test_products_are_those_of_the_host() -> None:
    rows, vectors = small_rows(), np.random.default_rng(4).normal(size=(SIZE, 3))
    points = peaks.placed(rows.points)
    squares = rows.squares(np.arange(SIZE))
    for power in (0.0, 1.5):
        wanted = falls(squares, rows.law, power) @ vectors
        assert peaks.falls_times(points, vectors, rows.law, power) == pytest.approx(wanted)
    assert peaks.least_square(points) == rows.facts.least_square


def small_rows(**changes: object) -> FactoredRows:
    rng = np.random.default_rng(5)
    given = {
        "points": rng.integers(-1000, 1000, (SIZE, 7)),
        "unit_bits": 8,
        "rate": 1 << 32,
        "centres": rng.permutation(SIZE)[:50],
        "peaks": rng.integers(1, 1 << 20, 50),
    }
    return FactoredRows(**(given | changes))


@pytest.mark.parametrize("peak", [1, 1 << 31])
def test_facts_of_rows_that_are_short_or_beyond_the_whole(peak: int) -> None:
    rows = small_rows(peaks=np.full(50, peak))
    assert peaks.row_facts(rows) == rows.facts
