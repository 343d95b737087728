"""What the operator signed about a deployment, against what the server says about it.

A client believes the signed statement and nothing beside it. Neither moves its own limits
(`Allowance`): how far a place may be from a record, what a release may cost, how long a period is.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from panda_mdp.errors import SignatureError
from panda_mdp.protocol.messages.deployments import (
    Advice,
    AnchorsDeployment,
    BallDeployment,
    PandaDeployment,
    Statement,
    TableDeployment,
)
from panda_mdp.protocol.messages.keys import Keyring
from panda_mdp.protocol.messages.signing import VerifyKey, digest_of, statement_bytes
from panda_mdp.space.domain import Domain

LATER = ("retention_days", "collector", "purpose", "until")
Described = TableDeployment | BallDeployment | PandaDeployment | AnchorsDeployment


def read_statement(info: Described, key: Keyring | VerifyKey) -> Statement:
    """The statement about a deployment; raises unless it is signed and says what `info` says."""
    key.verify(statement_bytes(info.name, info.statement), info.signature)
    try:
        stated = Statement.model_validate_json(info.statement)
    except ValidationError:
        msg = f"what the operator signed about deployment {info.name} is no statement"
        raise SignatureError(msg) from None
    differing = [name for name, value in _said(info).items() if getattr(stated, name) != value]
    if differing:
        msg = (
            f"the server says other things about deployment {info.name} than its operator signed "
            f"({', '.join(differing)}); do not report, and tell the operator"
        )
        raise SignatureError(msg)
    return stated


def check_domain(stated: Statement, domain: Domain) -> None:
    """Raise unless a domain is the one that the statement is about."""
    derived = (domain.fingerprint, domain.metric.kind, domain.unit)
    if derived != (stated.domain, stated.metric, stated.unit):
        msg = f"the records of deployment {stated.name} are not those that its operator signed"
        raise SignatureError(msg)


def content_of(stated: Statement) -> str:
    """A digest of what is stated, whenever it was signed."""
    # What earlier versions could not say is left out where it is not said: clients keep digests.
    silent = {name for name in LATER if not getattr(stated, name)}
    return digest_of(stated.model_dump(mode="json", exclude={"issued"} | silent))


def _said(info: Described) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "name": info.name,
        "kind": info.kind,
        "snap_km": info.snap_km,
        **{name: getattr(info, name) for name in Advice.model_fields},
        "epsilon": None if info.guarantee is None else info.guarantee.epsilon,
    }
    if isinstance(info, AnchorsDeployment):
        return shared | {
            "version": 1,
            "delta": info.delta,
            "outputs": digest_of(info.outputs),
            "selection": digest_of(info.selection.model_dump(mode="json")),
        }
    shared |= {
        "version": info.version,
        "delta": info.guarantee.delta,
        "unit": info.table.unit,
        "domain": info.table.domain,
        "table_sha256": info.table.sha256,
    }
    if isinstance(info, BallDeployment):
        shared |= {"epsilon_1": info.epsilon_1, "candidates": digest_of(info.candidates)}
    return shared
