"""What a file says about its mechanism: the problem, the guarantee, the audit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.plain import plain
from panda_mdp.errors import FileFormatError, PrivacyError, ProblemError
from panda_mdp.outputs import Outputs
from panda_mdp.privacy.continuous import ContinuousAudit
from panda_mdp.privacy.quantise import BITS
from panda_mdp.problem import Problem, check_epsilon
from panda_mdp.space.domain import Domain
from panda_mdp.space.mesh import Mesh
from panda_mdp.version import __version__

if TYPE_CHECKING:
    from panda_mdp.table.mechanism import Mechanism

FORMAT = "panda-mdp mechanism"
SHORTEST_FINGERPRINT = 16
VERSION = 1
PLACED_VERSION = 2
"""Of files whose outputs are no records: readers of version 1 would take columns for records."""
SPARSE_VERSION = 3
"""Of files that store rows over a floor."""
PHASED_VERSION = 4
"""Of PAnDA's tables: rows belong to anchors or to balls, which a first phase draws."""
EVERYWHERE_VERSION = 5
"""Of tables that are private at every point of an area: readers of others would snap places."""


@dataclass(frozen=True)
class Expected:
    """What a table must be for its reader; anything else is refused, whatever the file says.

    >>> Expected(epsilon=5.0, unit="km")
    Expected(epsilon=5.0, unit='km', fingerprint=None)
    """

    epsilon: float | None = None
    """The most that a report may cost, per unit of distance."""
    unit: str | None = None
    fingerprint: str | None = None
    """Of the domain (`domain.fingerprint`), or the beginning of it, 16 digits or more."""

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            if isinstance(self.epsilon, bool | str):
                msg = f"the expected epsilon is {self.epsilon!r}; it must be a number"
                raise ProblemError(msg)
            check_epsilon(self.epsilon)
        if self.fingerprint is not None and len(self.fingerprint) < SHORTEST_FINGERPRINT:
            msg = (
                f"a fingerprint of {len(self.fingerprint)} digits names no domain; give at least "
                f"{SHORTEST_FINGERPRINT}"
            )
            raise ProblemError(msg)

    def check(self, domain: Domain, epsilon: float) -> None:
        """Raise `PrivacyError` unless a table over `domain` at `epsilon` is as expected."""
        if self.unit is not None and domain.unit != self.unit:
            msg = f"epsilon is per {domain.unit}; a table per {self.unit} was expected"
            raise PrivacyError(msg)
        if self.epsilon is not None and epsilon > self.epsilon:
            msg = (
                f"the table has epsilon {epsilon!r} per {domain.unit}; at most {self.epsilon!r} "
                "was expected"
            )
            raise PrivacyError(msg)
        if self.fingerprint is not None and not domain.fingerprint.startswith(self.fingerprint):
            msg = (
                f"the table is over the domain {domain.fingerprint[:16]}...; "
                f"{self.fingerprint[:16]}... was expected"
            )
            raise PrivacyError(msg)


def describe(mechanism: Mechanism) -> dict[str, Any]:
    """What a certificate says about a mechanism: plain values for JSON."""
    problem, result = mechanism.problem, mechanism.audit
    domain = problem.domain
    details, left_out = _plain_details(mechanism.details)
    gap = mechanism.gap
    return {
        "format": FORMAT,
        "version": _version(mechanism),
        "library": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": mechanism.method,
        "epsilon": problem.epsilon,
        "epsilon_unit": f"per {domain.unit}",
        "loss": mechanism.loss,
        "lower_bound": mechanism.lower_bound,
        "gap": "infinite" if gap == np.inf else gap,
        **describe_problem(problem),
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
        "snapping": snapping_words(problem.epsilon),
        "stages": [[name, seconds] for name, seconds in mechanism.stages],
        "details": details,
        "details_left_out": left_out,
    }


def snapping_words(epsilon: float) -> str:
    """What a certificate says about places that are no records."""
    return (
        "A place that is snapped to its nearest record is covered only up to the distances of "
        f"the snaps: z(y|p) <= exp({epsilon!r} (d(p, p') + s(p) + s(p'))) z(y|p'), at "
        "most epsilon (d + 2 s) where no place is snapped farther than s."
    )


def describe_problem(problem: Problem) -> dict[str, Any]:
    """What a certificate says about the records, outputs and prior of a problem."""
    domain = problem.domain
    return {
        "loss_unit": problem.loss_unit,
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
            "labels": None if domain.labels is None else list(domain.labels),
        },
        "outputs": problem.outputs_count,
        "reports": {
            "kind": problem.reports.kind,
            "labels": None if problem.reports.names is None else list(problem.reports.names),
        },
        "prior_source": problem.prior_source,
        "scale": problem.scale_warning,
        "bits": BITS,
    }


