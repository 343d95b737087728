"""The scan for the worst pair against rates that are known as fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from panda_mdp import Domain
from panda_mdp.compute.rate import _bounds, host_rate


def test_reach_takes_both_directions():
    """Ranges 0..1 and 4..5 of one tile, 3 and 0 of the other: 5 - 0 one way, 3 - 0 the other."""
    logs = np.array([[0.0, 5.0], [1.0, 4.0], [3.0, 0.0]])
    np.testing.assert_array_equal(_bounds(logs, np.array([0, 2, 3]))[2], [[1, 5], [5, 0]])


@pytest.mark.parametrize("gap", [20.0, -20.0])
def test_the_worst_pair_may_lie_across_far_tiles(gap):
    """Rate 1 within a tile; 20 over 9 and 1/64 between its last record and the next tile's first.

    One direction of the ratio between the tiles is 0, and three times the rate within spares them.
    """
    steps = np.arange(64) / 64
    domain = Domain.from_vectors(np.concatenate([steps, 10 + steps]))
    assert domain.tiles.count == 2
    logs = np.zeros((128, 2))
    logs[0, 0] = 1 / 64
    logs[64:, 1] = gap
    value, i, j = host_rate(domain, logs, (64 * logs).astype(np.int64))
    exact = Fraction(20) / (10 - Fraction(63, 64))
    assert exact <= Fraction(value) <= exact * (1 + Fraction(1, 10**12))
    assert {i, j} == {63, 64}
