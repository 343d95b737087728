"""What operators say about collecting, what they change, and that all of it is recorded."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from protocol_servers import (
    SQLITE_ONLY,
    Running,
    domain_body,
    error_of,
    publish,
    small_domain,
    small_table,
)

NOTICE = {
    "collector": "Comune di Modena, ufficio mobilità",
    "purpose": "Where bicycle racks are missing",
    "until": "2999-12-31",
}

TABLE = small_table(small_domain(seed=3))


def deploy(server: Running, name: str, **more: Any) -> dict[str, Any]:
    """A deployment of a table of its own."""
    info = publish(server.admin, TABLE, name, server.folder)
    ref = {"name": name, "version": info["version"]}
    body = {"kind": "table", "name": name, "table": ref, **more}
    made = server.admin.post("/v1/deployments", json=body)
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def actions(server: Running) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.admin.get("/v1/actions").json()["actions"]
    return found


def report(server: Running, name: str, output: int) -> tuple[int, str]:
    [reporter] = server.reporters(1)
    body = {"id": str(uuid.uuid4()), "output": output}
    answer = reporter.post(f"/v1/deployments/{name}/reports", json=body)
    return (answer.status_code, "") if answer.status_code < 300 else error_of(answer)


def test_who_collects_and_why_and_until_when_is_signed(server: Running) -> None:
    said = deploy(server, "notice", **NOTICE)
    stated = json.loads(said["statement"])
    for field, value in NOTICE.items():
        assert said[field] == stated[field] == value


@pytest.mark.parametrize(
    "wrong",
    [{"until": "2026-02-30"}, {"until": "soon"}, {"collector": "a\nb"}, {"purpose": "x" * 601}],
)
@SQLITE_ONLY
def test_what_is_no_notice_is_refused(server: Running, wrong: dict[str, str]) -> None:
    body = {"kind": "table", "name": "wrong", "table": {"name": "none", "version": 1}, **wrong}
    assert error_of(server.admin.post("/v1/deployments", json=body)) == (422, "invalid")


@SQLITE_ONLY
def test_after_the_last_day_nothing_is_taken(server: Running) -> None:
    today = datetime.now(UTC).date()
    said = deploy(server, "today", until=today.isoformat())
    output = int(TABLE.problem.outputs[0])
    assert report(server, "today", output)[0] == 201
    deploy(server, "over", until=(today - timedelta(days=1)).isoformat())
    assert report(server, "over", output) == (409, "round_closed")
    assert said["until"] == today.isoformat()


@SQLITE_ONLY
def test_other_limits_are_signed_under_another_version(server: Running) -> None:
    deploy(server, "limits", reports_per_period=1)
    path = "/v1/deployments/limits"
    [reporter] = server.reporters(1)

    def send() -> int:
        body = {"id": str(uuid.uuid4()), "output": int(TABLE.problem.outputs[0])}
        return reporter.post(f"{path}/reports", json=body).status_code

    # A token that is new has nothing left from the period before.
    assert [send(), send(), send()] == [201, 429, 429]
    changed = server.admin.patch(path, json={"reports_per_period": 3, "until": "2999-01-01"}).json()
    stated = json.loads(changed["statement"])
    assert (changed["version"], stated["version"]) == (2, 2)
    assert (stated["reports_per_period"], stated["until"]) == (3, "2999-01-01")
    assert send() == 201
    # The same again changes nothing.
    again = server.admin.patch(path, json={"reports_per_period": 3}).json()
    assert (again["version"], again["signature"]) == (2, changed["signature"])


def test_every_act_is_recorded_by_whom(server: Running) -> None:
    admin_id = server.admin_token.split("_")[1]
    deploy(server, "acts")
    server.admin.patch("/v1/deployments/acts", json={"open": False})
    made = server.admin.post("/v1/tokens", json={"role": "reporter", "label": "bus 7"}).json()
    token = made["tokens"][0]
    server.admin.delete(f"/v1/tokens/{token['id']}")
    latest = actions(server)[:5]
    assert [(a["action"], a["target"]) for a in latest] == [
        ("revoke token", token["id"]),
        ("make reporter token", token["id"]),
        ("change deployment", "acts"),
        ("open deployment", "acts"),
        ("publish table", "acts/1"),
    ]
    assert {a["by"] for a in latest} == {admin_id}
    assert json.loads(latest[2]["detail"]) == {"open": False}
    assert token["token"].split("_", 2)[2] not in json.dumps(latest)
    older = server.admin.get(f"/v1/actions?before={latest[4]['seq']}&limit=1").json()["actions"]
    assert older[0]["seq"] < latest[4]["seq"]
    # What was refused was not done.
    assert server.admin.delete(f"/v1/tokens/{token['id']}").status_code == 404
    assert actions(server)[:1] == latest[:1]


@SQLITE_ONLY
def test_only_operators_read_what_was_done(server: Running) -> None:
    assert error_of(server.client().get("/v1/actions")) == (401, "unauthorised")
    [reporter] = server.reporters(1)
    assert error_of(reporter.get("/v1/actions")) == (403, "forbidden")


@SQLITE_ONLY
def test_streets_come_with_their_names(server: Running) -> None:
    names = [
        {"name": "Via Emilia", "lat": 44.64, "lon": 10.92, "kind": "street"},
        {"name": "Ghirlandina", "lat": 44.6463, "lon": 10.9258, "kind": "landmark"},
    ]
    lat, lon = [44_640_000, 44_650_000], [10_920_000, 10_930_000]
    streets = {"lat": lat, "lon": lon, "u": [0], "v": [1], "names": names}
    body = domain_body(small_domain(seed=5), "named") | {"streets": streets}
    assert server.admin.post("/v1/domains", json=body).status_code == 201
    found = server.client().get("/v1/domains/named/streets").json()
    assert found["names"] == names
