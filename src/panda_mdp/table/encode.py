"""What a file holds of a mechanism: inputs and integers; everything else is derived by its reader.

Header: epsilon, the kinds and labels of records and outputs, how losses are told, the mesh of a
table for every point, and notes that nobody checks. Sections: the domain, outputs, prior and losses
of the problem; the weights, as an array (`weights`), as rows over a floor (`floor`, `starts`,
`columns`, `values`) or, where their numbers are short, as blocks (`floor`, `order`, `blocks`); the
multipliers that prove the lower bound (`bound_pairs`, `bound_starts`, `bound_columns`,
`bound_multipliers`, or `bound_prices`), of every point with what was given (`given_prior`,
`given_loss`); those that prove what a limit costs, with what it is about (`term_...`). Rows of
peaks over a lattice are `centres` and `peaks`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import Stages
from panda_mdp.base.factored import FactoredRows
from panda_mdp.base.floored import FlooredRows, Weights
from panda_mdp.base.text import Facts, picked, plain
from panda_mdp.loss import UnknownLoss
from panda_mdp.problem import describe_problem, distance_power
from panda_mdp.space.domain import Domain
from panda_mdp.table.blocks import pack_rows
from panda_mdp.table.bound import Multipliers, Prices, Proved
from panda_mdp.table.claims import Averaged, Traded
from panda_mdp.table.container import Section, pack
from panda_mdp.version import __version__

if TYPE_CHECKING:
    from panda_mdp.table.mechanism import Mechanism

LAW = ("unit_bits", "rate")
LISTED = ("pairs", "starts", "columns")
TERMS = ("kinds", "numbers", "guesses", "weights", "priors", "places")
Parts = dict[str, npt.NDArray[Any] | Section]


def encode(mechanism: Mechanism, *, losses: bool = True) -> bytes:
    """The bytes of a mechanism's file, with the proof of its lower bound where there is one.

    Without `losses` those that are not distances are left out, and so is the proof, which is about
    them: clients need neither.
    """
    problem = mechanism.problem
    proofs = proof_sections(mechanism) if losses else {}
    rows = weight_sections(problem.domain, mechanism.weights)
    header, sections = describe_problem(problem, mechanism.mesh, given=losses)
    if isinstance(mechanism.weights, FactoredRows):
        header["factored"] = picked(mechanism.weights, *LAW)
    known = "loss" in sections or header["loss"]["power"] is not None
    header["notes"] = describe_notes(
        mechanism.method,
        problem.prior_source,
        stages=mechanism.stages,
        details=mechanism.details,
        lower_bound=None
        if isinstance(mechanism.bound, Proved) and losses
        else mechanism.lower_bound,
        loss=None if known or isinstance(problem.loss, UnknownLoss) else mechanism.loss,
    )
    return pack(header, {**sections, **rows, **proofs})


def proof_sections(mechanism: Mechanism) -> Parts:
    """What proves the bounds of a table, from inputs."""
    bound = mechanism.bound
    parts: Parts = {}
    if isinstance(bound, Proved):
        given = bound.multipliers
        parts = {"bound_prices": given.values} if isinstance(given, Prices) else listed(given)
    if isinstance(bound, Averaged):
        parts["given_prior"] = bound.problem.prior
        if distance_power(bound.problem) != 1:
            parts["given_loss"] = np.asarray(bound.problem.loss)
    told = (value for value in mechanism.details.values() if isinstance(value, Mapping))
    traded = next((v["proof"] for v in told if isinstance(v.get("proof"), Traded)), None)
    if traded is not None and traded.problem.identity == mechanism.problem.identity:
        terms = {f"term_{name}": getattr(traded.terms, name) for name in TERMS}
        parts |= listed(traded.multipliers, "term")
        empty = [name for name in ("term_priors", "term_places") if not terms[name].size]
        parts |= {name: part for name, part in terms.items() if name not in empty}
    return parts


def listed(given: Multipliers, about: str = "bound") -> Parts:
    """The sections of multipliers."""
    parts: Parts = {f"{about}_{name}": getattr(given, name) for name in LISTED}
    return {**parts, f"{about}_multipliers": given.values}


def weight_sections(domain: Domain, weights: Weights) -> Parts:
    """The integers of a table in the shortest of the ways that hold them."""
    if isinstance(weights, FactoredRows):
        return {"centres": weights.centres, "peaks": weights.peaks}
    if not isinstance(weights, FlooredRows):
        return {"weights": weights}
    short = pack_rows(domain, weights)
    if short is not None:
        return dict(short)
    return picked(weights, "floor", "starts", "columns", "values")


def describe_notes(
    method: str,
    prior_source: str,
    *,
    stages: Stages = (),
    details: Mapping[str, Any] | None = None,
    lower_bound: float | None = None,
    loss: float | None = None,
) -> Facts:
    """What a file says beside its numbers: nobody checks it, and every printer says so."""
    return {
        "method": method,
        "library": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "prior_source": prior_source,
        "stages": [[name, float(seconds)] for name, seconds in stages],
        "details": _plain_details(details or {}),
        "lower_bound": lower_bound,
        "loss": loss,
    }


def _plain_details(details: Mapping[str, Any]) -> Facts:
    """What JSON can hold, and no proofs."""
    kept = {}
    for name, value in details.items():
        if name == "stated_loss" or isinstance(value, Proved):
            continue
        if isinstance(value, Mapping):
            kept[name] = _plain_details(value)
            continue
        try:
            kept[name] = json.loads(json.dumps(plain(value), allow_nan=False))
        except (TypeError, ValueError):
            continue
    return kept
