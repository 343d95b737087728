"""Compact files: exact, checked byte by byte, audited when read, readable from docs/format.md."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.errors import FileFormatError, MethodError, NotForReleaseError, ProblemError
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.table.pmdc import layout

ROOT = Path(__file__).resolve().parents[3]


def make(kind: str = "haversine", size: int = 300, outputs: int = 9) -> pm.Mechanism:
    domain = random_domain(kind, size)
    near = float(np.median(domain.neighbours(1)[1]))
    chosen = np.arange(0, size, size // outputs)[:outputs]
    return pm.exponential(displacement_problem(domain, chosen, 0.3 / near))


@pytest.fixture(scope="module")
def mechanism() -> pm.Mechanism:
    return make()


@pytest.fixture(scope="module")
def data(mechanism, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("compact") / "table.pmdc"
    pm.save_compact(mechanism, path)
    return path.read_bytes()


@pytest.fixture
def reload(tmp_path):
    """Loads bytes as a file."""

    def read(data: bytes) -> pm.CompactTable:
        path = tmp_path / "given.pmdc"
        path.write_bytes(data)
        return pm.load_compact(path)

    return read


def seal(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def forged(data: bytes, change) -> bytes:
    """The file with another header, the checksum made to fit."""
    start = len(layout.MAGIC) + 4
    (length,) = struct.unpack_from("<I", data, len(layout.MAGIC))
    header = json.loads(data[start : start + length])
    change(header)
    text = json.dumps(header).encode()
    return seal(layout.MAGIC + struct.pack("<I", len(text)) + text + data[start + length : -32])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [20, 300])
def test_a_table_comes_back(kind, size, tmp_path):
    given = make(kind, size)
    saved = pm.save_compact(given, tmp_path / "table.pmdc")
    table = pm.load_compact(tmp_path / "table.pmdc")
    assert table.domain.fingerprint == given.problem.domain.fingerprint
    assert np.array_equal(table.outputs, given.problem.outputs)
    weights = table.weights()
    assert np.array_equal(weights, saved.weights())
    assert (weights.sum(axis=1) == TOTAL).all()
    assert table.audit == saved.audit
    assert table.audit.holds
    assert table.audit.claimed == table.epsilon == given.epsilon
    assert table.size_bytes == (tmp_path / "table.pmdc").stat().st_size
    for record in (0, 7, size - 1):
        assert np.array_equal(table.row(record), weights[record])


def test_the_certificate_states_the_price(mechanism, data, reload):
    table = reload(data)
    again = table.mechanism(mechanism.problem)
    assert isinstance(again, pm.Mechanism)
    assert np.array_equal(again.weights, table.weights())
    assert table.loss == pytest.approx(again.loss, rel=1e-12)
    assert table.certificate["compact"]["loss_before"] == mechanism.loss
    assert table.loss_cost == pytest.approx(again.loss / mechanism.loss - 1, rel=1e-9)
    assert again.method == mechanism.method
    assert again.lower_bound is None
    assert again.details["compact"]["slack"] == 1e-3


def test_the_lower_bound_travels(tmp_path):
    domain = random_domain("euclidean", 12)
    problem = displacement_problem(domain, np.arange(12), 1.0)
    best = pm.optimal(problem)
    table = pm.save_compact(best, tmp_path / "t.pmdc")
    again = table.mechanism(problem)
    assert again.lower_bound == best.lower_bound
    assert best.lower_bound <= again.loss
    assert again.gap < 0.015


def test_nodes_of_a_city_travel(tmp_path):
    city = pm.synthetic_city(nodes=400, seed=1)
    domain = city.domain(records=60, seed=2)
    problem = displacement_problem(domain, [0, 20, 40], 3.0)
    pm.save_compact(pm.exponential(problem), tmp_path / "t.pmdc")
    table = pm.load_compact(tmp_path / "t.pmdc")
    assert np.array_equal(table.domain.nodes, domain.nodes)
    assert np.array_equal(table.domain.lat, domain.lat)


def test_draws_follow_the_rows(data, reload, monkeypatch):
    table = reload(data)
    row = table.row(5)
    ends = np.cumsum(row)
    uniforms = np.array([0, ends[0] - 1, ends[0], TOTAL - 1])

    class Given:
        def integers(self, count: int) -> np.ndarray:
            return uniforms[:count]

    monkeypatch.setattr("panda_mdp.table.pmdc.compact.SystemBits", Given)
    assert table.sample(5, 4).tolist() == table.outputs[[0, 0, 1, len(row) - 1]].tolist()
    assert table.sample(5) == table.outputs[0]
    assert table.sample(5, 0).tolist() == []
    with pytest.raises(MethodError, match="negative"):
        table.sample(5, -1)
    for wrong in (-1, 300, 1.5):
        with pytest.raises(MethodError):
            table.row(wrong)


def test_a_row_decodes_one_block(data, reload, monkeypatch):
    table = reload(data)
    decoded = []
    original = pm.CompactTable._decode
    monkeypatch.setattr(
        pm.CompactTable, "_decode", lambda self, b: decoded.append(b) or original(self, b)
    )
    table.row(17)
    assert len(table._blocks) == 2
    assert len(decoded) == 1


def test_repr_tells_no_record(data, reload):
    table = reload(data)
    table.sample(123)
    assert "123" not in repr(table).replace(f"{table.size_bytes:,}", "")


def test_every_flipped_byte_is_refused(data, reload):
    for place in range(0, len(data), 97):
        bad = bytearray(data)
        bad[place] ^= 1 + place % 255
        with pytest.raises(FileFormatError):
            reload(bytes(bad))


@pytest.mark.parametrize("length", [0, 1, 10, 21, 22, 60, 5000, -1])
def test_truncated_files_are_refused(data, reload, length):
    with pytest.raises(FileFormatError, match=r"is empty|starts differently|is truncated"):
        reload(data[:length])


def set_(*path, value):
    def change(header):
        for name in path[:-1]:
            header = header[name]
        header[path[-1]] = value

    return change


def drop(name):
    return lambda header: header.pop(name)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (set_("format", value="other"), "foreign"),
        (set_("version", value=3), "version 3"),
        (set_("domain", "kind", value="taxicab"), "taxicab"),
        (set_("domain", "fingerprint", value="0" * 64), "certificate names"),
        (set_("domain", "records", value=299), "damaged"),
        (set_("domain", "records", value=10**12), "would unpack to"),
        (set_("outputs", value=8), "damaged"),
        (set_("outputs", value=-1), "damaged"),
        (set_("arrays", "lat", value="pickle"), "pickle"),
        (set_("arrays", "lat", value="degrees"), "damaged"),
        (lambda h: h["blocks"].reverse(), "damaged|out of range|ends early"),
        (lambda h: h["blocks"].pop(), "blocks"),
        (set_("blocks", 0, value=-5), "blocks"),
        (set_("sections", "order", value=1), "sections"),
        (set_("epsilon", value=1e-3), "not 0.001-mDP"),
        (set_("epsilon", value="x"), "epsilon is 'x'"),
        (set_("subject", value="another"), "speaks about"),
        (drop("epsilon"), "lacks a field"),
        (drop("sections"), "lacks a field"),
        (drop("audit"), "lacks a field"),
        (lambda h: h.update(sections=[1]), "wrong value"),
    ],
)
def test_forged_headers_are_refused(data, reload, change, what):
    with pytest.raises(FileFormatError, match=what):
        reload(forged(data, change))


@pytest.mark.parametrize("text", [b"[]", b"{}", b"no json", b"\xff"])
def test_headers_that_are_none(reload, text):
    with pytest.raises(FileFormatError):
        reload(seal(layout.MAGIC + struct.pack("<I", len(text)) + text))


def test_a_forged_epsilon_is_found(data, reload, tmp_path):
    def lower(header):
        words = header["guarantee"].replace(f"exp({header['epsilon']!r} ", "exp(0.001 ")
        header.update(epsilon=1e-3, guarantee=words)

    bad = forged(data, lower)
    with pytest.raises(FileFormatError, match="-mDP"):
        reload(bad)
    assert pm.inspect(tmp_path / "given.pmdc").certificate["epsilon"] == 1e-3
    with pytest.raises(MethodError, match=r"panda_mdp\.inspect"):
        pm.load_compact(tmp_path / "given.pmdc", verify=False)


@pytest.mark.parametrize("bound", [1e9, float("inf"), float("nan")])
def test_a_forged_bound_is_refused(data, reload, bound):
    with pytest.raises(FileFormatError):
        reload(forged(data, set_("lower_bound", value=bound)))


def test_a_compact_table_pickles_and_is_audited_on_the_way_in(data, reload):
    table = reload(data)
    copy = pickle.loads(pickle.dumps(table))
    np.testing.assert_array_equal(copy.weights(), table.weights())
    assert copy.audit == table.audit


def test_another_problem_is_refused(mechanism, data, reload):
    table = reload(data)
    problem = mechanism.problem
    with pytest.raises(ProblemError, match="another epsilon"):
        table.mechanism(problem.with_epsilon(problem.epsilon * 2))
    other = pm.Problem(problem.domain, problem.outputs, problem.loss * 2, problem.epsilon)
    with pytest.raises(ProblemError, match="other losses"):
        table.mechanism(other)


def test_only_mechanisms_are_written(mechanism, tmp_path):
    study = pm.NoGuarantee.from_matrix(mechanism.problem, mechanism.matrix)
    with pytest.raises(NotForReleaseError, match="NoGuarantee"):
        pm.save_compact(study, tmp_path / "x.pmdc")
    with pytest.raises(MethodError, match="slack"):
        pm.save_compact(mechanism, tmp_path / "x.pmdc", slack=2)
    assert not list(tmp_path.iterdir())


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="save"):
        pm.load_compact(tmp_path / "none.pmdc")


def test_without_numba(mechanism, tmp_path, without_numba):
    # The exponential mechanism uses half of its epsilon: nothing has to be closed.
    table = pm.save_compact(mechanism, tmp_path / "x.pmdc")
    assert pm.load_compact(tmp_path / "x.pmdc").audit == table.audit


def test_the_documented_decoder_reads_the_same_integers(mechanism, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("the documented decoder is JavaScript and node is not installed")
    text = (ROOT / "docs" / "format.md").read_text()
    (code,) = re.findall(r"```js\n(.*?)```", text, re.S)
    driver = """
    const file = new Uint8Array(require("fs").readFileSync(process.argv[2]));
    (async () => {
      const table = await readTable(file);
      const rows = [];
      for (let x = 0; x < table.header.domain.records; x++)
        rows.push((await table.row(x)).map(String));
      const drawn = draw(await table.row(3), table.outputs);
      console.log(JSON.stringify({ rows, outputs: table.outputs, drawn }));
    })();
    """
    (tmp_path / "decode.js").write_text(code + driver)
    table = pm.save_compact(make(size=270), tmp_path / "x.pmdc", slack=1e-5)
    done = subprocess.run(
        [node, str(tmp_path / "decode.js"), str(tmp_path / "x.pmdc")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [[int(w) for w in row] for row in answer["rows"]] == table.weights().tolist()
    assert answer["outputs"] == table.outputs.tolist()
    assert answer["drawn"] in table.outputs


@pytest.mark.data
def test_rome_in_few_bytes(road_maps, tmp_path):
    city = road_maps("rome")
    domain = city.domain(records=2000, seed=0)
    rng = np.random.default_rng(0)
    outputs = rng.choice(2000, 100, replace=False)
    problem = pm.Problem(domain, outputs, pm.travel_loss(city, domain, outputs, [7]), 5.0)
    best = pm.optimal(problem, gap=0.1, time_limit=5)
    table = pm.save_compact(best, tmp_path / "rome.pmdc")
    assert table.audit.holds
    assert 0 <= table.loss_cost < 0.003
    # 100 bytes a record are 4.3 MB for all of Rome.
    assert table.size_bytes < 100 * 2000
