"""Anchors and balls against a running server: rounds with late, silent, forged and bad uploads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from protocol_servers import (
    PATIENCE,
    SQLITE_ONLY,
    Running,
    domain_body,
    error_of,
    new_id,
    publish,
    small_domain,
    small_table,
)
from sqlalchemy import update

import panda_mdp as pm
from panda_mdp.panda.lattice import BallLaw
from panda_mdp.privacy.quantise import SeededBits
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeployment,
    BallDeployment,
    BallRows,
    RoundRows,
)
from panda_mdp.protocol.messages.signing import VerifyKey, rows_digest, signed_bytes
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.schema import TableRow

DOMAIN = small_domain(30)
SELECTION = {"decay": "exponential", "alpha": 0.9, "rate": 0.5, "radius": 2.0}
OUTPUTS = [0, 6, 12, 18, 24]


def request(name: str, **changes: Any) -> dict[str, Any]:
    body = {"kind": "anchors", "name": name, "domain": "city", "outputs": OUTPUTS}
    body |= {"epsilon": 5.0, "delta": 1e-3, "selection": SELECTION, "accept_no_guarantee": True}
    return body | changes


def deploy(server: Running, name: str, **changes: Any) -> AnchorsDeployment:
    made = server.admin.post("/v1/deployments", json=request(name, **changes))
    assert made.status_code == 201, made.text
    return AnchorsDeployment.model_validate_json(made.content)


def open_round(server: Running, name: str, **body: Any) -> int:
    made = server.admin.post(f"/v1/deployments/{name}/rounds", json=body)
    assert made.status_code == 201, made.text
    number: int = made.json()["round"]
    return number


def upload(client: httpx.Client, name: str, number: int, anchors: list[int]) -> httpx.Response:
    body = {"anchors": anchors}
    return client.post(f"/v1/deployments/{name}/rounds/{number}/anchors", json=body)


def solved(server: Running, name: str, number: int) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while True:
        found: dict[str, Any] = server.admin.get(f"/v1/deployments/{name}/rounds/{number}").json()
        if found["state"] in ("solved", "failed"):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def rows(client: httpx.Client, name: str, number: int) -> httpx.Response:
    return client.get(f"/v1/deployments/{name}/rounds/{number}/rows")


def send(client: httpx.Client, name: str, output: int = 6) -> httpx.Response:
    body = {"id": new_id(), "output": output}
    return client.post(f"/v1/deployments/{name}/reports", json=body)


@pytest.fixture(scope="module")
def ready(server: Running) -> Running:
    assert server.admin.post("/v1/domains", json=domain_body(DOMAIN, "city")).status_code == 201
    return server


@SQLITE_ONLY
def test_no_guarantee_has_to_be_accepted(ready: Running) -> None:
    answer = ready.admin.post(
        "/v1/deployments", json=request("unwanted", accept_no_guarantee=False)
    )
    assert error_of(answer) == (422, "invalid")
    assert "Phase I costs" in answer.text and "accept_no_guarantee" in answer.text
    made = deploy(ready, "wanted")
    assert made.guarantee is None and "Phase I costs" in made.reasons[0]


@SQLITE_ONLY
def test_a_certified_deployment_needs_no_such_word(ready: Running) -> None:
    fits = {
        "decay": "exponential",
        "alpha": 1 - 1e-6,
        "rate": 0.0,
        "radius": 50.0,
        "neighbours": 30,
    }
    made = deploy(ready, "fits", selection=fits, accept_no_guarantee=False)
    assert made.guarantee is not None
    assert (made.guarantee.epsilon, made.guarantee.delta) == (5.0, 1e-3)
    number = open_round(ready, "fits", closes_at_users=1)
    (client,) = ready.reporters(1)
    assert upload(client, "fits", number, list(range(30))).status_code == 201
    assert solved(ready, "fits", number)["state"] == "solved"
    found = RoundRows.model_validate_json(rows(client, "fits", number).content)
    logs = np.log(np.array([[int(w) for w in row] for row in found.weights], dtype=float))
    spent = np.abs(logs[:, None] - logs).max(axis=2)
    assert (spent <= 5.0 * DOMAIN.distances() * (1 + 1e-9)).all()


def test_two_rounds(ready: Running) -> None:
    """Users come, are late, stay silent and leave; the second round starts from the first."""
    deploy(ready, "life", reports_per_period=2)
    public = ready.client()
    assert public.get("/v1/deployments/life").json()["in_force"] is None
    early, leaving, late, silent = ready.reporters(4)
    assert error_of(send(early, "life")) == (409, "wrong_version")
    number = open_round(ready, "life")
    assert number == 1 and public.get("/v1/deployments/life").json()["round"] == 1
    again = ready.admin.post("/v1/deployments/life/rounds", json={})
    assert error_of(again) == (409, "conflict")
    selection = pm.BernoulliAnchors("exponential", 0.9, 0.5, 2.0)
    drawn = {
        client: selection.draw(DOMAIN, k).tolist() for k, client in enumerate((early, leaving))
    }
    for client, anchors in drawn.items():
        assert upload(client, "life", 1, anchors).status_code == 201
    answer = rows(early, "life", 1)
    assert error_of(answer) == (503, "unavailable") and answer.headers["retry-after"] == "2"
    assert ready.admin.post("/v1/deployments/life/rounds/1/close").json()["state"] == "solving"
    assert error_of(upload(late, "life", 1, [1, 2])) == (409, "round_closed")
    assert solved(ready, "life", 1) | {"opened": 0} == {
        "round": 1,
        "state": "solved",
        "users": 2,
        "opened": 0,
        "closes_at": None,
        "closes_at_users": None,
        "error": None,
    }
    key = VerifyKey.from_base64(public.get("/v1").json()["key"]["public"])
    for client, anchors in drawn.items():
        found = RoundRows.model_validate_json(rows(client, "life", 1).content)
        assert (found.anchors, found.outputs) == (anchors, OUTPUTS)
        assert all(sum(int(w) for w in row) == 2**62 for row in found.weights)
        signed = signed_bytes(
            "rows", "life", 1, rows_digest(found.anchors, found.outputs, found.weights)
        )
        key.verify(signed, found.signature)
        assert send(client, "life").status_code == 201
    assert public.get("/v1/deployments/life").json()["in_force"] == 1
    for client in (late, silent):
        assert error_of(rows(client, "life", 1)) == (404, "not_found")
        assert error_of(send(client, "life")) == (409, "wrong_version")

    assert open_round(ready, "life", closes_at_users=2) == 2
    # Whoever stays uploads the same set again, which costs nothing more.
    assert upload(early, "life", 2, drawn[early]).status_code == 201
    # The first round stays in force until the second is solved.
    assert send(leaving, "life").status_code == 201
    assert upload(late, "life", 2, [0, 3, 9]).status_code == 201
    assert solved(ready, "life", 2)["users"] == 2
    assert send(early, "life").status_code == send(late, "life").status_code == 201
    assert error_of(send(leaving, "life")) == (409, "wrong_version")
    listed = public.get("/v1/deployments/life/rounds").json()["rounds"]
    assert [entry["state"] for entry in listed] == ["solved", "solved"]
    assert ready.admin.get("/v1/deployments/life/counts").json()["reports"] == 5
    answer = ready.admin.get("/v1/deployments/life/estimate")
    assert error_of(answer) == (404, "not_found")


def test_an_upload_counts_once(ready: Running) -> None:
    deploy(ready, "once")
    number = open_round(ready, "once")
    first, second = ready.reporters(2)
    url = f"/v1/deployments/once/rounds/{number}/anchors"
    body = {"anchors": [1, 5]}
    assert [first.post(url, json=body).status_code for _ in range(2)] == [201, 200]
    assert error_of(first.post(url, json=body | {"anchors": [1, 6]})) == (409, "conflict")
    # Two people may have drawn the same.
    assert second.post(url, json=body).status_code == 201
    # After the round has closed the repeat is still what it was.
    ready.admin.post(f"/v1/deployments/once/rounds/{number}/close")
    assert first.post(url, json=body).status_code == 200
    solved(ready, "once", number)


@SQLITE_ONLY
@pytest.mark.parametrize(
    "anchors", [[30], [5, 5], [7, 3], [-1], [1.5], ["3"], [True], "12", [10**9]]
)
def test_bad_sets_are_refused_without_being_shown(ready: Running, anchors: Any) -> None:
    if ready.client().get("/v1/deployments/strict").status_code == 404:
        deploy(ready, "strict")
        open_round(ready, "strict")
    (client,) = ready.reporters(1)
    answer = upload(client, "strict", 1, anchors)
    assert error_of(answer) == (422, "invalid")


@SQLITE_ONLY
def test_candidates_are_all_that_may_be_uploaded(ready: Running) -> None:
    deploy(ready, "few", selection=SELECTION | {"candidates": [0, 5, 10, 15]})
    number = open_round(ready, "few")
    first, second = ready.reporters(2)
    assert error_of(upload(first, "few", number, [0, 6])) == (422, "invalid")
    assert upload(first, "few", number, [0, 5]).status_code == 201
    # Somebody who drew nothing takes part without rows.
    assert upload(second, "few", number, []).status_code == 201
    ready.admin.post(f"/v1/deployments/few/rounds/{number}/close")
    assert solved(ready, "few", number)["state"] == "solved"
    assert rows(second, "few", number).json()["anchors"] == []


@SQLITE_ONLY
def test_a_round_closes_by_itself_and_one_without_anybody_fails(ready: Running) -> None:
    deploy(ready, "timed")
    number = open_round(ready, "timed", closes_after_s=0.3)
    found = solved(ready, "timed", number)
    assert found["state"] == "failed" and "nobody uploaded" in found["error"]
    (client,) = ready.reporters(1)
    assert error_of(upload(client, "timed", number, [1])) == (409, "round_closed")
    assert open_round(ready, "timed", closes_after_s=60) == 2
    assert upload(client, "timed", 2, [1]).status_code == 201


@SQLITE_ONLY
def test_other_kinds_have_no_rounds(ready: Running, tmp_path: Any) -> None:
    publish(ready.admin, small_table(DOMAIN), "plain", tmp_path)
    body = {"kind": "table", "name": "plain", "table": {"name": "plain", "version": 1}}
    assert ready.admin.post("/v1/deployments", json=body).status_code == 201
    assert error_of(ready.admin.post("/v1/deployments/plain/rounds", json={})) == (404, "not_found")
    assert error_of(ready.client().get("/v1/deployments/plain/rounds")) == (404, "not_found")
    (client,) = ready.reporters(1)
    ball = client.post("/v1/deployments/plain/balls", json={"centre": [0, 0]})
    assert error_of(ball) == (404, "not_found")
    deploy(ready, "patched")
    patch = ready.admin.patch(
        "/v1/deployments/patched", json={"table": {"name": "plain", "version": 1}}
    )
    assert error_of(patch) == (422, "invalid")


def test_a_round_survives_the_death_of_the_server(make_server: Callable[..., Running]) -> None:
    server = make_server()
    server.admin.post("/v1/domains", json=domain_body(DOMAIN, "city"))
    deploy(server, "life")
    number = open_round(server, "life")
    made = server.admin.post("/v1/tokens", json={"role": "reporter"}).json()["tokens"][0]
    client = server.client(made["token"])
    assert upload(client, "life", number, [1, 2, 3]).status_code == 201
    server.admin.post(f"/v1/deployments/life/rounds/{number}/close")
    time.sleep(0.3)
    server.kill()
    server.start()
    assert solved(server, "life", number)["state"] == "solved"
    assert send(server.client(made["token"]), "life").status_code == 201


# Balls


def test_balls(ready: Running, tmp_path: Any) -> None:
    publish(ready.admin, small_table(DOMAIN, epsilon=1.5), "half", tmp_path)
    body = {"kind": "ball", "name": "ball", "table": {"name": "half", "version": 1}}
    body |= {"epsilon_1": 2.0, "edge": 0.5, "radius": 3.0, "snap": 2.0}
    made = BallDeployment.model_validate_json(
        ready.admin.post("/v1/deployments", json=body).content
    )
    assert (made.guarantee.epsilon, made.guarantee.delta) == (4.0, 0.0)
    assert made.places.lat[: len(made.outputs)] == DOMAIN.lat[made.outputs].tolist()
    law = BallLaw(DOMAIN, 2.0, 3.0, 2.0, 0.5)
    first, second = ready.reporters(2)
    url = "/v1/deployments/ball/balls"
    centre = law.draw(4, SeededBits(0))
    ask = {"centre": list(centre)}
    answer = first.post(url, json=ask)
    assert answer.status_code == 200
    found = BallRows.model_validate_json(answer.content)
    assert len(found.unpack(made.rows, made.tiles)) == len(found.lat) > 0
    ball = law.ball(centre)
    assert {*zip(DOMAIN.lat[ball].tolist(), DOMAIN.lon[ball].tolist(), strict=True)} <= {
        *zip(found.lat, found.lon, strict=True)
    }
    assert error_of(first.post(url, json={"centre": [999_999, 0]})) == (422, "invalid")
    assert send(first, "ball", made.outputs[0]).status_code == 201
    # The same centre, for anybody: the same rows, to the byte.
    for client in (first, second):
        assert client.post(url, json=ask).content == answer.content


def test_balls_need_the_tables_file_once(database: str, tmp_path: Any, make_server: Any) -> None:
    """A service that starts again hands balls out without reading a table, which may take minutes:
    what they are cut from was made with the deployment."""
    server = make_server(database)
    publish(server.admin, small_table(DOMAIN, epsilon=1.5), "half", tmp_path)
    body = {"kind": "ball", "name": "ball", "table": {"name": "half", "version": 1}}
    body |= {"epsilon_1": 2.0, "edge": 0.5, "radius": 3.0, "snap": 2.0}
    assert server.admin.post("/v1/deployments", json=body).status_code == 201
    server.stop()
    with Store.open(database) as store, store.write() as session:
        session.execute(update(TableRow).values(file=b"gone"))
    server.start()
    made = BallDeployment.model_validate_json(server.admin.get("/v1/deployments/ball").content)
    (client,) = server.reporters(1)
    law = BallLaw(DOMAIN, 2.0, 3.0, 2.0, 0.5)
    for record in (4, 9):
        centre = law.draw(record, SeededBits(record))
        answer = client.post("/v1/deployments/ball/balls", json={"centre": list(centre)})
        assert answer.status_code == 200
        found = BallRows.model_validate_json(answer.content)
        assert len(found.unpack(made.rows, made.tiles)) == len(found.lat) > 0


@SQLITE_ONLY
def test_a_ball_needs_no_map(ready: Running, tmp_path: Any) -> None:
    """The records of its table are published nowhere, and what is shown of them are few."""
    domain = small_domain(60, seed=7)
    publish(ready.admin, small_table(domain), "hidden", tmp_path)
    body = {"kind": "ball", "name": "hidden", "table": {"name": "hidden", "version": 1}}
    body |= {"epsilon_1": 2.0, "edge": 0.5, "radius": 3.0, "snap": 2.0}
    answer = ready.admin.post("/v1/deployments", json=body)
    assert answer.status_code == 201
    made = BallDeployment.model_validate_json(answer.content)
    assert len(made.places.lat) <= len(made.outputs) + 8 < domain.size
    # An edge that does not pay for the rounding of places is refused at once.
    answer = ready.admin.post("/v1/deployments", json=body | {"name": "thin", "edge": 1e-6})
    assert error_of(answer) == (422, "invalid") and "from each other" in answer.text
