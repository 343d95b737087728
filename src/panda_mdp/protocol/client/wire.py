"""Requests of a client: only messages travel, answers are bounded, redirects are not followed.

What is public is fetched without the token, over connections of its own, and without cookies, so
that fetching links nobody to anything but an address. A token goes to the server that it is for
and nowhere else. Files are fetched whole.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError

from panda_mdp.errors import ConnectionLostError, ProtocolError, ServerError
from panda_mdp.protocol.messages.service import ErrorBody
from panda_mdp.protocol.messages.types import Message
from panda_mdp.version import __version__

LOOPBACK = re.compile(r"^(localhost|127(\.\d{1,3}){3}|::1)$")
T = TypeVar("T")
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
    transport: httpx.BaseTransport | None = None
    """In place of the network."""
    pause: Callable[[float], None] = time.sleep


class Wire:
    """A server as a client sees it: `get` and `post` of messages, by path, parsed as the type of
    the answer."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        allow_plain_http: bool = False,
        network: Network | None = None,
    ) -> None:
        self.origin, local = origin_of(url, allow_plain_http)
        if token is not None and not TOKEN.match(token):
            raise ProtocolError(
                "the token is not of the form pmt_<id>_<secret>; ask the operator for one"
            )
        self._network = network or Network()

        def connect(**headers: str) -> httpx.Client:
            shared = {"User-Agent": f"panda-mdp/{__version__}", "Accept": "application/json"}
            return httpx.Client(
                headers={**shared, **headers},
                # No domain is allowed to set one.
                cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
                timeout=self._network.timeout_s,
                follow_redirects=False,
                trust_env=not local,
                transport=self._network.transport,
            )

        self._public = connect()
        self._own = None if token is None else connect(Authorization=f"Bearer {token}")

    @property
    def has_token(self) -> bool:
        """Whether requests of a reporter can be made."""
        return self._own is not None

    def close(self) -> None:
        """Close all connections."""
        self._public.close()
        if self._own is not None:
            self._own.close()

    def get(self, answer: type[T], *parts: str, own: bool = False, method: str = "GET") -> T:
        """GET a public resource, or with `own` one of this token's; or DELETE it."""
        return _parsed(answer, self._send(self._as(own), method, parts, self._bounded))

    def post(self, answer: type[T], message: Message, *parts: str, own: bool = True) -> T:
        """POST a message with the token. Ids make it safe to send again what got lost."""
        if not isinstance(message, Message):
            raise ProtocolError(
                f"a {type(message).__name__} is no message; only messages.py travels"
            )
        body = message.model_dump_json(exclude_none=True).encode()
        return self.upload(answer, body, *parts, own=own, kind="application/json")

    def upload(
        self,
        answer: type[T],
        data: bytes,
        *parts: str,
        own: bool = True,
        kind: str = "application/octet-stream",
    ) -> T:
        """POST bytes as they are: a file, with the token, for operators."""
        headers = {"Content-Type": kind}
        client = self._as(own)
        return _parsed(
            answer, self._send(client, "POST", parts, self._bounded, content=data, headers=headers)
        )

    def download(self, target: BinaryIO, size: int, sha256: str, *parts: str) -> bool:
        """Fetch a whole public file, without the token; whether it is the one of that digest."""

        def keep(response: httpx.Response) -> bool:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise ProtocolError("the server sent a table in another encoding than asked for")
            # Nothing stays of an attempt that broke off.
            target.seek(0)
            target.truncate()
            digest = hashlib.sha256()
            for piece in response.iter_bytes():
                target.write(piece)
                digest.update(piece)
                if target.tell() > size:
                    break
            return digest.hexdigest() == sha256

        plain = {"Accept": "application/octet-stream", "Accept-Encoding": "identity"}
        return self._send(self._public, "GET", parts, keep, headers=plain)

    def path(self, *parts: str) -> str:
        """The address of a resource, from names and numbers alone."""
        for part in parts:
            if not PART.match(part):
                raise ProtocolError("a name in an address holds characters that names do not have")
        return "/".join((self.origin, "v1", *parts))

    def _as(self, own: bool) -> httpx.Client:
        client = self._own if own else self._public
        if client is None:
            raise ProtocolError(
                "this needs a token; give the client the one that the operator issued"
            )
        return client

    def _send(
        self,
        client: httpx.Client,
        method: str,
        parts: tuple[str, ...],
        read: Callable[[httpx.Response], T],
        **request: Any,
    ) -> T:
        """What is read of the answer; tried again where it got lost or the server is busy."""
        url = self.path(*parts)
        network = self._network
        pause = network.first_pause_s
        for attempt in range(1, network.attempts + 1):
            try:
                with client.stream(method, url, **request) as response:
                    if response.status_code < 300:
                        return read(response)
                    failed: ProtocolError = _refusal(response.status_code, self._bounded(response))
                if response.status_code not in (429, 503):
                    raise failed
                wait = response.headers.get("Retry-After", "")
                pause = max(pause, float(wait) if wait.isdecimal() else 0.0)
            except httpx.HTTPError as error:
                # The library's error holds the request, and with it what is reported.
                msg = (
                    f"{self.origin} did not answer ({type(error).__name__}); what was charged is "
                    "kept and sent again, unchanged, by the next attempt"
                )
                failed = ConnectionLostError(msg)
            if attempt < network.attempts:
                network.pause(min(pause, network.longest_pause_s))
                pause *= 2
        raise failed from None

    def _bounded(self, response: httpx.Response) -> bytes:
        data = bytearray()
        most = self._network.most_bytes
        for piece in response.iter_bytes():
            data += piece
            if len(data) > most:
                raise ProtocolError(
                    f"the server's answer is longer than {most} bytes; it is not read further"
                )
        return bytes(data)


def origin_of(url: str, allow_plain_http: bool = False) -> tuple[str, bool]:
    """The address of a server, and whether it is this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    local = bool(LOOPBACK.match(host))
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise ProtocolError(
            f"{url!r} is not the address of a server; give https://host[:port][/path]"
        )
    if parts.username or parts.password:
        raise ProtocolError(
            "the address holds a user name or password; give the token apart from it"
        )
    if parts.scheme == "http" and not (local or allow_plain_http):
        raise ProtocolError(
            f"{url!r} is not encrypted: whoever is on the way sees the token and the reports; use "
            "https, or allow_plain_http=True in a network of your own"
        )
    return url.rstrip("/"), local


_adapter = cache(TypeAdapter)


def _parsed(answer: Any, data: bytes) -> Any:
    try:
        return _adapter(answer).validate_json(data)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"][:4])
    raise ProtocolError(
        f"the server's answer is not of this protocol's form (at {where or 'its start'})"
    )


def _refusal(status: int, data: bytes) -> ServerError:
    try:
        detail = ErrorBody.model_validate_json(data).error
    except ValidationError:
        return ServerError(f"the server answered with status {status} and no reason", status=status)
    # Without control characters, which could rewrite a terminal.
    message, remedy = (
        "".join(c if c.isprintable() else " " for c in text)[:500]
        for text in (detail.message, detail.remedy)
    )
    said = f"{message}; {remedy}" if remedy else message
    text = f"the server refused ({detail.code}): {said}"
    return ServerError(text, code=detail.code, status=status, remedy=remedy)
