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
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.util import find_spec
from ipaddress import ip_network

from cachetools import LRUCache
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from panda_mdp.protocol.server.auth import Token, TokenBook, parse, unauthorised
from panda_mdp.protocol.server.context import Settings
from panda_mdp.protocol.server.failures import Failure, failure_of, unavailable
from panda_mdp.protocol.server.writer import ReportWriter

access_log = logging.getLogger("panda_mdp.access")

MOST_BUCKETS = 100_000
ENROL = "/v1/enrol"
REPORTS = "/reports"
PROBES = frozenset({"/healthz", "/readyz"})
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
        self._left: LRUCache[str, tuple[float, float]] = LRUCache(most)

    def __len__(self) -> int:
        return len(self._left)

    def take(self, key: str, now: float) -> float:
        """0 and one request less, or the seconds until there is one."""
        left, since = self._left.get(key, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.rate)
        missing = max(0.0, 1.0 - left)
        self._left[key] = (left if missing else left - 1.0, now)
        return missing / self.rate

    def check(self, key: str) -> None:
        """Take one now, or refuse a request that comes too early."""
        wait = self.take(key, time.monotonic())
        if wait > 0:
            said = "there were too many requests in a short time", f"wait {math.ceil(wait)} s"
            raise unavailable(*said, wait, "rate_limited")


class Gate:
    """Everything that happens before a route and after it."""

    def __init__(
        self, app: ASGIApp, book: TokenBook, settings: Settings, metrics: Metrics | None = None
    ) -> None:
        self.app = app
        self.book = book
        self.metrics = metrics
        self.settings = settings
        self._tokens = Buckets(settings.token_rate, settings.token_burst)
        self._addresses = Buckets(settings.address_rate, settings.address_burst)
        self._enrolments = Buckets(settings.enrol_rate, settings.enrol_burst)
        self._trace = _telemetry()
        self._lookups = Buckets(10 * settings.address_rate, 10 * settings.address_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0
        state = scope.setdefault("state", {})

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_ALWAYS]}
            await send(message)

        try:
            # Probes are asked by machines all the time, from where others' requests may come too.
            if scope["path"] not in PROBES:
                await self._admit(scope)
            await self.app(scope, receive, answer)
        except (ClientDisconnect, asyncio.CancelledError):
            status = 499
        except Exception as error:
            # What was answered already, the application has seen to.
            if status == 0:
                failure = failure_of(error)
                state["code"] = failure.code
                await failure.response(scope, receive, answer)
        finally:
            self._note(scope, status, time.perf_counter() - began)

    async def _admit(self, scope: Scope) -> None:
        """Find out who asks, and refuse whoever asks too much."""
        token, refusal = await self._who(scope, Headers(scope=scope).getlist("authorization"))
        scope["state"].update(token=token, refusal=refusal)
        if scope["path"] == ENROL:
            self._enrolments.check(_network(scope))
        if token is not None:
            self._tokens.check(token.id)
            return
        self._addresses.check(_network(scope))
        nameless = scope["path"] == ENROL or scope["path"].endswith(REPORTS)
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and not nameless:
            # Nobody without a token, an invitation to one, or a report that needs none, changes
            # anything.
            raise refusal or NO_TOKEN

    async def _who(self, scope: Scope, given: list[str]) -> tuple[Token | None, Failure | None]:
        if not given:
            return None, NO_TOKEN
        parts = parse(given[0].encode("latin-1")) if len(given) == 1 else None
        if parts is None:
            return None, _BAD_FORM
        token_id, secret = parts
        token = self.book.cached(token_id)
        if token is None:
            # Guessing costs the database a question each, so there are only so many.
            self._lookups.check(_network(scope))
            token = await run_in_threadpool(self.book.fetch, token_id)
        try:
            return self.book.check(token, secret), None
        except Failure as failure:
            return None, failure

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request and log it."""
        # The template and never the path: names in a path could be anything, a method too.
        route = getattr(scope.get("route"), "path", "") or "-"
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        if self.metrics is not None:
            self.metrics.count(method, route, status, seconds, scope["state"].get("code"))
        self._trace(method, route, status, seconds)
        if access_log.isEnabledFor(logging.INFO):
            fields = {"method": method, "route": route, "status": status}
            fields["ms"] = round(1e3 * seconds, 1)
            address = f" {_address(scope)}" if self.settings.log_addresses else ""
            text = f"{method} {route} {status} {fields['ms']} ms{address}"
            access_log.info("%s", text, extra={"request": fields})


def _telemetry() -> Callable[[str, str, int, float], None]:
    """Spans and durations of requests for OpenTelemetry, where it is installed and set up.

    A span begins here: a trace that a client names would join the requests of a person.
    """
    if find_spec("opentelemetry") is None:
        return lambda *facts: None
    from opentelemetry import context, metrics, trace

    tracer = trace.get_tracer("panda_mdp")
    meter = metrics.get_meter("panda_mdp")
    duration = meter.create_histogram("http.server.request.duration", "s")

    def note(method: str, route: str, status: int, seconds: float) -> None:
        facts: dict[str, str | int] = {"http.request.method": method, "http.route": route}
        facts["http.response.status_code"] = status
        end = time.time_ns()
        began = end - round(1e9 * seconds)
        root = context.Context()
        tracer.start_span(f"{method} {route}", root, start_time=began, attributes=facts).end(end)
        duration.record(seconds, facts)

    return note


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _network(scope: Scope) -> str:
    """What limits are kept by: an address, or the network of a house, which has 2^64 of them."""
    address = _address(scope)
    if ":" not in address:
        return address
    try:
        return str(ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


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
        gauge = GaugeMetricFamily
        counter = CounterMetricFamily
        for kind, name, words, value in (
            (gauge, "reports_waiting", "Reports that wait for the disk.", writer.waiting),
            (gauge, "ready", "1 where the database reads and writes.", int(self._ready())),
            (counter, "reports_stored", "Reports stored since the start.", writer.stored),
            (counter, "commits", "Transactions that stored reports.", writer.commits),
            (counter, "batches_failed", "Batches that were not stored.", writer.failed),
        ):
            yield kind(f"panda_mdp_{name}", words, value)


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
