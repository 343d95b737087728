"""Frames through a table of PAnDA: Phase I first, shared by the rows of a person and place."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.frames.drawing import OUTSIDE, DerivedBits, Sampler
from panda_mdp.panda.selection import PandaOptions

pd = pytest.importorskip("pandas")
KEY = pm.DrawKey(b"k" * 32)


@pytest.fixture(scope="module", params=["balls", "candidates"])
def table(request, domain: pm.Domain) -> pm.PandaTable:
    outputs = [0, 3, 6, 9]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 1.0)
    selection = pm.BallAnchors(0.5)
    if request.param == "candidates":
        selection = pm.BernoulliAnchors("exponential", 0.9, 0.0, radius=20.0, candidates=[0, 4, 8])
    return pm.PandaTable(selection.scheme(problem, 0.3, PandaOptions()))


def test_reports_have_the_law_of_both_phases(table: pm.PandaTable) -> None:
    people = 1_200
    frame = pd.DataFrame({"user": range(people), "place": 4})
    expected = people * table.matrix[4]
    spread = np.sqrt(expected * (1 - table.matrix[4]))
    for person, key in ((None, None), ("user", None), ("user", pm.DrawKey.fresh())):
        columns = pm.Columns(record="place", person=person)
        reported = pm.perturb(frame, table, columns, key=key)["reported_lat"]
        seen = [np.isclose(reported, lat).sum() for lat in (41.9, 41.93, 41.96, 41.99)]
        assert (np.abs(seen - expected) <= 5 * spread + 1).all()


def test_rows_of_a_person_and_place_share_phase_one(table: pm.PandaTable) -> None:
    sampler = pickle.loads(pickle.dumps(Sampler.of(table)))
    records = np.tile(np.arange(10), 40)
    records[7] = OUTSIDE
    group = np.repeat(np.arange(40), 10) // 2
    seeds = [bytes([k]) * 44 for k in range(20)]
    rows = sampler.selections(records, group, seeds)
    assert rows is not None
    assert rows[7] == OUTSIDE
    for g, x in {(g, x) for g, x in zip(group, records, strict=True) if x >= 0}:
        assert len(set(rows[(group == g) & (records == x)])) == 1
    assert len({tuple(rows[group == g]) for g in range(1, 20)}) > 1
    again = sampler.selections(records[20:], group[20:], seeds)
    assert np.array_equal(again, rows[20:])


def test_records_of_a_person_select_independently(domain: pm.Domain) -> None:
    """Candidate 4 serves records 3 and 5 unless its coin, 0.9 for everybody, falls the other way:
    for one of them and not for the other, of some people."""
    problem = pm.Problem(domain, [0, 9], pm.distance_loss(domain, [0, 9]), 1.0)
    selection = pm.BernoulliAnchors("exponential", 0.9, 0.0, radius=20.0, candidates=[0, 4, 8])
    sampler = Sampler.of(pm.PandaTable(selection.scheme(problem, 0.3, PandaOptions())))
    people = 200
    seeds = [k.to_bytes(44, "little") for k in range(people)]
    group, records = np.repeat(np.arange(people), 2), np.tile([3, 5], people)
    # Rows are numbered along the candidates.
    served = (sampler.selections(records, group, seeds) == 1).reshape(people, 2)
    assert 0.8 < served.mean() < 0.97
    assert (served[:, 0] != served[:, 1]).sum() > 10


def test_tables_that_differ_at_all_have_keys_of_their_own(mechanism: pm.Mechanism) -> None:
    problem = mechanism.problem
    weights = np.asarray(mechanism.weights).copy()
    weights[0, :2] += [1, -1]
    relabelled = pm.Problem(problem.domain, [9, 6, 3, 0], problem.loss, problem.epsilon)
    others = [
        pm.Mechanism(problem, weights, mechanism.method),
        pm.Mechanism(relabelled, mechanism.weights, mechanism.method),
    ]
    names = {Sampler.of(table).table for table in (mechanism, *others)}
    assert len(names) == 3
    words = {KEY.draw_key(name).tobytes() for name in names}
    assert len(words) == 3


def test_with_a_key_both_phases_repeat(table: pm.PandaTable) -> None:
    frame = pd.DataFrame({"user": np.repeat(np.arange(30), 2), "place": 4})
    summary = pm.FrameSummary()
    options = {"columns": pm.Columns(record="place", person="user"), "key": KEY}
    first = pm.perturb(frame, table, summary=summary, **options)
    assert (first["reported_lat"] == pm.perturb(frame, table, **options)["reported_lat"]).all()
    assert (first["reported_lat"].to_numpy().reshape(30, 2).std(axis=1) == 0).all()
    assert "once for each person, period and place" in str(summary)
    assert f"except with probability {table.delta:g}" in str(summary)


def test_derived_bits_differ_at_every_call() -> None:
    bits = DerivedBits(b"s" * 32)
    assert not set(bits.integers(50)) & set(bits.integers(50))
    assert list(DerivedBits(b"s" * 32).integers(9)) == list(DerivedBits(b"s" * 32).integers(9))
    assert "s" * 32 not in repr(bits)
