"""Domains, tables and the file, against a running server on both databases."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import httpx
import pytest
from helpers import save_compact
from protocol_servers import Running, domain_body, error_of, publish, small_domain, small_table

import panda_mdp as pm
from panda_mdp.protocol.messages.catalogue import DomainDetail, Streets, TableInfo
from panda_mdp.protocol.messages.service import ServiceInfo
from panda_mdp.protocol.messages.signing import VerifyKey, signed_bytes

OCTETS = {"content-type": "application/octet-stream"}


def test_the_service_says_what_it_is(server: Running) -> None:
    public = server.client()
    info = ServiceInfo.model_validate_json(public.get("/v1").content)
    assert info.version == pm.__version__
    assert VerifyKey.from_base64(info.key.public).id == info.key.id
    assert public.get("/readyz").json() == {"status": "ok"}


def test_a_domain_comes_back_to_the_last_bit(server: Running) -> None:
    domain = small_domain(seed=1)
    streets = {"lat": [41_900_000, 41_910_000], "lon": [12_500_000, 12_510_000], "u": [0], "v": [1]}
    body = domain_body(domain, "places") | {"streets": streets}
    made = server.admin.post("/v1/domains", json=body)
    assert made.status_code == 201
    assert made.json()["fingerprint"] == domain.fingerprint
    assert server.admin.post("/v1/domains", json=body).status_code == 200
    public = server.client()
    for name in (made.json()["id"], "places"):
        found = DomainDetail.model_validate_json(public.get(f"/v1/domains/{name}").content)
        assert found.lat is not None and found.lon is not None
        assert pm.Domain.from_points(found.lat, found.lon).fingerprint == domain.fingerprint
    drawn = Streets.model_validate_json(public.get("/v1/domains/places/streets").content)
    assert (drawn.lat, drawn.u) == ([41_900_000, 41_910_000], [0])
    other = domain_body(small_domain(seed=2), "places")
    assert error_of(server.admin.post("/v1/domains", json=other)) == (409, "conflict")


def test_a_domain_is_compressed_for_who_takes_it(server: Running) -> None:
    body = domain_body(small_domain(200, seed=3), "packed")
    assert server.admin.post("/v1/domains", json=body).status_code == 201
    sizes, texts = [], []
    for accepted in ("gzip, br", "identity"):
        headers = {"accept-encoding": accepted}
        with server.client().stream("GET", "/v1/domains/packed", headers=headers) as answer:
            raw = b"".join(answer.iter_raw())
        packed = answer.headers.get("content-encoding") == "gzip"
        assert packed == (accepted != "identity") and answer.headers["vary"] == "accept-encoding"
        sizes.append(len(raw))
        texts.append(gzip.decompress(raw) if packed else raw)
    assert texts[0] == texts[1] and sizes[0] < 0.6 * sizes[1]


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "kind": "haversine", "lat": [1.0], "lon": [2.0]},
        {"name": "x", "kind": "haversine", "lat": [1.0, 2.0], "lon": [2.0]},
        {"name": "x", "kind": "haversine", "lat": [1.0, 1.0], "lon": [2.0, 2.0]},
        {"name": "x", "kind": "haversine", "lat": [91.0, 2.0], "lon": [2.0, 3.0]},
        {"name": "x", "kind": "euclidean", "unit": "m", "vectors": [[1.0, 2.0], [1.0]]},
        {"name": "x", "kind": "matrix", "distances": [[0.0, 9.0, 1.0], [9.0, 0.0, 1.0], [1, 1, 0]]},
        {"name": "../x", "kind": "haversine", "lat": [1.0, 2.0], "lon": [2.0, 3.0]},
    ],
)
def test_what_is_no_domain_is_refused(server: Running, body: dict[str, object]) -> None:
    assert error_of(server.admin.post("/v1/domains", json=body)) == (422, "invalid")


def test_a_published_table_is_audited_signed_and_immutable(server: Running, tmp_path: Path) -> None:
    mechanism = small_table(small_domain())
    first = publish(server.admin, mechanism, "city", tmp_path)
    again = publish(server.admin, mechanism, "city", tmp_path)
    assert (first["version"], again["version"]) == (1, 2)
    public = server.client()
    info = TableInfo.model_validate_json(public.get("/v1/tables/city/1").content)
    data = public.get("/v1/tables/city/1/file").content
    assert hashlib.sha256(data).hexdigest() == info.sha256
    key = VerifyKey.from_base64(public.get("/v1").json()["key"]["public"])
    file = (info.sha256, len(data), info.domain, info.epsilon)
    key.verify(signed_bytes("table", "city", 1, *file, info.identity), info.signature)
    path = tmp_path / "fetched.pmdp"
    path.write_bytes(data)
    table = pm.load(path)
    assert table.audit.holds and table.epsilon == 3.0
    assert table.identity == info.identity
    assert table.problem.domain.fingerprint == info.domain == mechanism.problem.domain.fingerprint
    names = [
        (entry["name"], entry["version"]) for entry in public.get("/v1/tables").json()["tables"]
    ]
    assert ("city", 1) in names and ("city", 2) in names


def test_a_compact_file_is_taken_as_it_is(server: Running, tmp_path: Path) -> None:
    path = tmp_path / "t.pmdp"
    save_compact(small_table(small_domain()), path)
    data = path.read_bytes()
    made = server.admin.post("/v1/tables/compact", content=data, headers=OCTETS)
    assert made.status_code == 201
    assert server.client().get("/v1/tables/compact/1/file").content == data


def test_files_that_prove_nothing_are_refused(server: Running, tmp_path: Path) -> None:
    path = tmp_path / "t.pmdp"
    save_compact(small_table(small_domain()), path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    for body in (b"", b"nonsense", b"PK\x03\x04 but no archive", bytes(data), bytes(data)[:100]):
        answer = server.admin.post("/v1/tables/bad", content=body, headers=OCTETS)
        assert error_of(answer) == (422, "invalid")
        assert "panda-mdp-" not in answer.text
    assert error_of(server.client().get("/v1/tables/bad/1")) == (404, "not_found")


def test_streets_below_a_table_are_those_of_a_domain_with_its_records(
    server: Running, tmp_path: Path
) -> None:
    domain = small_domain(seed=5)
    path = small_table(domain).save(tmp_path / "t.pmdp")
    ask = {"content": path.read_bytes(), "headers": OCTETS}
    assert server.admin.post("/v1/tables/drawn", **ask).json()["streets"] is None
    streets = {"lat": [44_640_000, 44_650_000], "lon": [10_920_000, 10_930_000], "u": [0], "v": [1]}
    for name, each in (("below", domain), ("elsewhere", small_domain(seed=6))):
        body = domain_body(each, name) | {"streets": streets}
        assert server.admin.post("/v1/domains", json=body).status_code == 201
    found = server.admin.post("/v1/tables/drawn", **ask).json()["streets"]
    assert found == server.client().get("/v1/domains/below").json()["id"]


@pytest.fixture
def file(server: Running, tmp_path: Path) -> tuple[httpx.Client, str, bytes]:
    public = server.client()
    url = "/v1/tables/ranged/1/file"
    if public.get(url).status_code == 404:
        publish(server.admin, small_table(small_domain()), "ranged", tmp_path)
    return public, url, public.get(url).content


@pytest.mark.parametrize("wanted", ["bytes=0-99", "bytes=100-", "bytes=-5", "rows=1-"])
def test_parts_are_not_served(file: tuple[httpx.Client, str, bytes], wanted: str) -> None:
    """Which part of a table somebody asks for would tell where they are."""
    client, url, data = file
    answer = client.get(url, headers={"range": wanted})
    assert (answer.status_code, answer.content) == (200, data)
    assert answer.headers["accept-ranges"] == "none"


def test_a_table_is_not_compressed_again(file: tuple[httpx.Client, str, bytes]) -> None:
    client, url, _ = file
    answer = client.get(url, headers={"accept-encoding": "gzip, br, deflate"})
    assert "content-encoding" not in answer.headers
