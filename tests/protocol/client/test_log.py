"""A client and the operator's log: what is not in it, goes back or differs is noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from protocol_standin import TOKEN, URL, Standin, give, without_fsync

import panda_mdp as pm
from panda_mdp.errors import FileFormatError, ProtocolError, SignatureError
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.client.gossip import compare_heads, head_line
from panda_mdp.protocol.messages.keys import KeySheet, certify, succeed
from panda_mdp.protocol.messages.service import KeyInfo, ServiceInfo
from panda_mdp.protocol.messages.signing import SigningKey

CITY = Path(__file__).parents[2] / "vectors" / "city.pmdc"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Standin:
    without_fsync(monkeypatch)
    return Standin(CITY, pm.load_compact(CITY))


def user(server: Standin, folder: Path, **options: Any) -> Client:
    allowed = Allowance(epsilon=10.0, period_epsilon=100.0, snap_km=5.0)
    return Client(URL, TOKEN, folder, allowed, transport=server.transport, **options)


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
    assert client.trust.head(client.server).size == len(server.entries) == 4
    # Restored from before version 2 was published.
    server.version, server.entries = 1, server.entries[:2]
    with pytest.raises(SignatureError, match=r"2 entries and had 4 before.*backup"):
        client.plan("table")
    client.trust.forget_log(client.server)
    assert client.plan("table", accept_update=True).version == 1


def test_another_history_is_noticed(server: Standin, client: Client) -> None:
    client.plan("table")
    server.entries = [b"another", *server.entries]
    with pytest.raises(SignatureError, match="not those of before"):
        client.plan("table")


def test_a_log_that_is_not_its_heads_is_refused(server: Standin, client: Client) -> None:
    server.signed(server.deployment("table"))
    log = server.log()
    for changed in (
        log.model_copy(update={"leaves": log.leaves[:-1]}),
        log.model_copy(update={"leaves": [*log.leaves[:-1], "0" * 64]}),
        log.model_copy(update={"head": log.head.model_copy(update={"at": 5})}),
    ):
        server.faults = [lambda _: None] * 2 + [lambda _, answer=changed: give(answer)]
        with pytest.raises(SignatureError):
            client.plan("table")
        client._key = None


def test_an_older_table_is_called_older(server: Standin, client: Client) -> None:
    """Put into force again under a new version of the deployment, which is no rollback."""
    client.plan("table")
    server.version = 2
    newer = server.info()
    client.trust.pin_version(client.server, "table", _pin(newer), number=9)
    server.version = 1
    with pytest.raises(ProtocolError, match="version 1, an older one, and city version 2"):
        client.plan("table")


def _pin(info: Any) -> Any:
    from panda_mdp.protocol.client.trust import Pin

    # Another file, as a version of its own has.
    return Pin(info.name, info.version, "f" * 64)


def test_heads_of_other_people(server: Standin, client: Client, tmp_path: Path) -> None:
    client.plan("table")
    line = head_line(server.log().head)
    assert compare_heads(client, f"{line}\n\n{line}\n") == 2
    with pytest.raises(FileFormatError, match="not a head"):
        compare_heads(client, "rome 3")
    forged = json.dumps(json.loads(line) | {"root": "0" * 64})
    with pytest.raises(SignatureError, match="not one of key"):
        compare_heads(client, forged)
    # Somebody else is shown another log, signed by the same operator.
    other = Standin(CITY, server.table, server.key)
    other.publish(b"for somebody else")
    with user(other, tmp_path / "other") as somebody:
        somebody.plan("table")
    elsewhere = head_line(other.log().head)
    with pytest.raises(SignatureError, match="3 entries and you are shown 2"):
        compare_heads(client, elsewhere)
    server.publish(b"one more")
    with pytest.raises(SignatureError, match="another log of 3 entries than you"):
        compare_heads(client, elsewhere)


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
        assert client.trust.key(client.server) == operator.public
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
                assert client.trust.key(client.server) == server.key.public
                assert client.trust.pin(client.server, "table") is not None
            else:
                with pytest.raises(SignatureError):
                    client.plan("table")


def test_a_report_names_its_table_by_what_everybody_sees(server: Standin, client: Client) -> None:
    plan = client.plan("table")
    client.report(plan, plan.record(3))
    (body,) = server.reports.values()
    assert body["table"] == server.info().sha256
    assert any(body["table"].encode() in entry for entry in server.entries)


def test_a_server_without_a_log_is_refused(server: Standin, client: Client) -> None:
    refusal = httpx.Response(404, json={"error": {"code": "not_found", "message": "no"}})
    server.faults = [lambda _: None, lambda _: None, lambda _: refusal]
    with pytest.raises(ProtocolError):
        client.plan("table")
