"""Requests that no client sends: broken JSON, wrong values, broken HTTP. Seeded.

Every case says what may come back. The rule for all: an answer or a closed connection within a
time, never a 5xx, nothing of the request in the answer, and nothing of it in the log.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from protocol_servers import new_id
from protocol_traffic import request_bytes

MARK = "qzMARKqz"
"""What stands for a record wherever a sender may write something."""
NAME = "qzNAMEqz"
"""The same as a field's name: an answer may say which field is not known, a log may not."""
REFUSED = frozenset(range(400, 500))
ANY = frozenset({200, 201, 202, 204, 206, 304}) | REFUSED
JSON = "content-type: application/json"


@dataclass(frozen=True)
class Case:
    """Bytes to send, in parts with a pause between them, and what may come back."""

    kind: str
    parts: tuple[bytes, ...]
    allowed: frozenset[int] = REFUSED
    may_close: bool = False
    """The connection may end without an answer."""
    plain: bool = False
    """The answer may come from below the application, which knows no envelope."""
    pause_s: float = 0.0
    echo: bool = False
    """The answer shows what was stored."""
    hang_up: bool = False
    """The client leaves before an answer can come."""


@dataclass(frozen=True)
class Route:
    """A route with a body that it would accept."""

    method: str
    path: str
    token: str
    body: dict[str, Any]
    limit: int


@dataclass(frozen=True)
class Target:
    """A server to send to: its routes, tokens and a table's file."""

    routes: tuple[Route, ...]
    admin: str
    reporter: str
    table: bytes
    file_path: str


def target(admin: str, reporter: str, table: bytes) -> Target:
    """The routes that take a body, for a server with deployments main, paper and ball."""
    made, small, large = new_id(), 64 << 10, 64 << 20
    place = {"lat": [41.9, 41.8, 41.7], "lon": [12.5, 12.4, 12.3]}
    selection = {"decay": "exponential", "alpha": 0.9, "rate": 0.5, "radius": 2.0}
    anchors = {"kind": "anchors", "name": "new", "domain": "city", "outputs": [0, 1]}
    anchors |= {"epsilon": 5.0, "delta": 1e-3, "selection": selection}
    deploy = {"kind": "table", "name": "other", "table": {"name": "city", "version": 1}}
    report = {"id": made, "output": 5}
    base = "/v1/deployments"
    routes = (
        Route("POST", f"{base}/main/reports", reporter, report, small),
        Route("POST", f"{base}/main/reports", reporter, report, small),
        Route("POST", f"{base}/paper/rounds/1/anchors", reporter, {"anchors": [1, 2]}, small),
        Route("POST", f"{base}/ball/balls", reporter, {"centre": [0, 0]}, small),
        Route("POST", f"{base}/paper/rounds", admin, {"closes_at_users": 3}, small),
        Route("POST", "/v1/tokens", admin, {"role": "reporter", "count": 1}, small),
        Route("POST", "/v1/domains", admin, {"name": "d", "kind": "haversine", **place}, large),
        Route("POST", base, admin, deploy | {"period_s": 3600}, large),
        Route("POST", base, admin, anchors, large),
        Route("PATCH", f"{base}/main", admin, {"table": {"name": "city", "version": 1}}, small),
    )
    return Target(routes, admin, reporter, table, "/v1/tables/city/1/file")


def cases(where: Target, count: int, seed: int) -> Iterator[Case]:
    """So many cases, all kinds in turn."""
    rng = random.Random(seed)
    for number in range(count):
        yield MAKERS[number % len(MAKERS)](where, rng)


# Bodies


def _send(route: Route, body: bytes, kind: str, *headers: str, **more: Any) -> Case:
    lines = [f"{route.method} {route.path} HTTP/1.1", "host: x", *headers]
    lines += [f"authorization: Bearer {route.token}", f"content-length: {len(body)}"]
    if not any(line.lower().startswith("content-type") for line in headers):
        lines.append(JSON)
    return Case(kind, ("\r\n".join([*lines, "", ""]).encode() + body,), **more)


