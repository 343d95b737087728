"""Servers and databases that the protocol's tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from protocol_servers import Postgres, Running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that the tests start themselves."""
    cluster = Postgres().start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A running server on either database."""
    folder = tmp_path_factory.mktemp("server")
    if request.param == "sqlite":
        database = str(folder / "panda.db")
    else:
        database = request.getfixturevalue("postgres").database()
    running = Running(database, folder).start()
    yield running
    running.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address of a database that does not exist yet or is empty."""
    if request.param == "sqlite":
        return str(tmp_path / "panda.db")
    url: str = request.getfixturevalue("postgres").database()
    return url


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Servers for one test, ended with it."""
    made: list[Running] = []

    def make(database: str | None = None, *options: str) -> Running:
        running = Running(database or str(tmp_path / "panda.db"), tmp_path, *options).start()
        made.append(running)
        return running

    yield make
    for running in made:
        running.stop()
