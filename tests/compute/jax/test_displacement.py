"""Losses that an accelerator computes as they are used are those of the host."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import random_domain

from panda_mdp.compute.jax import device
from panda_mdp.compute.jax.device import precise
from panda_mdp.loss import DistanceLoss, distance_loss
from panda_mdp.methods.optimal.program import seen_by_groups

SIZE = 100


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_sums_least_losses_and_what_groups_see(power):
    domain = random_domain("haversine", SIZE, seed=3)
    outputs = np.random.default_rng(0).permutation(SIZE)[:70]
    whole = distance_loss(domain, outputs, power)
    weights = np.random.default_rng(1).random((2, SIZE))
    computed = DistanceLoss(domain, outputs, power)
    vars(computed)["on_device"] = True
    np.testing.assert_allclose(weights @ computed, weights @ whole, rtol=1e-13)
    np.testing.assert_allclose(weights[0] @ computed, weights[0] @ whole, rtol=1e-13)
    np.testing.assert_allclose(computed.min(axis=1), whole.min(axis=1), rtol=1e-13)
    order, starts = np.random.default_rng(2).permutation(70), np.array([0, 32, 64, 70])
    margin = float(np.median(whole)) / 4
    sees, outside = seen_by_groups(computed, order, starts, margin)
    expected, beyond = seen_by_groups(whole, order, starts, margin)
    assert 0.1 < expected.mean() < 0.9
    assert np.array_equal(sees, expected)
    np.testing.assert_allclose(outside, beyond, rtol=1e-13)


def test_losses_of_pairs():
    domain = random_domain("haversine", SIZE, seed=3)
    records, columns = np.arange(0, SIZE, 7), np.random.default_rng(0).integers(0, 9, (15, 4))
    outputs = np.arange(20, 29)
    whole = distance_loss(domain, outputs)
    with precise():
        losses = device.losses(domain, outputs, 1.0, records, columns)
    np.testing.assert_allclose(losses, whole[records[:, None], columns], rtol=1e-13)
