"""Reads files: form and sums, the problem, the integers, and the audit over all pairs.

Nothing that a file says beside its inputs and integers is believed, because nothing else is in it:
guarantee, audit, loss and gap are computed here, and what is in the notes is called a statement.
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.atomic import FilePath
from panda_mdp.base.factored import MOST_BITS, FactoredRows, lattice_points
from panda_mdp.base.floored import FlooredRows, Weights
from panda_mdp.base.text import Facts, FreeText, one_line
from panda_mdp.errors import (
    DomainError,
    FileFormatError,
    MethodError,
    PrivacyError,
    ProblemError,
)
from panda_mdp.loss import MOST_STORED, DistanceLoss, UnknownLoss, distance_loss, is_steep
from panda_mdp.problem import Outputs, Problem, check_epsilon
from panda_mdp.space.domain import Domain
from panda_mdp.space.mesh import Mesh
from panda_mdp.space.paths import PathMetric
from panda_mdp.table.blocks import unpack_rows
from panda_mdp.table.bound import Multipliers, Prices, Proved, Stated
from panda_mdp.table.claims import Averaged, Terms, Traded
from panda_mdp.table.container import (
    FEATURES,
    Maybe,
    Sections,
    check_unpacked,
    fit,
    unpack,
)
from panda_mdp.table.encode import LAW
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import (
    LOSS_ROUNDING,
    Mechanism,
    NoGuarantee,
    Release,
    audited_table,
)

T = TypeVar("T")

SHORTEST_IDENTITY = 16
HEADER = {
    "epsilon": float,
    "domain": {"kind": str, "unit": str, "labels": Maybe([object])},
    "outputs": {"kind": str, "labels": Maybe([object])},
    "loss": {"power": Maybe(float), "unit": str, "digest": Maybe(str)},
    "notes": {
        **dict.fromkeys(("method", "library", "date", "prior_source"), str),
        **{"stages": [(str, float)], "details": dict},
        **dict.fromkeys(("lower_bound", "loss"), Maybe(float)),
    },
}
"""The form of every header beside its sections, and of what each feature adds."""
FORMS = {
    "factored": dict.fromkeys(LAW, int),
    "mesh": {"middle": (float, float), "spacing": float},
    "selection": dict,
}
METRICS = {"haversine": ("lat", "lon"), "matrix": ("distances",), "graph": ("edges", "steps")}
"""The sections of each kind of metric; `vectors` of the others. Graphs may have places besides."""


@dataclass(frozen=True)
class Expected:
    """What a table must be for its reader; anything else is refused, whatever the file says.

    >>> Expected(epsilon=5.0, unit="km")
    Expected(epsilon=5.0, unit='km', identity=None)
    """

    epsilon: float | None = None
    """The most that a report may cost, per unit of distance."""
    unit: str | None = None
    identity: str | None = None
    """Of the table (`table.identity`), of the problem that it was made for (`problem.identity`) or
    of its records (`domain.fingerprint`), or the beginning of one, 16 digits or more."""

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        if self.identity is not None and len(self.identity) < SHORTEST_IDENTITY:
            raise ProblemError(
                f"an identity of {len(self.identity)} digits names nothing; give at least "
                f"{SHORTEST_IDENTITY}"
            )

    def check(self, domain: Domain, epsilon: float, table: Release | None = None) -> None:
        """Raise `PrivacyError` unless what is over `domain` at `epsilon` is as expected; `table` is
        the whole of it, where that is at hand."""
        if self.unit is not None and domain.unit != self.unit:
            raise PrivacyError(
                f"epsilon is per {domain.unit}; a table per {self.unit} was expected"
            )
        if self.epsilon is not None and epsilon > self.epsilon:
            raise PrivacyError(
                f"the table has epsilon {epsilon!r} per {domain.unit}; at most {self.epsilon!r} "
                "was expected"
            )
        if self.identity is None:
            return
        names = {"records": domain.fingerprint}
        if table is not None:
            names = {"table": table.identity, "problem": table.problem.identity, **names}
        if not any(name.startswith(self.identity) for name in names.values()):
            found = ", ".join(f"{what} {name[:16]}..." for what, name in names.items())
            raise PrivacyError(f"these are {found}; {self.identity[:16]}... was expected")


@dataclass(frozen=True, eq=False)
class Unverified:
    """What a file says about itself. Only its checksum was looked at: none of it is proved."""

    header: Mapping[str, Any]

    def __repr__(self) -> str:
        said = self.header
        unit = said["domain"]["unit"]
        return one_line(
            f"Unverified({said['notes']['method']}, claims epsilon {said['epsilon']} per {unit}; "
            "NOT VERIFIED, NO PRIVACY GUARANTEE)"
        )

    @property
    def phased(self) -> bool:
        """Whether it says that it is a table of PAnDA, whose rows belong to anchors or balls."""
        return "selection" in self.header


def inspect(path: FilePath) -> Unverified:
    """Look into a file; its checksum and form are checked and nothing else. `load` verifies it."""
    return at_path(path, look)


def look(data: bytes) -> Unverified:
    """What the bytes of a file say about themselves."""
    with contradictions():
        header, sections = opened(data)
        return Unverified({**header, "shapes": sections.shapes})


def promise(header: Mapping[str, Any]) -> tuple[str, str]:
    """What a header claims about two records, and about places that are none, in words."""
    epsilon = header["epsilon"]
    unit = header["domain"]["unit"]
    guarantee = (
        f"For all records x, x' of the domain and all outputs y: "
        f"z(y|x) <= exp({epsilon!r} d(x, x')) z(y|x'), d in {unit}. "
        "Each further report of the same record spends epsilon again."
    )
    if "selection" in header:
        guarantee = (
            "For all records x, x' of the domain: what one user releases of x, anchors and one "
            f"report, exceeds a log-ratio of {epsilon!r} d(x, x') to x', d in {unit}, with "
            f"probability at most {header['selection']['delta']!r}. Both phases again spend both "
            "again."
        )
    snapping = (
        "A place that is snapped to its nearest record is covered only up to the distances of the "
        f"snaps: z(y|p) <= exp({epsilon!r} (d(p, p') + s(p) + s(p'))) z(y|p')."
    )
    if header["domain"]["kind"] == "graph":
        snapping = (
            "Distances are along the edges between records. A place is reported as its nearest "
            "record is, and two places are as private as the records that they are snapped to."
        )
    if "mesh" in header:
        snapping = (
            "No place is snapped: one draws at a vertex of its triangle with its barycentric "
            "weight, and the inequality holds for all places of the area, to under a micrometre."
        )
    return guarantee, snapping


def opened(data: bytes) -> tuple[Facts, Sections]:
    """Header, in its form, and sections of the bytes of a file."""
    header, sections = unpack(data)
    more = {name: FORMS[name] for name in FEATURES if name in header}
    return fit(header, HEADER | more, "the header"), sections


def load_mechanism(path: FilePath) -> Mechanism:
    """`panda_mdp.load` for a table whose rows belong to records: any other is refused."""
    return at_path(path, decode)


def decode(data: bytes, expected: Expected | None = None) -> Mechanism:
    """The mechanism of a file's bytes, verified as by `panda_mdp.load`."""
    table = examine(data)
    if not isinstance(table, Mechanism):
        raise FileFormatError(table.audit.shortfall)
    if expected is not None:
        expected.check(table.problem.domain, table.epsilon, table)
    return table


