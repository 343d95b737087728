"""What surrogates beyond the lists count for, to the last digit."""

from __future__ import annotations

import numpy as np
import pytest

from panda_mdp.compute.numba.anchors import unsafe_pairs


@pytest.mark.parametrize(("budget", "expected"), [(1.0, 0.875), (3.0, 1.0)])
def test_whatever_lies_beyond_either_list_is_unsafe(budget: float, expected: float) -> None:
    """Each record's list holds one candidate: of probability 1/2 for the first, 1/4 for the second,
    whichever of the two records draws.

    Nothing on the first list: 1/2. The first's candidate, nothing on the second's list: 3/8. Both:
    1/8, unsafe only where their budget exceeds the room.
    """
    ranked = np.array([[0], [1]])
    anchor = np.array([0, 1])
    coins = (np.array([0, 2, 4]), np.tile(anchor, 2), np.array([0.5, 0.25, 0.5, 0.25]), 0.0)
    budgets = np.array([[0.0, budget], [budget, 0.0]])
    mass, _ = unsafe_pairs(1, ranked, coins, budgets, anchor, np.array([[2.0]]), 0.0)
    assert mass == expected
