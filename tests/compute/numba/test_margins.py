"""The weighted quantile of margins against its definition."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from panda_mdp.compute.numba.margins import upper_quantile


@pytest.mark.parametrize("slack", [0.0, 0.1, 0.25, 0.3, 0.5, 0.6, 0.75, 0.9, 1.0])
@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 2.0, 3.0), (1.0, 1.0, 1.0)])
def test_the_quantile_is_the_largest_value_with_more_than_the_slack(values, slack) -> None:
    """Equal masses of 1/4, in every order; what is equal to the value counts with it."""
    expected = max(
        (v for v in values if 0.25 * sum(w >= v for w in values) > slack), default=min(values)
    )
    for order in permutations(values):
        mass = np.full(len(order), 0.25)
        assert upper_quantile(np.array(order), mass, len(order), slack) == expected
