"""The log of tables and deployments, for everybody."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from panda_mdp.protocol.messages.log import MOST_LEAVES, Log, LogEntries, LogProof
from panda_mdp.protocol.server.routes.common import answer, context, fails, gives
from panda_mdp.protocol.server.store import log as stored

router = APIRouter()
Number = Annotated[int, Query(ge=0, le=MOST_LEAVES)]


@router.get("/v1/log", responses=gives(Log, 200) | fails(404))
def get_log(request: Request) -> Response:
    """The signed head and the hashes of all entries, the same for everybody."""
    with context(request).store.read() as connection:
        return answer(stored.whole_log(connection))


@router.get("/v1/log/entries", responses=gives(LogEntries, 200) | fails())
def get_entries(
    request: Request, first: Number = 0, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
) -> Response:
    """Entries as they were signed: tables and deployments, one after the other."""
    with context(request).store.read() as connection:
        return answer(stored.entries(connection, first, limit))


@router.get("/v1/log/inclusion", responses=gives(LogProof, 200) | fails())
def get_inclusion(request: Request, first: Number, size: Number) -> Response:
    """A proof that entry `first` is among the first `size`."""
    with context(request).store.read() as connection:
        return answer(stored.proof(connection, first, size, inclusion=True))


@router.get("/v1/log/consistency", responses=gives(LogProof, 200) | fails())
def get_consistency(request: Request, first: Number, size: Number) -> Response:
    """A proof that the first `first` entries are the beginning of the first `size`."""
    with context(request).store.read() as connection:
        return answer(stored.proof(connection, first, size, inclusion=False))
