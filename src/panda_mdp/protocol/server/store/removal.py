"""Reports removed at somebody's word: by a token, by a batch of tokens, or by a report's receipt.

The log says that something of a deployment was removed, and not what.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from panda_mdp.protocol.messages.service import RemovalDone, RemovalRequest
from panda_mdp.protocol.messages.signing import SigningKey, signed_bytes
from panda_mdp.protocol.server.store.database import Store, found
from panda_mdp.protocol.server.store.log import append, record_action
from panda_mdp.protocol.server.store.reports import Removal, remove_reports
from panda_mdp.protocol.server.store.schema import (
    DeploymentRow,
    InvitationRow,
    ReportRow,
    RoundRow,
    SettingRow,
    TokenRow,
    UploadRow,
    now,
)


def remove(session: Session, key: SigningKey, request: RemovalRequest, by: str) -> RemovalDone:
    """What an operator asks for, whose token is `by`. Within `Store.everything`."""
    if request.receipt is not None:
        report = bytes.fromhex(request.receipt.replace("-", ""))
        touched = _remove(session, key, ReportRow.id == report, request.action)
        record_action(session, by, f"{request.action} report", "", f"{touched} reports")
        return RemovalDone(reports=touched, tokens=0)
    mine = TokenRow.id == request.token if request.token else TokenRow.batch == request.batch
    tokens = select(TokenRow.id).where(mine, TokenRow.role == "reporter")
    found(session.scalar(tokens.limit(1)), "such reporter's token", "GET /v1/tokens lists them")
    touched = _remove(session, key, ReportRow.token.in_(tokens), request.action)
    revoked = 0
    if request.action != "include":
        revoked = _revoke(session, tokens, request.batch)
    if request.action == "erase":
        # What is being solved has been read already.
        solving = select(RoundRow.round).where(
            RoundRow.deployment == UploadRow.deployment, RoundRow.state == "solving"
        )
        sent = delete(UploadRow).where(UploadRow.token.in_(tokens))
        session.execute(sent.where(UploadRow.round.not_in(solving)))
    target = request.token or f"batch {request.batch}"
    record_action(session, by, f"{request.action} reports", target, f"{touched} reports")
    return RemovalDone(reports=touched, tokens=revoked)


def withdraw(session: Session, key: SigningKey, token: str) -> RemovalDone:
    """Erase everything that a token has reported, at its bearer's word. The token stays."""
    touched = _remove(session, key, ReportRow.token == token, "erase")
    return RemovalDone(reports=touched, tokens=0)


def _revoke(session: Session, tokens: Any, batch: str | None) -> int:
    valid = update(TokenRow).where(TokenRow.id.in_(tokens), TokenRow.revoked.is_(None))
    revoked: int = session.connection().execute(valid.values(revoked=now())).rowcount
    invitation = None if batch is None else session.get(InvitationRow, batch)
    if invitation is not None and invitation.revoked is None:
        invitation.revoked = now()
    Store.count_change(session, "token_changes")
    return revoked


def _remove(session: Session, key: SigningKey, chosen: Any, action: Removal) -> int:
    """Change the reports, and write into the log that there was a change."""
    touched = remove_reports(session, chosen, action)
    names = select(DeploymentRow.name).where(DeploymentRow.id.in_(touched)).order_by("name")
    for name in session.scalars(names).all():
        row = session.get(SettingRow, "removals") or SettingRow(key="removals", value="0")
        row.value = str(int(row.value) + 1)
        session.add(row)
        append(session, key, signed_bytes("removal", name, int(row.value)))
    return touched.total()
