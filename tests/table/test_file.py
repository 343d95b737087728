"""Files: what is written is read back exactly, and nothing else is accepted."""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
from dataclasses import replace
from pathlib import Path

import forging
import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain
from second_checker import checker

import panda_mdp as pm
from panda_mdp.base.atomic import write_whole
from panda_mdp.errors import FileFormatError, NotForReleaseError, PrivacyError
from panda_mdp.plot.html import map_data
from panda_mdp.table import container
from panda_mdp.table.decode import examine


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


class TestRoundTrip:
    @pytest.mark.parametrize("kind", KINDS)
    def test_everything_comes_back(self, tmp_path, kind):
        before = small_mechanism(kind, bound=0.25, stages=(("solve", 1.5), ("audit", 0.5)))
        path = before.save(tmp_path / "table.pmdp")
        assert path == tmp_path / "table.pmdp"
        after = pm.load(path)
        assert after.identity == before.identity
        assert np.array_equal(after.weights, before.weights)
        assert np.array_equal(after.problem.loss, before.problem.loss)
        assert np.array_equal(after.problem.prior, before.problem.prior)
        assert after.loss == before.loss
        assert after.gap == before.gap
        assert (after.method, after.lower_bound) == (before.method, before.lower_bound)
        assert after.stages == before.stages
        assert after.audit == before.audit
        assert after.guarantee == before.guarantee == pm.Guarantee(1.5, 0, before.audit.unit)
        assert after.problem.loss_unit == "minutes"
        assert after.problem.prior_source == "a survey"
        nodes, expected = after.problem.domain.nodes, before.problem.domain.nodes
        assert (nodes is None) == (expected is None)
        if nodes is not None:
            np.testing.assert_array_equal(nodes, expected)
        assert after.sample(2) in (4, 1, 0)
        assert pm.audit(after).holds

    @pytest.mark.parametrize("name", [*forging.PLAIN, *forging.OTHERS])
    def test_every_kind_keeps_the_protocol(self, name, tmp_path):
        """Whatever was saved, `load` gives what has a guarantee, rows, draws and a file again."""
        path = forging.Sample(name, "", forging.honest(name)).write(tmp_path)
        table = pm.load(path)
        assert table.guarantee.epsilon == table.problem.epsilon
        assert table.row(3).sum() == pytest.approx(1, abs=1e-12)
        assert len(table.row(3)) == table.problem.outputs_count
        drawn = table.sample([3, 4, 5])
        assert len(drawn) == 3
        again = pm.load(table.save(tmp_path / "again.pmdp"))
        assert type(again) is type(table)
        assert again.identity == table.identity
        assert np.array_equal(again.row(3), table.row(3))

    def test_nothing_is_loaded_without_verifying(self, saved):
        with pytest.raises(TypeError):
            pm.load(saved, verify=False)
        looked = pm.inspect(saved)
        assert "NOT VERIFIED" in repr(looked)
        assert looked.header["epsilon"] == 1.5
        assert not looked.phased
        for way in ("sample", "save", "weights", "simulate"):
            assert not hasattr(looked, way)

    @pytest.mark.parametrize(
        ("expected", "reason"),
        [
            (pm.Expected(epsilon=1.0), "at most 1.0 was expected"),
            (pm.Expected(unit="km"), "a table per km was expected"),
            (pm.Expected(identity="0" * 16), "0000000000000000... was expected"),
        ],
    )
    def test_what_was_not_expected_is_refused(self, saved, expected, reason):
        with pytest.raises(PrivacyError, match=reason):
            pm.load(saved, expected=expected)
        own = pm.load(saved)
        domain = own.problem.domain
        exactly = pm.Expected(own.epsilon, domain.unit, domain.fingerprint[:20])
        assert pm.load(saved, expected=exactly).identity == own.identity

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
        for table in (before, pm.compact(before)):
            after = pm.load(table.save(tmp_path / "x.pmdp"))
            reports = after.problem.reports
            assert (reports.kind, reports.names) == (outputs.kind, outputs.names)
            np.testing.assert_array_equal(reports.lat, outputs.lat)
            np.testing.assert_array_equal(reports.lon, outputs.lon)
            assert after.sample(0) in (outputs.names or ())
            assert after.problem.domain.labels == ("home", "work", "shop")

    def test_saving_again_gives_the_same_sections(self, saved, tmp_path):
        again = pm.load(saved).save(tmp_path / "again.pmdp")
        first, second = (forging.File.of(path.read_bytes()) for path in (saved, again))
        for file in (first, second):
            file.header["notes"].pop("date")
        assert first.header == second.header
        assert first.arrays.keys() == second.arrays.keys()
        assert all(np.array_equal(first.arrays[name], second.arrays[name]) for name in first.arrays)

    def test_details_that_json_cannot_hold_stay_out(self, tmp_path):
        details = {
            "rounds": np.int64(3),
            "table": np.array([[1.0, 2.0]]),
            "nested": {"a": (1, np.float64(0.5))},
            "function": print,
            "not a number": float("nan"),
        }
        path = small_mechanism(details=details).save(tmp_path / "x.pmdp")
        loaded = dict(pm.load(path).details)
        assert loaded == {"rounds": 3, "table": [[1.0, 2.0]], "nested": {"a": [1, 0.5]}}

    def test_infinite_gap(self, tmp_path):
        assert pm.load(small_mechanism(bound=0.0).save(tmp_path / "x.pmdp")).gap == np.inf

    def test_a_file_holds_inputs_and_integers_and_nothing_else(self, tmp_path):
        mechanism = small_mechanism("haversine", bound=0.5)
        file = forging.File.of(mechanism.save(tmp_path / "x.pmdp").read_bytes())
        assert set(file.arrays) == {"lat", "lon", "nodes", "outputs", "prior", "weights"}
        notes = file.header.pop("notes")
        assert file.header == {
            "format": "panda-mdp table",
            "version": 1,
            "features": [],
            "epsilon": 1.5,
            "domain": {"kind": "haversine", "unit": "km", "labels": None},
            "outputs": {"kind": "records", "labels": None},
            "loss": {"power": 1.0, "unit": "minutes", "digest": None},
        }
        assert notes["library"] == pm.__version__ and notes["date"].endswith("+00:00")
        assert notes["lower_bound"] == 0.5

    def test_a_pickle_is_audited_on_the_way_in(self, saved):
        table = pm.load(saved)
        copy = pickle.loads(pickle.dumps(table))
        assert copy.identity == table.identity and copy.audit == table.audit


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
        path = small_mechanism().save(tmp_path / "new" / "x.pmdp")
        assert path.exists()
        with pytest.raises(IsADirectoryError):
            small_mechanism().save(tmp_path / "new")
        assert [entry.name for entry in tmp_path.rglob("*")] == ["new", "x.pmdp"]


