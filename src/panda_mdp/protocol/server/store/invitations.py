"""Invitations: codes that people exchange for a token of their own, `pmi_<id>_<secret>`.

One code may be good for many: whoever hands the same code to everybody learns from an enrolment
that somebody enrolled, and not who. Which token came of which code is not written down.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from sqlalchemy import Connection, insert, select, update

from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.schema import invitations

_FORM = re.compile(r"pmi_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


def invite(
    connection: Connection, places: int = 1, label: str = "", days: float | None = None
) -> str:
    """A new code for so many people; shown once."""
    key, secret, created = secrets.token_hex(6), secrets.token_urlsafe(32), now_ms()
    connection.execute(
        insert(invitations).values(
            id=key,
            digest=hashlib.sha256(secret.encode()).digest(),
            label=label,
            places=places,
            taken=0,
            created=created,
            expires=None if days is None else created + int(86_400_000 * days),
        )
    )
    return f"pmi_{key}_{secret}"


def take_place(connection: Connection, code: str) -> None:
    """Use a code once; refused where it is none, has run out, or all its places are taken."""
    form = _FORM.fullmatch(code)
    row = None
    if form is not None:
        row = connection.execute(select(invitations).where(invitations.c.id == form[1])).first()
    digest = hashlib.sha256(form[2].encode() if form else b"").digest()
    known = bytes(row.digest) if row is not None else b"\x00" * 32
    if not hmac.compare_digest(digest, known) or row is None or row.revoked is not None:
        raise _refused("this is not an invitation of this server")
    if row.expires is not None and row.expires <= now_ms():
        raise _refused("the invitation has expired")
    # Counted by the database, so that no two take the last place.
    taken = connection.execute(
        update(invitations)
        .where(invitations.c.id == row.id, invitations.c.taken < invitations.c.places)
        .values(taken=invitations.c.taken + 1)
    ).rowcount
    if not taken:
        raise _refused("all places of this invitation are taken")


def revoke_invitation(connection: Connection, key: str) -> bool:
    """Make a code worthless; tokens that came of it stay."""
    return bool(
        connection.execute(
            update(invitations)
            .where(invitations.c.id == key, invitations.c.revoked.is_(None))
            .values(revoked=now_ms())
        ).rowcount
    )


def _refused(why: str) -> Failure:
    return Failure("forbidden", why, "ask whoever gave it to you for another one")
