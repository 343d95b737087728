"""The scan for the worst pair against rates that are known as fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from panda_mdp import Domain
from panda_mdp.compute.rate import host_rate, open_radius


def test_records_farther_than_the_span_allows_cannot_exceed_a_rate():
    """5 nats at most within an output: at rate 2 no farther than 2.5."""
    high, low = np.array([[1.0, 5.0], [3.0, 0.0]]), np.array([[0.0, 4.0], [3.0, 0.0]])
    assert open_radius(high, low, 2.0, 1.0) == pytest.approx(2.5)
    assert open_radius(high, low, 0.0, 1.0) == np.inf


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("gap", [20.0, -20.0])
def test_the_worst_pair_may_lie_across_far_tiles(gap, compiled, monkeypatch):
    """Rate 1 within a tile; 20 over 9 and 1/64 between its last record and the next tile's first.

    One direction of the ratio between the tiles is 0, and three times the rate within spares them.
    """
    steps = np.arange(64) / 64
    domain = Domain.from_vectors(np.concatenate([steps, 10 + steps]))
    assert domain.tiles.count == 2
    logs = np.zeros((128, 2))
    logs[0, 0] = 1 / 64
    logs[64:, 1] = gap
    monkeypatch.setattr("panda_mdp.compute.rate.SMALL_TILES", 0)
    value, i, j = host_rate(domain, logs, (64 * logs).astype(np.int64), compiled=compiled)
    exact = Fraction(20) / (10 - Fraction(63, 64))
    assert exact <= Fraction(value) <= exact * (1 + Fraction(1, 10**12))
    assert {i, j} == {63, 64}
