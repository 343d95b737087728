"""Rounds solved in worker processes: success, failure, and a server that dies meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from multiprocessing import active_children
from typing import Any

import pytest
from protocol_servers import PATIENCE, domain_body, small_domain

from panda_mdp.errors import PandaError
from panda_mdp.protocol.messages.catalogue import DomainRequest
from panda_mdp.protocol.messages.deployments import AnchorsDeploymentRequest, SelectionInfo
from panda_mdp.protocol.server.auth import TokenBook
from panda_mdp.protocol.server.solving import Solution, solve_round
from panda_mdp.protocol.server.store.catalogue import check_domain, domain_row, store_domain
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import anchors_request, store_deployment
from panda_mdp.protocol.server.store.schema import DeploymentRow, RoundRow, UploadRow, now
from panda_mdp.protocol.server.supervisor import Round, Supervisor, conclude

SELECTION = SelectionInfo(decay="exponential", alpha=0.9, rate=0.5, radius=2.0)


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Store.create(database) as made:
        body = domain_body(small_domain(30), "city")
        request = AnchorsDeploymentRequest(
            kind="anchors",
            name="paper",
            domain="city",
            outputs=[0, 6, 12, 18, 24],
            epsilon=5.0,
            delta=1e-3,
            selection=SELECTION,
            accept_no_guarantee=True,
        )
        domain = check_domain(DomainRequest.model_validate(body))
        with made.write() as session:
            store_domain(session, domain)
            store_deployment(session, request, {})
        yield made


def waiting(store: Store, number: int = 1, **values: Any) -> Round:
    """A round that is closed, with an upload, as another server may have left it."""
    [made] = TokenBook(store).make("reporter")
    with store.write() as session:
        session.add(RoundRow(deployment=1, round=number, **{"state": "solving", **values}))
        session.flush()
        upload = {"deployment": 1, "round": number, "token": made.id}
        session.add(UploadRow(**upload, anchors=[*range(6)]))
    return 1, number


def stored(store: Store, number: int = 1) -> RoundRow:
    with store.read() as session:
        return session.get_one(RoundRow, (1, number))


def change(store: Store, **values: Any) -> None:
    with store.write() as session:
        for name, value in values.items():
            setattr(session.get_one(RoundRow, (1, 1)), name, value)


def solve(store: Store, key: Round) -> None:
    """A round, in this process."""
    future: Future[Solution] = Future()
    with store.read() as session:
        deployment = session.get_one(DeploymentRow, key[0])
        sets = [upload.anchors for upload in session.get_one(RoundRow, key).uploads]
        request = anchors_request(deployment)
        places = domain_row(session, request.domain).places
    try:
        future.set_result(solve_round(request, places, sets))
    except PandaError as error:
        future.set_exception(error)
    conclude(store, key, future)


def turned(supervisor: Supervisor, store: Store) -> str:
    """The state of the round after another turn."""
    supervisor.turn()
    return stored(store).state


def until(done: Callable[[], object], limit: float = PATIENCE) -> None:
    deadline = time.monotonic() + limit
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(supervisor: Supervisor) -> bool:
    """Whether its worker, which somebody kills where nobody has, is gone and was noticed."""
    for worker in active_children():
        worker.kill()
    supervisor.turn()
    return not active_children()


def test_the_first_table_of_a_round_counts(store: Store) -> None:
    """A server that was frozen wakes up and has one too, or has failed."""
    key = waiting(store)
    solve(store, key)
    first, late = stored(store), Future[Solution]()
    late.set_exception(PandaError("no table"))
    conclude(store, key, late)
    after = stored(store)
    assert (first.state, after.state, after.error) == ("solved", "solved", None)


def test_a_round_that_cannot_be_solved_says_why(store: Store) -> None:
    key = waiting(store)
    with store.write() as session:
        upload = session.query(UploadRow).one()
        upload.anchors = []
    solve(store, key)
    found = stored(store)
    assert found.state == "failed" and "no anchors entered" in (found.error or "")


def test_a_worker_that_dies_fails_its_round(store: Store) -> None:
    """Somebody, or the system for lack of memory, kills the worker."""
    waiting(store)
    supervisor, before = Supervisor(store), store.value("deployment_changes")
    supervisor.turn()
    active_children()[0].kill()
    until(lambda: turned(supervisor, store) != "solving")
    supervisor.close()
    found = stored(store)
    assert found.state == "failed" and "ended unexpectedly" in (found.error or "")
    # No table came of it, so what reports are taken for stays.
    assert store.value("deployment_changes") == before


def test_a_stopped_server_leaves_its_round_for_the_next_one(store: Store) -> None:
    waiting(store)
    first, before = Supervisor(store), store.value("deployment_changes")
    first.turn()
    assert active_children()
    first.close()
    assert stored(store).state == "solving"
    assert not active_children()
    second = Supervisor(store)
    until(lambda: turned(second, store) == "solved", 240)
    second.close()
    assert store.value("deployment_changes") != before


def test_a_server_whose_round_has_ended_ends_its_worker(store: Store) -> None:
    waiting(store)
    others = {child.pid for child in active_children()}
    server = Supervisor(store)
    server.turn()
    mine = {child.pid for child in active_children()} - others
    assert len(mine) == 1
    # It starts for a second: it must not have solved the round before it is looked at again.
    os.kill(min(mine), signal.SIGSTOP)
    # Another server has solved the round meanwhile.
    change(store, state="solved")
    server.turn()
    assert not mine & {child.pid for child in active_children()}
    assert stored(store).state == "solved"


def test_a_round_is_closed_in_time(store: Store) -> None:
    waiting(store, state="open", closes_at=now() + timedelta(hours=1))
    server = Supervisor(store)
    server.turn()
    assert stored(store).state == "open" and not active_children()
    change(store, closes_at=now())
    server.turn()
    assert stored(store).state == "solving"
    until(lambda: ended(server))
