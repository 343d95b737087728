"""The gate: bodies, rates, times, errors and the log, on a small application of its own."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pydantic import TypeAdapter
from sqlalchemy.exc import OperationalError
from starlette.requests import Request

from panda_mdp.protocol.messages.deployments import ReportRequest
from panda_mdp.protocol.messages.service import ErrorBody
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.app import create_app
from panda_mdp.protocol.server.auth import Token, TokenBook
from panda_mdp.protocol.server.context import Settings
from panda_mdp.protocol.server.failures import Failure, parse
from panda_mdp.protocol.server.gate import Buckets, Gate
from panda_mdp.protocol.server.routes import read_body
from panda_mdp.protocol.server.store.database import Store

Message = MutableMapping[str, Any]
Endpoint = Callable[[Message, bytes], Awaitable[bytes]]
HIDDEN = "41.902782,12.496366"


class Asked(TokenBook):
    """A book that counts how often the database is asked."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.asked: list[str] = []

    def fetch(self, token_id: str) -> Token | None:
        self.asked.append(token_id)
        return super().fetch(token_id)


class Harness:
    """A gate around an endpoint, called without a network."""

    def __init__(
        self, store: Store, endpoint: Endpoint, settings: Settings, most_bytes: int
    ) -> None:
        self.store = store
        self.book = TokenBook(store)
        self.token = self.book.make("reporter")[0].token
        self.endpoint = endpoint
        self.settings = settings
        self.most_bytes = most_bytes
        self.gate = Gate(self._app, self.book, settings)

    async def _app(self, scope: Message, receive: Any, send: Any) -> None:
        body = b""
        if scope["method"] == "POST":
            body = await read_body(Request(scope, receive), cast(Any, self), self.most_bytes)
        scope["route"] = type("Route", (), {"path": "/template/{name}"})()
        found = await self.endpoint(scope, body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": found})

    def call(
        self,
        method: str = "POST",
        parts: tuple[bytes, ...] = (b"{}",),
        *,
        path: str = "/v1/deployments/x/other",
        token: str | None = "",
        length: int | None = None,
        address: str = "10.0.0.1",
        more: list[tuple[bytes, bytes]] | None = None,
    ) -> tuple[int, dict[bytes, bytes], Any]:
        given = self.token if token == "" else token
        headers = [] if given is None else [(b"authorization", f"Bearer {given}".encode())]
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        scope: Message = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": headers + (more or []),
            "client": (address, 1),
        }
        left = list(parts)
        sent: list[Message] = []

        async def receive() -> Message:
            if not left:
                await asyncio.sleep(60)
            part = left.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(left) or part == b""}

        async def send(message: Message) -> None:
            sent.append(message)

        asyncio.run(self.gate(scope, receive, send))
        headers_sent = dict(sent[0]["headers"])
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], headers_sent, json.loads(body)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    store = Store.create(str(tmp_path / "panda.db"))

    async def length(scope: Message, body: bytes) -> bytes:
        return str(len(body)).encode()

    def build(endpoint: Endpoint = length, most_bytes: int = 1 << 16, **settings: Any) -> Harness:
        return Harness(store, endpoint, Settings(**settings), most_bytes)

    yield build
    store.close()


def test_a_body_within_the_limit_arrives(make: Callable[..., Harness]) -> None:
    harness = make(most_bytes=10)
    assert harness.call(parts=(b"12345", b"67890"))[0::2] == (200, 10)
    assert harness.call(parts=(b"1234567890",))[0::2] == (200, 10)


@pytest.mark.parametrize("length", [11, 10**30])
def test_a_declared_body_beyond_the_limit_is_not_read(
    make: Callable[..., Harness], length: int
) -> None:
    status, headers, body = make(most_bytes=10).call(parts=(), length=length)
    assert (status, body["error"]["code"]) == (413, "too_large")
    assert (b"connection" in headers) == (length > 10**9)


