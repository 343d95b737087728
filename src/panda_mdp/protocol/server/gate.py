"""What surrounds every route: who asks and how often, the log, metrics, and what nobody expected.

Plain ASGI middleware. It authenticates and counts requests against the token (or the address, where
there is no valid token); nothing of a body is read here. Whatever a route did not catch becomes an
answer that says nothing about the request. Labels and lines are of methods, route templates,
statuses and error codes: nothing is about a token, an address, a deployment or an output.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from panda_mdp.protocol.server.auth import Token, TokenBook, parse, unauthorised
from panda_mdp.protocol.server.context import Settings
from panda_mdp.protocol.server.failures import Failure, stack_of, unavailable
from panda_mdp.protocol.server.writer import ReportWriter

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
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Buckets:
    """Token buckets: `rate` requests per second on average, `burst` at once.

    >>> buckets = Buckets(rate=2.0, burst=2.0)
    >>> [buckets.take("a", now=0.0), buckets.take("a", now=0.0), buckets.take("a", now=0.0)]
    [0.0, 0.0, 0.5]
    >>> buckets.take("a", now=0.5), buckets.take("b", now=0.5)
    (0.0, 0.0)
    """

    def __init__(self, rate: float, burst: float, most: int = MOST_BUCKETS) -> None:
        self.rate = rate
        self.burst = burst
        self.most = most
        self._left: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._left)

    def take(self, key: str, now: float, cost: float = 1.0) -> float:
        """0 and so many requests less, or the seconds until there are as many."""
        left, since = self._left.get(key, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.rate)
        if left < cost:
            self._left[key] = (left, now)
            return (cost - left) / self.rate
        if len(self._left) >= self.most:
            self._forget(now)
        self._left[key] = (left - cost, now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Drop those that are full again; if all are in use, all start afresh."""
        full = self.burst / self.rate
        self._left = {key: entry for key, entry in self._left.items() if now - entry[1] < full}
        if len(self._left) >= self.most:
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
                message = {**message, "headers": [*message["headers"], *_ALWAYS]}
            await send(message)

        try:
            await self._serve(scope, receive, answer)
        except (ClientDisconnect, asyncio.CancelledError):
            status = 499
        except Exception as error:
            failure = failure_of(error)
            state["code"] = failure.code
            if status == 0:
                await refuse(failure, answer)
        finally:
            if "room" in state:
                state["room"].give_back(state["taken"])
            self._note(scope, status, time.perf_counter() - began)

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

    def _count(self, scope: Scope, token: Token | None) -> None:
        now = time.monotonic()
        if token is not None:
            _limit(self._tokens.take(token.id, now))
        else:
            _limit(self._addresses.take(_address(scope), now))

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request and log it."""
        # The template and never the path: names in a path could be anything, a method too.
        route = getattr(scope.get("route"), "path", "") or "-"
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        if self.metrics is not None:
            self.metrics.count(method, route, status, seconds, scope["state"].get("code"))
        if access_log.isEnabledFor(logging.INFO):
            fields = {"method": method, "route": route, "status": status}
            fields["ms"] = round(1e3 * seconds, 1)
            address = f" {_address(scope)}" if self.settings.log_addresses else ""
            access_log.info(
                "%s %s %s %.1f ms%s",
                *(method, route, status, 1e3 * seconds, address),
                extra={"request": fields},
            )


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


def failure_of(error: Exception) -> Failure:
    """What is answered to an error. What it was is for the log alone, if nobody expected it."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, OperationalError | PoolTimeoutError):
        server_log.error("the database does not answer: %s", type(error).__name__)
        return unavailable("the database does not answer", seconds=2)
    server_log.error("unhandled %s\n%s", type(error).__name__, stack_of(error))
    remedy = "try again; the operator finds it in the server's log"
    return Failure("internal", "the server made a mistake", remedy)


async def refuse(failure: Failure, send: Send) -> None:
    """Send a refusal."""
    headers = failure.headers | {
        "content-type": "application/json",
        "content-length": str(len(failure.body)),
    }
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": failure.status, "headers": pairs})
    await send({"type": "http.response.body", "body": failure.body})


class Metrics(Collector):
    """One server's counters, in a registry of its own."""

    def __init__(self, writer: ReportWriter, ready: Callable[[], bool]) -> None:
        self._writer = writer
        self._ready = ready
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "panda_mdp_requests",
            "Requests by method, route and status.",
            ("method", "route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "panda_mdp_request_seconds",
            "Seconds from the request's header to the end of the answer.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._refusals = Counter(
            "panda_mdp_refusals",
            "Requests that were refused, by error code.",
            ("code",),
            registry=registry,
        )
        ProcessCollector(registry=registry)
        registry.register(self)

    def count(
        self, method: str, route: str, status: int, seconds: float, code: str | None = None
    ) -> None:
        """Count a request that has been answered, and why it was refused."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if code is not None:
            self._refusals.labels(code).inc()

    def text(self) -> bytes:
        """All of it, in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """The queue of reports and what has become of it, read when somebody asks."""
        writer = self._writer
        for gauge, words, value in (
            ("panda_mdp_reports_waiting", "Reports that wait for the disk.", writer.waiting),
            ("panda_mdp_ready", "1 where the database reads and writes.", int(self._ready())),
        ):
            yield GaugeMetricFamily(gauge, words, value)
        for counter, words, value in (
            ("panda_mdp_reports_stored", "Reports stored since the start.", writer.stored),
            ("panda_mdp_commits", "Transactions that stored reports.", writer.commits),
            ("panda_mdp_batches_failed", "Batches that were not stored.", writer.failed),
        ):
            yield CounterMetricFamily(counter, words, value)


class JsonLines(logging.Formatter):
    """Time, level, logger and message, and for requests method, route, status and milliseconds."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(line | getattr(record, "request", {}))
