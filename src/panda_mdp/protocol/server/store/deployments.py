"""Deployments: which table or which rounds people report through, and what that guarantees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import (
    Advice,
    AnchorsDeployment,
    AnchorsDeploymentRequest,
    BallDeployment,
    BallDeploymentRequest,
    PandaDeployment,
    PandaDeploymentRequest,
    TableDeployment,
    TableDeploymentRequest,
    deployment_request,
)
from panda_mdp.protocol.messages.types import GuaranteeInfo
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.catalogue import plain, table_info
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.schema import (
    deployment_versions,
    deployments,
    domains,
    rounds,
    statements,
    when,
)

Request = (
    TableDeploymentRequest
    | BallDeploymentRequest
    | PandaDeploymentRequest
    | AnchorsDeploymentRequest
)
Described = TableDeployment | BallDeployment | PandaDeployment | AnchorsDeployment


def find(connection: Connection, name: str) -> Row[Any]:
    """A stored deployment."""
    row = connection.execute(select(deployments).where(deployments.c.name == name)).first()
    if row is None:
        raise no_deployment()
    return row


def request_of(row: Row[Any]) -> Request:
    """What the operator asked for when the deployment was made."""
    return deployment_request.validate_json(row.request)


def advice_of(request: Request) -> dict[str, Any]:
    """What the operator says about collecting: who, what for, until when, how often."""
    return {name: getattr(request, name) for name in Advice.model_fields}


def anchors_request(row: Row[Any]) -> AnchorsDeploymentRequest:
    """The request of a deployment, which must have rounds."""
    request = request_of(row)
    if not isinstance(request, AnchorsDeploymentRequest):
        raise Failure(
            "not_found",
            f"a deployment of kind {row.kind} has no rounds",
            "fetch its table, or a ball",
        )
    return request


def facts_of(row: Row[Any]) -> dict[str, Any]:
    """What was computed when the deployment was made."""
    facts: dict[str, Any] = json.loads(row.facts)
    return facts


def all_deployments(connection: Connection) -> Sequence[Row[Any]]:
    """Every stored deployment, in the order in which they were made."""
    return connection.execute(select(deployments).order_by(deployments.c.id)).all()


def latest_statement(connection: Connection, name: str) -> Row[Any] | None:
    """What the operator signed last about a deployment."""
    return connection.execute(
        select(statements)
        .where(statements.c.name == name)
        .order_by(statements.c.seq.desc())
        .limit(1)
    ).first()


def domain_id_of(connection: Connection, fingerprint: str) -> str:
    """The id of the published domain with these records, which clients of a ball fetch."""
    domain_id = connection.execute(
        select(domains.c.id).where(domains.c.fingerprint == fingerprint).order_by(domains.c.created)
    ).scalar()
    if domain_id is None:
        raise Failure(
            "conflict",
            "the records of this table are not published as a domain, and clients need all of them "
            "to draw a centre",
            "POST /v1/domains with the table's records first",
        )
    return str(domain_id)


def store_deployment(
    connection: Connection, request: Request, facts: dict[str, Any]
) -> tuple[str, bool]:
    """Keep a deployment; its name, and whether it is new."""
    text = request.model_dump_json().encode()
    before = connection.execute(
        select(deployments).where(deployments.c.name == request.name)
    ).first()
    if before is not None:
        if request_of(before) == request:
            return request.name, False
        raise Failure(
            "conflict",
            "another deployment has this name",
            "choose another name, or PATCH the one that is there",
        )
    key = connection.execute(
        insert(deployments).values(
            name=request.name,
            kind=request.kind,
            request=text,
            facts=plain(facts),
            version=1,
            open=True,
            created=now_ms(),
        )
    ).inserted_primary_key
    if key is None:
        msg = "the database gave a new deployment no number"
        raise RuntimeError(msg)
    if not isinstance(request, AnchorsDeploymentRequest):
        _store_version(connection, int(key[0]), 1, request.table, facts)
    return request.name, True


def set_open(connection: Connection, name: str, is_open: bool) -> None:
    """Accept reports from now on, or no more."""
    row = find(connection, name)
    connection.execute(update(deployments).where(deployments.c.id == row.id).values(open=is_open))


def set_table(connection: Connection, name: str, ref: TableRef, facts: dict[str, Any]) -> None:
    """Put another version of the table into force; earlier reports stay with theirs."""
    row = find(connection, name)
    if current_table(connection, row) == ref:
        return
    version = row.version + 1
    _store_version(connection, row.id, version, ref, facts)
    connection.execute(
        update(deployments)
        .where(deployments.c.id == row.id)
        .values(version=version, facts=plain(facts))
    )


def set_limits(connection: Connection, name: str, limits: dict[str, Any]) -> None:
    """Other limits of a deployment: signed anew, under another version, with the table in force."""
    row = find(connection, name)
    request = request_of(row)
    if isinstance(request, AnchorsDeploymentRequest):
        raise Failure(
            "invalid",
            "the limits of an anchors deployment are signed once and do not change",
            "close it, and make a new deployment",
        )
    changed = request.model_copy(update=limits)
    if changed == request:
        return
    version, facts = row.version + 1, facts_of(row)
    _store_version(connection, row.id, version, current_table(connection, row), facts)
    connection.execute(
        update(deployments)
        .where(deployments.c.id == row.id)
        .values(version=version, request=changed.model_dump_json().encode())
    )


def _store_version(
    connection: Connection, key: int, version: int, ref: TableRef, facts: dict[str, Any]
) -> None:
    connection.execute(
        insert(deployment_versions).values(
            deployment=key,
            version=version,
            table_name=ref.name,
            table_version=ref.version,
            facts=plain(facts),
            created=now_ms(),
        )
    )


def current_table(connection: Connection, row: Row[Any]) -> TableRef:
    """The table in force."""
    return table_of_version(connection, row.id, row.version)


def table_of_version(connection: Connection, key: int, version: int) -> TableRef:
    """The table that was in force in a version of a deployment."""
    row = connection.execute(
        select(deployment_versions.c.table_name, deployment_versions.c.table_version).where(
            deployment_versions.c.deployment == key, deployment_versions.c.version == version
        )
    ).one()
    return TableRef(name=row.table_name, version=row.table_version)


def describe(connection: Connection, row: Row[Any]) -> Described:
    """Everything that a client needs to draw, and to know what it costs."""
    request, facts = request_of(row), facts_of(row)
    if isinstance(request, AnchorsDeploymentRequest):
        return _describe_anchors(connection, row, request, facts)
    info = table_info(connection, current_table(connection, row))
    shared: dict[str, Any] = {
        "name": row.name,
        "version": row.version,
        "open": row.open,
        "snap_km": request.snap_km,
        "created": when(row.created),
        "table": info,
        **advice_of(request),
        **_signed(connection, row.name),
    }
    if isinstance(request, TableDeploymentRequest):
        promised = GuaranteeInfo(epsilon=info.epsilon, delta=0.0, unit=info.unit)
        return TableDeployment(guarantee=promised, **shared)
    promised = GuaranteeInfo(epsilon=facts["epsilon"], delta=facts["delta"], unit=facts["unit"])
    if isinstance(request, PandaDeploymentRequest):
        return PandaDeployment(
            selection=facts["selection"],
            selection_epsilon=facts["selection_epsilon"],
            guarantee=promised,
            **shared,
        )
    return BallDeployment(
        domain=domain_id_of(connection, info.domain),
        epsilon_1=request.epsilon_1,
        delta=request.delta,
        candidates=request.candidates,
        guarantee=promised,
        **shared,
    )


def _describe_anchors(
    connection: Connection,
    row: Row[Any],
    request: AnchorsDeploymentRequest,
    facts: dict[str, Any],
) -> AnchorsDeployment:
    in_force = solved_round(connection, row.id)
    open_round = connection.execute(
        select(rounds.c.number).where(rounds.c.deployment == row.id, rounds.c.state == "open")
    ).scalar()
    promised = facts["guarantee"]
    return AnchorsDeployment(
        name=row.name,
        version=max(1, in_force),
        open=row.open,
        snap_km=request.snap_km,
        created=when(row.created),
        domain=request.domain,
        outputs=request.outputs,
        epsilon=request.epsilon,
        delta=request.delta,
        selection=request.selection,
        screen=request.screen,
        guarantee=None if promised is None else GuaranteeInfo(**promised),
        reasons=facts["reasons"],
        round=None if open_round is None else int(open_round),
        in_force=in_force or None,
        **advice_of(request),
        **_signed(connection, row.name),
    )


def _signed(connection: Connection, name: str) -> dict[str, Any]:
    latest = latest_statement(connection, name)
    if latest is None:
        raise Failure(
            "unavailable",
            "the operator has not signed this deployment yet",
            "ask again in a moment",
            {"retry-after": "1"},
        )
    return {"statement": latest.text, "signature": latest.signature}


def describe_all(connection: Connection) -> list[Described]:
    """Every deployment, in the order in which they were made."""
    return [describe(connection, row) for row in all_deployments(connection)]


def solved_round(connection: Connection, deployment: int) -> int:
    """The latest round that has a table, which is the one in force; 0 where there is none."""
    number = connection.execute(
        select(rounds.c.number)
        .where(rounds.c.deployment == deployment, rounds.c.state == "solved")
        .order_by(rounds.c.number.desc())
        .limit(1)
    ).scalar()
    return 0 if number is None else int(number)


def no_deployment() -> Failure:
    """The refusal for a name that is not in use."""
    return Failure(
        "not_found", "there is no deployment of this name", "GET /v1/deployments lists them"
    )
