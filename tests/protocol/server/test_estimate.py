"""Reports of a deployment as an estimate: users and versions."""

from __future__ import annotations

import secrets
from pathlib import Path

import numpy as np
import pytest
from protocol_servers import small_domain, small_table

import panda_mdp as pm
from panda_mdp.meaning.estimate import estimate_counts
from panda_mdp.meaning.shuffled import ShuffledReports
from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import TableDeploymentRequest
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.estimate import Reported, estimate, gather
from panda_mdp.protocol.server.store.catalogue import examine, store_table
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import store_deployment
from panda_mdp.protocol.server.store.schema import ReportRow, now
from panda_mdp.table.encode import encode

LINE = pm.Domain.from_vectors([[0.0], [1.0], [2.0], [4.0]])


def table(epsilon: float = 2.0) -> pm.Mechanism:
    return pm.exponential(pm.Problem(LINE, np.arange(4), LINE.distances(), epsilon))


def numbers(found: object, name: str) -> list[float]:
    return [getattr(zone, name) for zone in found.zones]


def of_counts(counts: list[int], **others: object) -> Reported:
    """So many users who reported each output once, from version 1."""
    told = [(1, output, float(count)) for output, count in enumerate(counts)]
    return Reported({1: encode(table())}, told, sum(counts), sum(counts))._replace(**others)


def test_one_report_of_each_user_is_what_the_library_estimates() -> None:
    counts = [9, 4, 6, 2]
    found = estimate(of_counts(counts))
    expected = estimate_counts(counts, table())
    assert (found.users, found.reports, found.zone) == (21, 21, [0, 1, 2, 3])
    for name in ("raw", "share", "low", "high"):
        np.testing.assert_allclose(numbers(found, name), getattr(expected, name)[0], atol=1e-12)
    np.testing.assert_allclose(found.share, expected.records[0], atol=1e-12)


def test_counts_alone_hide_each_report_among_the_others() -> None:
    """Where each user drew once, from one whole table; else nothing is said."""
    release = table(0.5)
    once = of_counts([100] * 4, files={1: encode(release)}, whole=True)
    found = estimate(once)
    assert found.batch is not None and found.batch[1] == 1e-6
    assert found.batch[0] == pytest.approx(ShuffledReports(release, 400).epsilon(1e-6))
    assert found.batch[0] < 0.5 * ShuffledReports(release, 400).local
    nobody = once._replace(counts=[], users=0, reports=0)
    both = once._replace(files={version: encode(release) for version in (1, 2)})
    for other in (once._replace(whole=False), once._replace(reports=401), nobody, both):
        assert estimate(other).batch is None


def test_repeated_reports_of_one_user_do_not_narrow_the_limits(tmp_path: Path) -> None:
    """What somebody reported is divided among the outputs: users count, not reports."""
    rows = [("a", 1, 5)] * 10 + [("b", 1, 5), ("b", 2, 0), ("b", 2, 0), ("b", 2, 5), ("c", 2, 0)]
    with Store.create(str(tmp_path / "panda.db")) as store, store.write() as session:
        candidate = examine(encode(small_table(small_domain())))
        store_table(session, SigningKey.generate(), "city", candidate)
        ref = TableRef(name="city", version=1)
        request = TableDeploymentRequest(kind="table", name="city", table=ref)
        deployment = store_deployment(session, request, candidate.promise)[0]
        deployment.tables = [ref, ref]
        elsewhere = ("a", 1, 0)
        session.add_all(
            ReportRow(
                **dict(zip(("token", "version", "output"), row, strict=True)),
                deployment=deployment.id + (row is elsewhere),
                id=secrets.token_bytes(16),
                at=now(),
            )
            for row in [*rows, elsewhere]
        )
        session.flush()
        found = gather(session, deployment)
    assert sorted(found.counts) == [
        (1, 5, pytest.approx(1.25)),
        (2, 0, pytest.approx(1.5)),
        (2, 5, pytest.approx(0.25)),
    ]
    assert (found.users, found.reports, found.whole) == (3, 15, True)
    assert found.files == {1: candidate.file, 2: candidate.file}
    estimated = estimate(found)
    assert (estimated.users, estimated.reports, estimated.batch) == (3, 15, None)


def test_a_second_version_of_the_same_table_changes_nothing() -> None:
    """Half of the users through a copy: what the limits allow stays within chance."""
    file = encode(table(3.0))
    one = of_counts([40, 10, 30, 20], files={1: file})
    halves = [(version, output, count / 2) for _, output, count in one.counts for version in (1, 2)]
    first = estimate(one)
    second = estimate(one._replace(files={1: file, 2: file}, counts=halves))
    np.testing.assert_allclose(numbers(first, "raw"), numbers(second, "raw"), atol=1e-12)
    for name in ("low", "high"):
        np.testing.assert_allclose(numbers(first, name), numbers(second, name), atol=0.02)


def test_nobody_and_one_user_tell_next_to_nothing() -> None:
    found = estimate(of_counts([]))
    assert found.share == [0.25] * 4
    assert (numbers(found, "low"), numbers(found, "high")) == ([0.0] * 4, [1.0] * 4)
    found = estimate(of_counts([0, 0, 1, 0], reports=50))
    assert found.users == 1 and max(numbers(found, "high")) == 1.0