class TestDamage:
    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no table here.*x\.pmdp"):
            pm.load(tmp_path / "x.pmdp")

    @pytest.mark.parametrize("name", ["euclidean", "compact haversine"])
    def test_every_flipped_byte_is_noticed(self, name):
        data = forging.honest(name)
        for position in range(len(data)):
            changed = bytearray(data)
            changed[position] ^= 1 << (position % 8)
            with pytest.raises(FileFormatError):
                container.unpack(bytes(changed))

    def test_every_truncation_is_noticed(self, saved):
        data = saved.read_bytes()
        for length in range(0, len(data), 7):
            saved.write_bytes(data[:length])
            with pytest.raises(FileFormatError, match=r"table\.pmdp: "):
                pm.load(saved)

    def test_under_a_fitting_sum_the_inner_checks_stand(self, saved):
        """Where the sum was made to fit, a change is refused or is in the notes alone."""
        original = pm.load(saved)
        body = saved.read_bytes()[:-32]
        refused = 0
        for position in range(len(body)):
            changed = bytearray(body)
            changed[position] ^= (0x01, 0x80, 0xFF)[position % 3]
            saved.write_bytes(bytes(changed) + hashlib.sha256(changed).digest())
            try:
                loaded = pm.load(saved)
            except FileFormatError:
                refused += 1
            else:
                assert loaded.audit.holds
                assert loaded.identity != original.identity or loaded.loss == original.loss
        assert refused > 0.6 * len(body)

    @pytest.mark.parametrize(
        ("content", "reason"),
        [(b"", "empty"), (b"lat,lon\n1,2\n", "starts differently"), (b"PK\x03\x04", "starts")],
    )
    def test_foreign_contents(self, tmp_path, content, reason):
        path = tmp_path / "x.pmdp"
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=reason) as caught:
            pm.load(path)
        assert "x.pmdp" in str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, OSError)

    def test_folder(self, tmp_path):
        with pytest.raises(OSError, match="directory"):
            pm.load(tmp_path)

    def test_a_table_that_is_not_private_keeps_its_audit_for_study(self, tmp_path):
        data = forging.changed("euclidean", forging.moved(0.9))
        examined = examine(data)
        assert isinstance(examined, pm.NoGuarantee)
        assert not examined.audit.holds
        with pytest.raises(FileFormatError, match=r"not 1\.5-mDP"):
            pm.load(forging.Sample("", "", data).write(tmp_path))

    @pytest.mark.parametrize(
        ("name", "change", "reason"),
        [
            ("euclidean", forging.state("version", 7), "version '7'; this library reads version 1"),
            ("euclidean", forging.state("epsilon", 1.4), "not 1.4-mDP"),
            ("euclidean", forging.array("outputs", np.array([7, 2, 9, 9])), "named 2 times"),
            ("euclidean", forging.put("loss", (0, 0), -1.0), "not negative"),
            ("euclidean", forging.array("centres", np.arange(3)), "do not belong"),
            ("euclidean", forging.array("outputs", None), "outputs is missing"),
            ("euclidean", forging.state("audit", {"holds": True}), "and nothing else"),
            ("matrix", forging.put("distances", ([0, 5], [5, 0]), 1e3), "triangle inequality"),
            ("compact euclidean", forging.byte(15, 200), "a precision is out of range"),
            ("floor distance", forging.put("values", 5, 1), "do not sum"),
            ("panda common", forging.state("selection.kind", "net"), "knows ball and coins"),
            ("mesh", forging.put("mesh_area", (slice(None),), lambda v: 1.5 * v), "cover"),
        ],
    )
    def test_a_refusal_says_what_is_wrong(self, name, change, reason, tmp_path):
        path = forging.Sample("", "", forging.changed(name, change)).write(tmp_path)
        with pytest.raises(FileFormatError, match=reason):
            pm.load(path)


