"""A ball cut from a compact table: the same integers as in digits, in fewer bytes."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from protocol_standin import TOKEN, URL, Standin, without_fsync

import panda_mdp as pm
from panda_mdp.errors import ProtocolError, SignatureError
from panda_mdp.privacy.quantise import SeededBits
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.messages.deployments import BallRows, BallTerms, row_leaves
from panda_mdp.protocol.messages.log import leaf_hash, levels_of, root_from, root_of
from panda_mdp.protocol.server.solving import ball_facts, ball_table, cut_ball

CITY = Path(__file__).parents[2] / "vectors" / "city.pmdp"
BALLS = CITY.read_bytes(), BallTerms(epsilon_1=12.0, edge=0.5, radius=1.2)
_, LAW, *_ = ball_table(*BALLS)


def cut(record: int) -> tuple[tuple[int, int], BallRows]:
    """The ball around a centre that a record draws."""
    centre = LAW.draw(record, SeededBits(record))
    return centre, BallRows(version=1, centre=centre, **cut_ball(*BALLS, centre))


@pytest.mark.parametrize("record", [0, 100, 9])
def test_the_rows_are_those_of_the_table_and_proved_to_be(record: int) -> None:
    centre, ball = cut(record)
    table, root = pm.load(CITY), ball_facts(*BALLS)["rows"]
    size = table.problem.domain.size
    records, weights = ball.unpack()
    assert records == sorted(ball.records) == LAW.ball(centre).tolist()
    np.testing.assert_array_equal(weights, np.asarray(table.weights)[records])
    ball.check(root, size, records, weights)
    leaves = row_leaves(range(size), np.asarray(table.weights))
    assert root_of(leaves).hex() == root == levels_of(leaves)[-1][0].hex()
    other = weights.copy()
    other[-1, :2] += [-1, 1]
    short = ball.model_copy(update={"proof": ball.proof[44:]})
    for said, rows, of in ((ball, other, size), (short, weights, size), (ball, weights, size - 9)):
        with pytest.raises(SignatureError, match="not those of the table"):
            said.check(root, of, records, rows)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 13])
def test_any_leaves_lead_to_the_root(count: int) -> None:
    leaves = [leaf_hash(bytes([k])) for k in range(count)]
    levels = levels_of(leaves)
    assert levels[-1] == [root_of(leaves)]
    for mask in range(1, 1 << min(count, 8)):
        known = {k: leaf for k, leaf in enumerate(leaves) if mask >> k & 1}
        asked: list[tuple[int, int]] = []

        def sibling(level: int, at: int, asked: list[tuple[int, int]] = asked) -> bytes:
            asked.append((level, at))
            return levels[level][at]

        if known:
            assert root_from(known, count, sibling) == root_of(leaves)
        # Nothing is asked for twice, nor what is known.
        assert len(set(asked)) == len(asked)
        assert not {at for level, at in asked if level == 0} & known.keys()


def test_it_is_smaller_than_the_table_and_than_digits() -> None:
    _, ball = cut(9)
    compact = sum(map(len, ball.blocks))
    digits = sum(len(str(weight)) + 3 for row in ball.unpack()[1].tolist() for weight in row)
    assert compact < digits / 3
    share = len(ball.records) / pm.load(CITY).problem.domain.size
    assert share < 1 and compact < len(CITY.read_bytes())


def test_what_is_damaged_is_refused() -> None:
    _, ball = cut(9)
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
