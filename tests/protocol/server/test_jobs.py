"""Solves in worker processes: progress, cancel, failure, and a server that dies meanwhile."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from protocol_servers import SQLITE_ONLY, Running, domain_body, error_of, new_id, small_domain
from sqlalchemy import select, update

import panda_mdp as pm
from panda_mdp.protocol.messages.catalogue import JobInfo, JobRequest
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.settings import Settings
from panda_mdp.protocol.server.store.database import Store, now_ms
from panda_mdp.protocol.server.store.jobs import (
    all_jobs,
    cancel_job,
    end_job,
    find_job,
    job_info,
    queue_job,
)
from panda_mdp.protocol.server.store.schema import jobs, tables
from panda_mdp.protocol.server.supervisor import Supervisor

ENDED = ("done", "failed", "cancelled")


def request(**changes: Any) -> dict[str, Any]:
    body = {"id": new_id(), "table": "solved", "domain": "city", "outputs": [0, 10, 20, 30]}
    return body | {"epsilon": 3.0} | changes


def wait(client: httpx.Client, job: str, until: tuple[str, ...] = ENDED, limit: float = 240) -> Any:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        found = client.get(f"/v1/jobs/{job}").json()
        if found["state"] in until:
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def slow(domain: pm.Domain) -> dict[str, Any]:
    """A job that takes longer than any test."""
    outputs = list(range(0, domain.size, 4))
    return request(table="slow", domain="large", outputs=outputs, gap=1e-9, time_limit=600.0)


@pytest.fixture(scope="module")
def ready(server: Running) -> Running:
    server.admin.post("/v1/domains", json=domain_body(small_domain(), "city"))
    server.admin.post("/v1/domains", json=domain_body(small_domain(400), "large"))
    return server


def test_a_solve_becomes_a_table(ready: Running, tmp_path: Path) -> None:
    body = request()
    made = ready.admin.post("/v1/jobs", json=body)
    assert made.status_code == 202
    assert ready.admin.post("/v1/jobs", json=body).status_code == 200
    other = ready.admin.post("/v1/jobs", json=body | {"epsilon": 4.0})
    assert error_of(other) == (409, "conflict")
    found = JobInfo.model_validate(wait(ready.admin, body["id"]), strict=False)
    assert found.state == "done", found.error
    assert found.table is not None and found.table.name == "solved"
    progress = found.progress
    assert progress.loss is not None and progress.lower_bound is not None
    assert progress.gap is not None and progress.gap <= 0.0101
    path = tmp_path / "t.pmdc"
    path.write_bytes(ready.client().get(f"/v1/tables/solved/{found.table.version}/file").content)
    assert pm.load_compact(path).audit.holds
    assert body["id"] in [job["id"] for job in ready.admin.get("/v1/jobs").json()["jobs"]]


@SQLITE_ONLY
def test_a_job_that_cannot_be_done_says_why(ready: Running) -> None:
    body = request(outputs=[0, 0])
    assert ready.admin.post("/v1/jobs", json=body).status_code == 202
    found = wait(ready.admin, body["id"])
    assert found["state"] == "failed"
    assert "named 2 times" in found["error"]
    body = request(loss={"kind": "matrix", "values": [[1.0, 2.0], [3.0]]})
    ready.admin.post("/v1/jobs", json=body)
    assert "different lengths" in wait(ready.admin, body["id"])["error"]
    missing = ready.admin.post("/v1/jobs", json=request(domain="nowhere"))
    assert error_of(missing) == (404, "not_found")
    assert error_of(ready.admin.get(f"/v1/jobs/{new_id()}")) == (404, "not_found")


@SQLITE_ONLY
def test_a_running_job_shows_progress_and_can_be_cancelled(ready: Running) -> None:
    body, behind = slow(small_domain(400)), request(table="behind")
    ready.admin.post("/v1/jobs", json=body)
    ready.admin.post("/v1/jobs", json=behind)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = ready.admin.get(f"/v1/jobs/{body['id']}").json()
        if found["progress"]["iterations"] > 0:
            break
        time.sleep(0.05)
    assert found["state"] == "running" and found["progress"]["lower_bound"] > 0
    assert ready.admin.get(f"/v1/jobs/{behind['id']}").json()["state"] == "queued"
    # One that waits is cancelled at once, one that runs as soon as it is stopped.
    cancelled = ready.admin.post(f"/v1/jobs/{behind['id']}/cancel").json()
    assert cancelled["state"] == "cancelled"
    ready.admin.post(f"/v1/jobs/{body['id']}/cancel")
    assert wait(ready.admin, body["id"], limit=60)["state"] == "cancelled"
    assert error_of(ready.client().get("/v1/tables/slow/1")) == (404, "not_found")
    # What has ended stays as it is.
    assert ready.admin.post(f"/v1/jobs/{body['id']}/cancel").json()["state"] == "cancelled"


def test_a_job_survives_the_death_of_the_server(
    make_server: Callable[..., Running], tmp_path: Path
) -> None:
    server = make_server()
    server.admin.post("/v1/domains", json=domain_body(small_domain(), "city"))
    body = request(gap=1e-4)
    assert server.admin.post("/v1/jobs", json=body).status_code == 202
    wait(server.admin, body["id"], ("running",))
    time.sleep(0.5)
    server.kill()
    server.start()
    found = wait(server.admin, body["id"])
    assert found["state"] == "done", found["error"] + server.log.read_text()
    listed = server.client().get("/v1/tables").json()["tables"]
    assert [(entry["name"], entry["version"]) for entry in listed] == [("solved", 1)]


# Without a server


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Store.create(database) as made:
        yield made


def queued(store: Store) -> str:
    wanted = JobRequest(id=new_id(), table="t", domain="d", outputs=[0], epsilon=1.0)
    with store.write() as connection:
        assert queue_job(connection, wanted.id, "table", wanted.model_dump_json().encode())
    return wanted.id


def state(store: Store, job: str) -> str:
    with store.read() as connection:
        return job_info(find_job(connection, job)).state


def test_a_worker_that_was_given_up_publishes_nothing(store: Store) -> None:
    job = queued(store)
    with store.write() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job).values(state="running", attempt=2))
    with store.write() as connection:
        assert not end_job(connection, job, 1, "done")
    assert state(store, job) == "running"
    with store.write() as connection:
        assert end_job(connection, job, 2, "failed", error="x" * 5_000)
        assert not end_job(connection, job, 2, "done")
    with store.read() as connection:
        assert len(job_info(find_job(connection, job)).error or "") < 2_000


def test_jobs_are_listed_in_order_and_not_queued_twice(store: Store) -> None:
    made = [queued(store) for _ in range(3)]
    with store.read() as connection:
        assert [job.id for job in all_jobs(connection)] == made
    with store.write() as connection:
        with pytest.raises(Failure, match="another job"):
            queue_job(connection, made[0], "table", b"other")
        cancel_job(connection, made[1])
    assert state(store, made[1]) == "cancelled"


def test_a_worker_that_dies_fails_its_job(store: Store, tmp_path: Path) -> None:
    """Somebody, or the system for lack of memory, kills the worker."""
    key = tmp_path / "operator.key"
    SigningKey.create(key)
    changed: list[int] = []
    job = queued(store)
    supervisor = Supervisor(store, key, lambda: changed.append(1), Settings(poll_seconds=0.02))
    supervisor.start()
    deadline = time.monotonic() + 120
    while "table" not in supervisor._running and time.monotonic() < deadline:
        time.sleep(0.01)
    supervisor._running["table"].process.kill()
    while state(store, job) == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    supervisor.stop()
    with store.read() as connection:
        found = job_info(find_job(connection, job))
        assert connection.execute(select(tables.c.name)).all() == []
    assert found.state == "failed" and "ended with code -9" in (found.error or "")
    assert changed


def test_a_stopped_server_leaves_its_job_for_the_next_one(store: Store, tmp_path: Path) -> None:
    key = tmp_path / "operator.key"
    SigningKey.create(key)
    job = queued(store)
    first = Supervisor(store, key, lambda: None, Settings(poll_seconds=0.02))
    first.start()
    deadline = time.monotonic() + 120
    while state(store, job) != "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    first.stop()
    assert state(store, job) == "running"
    second = Supervisor(store, key, lambda: None, Settings(poll_seconds=0.02))
    second.start()
    while state(store, job) not in ENDED and time.monotonic() < deadline + 120:
        time.sleep(0.01)
    second.stop()
    # There is no such domain, which only a worker that ran to the end can find out.
    with store.read() as connection:
        found = job_info(find_job(connection, job))
    assert found.state == "failed" and "no domain" in (found.error or "")


def test_only_the_job_of_a_server_that_is_gone_is_run_again(store: Store, tmp_path: Path) -> None:
    running, left, cancelled = (queued(store) for _ in range(3))
    with store.write() as connection:
        for job, lease in ((running, now_ms() + 60_000), (left, now_ms() - 1), (cancelled, None)):
            connection.execute(
                update(jobs).where(jobs.c.id == job).values(state="running", lease=lease)
            )
        cancel_job(connection, cancelled)
    other = Supervisor(store, tmp_path / "operator.key", lambda: None, Settings())
    other._take_back()
    assert [state(store, job) for job in (running, left, cancelled)] == [
        "running",
        "queued",
        "cancelled",
    ]


def test_a_server_that_lost_its_lease_ends_its_worker(store: Store, tmp_path: Path) -> None:
    key = tmp_path / "operator.key"
    SigningKey.create(key)
    job = queued(store)
    supervisor = Supervisor(store, key, lambda: None, Settings())
    supervisor._start_next("table")
    mine = supervisor._running["table"]
    with store.write() as connection:
        # Another server has taken the job up meanwhile.
        connection.execute(update(jobs).where(jobs.c.id == job).values(attempt=2))
    mine.renewed = -math.inf
    supervisor._look_after("table", mine)
    assert mine.asked_to_end is not None
    assert mine.process.wait(60) != 0
    supervisor._look_after("table", mine)
    assert state(store, job) == "running"
