"""The estimate of a deployment: reports and tables out of the store, into `estimate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, func, select

from panda_mdp.base.arrays import IntArray
from panda_mdp.panda.file.decode import decode as decode_panda
from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.reports import Estimate
from panda_mdp.protocol.server.estimate import (
    CONFIDENCE,
    Shares,
    anchors_observations,
    estimate,
    table_observations,
)
from panda_mdp.protocol.server.store.catalogue import (
    domain_row,
    is_everywhere,
    is_panda,
    read_table,
)
from panda_mdp.protocol.server.store.deployments import anchors_request, table_of_version
from panda_mdp.protocol.server.store.rounds import (
    build_task,
    served_sets,
    unpack_solution,
)
from panda_mdp.protocol.server.store.schema import reports, rounds
from panda_mdp.table.pmdp.decode import decode

Rows = list[tuple[str, int, int, int]]


@dataclass(frozen=True)
class TableInputs:
    """Reports of a deployment that draws from whole tables or balls."""

    files: list[tuple[int, bytes]]
    rows: Rows


@dataclass(frozen=True)
class AnchorsInputs:
    """Reports of an anchors deployment."""

    request: str
    claims: dict[str, str]
    arrays: bytes
    rounds: list[tuple[int, list[tuple[str, IntArray]], bytes]]
    rows: Rows


def span(connection: Connection, deployment: int) -> str:
    """The first and the latest report: what an estimate is about changes with either."""
    first, last = connection.execute(
        select(func.min(reports.c.seq), func.max(reports.c.seq)).where(
            reports.c.deployment == deployment
        )
    ).one()
    return f"{first or 0}-{last or 0}"


def gather(
    connection: Connection, deployment: Row[Any], file: Callable[[TableRef], bytes]
) -> TableInputs | AnchorsInputs:
    """Everything that an estimate takes. Users are token ids, and stay on the server."""
    cursor = connection.execute(
        select(reports.c.token, reports.c.version, reports.c.output, func.count())
        .where(reports.c.deployment == deployment.id)
        .group_by(reports.c.token, reports.c.version, reports.c.output)
    )
    rows = [(str(a), int(b), int(c), int(d)) for a, b, c, d in cursor]
    versions = sorted({row[1] for row in rows})
    if deployment.kind != "anchors":
        wanted = versions or [int(deployment.version)]
        files = [
            (version, file(table_of_version(connection, deployment.id, version)))
            for version in wanted
        ]
        return TableInputs(files, rows)
    solved = []
    for version in versions:
        solution = connection.execute(
            select(rounds.c.solution).where(
                rounds.c.deployment == deployment.id, rounds.c.number == version
            )
        ).scalar_one()
        solved.append((version, served_sets(connection, deployment.id, version), bytes(solution)))
    request = anchors_request(deployment)
    domain = domain_row(connection, request.domain)
    claims = {"kind": domain.kind, "unit": domain.unit, "fingerprint": domain.fingerprint}
    return AnchorsInputs(request.model_dump_json(), claims, bytes(domain.arrays), solved, rows)


def compute(inputs: TableInputs | AnchorsInputs) -> Estimate:
    """The estimate. Runs in a worker process."""
    number = sum(row[3] for row in inputs.rows)
    if isinstance(inputs, TableInputs):
        tables = []
        for version, data in inputs.files:
            if is_panda(data):
                both = decode_panda(data)
                tables.append((version, both.problem.outputs, both.marginal))
                continue
            if is_everywhere(data):
                points = decode(data)
                tables.append((version, points.problem.outputs, points.matrix))
                continue
            table = read_table(data)
            tables.append((version, table.outputs, np.asarray(table.weights()) / 2.0**62))
        return _message(estimate(table_observations(tables, inputs.rows)), number)
    task = build_task(inputs.request, inputs.claims, inputs.arrays)
    problem = task.problem
    column = {output: k for k, output in enumerate(problem.outputs.tolist())}
    parts, reports = [], []
    for version, members, data in inputs.rounds:
        solution = unpack_solution(data)
        parts.append((members, solution.weights / 2.0**62, solution.row, solution.anchors))
        by_user: dict[str, list[tuple[int, int]]] = {}
        for user, at, output, count in inputs.rows:
            if at == version:
                by_user.setdefault(user, []).append((column[output], count))
        reports.append(by_user)
    law = task.selection.on(problem.domain)
    return _message(estimate(anchors_observations(law, parts, reports)), number)


def _message(shares: Shares, number: int) -> Estimate:
    return Estimate(
        records=list(range(len(shares.share))),
        share=shares.share.clip(0, 1).tolist(),
        low=shares.low.clip(0, 1).tolist(),
        high=shares.high.clip(0, 1).tolist(),
        iterations=shares.iterations,
        reports=number,
        confidence=CONFIDENCE,
    )
