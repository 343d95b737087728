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
from panda_mdp.protocol.messages.deployments import BallRows
from panda_mdp.protocol.messages.signing import rows_digest, signed_bytes
from panda_mdp.protocol.messages.types import GuaranteeInfo
from panda_mdp.protocol.server.solving import BallTable

CITY = Path(__file__).parents[2] / "vectors" / "city.pmdp"
EPSILON_1, DELTA = 12.0, 1e-2


TABLE = BallTable(CITY.read_bytes(), EPSILON_1, DELTA, None)
CENTRES = TABLE.facts()["centres"]


def cut(place: int) -> tuple[BallRows, str]:
    """The ball around one of the centres."""
    centre = CENTRES[place]
    made = TABLE.ball(centre)
    digest = made.pop("digest")
    shared = {"version": 1, "centre": centre, "signature": "AAAA", "key_id": "0" * 16}
    guarantee = GuaranteeInfo(epsilon=1.0, unit="km")
    return BallRows(**shared, guarantee=guarantee, **made), digest


@pytest.mark.parametrize("place", [0, 100, 9])
def test_the_rows_are_those_of_the_table_and_signed_as_integers(place: int) -> None:
    ball, digest = cut(place)
    table = pm.load(CITY)
    records, weights = ball.unpack()
    assert records == sorted(ball.records) and ball.outputs == table.problem.outputs.tolist()
    np.testing.assert_array_equal(weights, np.asarray(table.weights)[records])
    signed = signed_bytes(
        "rows", "main", 1, rows_digest("records", records, ball.outputs, weights.tolist())
    )
    assert signed == signed_bytes("rows", "main", 1, digest)


def test_it_is_smaller_than_the_table_and_than_digits() -> None:
    ball, _ = cut(9)
    compact = len(ball.model_dump_json())
    digits = sum(len(str(weight)) + 3 for row in ball.unpack()[1].tolist() for weight in row)
    assert compact < digits / 3
    share = len(ball.records) / pm.load(CITY).problem.domain.size
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
        {"floors": ["9" * 19, *ball.floors[1:]]},
        {"records": ball.records[:-1]},
    ):
        with pytest.raises(ProtocolError):
            ball.model_copy(update=changes).unpack()


def test_a_client_reports_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_fsync(monkeypatch)
    server = Standin(CITY, pm.load(CITY))
    allowed = Allowance(
        epsilon=20.0, period_epsilon=100.0, delta=0.1, period_delta=0.5, snap_km=5.0
    )
    with Client(URL, TOKEN, tmp_path, allowed, network=server.network) as client:
        plan = client.plan("ball")
        answer = client.report(plan, plan.record(5))
    assert answer.output in server.table.problem.outputs
    assert len(server.reports) == 1
