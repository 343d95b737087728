"""A client and the operator's log: what is not in it, goes back or differs is noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers import save_compact
from protocol_standin import TOKEN, URL, Standin, give, without_fsync

import panda_mdp as pm
from panda_mdp.errors import FileFormatError, ProtocolError, SignatureError
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.messages.service import KeyInfo, ServiceInfo
from panda_mdp.protocol.messages.signing import KeySheet, SigningKey, certify, succeed

CITY = Path(__file__).parents[2] / "vectors" / "city.pmdp"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Standin:
    without_fsync(monkeypatch)
    return Standin(CITY, pm.load(CITY))


def user(server: Standin, folder: Path, **options: Any) -> Client:
    allowed = Allowance(epsilon=10.0, period_epsilon=100.0, snap_km=5.0)
    return Client(URL, TOKEN, folder, allowed, network=server.network, **options)


@pytest.fixture
def client(server: Standin, tmp_path: Path) -> Iterator[Client]:
    with user(server, tmp_path / "user") as made:
        yield made


def test_what_is_signed_for_one_alone_is_refused(server: Standin, client: Client) -> None:
    described = server.signed(server.deployment("table"))
    server.entries.pop()
    server.faults = [lambda _: None, lambda _: give(described)]
    with pytest.raises(SignatureError, match="not in the operator's log"):
        client.plan("table")


def test_a_table_that_is_not_in_the_log_is_refused(server: Standin, client: Client) -> None:
    described = server.signed(server.deployment("table"))
    server.entries = [entry for entry in server.entries if b"deployment" in entry]
    server.faults = [lambda _: None, lambda _: give(described)]
    with pytest.raises(SignatureError, match="table city is signed and not in"):
        client.plan("table")


def test_a_shorter_log_is_an_old_backup(server: Standin, client: Client) -> None:
    client.plan("table")
    server.version = 2
    client.plan("table", accept_update=True)
    assert len(server.entries) == 4
    # Restored from before version 2 was published.
    server.version, server.entries = 1, server.entries[:2]
    with pytest.raises(SignatureError, match=r"2 entries and had 4 before.*backup"):
        client.plan("table")
    client.trust.forget_log()
    assert client.plan("table", accept_update=True).version == 1


def test_another_history_is_noticed(server: Standin, client: Client) -> None:
    client.plan("table")
    server.entries = [b"another", *server.entries]
    with pytest.raises(SignatureError, match="not those of before"):
        client.plan("table")


def test_a_log_that_is_not_its_heads_is_refused(server: Standin, tmp_path: Path) -> None:
    server.signed(server.deployment("table"))
    log = server.log()
    for changed in (
        log.model_copy(update={"leaves": log.leaves[:-1]}),
        log.model_copy(update={"leaves": [*log.leaves[:-1], "0" * 64]}),
        log.model_copy(update={"head": log.head.model_copy(update={"at": 5})}),
    ):
        server.faults = [lambda _: None] * 2 + [lambda _, answer=changed: give(answer)]
        with user(server, tmp_path) as client, pytest.raises(SignatureError):
            client.plan("table")


def test_an_older_table_is_called_older(server: Standin, client: Client, tmp_path: Path) -> None:
    """Put into force again under a new version of the deployment, which is no rollback."""
    first = server.info()
    server.path = tmp_path / "other.pmdp"
    domain, outputs = server.table.problem.domain, server.table.problem.outputs
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), server.table.epsilon)
    server.table = save_compact(pm.exponential(problem), server.path)
    server.version = 2
    client.plan("table")
    again = server.deployment("table").model_copy(update={"table": first, "version": 3})
    server.version = 3
    described = server.signed(again)
    server.faults = [lambda _: give(described)]
    with pytest.raises(ProtocolError, match="version 1, an older one, and city version 2"):
        client.plan("table")


def test_heads_of_other_people(server: Standin, client: Client, tmp_path: Path) -> None:
    client.plan("table")
    line = server.log().head.model_dump_json()
    assert client.compare_heads(f"{line}\n\n{line}\n") == 2
    with pytest.raises(FileFormatError, match="not a head"):
        client.compare_heads("rome 3")
    forged = json.dumps(json.loads(line) | {"root": "0" * 64})
    with pytest.raises(SignatureError, match="not one of key"):
        client.compare_heads(forged)
    # Somebody else is shown another log, signed by the same operator.
    other = Standin(CITY, server.table, server.key)
    other.publish(b"for somebody else")
    with user(other, tmp_path / "other") as somebody:
        somebody.plan("table")
    elsewhere = other.log().head.model_dump_json()
    with pytest.raises(SignatureError, match="3 entries and you one of 2"):
        client.compare_heads(elsewhere)
    server.publish(b"one more")
    with pytest.raises(SignatureError, match="another log of 3 entries than you"):
        client.compare_heads(elsewhere)


def test_nothing_of_the_log_goes_back(server: Standin, client: Client) -> None:
    """Which head a client has seen is not said: all of them ask for the same."""
    client.plan("table")
    server.version = 2
    client.plan("table", accept_update=True)
    asked = [sent.url for sent in server.sent if "/log" in sent.url]
    assert asked == [f"{URL}/v1/log"] * 2


def serve_keys(server: Standin, sheet: KeySheet) -> Any:
    public = server.key.public
    info = KeyInfo(id=public.id, public=public.base64)
    return lambda _: give(ServiceInfo(version="0", key=info, keys=sheet))


def test_a_certified_key_signs_and_is_replaced(server: Standin, tmp_path: Path) -> None:
    operator = SigningKey.generate()
    sheet = KeySheet(
        operator=operator.public.base64,
        certificates=[certify(operator, server.key.public.base64, 30)],
    )
    with user(server, tmp_path) as client:
        server.faults = [serve_keys(server, sheet)]
        client.plan("table")
        assert client.trust.key == operator.public
    second = SigningKey.generate()
    both = [*sheet.certificates, certify(operator, second.public.base64, 30)]
    sheet = sheet.model_copy(update={"certificates": both})
    for key in (server.key, second):
        # One server signs with the old key still, another one with the new one.
        server.key = key
        with user(server, tmp_path) as client:
            server.faults = [serve_keys(server, sheet)]
            client.plan("table")
    server.key = SigningKey.generate()
    with user(server, tmp_path) as client, pytest.raises(SignatureError):
        server.faults = [serve_keys(server, sheet)]
        client.plan("table")


def test_a_successor_is_followed_and_an_impostor_is_not(server: Standin, tmp_path: Path) -> None:
    with user(server, tmp_path) as client:
        client.plan("table")
    old, server.key = server.key, SigningKey.generate()
    new = server.key.public.base64
    with user(server, tmp_path) as client, pytest.raises(SignatureError, match="another operator"):
        client.plan("table")
    stranger = SigningKey.generate()
    forged = succeed(stranger, new).model_copy(update={"old": old.public.base64})
    for steps, good in (([forged], False), ([succeed(old, new)], True)):
        sheet = KeySheet(operator=new, successions=steps)
        with user(server, tmp_path) as client:
            server.faults = [serve_keys(server, sheet)]
            if good:
                # The log goes on, and what was pinned stays.
                assert client.plan("table").version == 1
                assert client.trust.key == server.key.public
                assert "table" in client.trust.known().statements
            else:
                with pytest.raises(SignatureError):
                    client.plan("table")


def test_a_report_names_its_table_by_what_everybody_sees(server: Standin, client: Client) -> None:
    plan = client.plan("table")
    client.report(plan, plan.record(3))
    (body,) = server.reports.values()
    assert body["table"] == server.info().identity
    assert any(body["table"].encode() in entry for entry in server.entries)


def test_a_server_without_a_log_is_refused(server: Standin, client: Client) -> None:
    refusal = httpx.Response(404, json={"error": {"code": "not_found", "message": "no"}})
    server.faults = [lambda _: None, lambda _: None, lambda _: refusal]
    with pytest.raises(ProtocolError):
        client.plan("table")