def examine(data: bytes) -> Mechanism | NoGuarantee:
    """The table of a file's bytes with the audit that was just made of it, holding or not.

    What the audit rests on is verified first: form and sums, the metric, the weights.
    """
    with contradictions():
        header, sections = opened(data)
        if "selection" in header:
            raise FileFormatError(
                "a table of PAnDA, whose rows belong to anchors or balls and not to records: "
                "panda_mdp.load(path) reads it, and `panda-mdp perturb` runs both phases"
            )
        return _restore(header, sections, len(data))


def _restore(header: Mapping[str, Any], sections: Sections, packed: int) -> Mechanism | NoGuarantee:
    problem = restore_problem(header, sections, packed)
    weights: Weights = (
        _restore_peaks(header["factored"], sections, problem)
        if "factored" in header
        else restore_weights(sections, problem)
    )
    proof = None
    if "bound_prices" in sections:
        proof = Proved(problem, Prices(sections.take("bound_prices", problem.size)))
    elif "bound_pairs" in sections:
        given = restore_multipliers(sections, "bound")
        if "mesh" in header and "given_prior" in sections:
            proof = Averaged(_restore_given(sections, problem), given)
        else:
            proof = Proved(problem, given)
    traded = _restore_terms(sections, problem) if "term_kinds" in sections else None
    sections.finish()
    notes = header["notes"]
    stages = tuple((name, seconds) for name, seconds in notes["stages"])
    table = audited_table(
        problem, weights, FreeText(notes["method"]), stages=stages, details=notes["details"]
    )
    if not isinstance(table, Mechanism):
        return table
    if "mesh" in header:
        table = EverywhereMechanism.of(table)
    stated = notes["lower_bound"]
    known = not isinstance(problem.loss, UnknownLoss)
    if traded is not None and known and math.isfinite(traded.value):
        name, sign = traded.about
        told = notes["details"].get(name)
        told = dict(told) if isinstance(told, Mapping) else {}
        proved = {"bound": sign * traded.value, "proof": traded}
        table = table.with_details(**{name: told | proved})
    if not known:
        table = table.with_details(stated_loss=notes["loss"])
    elif proof is not None and proof.bounds(problem) and math.isfinite(proof.value):
        return table.with_facts(bound=proof)
    # A stated bound is a note: one that cannot be true is left out, and the table is what it is.
    elif stated is not None and stated > table.loss * (1 + LOSS_ROUNDING):
        stated = None
    if stated is None:
        return table
    return table.with_facts(bound=Stated(stated, "the file"))


