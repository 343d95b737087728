"""Bearer tokens: `pmt_<12 hex digits: id>_<43 characters: secret>`.

The secret has 256 random bits, so its SHA-256 is stored and no slow hash is needed; digests are
compared in constant time. A token is shown once, when it is made.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from cachetools import LRUCache
from sqlalchemy import func, insert, select, update

from panda_mdp.protocol.messages.service import TokenInfo, TokenMade
from panda_mdp.protocol.messages.types import Role
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.actions import record_action
from panda_mdp.protocol.server.store.database import Store, now_ms
from panda_mdp.protocol.server.store.invitations import take_place
from panda_mdp.protocol.server.store.schema import tokens, when

MOST_CACHED = 200_000
_FORM = re.compile(rb"(?i:bearer) pmt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_CHALLENGE = {"www-authenticate": "Bearer"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token as the server knows it."""

    id: str
    digest: bytes
    role: Role
    expires: int | None

    def __repr__(self) -> str:
        return f"Token({self.id}, {self.role})"


def digest_of(secret: bytes) -> bytes:
    """What is stored instead of a secret."""
    return hashlib.sha256(secret).digest()


def parse(header: bytes) -> tuple[str, bytes] | None:
    """Id and secret of an Authorization header; None where it has another form."""
    match = _FORM.fullmatch(header)
    return None if match is None else (match[1].decode(), match[2])


def unauthorised(message: str) -> Failure:
    """A refusal that says nothing about which part was wrong."""
    return Failure(
        "unauthorised", message, "ask the operator for a token; `panda-mdp token`", _CHALLENGE
    )


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
        with self._lock:
            changes = self._changes
        wanted = select(tokens.c.id, tokens.c.digest, tokens.c.role, tokens.c.expires)
        wanted = wanted.where(tokens.c.revoked.is_(None)).order_by(tokens.c.created.desc())
        with self._store.read() as connection:
            rows = connection.execute(wanted.limit(MOST_CACHED // 2)).all()
        self._keep([Token(r.id, bytes(r.digest), r.role, r.expires) for r in rows], changes)

    def _keep(self, tokens: Sequence[Token], changes: str | None) -> None:
        """Keep tokens in memory, if nothing was revoked since the store was asked."""
        with self._lock:
            if changes == self._changes:
                self._known.update((token.id, token) for token in tokens)

    def fetch(self, token_id: str) -> Token | None:
        """The token from the store, unless it is unknown or revoked."""
        with self._lock:
            changes = self._changes
        with self._store.read() as connection:
            row = connection.execute(
                select(tokens.c.id, tokens.c.digest, tokens.c.role, tokens.c.expires).where(
                    tokens.c.id == token_id, tokens.c.revoked.is_(None)
                )
            ).first()
        if row is None:
            return None
        token = Token(row.id, bytes(row.digest), row.role, row.expires)
        self._keep([token], changes)
        return token

    def refresh(self, changes: str | None = None) -> None:
        """Forget everything where another process has changed a token."""
        changes = changes or self._store.value("token_changes")
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
        by: str = "",
        code: str | None = None,
    ) -> list[TokenMade]:
        """New tokens, with their secrets, which are not kept. `by` is the operator's token, `code`
        an invitation that pays for them instead."""
        with self._lock:
            changes = self._changes
        made, rows, fresh, created = [], [], [], now_ms()
        expires = None if expires_in_s is None else created + int(1000 * expires_in_s)
        for _ in range(count):
            token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
            fresh.append(Token(token_id, digest_of(secret.encode()), role, expires))
            made.append(
                TokenMade(
                    id=token_id,
                    token=f"pmt_{token_id}_{secret}",
                    role=role,
                    label=label,
                    expires=None if expires is None else when(expires),
                )
            )
            rows.append(
                {
                    "id": token_id,
                    "digest": fresh[-1].digest,
                    "role": role,
                    "label": label,
                    "created": created,
                    "expires": expires,
                    "revoked": None,
                }
            )
        with self._store.write() as connection:
            if code is not None:
                take_place(connection, code)
            connection.execute(insert(tokens), rows)
            if code is None:
                target = made[0].id if count == 1 else f"{count} tokens"
                record_action(connection, by, f"make {role} token", target, label)
        self._keep(fresh, changes)
        return made

    def count(self, role: Role | None = None) -> int:
        """How many tokens are not revoked."""
        wanted = select(func.count()).select_from(tokens).where(tokens.c.revoked.is_(None))
        if role is not None:
            wanted = wanted.where(tokens.c.role == role)
        with self._store.read() as connection:
            return int(connection.execute(wanted).scalar() or 0)

    def list(self, after: str = "", limit: int = 1_000) -> list[TokenInfo]:
        """Tokens that are not revoked, by their ids, those after one; never a secret."""
        with self._store.read() as connection:
            rows = connection.execute(
                select(tokens)
                .where(tokens.c.revoked.is_(None), tokens.c.id > after)
                .order_by(tokens.c.id)
                .limit(limit)
            ).all()
        return [
            TokenInfo(
                id=row.id,
                role=row.role,
                label=row.label,
                created=when(row.created),
                expires=None if row.expires is None else when(row.expires),
            )
            for row in rows
        ]

    def revoke(self, token_id: str, by: str = "") -> None:
        """Make a token invalid for good; its reports stay. `by` is the operator's token."""
        with self._store.write() as connection:
            changed = connection.execute(
                update(tokens)
                .where(tokens.c.id == token_id, tokens.c.revoked.is_(None))
                .values(revoked=now_ms())
            ).rowcount
            if not changed:
                raise Failure(
                    "not_found", "there is no token of this id", "GET /v1/tokens lists them"
                )
            self._store.count_change(connection, "token_changes")
            record_action(connection, by, "revoke token", token_id)
        self.refresh()

    @staticmethod
    def check(token: Token | None, secret: bytes) -> Token:
        """The token, if the secret is its own and it has not expired."""
        digest = digest_of(secret)
        if token is None:
            # The same work for an unknown id.
            hmac.compare_digest(digest, digest)
            raise unauthorised("the token is not one of this server, or was revoked")
        if not hmac.compare_digest(digest, token.digest):
            raise unauthorised("the token is not one of this server, or was revoked")
        if token.expires is not None and token.expires <= now_ms():
            raise Failure(
                "token_expired", "the token has expired", "ask for a new token", _CHALLENGE
            )
        return token
