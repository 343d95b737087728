"""Tokens: hashed, expiring, revocable, never shown twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from panda_mdp.protocol.server.auth import Token, TokenBook, digest_of, parse
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.schema import TokenRow, now


def header(token: str) -> bytes:
    return f"Bearer {token}".encode()


def parts(token: str) -> tuple[str, bytes]:
    found = parse(header(token))
    assert found is not None
    return found


def test_a_token_is_accepted_and_its_secret_is_not_kept(database: str) -> None:
    with Store.create(database) as store:
        book = TokenBook(store)
        made = book.make("reporter", "for a test")[0]
        assert re.fullmatch(r"pmt_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", made.token)
        token_id, secret = parts(made.token)
        assert TokenBook.check(book.fetch(token_id), secret).role == "reporter"
        with store.read() as session:
            row = session.scalars(select(TokenRow)).one()
        assert row.digest == digest_of(secret)
        assert secret.decode() not in str(vars(row))
        assert made.token not in repr(made)
        assert made.token not in str(book.list())


def test_tokens_differ(database: str) -> None:
    with Store.create(database) as store:
        made = TokenBook(store).make("reporter", count=50)
    assert len({token.token for token in made}) == len({token.id for token in made}) == 50


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"Bearer ",
        b"Basic pmt_000000000000_" + b"a" * 43,
        b"Bearer pmt_00000000000_" + b"a" * 43,
        b"Bearer pmt_000000000000_" + b"a" * 42,
        b"Bearer pmt_000000000000_" + b"a" * 44,
        b"Bearer pmt_00000000000G_" + b"a" * 43,
        b"Bearer pmt_000000000000_" + b"a" * 42 + b"\n",
        b"Bearer pmt_000000000000_" + b"\xff" * 43,
    ],
)
def test_other_forms_are_no_tokens(given: bytes) -> None:
    assert parse(given) is None


def test_a_wrong_secret_is_unknown(database: str) -> None:
    with Store.create(database) as store:
        book = TokenBook(store)
        first, second = book.make("reporter", count=2)
        known = book.fetch(first.id)
        with pytest.raises(Failure) as wrong:
            TokenBook.check(known, parts(second.token)[1])
        with pytest.raises(Failure) as unknown:
            TokenBook.check(book.fetch("f" * 12), parts(second.token)[1])
        assert wrong.value.code == unknown.value.code == "unauthorised"
        assert wrong.value.message == unknown.value.message
        assert wrong.value.headers["www-authenticate"] == "Bearer"


def test_an_expired_token_says_so_to_its_owner_only(database: str) -> None:
    with Store.create(database) as store:
        book = TokenBook(store)
        made = book.make("reporter", expires_in_s=0.001)[0]
        token_id, secret = parts(made.token)
        token = book.fetch(token_id)
        assert token is not None
        # A millisecond passes while the database is asked, but the clock decides.
        while token.expires is not None and token.expires > now():
            pass
        with pytest.raises(Failure) as caught:
            TokenBook.check(token, secret)
        assert caught.value.code == "token_expired"
        with pytest.raises(Failure) as caught:
            TokenBook.check(token, b"x" * 43)
        assert caught.value.code == "unauthorised"


def test_revoking_works_at_once_and_elsewhere_after_a_refresh(database: str) -> None:
    with Store.create(database) as store, Store.open(database) as other_store:
        book, other = TokenBook(store), TokenBook(other_store)
        made = book.make("reporter")[0]
        assert book.fetch(made.id) and other.fetch(made.id)
        assert book.cached(made.id) and other.cached(made.id)
        book.revoke(made.id)
        assert book.cached(made.id) is None and book.fetch(made.id) is None
        assert other.cached(made.id) is not None
        other.refresh()
        assert other.cached(made.id) is None and other.fetch(made.id) is None
        assert made.id not in [token.id for token in book.list()]
        with pytest.raises(Failure) as caught:
            book.revoke(made.id)
        assert caught.value.code == "not_found"


class Interrupted(Store):
    """A store in which something else happens once: before it is read, or after it is written."""

    before_reading: Callable[[], None] | None = None
    after_writing: Callable[[], None] | None = None

    @contextmanager
    def read(self) -> Iterator[Session]:
        happening, self.before_reading = self.before_reading, None
        if happening is not None:
            happening()
        with super().read() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        happening, self.after_writing = self.after_writing, None
        with super().write() as session:
            yield session
        if happening is not None:
            happening()


def test_a_token_read_while_another_is_revoked_is_not_cached(database: str) -> None:
    with Interrupted.create(database) as store:
        book, later = TokenBook(store), TokenBook(store)
        made = book.make("reporter", count=2)

        def revoke() -> None:
            book.revoke(made[1].id)
            later.refresh()

        # The revocation comes between the question and the answer.
        store.before_reading = revoke
        assert later.fetch(made[0].id) is not None
        assert later.cached(made[0].id) is None
        assert later.fetch(made[0].id) == later.cached(made[0].id)


def test_tokens_loaded_while_one_is_revoked_are_not_cached(database: str) -> None:
    with Interrupted.create(database) as store:
        book, later = TokenBook(store), TokenBook(store)
        made = book.make("reporter", count=2)

        def revoke() -> None:
            book.revoke(made[1].id)
            later.refresh()

        store.before_reading = revoke
        later.load()
        assert later.cached(made[0].id) is None
        later.load()
        assert later.cached(made[0].id) is not None and later.cached(made[1].id) is None


def test_a_token_revoked_before_its_maker_knows_it_is_not_cached(database: str) -> None:
    with Interrupted.create(database) as store:
        book, other = TokenBook(store), TokenBook(store)

        def revoke() -> None:
            # An operator's list shows it as soon as it is written.
            other.revoke(other.list()[0].id)
            book.refresh()

        store.after_writing = revoke
        [made] = book.make("reporter")
        assert book.cached(made.id) is None and book.fetch(made.id) is None


def test_a_token_shows_no_digest() -> None:
    assert "x" * 32 not in repr(Token("a" * 12, b"x" * 32, "admin", None, now()))
