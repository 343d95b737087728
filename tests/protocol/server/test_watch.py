"""Health, readiness, metrics and logs: what whoever runs a server sees, and what nobody does."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from protocol_servers import Postgres, Running, error_of, new_id, publish, small_domain, small_table

from panda_mdp.protocol.server.gate import JsonLines

LABELS = {"method", "route", "status", "code", "le"}


def samples(text: str) -> dict[str, float]:
    """Sums of all samples by name."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
            assert set(sample.labels) <= LABELS, sample
    return found


def test_metrics_count_and_name_nobody(make_server: Callable[..., Running], tmp_path: Path) -> None:
    server = make_server(None, "--log-json")
    publish(server.admin, small_table(small_domain()), "secretcity", tmp_path)
    wanted = {"kind": "table", "name": "secretname", "table": {"name": "secretcity", "version": 1}}
    server.admin.post("/v1/deployments", json=wanted | {"reports_per_period": 6})
    (reporter,) = server.reporters(1)
    made = server.admin.post("/v1/tokens", json={"role": "monitor"}).json()["tokens"][0]["token"]
    for output in (5, 5, 10, 10, 15, 15, 20, 999):
        reporter.post("/v1/deployments/secretname/reports", json={"id": new_id(), "output": output})
    server.client().get("/v1/nowhere/secretpath")
    monitor = server.client(made)
    answer = monitor.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    found = samples(answer.text)
    assert found["panda_mdp_reports_stored_total"] == 6
    assert found["panda_mdp_reports_waiting"] == 0 and found["panda_mdp_ready"] == 1
    # One quota, one output that is none, one path that is none.
    assert found["panda_mdp_refusals_total"] == 3
    assert 'code="rate_limited"} 1.0' in answer.text
    assert found["panda_mdp_request_seconds_count"] == found["panda_mdp_requests_total"]
    token = reporter.headers["authorization"].split("_")[1]
    for mark in ("secret", token, made.split("_")[1], "127.0.0.1"):
        assert mark not in answer.text
    # Nobody else, and nothing else.
    assert error_of(server.client().get("/metrics")) == (401, "unauthorised")
    assert error_of(reporter.get("/metrics")) == (403, "forbidden")
    assert server.admin.get("/metrics").status_code == 200
    assert error_of(monitor.get("/v1/tokens")) == (403, "forbidden")
    assert error_of(monitor.post("/v1/deployments/secretname/reports", json={})) == (
        403,
        "forbidden",
    )
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert {"time", "level", "logger", "message", "method", "route", "status", "ms"} == set(
        lines[0]
    )
    text = server.log.read_text()
    assert "/v1/deployments/{name}/reports" in text
    for mark in ("secret", token, "127.0.0.1"):
        assert mark not in text


def test_ready_is_more_than_alive(make_server: Callable[..., Running]) -> None:
    cluster = Postgres().start()
    try:
        server = make_server(cluster.database())
        client = server.client()
        assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
        cluster.crash()
        assert client.get("/healthz").status_code == 200
        assert error_of(client.get("/readyz")) == (503, "unavailable")
        cluster.resume()
        assert client.get("/readyz").status_code == 200
    finally:
        cluster.stop()


def test_lines_are_json_whatever_they_say() -> None:
    record = logging.LogRecord("panda_mdp.server", 40, "", 0, 'a "%s"\n', ("x",), None)
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["message"]) == ("error", 'a "x"\n')
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", found["time"])
