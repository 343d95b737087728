"""The log: what was signed for good, in the order of signing, with a signed head at each length."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from panda_mdp.protocol.messages import merkle
from panda_mdp.protocol.messages.catalogue import TableInfo
from panda_mdp.protocol.messages.log import Log, LogEntries, LogHead, LogProof
from panda_mdp.protocol.messages.signing import (
    SigningKey,
    head_bytes,
    round_entry,
    statement_bytes,
    table_entry,
)
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.schema import (
    deployments,
    heads,
    log,
    rounds,
    statements,
    tables,
)


def append(connection: Connection, key: SigningKey, entry: bytes) -> None:
    """Write an entry down, unless it is there, and sign the head that has it."""
    leaf = merkle.leaf_hash(entry)
    if connection.execute(select(log.c.number).where(log.c.leaf == leaf.hex())).first():
        return
    leaves = [*_leaves(connection), leaf]
    at = now_ms()
    connection.execute(
        insert(log).values(number=len(leaves) - 1, entry=entry.decode(), leaf=leaf.hex(), at=at)
    )
    root = merkle.root_of(leaves).hex()
    signature = key.sign(head_bytes(len(leaves), root, at))
    connection.execute(
        insert(heads).values(size=len(leaves), root=root, at=at, signature=signature)
    )


def complete(connection: Connection, key: SigningKey) -> None:
    """Write down what an earlier layout signed without a log; sign the head with this key."""
    made = [
        (int(row.created), table_entry(TableInfo.model_validate_json(row.info)))
        for row in connection.execute(select(tables.c.info, tables.c.created))
    ]
    made += [
        (int(row.created), statement_bytes(row.name, row.text))
        for row in connection.execute(
            select(statements.c.name, statements.c.text, statements.c.created)
        )
    ]
    open_now = select(deployments.c.name, rounds.c.number, rounds.c.opened).where(
        rounds.c.deployment == deployments.c.id, rounds.c.state == "open"
    )
    made += [
        (int(row.opened), round_entry(row.name, row.number)) for row in connection.execute(open_now)
    ]
    for _, entry in sorted(made):
        append(connection, key, entry)
    head = _head(connection)
    if head is not None:
        signed = head_bytes(head.size, head.root, head.at)
        if not key.signed(signed, head.signature):
            connection.execute(
                update(heads).where(heads.c.size == head.size).values(signature=key.sign(signed))
            )


def whole_log(connection: Connection) -> Log:
    """The latest head, and all leaves."""
    head = _head(connection)
    if head is None:
        raise Failure("not_found", "nothing is published yet", "publish a table first")
    shown = LogHead(size=head.size, root=head.root, at=head.at, signature=head.signature)
    return Log(head=shown, leaves=[leaf.hex() for leaf in _leaves(connection, head.size)])


def entries(connection: Connection, first: int, limit: int) -> LogEntries:
    """Some entries."""
    rows = connection.execute(
        select(log.c.entry).where(log.c.number >= first).order_by(log.c.number).limit(limit)
    ).scalars()
    return LogEntries(first=first, entries=list(rows))


def proof(connection: Connection, first: int, size: int, inclusion: bool) -> LogProof:
    """A proof about the first `size` entries: that one is there, or that fewer are a beginning."""
    leaves = _leaves(connection, size)
    if len(leaves) < size or not (0 <= first < size if inclusion else 1 <= first <= size):
        raise Failure("invalid", "the log has no such entries", "GET /v1/log says how many")
    made = merkle.inclusion(leaves, first) if inclusion else merkle.consistency(leaves, first)
    return LogProof(first=first, size=size, proof=[part.hex() for part in made])


def _head(connection: Connection) -> Row[Any] | None:
    return connection.execute(select(heads).order_by(heads.c.size.desc()).limit(1)).first()


def _leaves(connection: Connection, size: int | None = None) -> list[bytes]:
    wanted = select(log.c.leaf).order_by(log.c.number)
    if size is not None:
        wanted = wanted.where(log.c.number < size)
    return [bytes.fromhex(leaf) for leaf in connection.execute(wanted).scalars()]
