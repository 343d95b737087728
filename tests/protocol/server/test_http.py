"""Connections: long headers, slow headers, too many; on a small application of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from selectors import EVENT_READ, DefaultSelector
from typing import Any, cast

import pytest
import uvicorn
from protocol_servers import PATIENCE

from panda_mdp.protocol.server.context import Settings
from panda_mdp.protocol.server.http import options

SETTINGS = Settings(header_bytes=4_096, header_seconds=0.5, connections=4)


async def length(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    body = str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(SETTINGS) as number:
        yield number


@contextmanager
def serving(settings: Settings) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    given = {**options(settings), "lifespan": "off"}
    server = uvicorn.Server(uvicorn.Config(length, **given))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def connection(port: int) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)) as made:
        yield made


def all_of(sock: socket.socket) -> bytes:
    data = b""
    try:
        while part := sock.recv(65_536):
            data += part
    except ConnectionResetError:
        pass
    return data


def request(body: bytes = b"", *more: bytes) -> bytes:
    lines = [b"POST / HTTP/1.1", b"host: x", b"content-length: %d" % len(body), *more]
    return b"\r\n".join([*lines, b"", b""]) + body


def test_bodies_of_any_length_and_several_requests_pass(port: int) -> None:
    body = b"x" * 300_000
    with connection(port) as sock:
        sock.sendall(request(body) + request(body) + request(b"", b"connection: close"))
        answers = all_of(sock)
    assert answers.count(b"200 OK") == 3
    assert answers.count(b"\r\n\r\n300000") == 2


def test_a_header_without_end_is_cut_off(port: int) -> None:
    sent = 0
    with connection(port) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx: ")
        try:
            for _ in range(1_280):
                sock.sendall(b"a" * 65_536)
                sent += 65_536
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert b"200 OK" not in all_of(sock)
    # What fits into the sockets' buffers, of 80 MB.
    assert sent < 20_000_000


def test_a_header_that_is_a_little_too_long_is_said_so(port: int) -> None:
    with connection(port) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 5_000)
        assert all_of(sock).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("begun", [b"", b"G", b"GET / HTTP/1.1\r\nhost"])
def test_a_header_that_does_not_come_is_given_up(port: int, begun: bytes) -> None:
    with connection(port) as sock:
        sock.sendall(begun)
        assert all_of(sock).startswith(b"HTTP/1.1 408 ")


def test_a_second_header_that_does_not_come_is_given_up(port: int) -> None:
    with connection(port) as sock:
        sock.sendall(request(b"abc"))
        assert b"200 OK" in sock.recv(65_536)
        sock.sendall(b"GET / HT")
        assert all_of(sock).endswith(b"connection: close\r\n\r\n")


def test_connections_are_counted() -> None:
    with serving(replace(SETTINGS, header_seconds=PATIENCE)) as port, ExitStack() as opened:
        waiting = {opened.enter_context(connection(port)) for _ in range(6)}
        seen = opened.enter_context(DefaultSelector())
        for sock in waiting:
            seen.register(sock, EVENT_READ)
        while len(waiting) > 4:
            for key, _ in seen.select(PATIENCE):
                refused = cast("socket.socket", seen.unregister(key.fileobj).fileobj)
                waiting.remove(refused)
                assert all_of(refused).startswith(b"HTTP/1.1 503 ")
        # The others were not refused, and are served.
        for sock in waiting:
            sock.sendall(request(b"abc", b"connection: close"))
            assert all_of(sock).startswith(b"HTTP/1.1 200 ")
