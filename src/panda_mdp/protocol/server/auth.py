"""Bearer tokens, `pmt_<12 hex digits: id>_<43 characters: secret>`, and invitations to one, `pmi_`.

A secret has 256 random bits, so its SHA-256 is stored and no slow hash is needed; digests are
compared in constant time. A token is shown once, when it is made. One invitation may be good for
many: whoever hands the same code to everybody learns from an enrolment that somebody enrolled, and
not who. Which token came of which code is not written down.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from cachetools import LRUCache
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.protocol.messages.service import TokenInfo, TokenMade
from panda_mdp.protocol.messages.types import Role
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import Store, found
from panda_mdp.protocol.server.store.log import record_action
from panda_mdp.protocol.server.store.schema import InvitationRow, TokenRow, now

MOST_CACHED = 200_000
_HEADER = re.compile(rb"(?i:bearer) pmt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_CODE = re.compile(r"pmi_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_CHALLENGE = {"www-authenticate": "Bearer"}
_NO_DIGEST = bytes(32)


class Token(NamedTuple):
    """A token as the server knows it."""

    id: str
    digest: bytes
    role: Role
    expires: datetime | None

    def __repr__(self) -> str:
        return f"Token({self.id}, {self.role})"


_COLUMNS = (TokenRow.id, TokenRow.digest, TokenRow.role, TokenRow.expires)


def digest_of(secret: bytes) -> bytes:
    """What is stored instead of a secret."""
    return hashlib.sha256(secret).digest()


def parse(header: bytes) -> tuple[str, bytes] | None:
    """Id and secret of an Authorization header; None where it has another form."""
    match = _HEADER.fullmatch(header)
    return None if match is None else (match[1].decode(), match[2])


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


class TokenBook:
    """Tokens of a store, with a cache that forgets what was revoked.

    Revoking takes effect at once in this process. Changes by others (`panda-mdp token`) are
    counted in the store; whoever calls `refresh` every second notices them within that.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: LRUCache[str, Token] = LRUCache(MOST_CACHED)
        self._changes = store.value("token_changes")
        self._lock = threading.Lock()

    def cached(self, token_id: str) -> Token | None:
        """The token, if it is known without asking the store."""
        with self._lock:
            return self._known.get(token_id)

    def load(self) -> None:
        """Read the latest tokens at once: asking for each would cost more than its report does."""
        changes, latest = self._changes, TokenRow.created.desc()
        query = select(*_COLUMNS).filter_by(revoked=None).order_by(latest).limit(MOST_CACHED // 2)
        with self._store.read() as session:
            rows = [Token(*row) for row in session.execute(query)]
        self._keep(rows, changes)

    def fetch(self, token_id: str) -> Token | None:
        """The token from the store, unless it is unknown or revoked."""
        changes = self._changes
        with self._store.read() as session:
            row = session.execute(select(*_COLUMNS).filter_by(id=token_id, revoked=None)).first()
        if row is None:
            return None
        token = Token(*row)
        self._keep([token], changes)
        return token

    def _keep(self, tokens: Iterable[Token], changes: str | None) -> None:
        """Keep tokens in memory, if nothing was revoked since the store was asked."""
        with self._lock:
            if changes == self._changes:
                self._known.update((token.id, token) for token in tokens)

    def refresh(self) -> None:
        """Forget everything where another process has changed a token."""
        changes = self._store.value("token_changes")
        with self._lock:
            if changes != self._changes:
                self._changes = changes
                self._known.clear()

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
        changes, expires = self._changes, _after(expires_in_s)
        made, rows = [], []
        for _ in range(count):
            key, secret, digest = _new_secret()
            shown = f"pmt_{key}_{secret}"
            made.append(TokenMade(id=key, token=shown, role=role, label=label, expires=expires))
            rows.append(TokenRow(id=key, digest=digest, role=role, label=label, expires=expires))
        with self._store.write() as session:
            if code is None:
                target = made[0].id if count == 1 else f"{count} tokens"
                record_action(session, by, f"make {role} token", target, label)
            else:
                _take_place(session, code)
            session.add_all(rows)
        self._keep([Token(row.id, row.digest, role, expires) for row in rows], changes)
        return made

    def count(self, role: Role | None = None) -> int:
        """How many tokens are not revoked."""
        role_of = {} if role is None else {"role": role}
        query = select(func.count()).select_from(TokenRow).filter_by(revoked=None, **role_of)
        with self._store.read() as session:
            return session.scalar(query) or 0

    def list(self, after: str = "", limit: int = 1_000) -> list[TokenInfo]:
        """Tokens that are not revoked, by their ids, those after one; never a secret."""
        query = (
            select(TokenRow)
            .filter_by(revoked=None)
            .where(TokenRow.id > after)
            .order_by(TokenRow.id)
        )
        with self._store.read() as session:
            rows = session.scalars(query.limit(limit))
            return [TokenInfo.model_validate(row, from_attributes=True) for row in rows]

    def revoke(self, token_id: str, by: str = "") -> None:
        """Make a token invalid for good; its reports stay. `by` is the operator's token."""
        with self._store.write() as session:
            row = session.scalar(select(TokenRow).filter_by(id=token_id, revoked=None))
            found(row, "token of this id", "GET /v1/tokens lists them").revoked = now()
            self._store.count_change(session, "token_changes")
            record_action(session, by, "revoke token", token_id)
        self.refresh()

    @staticmethod
    def check(token: Token | None, secret: bytes) -> Token:
        """The token, if the secret is its own and it has not expired."""
        # The same work for an unknown id.
        same = hmac.compare_digest(digest_of(secret), _NO_DIGEST if token is None else token.digest)
        if token is None or not same:
            raise unauthorised("the token is not one of this server, or was revoked")
        if token.expires is not None and token.expires <= now():
            raise Failure(
                "token_expired", "the token has expired", "ask for a new token", _CHALLENGE
            )
        return token


# Invitations


def invite(session: Session, places: int = 1, label: str = "", days: float | None = None) -> str:
    """A new code for so many people; shown once."""
    key, secret, digest = _new_secret()
    expires = _after(None if days is None else 86_400 * days)
    session.add(InvitationRow(id=key, digest=digest, label=label, places=places, expires=expires))
    return f"pmi_{key}_{secret}"


def _take_place(session: Session, code: str) -> None:
    """Use a code once; refused where it is none, has run out, or all its places are taken."""
    form = _CODE.fullmatch(code)
    row = None if form is None else session.get(InvitationRow, form[1])
    digest = digest_of(form[2].encode() if form else b"")
    same = hmac.compare_digest(digest, _NO_DIGEST if row is None else row.digest)
    if row is None or not same or row.revoked is not None:
        raise _refused("this is not an invitation of this server")
    if row.expires is not None and row.expires <= now():
        raise _refused("the invitation has expired")
    if row.taken >= row.places:
        raise _refused("all places of this invitation are taken")
    row.taken += 1


def _refused(why: str) -> Failure:
    return Failure("forbidden", why, "ask whoever gave it to you for another one")


def revoke_invitation(session: Session, key: str) -> bool:
    """Make a code worthless; tokens that came of it stay."""
    row = session.get(InvitationRow, key)
    if row is None or row.revoked is not None:
        return False
    row.revoked = now()
    return True
