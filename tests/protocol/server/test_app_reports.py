"""Deployments of kind table and their reports, against a running server on both databases."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest
from protocol_servers import Running, error_of, new_id, publish, small_domain, small_table

from panda_mdp.protocol.client.trust import read_statement
from panda_mdp.protocol.messages.deployments import (
    Counts,
    Estimate,
    ReportLine,
    Statement,
    TableDeployment,
)
from panda_mdp.protocol.messages.signing import VerifyKey


@pytest.fixture(scope="module")
def deployed(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Running:
    """A server with a table in two versions and a deployment of the first."""
    folder = tmp_path_factory.mktemp("tables")
    domain = small_domain()
    publish(server.admin, small_table(domain), "city", folder)
    publish(server.admin, small_table(domain, epsilon=2.0), "city", folder)
    publish(server.admin, small_table(small_domain(seed=9)), "elsewhere", folder)
    deploy(server, "main")
    return server


def deploy(server: Running, name: str) -> None:
    made = server.admin.post("/v1/deployments", json=request(name))
    assert made.status_code == 201, made.text


def request(name: str, version: int = 1) -> dict[str, object]:
    table = {"name": "city", "version": version}
    return {"kind": "table", "name": name, "table": table, "reports_per_period": 1_000}


def send(client: httpx.Client, name: str, **changes: object) -> httpx.Response:
    body = {"id": new_id(), "output": 5} | changes
    return client.post(f"/v1/deployments/{name}/reports", json=body)


def table_in_force(deployed: Running, name: str) -> str:
    identity: str = deployed.client().get(f"/v1/deployments/{name}").json()["table"]["identity"]
    return identity


def test_everybody_may_know_what_a_deployment_costs(deployed: Running) -> None:
    found = TableDeployment.model_validate_json(
        deployed.client().get("/v1/deployments/main").content
    )
    assert (found.guarantee.epsilon, found.guarantee.delta, found.guarantee.unit) == (3.0, 0, "km")
    assert (found.table.name, found.table.version, found.version) == ("city", 1, 1)
    names = deployed.client().get("/v1/deployments").json()["deployments"]
    assert "main" in [entry["name"] for entry in names]


def test_a_deployment_is_made_once(deployed: Running) -> None:
    assert deployed.admin.post("/v1/deployments", json=request("main")).status_code == 200
    other = deployed.admin.post("/v1/deployments", json=request("main", 2))
    assert error_of(other) == (409, "conflict")
    missing = deployed.admin.post("/v1/deployments", json=request("new", 9))
    assert error_of(missing) == (404, "not_found")


def test_a_report_is_taken_once_whatever_happens(deployed: Running) -> None:
    deploy(deployed, "once")
    client, other = deployed.reporters(2)
    key = new_id()
    first, again = send(client, "once", id=key), send(client, "once", id=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json() == {"id": key, "accepted": True}
    assert error_of(send(client, "once", id=key, output=0)) == (409, "conflict")
    assert error_of(send(other, "once", id=key)) == (409, "conflict")
    counts = Counts.model_validate_json(deployed.admin.get("/v1/deployments/once/counts").content)
    assert counts.reports == 1
    assert dict(zip(counts.outputs, counts.counts, strict=True))[5] == 1
    assert sum(hour.count for hour in counts.per_hour) == 1


def test_only_what_is_in_force_is_reported(deployed: Running) -> None:
    deploy(deployed, "changing")
    (client,) = deployed.reporters(1)
    key, first = new_id(), table_in_force(deployed, "changing")
    assert send(client, "changing", id=key, table=first).status_code == 201
    assert error_of(send(client, "changing", table="0" * 64)) == (409, "wrong_version")
    assert error_of(send(client, "changing", output=6)) == (422, "invalid")
    assert error_of(send(client, "nowhere")) == (404, "not_found")
    patch = {"table": {"name": "city", "version": 2}}
    changed = deployed.admin.patch("/v1/deployments/changing", json=patch).json()
    assert (changed["version"], changed["guarantee"]["epsilon"]) == (2, 2.0)
    # The same patch again changes nothing.
    assert deployed.admin.patch("/v1/deployments/changing", json=patch).json()["version"] == 2
    assert error_of(send(client, "changing", table=first)) == (409, "wrong_version")
    # What was accepted stays accepted.
    assert send(client, "changing", id=key, table=first).status_code == 200
    second = table_in_force(deployed, "changing")
    assert send(client, "changing", table=second).status_code == 201
    closed = deployed.admin.patch("/v1/deployments/changing", json={"open": False})
    assert closed.json()["open"] is False
    assert error_of(send(client, "changing", table=second)) == (409, "round_closed")
    assert send(client, "changing", id=key, table=first).status_code == 200
    deployed.admin.patch("/v1/deployments/changing", json={"open": True})
    assert send(client, "changing", table=second).status_code == 201


def test_what_was_drawn_before_other_limits_came_is_taken(deployed: Running) -> None:
    """Whoever has paid for a draw must not lose it to a change that it does not depend on."""
    deploy(deployed, "limited")
    (client,) = deployed.reporters(1)
    drawn_from = table_in_force(deployed, "limited")
    for limit in (5, 6):
        patch = {"reports_per_period": limit}
        assert deployed.admin.patch("/v1/deployments/limited", json=patch).is_success
    assert deployed.admin.get("/v1/deployments/limited").json()["version"] == 3
    assert send(client, "limited", table=drawn_from).status_code == 201
    assert deployed.admin.get("/v1/deployments/limited/counts").json()["reports"] == 1
    patch = {"table": {"name": "city", "version": 2}}
    assert deployed.admin.patch("/v1/deployments/limited", json=patch).is_success
    assert error_of(send(client, "limited", table=drawn_from)) == (409, "wrong_version")


def test_another_table_must_have_the_same_records(deployed: Running) -> None:
    patch = {"table": {"name": "elsewhere", "version": 1}}
    answer = deployed.admin.patch("/v1/deployments/main", json=patch)
    assert error_of(answer) == (409, "conflict")


def test_the_export_has_every_report_in_order(deployed: Running) -> None:
    deploy(deployed, "export")
    clients = deployed.reporters(3)
    outputs = [0, 5, 10, 5, 0, 35, 5]
    for n, output in enumerate(outputs):
        assert send(clients[n % 3], "export", output=output).status_code == 201
    answer = deployed.admin.get("/v1/deployments/export/reports")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [ReportLine.model_validate_json(line) for line in answer.text.splitlines()]
    assert [line.output for line in lines] == outputs
    assert [line.seq for line in lines] == sorted(line.seq for line in lines)
    assert len({line.user for line in lines}) == 3
    later = deployed.admin.get(
        "/v1/deployments/export/reports", params={"after": lines[3].seq}
    ).text.splitlines()
    assert [json.loads(line)["output"] for line in later] == outputs[4:]
    counts = deployed.admin.get("/v1/deployments/export/counts").json()
    found = Counter(dict(zip(counts["outputs"], counts["counts"], strict=True)))
    assert +found == Counter(outputs)


def test_the_estimate_is_a_distribution_with_an_interval(deployed: Running) -> None:
    deploy(deployed, "where")
    empty = Estimate.model_validate_json(
        deployed.admin.get("/v1/deployments/where/estimate").content
    )
    assert empty.reports == 0 and set(empty.share) == {1 / 40}
    table = small_table(small_domain())
    rng = np.random.default_rng(0)
    for client in deployed.reporters(12):
        for column in rng.choice(8, p=table.matrix[7] / table.matrix[7].sum(), size=3):
            output = int(table.problem.outputs[column])
            assert send(client, "where", output=output).status_code == 201
    url = "/v1/deployments/where/estimate"
    found = Estimate.model_validate_json(deployed.admin.get(url).content)
    assert (found.reports, found.users) == (36, 12) and found.records == list(range(40))
    assert abs(sum(found.share) - 1) < 1e-9
    assert all(0 <= zone.low <= zone.share <= zone.high <= 1 for zone in found.zones)
    assert set(found.zone) == set(range(len(found.zones)))
    # Where everybody was is among what the limits allow.
    assert found.zones[found.zone[7]].high > 0.95
    # Asked again without new reports: the same answer.
    assert deployed.admin.get(url).json() == found.model_dump(mode="json")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/tokens"),
        ("GET", "/v1/deployments/main/reports"),
        ("GET", "/v1/deployments/main/counts"),
        ("GET", "/v1/deployments/main/estimate"),
        ("POST", "/v1/tokens"),
        ("POST", "/v1/domains"),
        ("POST", "/v1/tables/city"),
        ("POST", "/v1/deployments"),
        ("PATCH", "/v1/deployments/main"),
        ("POST", "/v1/deployments/main/rounds"),
        ("DELETE", "/v1/tokens/000000000000"),
    ],
)
def test_operators_only(deployed: Running, method: str, path: str) -> None:
    (client,) = deployed.reporters(1)
    assert error_of(client.request(method, path)) == (403, "forbidden")
    assert error_of(deployed.client().request(method, path)) == (401, "unauthorised")


def test_reporters_only(deployed: Running) -> None:
    assert error_of(send(deployed.admin, "main")) == (403, "forbidden")


def test_a_revoked_token_reports_no_more(deployed: Running) -> None:
    made = deployed.admin.post("/v1/tokens", json={"role": "reporter"}).json()["tokens"][0]
    client = deployed.client(made["token"])
    assert send(client, "main").status_code == 201
    assert deployed.admin.delete(f"/v1/tokens/{made['id']}").status_code == 204
    assert error_of(send(client, "main")) == (401, "unauthorised")
    assert error_of(deployed.admin.delete(f"/v1/tokens/{made['id']}")) == (404, "not_found")
    assert made["id"] not in deployed.admin.get("/v1/tokens").text


def test_an_expired_token_is_told_so(deployed: Running) -> None:
    body = {"role": "reporter", "expires_in_s": 0.001}
    made = deployed.admin.post("/v1/tokens", json=body).json()["tokens"][0]
    assert error_of(send(deployed.client(made["token"]), "main")) == (401, "token_expired")


def test_the_log_holds_no_token_no_output_and_no_id(deployed: Running, tmp_path: Path) -> None:
    made = deployed.admin.post("/v1/tokens", json={"role": "reporter"}).json()["tokens"][0]
    client = deployed.client(made["token"])
    key = new_id()
    send(client, "main", id=key)
    send(client, "main", id=key, output=0)
    client.post(f"/v1/deployments/main/reports?token={made['token']}", content=b'{"id":')
    log = deployed.log.read_text()
    assert "POST /v1/deployments/{name}/reports 201" in log
    for hidden in (
        made["token"],
        made["token"].split("_", 2)[2],
        key,
        deployed.admin_token,
        "127.0.0.1",
    ):
        assert hidden not in log


def test_a_token_has_a_quota_of_reports(deployed: Running) -> None:
    """Beyond it nothing counts, so that one token does not move everybody's estimate."""
    made = deployed.admin.post(
        "/v1/deployments", json=request("few") | {"reports_per_period": 2, "period_s": 31_000_000}
    )
    assert made.status_code == 201
    client, other = deployed.reporters(2)
    first = new_id()
    # Two of this period; a token that is new has none from the period before.
    assert send(client, "few", id=first).status_code == 201
    assert [send(client, "few").status_code for _ in range(5)] == [201] + [429] * 4
    refused = send(client, "few")
    assert error_of(refused) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) > 1
    assert send(client, "few", id=first).status_code == 200
    assert send(other, "few").status_code == 201
    assert deployed.admin.get("/v1/deployments/few/counts").json()["reports"] == 3


