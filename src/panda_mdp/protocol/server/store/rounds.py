"""Rounds of an anchors deployment.

    open -> solving -> solved | failed

Users upload anchors while a round is open, each token once. It closes by time, by the number of
users or by hand; then AnPO is solved over the union. A solved round is in force until the next one
is. Whoever was late, silent or left out takes part in the next.

    silent -> uploaded -> served | filtered
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, func, insert, select, update

from panda_mdp.base.arrays import IntArray
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeploymentRequest,
    AnchorsRequest,
    PlanInfo,
    RoundInfo,
    RoundRequest,
    UserState,
)
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.solving import AnchorsTask, Solution, Solved
from panda_mdp.protocol.server.store.catalogue import domain_of, domain_row, pack, plain, unpack
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.deployments import anchors_request
from panda_mdp.protocol.server.store.jobs import close_round
from panda_mdp.protocol.server.store.schema import deployments, rounds, uploads, when
from panda_mdp.table.certificate import restore_domain


def certify_request(body: str, claims: Mapping[str, Any], arrays: bytes) -> dict[str, Any]:
    """What an anchors deployment can promise. Runs in a worker process."""
    task = build_task(body, claims, arrays)
    return task.facts(task.scheme())


def build_task(body: str, claims: Mapping[str, Any], arrays: bytes) -> AnchorsTask:
    """The task of a stored request over a stored domain."""
    domain = restore_domain(claims, unpack(arrays))
    return AnchorsTask.of(AnchorsDeploymentRequest.model_validate_json(body), domain)


# The life of a round


def open_round(connection: Connection, row: Row[Any], request: RoundRequest) -> RoundInfo:
    """Open the next round; one at a time."""
    anchors_request(row)
    if not row.open:
        raise Failure("round_closed", "this deployment is closed", "PATCH it with open: true")
    mine = rounds.c.deployment == row.id
    unfinished = connection.execute(
        select(rounds.c.number).where(mine, rounds.c.state.in_(("open", "solving")))
    ).scalar()
    if unfinished is not None:
        raise Failure(
            "conflict",
            f"round {unfinished} is not finished, and there is one at a time",
            "close it, or wait for its solve",
        )
    latest = connection.execute(select(func.max(rounds.c.number)).where(mine)).scalar()
    number, opened = (1 if latest is None else int(latest) + 1), now_ms()
    after = request.closes_after_s
    connection.execute(
        insert(rounds).values(
            deployment=row.id,
            number=number,
            state="open",
            opened=opened,
            closes_at=None if after is None else opened + int(1000 * after),
            closes_at_users=request.closes_at_users,
        )
    )
    return round_info(connection, find_round(connection, row.id, number))


def find_round(connection: Connection, deployment: int, number: int) -> Row[Any]:
    """A stored round."""
    row = connection.execute(
        select(rounds).where(rounds.c.deployment == deployment, rounds.c.number == number)
    ).first()
    if row is None:
        raise Failure("not_found", "there is no such round", "GET .../rounds lists them")
    return row


def close_by_hand(connection: Connection, deployment: int, number: int) -> RoundInfo:
    """Close a round now."""
    find_round(connection, deployment, number)
    close_round(connection, deployment, number)
    return round_info(connection, find_round(connection, deployment, number))


def round_info(connection: Connection, row: Row[Any]) -> RoundInfo:
    """What everybody may know about a round: how many took part, not who."""
    return _info(row, _users(connection, row.deployment, row.number, row.number))


def _users(
    connection: Connection, deployment: int, first: int, last: int
) -> dict[tuple[int, str], int]:
    """Users of some rounds by state, counted by the database."""
    rows = connection.execute(
        select(uploads.c.round, uploads.c.state, func.count())
        .where(uploads.c.deployment == deployment, uploads.c.round.between(first, last))
        .group_by(uploads.c.round, uploads.c.state)
    )
    return {(int(number), str(state)): int(count) for number, state, count in rows}


def _info(row: Row[Any], users: Mapping[tuple[int, str], int]) -> RoundInfo:
    return RoundInfo(
        round=row.number,
        state=row.state,
        users=sum(count for (number, _), count in users.items() if number == row.number),
        filtered=users.get((row.number, "filtered"), 0),
        opened=when(row.opened),
        closes_at=None if row.closes_at is None else when(row.closes_at),
        closes_at_users=row.closes_at_users,
        error=row.error,
    )


def list_rounds(
    connection: Connection, deployment: int, before: int, limit: int
) -> list[RoundInfo]:
    """The latest rounds of a deployment that have a lower number, the oldest of them first."""
    rows = connection.execute(
        select(rounds)
        .where(rounds.c.deployment == deployment, rounds.c.number < before)
        .order_by(rounds.c.number.desc())
        .limit(limit)
    ).all()
    if not rows:
        return []
    users = _users(connection, deployment, rows[-1].number, rows[0].number)
    return [_info(row, users) for row in reversed(rows)]


# Users


def check_upload(request: AnchorsDeploymentRequest, records: int, upload: AnchorsRequest) -> None:
    """Refuse a set that no record selects. Nothing of it is shown."""
    if upload.anchors and upload.anchors[-1] >= records:
        raise Failure(
            "invalid",
            f"anchors: an anchor is not a record of the domain, 0..{records - 1}",
            "draw anchors from the deployment's domain",
        )
    allowed = request.selection.candidates
    if allowed is not None and not set(upload.anchors) <= set(allowed):
        raise Failure(
            "invalid",
            "anchors: an anchor is not among the candidates of this deployment",
            "draw anchors with the deployment's selection",
        )


def store_upload(
    connection: Connection, deployment: int, number: int, token: str, upload: AnchorsRequest
) -> bool:
    """Keep a user's anchors; False where these very ones are kept already."""
    row = find_round(connection, deployment, number)
    data = np.array(upload.anchors, dtype="<i4").tobytes()
    mine = (uploads.c.deployment == deployment) & (uploads.c.round == number)
    before = connection.execute(
        select(uploads.c.id, uploads.c.anchors).where(mine, uploads.c.token == token)
    ).first()
    if before is not None:
        if before.id == upload.id and bytes(before.anchors) == data:
            return False
        raise Failure(
            "conflict",
            "this token has uploaded anchors in this round already, and a round takes one set",
            "keep the set that was drawn first; a second one costs privacy again",
        )
    used = connection.execute(
        select(uploads.c.token).where(uploads.c.deployment == deployment, uploads.c.id == upload.id)
    ).first()
    if used is not None:
        raise Failure("conflict", "another upload has this id", "make a new id for each upload")
    if row.state != "open" or (row.closes_at is not None and row.closes_at <= now_ms()):
        raise Failure(
            "round_closed", f"round {number} takes no more anchors", "take part in the next round"
        )
    connection.execute(
        insert(uploads).values(
            deployment=deployment,
            round=number,
            token=token,
            id=upload.id,
            anchors=data,
            state="uploaded",
            at=now_ms(),
        )
    )
    if row.closes_at_users is not None:
        users = connection.execute(select(func.count()).select_from(uploads).where(mine)).scalar()
        if int(users or 0) >= row.closes_at_users:
            close_round(connection, deployment, number)
    return True


