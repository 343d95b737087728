"""Requests of a client: only messages travel, answers are bounded, redirects are not followed.

What is public is fetched without the token, over connections of its own, and without cookies, so
that fetching links nobody to anything but an address. A token goes to the server that it is for
and nowhere else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError

from panda_mdp.errors import ConnectionLostError, ProtocolError, ServerError
from panda_mdp.protocol.messages.service import ErrorBody
from panda_mdp.protocol.messages.types import Message
from panda_mdp.version import __version__

T = TypeVar("T")
M = TypeVar("M", bound=Message)

MOST_BYTES = 256 << 20
"""The longest answer in JSON that a client reads."""
ATTEMPTS = 4
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
LOOPBACK = re.compile(r"^(localhost|127(\.\d{1,3}){3}|::1)$")
PART = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
TOKEN = re.compile(r"^pmt_[0-9a-f]{12}_[A-Za-z0-9_-]{43}$")


class Wire:
    """A server as a client sees it: `get` and `post` of messages, by path.

    `transport` replaces the network in tests. Its repr shows the address only.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        allow_plain_http: bool = False,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.origin, local = _origin(url, allow_plain_http)
        if token is not None and not TOKEN.match(token):
            msg = "the token is not of the form pmt_<id>_<secret>; ask the operator for one"
            raise ProtocolError(msg)
        self._token = token
        self._settings: dict[str, Any] = {
            "timeout": timeout_s,
            "follow_redirects": False,
            "trust_env": not local,
            "transport": transport,
        }
        self._public = self._make({})
        self._own: httpx.Client | None = None
        self._pause = time.sleep

    def _make(self, headers: dict[str, str]) -> httpx.Client:
        # No domain is allowed to set one.
        cookies = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
        shared = {"User-Agent": f"panda-mdp/{__version__}", "Accept": "application/json"}
        return httpx.Client(headers={**shared, **headers}, cookies=cookies, **self._settings)

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

    def get(self, answer: type[M] | TypeAdapter[T], *parts: str, own: bool = False) -> Any:
        """GET a public resource, or with `own` one of this token's."""
        client = self._with_token() if own else self._public
        return _parsed(answer, self._send(client, "GET", self.path(*parts), None))

    def post(
        self, answer: type[M] | TypeAdapter[T], message: Message, *parts: str, own: bool = True
    ) -> Any:
        """POST a message with the token. Ids make it safe to send again what got lost."""
        if not isinstance(message, Message):
            msg = f"a {type(message).__name__} is no message; only messages.py travels"
            raise ProtocolError(msg)
        body = message.model_dump_json(exclude_none=True).encode()
        client = self._with_token() if own else self._public
        return _parsed(answer, self._send(client, "POST", self.path(*parts), body))

    def upload(self, answer: type[M], data: bytes, *parts: str) -> M:
        """POST a file with the token, as it is; for operators."""
        url = self.path(*parts)
        sent = self._send(self._with_token(), "POST", url, data, "application/octet-stream")
        reply: M = _parsed(answer, sent)
        return reply

    @contextmanager
    def stream(self, start: int, tag: str, *parts: str) -> Iterator[httpx.Response]:
        """The bytes of a whole public file from `start` on, without the token."""
        headers = {"Accept": "application/octet-stream", "Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-", "If-Range": f'"{tag}"'}
        try:
            with self._public.stream("GET", self.path(*parts), headers=headers) as response:
                if response.status_code >= 300:
                    raise _refusal(response.status_code, _bounded(response))
                yield response
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
        url: str,
        body: bytes | None,
        kind: str = "application/json",
    ) -> bytes:
        headers = {} if body is None else {"Content-Type": kind}
        pause = FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with client.stream(method, url, content=body, headers=headers) as response:
                    data = _bounded(response)
                if response.status_code < 300:
                    return data
                failed: ProtocolError = _refusal(response.status_code, data)
                if response.status_code not in (429, 503):
                    raise failed
                pause = max(pause, _seconds(response.headers.get("Retry-After")))
            except httpx.HTTPError as error:
                failed = _lost(self.origin, error)
            if attempt == ATTEMPTS:
                break
            self._pause(min(pause, LONGEST_PAUSE_S))
            pause *= 2
        raise failed from None


def _origin(url: str, allow_plain_http: bool) -> tuple[str, bool]:
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


def _bounded(response: httpx.Response) -> bytes:
    data = bytearray()
    for piece in response.iter_bytes():
        data += piece
        if len(data) > MOST_BYTES:
            msg = f"the server's answer is longer than {MOST_BYTES} bytes; it is not read further"
            raise ProtocolError(msg)
    return bytes(data)


def _parsed(answer: type[M] | TypeAdapter[T], data: bytes) -> Any:
    try:
        if isinstance(answer, TypeAdapter):
            return answer.validate_json(data)
        return answer.model_validate_json(data)
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
