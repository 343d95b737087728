"""Projections on an accelerator against those of the host."""

from __future__ import annotations

import numpy as np
import pytest

from panda_mdp.compute.jax.device import precise
from panda_mdp.compute.jax.forms import onto
from panda_mdp.compute.numba.pdhg import onto_simplex


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e6])
def test_every_group_is_projected_by_itself(scale: float) -> None:
    """Groups of any size, some without members, and those that pad them at the end."""
    sizes = [3, 1, 50, 7, 400]
    group = np.append(np.repeat(np.arange(5), sizes), [7, 7]).astype(np.int32)
    weights = np.random.default_rng(0).normal(size=(len(group), 6)) * scale
    weights = weights.astype(np.float32)
    with precise():
        found = np.asarray(onto(weights, group, groups=8))
    assert found.dtype == np.float32
    ends = np.cumsum(sizes)
    for begin, end in zip(ends - sizes, ends, strict=True):
        whole = onto_simplex(weights[begin:end].astype(float))
        assert found[begin:end] == pytest.approx(whole, abs=1e-7)
