"""The log: what was signed for good, in the order of signing, with a signed head at each length;
and what operators did, written in the transaction that did it."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from panda_mdp.errors import FileFormatError, SignatureError
from panda_mdp.protocol.messages import log as tree
from panda_mdp.protocol.messages.log import MOST_WITNESSES, CoSigned, Log, LogEntries, LogHead
from panda_mdp.protocol.messages.signing import SigningKey, VerifyKey
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import found, latest
from panda_mdp.protocol.server.store.schema import ActionRow, EntryRow, WitnessRow, now_ms


def append(session: Session, key: SigningKey, entry: bytes) -> None:
    """Write an entry down, unless it is there, and sign the head that has it."""
    leaf = tree.leaf_hash(entry)
    if session.scalar(select(EntryRow).filter_by(leaf=leaf.hex())):
        return
    leaves = [*_leaves(session), leaf]
    root = tree.root_of(leaves).hex()
    head = LogHead.by(key, size=len(leaves), root=root, at=now_ms())
    session.add(EntryRow(entry=entry.decode(), leaf=leaf.hex(), **dict(head)))
    session.flush()


def sign_head(session: Session, key: SigningKey) -> None:
    """Sign the latest head with this key, unless it has."""
    head = latest(session, EntryRow, EntryRow.size)
    if head is not None:
        signed = LogHead.model_validate(head).signed
        if not key.signed(signed, head.signature):
            head.signature = key.sign(signed)


def whole_log(session: Session) -> Log:
    """The latest head, and all leaves."""
    head = found(latest(session, EntryRow, EntryRow.size), "log yet", "publish a table first")
    shown = LogHead.model_validate(head)
    rows = session.scalars(select(WitnessRow).order_by(WitnessRow.public))
    return Log(
        head=shown,
        leaves=[leaf.hex() for leaf in _leaves(session)],
        witnesses=[CoSigned.model_validate(row) for row in rows],
    )


def keep_witness(session: Session, seen: CoSigned) -> None:
    """Keep what a witness has signed, where it is of this log and no earlier than what it signed
    before."""
    try:
        seen.verify(VerifyKey.from_base64(seen.public))
    except SignatureError as error:
        raise Failure("invalid", f"signature: {error}", "sign it again") from None
    log = whole_log(session)
    if not log.continues(seen):
        raise Failure("conflict", "this log has no such head", "keep it as proof, and publish it")
    before = session.get(WitnessRow, seen.public)
    if before is None and len(log.witnesses) >= MOST_WITNESSES:
        raise Failure("conflict", f"the log has {MOST_WITNESSES} witnesses", "ask the operator")
    if before is None or before.size <= seen.size:
        session.merge(WitnessRow(**dict(seen)))


def check_log(session: Session) -> Log | None:
    """The log; None where nothing is published. Raises `FileFormatError` where entries, hashes and
    the latest head do not belong together."""
    rows = session.scalars(select(EntryRow).order_by(EntryRow.size)).all()
    if not rows:
        return None
    for number, row in enumerate(rows, 1):
        if (row.size, row.leaf) != (number, tree.leaf_hash(row.entry.encode()).hex()):
            raise FileFormatError(f"entry {number} of the log was changed; restore a backup")
    log = whole_log(session)
    if not log.continues(log.head):
        raise FileFormatError("the log's head is not that of its entries; restore a backup")
    return log


def entries(session: Session, first: int, limit: int) -> LogEntries:
    """Some entries."""
    query = select(EntryRow.entry).where(EntryRow.size > first)
    rows = session.scalars(query.order_by(EntryRow.size).limit(limit))
    return LogEntries(first=first, entries=list(rows))


def _leaves(session: Session) -> list[bytes]:
    leaves = session.scalars(select(EntryRow.leaf).order_by(EntryRow.size))
    return [bytes.fromhex(leaf) for leaf in leaves]


def record_action(
    session: Session, token: str, action: str, target: str = "", detail: str = ""
) -> None:
    """Note an act of the operator with this admin token; no secret belongs into `detail`."""
    session.add(ActionRow(by=token, action=action, target=target, detail=detail))
