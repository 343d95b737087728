"""Invitations: as many tokens as places, one transaction each, and no trace of who came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from protocol_servers import Running, error_of
from sqlalchemy import select
from typer.testing import CliRunner

from panda_mdp.cli.app import app
from panda_mdp.protocol.server.auth import TokenBook, invite, parse
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import Store, revoke
from panda_mdp.protocol.server.store.schema import InvitationRow, TokenRow, when


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Store.create(database) as made:
        yield made


def made_code(store: Store, places: int = 1, days: float | None = None) -> str:
    with store.write() as session:
        return invite(session, places, days=days)


def test_no_more_tokens_than_places(store: Store) -> None:
    code, book = made_code(store, 3), TokenBook(store)

    def enrol(_: int) -> str | None:
        try:
            return book.make("reporter", code=code)[0].token
        except Failure as failure:
            assert failure.code == "forbidden" and "places" in failure.message
            return None

    with ThreadPoolExecutor(4) as pool:
        found = [token for token in pool.map(enrol, range(8)) if token]
    assert len(set(found)) == 3 == book.count("reporter")
    for token in found:
        key, secret = parse(f"Bearer {token}".encode()) or ("", b"")
        assert book.check(book.fetch(key), secret).role == "reporter"
    # Nothing of a token says where it came from.
    with store.read() as session:
        assert set(session.scalars(select(TokenRow.label))) == {""}


@pytest.mark.parametrize("spoil", ["other", "expired", "revoked", "form"])
def test_what_is_no_invitation(store: Store, spoil: str) -> None:
    code, book = made_code(store, 5, days=1.0), TokenBook(store)
    with store.write() as session:
        if spoil == "expired":
            session.scalars(select(InvitationRow)).one().expires = when(1)
        if spoil == "revoked":
            mine = InvitationRow.id == code.split("_")[1]
            assert revoke(session, InvitationRow, mine)
            assert not revoke(session, InvitationRow, mine)
    if spoil == "other":
        code = code[:-1] + ("a" if code[-1] != "a" else "b")
    if spoil == "form":
        code = code.upper()
    with pytest.raises(Failure, match="forbidden"):
        book.make("reporter", code=code)
    assert book.count() == 0


def test_people_enrol_by_themselves(make_server: Callable[..., Running], tmp_path: Path) -> None:
    server, runner = make_server(), CliRunner()
    made = runner.invoke(app, ["invite", "--database", server.database, "--places", "2"])
    code, token_file = made.output.strip(), tmp_path / "token"
    words = ["client", "enrol", server.url, "--token-file", str(token_file)]
    found = runner.invoke(app, words, input=f"{code}\n")
    assert found.exit_code == 0, found.output
    token = token_file.read_text()
    assert token_file.stat().st_mode & 0o777 == 0o600 and token not in found.output
    # A reporter's: it is known, and may not do what an operator may.
    assert error_of(server.client(token).get("/v1/tokens")) == (403, "forbidden")
    again = runner.invoke(app, words, input=f"{code}\n")
    assert again.exit_code != 0
    second = server.client().post("/v1/enrol", json={"code": code})
    assert second.status_code == 201
    third = server.client().post("/v1/enrol", json={"code": code})
    assert error_of(third) == (403, "forbidden")
    assert error_of(server.client().post("/v1/enrol", json={"code": "x"})) == (422, "invalid")
    text = server.log.read_text()
    assert code.split("_", 2)[2] not in text and token.split("_", 2)[2] not in text
