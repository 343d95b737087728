"""Many clients of a server in one process, without an HTTP library: open loop, closed loop, raw.

A library would cost more than the server does. What is here speaks just enough HTTP/1.1: requests
are bytes that were made before, answers have a content-length.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

LATE = -1
"""The status of a request that got no answer."""


def request_bytes(
    method: str, path: str, token: str = "", body: bytes = b"", *headers: str
) -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", *headers]
    if token:
        lines.append(f"authorization: Bearer {token}")
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True, slots=True)
class Told:
    """A report that a client makes: no two have the same user and output, so that the export,
    which has no ids, shows each one of them."""

    id: str
    user: str
    output: int
    request: bytes


def make_reports(
    count: int, deployment: str, tokens: Sequence[str], outputs: Sequence[int], first: int = 0
) -> list[Told]:
    """Reports number first .. first + count: each user and output once."""
    if first + count > len(tokens) * len(outputs):
        msg = f"{first + count} reports need as many pairs of {len(tokens)} users and outputs"
        raise ValueError(msg)
    made = []
    for number in range(first, first + count):
        token = tokens[number % len(tokens)]
        output = outputs[number // len(tokens)]
        key = str(uuid.uuid4())
        body = b'{"id":"%s","output":%d}' % (key.encode(), output)
        path = f"/v1/deployments/{deployment}/reports"
        made.append(
            Told(key, token.split("_")[1], output, request_bytes("POST", path, token, body))
        )
    return made


@dataclass
class Timed:
    """When requests were due and answered, in seconds from the start, and with which status."""

    due: np.ndarray
    answered: np.ndarray
    status: np.ndarray
    sent: np.ndarray
    began: float = 0.0
    """The start by the wall clock."""

    @property
    def latency(self) -> np.ndarray:
        """Seconds from when a request was due, whether or not a connection was free for it."""
        return self.answered - self.due


class _Line(asyncio.Protocol):
    """A connection that is kept alive and carries one request at a time."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.busy_with = LATE
        self._got = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.crowd.free.append(self)

    def data_received(self, data: bytes) -> None:
        got = self._got = self._got + data
        end = got.find(b"\r\n\r\n")
        if end < 0:
            return
        at = got.find(b"content-length: ", 0, end)
        length = int(got[at + 16 : got.find(b"\r\n", at)])
        if len(got) < end + 4 + length:
            return
        self._got = b""
        self.crowd.answered(self, int(got[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        self.crowd.lost(self)


class Crowd:
    """Requests sent when they are due, over however many connections are free (open loop).

    A request that finds no free connection waits, and its latency counts from when it was due, so
    that a stall of the server is seen by all that fall into it.
    """

    def __init__(self, host: str, port: int, connections: int) -> None:
        self.host, self.port, self.connections = host, port, connections
        self.free: deque[_Line] = deque()
        self._waiting: deque[int] = deque()
        self._requests: Sequence[bytes] = ()
        self._began = 0.0
        self._left = 0
        self.broken = 0
        self._done: asyncio.Event

    async def open(self) -> None:
        """Connect."""
        loop = asyncio.get_running_loop()
        for _ in range(self.connections):
            await loop.create_connection(lambda: _Line(self), self.host, self.port)

    async def run(self, requests: Sequence[bytes], due: np.ndarray, patience_s: float) -> Timed:
        """Send request n at due[n] seconds; returns when all are answered, or patience ends."""
        self._requests, self._left = requests, len(requests)
        self.times = Timed(
            due,
            np.full(len(requests), np.inf),
            np.full(len(requests), LATE),
            np.full(len(requests), np.inf),
            time.time() + 0.05,
        )
        self._done = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._began = loop.time() + 0.05
        when, number = due.tolist(), 0
        while number < len(when):
            now = loop.time() - self._began
            while number < len(when) and when[number] <= now:
                self._waiting.append(number)
                number += 1
            self._send()
            await asyncio.sleep(0.001)
        try:
            await asyncio.wait_for(self._done.wait(), patience_s)
        except TimeoutError:
            print(f"{self._left} requests were not answered")
        return self.times

    def _send(self) -> None:
        waiting, free = self._waiting, self.free
        while waiting and free:
            line = free.popleft()
            number = waiting.popleft()
            line.busy_with = number
            self.times.sent[number] = asyncio.get_running_loop().time() - self._began
            line.transport.write(self._requests[number])

    def answered(self, line: _Line, status: int) -> None:
        number, line.busy_with = line.busy_with, LATE
        self.times.answered[number] = asyncio.get_running_loop().time() - self._began
        self.times.status[number] = status
        self.free.append(line)
        self._left -= 1
        if self._waiting:
            self._send()
        if not self._left:
            self._done.set()

    def lost(self, line: _Line) -> None:
        if line in self.free:
            self.free.remove(line)
        self.broken += 1

    async def close(self) -> None:
        """Hang up."""
        for line in list(self.free):
            line.transport.close()
        await asyncio.sleep(0.05)


class Wire:
    """One connection of a client that asks, waits for the answer and asks again."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: bytes, within_s: float = 30.0) -> tuple[int, bytes]:
        """Status and body; OSError, EOFError or TimeoutError where the connection broke."""
        try:
            async with asyncio.timeout(within_s):
                if self._writer is None:
                    self._reader, self._writer = await asyncio.open_connection(self.host, self.port)
                self._writer.write(request)
                await self._writer.drain()
                return await read_answer(self._reader)  # type: ignore[arg-type]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hang up; the next request connects anew."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of the next answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    while head[9:12] == b"100":
        head = await reader.readuntil(b"\r\n\r\n")
    headers = {}
    for line in head.split(b"\r\n")[1:-2]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    status = int(head[9:12])
    if b"content-length" in headers:
        body = await reader.readexactly(int(headers[b"content-length"]))
    elif headers.get(b"transfer-encoding") == b"chunked":
        body = await _read_chunks(reader)
    else:
        body = b""
    return status, body


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        part = await reader.readexactly(size + 2)
        if size == 0:
            return b"".join(parts)
        parts.append(part[:-2])


@dataclass
class Export:
    """All that a deployment's export has shown, read piece by piece."""

    pairs: dict[tuple[str, int], int] = field(default_factory=dict)
    """How often each user and output is there."""
    at: set[str] = field(default_factory=set)
    last: int = 0

    def add(self, lines: bytes) -> None:
        """Take in the next lines, whose numbers must rise."""
        for line in lines.splitlines():
            report = json.loads(line)
            if report["seq"] <= self.last:
                msg = "the export repeats a line"
                raise AssertionError(msg)
            self.last = report["seq"]
            pair = (report["user"], report["output"])
            self.pairs[pair] = self.pairs.get(pair, 0) + 1
            self.at.add(report["at"])
