"""Rounds closed in time and solved, one at a time in another process; and old reports deleted.

Where several servers share a database, each leases the round that it solves and renews the lease; a
lease that has run out is of a server that is gone, and the round is solved again. The first table
that comes of it counts: each is of the same sets.
"""

from __future__ import annotations

import logging
import math
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import exists, select, update
from sqlalchemy.exc import SQLAlchemyError
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
LEASE = timedelta(seconds=6)
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

    def __init__(self, store: Store, retention_days: int | None = None) -> None:
        self._store = store
        self._retention_days = retention_days
        self._removed = -math.inf
        self._running: tuple[Round, Future[Solution]] | None = None
        self._pool = Pool(1)

    def close(self) -> None:
        """End the worker; its round is solved by another server or after the next start."""
        self._pool.close()
        # Where the database is gone, the lease runs out by itself.
        with suppress(SQLAlchemyError), self._store.write() as session:
            if self._running and (row := _unsolved(session, self._running[0])):
                row.lease = None

    def turn(self) -> None:
        """Look once at everything: what is due, what has ended, what can be started."""
        self._close_due()
        if time.monotonic() - self._removed > REMOVE_EVERY_S:
            self._removed = time.monotonic()
            if removed := remove_old(self._store, self._retention_days):
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
        """Solve a closed round that nobody solves, or a server that is gone."""
        free = RoundRow.lease.is_(None) | (RoundRow.lease < now())
        waiting = select(RoundRow).filter_by(state="solving").where(free).limit(1)
        with self._store.read() as session:
            if session.scalar(waiting) is None:
                return
        with self._store.write() as session:
            row = session.scalar(waiting)
            if row is None:
                return
            row.lease, key = now() + LEASE, (row.deployment, row.round)
            request = anchors_request(session.get_one(DeploymentRow, row.deployment))
            places = domain_row(session, request.domain).places
            sets = [upload.anchors for upload in row.uploads]
        self._running = key, self._pool.submit(solve_round, request, places, sets)

    def _look_after(self, key: Round, solved: Future[Solution]) -> None:
        """Keep what came of a round, or its lease; nothing where it has ended without this one."""
        if solved.done():
            self._running = None
            conclude(self._store, key, solved)
            return
        with self._store.read() as session:
            row = _unsolved(session, key)
        if row is None:
            self._running = None
            self._pool.close()
        elif row.lease is None or row.lease - now() < 2 * LEASE / 3:
            mine = update(RoundRow).filter_by(deployment=key[0], round=key[1], state="solving")
            with self._store.write() as session:
                session.execute(mine.values(lease=now() + LEASE))


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