def test_a_report_is_of_the_version_in_force(deployed: Running) -> None:
    deploy(deployed, "silent")
    (client,) = deployed.reporters(1)
    url = "/v1/deployments/silent/reports"
    body = {"id": new_id(), "output": 5}
    assert client.post(url, json=body).status_code == 201
    patch = {"table": {"name": "city", "version": 2}}
    assert deployed.admin.patch("/v1/deployments/silent", json=patch).status_code == 200
    # The same again is the same, although another table is in force.
    assert client.post(url, json=body).status_code == 200
    assert error_of(client.post(url, json=body | {"output": 0})) == (409, "conflict")
    assert client.post(url, json={"id": new_id(), "output": 0}).status_code == 201
    lines = deployed.admin.get(url).text.splitlines()
    assert [json.loads(line)["version"] for line in lines] == [1, 2]


def test_what_a_deployment_says_is_signed(deployed: Running) -> None:
    deploy(deployed, "stated")
    key = VerifyKey.from_base64(deployed.client().get("/v1").json()["key"]["public"])

    def stated() -> Statement:
        found = TableDeployment.model_validate_json(
            deployed.client().get("/v1/deployments/stated").content
        )
        return read_statement(found, key)

    first = stated()
    assert (first.version, first.reports_per_period, first.metric) == (1, 1_000, "haversine")
    deployed.admin.patch("/v1/deployments/stated", json={"open": False})
    assert stated() == first
    patch = {"table": {"name": "city", "version": 2}}
    deployed.admin.patch("/v1/deployments/stated", json=patch)
    second = stated()
    assert (second.version, second.epsilon) == (2, 2.0)
    assert second.issued >= first.issued


def test_tokens_come_in_pages(deployed: Running) -> None:
    deployed.reporters(5)
    total = deployed.admin.get("/v1/tokens").json()["total"]
    seen: list[str] = []
    while True:
        page = deployed.admin.get(
            "/v1/tokens", params={"limit": 3, "after": seen[-1] if seen else ""}
        ).json()["tokens"]
        assert len(page) <= 3
        if not page:
            break
        seen += [token["id"] for token in page]
    assert len(seen) == len(set(seen)) == total