@pytest.mark.parametrize("parts", [(b"12345678901",), (b"123456", b"123456"), (b"1",) * 11])
def test_an_undeclared_body_beyond_the_limit_is_cut_off(
    make: Callable[..., Harness], parts: tuple[bytes, ...]
) -> None:
    status, _, body = make(most_bytes=10).call(parts=parts)
    assert (status, body["error"]["code"]) == (413, "too_large")


def test_a_body_that_does_not_come_is_given_up(make: Callable[..., Harness]) -> None:
    status, headers, body = make(body_seconds=0.05).call(parts=(b"{", b""))
    assert (status, body["error"]["code"]) == (422, "invalid")
    assert headers[b"connection"] == b"close"


def test_nobody_without_a_token_changes_anything(make: Callable[..., Harness]) -> None:
    async def never(scope: Message, body: bytes) -> bytes:
        raise AssertionError

    harness = make(never)
    for token in (None, "nonsense", "pmt_000000000000_" + "a" * 43):
        status, headers, body = harness.call(token=token, parts=())
        assert (status, body["error"]["code"]) == (401, "unauthorised")
        assert headers[b"www-authenticate"] == b"Bearer"


def test_a_token_has_a_rate(make: Callable[..., Harness]) -> None:
    harness = make(token_rate=0.5, token_burst=2, address_burst=1)
    assert [harness.call()[0] for _ in range(3)] == [200, 200, 429]
    status, headers, body = harness.call()
    assert (status, body["error"]["code"]) == (429, "rate_limited")
    assert 1 <= int(headers[b"retry-after"]) <= 2
    other = harness.book.make("reporter")[0].token
    assert harness.call(token=other)[0] == 200


def test_an_address_without_a_token_has_a_rate(make: Callable[..., Harness]) -> None:
    harness = make(address_rate=1e-3, address_burst=2)
    assert [harness.call("GET", token=None)[0] for _ in range(3)] == [200, 200, 429]
    # A guessed token counts against the address, too.
    assert harness.call("GET", token="pmt_000000000000_" + "a" * 43)[0] == 429
    assert harness.call("GET", token=None, address="10.0.0.2")[0] == 200
    assert harness.call("GET")[0] == 200


def test_guessing_tokens_does_not_keep_the_database_busy(make: Callable[..., Harness]) -> None:
    harness = make(address_rate=1e-3, address_burst=1)
    book = harness.gate.book = Asked(harness.store)
    for n in range(30):
        harness.call("GET", token=f"pmt_{n:012x}_" + "a" * 43)
    assert len(book.asked) == 10


def test_a_database_that_is_gone_is_said(make: Callable[..., Harness]) -> None:
    async def fail(scope: Message, body: bytes) -> bytes:
        raise OperationalError("SELECT " + HIDDEN, {}, RuntimeError(HIDDEN))

    status, headers, body = make(fail).call()
    assert (status, body["error"]["code"]) == (503, "unavailable")
    assert b"retry-after" in headers and HIDDEN not in json.dumps(body)


def test_buckets_are_bounded() -> None:
    buckets = Buckets(rate=1.0, burst=1.0, most=1_000)
    for n in range(1_010):
        buckets.take(str(n), now=0.0)
    assert len(buckets) <= 1_000
    for n in range(1_000):
        buckets.take(f"later {n}", now=100.0 + n)
    assert len(buckets) <= 1_000


