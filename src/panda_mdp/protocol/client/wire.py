"""Requests of a client: only messages travel, answers are bounded, redirects are not followed.

What is public is fetched without the token, over connections of its own, and without cookies, so
that fetching links nobody to anything but an address. A token goes to the server that it is for
and nowhere else. Files are fetched whole and resumed where they broke off.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError

from panda_mdp.errors import ConnectionLostError, ProtocolError, ServerError
from panda_mdp.protocol.messages.service import ErrorBody
from panda_mdp.protocol.messages.types import Message
from panda_mdp.version import __version__

LOOPBACK = re.compile(r"^(localhost|127(\.\d{1,3}){3}|::1)$")
PART = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
TOKEN = re.compile(r"^pmt_[0-9a-f]{12}_[A-Za-z0-9_-]{43}$")


@dataclass(frozen=True)
class Network:
    """How a server is reached, and for how long it is tried."""

    timeout_s: float = 30.0
    attempts: int = 4
    first_pause_s: float = 0.2
    """After a lost request; doubled each time."""
    longest_pause_s: float = 10.0
    most_bytes: int = 256 << 20
    """The longest answer in JSON that is read."""
    resumptions: int = 8
    """Of one file."""
    transport: httpx.BaseTransport | None = None
    """In place of the network."""
    pause: Callable[[float], None] = time.sleep


class Wire:
    """A server as a client sees it: `get` and `post` of messages, by path, parsed as the type of
    the answer.

    Its repr shows the address only.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        allow_plain_http: bool = False,
        network: Network | None = None,
    ) -> None:
        self.origin, self._local = origin_of(url, allow_plain_http)
        if token is not None and not TOKEN.match(token):
            msg = "the token is not of the form pmt_<id>_<secret>; ask the operator for one"
            raise ProtocolError(msg)
        self._token = token
        self._network = network or Network()
        self._public = self._make({})
        self._own: httpx.Client | None = None

    def _make(self, headers: dict[str, str]) -> httpx.Client:
        shared = {"User-Agent": f"panda-mdp/{__version__}", "Accept": "application/json"}
        return httpx.Client(
            headers={**shared, **headers},
            # No domain is allowed to set one.
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            timeout=self._network.timeout_s,
            follow_redirects=False,
            trust_env=not self._local,
            transport=self._network.transport,
        )

    @property
    def has_token(self) -> bool:
        """Whether requests of a reporter can be made."""
        return self._token is not None

    def close(self) -> None:
        """Close all connections."""
        self._public.close()
        if self._own is not None:
            self._own.close()

    def __repr__(self) -> str:
        return f"Wire({self.origin})"

    def get(self, answer: Any, *parts: str, own: bool = False) -> Any:
        """GET a public resource, or with `own` one of this token's."""
        client = self._with_token() if own else self._public
        return _parsed(answer, self._send(client, "GET", parts))

    def post(self, answer: Any, message: Message, *parts: str, own: bool = True) -> Any:
        """POST a message with the token. Ids make it safe to send again what got lost."""
        if not isinstance(message, Message):
            msg = f"a {type(message).__name__} is no message; only messages.py travels"
            raise ProtocolError(msg)
        body = message.model_dump_json(exclude_none=True).encode()
        client = self._with_token() if own else self._public
        return _parsed(answer, self._send(client, "POST", parts, body))

    def upload(self, answer: Any, data: bytes, *parts: str) -> Any:
        """POST a file with the token, as it is; for operators."""
        sent = self._send(self._with_token(), "POST", parts, data, "application/octet-stream")
        return _parsed(answer, sent)

    def download(self, part: Path, size: int, sha256: str, *parts: str) -> bool:
        """Fetch a whole public file, without the token, into `part`, where what is there of an
        earlier attempt is not fetched again; whether it is the file of that digest."""
        for resumption in range(self._network.resumptions + 1):
            start = part.stat().st_size if part.exists() else 0
            if start >= size:
                break
            try:
                self._append(part, start, size, sha256, parts)
            except ConnectionLostError:
                if resumption == self._network.resumptions:
                    raise
        return part.stat().st_size == size and digest_of_file(part) == sha256

    def _append(
        self, part: Path, start: int, size: int, sha256: str, parts: tuple[str, ...]
    ) -> None:
        headers = {"Accept": "application/octet-stream", "Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", "If-Range": f'"{sha256}"'}
        try:
            with self._public.stream("GET", self.path(*parts), headers=headers) as response:
                if response.status_code >= 300:
                    raise _refusal(response.status_code, self._bounded(response))
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    msg = "the server sent a table in another encoding than asked for"
                    raise ProtocolError(msg)
                resumed = response.status_code == httpx.codes.PARTIAL_CONTENT
                place = response.headers.get("Content-Range")
                if resumed and place != f"bytes {start}-{size - 1}/{size}":
                    msg = f"the server resumed with {place!r}, not at byte {start} of {size}"
                    raise ProtocolError(msg)
                with part.open("ab" if resumed else "wb") as target:
                    for piece in response.iter_bytes():
                        target.write(piece)
                        if target.tell() > size:
                            break
        except httpx.HTTPError as error:
            raise _lost(self.origin, error) from None

    def path(self, *parts: str) -> str:
        """The address of a resource, from names and numbers alone."""
        for part in parts:
            if not PART.match(part):
                msg = "a name in an address holds characters that names do not have"
                raise ProtocolError(msg)
        return "/".join((self.origin, "v1", *parts))

    def _with_token(self) -> httpx.Client:
        if self._token is None:
            msg = "this needs a token; give the client the one that the operator issued"
            raise ProtocolError(msg)
        if self._own is None:
            self._own = self._make({"Authorization": f"Bearer {self._token}"})
        return self._own

    def _send(
        self,
        client: httpx.Client,
        method: str,
        parts: tuple[str, ...],
        body: bytes | None = None,
        kind: str = "application/json",
    ) -> bytes:
        headers = {} if body is None else {"Content-Type": kind}
        url, pause = self.path(*parts), self._network.first_pause_s
        for attempt in range(1, self._network.attempts + 1):
            try:
                with client.stream(method, url, content=body, headers=headers) as response:
                    data = self._bounded(response)
                if response.status_code < 300:
                    return data
                failed: ProtocolError = _refusal(response.status_code, data)
                if response.status_code not in (429, 503):
                    raise failed
                pause = max(pause, _seconds(response.headers.get("Retry-After")))
            except httpx.HTTPError as error:
                failed = _lost(self.origin, error)
            if attempt < self._network.attempts:
                self._network.pause(min(pause, self._network.longest_pause_s))
                pause *= 2
        raise failed from None

    def _bounded(self, response: httpx.Response) -> bytes:
        data, most = bytearray(), self._network.most_bytes
        for piece in response.iter_bytes():
            data += piece
            if len(data) > most:
                msg = f"the server's answer is longer than {most} bytes; it is not read further"
                raise ProtocolError(msg)
        return bytes(data)


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def origin_of(url: str, allow_plain_http: bool = False) -> tuple[str, bool]:
    """The address of a server, and whether it is this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    local = bool(LOOPBACK.match(host))
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        msg = f"{url!r} is not the address of a server; give https://host[:port][/path]"
        raise ProtocolError(msg)
    if parts.username or parts.password:
        msg = "the address holds a user name or password; give the token apart from it"
        raise ProtocolError(msg)
    if parts.scheme == "http" and not (local or allow_plain_http):
        msg = (
            f"{url!r} is not encrypted: whoever is on the way sees the token and the reports; use "
            "https, or allow_plain_http=True in a network of your own"
        )
        raise ProtocolError(msg)
    return url.rstrip("/"), local


_adapter = cache(TypeAdapter)


def _parsed(answer: Any, data: bytes) -> Any:
    try:
        return _adapter(answer).validate_json(data)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"][:4])
    msg = f"the server's answer is not of this protocol's form (at {where or 'its start'})"
    raise ProtocolError(msg)


def _refusal(status: int, data: bytes) -> ServerError:
    try:
        detail = ErrorBody.model_validate_json(data).error
    except ValidationError:
        msg = f"the server answered with status {status} and no reason"
        return ServerError(msg, code="unavailable", status=status)
    message, remedy = _printable(detail.message), _printable(detail.remedy)
    text = f"the server refused ({detail.code}): {message}"
    if remedy:
        text = f"{text}; {remedy}"
    return ServerError(text, code=detail.code, status=status, remedy=remedy)


def _printable(text: str) -> str:
    """A server's words without control characters, which could rewrite a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)[:500]


def _lost(origin: str, error: httpx.HTTPError) -> ConnectionLostError:
    # The library's error holds the request, and with it what is reported.
    msg = (
        f"{origin} did not answer ({type(error).__name__}); what was charged is kept and sent "
        "again, unchanged, by the next attempt"
    )
    return ConnectionLostError(msg)


def _seconds(header: str | None) -> float:
    return float(header) if header and header.isascii() and header.isdigit() else 0.0
