"""What surrounds every route: who asks and how often, the access log, and what nobody expected.

Plain ASGI middleware. It authenticates and counts requests against the token (or the address, where
there is no valid token); nothing of a body is read here. Whatever a route did not catch becomes an
answer that says nothing about the request.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from panda_mdp.protocol.server.auth import Token, TokenBook, parse, unauthorised
from panda_mdp.protocol.server.counters import Metrics
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
access_log = logging.getLogger("panda_mdp.access")
server_log = logging.getLogger("panda_mdp.server")

MOST_BUCKETS = 100_000
ENROL = "/v1/enrol"
PROBES = frozenset({"/healthz", "/readyz"})
PAGE = 64 << 10
"""A body of so many bytes counts as a request of its own."""
NO_TOKEN = unauthorised("this needs a token, and the request has none")
_BAD_FORM = unauthorised("the Authorization header has not the form Bearer pmt_<id>_<secret>")
ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


class Buckets:
    """Token buckets: `rate` requests per second on average, `burst` at once.

    >>> buckets = Buckets(rate=2.0, burst=2.0)
    >>> [buckets.take("a", now=0.0), buckets.take("a", now=0.0), buckets.take("a", now=0.0)]
    [0.0, 0.0, 0.5]
    >>> buckets.take("a", now=0.5), buckets.take("b", now=0.5)
    (0.0, 0.0)
    """

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = burst
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, key: str, now: float, cost: float = 1.0) -> float:
        """0 and so many requests less, or the seconds until there are as many."""
        left, since = self._left.get(key, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.rate)
        if left < cost:
            self._left[key] = (left, now)
            return (cost - left) / self.rate
        if len(self._left) >= MOST_BUCKETS:
            self._forget(now)
        self._left[key] = (left - cost, now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Drop those that are full again; if all are in use, all start afresh."""
        full = self.burst / self.rate
        self._left = {key: entry for key, entry in self._left.items() if now - entry[1] < full}
        if len(self._left) >= MOST_BUCKETS:
            self._left.clear()


