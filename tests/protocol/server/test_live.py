"""What is kept in memory: read once, by one, and forgotten when it changes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from protocol_servers import PATIENCE, small_domain, small_table

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import TableDeploymentRequest
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.auth import TokenBook
from panda_mdp.protocol.server.context import Live, LiveDeployments, byte_cache
from panda_mdp.protocol.server.store.catalogue import examine, store_table
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import find, store_deployment


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A database with a deployment `main`."""
    path = small_table(small_domain()).save(tmp_path / "t.pmdp")
    made = Store.create(str(tmp_path / "panda.db"))
    wanted = TableDeploymentRequest(
        kind="table", name="main", table=TableRef(name="city", version=1)
    )
    with made.write() as session:
        key = SigningKey.create(tmp_path / "key")
        candidate = examine(path.read_bytes())
        store_table(session, key, "city", candidate)
        store_deployment(session, wanted, candidate.promise)
    return made


@pytest.mark.parametrize("error", [None, RuntimeError("broken")])
def test_a_crowd_has_an_entry_made_once(error: Exception | None) -> None:
    cached, together, made = byte_cache(1_000), threading.Barrier(8, timeout=PATIENCE), []
    waiting = threading.Event()

    def make() -> bytes:
        made.append(1)
        # Long enough for all to have asked.
        waiting.wait(2.0 if error is None else 0.1)
        if error is not None:
            raise error
        return b"entry"

    def ask(_: int) -> bytes | BaseException:
        together.wait()
        try:
            return cached("key", make)
        except RuntimeError as raised:
            return raised

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(ask, range(8)))
    # What failed is tried again, by one at a time.
    assert told == [error or b"entry"] * 8 and len(made) == (1 if error is None else 8)
    again = cached("key", lambda: b"made again")
    assert again == (b"entry" if error is None else b"made again")


def test_what_is_too_large_to_remember_is_given_all_the_same() -> None:
    cached = byte_cache(3)
    assert [cached("key", lambda made=made: made) for made in (b"large", b"other")] == [
        b"large",
        b"other",
    ]


def test_a_crowd_reads_a_deployment_once(store: Store) -> None:
    together = threading.Barrier(8, timeout=PATIENCE)
    with store:
        live = LiveDeployments(store)

        def ask(_: int) -> Live:
            together.wait()
            return live.get("main")

        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(ask, range(8)))
        assert all(each is found[0] for each in found)
        assert found[0].outputs == frozenset(range(0, 40, 5)) and found[0].row.open
        with store.write() as session:
            find(session, "main").open = False
        assert live.get("main").row.open
        with store.write() as session:
            store.count_change(session, "deployment_changes")
        assert not live.get("main").row.open


def test_tokens_are_known_without_asking_until_one_is_revoked(store: Store) -> None:
    with store:
        book = TokenBook(store)
        made = book.make("reporter", count=3)
        # Before any of them is used: many that come at once would hold everybody up.
        assert all(book.cached(token.id) is not None for token in made)
        later = TokenBook(store)
        assert later.cached(made[0].id) is None
        later.load()
        assert later.cached(made[0].id) == book.cached(made[0].id)
        book.revoke(made[0].id)
        assert book.cached(made[0].id) is None
        later.refresh()
        assert later.cached(made[0].id) is None
        later.load()
        assert later.cached(made[0].id) is None and later.cached(made[1].id) is not None