@pytest.mark.parametrize("epsilon", [True, "5", float("nan"), float("inf"), 0.0, -1.0])
def test_what_is_expected_is_a_positive_number(epsilon):
    """A text or a truth would be compared with the file's epsilon much later, or pass for 1."""
    with pytest.raises(pm.errors.ProblemError, match="epsilon is"):
        pm.Expected(epsilon=epsilon)


@pytest.mark.parametrize(("deep", "code"), [(97, 0), (98, 2)])
def test_a_header_is_a_hundred_deep_at_most(deep, code, tmp_path):
    value = 0
    for _ in range(deep):
        value = [value]
    path = tmp_path / "table.pmdp"
    path.write_bytes(forging.changed("euclidean", forging.state("notes.details", {"a": value})))
    assert checker().main(str(path)) == code
    if code:
        with pytest.raises(FileFormatError, match="canonical form"):
            pm.load(path)
    else:
        assert pm.load(path).details["a"] == value


def test_degrees_that_are_no_multiples_come_back_to_the_last_bit(tmp_path):
    lat, lon = 41.9 + 1e-10 * np.arange(1, 4) ** 3, np.array([12.5, 12.6, 12.7000000001])
    domain = pm.Domain.from_points(lat, lon)
    path = pm.exponential(displacement_problem(domain, [0, 1], 1.0)).save(tmp_path / "t.pmdp")
    found = pm.load(path).problem.domain
    assert np.array_equal(found.lat, domain.lat) and np.array_equal(found.lon, domain.lon)


