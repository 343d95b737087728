"""Tables over a floor as levels: to the bit, by both readers, refused where anything is not so."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.base.floored import FlooredRows
from panda_mdp.errors import FileFormatError, PrivacyError
from panda_mdp.privacy.quantise import TOTAL, quantise_floored
from panda_mdp.protocol.server.store import catalogue
from panda_mdp.table.mechanism import Mechanism, judged
from panda_mdp.table.pmdc import archive, layout, levels
from panda_mdp.table.pmdc.codec import decode_block, deflate, encode_block, spanning_order

EPSILON = 4.0


def floored_table(seed: int, size: int = 90, reach: float = 1.2, steep: float = 0.45) -> Mechanism:
    """A table over a floor with near-duplicates, equal rows, a record alone, and free epsilon."""
    rng = np.random.default_rng(seed)
    places = np.concatenate([rng.uniform(0, 3, (size - 21, 2)), [[30.0, 30.0]]])
    places = np.concatenate([places, places[:20] + rng.uniform(1e-5, 1e-3, (20, 2))])
    domain = pm.Domain.from_vectors(places, unit="km")
    distance = domain.distances()
    if seed % 2:
        distance[-20:-10] = distance[:10]  # rows that are equal
    table = np.exp(-steep * EPSILON * np.minimum(distance, reach + rng.random(size)))
    table = np.maximum(table, 1e-4 * rng.uniform(1, 2, size))
    mixed = 0.9 * table / table.sum(axis=1, keepdims=True) + 0.1 / size
    floor = mixed.min(axis=0)
    above = mixed > floor
    above[np.arange(size), mixed.argmax(axis=1)] = True
    starts = np.concatenate([[0], np.cumsum(above.sum(axis=1))])
    rows = quantise_floored(floor, starts, np.nonzero(above)[1].astype(np.int32), mixed[above])
    problem = pm.Problem(domain, range(size), pm.distance_loss(domain, range(size)), 1e9)
    rate = judged(problem, rows, "given").audit.epsilon
    problem = pm.Problem(domain, range(size), problem.loss, rate * 1.0015)
    mechanism = judged(problem, rows, "given")
    assert isinstance(mechanism, Mechanism)
    return mechanism


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGE", 1)


@pytest.mark.parametrize("seed", range(4))
def test_a_table_of_levels_is_read_to_the_bit_by_both_readers(seed, tmp_path, monkeypatch) -> None:
    mechanism = floored_table(seed)
    rows = mechanism.weights
    assert isinstance(rows, FlooredRows)
    table = pm.save_compact(mechanism, tmp_path / "a.pmdc")
    assert table.certificate["version"] == layout.LEVELS_VERSION
    assert table.audit.holds and table.audit.epsilon <= mechanism.problem.epsilon
    assert abs(table.loss_cost) < 2e-3
    assert table.mechanism(mechanism.problem).loss == pytest.approx(table.loss, rel=1e-12)
    compiled = table.weights()
    monkeypatch.setattr(levels, "host_backend", lambda: "numpy")
    plain = pm.load_compact(tmp_path / "a.pmdc").weights()
    for name in ("floor", "starts", "columns", "values"):
        assert np.array_equal(getattr(plain, name), getattr(compiled, name)), name
    dense = np.asarray(compiled)
    assert (dense.sum(axis=1) == 1 << 62).all()
    assert np.array_equal(table.row(7), dense[7])
    assert 0 <= table.sample(7) < len(dense)


def test_levels_become_blocks_without_loss(tmp_path) -> None:
    table = pm.save_compact(floored_table(0), tmp_path / "a.pmdc")
    rows, floors = table.rows(np.arange(40))
    order, parent = spanning_order(table.domain.distances(np.arange(40), np.arange(40)))
    mine = rows.take(order)
    back = decode_block(encode_block(mine, parent, floors), 40, floors)
    assert np.array_equal(back.weights, mine.weights)


def test_only_large_tables_are_levels_and_a_service_writes_blocks(tmp_path, monkeypatch) -> None:
    mechanism = floored_table(1)
    assert archive.decode(archive.encode(mechanism)).certificate["version"] == layout.VERSION
    pm.save_compact(mechanism, tmp_path / "levels.pmdc")
    with pytest.raises(FileFormatError, match=r"publish the \.pmdp file"):
        catalogue.examine((tmp_path / "levels.pmdc").read_bytes())
    monkeypatch.setattr(archive, "LARGE", 1 << 27)
    assert pm.save_compact(mechanism, tmp_path / "a.pmdc").certificate["version"] == layout.VERSION


def test_listed_pairs_keep_epsilon_whatever_is_rounded(monkeypatch) -> None:
    """Levels as coarse as an octave: listed rows differ by their cost at most, exactly."""
    mechanism = floored_table(2)
    rows = mechanism.weights
    assert isinstance(rows, FlooredRows)
    seen = []
    monkeypatch.setattr(levels, "_weighed", lambda *given: seen.append(given) or rows)
    monkeypatch.setattr(levels, "MORE", 40)
    monkeypatch.setattr(levels, "TAIL", 62)
    levels.level(mechanism, rows, 1e-3)
    floor, begin, own, chosen, order, _ = seen[0]
    table = np.asarray(FlooredRows(floor, begin, own, chosen))
    near, length = levels.earlier_neighbours(mechanism.problem.domain, order)
    row, column = np.nonzero(near >= 0)
    differ = np.abs(table[row] - table[near[row, column]]).max(axis=1)
    assert (differ <= mechanism.problem.epsilon * length[row, column] * levels.PER_NAT + 1).all()
    assert (differ > 0.9 * mechanism.problem.epsilon * length[row, column] * levels.PER_NAT).any()


def test_wide_flat_rows_are_full_at_the_first_attempt(monkeypatch) -> None:
    """No entry of 800 outputs stands out: all large ones make up for what was rounded up."""
    monkeypatch.setattr(levels, "ATTEMPTS", 1)
    full, lacks = levels._full, []

    def spy(rows: FlooredRows) -> np.ndarray:
        lacks.append((TOTAL - rows.sums()[0]) / TOTAL)
        return full(rows)

    monkeypatch.setattr(levels, "_full", spy)
    mechanism = floored_table(0, size=800, steep=0.1)
    rows = mechanism.weights
    assert isinstance(rows, FlooredRows) and rows.values.max() < TOTAL >> 8
    coded = levels.level(mechanism, rows, 1 - mechanism.audit.epsilon / mechanism.problem.epsilon)
    assert coded.mechanism.audit.holds
    assert abs(coded.mechanism.loss / mechanism.loss - 1) < 1e-3
    # Levels alone bring rows this near; only a record that is alone has nothing to choose from.
    assert np.quantile(np.abs(lacks[0]), 0.99) < 1e-6 and np.abs(lacks[0]).max() < 1e-4


@pytest.mark.parametrize("lack", [0.2, 1e-4, 1e-9, 0.0, -1e-9, -1e-4, -0.2])
def test_what_a_row_lacks_is_shared_by_the_large_ones_in_proportion(lack) -> None:
    rng = np.random.default_rng(5)
    values = levels.weights_of(rng.integers(40 << 20, 57 << 20, (3, 50)))
    values[:, 7] = (TOTAL * (1 - lack) - values.sum(axis=1) + values[:, 7]).astype(np.int64)
    values[:, 7] = values[:, 7] >> 31 << 31
    rows = FlooredRows(
        np.ones(50, dtype=np.int64), 50 * np.arange(4), np.tile(np.arange(50, dtype=np.int32), 3),
        values.ravel(),
    )  # fmt: skip
    full = levels._full(rows).reshape(3, 50)
    for before, after in zip(values.tolist(), full.tolist(), strict=True):
        assert sum(after) == TOTAL
        large = [y for y in range(50) if before[y] >= max(before) >> levels.LARGE]
        mass = sum(before[y] for y in large)
        share = Fraction(TOTAL - sum(before), mass)
        for y in range(50):
            wanted = before[y] * (1 + share) if y in large else before[y]
            assert abs(after[y] - wanted) <= (2**-30 + abs(lack) * 2**-20) * mass
            assert before[y] == max(before) or abs(after[y] - wanted) <= wanted / 2**20
        others = [w for w in after if w != max(after)]
        assert all(w % (1 << max(w.bit_length() - 1 - levels.LEVEL_BITS, 0)) == 0 for w in others)


def test_weights_of_levels_are_powers_of_two() -> None:
    """Against integers of 200 binary digits, rounded down."""
    chosen = np.random.default_rng(0).integers(31 << 20, 62 << 20, 300)
    root = 2 << 200
    roots = []
    for _ in range(20):
        root = math.isqrt(root << 200)
        roots.append(root)
    for level, weight in zip(chosen.tolist(), levels.weights_of(chosen).tolist(), strict=True):
        power = 1 << 200
        for k in range(20):
            if level >> (19 - k) & 1:
                power = power * roots[k] >> 200
        exact = (power << (level >> 20)) >> 200
        assert 0 <= exact - weight <= exact >> 29
    every = levels.weights_of(np.arange(40 << 20, (40 << 20) + 5000))
    assert (np.diff(every) >= 0).all()


def test_rows_at_the_floor_are_refused_with_a_remedy(tmp_path, monkeypatch) -> None:
    """A table that ignores the record stores nothing, and one that hardly looks at it no levels."""
    problem = floored_table(0).problem
    size = problem.size
    for stored in (0, 1):
        floor = np.full(size, TOTAL // size - 5 * stored)
        rows = FlooredRows(
            floor, stored * np.arange(size + 1), np.zeros(stored * size, np.int32),
            np.full(stored * size, floor[0] + TOTAL - floor.sum()),
        )  # fmt: skip
        if not stored:
            floor[0] += TOTAL - floor.sum()
            rows = replace(rows, floor=floor)
        flat = judged(problem, rows, "given")
        assert isinstance(flat, Mechanism)
        with pytest.raises(PrivacyError, match=r"use mechanism\.save"):
            pm.save_compact(flat, tmp_path / "flat.pmdc")
        assert not (tmp_path / "flat.pmdc").exists()
    data = archive.encode(floored_table(0), large=1)
    read = levels.decode_rows

    def emptied(*given: object):
        begin, *rest = read(*given)
        return np.where(np.arange(len(begin)) == 1, 0, begin), *rest

    monkeypatch.setattr(levels, "host_backend", lambda: "numpy")
    monkeypatch.setattr(levels, "decode_rows", emptied)
    with pytest.raises(FileFormatError, match="a row without entries"):
        archive.decode(data)


def changed(data: bytes, header: dict, sections: dict[str, bytes]) -> bytes:
    given, parts = layout.unpack(data)
    return layout.pack({**given, **header}, {**parts, **sections})


def test_forged_and_truncated_files_are_refused(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.pmdc"
    table = pm.save_compact(floored_table(3), path)
    data = path.read_bytes()
    header, parts = layout.unpack(data)
    stored, size = header["stored"], table.domain.size
    listed = header["levels"]["listed"]
    planes = lambda values: deflate(levels.pack_planes(np.asarray(values, dtype=np.int64)))  # noqa: E731
    near = levels.unpack_planes(levels.inflate(parts["near"], 1 << 20), size * listed).copy()
    near[5] = -3
    fresh = size + header["levels"]["fresh"]
    news = levels.unpack_planes(levels.inflate(parts["fresh"], 1 << 20), fresh).copy()
    news[size] += table.weights().shape[1]
    forged = {
        "truncated symbols": ({}, {"symbols": parts["symbols"][:-40]}),
        "longer symbols": ({}, {"symbols": parts["symbols"] + b"\0"}),
        "no symbols": ({}, {"symbols": b""}),
        "fewer entries": ({"stored": stored - 1}, {}),
        "more entries": ({"stored": stored + 1}, {}),
        "more than memory": ({"stored": 1 << 60}, {}),
        "a later row": ({}, {"near": planes(near)}),
        "a column beyond": ({}, {"fresh": planes(news)}),
        "a negative cost": ({}, {"costs": planes(np.full(size * listed, -1))}),
        "a precision": ({}, {"digits": planes(np.full(2 * size, 99))}),
        "columns twice": ({}, {"columns": planes(np.zeros(size))}),
        "a floor beyond": ({}, {"floors": planes(np.full(size, 1 << 50))}),
        "no lists": ({"levels": {**header["levels"], "listed": 0}}, {}),
        "as blocks": ({"version": 1}, {}),
        "no levels": ({"levels": None}, {}),
    }
    for reader in ("numba", "numpy"):
        monkeypatch.setattr(levels, "host_backend", lambda reader=reader: reader)
        for name, (said, sections) in forged.items():
            with pytest.raises(FileFormatError):
                archive.decode(changed(data, said, sections))
                pytest.fail(f"{name} was read by {reader}")
    rng = np.random.default_rng(0)
    monkeypatch.undo()
    for _ in range(40):
        wrong = bytearray(parts["symbols"])
        wrong[int(rng.integers(len(wrong)))] ^= 1 << int(rng.integers(8))
        if wrong[0] != parts["symbols"][0]:
            continue  # the coder's first byte is always 0 and is not read
        with pytest.raises(FileFormatError):
            archive.decode(changed(data, {}, {"symbols": bytes(wrong)}))
    for end in (0, 30, len(data) // 2, len(data) - 1):
        with pytest.raises(FileFormatError):
            archive.decode(data[:end])
