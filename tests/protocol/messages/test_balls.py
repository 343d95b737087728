"""A ball cut from a compact table: the same integers as in digits, in fewer bytes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from protocol_standin import TOKEN, URL, Standin, cut_table, without_fsync

import panda_mdp as pm
from panda_mdp.errors import ProtocolError, SignatureError
from panda_mdp.privacy.quantise import SeededBits
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.messages.deployments import BallRows, BallTerms
from panda_mdp.protocol.messages.log import leaf_hash, levels_of, root_from, root_of
from panda_mdp.table.blocks import encode_block

CITY = Path(__file__).parents[2] / "vectors" / "city.pmdp"
BALLS = CITY.read_bytes(), BallTerms(epsilon_1=12.0, edge=0.5, radius=0.5, snap=1.0)
FACTS, TILES = cut_table(*BALLS)
LAW = BALLS[1].law(pm.load(CITY).problem.domain, 1.0)


def cut(record: int) -> tuple[tuple[int, int], BallRows]:
    """The ball around a centre that a record draws."""
    centre = LAW.draw(record, SeededBits(record))
    return centre, TILES.ball(1, centre)


def one_row(ball: BallRows) -> str:
    """A block of a single row."""
    floors = np.array([int(floor) for floor in ball.floors])
    row = floors.copy()
    row[0] += (1 << 62) - floors.sum()
    return base64.b64encode(encode_block(row[None], np.zeros(1, np.int64), floors)).decode()


@pytest.mark.parametrize("record", [0, 100, 9])
def test_the_rows_are_those_of_the_table_and_proved_to_be(record: int) -> None:
    centre, ball = cut(record)
    table, root, count = pm.load(CITY), FACTS["rows"], FACTS["tiles"]
    domain = table.problem.domain
    number = {place: k for k, place in enumerate(zip(domain.lat, domain.lon, strict=True))}
    records = [number[place] for place in zip(ball.lat, ball.lon, strict=True)]
    assert {*LAW.ball(centre).tolist()} <= {*records} and len({*records}) == len(records)
    weights = ball.unpack(root, count)
    np.testing.assert_array_equal(weights, np.asarray(table.weights)[records])
    beyond = count + 1
    forged: dict[str, Any] = {
        "short proof": {"proof": ball.proof[44:]},
        "long proof": {"proof": "AAAA" + ball.proof},
        "a place that is moved": {"lat": [ball.lat[0] + 1e-12, *ball.lat[1:]]},
        "places that change their rows": {"lat": ball.lat[::-1], "lon": ball.lon[::-1]},
        "a tile beyond the table": {
            "tiles": [*ball.tiles, beyond],
            "sizes": [*ball.sizes, 1],
            "lat": [*ball.lat, ball.lat[0]],
            "lon": [*ball.lon, ball.lon[0] + 1e-3],
            "blocks": [*ball.blocks, one_row(ball)],
        },
        "another tile": {"tiles": [(tile + 1) % count for tile in ball.tiles]},
    }
    for changes in forged.values():
        with pytest.raises(SignatureError, match="not those of the table"):
            ball.model_copy(update=changes).unpack(root, count)
    with pytest.raises(SignatureError, match="not those of the table"):
        ball.unpack("0" * 64, count)


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
    rows = ball.unpack(FACTS["rows"], FACTS["tiles"]).tolist()
    assert compact < sum(len(str(weight)) + 3 for row in rows for weight in row) / 3
    share = len(ball.lat) / pm.load(CITY).problem.domain.size
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
        {"sizes": [*ball.sizes[:-1], ball.sizes[-1] - 1]},
        {"lat": ball.lat[:-1], "lon": ball.lon[:-1]},
        {"tiles": ball.tiles[:-1]},
        {"tiles": [FACTS["tiles"], *ball.tiles[1:]]},
    ):
        with pytest.raises(ProtocolError):
            ball.model_copy(update=changes).unpack(FACTS["rows"], FACTS["tiles"])


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
