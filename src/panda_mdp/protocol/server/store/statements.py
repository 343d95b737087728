"""What the operator has signed about deployments: one statement for each state, for everybody."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from panda_mdp.protocol.messages.catalogue import TableInfo
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeploymentRequest,
    BallDeploymentRequest,
    PandaDeploymentRequest,
    Statement,
    TableDeploymentRequest,
)
from panda_mdp.protocol.messages.signing import (
    SigningKey,
    digest_of,
    statement_bytes,
    table_entry,
)
from panda_mdp.protocol.server.store.catalogue import (
    domain_row,
    table_file,
    table_info,
    table_metric,
)
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.deployments import (
    advice_of,
    all_deployments,
    current_table,
    facts_of,
    latest_statement,
    request_of,
)
from panda_mdp.protocol.server.store.log import append, complete
from panda_mdp.protocol.server.store.schema import statements, tables


def sign_deployment(connection: Connection, key: SigningKey, row: Row[Any]) -> None:
    """Sign what a deployment says now, unless the latest statement says the same."""
    stated = _statement(connection, row)
    before = latest_statement(connection, row.name)
    text = stated.model_dump_json()
    if before is not None:
        known = Statement.model_validate_json(before.text)
        if known == stated.model_copy(update={"issued": known.issued}):
            if key.signed(statement_bytes(row.name, before.text), before.signature):
                return
            # Another key signs the same words.
            text = str(before.text)
    append(connection, key, statement_bytes(row.name, text))
    connection.execute(
        insert(statements).values(
            name=row.name,
            text=text,
            signature=key.sign(statement_bytes(row.name, text)),
            created=now_ms(),
        )
    )


def sign_all(connection: Connection, key: SigningKey) -> None:
    """Sign what this key has not signed: of an older layout, or of a key that it replaces."""
    for row in connection.execute(select(tables.c.name, tables.c.version, tables.c.info)).all():
        info = TableInfo.model_validate_json(row.info)
        if not key.signed(table_entry(info), info.signature):
            again = {"signature": key.sign(table_entry(info)), "key_id": key.id}
            connection.execute(
                update(tables)
                .where(tables.c.name == row.name, tables.c.version == row.version)
                .values(info=info.model_copy(update=again).model_dump_json())
            )
    for deployment in all_deployments(connection):
        sign_deployment(connection, key, deployment)
    complete(connection, key)


def _statement(connection: Connection, row: Row[Any]) -> Statement:
    request, facts = request_of(row), facts_of(row)
    shared: dict[str, Any] = {
        "name": row.name,
        "kind": row.kind,
        "issued": now_ms() // 1000,
        "snap_km": request.snap_km,
        **advice_of(request),
    }
    if isinstance(request, AnchorsDeploymentRequest):
        domain = domain_row(connection, request.domain)
        promised = facts["guarantee"]
        return Statement(
            version=1,
            metric=domain.kind,
            unit=domain.unit,
            domain=domain.fingerprint,
            epsilon=None if promised is None else promised["epsilon"],
            delta=request.delta,
            outputs=digest_of(request.outputs),
            selection=digest_of(request.selection.model_dump(mode="json")),
            **shared,
        )
    ref = current_table(connection, row)
    info = table_info(connection, ref)
    shared |= {
        "version": row.version,
        "metric": table_metric(table_file(connection, ref)),
        "unit": info.unit,
        "domain": info.domain,
        "table": {"name": info.name, "version": info.version},
        "table_sha256": info.sha256,
    }
    if isinstance(request, BallDeploymentRequest):
        shared |= {
            "epsilon": facts["epsilon"],
            "delta": facts["delta"],
            "epsilon_1": request.epsilon_1,
            "candidates": digest_of(request.candidates),
        }
        return Statement(**shared)
    if isinstance(request, PandaDeploymentRequest):
        return Statement(epsilon=facts["epsilon"], delta=facts["delta"], **shared)
    if not isinstance(request, TableDeploymentRequest):
        msg = f"a deployment of kind {row.kind} cannot be stated"
        raise TypeError(msg)
    return Statement(epsilon=info.epsilon, delta=0.0, **shared)
