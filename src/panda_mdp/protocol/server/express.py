"""The short way of a report: from the parser to the writer and back, without a framework between.

Most requests are reports that nothing is wrong with, and the layers around a route cost several
times what checking and storing such a report does. This takes a report whose token and deployment
are known and which breaks no rule; everything else goes the ordinary way, as if this were not here.
What it checks, counts, logs and answers is what `Gate` and `post_report` do, by the same functions.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Protocol

from panda_mdp.protocol.messages.reports import ReportRequest
from panda_mdp.protocol.server.bodies import check_kind, parse
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.gate import Gate, failure_of
from panda_mdp.protocol.server.live import Live
from panda_mdp.protocol.server.routes.reports import PATH, REPORT, conclude, report_of
from panda_mdp.protocol.server.store.batches import Outcome, Report

Headers = Sequence[tuple[bytes, bytes]]
MOST_BYTES = 1_024
_URL = re.compile(rb"/v1/deployments/([A-Za-z0-9][A-Za-z0-9._-]{0,63})/reports")
_ORDINARY = frozenset({b"transfer-encoding", b"expect", b"upgrade"})


class Connection(Protocol):
    """What a report came on."""

    def answer(self, taken: Taken, status: int, body: bytes, more: Headers = ()) -> None:
        """Send an answer in JSON."""


class Express:
    """The short way of one server."""

    def __init__(self, context: Context, gate: Gate) -> None:
        self.context = context
        self.gate = gate
        self._accepted: list[tuple[Taken, int]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        settings = context.settings
        self._open = not settings.log_addresses
        self._ordinary = _ORDINARY | ({b"origin"} if settings.cors_origins else set())

    def may_take(self, url: bytes, headers: Headers) -> bool:
        """Whether a POST may go the short way: a report of a few bytes, said in the plain form."""
        if not self._open or _URL.fullmatch(url) is None:
            return False
        sizes = [value for name, value in headers if name == b"content-length"]
        if len(sizes) != 1 or not (sizes[0].isdigit() and len(sizes[0]) < 5):
            return False
        return int(sizes[0]) <= MOST_BYTES and self._ordinary.isdisjoint(h[0] for h in headers)

    def take(
        self, url: bytes, headers: Headers, body: bytes, connection: Connection
    ) -> Taken | None:
        """Give a report to the writer, or return None: then it is to go the ordinary way."""
        named = _URL.fullmatch(url)
        live = None if named is None else self.context.live.cached(named[1].decode())
        token = self.gate.known(headers)
        if live is None or token is None or token.role != "reporter":
            return None
        try:
            check_kind(headers)
            message = parse(REPORT, body)
            if live.problem(message, token.id) is not None or not self.gate.spare(token):
                return None
            taken = Taken(self, connection, message, live, report_of(message, live, token.id))
            loop = asyncio.get_running_loop()
            self.context.writer.give(taken.report, live.quota, loop, taken.stored)
        except Failure:
            return None
        return taken

    def explain(self, taken: Taken, outcome: Outcome) -> None:
        """Answer a report that is not stored, or perhaps was before."""
        task = asyncio.get_running_loop().create_task(self._explain(taken, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _explain(self, taken: Taken, outcome: Outcome) -> None:
        code, more = None, []
        try:
            response = await conclude(
                self.context, taken.live, taken.message, taken.report, outcome
            )
            status, body = response.status_code, bytes(response.body)
        except Exception as error:
            failure = error if isinstance(error, Failure) else failure_of(error)
            status, body, code = failure.status, failure.body, failure.code
            more = [(name.encode(), value.encode()) for name, value in failure.headers.items()]
        self.gate.note("POST", PATH, [(status, taken.seconds)], code)
        taken.answer(status, body, more)

    def accepted(self, taken: Taken, status: int) -> None:
        """Count, log and answer a report that is stored, together with others of its batch."""
        if not self._accepted:
            asyncio.get_running_loop().call_soon(self._answer)
        self._accepted.append((taken, status))

    def _answer(self) -> None:
        batch, self._accepted = self._accepted, []
        self.gate.note("POST", PATH, [(status, taken.seconds) for taken, status in batch])
        for taken, status in batch:
            taken.answer(status, b'{"id":"%s","accepted":true}' % taken.message.id.encode())


class _Nobody:
    """Where uvicorn wakes an application that waits for more of a body."""

    def set(self) -> None:
        """Nobody waits."""


class Taken:
    """A report that is under way on a connection, with what uvicorn knows of every request."""

    __slots__ = (
        "_began",
        "_connection",
        "_express",
        "body",
        "disconnected",
        "keep_alive",
        "live",
        "message",
        "message_event",
        "more_body",
        "report",
        "response_complete",
    )

    def __init__(
        self,
        express: Express,
        connection: Connection,
        message: ReportRequest,
        live: Live,
        report: Report,
    ) -> None:
        self._began = time.perf_counter()
        self._express, self._connection = express, connection
        self.message, self.live, self.report = message, live, report
        self.message_event, self.body = _Nobody(), bytearray()
        self.keep_alive, self.more_body = True, False
        self.response_complete = self.disconnected = False

    @property
    def seconds(self) -> float:
        """Since it came."""
        return time.perf_counter() - self._began

    def stored(self, outcome: Outcome) -> None:
        """Called by the writer, in the loop."""
        if outcome in ("new", "known"):
            self._express.accepted(self, 201 if outcome == "new" else 200)
        else:
            self._express.explain(self, outcome)

    def answer(self, status: int, body: bytes, more: Headers = ()) -> None:
        """Send the answer; the connection may then carry the next request."""
        self.response_complete = True
        self._connection.answer(self, status, body, more)
