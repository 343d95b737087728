"""HTTP as this server speaks it: uvicorn's, with bounds on headers, on waiting and on connections.

uvicorn's parser has none of its own: a header of 80 MB costs seconds of processor time, and a
connection that never ends its header stays for ever. Reports may go a shorter way (`express.py`).
"""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from panda_mdp.protocol.server.express import Express, Headers, Taken
from panda_mdp.protocol.server.gate import ALWAYS
from panda_mdp.protocol.server.settings import Settings


def bounded(settings: Settings, express: Express | None = None) -> type[HttpToolsProtocol]:
    """A protocol class with these settings' bounds."""

    class Bounded(HttpToolsProtocol):
        """One connection."""

        _head = 0
        """Bytes of a header that is not complete yet."""
        _reading = True
        _waiting: TimerHandle | None = None
        _short: bytes | None = None
        """What has come of a body that may go the short way."""

        def connection_made(self, transport: BaseTransport) -> None:
            super().connection_made(transport)  # type: ignore[arg-type]
            if len(self.connections) > settings.connections:
                self._refuse(b"503 Service Unavailable")
                return
            self._await_more()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._head += len(data) if self._reading else 0
            super().data_received(data)
            if not self._reading and self._short is None:
                self._stop_waiting()
            elif self._waiting is None:
                self._await_more()
            if self._reading and self._head > settings.header_bytes:
                self._refuse(b"431 Request Header Fields Too Large")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._reading = True

        def on_headers_complete(self) -> None:
            self._reading = False
            self._head = 0
            if (
                express is not None
                and self.parser.get_method() == b"POST"
                and self.parser.get_http_version() == "1.1"
                and self.parser.should_keep_alive()
                and (self.cycle is None or self.cycle.response_complete)
                and express.may_take(self.url, self.headers)
            ):
                self._short = b""
                return
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if self._short is None:
                super().on_body(body)
            else:
                self._short += body

        def on_message_complete(self) -> None:
            if self._short is None or express is None:
                super().on_message_complete()
                return
            taken = express.take(self.url, self.headers, self._short, self)
            if taken is None:
                self._take_long_way()
                super().on_message_complete()
            else:
                self._short = None
                self.cycle = cast(Any, taken)

        def _take_long_way(self) -> None:
            body, self._short = self._short, None
            super().on_headers_complete()
            if body:
                super().on_body(body)

        def answer(self, taken: Taken, status: int, body: bytes, more: Headers = ()) -> None:
            """Send the answer to a report that went the short way."""
            if self.transport.is_closing():
                return
            lines = [STATUS_LINE[status]]
            for name, value in (*self.server_state.default_headers, *ALWAYS, *more):
                lines += (name, b": ", value, b"\r\n")
            if not taken.keep_alive:
                lines.append(b"connection: close\r\n")
            lines += (_PLAIN % len(body), body)
            self.transport.write(b"".join(lines))
            if not taken.keep_alive:
                self.transport.close()
            self.on_response_complete()

        def _await_more(self) -> None:
            self._waiting = self.loop.call_later(settings.header_seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            self._waiting = None
            if self._short is not None:
                # The application says how long it waits for a body.
                self._take_long_way()
                return
            self._refuse(b"408 Request Timeout")

        def _refuse(self, status: bytes) -> None:
            self._reading = True
            self._head = 0
            if not self.transport.is_closing():
                self.transport.write(
                    b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                )
                self.transport.close()

    return Bounded


_PLAIN = b"content-type: application/json\r\ncache-control: no-store\r\ncontent-length: %d\r\n\r\n"


def options(settings: Settings, express: Express | None = None) -> dict[str, Any]:
    """What uvicorn is configured with."""
    return {
        "http": bounded(settings, express),
        "access_log": False,
        "log_level": "warning",
        "log_config": None,
        "server_header": False,
        "lifespan": "on",
        "ws": "none",
        "timeout_graceful_shutdown": 10,
        "timeout_keep_alive": 30,
        "backlog": 2_048,
    }
