"""The audit of rows over a floor on an accelerator is the host's, whatever the table."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import random_domain

import panda_mdp as pm
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.floored import floored_rate
from panda_mdp.compute.jax import floored
from panda_mdp.compute.jax.floored import device_rate
from panda_mdp.privacy import audit
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import TOTAL

SIZE = 200


def sparse_rows(domain: pm.Domain, outputs: int, seed: int, rough: float) -> FlooredRows:
    """Rows that fall off with the distance, down to a floor that is another one in each column."""
    rng = np.random.default_rng(seed)
    distance = domain.distances(None, rng.choice(domain.size, outputs, replace=False))
    steep = 60 / domain.diameter
    floor = (1e-4 / outputs * rng.uniform(0.5, 2, outputs) * TOTAL).astype(np.int64)
    shape = np.exp(-steep * distance + rough * rng.normal(size=distance.shape))
    table = np.maximum((shape / shape.sum(axis=1, keepdims=True) * TOTAL).astype(np.int64), floor)
    top = table.argmax(axis=1)
    rows = np.arange(domain.size)
    table[rows, top] += TOTAL - table.sum(axis=1)
    return FlooredRows.of(table, floor)


@pytest.mark.parametrize(("kind", "rough"), [("haversine", 0.0), ("matrix", 1.0)])
def test_the_rate_and_the_pair_are_the_hosts(kind: str, rough: float) -> None:
    domain = random_domain(kind, SIZE, seed=3)
    rows = sparse_rows(domain, 150, 4, rough)
    assert 0 < rows.stored < 0.9 * SIZE * 150
    measured = device_rate(domain, rows)
    value, i, j = floored_rate(domain, rows)
    assert measured is not None
    assert measured[0] == pytest.approx(value, rel=1e-11) and {*measured[1:]} == {i, j}
    # Never below the exact value by more than the error that is allowed for.
    logs = np.log(np.asarray(rows).astype(np.longdouble))
    exact = np.abs(logs[i] - logs[j]).max() / domain.distances([i], [j])[0, 0]
    assert measured[0] >= exact


def test_a_row_that_only_the_floor_of_far_records_contradicts() -> None:
    """The worst pair is one of a stored row and a record whose tile has no entry at all."""
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.normal(0, 1, (64, 2)), rng.normal(0, 1, (64, 2))])
    places[64:, 0] += 30
    domain = pm.Domain.from_vectors(places)
    floor = np.full(70, TOTAL // 70, dtype=np.int64)
    floor[69] += TOTAL - floor.sum()
    table = np.tile(floor, (128, 1))
    near = np.flatnonzero(places[:, 0] < 15)
    table[near, 0] += 10**15
    table[near, 1] -= 10**15
    rows = FlooredRows.of(table, floor)
    measured = device_rate(domain, rows)
    assert measured is not None
    value, i, j = floored_rate(domain, rows)
    assert measured[0] == pytest.approx(value, rel=1e-11) and {*measured[1:]} == {i, j}
    verdict = audit_weights(domain, np.arange(70), rows, 1.0, "jax")
    assert verdict.epsilon == measured[0] and {*verdict.worst[:2]} == {i, j}


def test_rows_that_are_alike_are_left_to_the_host() -> None:
    domain = random_domain("euclidean", 70, seed=1)
    floor = np.array([TOTAL // 2, TOTAL // 2])
    assert device_rate(domain, FlooredRows.of(np.tile(floor, (70, 1)), floor)) is None
    other = np.array([TOTAL // 4, 3 * (TOTAL // 4)])
    alike = FlooredRows.of(np.tile(other, (70, 1)), floor)
    assert audit_weights(domain, np.arange(2), alike, 1.0, "jax").epsilon == 0.0


def test_logarithms_err_by_less_than_is_allowed_for() -> None:
    numbers = np.random.default_rng(2).integers(1, 1 << 62, 100_000)
    numbers = np.concatenate([numbers >> k for k in range(0, 60, 7)] + [np.arange(1, 5000)])
    numbers = np.maximum(numbers, 1)
    with jax.enable_x64(True):
        logs = np.asarray(jnp.log(jnp.asarray(numbers).astype(jnp.float64)))
    exact = np.log(numbers.astype(np.float64).astype(np.longdouble))
    assert float(np.abs(logs - exact).max()) < 4 * np.spacing(64.0) / 2


def test_a_device_whose_memory_is_full_leaves_it_to_the_host(monkeypatch) -> None:
    domain = random_domain("haversine", SIZE, seed=3)
    rows = sparse_rows(domain, 150, 4, 0.0)

    def fails(words: str):
        def blocks(*_: object) -> None:
            raise RuntimeError(words)

        return blocks

    monkeypatch.setattr(floored, "_blocks", fails("RESOURCE_EXHAUSTED: out of memory"))
    assert device_rate(domain, rows) is None
    monkeypatch.setattr(floored, "_blocks", fails("INTERNAL: something else"))
    with pytest.raises(RuntimeError, match="something else"):
        device_rate(domain, rows)


def test_an_accelerator_audits_what_would_take_the_host_minutes(monkeypatch) -> None:
    domain = random_domain("haversine", SIZE, seed=3)
    rows = sparse_rows(domain, 150, 4, 0.0)
    asked = []
    monkeypatch.setattr(floored, "device_rate", lambda *_: asked.append(1))
    monkeypatch.setattr(audit, "accelerator", lambda: True)
    exact = audit_weights(domain, np.arange(150), rows, 1.0)
    assert not asked
    monkeypatch.setattr(audit, "LARGE", rows.stored - 1)
    assert audit_weights(domain, np.arange(150), rows, 1.0) == exact
    assert asked
