"""What a monitor may know: how many requests, how long, what was refused, what waits.

Labels are methods, route templates, statuses and error codes: no metric is about a token, an
address, a deployment or an output.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from panda_mdp.protocol.server.writer import ReportWriter

TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """One server's counters, in a registry of its own."""

    def __init__(self, writer: ReportWriter, ready: Callable[[], bool]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "panda_mdp_requests",
            "Requests by method, route and status.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "panda_mdp_request_seconds",
            "Seconds from the request's header to the end of the answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._refusals = Counter(
            "panda_mdp_refusals",
            "Requests that were refused, by error code.",
            ("code",),
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)
        self._registry.register(_Now(writer, ready))

    def requests(self, method: str, route: str, answered: Sequence[tuple[int, float]]) -> None:
        """Count requests that have been answered: the status and the seconds of each."""
        for status, number in Counts(status for status, _ in answered).items():
            self._requests.labels(method, route, str(status)).inc(number)
        observe = self._seconds.labels(route).observe
        for _, seconds in answered:
            observe(seconds)

    def refusal(self, code: str) -> None:
        """Count a refusal."""
        self._refusals.labels(code).inc()

    def text(self) -> bytes:
        """All of it, in Prometheus's text format."""
        return generate_latest(self._registry)


class _Now(Collector):
    """What is read when somebody asks."""

    def __init__(self, writer: ReportWriter, ready: Callable[[], bool]) -> None:
        self._writer = writer
        self._ready = ready

    def collect(self) -> Iterable[Metric]:
        """The queue of reports and what has become of it."""
        writer = self._writer
        for name, words, value in (
            ("panda_mdp_reports_waiting", "Reports that wait for the disk.", writer.waiting),
            ("panda_mdp_ready", "1 where the database answers.", int(self._ready())),
        ):
            yield GaugeMetricFamily(name, words, value)
        for name, words, value in (
            ("panda_mdp_reports_stored", "Reports stored since the start.", writer.stored),
            ("panda_mdp_commits", "Transactions that stored reports.", writer.commits),
            ("panda_mdp_batches_failed", "Batches that were not stored.", writer.failed),
        ):
            yield CounterMetricFamily(name, words, value)