def _truncated(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    text = json.dumps(route.body).encode()
    return _send(route, text[: rng.randrange(len(text))], "truncated")


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path


def _replaced(body: Any, rng: random.Random, literal: str) -> bytes:
    """The body with a leaf replaced by text that need not be JSON."""
    copy = json.loads(json.dumps(body))
    path = rng.choice(list(_leaves(copy)))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = "@@here@@"
    return json.dumps(copy).replace('"@@here@@"', literal).encode("utf-8", "surrogatepass")


def _wrong_type(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    wrong = ("[[]]", "{}", f'{{"{NAME}":1}}', f'["{MARK}"]', f'"{MARK}\\u0000"', '"\\ud800"')
    return _send(route, _replaced(route.body, rng, rng.choice(wrong)), "wrong type")


def _huge_number(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    wrong = ("1" + "0" * 400, "-" + "9" * 5000, "1e999", "-1e999", "-1000", str(-(2**63)), "1e400")
    return _send(route, _replaced(route.body, rng, rng.choice(wrong)), "huge number")


def _not_a_number(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    wrong = ("NaN", "Infinity", "-Infinity", "nan", "0x10", "01", "+1", ".5", "1.", "1e", "--1")
    return _send(route, _replaced(route.body, rng, rng.choice(wrong)), "not a number")


def _deep(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    depth = rng.choice((100, 1_000, 30_000, 60_000))
    if route.limit > 1 << 20 and rng.random() < 0.1:
        depth = 500_000
    start, end = rng.choice((("[", "]"), ('{"a":', "}")))
    depth = min(depth, route.limit // (len(start) + 2))
    text = start * depth + "1" + end * depth * rng.choice((0, 1))
    if len(text) > route.limit:
        text = text[: route.limit]
    body = text.encode() if rng.random() < 0.5 else _replaced(route.body, rng, text)[: route.limit]
    return _send(route, body, "deep")


def _bad_text(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    bad = rng.choice((b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\x80", b"\x00", b"\xf8\x88"))
    body = bytearray(_replaced(route.body, rng, f'"{MARK}XX"'))
    at = body.find(b"XX")
    body[at : at + 2] = bad
    return _send(route, bytes(body), "invalid UTF-8")


def _other_encoding(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    text = json.dumps(route.body)
    codec = rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig"))
    kind = f"{JSON}; charset={codec}"
    if rng.random() < 0.3:
        return _send(route, gzip.compress(text.encode()), "gzip", "content-encoding: gzip")
    return _send(route, text.encode(codec), "other encoding", kind)


def _wrong_kind(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    kinds = ("text/plain", "application/xml", "multipart/form-data; boundary=x", "", "json", "*/*")
    kinds = (*kinds, "application/x-www-form-urlencoded", "application/jsonx", MARK, "\xe9/\xff")
    body = json.dumps(route.body).encode()
    return _send(route, body, "wrong content type", f"content-type: {rng.choice(kinds)}")


def _not_an_object(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    texts = (b"", b" ", b"null", b"[]", b"0", b'""', b"true", b"[{}]", b"{}{}", b"{},", b"\x00")
    texts = (*texts, b"{" + b" " * 5000, b"'a'", b"{a:1}", b'{"a" 1}', MARK.encode())
    text = rng.choice(texts)
    if text == b"{}" or (text.strip() == b"" and b"rounds" in route.path.encode()):
        text = b"null"
    return _send(route, text, "not an object")


def _more_fields(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    name = rng.choice(("record", "lat", NAME, "__class__", "", "\u0000", "x" * 5000, "id\u200b"))
    body = route.body | {name: rng.choice((1, MARK, [41.9, 12.5], None))}
    if name in route.body:
        body[name] = {NAME: MARK}
    return _send(route, json.dumps(body).encode(), "more fields")


def _label(where: Target, rng: random.Random) -> Case:
    """Text that is anybody's choice: odd, but not always wrong."""
    texts = ("\\u0000", "\\ud83d", "\\ud83d\\ude00", "\u202e", "\ufffe", "\\u0001", "' OR 1=1 --")
    label = rng.choice(texts) * rng.choice((1, 5, 100)) + MARK
    body = f'{{"role":"reporter","label":"{label}"}}'.encode()
    route = Route("POST", "/v1/tokens", where.admin, {}, 64 << 10)
    return _send(route, body, "label", allowed=frozenset({201, 422}), echo=True)


def _garbage(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    body = rng.randbytes(rng.choice((1, 10, 1000, 20_000)))
    # A byte that no JSON text begins with.
    return _send(route, b"\x01" + body, "garbage")


def _oversized(where: Target, rng: random.Random) -> Case:
    route = rng.choice([route for route in where.routes if route.limit <= 64 << 10])
    choice = rng.randrange(4)
    if choice == 0:
        return _send(route, b" " * (route.limit + rng.randrange(1, 5000)), "oversized")
    if choice == 1:
        body = json.dumps(route.body | {"id": MARK * 20_000}).encode()
        return _send(route, body, "oversized")
    declared = rng.choice((route.limit + 1, 2**31, 2**63, 10**30, 10**200))
    head = request_bytes(
        route.method, route.path, route.token, b"", JSON, f"content-length: {declared}"
    )
    # 2^64 and more is not a length for the parser below either.
    return Case("oversized by its header", (head,), plain=True, may_close=True)


def _table(where: Target, rng: random.Random) -> Case:
    data = bytearray(where.table)
    choice = rng.randrange(4)
    if choice == 0:
        del data[rng.randrange(len(data)) :]
    elif choice == 1:
        for _ in range(rng.randrange(1, 20)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif choice == 2:
        data = bytearray(rng.randbytes(500))
    else:
        data = bytearray(rng.choice((b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"PMDC" * 9)))
    head = f"content-length: {len(data)}"
    kind = "content-type: application/octet-stream"
    request = request_bytes("POST", "/v1/tables/fuzz", where.admin, b"", kind, head)
    return Case("broken table", (request + bytes(data),))


# HTTP


def _chunked(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    head = request_bytes(
        route.method, route.path, route.token, b"", JSON, "transfer-encoding: chunked"
    )
    text = json.dumps(route.body).encode()
    choice = rng.randrange(5)
    if choice == 0:
        cut = text[: len(text) // 2]
        return Case("chunked", (head, b"%x\r\n%s\r\n" % (len(cut), cut), b"0\r\n\r\n"))
    if choice == 1 and route.limit <= 64 << 10:
        part = b"%x\r\n%s\r\n" % (16_384, b" " * 16_384)
        return Case("chunked oversized", (head, *([part] * 6), b"0\r\n\r\n"), may_close=True)
    if choice == 2:
        sizes = (b"zz\r\n", b"-5\r\nabc", b"fffffffffffffffff\r\n", b"\r\n\r\n", b"5;x=y\r\nab\x00")
        return Case(
            "chunk sizes", (head, rng.choice(sizes)), plain=True, may_close=True, hang_up=True
        )
    if choice == 3:
        return Case("chunked unfinished", (head, b'4\r\n{"a"\r\n'), hang_up=True)
    wrong = b'{"%s":1}' % NAME.encode()
    parts = tuple(b"1\r\n%c\r\n" % byte for byte in wrong)
    return Case("chunked byte by byte", (head, *parts, b"0\r\n\r\n"))


def _slow(where: Target, rng: random.Random) -> Case:
    route = rng.choice(where.routes)
    text = json.dumps(route.body).encode()[:-1] + b"!"
    head = request_bytes(
        route.method, route.path, route.token, b"", JSON, f"content-length: {len(text)}"
    )
    step = max(1, len(text) // 5)
    parts = tuple(text[at : at + step] for at in range(0, len(text), step))
    if rng.random() < 0.5:
        return Case("slow, then gone", (head, *parts[:2]), pause_s=0.05, hang_up=True)
    return Case("slow", (head, *parts), pause_s=0.05)


def _header_tricks(where: Target, rng: random.Random) -> Case:
    route = where.routes[0]
    body = json.dumps(route.body | {"id": MARK}).encode()
    auth = f"authorization: Bearer {route.token}"
    length = f"content-length: {len(body)}"
    first = f"{route.method} {route.path} HTTP/1.1"
    chunked = "transfer-encoding: chunked"
    heads = (
        [first, "host: x", auth, length, f"content-length: {len(body) + 5}", JSON],
        [first, "host: x", auth, length, chunked, JSON],
        [first, "host: x", auth, chunked, length, JSON],
        [first, "host: x", auth, "transfer-encoding: xchunked", JSON],
        [first, "host: x", auth, "content-length: -1", JSON],
        [first, "host: x", auth, "content-length: abc", JSON],
        [first, "host: x", auth, "content-length: 1e3", JSON],
        [first, "host: x", auth, f"content-length : {len(body)}", JSON],
        [first, "host: x", auth, length, f"x: {MARK}\r\n folded", JSON],
        [first, "host: x", auth, length, JSON, f"x: {'a' * 70_000}"],
        [first, "host: x", auth, length, JSON, *(f"x{n}: {n}" for n in range(1_000))],
        [first, "host: x", auth, length, JSON, "x: a\x00b"],
        [first, "host: x", auth, length, JSON, "no colon"],
        [first, "host: x", auth, length, JSON, ": empty"],
        [first, auth, length, JSON],
        [first, "host: x", "host: y", auth, length, JSON],
        [first.replace("POST", "post"), "host: x", auth, length, JSON],
        [first.replace("POST", MARK), "host: x", auth, length, JSON],
        [first.replace("1.1", "9.9"), "host: x", auth, length, JSON],
        [first.replace("1.1", "0.9"), "host: x", auth, length, JSON],
        [first.replace(" HTTP/1.1", ""), "host: x", auth, length, JSON],
        [first.replace("HTTP/1.1", f"{MARK}/1.1"), "host: x", auth, length, JSON],
        [first, "host: x", auth, length, JSON, "expect: 100-continue"],
        [first, "host: x", auth, length, JSON, "expect: magic"],
        [first, "host: x", auth, length, JSON, "connection: upgrade", "upgrade: websocket"],
        [
            first,
            "host: x",
            auth,
            length,
            JSON,
            "connection: upgrade, http2-settings",
            "upgrade: h2c",
        ],
        ["PRI * HTTP/2.0", "", "SM"],
        ["\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
    )
    text = "\r\n".join([*rng.choice(heads), "", ""]).encode("latin-1") + body
    return Case("header tricks", (text,), ANY, may_close=True, plain=True, hang_up=True)


def _authorisation(where: Target, rng: random.Random) -> Case:
    route = where.routes[0]
    good, body = route.token, json.dumps(route.body).encode()
    _, key, secret = good.split("_", 2)
    values = (
        "", "Bearer", "Bearer ", f"Basic {good}", f"Bearer {good}x", f"Bearer {good[:-1]}",
        f"bearer  {good} x", f"Bearer pmt_{key}_{'A' * 43}", f"Bearer pmt_{'0' * 12}_{secret}",
        f"Bearer {MARK}", "Bearer pmt__", f"Bearer {'x' * 30_000}", "Bearer \xff\xfe", f"{good}",
        f"Bearer pmt_{key.upper()}x_{secret}", "Bearer pmt_' OR 1=1 --_", f"Token {good}",
    )  # fmt: skip
    lines = [f"POST {route.path} HTTP/1.1", "host: x", f"authorization: {rng.choice(values)}"]
    head = "\r\n".join([*lines, JSON, f"content-length: {len(body)}", "", ""]).encode("latin-1")
    return Case("authorisation", (head + body,), frozenset({400, 401, 431}), plain=True)


def _range(where: Target, rng: random.Random) -> Case:
    ranges = (
        "bytes=0-0", "bytes=5-", "bytes=-5", "bytes=0-1,3-4", "bytes=", "bytes=a-b", "bytes=5",
        "bytes=999999999999999999999-", "bytes=-0", "records=0-5", "bytes=0-18446744073709551616",
        "bytes = 0 - 5", "", MARK, "bytes=5-2", "bytes=\xb2-", "bytes=0-," * 2000,
    )  # fmt: skip
    chosen = rng.choice(ranges)
    more = rng.choice(([], ['if-range: "other"'], [f"if-range: {MARK}"], ["if-none-match: x, y"]))
    lines = [f"GET {where.file_path} HTTP/1.1", "host: x", f"range: {chosen}", *more, "", ""]
    return Case("range", ("\r\n".join(lines).encode("latin-1"),), frozenset({200}))


def _path(where: Target, rng: random.Random) -> Case:
    paths = (
        "/v1/deployments/..%2f..%2fetc/reports", "/assets/..%2f..%2f..%2fetc/passwd",
        "//etc/passwd", "/assets/../../../etc/passwd", "/%00", "/v1/tables/%00/1",
        "/v1/tables/city/1%00/file", "/assets/%00", "/assets/" + "a/" * 500, "/" + "a" * 60_000,
        "/assets/" + "a" * 5_000,
        "/v1/tables/city/99999999999999999999", "/v1/tables/city/-1/file", "/v1/tables/city/1.0",
        "/v1/deployments/main/reports?after=NaN", "/v1/deployments/main/reports?after=-1",
        f"/v1/deployments/{MARK}/counts", f"/v1/deployments/main/rounds/{10**30}",
        "/v1/deployments/main/reports?after=" + "9" * 5_000, "/v1/deployments/%ff%fe",
        f"/v1/tables/{MARK}", "/v1/tables/city/1/file/x", f"/{MARK}", "/%ed%a0%80", "/v1/domains/ ",
        "/v1/deployments/main/rounds", "/v1/deployments/main/rounds/1/rows", "*", "http://x/v1/nope",
        "/v1/openapi.json/..", "/%2e%2e/%2e%2e/etc/passwd", "/v1/tables/city/%D9%A1",
    )  # fmt: skip
    method = rng.choice(("GET", "HEAD", "POST", "DELETE", "PATCH", "PUT", "OPTIONS", "TRACE"))
    lines = [f"{method} {rng.choice(paths)} HTTP/1.1", "host: x", "content-length: 0"]
    lines += [f"authorization: Bearer {where.admin}", "", ""]
    may_close = method == "HEAD"
    allowed = REFUSED | {200}
    text = "\r\n".join(lines).encode("latin-1")
    return Case("path", (text,), allowed, may_close=may_close, plain=True, hang_up=may_close)


Maker = Callable[[Target, random.Random], Case]
MAKERS: tuple[Maker, ...] = (
    _truncated,
    _wrong_type,
    _huge_number,
    _not_a_number,
    _deep,
    _bad_text,
    _other_encoding,
    _wrong_kind,
    _not_an_object,
    _more_fields,
    _label,
    _garbage,
    _oversized,
    _table,
    _chunked,
    _slow,
    _header_tricks,
    _authorisation,
    _range,
    _path,
)