def find_upload(
    connection: Connection, deployment: int, number: int, token: str
) -> Row[Any] | None:
    """What a token uploaded in a round."""
    return connection.execute(
        select(uploads).where(
            uploads.c.deployment == deployment,
            uploads.c.round == number,
            uploads.c.token == token,
        )
    ).first()


def user_state(connection: Connection, deployment: int, number: int, token: str) -> UserState:
    """Where a user stands in a round."""
    find_round(connection, deployment, number)
    row = find_upload(connection, deployment, number, token)
    if row is None:
        return "silent"
    state: UserState = row.state
    return state


@dataclass(frozen=True, eq=False)
class OwnRows:
    """What a user fetches: the own anchors, their rows, and what the audit found."""

    anchors: list[int]
    outputs: list[int]
    weights: IntArray
    plan: PlanInfo


def own_rows(connection: Connection, deployment: int, number: int, token: str) -> OwnRows:
    """The rows of the anchors that a token uploaded: nothing in the request says which."""
    row = find_round(connection, deployment, number)
    upload = find_upload(connection, deployment, number, token)
    if upload is None:
        raise Failure(
            "not_found",
            f"this token uploaded no anchors in round {number}",
            "take part in the next round",
        )
    if row.state in ("open", "solving"):
        raise Failure(
            "unavailable",
            f"round {number} is {row.state}; its rows do not exist yet",
            "ask again later",
            {"retry-after": "2"},
        )
    if row.state == "failed":
        raise Failure(
            "round_closed",
            f"round {number} ended without a table",
            "take part in the next round",
        )
    if upload.state == "filtered":
        raise Failure(
            "conflict",
            f"the anchors of this token were left out of round {number} by its outlier filter",
            "take part in the next round",
        )
    solution = unpack_solution(bytes(row.solution))
    anchors = _anchors(upload)
    return OwnRows(
        anchors=anchors.tolist(),
        outputs=solution.outputs.tolist(),
        weights=solution.rows(anchors),
        plan=PlanInfo.model_validate_json(row.plan),
    )


