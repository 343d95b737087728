"""One token that tries everything at once: `abuse`, in a process of its own.

Reports beyond its quota, anchor sets of 6.9 MB, tables of 400 MB that it may not publish, headers
of 80 MB, and bodies that never end. Used by `long_anchors.py` and `protocol_load.py --abuse`.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress

ANCHORS = 990_000
"""Anchors of a set that has 6.9 MB as JSON."""


def anchors_body() -> bytes:
    """An anchor set as large as can be."""
    return json.dumps({"anchors": list(range(ANCHORS))}).encode()


def request(path: str, token: str, length: int, kind: str = "application/json") -> bytes:
    """The head of a POST."""
    lines = [f"POST {path} HTTP/1.1", "host: x", f"authorization: Bearer {token}"]
    lines += [f"content-type: {kind}", f"content-length: {length}", "connection: close", "", ""]
    return "\r\n".join(lines).encode()


def _reports(send: Callable[[bytes], None], token: str, deployment: str) -> None:
    body = b'{"id":"%s","output":5}' % str(uuid.uuid4()).encode()
    send(request(f"/v1/deployments/{deployment}/reports", token, len(body)) + body)


def abuse(host: str, port: int, token: str, deployment: str, until: float) -> None:
    """Everything at once, until a moment of the wall clock."""
    anchors = anchors_body()

    def send(data: bytes, pieces: int = 0) -> None:
        with suppress(OSError), socket.create_connection((host, port), timeout=10) as sock:
            sock.sendall(data)
            for _ in range(pieces):
                sock.sendall(b"x" * (1 << 20))
            sock.recv(64)

    def again(act: Callable[[], None], pause: float) -> None:
        while time.time() < until:
            act()
            time.sleep(pause)

    path = f"/v1/deployments/{deployment}/rounds/1/anchors"
    table = request("/v1/tables/x", token, 400 << 20, "application/octet-stream")
    ways: list[tuple[Callable[[], None], float]] = [
        (lambda: _reports(send, token, deployment), 0.02),
        (lambda: send(request(path, token, len(anchors)) + anchors), 0.4),
        (lambda: send(table, 400), 1.0),
        (lambda: send(b"GET / HTTP/1.1\r\nx: ", 80), 1.0),
        (lambda: send(request(path, token, 1000)), 1.0),
    ]
    threads = [threading.Thread(target=again, args=way) for way in ways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