def restore_multipliers(sections: Sections, about: str) -> Multipliers:
    """The multipliers of a proof."""
    pairs = sections.take(f"{about}_pairs", None, 2)
    columns = sections.take(f"{about}_columns", None)
    starts = sections.take(f"{about}_starts", len(pairs) + 1)
    return Multipliers(pairs, starts, columns, sections.take(f"{about}_multipliers", len(columns)))


def _restore_given(sections: Sections, problem: Problem) -> Problem:
    """The problem whose averages a bound of every point is about."""
    prior = sections.take("given_prior", problem.size)
    loss = problem.reports.distances(problem.domain)
    if "given_loss" in sections:
        loss = sections.take("given_loss", *problem.loss.shape)
    return replace(problem, prior=prior, loss=loss)


def _restore_terms(sections: Sections, problem: Problem) -> Traded:
    """What is proved of a limit."""
    kinds = sections.take("term_kinds", None, 2)
    numbers = sections.take("term_numbers", len(kinds), 4)
    guesses = sections.take("term_guesses", None, 3)
    weights = sections.take("term_weights", len(guesses))
    priors = places = np.zeros((0, problem.size))
    if "term_priors" in sections:
        priors = sections.take("term_priors", None, problem.size)
    if "term_places" in sections:
        places = sections.take("term_places", None, None)
    given = restore_multipliers(sections, "term")
    return Traded(problem, given, Terms(kinds, numbers, guesses, weights, priors, places))


def restore_weights(sections: Sections, problem: Problem) -> IntArray | FlooredRows:
    """The integers of a table in whichever way a file holds them."""
    size = problem.size
    count = problem.outputs_count
    if "blocks" in sections:
        blocks = sections.packed("blocks", size, count, None)
        return unpack_rows(blocks, sections.take("order", size), sections.take("floor", count))
    if "floor" not in sections:
        return sections.take("weights", size, count)
    columns = sections.take("columns", None)
    if len(columns) and not (columns.min() >= 0 and columns.max() < count):
        raise FileFormatError(f"a column of the table is outside 0..{count - 1}")
    values = sections.take("values", len(columns))
    floor = sections.take("floor", count)
    starts = sections.take("starts", size + 1)
    return FlooredRows(floor, starts, columns, values)


def _restore_peaks(stated: Any, sections: Sections, problem: Problem) -> FactoredRows:
    """Rows that are computed from the vectors, on the lattice whose unit the file names."""
    bits, rate = (stated[name] for name in LAW)
    centres, peaks = (sections.take(name, problem.outputs_count) for name in ("centres", "peaks"))
    vectors = getattr(problem.domain.metric, "vectors", None)
    if vectors is None or not (abs(bits) <= MOST_BITS and np.abs(vectors).max() < 2.0**MOST_BITS):
        raise FileFormatError("peaks over a lattice need vectors, and a unit that fits them")
    return FactoredRows(lattice_points(vectors, bits), bits, rate, centres, peaks)


def restore_problem(header: Mapping[str, Any], sections: Sections, packed: int) -> Problem:
    """The problem of a file: a metric, losses and a prior, each checked as any other."""
    stated = header["domain"]
    names = METRICS.get(stated["kind"], ("vectors",))
    if stated["kind"] == "graph" and "lat" in sections:
        names += METRICS["haversine"]
    flat = ("lat", "lon", "steps")
    arrays = {name: sections.take(name, *[None] * (1 if name in flat else 2)) for name in names}
    domain = restore_domain(stated["kind"], stated["unit"], arrays)
    if "nodes" in sections:
        domain = domain.with_nodes(sections.take("nodes", domain.size))
    if stated["labels"] is not None:
        domain = domain.with_labels(stated["labels"])
    if "mesh" in header:
        domain = replace(domain, mesh=_restore_mesh(header["mesh"], sections, domain.size))
    outputs = _restore_outputs(header["outputs"], sections, domain)
    return Problem(
        domain,
        outputs,
        _restore_losses(header["loss"], sections, domain, outputs, packed),
        header["epsilon"],
        prior=(
            sections.take("prior", domain.size)
            if "prior" in sections
            else np.full(domain.size, 1 / domain.size)
        ),
        loss_unit=header["loss"]["unit"],
        prior_source=FreeText(header["notes"]["prior_source"]),
    )


