"""Rows of a ball as they lie in a compact table: floors, and blocks of rows that follow each other.

The same integers as `BallRows.weights`, in a tenth of the bytes or less. What is signed is the
rows, whichever way they travel.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import FileFormatError, ProtocolError
from panda_mdp.protocol.messages.deployments import BallRows
from panda_mdp.protocol.messages.types import (
    MOST_OUTPUTS,
    MOST_RECORDS,
    Base64,
    GuaranteeInfo,
    Hex,
    Index,
    Indices,
    Message,
    Outputs,
    Version,
    Weight,
)
from panda_mdp.space.domain import Domain
from panda_mdp.table.pmdc.codec import (
    BLOCK_ROWS,
    Rows,
    decode_block,
    encode_block,
    spanning_order,
)


class CompactBallRows(Message):
    """The answer to a `BallRequest` with `compact`; `signing.rows_bytes` of the rows is signed."""

    version: Version
    centre: Index
    records: Indices
    """In the order of the rows in `blocks`; ascending they are the ball."""
    outputs: Outputs
    floors: Annotated[list[Weight], Field(min_length=1, max_length=MOST_OUTPUTS)]
    blocks: Annotated[list[str], Field(max_length=MOST_RECORDS // BLOCK_ROWS + 1)]
    """Base64 of blocks of 256 rows (docs/format.md)."""
    guarantee: GuaranteeInfo
    signature: Base64
    key_id: Hex


any_ball: TypeAdapter[CompactBallRows | BallRows] = TypeAdapter(CompactBallRows | BallRows)


def plain_rows(ball: CompactBallRows | BallRows) -> BallRows:
    """A ball with its weights in decimal digits, however it came."""
    if isinstance(ball, BallRows):
        return ball
    records, weights = unpack_rows(ball)
    return BallRows(
        version=ball.version,
        centre=ball.centre,
        records=records,
        outputs=ball.outputs,
        weights=[[str(weight) for weight in row] for row in weights.tolist()],
        guarantee=ball.guarantee,
        signature=ball.signature,
        key_id=ball.key_id,
    )


def pack_rows(
    domain: Domain, records: IntArray, rows: Rows, floors: IntArray
) -> tuple[list[int], list[str]]:
    """Records in the order of their rows, and the rows in blocks."""
    order, blocks = [], []
    for start in range(0, len(records), BLOCK_ROWS):
        members = records[start : start + BLOCK_ROWS]
        along, parent = spanning_order(domain.distances(members, members))
        block = encode_block(rows.take(start + along), parent, floors)
        blocks.append(base64.b64encode(block).decode("ascii"))
        order += members[along].tolist()
    return order, blocks


def unpack_rows(ball: CompactBallRows) -> tuple[list[int], IntArray]:
    """The ball's records, ascending, and their weights."""
    floors = np.array([int(floor) for floor in ball.floors], dtype=np.int64)
    count = len(ball.records)
    if len(floors) != len(ball.outputs) or len(ball.blocks) != -(-count // BLOCK_ROWS):
        msg = "the server's rows have other numbers of outputs or blocks than they say"
        raise ProtocolError(msg)
    parts = []
    try:
        for number, block in enumerate(ball.blocks):
            size = min(BLOCK_ROWS, count - number * BLOCK_ROWS)
            data = base64.b64decode(block, validate=True)
            parts.append(decode_block(data, size, floors).weights)
    except (FileFormatError, binascii.Error, ValueError) as error:
        msg = f"the server's rows cannot be read ({type(error).__name__}); ask again"
        raise ProtocolError(msg) from None
    order = np.argsort(np.array(ball.records, dtype=np.int64), kind="stable")
    weights = np.concatenate(parts) if parts else np.empty((0, len(floors)), dtype=np.int64)
    return [ball.records[place] for place in order.tolist()], weights[order]
