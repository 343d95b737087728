"""HTTP as this server speaks it: uvicorn's, with bounds on headers, on waiting and on connections.

uvicorn's parser has none of its own: a header of 80 MB costs seconds of processor time, and a
connection that never ends its header stays for ever.
"""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from collections import Counter

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from panda_mdp.base.text import Facts
from panda_mdp.protocol.server.context import Settings


def bounded(settings: Settings, proxy: str = "") -> type[HttpToolsProtocol]:
    """A protocol class with these settings' bounds; proxies may have as many connections as all."""
    open_connections: Counter[str] = Counter()
    proxies = {part.strip() for part in proxy.split(",")}

    class Bounded(HttpToolsProtocol):
        """One connection."""

        _head = 0
        """Bytes of a header that is not complete yet."""
        _timer: TimerHandle | None = None
        """While a header is awaited."""
        _address = ""

        def connection_made(self, transport: BaseTransport) -> None:
            super().connection_made(transport)  # type: ignore[arg-type]
            self._await_header()
            peer = transport.get_extra_info("peername")
            self._address = peer[0] if peer else ""
            open_connections[self._address] += 1
            mine = open_connections[self._address]
            if proxies & {"*", self._address}:
                mine = 0
            if len(self.connections) > settings.connections or mine > settings.address_connections:
                self._refuse(b"503 Service Unavailable")

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            open_connections[self._address] -= 1
            if not open_connections[self._address]:
                del open_connections[self._address]
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._head += len(data) if self._timer is not None else 0
            if self._head > settings.header_bytes:
                self._refuse(b"431 Request Header Fields Too Large")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._await_header()

        def on_headers_complete(self) -> None:
            self._stop_waiting()
            super().on_headers_complete()

        def _await_header(self) -> None:
            if self._timer is None:
                late = b"408 Request Timeout"
                self._timer = self.loop.call_later(settings.header_seconds, self._refuse, late)

        def _stop_waiting(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            self._head = 0

        def _refuse(self, status: bytes) -> None:
            self._stop_waiting()
            if not self.transport.is_closing():
                self.transport.write(
                    b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                )
                self.transport.close()

    return Bounded


def options(settings: Settings, proxy: str = "") -> Facts:
    """What uvicorn is configured with; it believes what the proxies at some addresses forward."""
    return {
        "http": bounded(settings, proxy),
        "proxy_headers": bool(proxy),
        "forwarded_allow_ips": proxy or None,
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
