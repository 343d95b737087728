"""What a file says about its mechanism: the problem, the guarantee, the audit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.base.plain import plain
from panda_mdp.privacy.quantise import BITS
from panda_mdp.version import __version__

if TYPE_CHECKING:
    from panda_mdp.table.mechanism import Mechanism

FORMAT = "panda-mdp mechanism"
VERSION = 1


def describe(mechanism: Mechanism) -> dict[str, Any]:
    """What a certificate says about a mechanism: plain values for JSON."""
    problem, result = mechanism.problem, mechanism.audit
    domain = problem.domain
    details, left_out = _plain_details(mechanism.details)
    gap = mechanism.gap
    return {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": mechanism.method,
        "epsilon": problem.epsilon,
        "epsilon_unit": f"per {domain.unit}",
        "loss": mechanism.loss,
        "loss_unit": problem.loss_unit,
        "lower_bound": mechanism.lower_bound,
        "gap": "infinite" if gap == np.inf else gap,
        "domain": {
            "kind": domain.metric.kind,
            "unit": domain.unit,
            "records": domain.size,
            "dimensions": (
                domain.metric.embedding.shape[1]
                if domain.metric.kind in ("euclidean", "angular")
                else None
            ),
            "nodes": domain.nodes is not None,
            "fingerprint": domain.fingerprint,
        },
        "outputs": problem.outputs_count,
        "prior_source": problem.prior_source,
        "bits": BITS,
        "audit": {
            "holds": result.holds,
            "epsilon": result.epsilon,
            "worst": list(result.worst),
            "distance": result.distance,
            "pairs": result.pairs,
        },
        "guarantee": (
            f"For all records x, x' of the domain and all outputs y: "
            f"z(y|x) <= exp({problem.epsilon!r} d(x, x')) z(y|x'), d in {domain.unit}. "
            "Each further report of the same record spends epsilon again."
        ),
        "snapping": (
            "A place that is snapped to its nearest record is covered only up to the distances of "
            f"the snaps: z(y|p) <= exp({problem.epsilon!r} (d(p, p') + s(p) + s(p'))) z(y|p'), at "
            "most epsilon (d + 2 s) where no place is snapped farther than s."
        ),
        "stages": [[name, seconds] for name, seconds in mechanism.stages],
        "details": details,
        "details_left_out": left_out,
    }


def _plain_details(details: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What JSON can hold, and the names of what it cannot."""
    kept: dict[str, Any] = {}
    left_out = []
    for name, value in details.items():
        if name in ("audit_source", "bound_source"):
            continue
        try:
            kept[name] = json.loads(json.dumps(plain(value), allow_nan=False))
        except (TypeError, ValueError):
            left_out.append(name)
    return kept, sorted(left_out)
