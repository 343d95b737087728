"""Files: what is written is read back exactly, and nothing else is accepted."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.errors import FileFormatError, MethodError, NotForReleaseError, PrivacyError
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.space.metrics import Matrix
from panda_mdp.table.pmdp import decode
from panda_mdp.table.pmdp import encode as files


def small_mechanism(kind: str = "euclidean", **changes) -> pm.Mechanism:
    domain = random_domain(kind, 6, seed=1)
    if kind == "haversine":
        domain = domain.with_nodes(np.arange(50, 56))
    prior = np.array([0.1, 0.2, 0.3, 0.1, 0.1, 0.2])
    problem = displacement_problem(domain, [4, 1, 0], 1.5, prior=prior)
    problem = replace(problem, loss_unit="minutes", prior_source="a survey")
    mechanism = pm.exponential(problem)
    return replace(mechanism, **changes) if changes else mechanism


@pytest.fixture
def saved(tmp_path) -> Path:
    return small_mechanism().save(tmp_path / "table.pmdp")


def parts(path: Path) -> tuple[dict, dict[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("certificate.json")), members


def forge(path: Path, certificate: dict, members: dict[str, bytes]) -> None:
    """Write changed contents with checksums that fit."""
    certificate = dict(certificate)
    certificate["sha256"] = files.checksum(certificate, members)
    text = json.dumps(certificate).encode()
    path.write_bytes(files.archive({"certificate.json": text, **members}))


def reseal(data: bytes) -> bytes:
    body = data[: -files.SEAL_LENGTH]
    return body + files.SEAL + hashlib.sha256(body).hexdigest().encode()


def same(a: pm.Mechanism, b: pm.Mechanism) -> bool:
    return (
        np.array_equal(a.weights, b.weights)
        and a.problem.domain.fingerprint == b.problem.domain.fingerprint
        and np.array_equal(a.problem.loss, b.problem.loss)
        and np.array_equal(a.problem.prior, b.problem.prior)
        and np.array_equal(a.problem.outputs, b.problem.outputs)
        and (a.epsilon, a.method, a.lower_bound) == (b.epsilon, b.method, b.lower_bound)
    )


class TestRoundTrip:
    @pytest.mark.parametrize("kind", KINDS)
    def test_everything_comes_back(self, tmp_path, kind):
        before = small_mechanism(kind, lower_bound=0.25, stages=(("solve", 1.5), ("audit", 0.5)))
        path = before.save(tmp_path / "table.pmdp")
        assert path == tmp_path / "table.pmdp"
        after = pm.load(path)
        assert same(before, after)
        assert after.loss == before.loss
        assert after.gap == before.gap
        assert after.stages == before.stages
        assert after.audit == before.audit
        assert after.problem.loss_unit == "minutes"
        assert after.problem.prior_source == "a survey"
        assert after.problem.domain.unit == before.problem.domain.unit
        nodes, expected = after.problem.domain.nodes, before.problem.domain.nodes
        assert (nodes is None) == (expected is None)
        if nodes is not None:
            np.testing.assert_array_equal(nodes, expected)
        assert after.sample(2) in (4, 1, 0)
        assert pm.audit(after).holds

    def test_nothing_is_loaded_without_verifying(self, saved):
        with pytest.raises(MethodError, match=r"panda_mdp\.inspect"):
            pm.load(saved, verify=False)
        looked = pm.inspect(saved)
        assert "NOT VERIFIED" in repr(looked)
        assert looked.certificate["epsilon"] == 1.5
        for way in ("sample", "save", "weights", "simulate"):
            assert not hasattr(looked, way)
        assert same(looked.verified(), pm.load(saved))

    @pytest.mark.parametrize(
        ("expected", "reason"),
        [
            (pm.Expected(epsilon=1.0), "at most 1.0 was expected"),
            (pm.Expected(unit="km"), "a table per km was expected"),
            (pm.Expected(fingerprint="0" * 16), "0000000000000000... was expected"),
        ],
    )
    def test_what_was_not_expected_is_refused(self, saved, expected, reason):
        with pytest.raises(PrivacyError, match=reason):
            pm.load(saved, expected=expected)
        own = pm.load(saved)
        domain = own.problem.domain
        exactly = pm.Expected(own.epsilon, domain.unit, domain.fingerprint[:20])
        assert same(pm.load(saved, expected=exactly), own)

    @pytest.mark.parametrize("kind", ["places", "labels"])
    def test_outputs_that_are_no_records(self, tmp_path, kind):
        domain = pm.Domain.from_points([41.9, 41.91, 41.92], [12.4, 12.5, 12.6])
        domain = domain.with_labels(["home", "work", "shop"])
        outputs = {
            "places": pm.Outputs.at([41.905, 41.95], [12.45, 12.7], ["a", "b"]),
            "labels": pm.Outputs.labels(["north", "south"]),
        }[kind]
        problem = pm.Problem(domain, outputs, [[1, 2], [2, 1], [1, 1]], 0.5)
        before = pm.Mechanism.from_matrix(problem, [[0.5, 0.5]] * 3)
        for after in (
            pm.load(before.save(tmp_path / "x.pmdp")),
            pm.save_compact(before, tmp_path / "x.pmdc"),
            pm.load_compact(tmp_path / "x.pmdc"),
        ):
            reports = after.reports if kind and hasattr(after, "reports") else after.problem.reports
            assert reports.same_as(outputs)
            assert after.sample(0) in (outputs.names or ())
        assert pm.load(tmp_path / "x.pmdp").problem.domain.labels == ("home", "work", "shop")
        assert pm.inspect(tmp_path / "x.pmdp").certificate["version"] == 2
        assert pm.inspect(tmp_path / "x.pmdc").certificate["version"] == 2

    def test_saving_again_gives_the_same_arrays(self, saved, tmp_path):
        again = pm.load(saved).save(tmp_path / "again.pmdp")
        assert parts(saved)[1] == parts(again)[1]
        first, second = parts(saved)[0], parts(again)[0]
        for certificate in (first, second):
            certificate.pop("date")
            certificate.pop("sha256")
        assert first == second

    def test_details_that_json_cannot_hold_are_named(self, tmp_path):
        details = {
            "rounds": np.int64(3),
            "table": np.array([[1.0, 2.0]]),
            "nested": {"a": (1, np.float64(0.5))},
            "function": print,
            "not a number": float("nan"),
        }
        path = small_mechanism(details=details).save(tmp_path / "x.pmdp")
        certificate = decode.read_certificate(path)
        assert certificate["details_left_out"] == ["function", "not a number"]
        loaded = dict(pm.load(path).details)
        assert loaded == {"rounds": 3, "table": [[1.0, 2.0]], "nested": {"a": [1, 0.5]}}

    def test_infinite_gap(self, tmp_path):
        path = small_mechanism(lower_bound=0.0).save(tmp_path / "x.pmdp")
        assert decode.read_certificate(path)["gap"] == "infinite"
        assert pm.load(path).gap == np.inf


class TestCertificate:
    def test_states_what_is_claimed(self, tmp_path):
        mechanism = small_mechanism("haversine", lower_bound=0.5)
        certificate = decode.read_certificate(mechanism.save(tmp_path / "x.pmdp"))
        assert certificate["format"] == "panda-mdp mechanism"
        assert certificate["version"] == 1
        assert certificate["library"] == pm.__version__
        assert certificate["epsilon"] == 1.5
        assert certificate["epsilon_unit"] == "per km"
        assert certificate["loss"] == mechanism.loss
        assert certificate["loss_unit"] == "minutes"
        assert certificate["lower_bound"] == 0.5
        assert certificate["gap"] == mechanism.gap
        assert certificate["method"] == "exponential"
        assert certificate["date"].endswith("+00:00")
        assert certificate["domain"] == {
            "kind": "haversine",
            "unit": "km",
            "records": 6,
            "dimensions": None,
            "nodes": True,
            "fingerprint": mechanism.problem.domain.fingerprint,
            "labels": None,
        }
        assert certificate["outputs"] == 3
        assert certificate["prior_source"] == "a survey"
        assert certificate["bits"] == 62
        assert certificate["audit"]["holds"] is True
        assert certificate["audit"]["epsilon"] == mechanism.audit.epsilon
        assert tuple(certificate["audit"]["worst"]) == mechanism.audit.worst
        assert certificate["audit"]["pairs"] == 15
        assert "exp(1.5 d(x, x'))" in certificate["guarantee"]
        assert "epsilon (d + 2 s)" in certificate["snapping"]

    def test_checksum_can_be_recomputed_by_hand(self, saved):
        certificate, members = parts(saved)
        stated = certificate.pop("sha256")
        canonical = json.dumps(certificate, sort_keys=True, separators=(",", ":"))
        state = hashlib.sha256(canonical.encode())
        for name in sorted(members):
            state.update(f"\n{name} {len(members[name])}\n".encode() + members[name])
        assert state.hexdigest() == stated

    def test_archive_is_plain(self, saved):
        """Any zip reader and NumPy can open it; times are fixed; nothing is pickled."""
        with zipfile.ZipFile(saved) as archive:
            assert archive.testzip() is None
            assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
            names = archive.namelist()
            assert names[0] == "certificate.json"
            for name in names[1:]:
                array = np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                assert array.dtype.str in ("<f8", "<i8")


class TestWriting:
    def test_only_mechanisms(self, tmp_path):
        mechanism = small_mechanism()
        table = pm.NoGuarantee.from_matrix(mechanism.problem, mechanism.matrix)
        for wrong in (table, mechanism.simulate(1)):
            with pytest.raises(NotForReleaseError, match="for release"):
                wrong.save(tmp_path / "x.pmdp")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("failing", ["fsync", "replace"])
    def test_a_failure_leaves_the_old_file(self, saved, monkeypatch, failing):
        before = saved.read_bytes()

        def fail(*_):
            raise OSError(28, "No space left on device")

        target = (os, "fsync") if failing == "fsync" else (Path, "replace")
        monkeypatch.setattr(*target, fail)
        with pytest.raises(OSError, match="No space left"):
            small_mechanism("matrix").save(saved)
        monkeypatch.undo()
        assert saved.read_bytes() == before
        assert list(saved.parent.iterdir()) == [saved]

    def test_is_on_disk_before_it_is_renamed(self, tmp_path, monkeypatch):
        events = []
        fsync, rename = os.fsync, Path.replace
        monkeypatch.setattr(os, "fsync", lambda fd: (events.append("fsync"), fsync(fd))[1])
        monkeypatch.setattr(
            Path, "replace", lambda a, b: (events.append(a.parent == b.parent), rename(a, b))[1]
        )
        small_mechanism().save(tmp_path / "x.pmdp")
        assert events == ["fsync", True, "fsync"]

    def test_replaces_an_old_file(self, saved):
        small_mechanism("matrix").save(str(saved))
        assert pm.load(saved).problem.domain.metric.kind == "matrix"

    def test_has_the_permissions_of_an_ordinary_file(self, tmp_path):
        ordinary = tmp_path / "ordinary"
        ordinary.write_text("x")
        path = small_mechanism().save(tmp_path / "x.pmdp")
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)

    def test_missing_folder_and_folder_as_target(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"folder to save in does not exist.*nowhere"):
            small_mechanism().save(tmp_path / "nowhere" / "x.pmdp")
        with pytest.raises(IsADirectoryError, match="not a folder"):
            small_mechanism().save(tmp_path)


class TestDamage:
    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no table here.*x\.pmdp"):
            pm.load(tmp_path / "x.pmdp")

    def test_every_flipped_byte_is_noticed(self, saved):
        data = saved.read_bytes()
        assert len(data) < 8000
        for position in range(len(data)):
            changed = bytearray(data)
            changed[position] ^= 1 << (position % 8)
            with pytest.raises(FileFormatError):
                decode.unpack(bytes(changed))
        saved.write_bytes(changed)
        with pytest.raises(FileFormatError, match=r"table\.pmdp: the seal does not match"):
            pm.load(saved)

    def test_every_truncation_is_noticed(self, saved):
        data = saved.read_bytes()
        for length in range(0, len(data), 7):
            saved.write_bytes(data[:length])
            with pytest.raises(FileFormatError):
                pm.load(saved)

    def test_under_a_fitting_seal_the_inner_checks_stand(self, saved):
        """Where the outer checksum was made to fit, a change is refused or changes nothing."""
        original = pm.load(saved)
        data = saved.read_bytes()
        refused = 0
        for position in range(len(data) - files.SEAL_LENGTH):
            changed = bytearray(data)
            changed[position] ^= (0x01, 0x80, 0xFF)[position % 3]
            saved.write_bytes(reseal(bytes(changed)))
            try:
                loaded = pm.load(saved)
            except FileFormatError:
                refused += 1
            else:
                assert same(original, loaded)
        assert refused > 0.8 * len(data)

    def test_appended_bytes(self, saved):
        saved.write_bytes(saved.read_bytes() + b"x")
        with pytest.raises(FileFormatError, match=r"without the seal|truncated or damaged"):
            pm.load(saved)

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "empty"),
            (b"lat,lon\n1,2\n", "not a zip archive"),
            (b"PK\x03\x04 and no more", "truncated"),
            (b"\x93NUMPY\x01\x00", "not a zip archive"),
        ],
    )
    def test_foreign_contents(self, tmp_path, content, reason):
        path = tmp_path / "x.pmdp"
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=reason) as caught:
            pm.load(path)
        assert "x.pmdp" in str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, OSError)

    def test_foreign_zip(self, tmp_path):
        path = tmp_path / "x.pmdp"
        np.savez(path.with_suffix(".npz"), a=np.zeros(3))
        path.with_suffix(".npz").rename(path)
        with pytest.raises(FileFormatError, match="without the seal"):
            pm.load(path)
        path.write_bytes(files.archive({"a.txt": b"hello"}))
        with pytest.raises(FileFormatError, match=r"without certificate\.json"):
            pm.load(path)
        path.write_bytes(files.archive({"certificate.json": b"hello"}))
        with pytest.raises(FileFormatError, match="not JSON"):
            pm.load(path)
        for foreign in (b"[1, 2]", b'{"format": "other"}', b"null"):
            path.write_bytes(files.archive({"certificate.json": foreign}))
            with pytest.raises(FileFormatError, match="it is a foreign file"):
                pm.load(path)

    def test_folder(self, tmp_path):
        with pytest.raises(OSError, match="directory"):
            pm.load(tmp_path)


FAILED_AUDIT = {"holds": False, "epsilon": 1.0, "worst": [0, 1, 0], "distance": 1.0, "pairs": 15}


class TestForged:
    """Files whose checksums fit but whose contents do not hold."""

    @pytest.mark.parametrize("version", [0, 6, "1", None])
    def test_unknown_version(self, saved, version):
        certificate, members = parts(saved)
        forge(saved, {**certificate, "version": version}, members)
        with pytest.raises(FileFormatError, match=f"version {version!r}.*reads versions 1 to 5"):
            pm.load(saved)

    def test_checksum_mismatch(self, saved):
        certificate, members = parts(saved)
        certificate["epsilon"] = 0.5
        text = json.dumps(certificate).encode()
        saved.write_bytes(files.archive({"certificate.json": text, **members}))
        with pytest.raises(FileFormatError, match="checksum of certificate and arrays"):
            pm.load(saved)

    def array(self, saved, name, change):
        certificate, members = parts(saved)
        path = f"arrays/{name}.npy"
        array = change(np.load(io.BytesIO(members[path])).copy())
        forge(saved, certificate, {**members, path: files.npy(array)})
        return pm.load(saved)

    @pytest.mark.parametrize(
        ("name", "change", "reason"),
        [
            ("weights", lambda a: a[:-1], r"weights is <i8 of shape \(5, 3\).*\(6, 3\)"),
            ("weights", lambda a: a.T, r"\(3, 6\)"),
            ("weights", lambda a: a.astype(float), "<f8"),
            ("weights", lambda a: a - np.eye(6, 3, dtype=int), "row 0 do not sum"),
            ("weights", lambda a: a * 2, "do not sum|negative"),
            ("loss", lambda a: a[:, :-1], r"loss is <f8 of shape \(6, 2\)"),
            ("loss", lambda a: a * -1, "loss.*negative"),
            ("loss", lambda a: a * 2, "claims a loss"),
            ("loss", lambda a: a * np.nan, "loss.*nan"),
            ("prior", lambda a: a * 2, "prior sums to 2"),
            ("outputs", lambda a: a + 3, r"outputs\[0\] is 7"),
            ("outputs", lambda a: a * 0, "named 3 times"),
            ("vectors", lambda a: a[:, :-1], "vectors"),
            ("vectors", lambda a: a * 2, "not the one that the certificate names"),
            ("vectors", lambda a: a * 0, "repeats record 0"),
        ],
    )
    def test_arrays(self, saved, name, change, reason):
        with pytest.raises(FileFormatError, match=reason):
            self.array(saved, name, change)

    def test_pickled_array(self, saved):
        certificate, members = parts(saved)
        buffer = io.BytesIO()
        np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        forge(saved, certificate, {**members, "arrays/loss.npy": buffer.getvalue()})
        with pytest.raises(FileFormatError, match=r"array loss is \|O"):
            pm.load(saved)

    def test_trailing_bytes_missing_and_extra_arrays(self, saved):
        certificate, members = parts(saved)
        forge(saved, certificate, {**members, "arrays/loss.npy": members["arrays/loss.npy"] + b"x"})
        with pytest.raises(FileFormatError, match="array loss"):
            pm.load(saved)
        forge(saved, certificate, {**members, "arrays/more.npy": members["arrays/loss.npy"]})
        with pytest.raises(FileFormatError, match="expected the arrays"):
            pm.load(saved)
        members.pop("arrays/prior.npy")
        forge(saved, certificate, members)
        with pytest.raises(FileFormatError, match="expected the arrays"):
            pm.load(saved)

    def test_a_table_that_is_not_private_is_refused_on_load(self, saved):
        """A forger can make the checksums fit and claim any audit; the weights tell."""
        certificate, members = parts(saved)
        mechanism = pm.load(saved)
        sharp = quantise(np.full((6, 3), 0.01) + 0.97 * np.eye(3)[[0, 1, 2, 0, 1, 2]])
        certificate["loss"] = mechanism.problem.expected_loss(sharp / TOTAL)
        forge(saved, certificate, {**members, "arrays/weights.npy": files.npy(sharp)})
        with pytest.raises(FileFormatError, match=r"not 1\.5-mDP"):
            pm.load(saved)
        examined = decode.examine(saved.read_bytes())
        assert isinstance(examined, pm.NoGuarantee)
        assert not examined.audit.holds

    def test_a_matrix_that_is_no_metric_is_refused_on_load(self, tmp_path):
        """The audit's shortcuts rest on the triangle inequality, so it is checked again."""
        path = small_mechanism("matrix").save(tmp_path / "x.pmdp")
        certificate, members = parts(path)
        distances = np.load(io.BytesIO(members["arrays/distances.npy"]))
        distances[0, 1] = distances[1, 0] = 100.0
        certificate["domain"]["fingerprint"] = Matrix(distances, "unit").fingerprint
        forge(path, certificate, {**members, "arrays/distances.npy": files.npy(distances)})
        with pytest.raises(FileFormatError, match="triangle inequality"):
            pm.load(path)

    @pytest.mark.parametrize(
        "change",
        [
            {"bits": 61},
            {"epsilon": -1.0},
            {"epsilon": "much"},
            {"outputs": 4},
            {"outputs": "three"},
            {"domain": None},
            {"domain": {"kind": "taxicab", "records": 6}},
            {
                "audit": {
                    "holds": False,
                    "epsilon": 1,
                    "worst": [0, 1, 0],
                    "distance": 1,
                    "pairs": 1,
                }
            },
            {"audit": {"holds": True}},
            {"stages": [1, 2]},
            {"details": None},
            {"lower_bound": "low"},
            {"lower_bound": 1e9},
            {
                "audit": {
                    "holds": True,
                    "epsilon": 0.1,
                    "worst": [0, 1, 0],
                    "distance": 1,
                    "pairs": 15,
                }
            },
            {"loss": 1e9},
            {"loss": None},
        ],
    )
    def test_certificates(self, saved, change):
        certificate, members = parts(saved)
        forge(saved, {**certificate, **change}, members)
        with pytest.raises(FileFormatError):
            pm.load(saved)

    @pytest.mark.parametrize("field", ["epsilon", "loss", "method", "domain", "bits", "stages"])
    def test_missing_fields(self, saved, field):
        certificate, members = parts(saved)
        certificate.pop(field)
        forge(saved, certificate, members)
        with pytest.raises(FileFormatError, match=field):
            pm.load(saved)


@pytest.mark.parametrize("epsilon", [True, "5", float("nan"), float("inf"), 0.0, -1.0])
def test_what_is_expected_is_a_positive_number(epsilon):
    """A text or a truth would be compared with the file's epsilon much later, or pass for 1."""
    with pytest.raises(pm.errors.ProblemError, match="epsilon is"):
        pm.Expected(epsilon=epsilon)
