"""Rounds closed in time and solved, one at a time in another process; and old reports deleted.

Where several servers share a database, each solves the rounds that are closed. The first table that
comes of one counts, and ends the work of the others: all are of the same sets.
"""

from __future__ import annotations

import logging
import math
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict

from sqlalchemy import exists, select, update
from sqlalchemy.orm import Session

from panda_mdp.errors import PandaError
from panda_mdp.protocol.server.failures import LONGEST, stack_of
from panda_mdp.protocol.server.solving import BROKEN, Pool, Solution, solve_round
from panda_mdp.protocol.server.store.catalogue import domain_row, pack
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import anchors_request
from panda_mdp.protocol.server.store.reports import remove_old
from panda_mdp.protocol.server.store.schema import DeploymentRow, RoundRow, now

_log = logging.getLogger("panda_mdp.server")
REMOVE_EVERY_S = 600.0


Round = tuple[int, int]
"""A deployment, and the number of a round of it."""


def _unsolved(session: Session, key: Round) -> RoundRow | None:
    """A round, while it is being solved."""
    row = session.get_one(RoundRow, key)
    return row if row.state == "solving" else None


class Supervisor:
    """Closes rounds in time, has them solved, and deletes old reports: whoever has one calls `turn`
    again and again, from one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._removed = -math.inf
        self._running: tuple[Round, Future[Solution]] | None = None
        self._pool = Pool(1)

    def close(self) -> None:
        """End the worker; its round is solved by another server or after the next start."""
        self._pool.close()

    def turn(self) -> None:
        """Look once at everything: what is due, what has ended, what can be started."""
        self._close_due()
        if time.monotonic() - self._removed > REMOVE_EVERY_S:
            self._removed = time.monotonic()
            if removed := remove_old(self._store):
                _log.info("%d reports were deleted for their age", removed)
        if self._running is not None:
            self._look_after(*self._running)
        if self._running is None:
            self._start_next()

    def _close_due(self) -> None:
        over = (RoundRow.state == "open") & (RoundRow.closes_at <= now())
        with self._store.read() as session:
            if not session.scalar(select(exists().where(over))):
                return
        with self._store.write() as session:
            session.execute(update(RoundRow).where(over).values(state="solving"))

    def _start_next(self) -> None:
        """Solve a closed round."""
        with self._store.read() as session:
            row = session.scalar(select(RoundRow).filter_by(state="solving").limit(1))
            if row is None:
                return
            request = anchors_request(session.get_one(DeploymentRow, row.deployment))
            places = domain_row(session, request.domain).places
            sets = [upload.anchors for upload in row.uploads]
        solved = self._pool.submit(solve_round, request, places, sets)
        self._running = (row.deployment, row.round), solved

    def _look_after(self, key: Round, solved: Future[Solution]) -> None:
        """Keep what came of a round; nothing where it has ended without this server."""
        with self._store.read() as session:
            ended = _unsolved(session, key) is None
        if ended or solved.done():
            self._running = None
        if ended:
            self._pool.close()
        elif solved.done():
            conclude(self._store, key, solved)


def conclude(store: Store, key: Round, solved: Future[Solution]) -> None:
    """Keep the table of a round, or say why there is none; nothing where it has ended already."""
    error = solved.exception()
    reason = ""
    if isinstance(error, PandaError):
        # Written for people, about public inputs.
        reason = str(error)[:LONGEST]
    elif isinstance(error, BrokenProcessPool):
        reason = BROKEN
    elif error is not None:
        _log.error("a solve failed with %s\n%s", type(error).__name__, stack_of(error))
        reason = f"the solve ended with {type(error).__name__}; see the server's log"
    with store.write() as session:
        row = _unsolved(session, key)
        if row is None:
            return
        if reason:
            row.state = "failed"
            row.error = reason
            _log.warning("a round failed")
            return
        row.state = "solved"
        row.solution = pack(asdict(solved.result()))
        store.count_change(session, "deployment_changes")