def test_a_mistake_tells_nothing(
    make: Callable[..., Harness], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(scope: Message, body: bytes) -> bytes:
        raise ValueError(HIDDEN + body.decode())

    with caplog.at_level(logging.DEBUG):
        status, _, body = make(fail).call(parts=(HIDDEN.encode(),))
    assert (status, body["error"]["code"]) == (500, "internal")
    assert HIDDEN not in json.dumps(body)
    assert "ValueError" in caplog.text and "test_gate.py" in caplog.text
    assert HIDDEN not in caplog.text


def test_the_log_has_templates_and_nothing_else(
    make: Callable[..., Harness], caplog: pytest.LogCaptureFixture
) -> None:
    harness = make()
    with caplog.at_level(logging.INFO, "panda_mdp.access"):
        harness.call(path=f"/v1/deployments/{HIDDEN}/other")
        harness.call(method="GET\r\nforged", path="/x")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("POST /template/{name} 200 ")
    assert lines[1].startswith("OTHER ")
    for hidden in (HIDDEN, harness.token, "10.0.0.1", "forged"):
        assert hidden not in caplog.text


def test_addresses_are_logged_where_asked_for(
    make: Callable[..., Harness], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "panda_mdp.access"):
        make(log_addresses=True).call()
    assert "10.0.0.1" in caplog.text


def test_answers_carry_safety_headers(make: Callable[..., Harness]) -> None:
    headers = make().call()[1]
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"referrer-policy"] == b"no-referrer"


def test_envelopes_are_messages_of_the_protocol() -> None:
    failure = Failure("conflict", "a" * 5_000, "b")
    found = ErrorBody.model_validate_json(failure.body)
    assert found.error.code == "conflict" and len(found.error.message) < 2_000


def test_validation_errors_name_fields_and_rules_but_no_values() -> None:
    body = json.dumps(
        {"id": HIDDEN, "version": -777, "output": HIDDEN, HIDDEN: 1, "latitude": 41.902782}
    )
    with pytest.raises(Failure) as caught:
        parse(TypeAdapter(ReportRequest), body.encode())
    text = caught.value.body.decode()
    for name in ("id", "version", "output", "latitude"):
        assert name in text
    for hidden in (HIDDEN, "777", "41.9"):
        assert hidden not in text


@pytest.mark.parametrize("more", ["authorization", "Authorization"])
def test_two_tokens_are_none(make: Callable[..., Harness], more: str) -> None:
    harness = make()
    given = (more.lower().encode(), f"Bearer {harness.token}".encode())
    assert harness.call(more=[given])[0] == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_may_be_written_as_one_likes(make: Callable[..., Harness], scheme: str) -> None:
    harness = make()
    given = (b"authorization", f"{scheme} {harness.token}".encode())
    assert harness.call(token=None, more=[given])[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"id": 1, "id": 1}',
        b'{"a": {"b": 1, "c": 2, "b": 3}}',
        b'[{"a": 1}, {"a": 1, "\\u0061": 2}]',
    ],
)
def test_a_field_is_given_once(body: bytes) -> None:
    anything: TypeAdapter[Any] = TypeAdapter(Any)
    with pytest.raises(Failure, match="twice"):
        parse(anything, body)
    assert parse(anything, b'[{"a": 1}, {"a": 1}]') == [{"a": 1}, {"a": 1}]


def test_traces_and_durations_name_the_route_and_nobody(
    make: Callable[..., Harness], tmp_path: Path
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, reader, provider = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    named = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert make().call(more=[(b"traceparent", named)])[0] == 200
    (span,) = spans.get_finished_spans()
    assert span.name == "POST /template/{name}"
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/template/{name}",
        "http.response.status_code": 200,
    }
    # The client's own trace would join its requests.
    assert span.parent is None and f"{span.context.trace_id:032x}".encode() not in named
    found = reader.get_metrics_data()
    assert found is not None and "http.server.request.duration" in found.to_json()
    # Nor does the framework add any of its own.
    spans.clear()
    SigningKey.create(tmp_path / "key")
    store = Store.create(str(tmp_path / "panda.db"))
    transport = httpx.ASGITransport(create_app(store, tmp_path / "key"))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            headers = {"traceparent": named.decode()}
            return await client.get("/v1/deployments?at=41.9", headers=headers)

    assert asyncio.run(ask()).status_code == 200
    (span,) = spans.get_finished_spans()
    assert span.parent is None and "41.9" not in span.to_json()
    assert dict(span.attributes or {})["http.route"] == "/v1/deployments"
    again = reader.get_metrics_data()
    scopes = again.resource_metrics[0].scope_metrics if again else []
    assert [each.scope.name for each in scopes] == ["panda_mdp"]