def restore_domain(kind: str, unit: str, arrays: Mapping[str, Any]) -> Domain:
    """The domain of some arrays: a metric, checked, in this very unit."""
    if kind == "haversine":
        domain = Domain.from_points(arrays["lat"], arrays["lon"])
    elif kind == "matrix":
        domain = Domain.from_matrix(arrays["distances"], unit=unit)
    elif kind == "graph":
        domain = Domain(PathMetric(unit=unit, **arrays))
    elif kind in ("euclidean", "angular"):
        metric: Literal["euclidean", "angular"] = "angular" if kind == "angular" else "euclidean"
        domain = Domain.from_vectors(arrays["vectors"], metric=metric, unit=unit)
    else:
        raise FileFormatError(
            f"a metric of kind {str(kind)[:40]!r} is none that this library knows"
        )
    stored = domain.metric.arrays()
    same = all(np.array_equal(arrays[name], found) for name, found in stored.items())
    if domain.unit != unit or not same:
        raise FileFormatError(
            f"the records are not as they are stored for {kind} distances in {domain.unit}"
        )
    return domain


def _restore_mesh(stated: Any, sections: Sections, size: int) -> Mesh:
    north, east = stated["middle"]
    return Mesh(
        (north, east),
        stated["spacing"],
        sections.take("mesh_vertices", size, 2),
        sections.take("mesh_area", None, 2),
        sections.take("mesh_inside", size),
    )


def _restore_outputs(stated: Mapping[str, Any], sections: Sections, domain: Domain) -> Outputs:
    kind = stated["kind"]
    labels = stated["labels"]
    if kind == "records" and labels is None:
        return Outputs.of(sections.take("outputs", None), domain)
    if kind == "places":
        lat = sections.take("output_lat", None)
        lon = sections.take("output_lon", len(lat))
        if (lon >= 180).any():
            raise FileFormatError("an output's longitude is not in [-180, 180)")
        return Outputs.at(lat, lon, labels)
    if kind == "labels" and labels is not None:
        return Outputs.labels(labels)
    raise FileFormatError(
        f"outputs of kind {str(kind)[:40]!r}; this library knows records, places and labels"
    )


def _restore_losses(
    stated: Mapping[str, Any], sections: Sections, domain: Domain, outputs: Outputs, packed: int
) -> FloatArray | DistanceLoss | UnknownLoss:
    shape, power, left_out = (domain.size, len(outputs)), stated["power"], stated["digest"]
    missing = power is None and "loss" not in sections
    if not (re.fullmatch("[0-9a-f]{64}", left_out) if missing else left_out is None):
        raise FileFormatError("losses that are left out have a digest, and no others do")
    if "loss" in sections and power is None:
        return sections.take("loss", *shape)
    if power is None:
        return UnknownLoss(shape, left_out)
    # Losses that follow from the distances take as much room as if they were there, up to the
    # number that is stored.
    check_unpacked(8 * min(math.prod(shape), MOST_STORED), packed)
    if power <= 0 or is_steep(domain, power):
        raise FileFormatError(f"losses of the power {power!r} of these distances do not follow")
    if outputs.records is not None:
        return distance_loss(domain, outputs.records, power)
    if math.prod(shape) > MOST_STORED:
        raise FileFormatError(
            f"{shape[0]} records x {shape[1]} places have too many losses to follow"
        )
    return outputs.distances(domain) ** power


@contextmanager
def contradictions() -> Iterator[None]:
    """What a file's contents break, as `FileFormatError`."""
    try:
        yield
    except FileFormatError:
        raise
    except (DomainError, ProblemError, PrivacyError, MethodError) as error:
        raise FileFormatError(f"the contents contradict each other: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FileFormatError(
            f"the header lacks a field or holds a wrong value: {error!r}"
        ) from error


def at_path(path: FilePath, read: Callable[[bytes], T]) -> T:
    """What `read` makes of a file's bytes; its errors name the file."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT, "there is no table here; mechanism.save(path) writes one", str(path)
        ) from None
    try:
        return read(data)
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from error