def mesh_of(mechanism: Mechanism) -> Mesh | None:
    """The mesh of a table that is private at every point; None of any other."""
    verdict = getattr(mechanism, "everywhere", None)
    return mechanism.problem.domain.mesh if isinstance(verdict, ContinuousAudit) else None


def describe_mesh(mesh: Mesh, verdict: ContinuousAudit, epsilon: float) -> dict[str, Any]:
    """What a certificate says about every point of an area."""
    return {
        "mesh": {
            "middle": list(mesh.middle),
            "spacing": mesh.spacing,
            "corners": len(mesh.area),
        },
        "everywhere": {
            "holds": verdict.holds,
            "epsilon": verdict.epsilon,
            "worst": list(verdict.worst),
            "triangles": verdict.triangles,
            "resolution_km": verdict.resolution_km,
        },
        "snapping": (
            "No place is snapped. A place draws at a vertex of its triangle with its barycentric "
            "weight, a whole number of 2^-30. For all places p, p' of the area and all outputs y: "
            f"z(y|p) <= exp({epsilon!r} (d(p, p') + {2 * verdict.resolution_km!r})) z(y|p')."
        ),
    }


def restore_mesh(certificate: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Mesh:
    """The mesh that a certificate describes, checked to cover its area."""
    claims = certificate["mesh"]
    north, east = claims["middle"]
    return Mesh(
        (float(north), float(east)),
        float(claims["spacing"]),
        arrays["mesh_vertices"],
        arrays["mesh_area"],
        arrays["mesh_inside"],
    )


def _version(mechanism: Mechanism) -> int:
    if mesh_of(mechanism) is not None:
        return EVERYWHERE_VERSION
    if isinstance(mechanism.weights, FlooredRows):
        return SPARSE_VERSION
    return VERSION if mechanism.problem.reports.kind == "records" else PLACED_VERSION


def _plain_details(details: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What JSON can hold, and the names of what it cannot."""
    stated: dict[str, Any] = {}
    left_out = []
    for name, value in details.items():
        if name == "bound_source":
            continue
        try:
            stated[name] = json.loads(json.dumps(plain(value), allow_nan=False))
        except (TypeError, ValueError):
            left_out.append(name)
    return stated, sorted(left_out)


def restore_domain(claims: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Domain:
    """The domain that a certificate names, from its arrays: a metric, checked, and the same one."""
    kind, unit = claims["kind"], str(claims["unit"])
    if kind == "haversine":
        domain = Domain.from_points(arrays["lat"], arrays["lon"])
    elif kind in ("euclidean", "angular"):
        domain = Domain.from_vectors(arrays["vectors"], metric=kind, unit=unit)
    elif kind == "matrix":
        domain = Domain.from_matrix(arrays["distances"], unit=unit)
    else:
        msg = f"a metric of kind {kind!r} is none that this library knows"
        raise FileFormatError(msg)
    if domain.fingerprint != claims["fingerprint"] or domain.unit != unit:
        msg = "the domain is not the one that the certificate names"
        raise FileFormatError(msg)
    if "nodes" in arrays:
        domain = domain.with_nodes(arrays["nodes"])
    labels = claims.get("labels")
    return domain if labels is None else domain.with_labels(labels)


def restore_outputs(
    certificate: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], domain: Domain
) -> Outputs:
    """The outputs that a certificate describes, from its arrays."""
    claims = certificate.get("reports") or {"kind": "records", "labels": None}
    if claims["kind"] == "records":
        return Outputs.of(arrays["outputs"], domain)
    if claims["kind"] not in ("places", "labels"):
        msg = f"outputs of kind {claims['kind']!r}; this library knows records, places and labels"
        raise FileFormatError(msg)
    if claims["kind"] == "places":
        made = Outputs.at(arrays["output_lat"], arrays["output_lon"], claims["labels"])
    else:
        made = Outputs.labels(claims["labels"])
    if not np.array_equal(arrays["outputs"], made.codes):
        msg = "outputs that are no records are numbered from 0 on; the file is damaged"
        raise FileFormatError(msg)
    return made


def output_arrays(reports: Outputs) -> dict[str, npt.NDArray[Any]]:
    """What a file holds of the outputs."""
    if reports.lat is None or reports.lon is None:
        return {"outputs": reports.codes}
    return {"outputs": reports.codes, "output_lat": reports.lat, "output_lon": reports.lon}
