"""Bearer tokens, `pmt_<12 hex digits: id>_<43 characters: secret>`, and invitations to one, `pmi_`.

A secret has 256 random bits, so its SHA-256 is stored and no slow hash is needed; digests are
compared in constant time. A token is shown once, when it is made. One invitation may be good for
many: whoever hands the same code to everybody learns from an enrolment that somebody enrolled, and
not who. A token has the id of its code, so that what came of a code that was abused can be removed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.base.text import Facts, picked
from panda_mdp.protocol.messages.service import TokenInfo, TokenMade
from panda_mdp.protocol.messages.types import Role
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import Remembered, Store, found, revoke
from panda_mdp.protocol.server.store.log import record_action
from panda_mdp.protocol.server.store.schema import InvitationRow, TokenRow, now

MOST_CACHED = 200_000
_HEADER = re.compile(rb"(?i:bearer) pmt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_CHALLENGE = {"www-authenticate": "Bearer"}


class Token(NamedTuple):
    """A token as the server knows it."""

    id: str
    digest: bytes
    role: Role
    expires: datetime | None
    created: datetime

    def __repr__(self) -> str:
        return f"Token({self.id}, {self.role})"


_COLUMNS = [getattr(TokenRow, name) for name in Token._fields]


def _valid_token(session: Session, token_id: str) -> Token | None:
    row = session.execute(select(*_COLUMNS).filter_by(id=token_id, revoked=None)).first()
    return None if row is None else Token(*row)


def digest_of(secret: bytes) -> bytes:
    """What is stored instead of a secret."""
    return hashlib.sha256(secret).digest()


def parse(header: bytes) -> tuple[str, bytes] | None:
    """Id and secret of an Authorization header; None where it has another form."""
    match = _HEADER.fullmatch(header)
    return None if match is None else (match[1].decode(), match[2])


def _matches(secret: bytes, known: Token | InvitationRow | None) -> bool:
    """Whether a secret is the one that is known; the same work for an unknown id."""
    return hmac.compare_digest(digest_of(secret), bytes(32) if known is None else known.digest)


def unauthorised(message: str) -> Failure:
    """A refusal that says nothing about which part was wrong."""
    remedy = "ask the operator for a token; `panda-mdp token`"
    return Failure("unauthorised", message, remedy, _CHALLENGE)


def _new_secret() -> tuple[str, str, bytes]:
    """An id, a secret and its digest."""
    secret = secrets.token_urlsafe(32)
    return secrets.token_hex(6), secret, digest_of(secret.encode())


def _after(seconds: float | None) -> datetime | None:
    return None if seconds is None else now() + timedelta(seconds=seconds)


class TokenBook(Remembered[Token | None]):
    """Tokens of a store, but those that were revoked; revoking takes effect at once here."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, "token_changes", _valid_token, MOST_CACHED)

    def load(self) -> None:
        """Read the latest tokens at once: asking for each would cost more than its report does."""
        counted = self._counted
        latest = TokenRow.created.desc()
        query = select(*_COLUMNS).filter_by(revoked=None).order_by(latest).limit(MOST_CACHED // 2)
        with self._store.read() as session:
            tokens = [Token(*row) for row in session.execute(query)]
        self._keep(((token.id, token) for token in tokens), counted)

    def make(
        self,
        role: Role,
        label: str = "",
        expires_in_s: float | None = None,
        count: int = 1,
        *,
        by: str = "",
        code: str | None = None,
    ) -> list[TokenMade]:
        """New tokens, with their secrets, which are not kept. `by` is the operator's token, `code`
        an invitation that pays for them instead."""
        counted = self._counted
        batch = secrets.token_hex(6) if code is None else code.split("_", 2)[1]
        created = now()
        shared: Facts = {"role": role, "label": label, "expires": _after(expires_in_s)}
        made = []
        rows = []
        for _ in range(count):
            key, secret, digest = _new_secret()
            made.append(TokenMade(id=key, token=f"pmt_{key}_{secret}", **shared))
            rows.append(TokenRow(id=key, digest=digest, created=created, batch=batch, **shared))
        with self._store.write() as session:
            if code is None:
                target = made[0].id if count == 1 else f"{count} tokens"
                record_action(session, by, f"make {role} token", target, label)
            else:
                _take_place(session, code)
            session.add_all(rows)
        # Ten thousand that are looked up one by one when they come hold everybody up.
        tokens = ((row.id, Token(**picked(row, *Token._fields))) for row in rows)
        self._keep(tokens, counted)
        return made

    def count(self, role: Role | None = None) -> int:
        """How many tokens are not revoked."""
        valid = select(func.count()).select_from(TokenRow).where(TokenRow.revoked.is_(None))
        with self._store.read() as session:
            return session.scalar(valid if role is None else valid.filter_by(role=role)) or 0

    def list(self, after: str = "", limit: int = 1_000) -> list[TokenInfo]:
        """Tokens that are not revoked, by their ids, those after one; never a secret."""
        valid = select(TokenRow).filter_by(revoked=None).order_by(TokenRow.id).limit(limit)
        with self._store.read() as session:
            rows = session.scalars(valid.where(TokenRow.id > after))
            return [TokenInfo.model_validate(row) for row in rows]

    def revoke(self, token_id: str, by: str = "") -> None:
        """Make a token invalid for good; its reports stay. `by` is the operator's token."""
        with self._store.write() as session:
            gone = revoke(session, TokenRow, TokenRow.id == token_id) or None
            found(gone, "token of this id", "GET /v1/tokens lists them")
            self._store.count_change(session, "token_changes")
            record_action(session, by, "revoke token", token_id)
        self.refresh()

    @staticmethod
    def check(token: Token | None, secret: bytes) -> Token:
        """The token, if the secret is its own and it has not expired."""
        if not _matches(secret, token) or token is None:
            raise unauthorised("the token is not one of this server, or was revoked")
        if token.expires is not None and token.expires <= now():
            raise Failure(
                "token_expired", "the token has expired", "ask for a new token", _CHALLENGE
            )
        return token


# Invitations


def invite(session: Session, places: int, days: float | None = None) -> str:
    """A new code for so many people; shown once."""
    key, secret, digest = _new_secret()
    expires = _after(None if days is None else 86_400 * days)
    session.add(InvitationRow(id=key, digest=digest, places=places, expires=expires))
    return f"pmi_{key}_{secret}"


def _take_place(session: Session, code: str) -> None:
    """Use a code once; refused where it is none, has run out, or all its places are taken."""
    key, secret = code.split("_", 2)[1:]
    row = session.get(InvitationRow, key)
    if not _matches(secret.encode(), row) or row is None or row.revoked is not None:
        why = "this is not an invitation of this server"
    elif row.expires is not None and row.expires <= now():
        why = "the invitation has expired"
    elif row.taken >= row.places:
        why = "all places of this invitation are taken"
    else:
        row.taken += 1
        return
    raise Failure("forbidden", why, "ask whoever gave it to you for another one")