def _anchors(upload: Row[Any]) -> IntArray:
    return np.frombuffer(bytes(upload.anchors), dtype="<i4").astype(np.int64)


def served_sets(connection: Connection, deployment: int, number: int) -> list[tuple[str, IntArray]]:
    """The users who have rows in a round, with their anchors."""
    rows = connection.execute(
        select(uploads)
        .where(uploads.c.deployment == deployment, uploads.c.round == number)
        .where(uploads.c.state == "served")
        .order_by(uploads.c.token)
    )
    return [(str(row.token), _anchors(row)) for row in rows]


# Solving


@dataclass(frozen=True, eq=False)
class RoundWork:
    """Everything that solving a round takes."""

    task: AnchorsTask
    tokens: list[str]
    sets: tuple[IntArray, ...]
    previous: Solution | None


def task_of(connection: Connection, deployment: int) -> AnchorsTask:
    """The problem of an anchors deployment."""
    row = connection.execute(select(deployments).where(deployments.c.id == deployment)).one()
    request = anchors_request(row)
    return AnchorsTask.of(request, domain_of(domain_row(connection, request.domain)))


def task_of_round(connection: Connection, deployment: int, number: int) -> RoundWork:
    """The problem, the sets that were uploaded, and the solution of the round before."""
    rows = connection.execute(
        select(uploads)
        .where(uploads.c.deployment == deployment, uploads.c.round == number)
        .order_by(uploads.c.at, uploads.c.token)
    ).all()
    before = connection.execute(
        select(rounds.c.solution)
        .where(
            rounds.c.deployment == deployment,
            rounds.c.number < number,
            rounds.c.state == "solved",
        )
        .order_by(rounds.c.number.desc())
        .limit(1)
    ).scalar()
    return RoundWork(
        task=task_of(connection, deployment),
        tokens=[str(row.token) for row in rows],
        sets=tuple(_anchors(row) for row in rows),
        previous=None if before is None else unpack_solution(bytes(before)),
    )


def store_solution(
    connection: Connection, deployment: int, number: int, work: RoundWork, solved: Solved
) -> None:
    """Put a round into force."""
    connection.execute(
        update(rounds)
        .where(
            rounds.c.deployment == deployment,
            rounds.c.number == number,
            rounds.c.state == "solving",
        )
        .values(state="solved", plan=plain(solved.plan), solution=pack_solution(solved.solution))
    )
    mine = (uploads.c.deployment == deployment) & (uploads.c.round == number)
    for token, admitted in zip(work.tokens, solved.admitted, strict=True):
        connection.execute(
            update(uploads)
            .where(mine, uploads.c.token == token)
            .values(state="served" if admitted else "filtered")
        )


def pack_solution(solution: Solution) -> bytes:
    """A round's table for the store."""
    return pack(
        {
            "anchors": solution.anchors,
            "row": solution.row,
            "weights": solution.weights,
            "outputs": solution.outputs,
        }
    )


def unpack_solution(data: bytes) -> Solution:
    """A round's table from the store."""
    return Solution(**unpack(data))
