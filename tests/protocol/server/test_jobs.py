"""Solves in worker processes: progress, cancel, failure, and a server that dies meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import httpx
import pytest
from protocol_servers import SQLITE_ONLY, Running, domain_body, error_of, new_id, small_domain
from sqlalchemy import select

import panda_mdp as pm
from panda_mdp.protocol.messages.catalogue import JobInfo, JobRequest
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.jobs import Supervisor
from panda_mdp.protocol.server.store.catalogue import (
    GivenUpError,
    all_jobs,
    cancel_job,
    end_job,
    find_job,
    job_info,
    queue_job,
)
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.schema import JobRow, TableRow, now

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
    path = tmp_path / "t.pmdp"
    path.write_bytes(ready.client().get(f"/v1/tables/solved/{found.table.version}/file").content)
    assert pm.load(path).audit.holds
    assert body["id"] in [job["id"] for job in ready.admin.get("/v1/jobs").json()["jobs"]]


@SQLITE_ONLY
def test_a_job_that_cannot_be_done_says_why(ready: Running) -> None:
    body = request(outputs=[0, 0])
    assert ready.admin.post("/v1/jobs", json=body).status_code == 202
    found = wait(ready.admin, body["id"])
    assert found["state"] == "failed"
    assert "named 2 times" in found["error"]
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
    with store.write() as session:
        assert queue_job(session, JobRow(id=wanted.id, kind="table", request=wanted))
    return wanted.id


def info(store: Store, job: str) -> JobInfo:
    with store.read() as session:
        return job_info(find_job(session, job))


def state(store: Store, job: str) -> str:
    return info(store, job).state


def set_running(store: Store, job: str, **values: Any) -> None:
    """As another server leaves a job."""
    with store.write() as session:
        row = find_job(session, job)
        row.state = "running"
        for name, value in values.items():
            setattr(row, name, value)


def supervisor(store: Store, folder: Path, changed: Callable[[], None] = lambda: None) -> Any:
    if not (folder / "operator.key").exists():
        SigningKey.create(folder / "operator.key")
    return Supervisor(store, folder / "operator.key", changed, 0.02)


def until(done: Callable[[], bool], limit: float = 120) -> None:
    deadline = time.monotonic() + limit
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_worker_that_was_given_up_publishes_nothing(store: Store) -> None:
    job = queued(store)
    set_running(store, job, attempt=2)
    with pytest.raises(GivenUpError), store.write() as session:
        end_job(session, job, 1, "done")
    assert state(store, job) == "running"
    with store.write() as session:
        end_job(session, job, 2, "failed", error="x" * 5_000)
    with pytest.raises(GivenUpError), store.write() as session:
        end_job(session, job, 2, "done")
    assert len(info(store, job).error or "") < 2_000


def test_jobs_are_listed_in_order_and_not_queued_twice(store: Store) -> None:
    made = [queued(store) for _ in range(3)]
    with store.write() as session:
        assert [job.id for job in all_jobs(session)] == made
        with pytest.raises(Failure, match="another job"):
            queue_job(session, JobRow(id=made[0], kind="table", request=None))
        cancel_job(session, made[1])
    assert state(store, made[1]) == "cancelled"


def test_a_worker_that_dies_fails_its_job(store: Store, tmp_path: Path) -> None:
    """Somebody, or the system for lack of memory, kills the worker."""
    changed: list[int] = []
    job = queued(store)
    server = supervisor(store, tmp_path, lambda: changed.append(1))
    server.start()
    until(lambda: bool(active_children()))
    active_children()[0].kill()
    until(lambda: state(store, job) != "running")
    server.stop()
    found = info(store, job)
    with store.read() as session:
        assert session.scalars(select(TableRow.name)).all() == []
    assert found.state == "failed" and "ended with code -9" in (found.error or "")
    assert changed


def test_a_stopped_server_leaves_its_job_for_the_next_one(store: Store, tmp_path: Path) -> None:
    job = queued(store)
    first = supervisor(store, tmp_path)
    first.start()
    until(lambda: state(store, job) == "running")
    first.stop()
    assert state(store, job) == "running"
    second = supervisor(store, tmp_path)
    second.start()
    until(lambda: state(store, job) in ENDED, 240)
    second.stop()
    # There is no such domain, which only a worker that ran to the end can find out.
    found = info(store, job)
    assert found.state == "failed" and "no domain" in (found.error or "")


def test_only_the_job_of_a_server_that_is_gone_is_run_again(store: Store, tmp_path: Path) -> None:
    running, left, cancelled = (queued(store) for _ in range(3))
    set_running(store, running, lease=now() + timedelta(minutes=1))
    set_running(store, left, lease=now() - timedelta(milliseconds=1), attempt=4)
    set_running(store, cancelled, cancel=True)
    other = supervisor(store, tmp_path)
    other.turn()
    with store.read() as session:
        # What was left runs again at once, as another run.
        assert find_job(session, left).attempt == 5
    assert [state(store, job) for job in (running, cancelled)] == ["running", "cancelled"]
    active_children()[0].kill()
    until(lambda: other.turn() or not active_children())


def test_a_server_that_lost_its_lease_ends_its_worker(store: Store, tmp_path: Path) -> None:
    job = queued(store)
    server = supervisor(store, tmp_path)
    server.turn()
    assert active_children()
    # Another server has taken the job up meanwhile.
    set_running(store, job, attempt=2, lease=now() + timedelta(hours=1))
    until(lambda: server.turn() or not active_children())
    assert not active_children() and state(store, job) == "running"