class Gate:
    """Everything that happens before a route and after it."""

    def __init__(
        self, app: App, book: TokenBook, settings: Settings, metrics: Metrics | None = None
    ) -> None:
        self.app = app
        self.book = book
        self.metrics = metrics
        self.settings = settings
        self._tokens = Buckets(settings.token_rate, settings.token_burst)
        self._addresses = Buckets(settings.address_rate, settings.address_burst)
        self._lookups = Buckets(10 * settings.address_rate, 10 * settings.address_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0
        state = scope.setdefault("state", {})

        async def answer(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *ALWAYS]}
            await send(message)

        try:
            await self._serve(scope, receive, answer)
        except Failure as failure:
            state["code"] = failure.code
            await refuse(failure, answer)
        except (ClientDisconnect, asyncio.CancelledError):
            status = 499
        except Exception as error:
            unexpected = failure_of(error)
            state["code"] = unexpected.code
            if status == 0:
                await refuse(unexpected, answer)
        finally:
            if "room" in state:
                state["room"].give_back(state["taken"])
            # The template and never the path: names in a path could be anything.
            route = getattr(scope.get("route"), "path", "") or "-"
            address = f" {_address(scope)}" if self.settings.log_addresses else ""
            answered = [(status, time.perf_counter() - began)]
            self.note(_method(scope), route, answered, state.get("code"), address)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            # Asked by machines all the time, from where everybody's requests may come too.
            await self.app(scope, receive, send)
            return
        token, failure = await self._who(scope)
        self._count(scope, token)
        state = scope["state"]
        state["token"], state["refusal"] = token, failure
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            if token is None and scope["path"] != ENROL:
                # Nobody without a token, or an invitation to one, changes anything.
                raise failure or NO_TOKEN
            length = _length(scope)
            if token is not None and length > PAGE and token.role == "reporter":
                # A long body counts as many short ones.
                more = min(length / PAGE, self.settings.token_burst - 1)
                _limit(self._tokens.take(token.id, time.monotonic(), more))
        await self.app(scope, receive, send)

    async def _who(self, scope: Scope) -> tuple[Token | None, Failure | None]:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if not given:
            return None, NO_TOKEN
        parts = parse(given[0]) if len(given) == 1 else None
        if parts is None:
            return None, _BAD_FORM
        token_id, secret = parts
        token = self.book.cached(token_id)
        if token is None:
            # Guessing costs the database a question each, so there are only so many.
            _limit(self._lookups.take(_address(scope), time.monotonic()))
            token = await run_in_threadpool(self.book.fetch, token_id)
        try:
            return self.book.check(token, secret), None
        except Failure as failure:
            return None, failure

    def known(self, headers: Sequence[tuple[bytes, bytes]]) -> Token | None:
        """The valid token of a request, if that is known without asking the store."""
        given = [value for name, value in headers if name == b"authorization"]
        parts = parse(given[0]) if len(given) == 1 else None
        token = None if parts is None else self.book.cached(parts[0])
        if parts is None or token is None:
            return None
        try:
            return self.book.check(token, parts[1])
        except Failure:
            return None

    def spare(self, token: Token) -> bool:
        """Count a request, unless it comes too early."""
        return self._tokens.take(token.id, time.monotonic()) == 0

    def _count(self, scope: Scope, token: Token | None) -> None:
        now = time.monotonic()
        if token is not None:
            _limit(self._tokens.take(token.id, now))
        else:
            _limit(self._addresses.take(_address(scope), now))

    def note(
        self,
        method: str,
        route: str,
        answered: Sequence[tuple[int, float]],
        code: str | None = None,
        address: str = "",
    ) -> None:
        """Count requests and log them: the status and the seconds of each."""
        if self.metrics is not None:
            self.metrics.requests(method, route, answered)
            if code is not None:
                self.metrics.refusal(code)
        if not access_log.isEnabledFor(logging.INFO):
            return
        fields = [
            {"method": method, "route": route, "status": status, "ms": round(1e3 * seconds, 1)}
            for status, seconds in answered
        ]
        lines = [
            f"{method} {route} {status} {1e3 * seconds:.1f} ms{address}"
            for status, seconds in answered
        ]
        access_log.info("%s", "\n".join(lines), extra={"requests": fields})


def _length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:12])
    return 0


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _limit(wait: float) -> None:
    """Refuse a request that comes too early."""
    if wait > 0:
        seconds = max(1, math.ceil(wait))
        raise Failure(
            "rate_limited",
            "there were too many requests in a short time",
            f"wait {seconds} s",
            {"retry-after": str(seconds)},
        )


INTERNAL = Failure(
    "internal", "the server made a mistake", "try again; the operator finds it in the server's log"
)


NO_DATABASE = Failure(
    "unavailable", "the database does not answer", "try again", {"retry-after": "2"}
)


def failure_of(error: Exception) -> Failure:
    """What is answered to something that nobody expected. What it was is for the log alone."""
    if isinstance(error, OperationalError | PoolTimeoutError):
        server_log.error("the database does not answer: %s", type(error).__name__)
        return NO_DATABASE
    server_log.error("unhandled %s\n%s", type(error).__name__, stack_of(error))
    return INTERNAL


async def refuse(failure: Failure, send: Send) -> None:
    """Send a refusal."""
    more = [(name.encode(), value.encode()) for name, value in failure.headers.items()]
    await _send_json(failure.status, failure.body, send, more)


async def _send_json(
    status: int, body: bytes, send: Send, more: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def stack_of(error: BaseException) -> str:
    """Where an error came from, without its message, which may hold a value."""
    return "".join(
        f"  {frame.filename}:{frame.lineno} {frame.name}\n"
        for frame in traceback.extract_tb(error.__traceback__)
    )


def _method(scope: Scope) -> str:
    """The method, if it is one of HTTP's: a sender may write anything there."""
    method = str(scope["method"])
    return method if method in _METHODS else "OTHER"


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})