def test_sums_of_differences_that_leave_64_bits_are_refused():
    steps = np.full(3, 1 << 62)
    for count in (1, 3):
        data = container.deflate(container.pack_planes(steps[:count]))
        section = container.Section("integers", (count,), data)
        if count == 1:
            assert section.values().tolist() == [1 << 62]
        else:
            with pytest.raises(FileFormatError, match="beyond 64 bits"):
                section.values()


@pytest.mark.parametrize("more", [b"", b"x"])
def test_nothing_lies_behind_the_last_section(saved, more):
    body = saved.read_bytes()[:-32] + more
    saved.write_bytes(body + hashlib.sha256(body).digest())
    if more:
        with pytest.raises(FileFormatError, match="not as long as the header says"):
            pm.load(saved)
    else:
        assert pm.load(saved).audit.holds


def test_all_sections_together_are_limited_before_any_is_unpacked():
    parts = {name: container.Section("float64", (20_000_000,), b"") for name in ("lat", "lon")}
    parts["prior"] = container.Section("float64", (1,), b"")
    with pytest.raises(FileFormatError, match="would unpack to 320,000,008"):
        container.unpack(container.pack({}, parts))


def test_losses_that_follow_from_distances_count_as_unpacked(tmp_path):
    """8,000 places as records and outputs: 512 MB of losses of a file of a few kilobytes."""
    file = forging.File.of(forging.honest("floor distance"))
    size, none = 8_000, np.empty(0, np.int64)
    lat = 41 + 1e-4 * np.arange(size)
    file.arrays |= {"lat": lat, "lon": np.full(size, 12.5), "outputs": np.arange(size)}
    file.arrays |= {"floor": np.zeros(size, np.int64), "starts": np.zeros(size + 1, np.int64)}
    file.arrays |= {"columns": none, "values": none}
    (tmp_path / "large.pmdp").write_bytes(file.bytes())
    with pytest.raises(FileFormatError, match="would unpack to 512,000,000"):
        pm.load(tmp_path / "large.pmdp")


def test_what_a_file_states_of_its_loss_is_there_where_nobody_can_compute_it(tmp_path):
    mechanism = small_mechanism()
    others = replace(mechanism.problem, loss=1 + mechanism.problem.loss**2)
    given = pm.exponential(others)
    for table, losses, stated in (
        (mechanism, True, None),
        (mechanism, False, None),
        (given, True, None),
        (given, False, given.loss),
    ):
        path = table.save(tmp_path / "t.pmdp", losses=losses)
        assert pm.inspect(path).header["notes"]["loss"] == stated


@pytest.mark.parametrize(("share", "kept"), [(1 - 1e-3, True), (1 + 1e-6, False)])
def test_a_stated_bound_is_kept_up_to_the_loss(share, kept, tmp_path):
    path = tmp_path / "table.pmdp"
    path.write_bytes(forging.honest("euclidean"))
    loss = pm.load(path).loss * share
    change = forging.state("notes.lower_bound", loss)
    path.write_bytes(forging.changed("euclidean", change))
    assert pm.load(path).lower_bound == (loss if kept else None)


def test_every_printer_marks_what_a_file_says_of_itself(tmp_path):
    """Method and source of the prior are free text: equal to what was saved, printed as such."""
    made = small_mechanism("haversine").with_facts(method="proved best")
    table = pm.load(made.save(tmp_path / "t.pmdp"))
    assert (table.method, table.problem.prior_source) == ("proved best", "a survey")
    shown = (
        *(repr(table), repr(table.simulate(1)), repr(pm.explain(table))),
        *(repr(pm.attack(table)), map_data(None, table)["records"]["tables"][0]["method"]),
    )
    assert all("proved best (unverified)" in text for text in shown)
    for text in (pm.explain(table).text, repr(pm.attack(table))):
        assert "a survey (unverified)" in text
    # The mark is no part of the text: it is not saved, and a table made here has none.
    again = pm.load(table.save(tmp_path / "again.pmdp"))
    assert again.method == "proved best"
    assert "unverified" not in repr(made)


def test_a_folder_is_no_name_for_a_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="give the name of a file"):
        write_whole(tmp_path, b"")
