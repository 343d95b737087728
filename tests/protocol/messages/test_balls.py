"""A ball cut from a compact table: the same integers as in digits, in fewer bytes."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from protocol_standin import TOKEN, URL, Standin, without_fsync

import panda_mdp as pm
from panda_mdp.errors import ProtocolError
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.messages.balls import CompactBallRows, plain_rows, unpack_rows
from panda_mdp.protocol.messages.deployments import BallRows
from panda_mdp.protocol.messages.signing import rows_bytes, rows_bytes_of
from panda_mdp.protocol.messages.types import GuaranteeInfo
from panda_mdp.protocol.server.solving import ball_facts, ball_rows, compact_ball

CITY = Path(__file__).parents[2] / "vectors" / "city.pmdc"
EPSILON_1, DELTA = 12.0, 1e-2


CENTRES = ball_facts(CITY.read_bytes(), EPSILON_1, DELTA, None)["centres"]


def cut(place: int) -> tuple[CompactBallRows, str]:
    """The ball around one of the centres."""
    centre = CENTRES[place]
    made = compact_ball(CITY.read_bytes(), EPSILON_1, DELTA, None, centre)
    digest = made.pop("digest")
    shared = {"version": 1, "centre": centre, "signature": "AAAA", "key_id": "0" * 16}
    guarantee = GuaranteeInfo(epsilon=1.0, unit="km")
    return CompactBallRows(**shared, guarantee=guarantee, **made), digest


@pytest.mark.parametrize("place", [0, 100, 9])
def test_the_same_rows_signed_by_the_same_bytes(place: int) -> None:
    asked = (EPSILON_1, DELTA, None, CENTRES[place])
    records, outputs, weights = ball_rows(CITY.read_bytes(), *asked)
    ball, digest = cut(place)
    found = plain_rows(ball)
    assert sorted(records) == found.records and outputs == found.outputs
    by_record = dict(zip(records, weights, strict=True))
    assert found.weights == [by_record[record] for record in found.records]
    signed = rows_bytes("main", 1, "records", found.records, found.outputs, found.weights)
    assert signed == rows_bytes_of("main", 1, digest)


def test_it_is_smaller_than_the_table_and_than_digits() -> None:
    ball, _ = cut(9)
    compact = len(ball.model_dump_json())
    digits = len(plain_rows(ball).model_dump_json())
    assert compact < digits / 3
    share = len(ball.records) / pm.load_compact(CITY).domain.size
    assert share < 1 and compact < len(CITY.read_bytes())


def test_what_is_damaged_is_refused() -> None:
    ball, _ = cut(9)
    data = bytearray(base64.b64decode(ball.blocks[0]))
    data[len(data) // 2] ^= 1
    broken = base64.b64encode(bytes(data)).decode()
    for changes in (
        {"blocks": [broken, *ball.blocks[1:]]},
        {"blocks": []},
        {"blocks": ["!", *ball.blocks[1:]]},
        {"floors": ball.floors[:-1]},
        {"records": ball.records[:-1]},
    ):
        with pytest.raises(ProtocolError):
            unpack_rows(ball.model_copy(update=changes))


def test_a_client_reports_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_fsync(monkeypatch)
    server = Standin(CITY, pm.load_compact(CITY), compact_balls=True)
    allowed = Allowance(
        epsilon=20.0, period_epsilon=100.0, delta=0.1, period_delta=0.5, snap_km=5.0
    )
    with Client(URL, TOKEN, tmp_path, allowed, transport=server.transport) as client:
        plan = client.plan("ball")
        answer = client.report(plan, plan.record(5))
    assert answer.output in server.table.outputs
    assert len(server.reports) == 1


def test_rows_come_in_the_order_of_the_records() -> None:
    table = pm.load_compact(CITY)
    chosen = np.array([200, 3, 77, 3, 0])
    rows, floors = table.rows(chosen)
    everything = table.weights()
    assert isinstance(everything, np.ndarray)
    np.testing.assert_array_equal(rows.weights, everything[chosen])
    assert (rows.weights >= floors).all()
    assert BallRows.model_fields.keys() - CompactBallRows.model_fields.keys() == {"weights"}
