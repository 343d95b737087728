"""What operators did: written in the transaction that did it, read by operators, never changed."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from panda_mdp.protocol.messages.service import ActionInfo
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.schema import actions, when


def record_action(
    connection: Connection, token: str, action: str, target: str = "", detail: str = ""
) -> None:
    """Note an act of the operator with this admin token; no secret belongs into `detail`."""
    connection.execute(
        insert(actions).values(
            at=now_ms(), token=token, action=action, target=target, detail=detail
        )
    )


def latest_actions(connection: Connection, before: int | None, limit: int) -> list[ActionInfo]:
    """Acts, the latest first; those before one."""
    wanted = select(actions).order_by(actions.c.seq.desc()).limit(limit)
    if before is not None:
        wanted = wanted.where(actions.c.seq < before)
    return [
        ActionInfo(
            seq=row.seq,
            at=when(row.at),
            by=row.token,
            action=row.action,
            target=row.target,
            detail=row.detail,
        )
        for row in connection.execute(wanted)
    ]
