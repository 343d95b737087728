"""The compiled loops against their definitions: exact draws, RFC 8439."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

import panda_mdp as pm
from panda_mdp.base.floored import FlooredRows
from panda_mdp.frames.drawing import Sampler
from panda_mdp.frames.kernel import CONSTANTS, Thresholds, choose_output, keyed_words
from panda_mdp.privacy.quantise import TOTAL, choose


def words_of(key: bytes, nonce: bytes, counters: list[int]) -> np.ndarray:
    return keyed_words(
        np.frombuffer(key, "<u4"),
        np.frombuffer(nonce, "<u4").reshape(1, 3),
        np.zeros(len(counters), np.int64),
        np.array(counters, np.int64),
        CONSTANTS,
    )


def test_the_block_function_is_that_of_rfc_8439():
    """Section 2.3.2: key 00..1f, nonce 000000090000004a00000000, block 1."""
    nonce = bytes.fromhex("000000090000004a00000000")
    (word,) = words_of(bytes(range(32)), nonce, [1])
    assert int(word).to_bytes(8, "little").hex() == "10f1e7e4d13b5915"


@settings(max_examples=30, deadline=None)
@given(
    key=st.binary(min_size=32, max_size=32),
    nonce=st.binary(min_size=12, max_size=12),
    counter=st.integers(0, 2**32 - 1),
)
def test_the_block_function_is_openssl_s(key, nonce, counter):
    stream = algorithms.ChaCha20(key, counter.to_bytes(4, "little") + nonce)
    expected = Cipher(stream, mode=None).encryptor().update(bytes(8))
    assert int(words_of(key, nonce, [counter])[0]) == int.from_bytes(expected, "little")


@st.composite
def tables(draw):
    """Rows of weights over a floor, some of them at it, some below, in any columns."""
    outputs = draw(st.integers(1, 6))
    floor = np.array(draw(st.lists(st.integers(0, 9), min_size=outputs, max_size=outputs)))
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        row = floor.copy()
        for column in draw(st.lists(st.integers(0, outputs - 1), max_size=outputs)):
            row[column] = draw(st.integers(0, TOTAL // 16))
        row[draw(st.integers(0, outputs - 1))] += TOTAL - row.sum()
        rows.append(row)
    return np.array(rows), floor


@settings(max_examples=60, deadline=None)
@given(table=tables(), uniform=st.integers(0, TOTAL - 1))
def test_the_column_is_the_one_that_the_sampler_chooses(table, uniform):
    """At the edges of every step too, where a `<` for a `<=` would show; dense and over a floor."""
    weights, floor = table
    forms = [Thresholds.of(weights), Thresholds.of(FlooredRows.of(weights, floor))]
    for record, row in enumerate(weights):
        edges = {int(t) + d for t in np.cumsum(row) for d in (-1, 0, 1)} | {uniform}
        uniforms = [u for u in sorted(edges) if 0 <= u < TOTAL]
        expected = choose(row, np.array(uniforms, dtype=np.int64)).tolist()
        for form in forms:
            assert [choose_output(record, form, np.uint64(u)) for u in uniforms] == expected


def test_a_sparse_table_is_drawn_from_as_it_is_stored():
    floor = np.full(1000, 5)
    weights = np.tile(floor, (300, 1))
    weights[np.arange(300), np.arange(300)] += TOTAL - weights[0].sum()
    stored = Thresholds.of(FlooredRows.of(weights, floor))
    assert sum(part.nbytes for part in stored) < 20_000


def test_the_upper_bits_are_not_used(mechanism):
    """62 of 64 bits decide: words that differ above them draw alike."""
    sampler = Sampler.of(mechanism)
    records = np.zeros(4, np.int64)
    words = np.uint64(12345) + (np.arange(4, dtype=np.uint64) << np.uint64(62))
    assert len(set(sampler.records(records, [words]).tolist())) == 1


def test_rows_are_drawn_as_by_snap_then_sample(mechanism):
    sampler = Sampler.of(mechanism)
    rng = np.random.default_rng(0)
    lat, lon = rng.uniform(41.88, 42.02, 500), rng.uniform(12.48, 12.52, 500)
    bits = rng.integers(0, 2**63, 500, dtype=np.uint64)
    drawn = sampler.records(sampler.snapped(lat, lon, 1.0), [bits])
    snaps = mechanism.problem.domain.snap(lat, lon, 1.0)
    for k in range(500):
        if snaps.record[k] < 0:
            assert drawn[k] == -1
        else:
            u = np.array([int(bits[k]) % TOTAL])
            assert drawn[k] == choose(mechanism.weights[snaps.record[k]], u)[0]
    assert (drawn == -1).any() and (drawn >= 0).any()


def test_draws_use_fresh_bits_of_the_operating_system(mechanism, monkeypatch):
    asked = []

    def zeros(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    monkeypatch.setattr("secrets.token_bytes", zeros)
    drawn = Sampler.of(mechanism).records(np.zeros(7, np.int64))
    assert asked == [56] and drawn.tolist() == [0] * 7


def test_only_a_mechanism_is_drawn_from(mechanism):
    study = pm.NoGuarantee.from_matrix(mechanism.problem, np.full((10, 4), 0.25))
    with pytest.raises(pm.errors.NotForReleaseError, match="needs a Mechanism"):
        Sampler.of(study)
