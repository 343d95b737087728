"""What is asked: which records, which outputs, what an error costs, and how private.

Outputs are what may be reported: records, places that need not be records, or plain labels.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import (
    BLOCK_ENTRIES,
    Described,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    Sections,
    digest,
    frozen,
    identify,
    is_number,
    place_columns,
    real_numbers,
)
from panda_mdp.base.factored import ROW_BITS, FactoredRows
from panda_mdp.base.floored import FlooredRows, Weights
from panda_mdp.base.text import CONTROLS, Facts, per
from panda_mdp.errors import DomainError, MethodError, ProblemError, ScaleWarning
from panda_mdp.loss import DistanceLoss, UnknownLoss, is_steep
from panda_mdp.space.domain import Domain, Label, check_indices, check_labels
from panda_mdp.space.mesh import Mesh
from panda_mdp.space.metrics import check_places, haversine_km


@dataclass(frozen=True, eq=False)
class Outputs(RebuiltOnCopy):
    """The m outputs of a problem: labels, optionally placed.

    Made by `of` (indices into the domain), `at` (places) or `labels` (anything with a name). What
    a mechanism reports is the index, the place's label or number, or the label.

    >>> Outputs.labels(["north", "south"]).report(np.array([1]))
    ['south']
    >>> Outputs.at([41.9], [12.5])
    Outputs(1 place)
    """

    records: IntArray | None = None
    """Indices into the domain, where outputs are records."""
    lat: FloatArray | None = None
    lon: FloatArray | None = None
    """Degrees, where outputs are places that need not be records."""
    names: tuple[Label, ...] | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        if self.records is not None:
            set_(self, "records", frozen(np.asarray(self.records, dtype=np.int64)))
        if self.lat is not None and self.lon is not None:
            lat, lon = place_columns(self.lat, self.lon, ProblemError)
            try:
                check_places(lat, lon)
            except DomainError as error:
                raise ProblemError(f"outputs: {error}") from error
            set_(self, "lat", frozen(lat))
            set_(self, "lon", frozen(np.where(lon >= 180, lon - 360, lon)))
        if self.names is not None:
            set_(self, "names", check_labels(self.names, "outputs", ProblemError))
        counts = {len(k) for k in (self.records, self.lat, self.names) if k is not None}
        if len(counts) != 1 or counts == {0}:
            raise ProblemError(
                f"outputs have {sorted(counts)} records, places and labels; give one each, not 0"
            )

    @classmethod
    def of(cls, records: npt.ArrayLike, domain: Domain) -> Outputs:
        """Outputs that are records of a domain, each once; they are called as the records are."""
        output_records = check_indices(records, domain.size, "outputs", ProblemError)
        if len(output_records) == 0:
            raise ProblemError("outputs is empty; name at least one record to report")
        values, counts = np.unique(output_records, return_counts=True)
        if counts.max() > 1:
            raise ProblemError(
                f"output {values[counts.argmax()]} is named {counts.max()} times; name each once"
            )
        return cls(records=output_records)

    @classmethod
    def at(
        cls, lat: npt.ArrayLike, lon: npt.ArrayLike, labels: Iterable[Label] | None = None
    ) -> Outputs:
        """Places by latitude and longitude in degrees, with a label each or their number."""
        names = None if labels is None else tuple(labels)
        return cls(lat=lat, lon=lon, names=names)  # type: ignore[arg-type]

    @classmethod
    def labels(cls, names: Iterable[Label]) -> Outputs:
        """Outputs that are only called something: zones, cells, words."""
        return cls(names=tuple(names))

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"Outputs({len(self)} {self.kind[: -1 if len(self) == 1 else None]})"

    @property
    def kind(self) -> str:
        """`records`, `places` or `labels`."""
        if self.records is not None:
            return "records"
        return "labels" if self.lat is None else "places"

    @property
    def codes(self) -> IntArray:
        """The number by which each output goes: the record's index, or its column."""
        if self.records is not None:
            return self.records
        return np.arange(len(self.names or ()) if self.lat is None else len(self.lat))

    def report(self, columns: IntArray, *, single: bool = False) -> Any:
        """What is reported for some columns: indices or labels, or the one of a `single` column."""
        if self.names is not None and self.records is None:
            named = [self.names[k] for k in columns.tolist()]
            return named[0] if single else named
        numbers = columns if self.records is None else self.records[columns]
        return int(numbers[0]) if single else numbers

    def take(self, columns: IntArray) -> Outputs:
        """Some of the outputs, in the given order."""
        some, given = columns.tolist(), (self.records, self.lat, self.lon, self.names)
        taken: Any = (part if part is None else [part[k] for k in some] for part in given)
        return Outputs(*taken)

    def distances(self, domain: Domain, rows: npt.ArrayLike | None = None) -> FloatArray:
        """Distance of some records, or all, to every output; `ProblemError` where there is none."""
        if self.records is not None:
            return domain.distances(rows, self.records)
        records = domain.metric.places
        if self.lat is None or self.lon is None or records is None:
            raise ProblemError(
                "these outputs have no distance to the records: they are "
                f"{self.kind} and the domain is {domain.metric.kind}; use outputs that are records"
            )
        every = np.arange(domain.size)
        some = every if rows is None else check_indices(rows, domain.size, "rows", ProblemError)
        return haversine_km(records.lat[some, None], records.lon[some, None], self.lat, self.lon)

    def plane(self, domain: Domain) -> FloatArray | None:
        """The outputs in the domain's planar coordinates, (m, 2), where they have any."""
        if domain.plane is None:
            return None
        if self.records is not None:
            return domain.plane[self.records]
        records = domain.metric.places
        if self.lat is None or self.lon is None or records is None:
            return None
        return records.project(self.lat, self.lon)


PRIOR_TOLERANCE = 1e-9
PRIOR_ROUNDING = 1e-12
OPEN_NATS = 20.0
"""Nearest records that may be told from each other with odds beyond e^20 are not protected."""
SCALE_RECORDS = 32


@dataclass(frozen=True, eq=False)
class Problem(RebuiltOnCopy):
    """Choose z (K x m, rows on the simplex) to minimise sum_x p_x sum_y c_xy z_xy subject to

        z(y|x) <= exp(epsilon d(x, x')) z(y|x')    for all records x, x' and outputs y.

    `outputs` are indices into the domain, or `Outputs` that need not be records; `loss` is K x m
    (finite, non-negative, in any unit), `epsilon` is per unit of the domain's metric and `prior` is
    uniform where it is None. Everything is checked here, once; methods rely on it.

    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> Problem(domain, [0, 2], [[0, 2], [1, 1], [2, 0]], epsilon=1.0)
    Problem(K=3, m=2, epsilon=1 per unit)
    """

    domain: Domain
    outputs: IntArray
    """The number of each output: its index in the domain, or its column where it is no record."""
    loss: FloatArray
    """An array; or a `DistanceLoss`, which answers as one, where that would be too large."""
    epsilon: float
    prior: FloatArray = None  # type: ignore[assignment]
    loss_unit: str | None = None
    """The unit of the losses, for tables and certificates; the domain's unit where None."""
    prior_source: str = ""
    """Where the prior comes from: a table optimised for it is a function of it."""
    reports: Outputs = None  # type: ignore[assignment]
    """What the outputs are."""

    if TYPE_CHECKING:

        def __init__(
            self,
            domain: Domain,
            outputs: npt.ArrayLike | Outputs,
            loss: npt.ArrayLike | DistanceLoss | UnknownLoss,
            epsilon: float,
            prior: npt.ArrayLike | None = None,
            loss_unit: str | None = None,
            prior_source: str = "",
            reports: Outputs | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise ProblemError(f"domain is a {type(self.domain).__name__}; give a panda_mdp.Domain")
        size = self.domain.size
        own_unit = self.domain.unit
        mesh = self.domain.mesh
        reports = check_outputs(self.outputs, self.reports, self.domain)
        prior = self.prior
        source = "uniform" if self.prior is None else "given"
        if prior is None and mesh is not None:
            # Over an area people are where it was drawn, not on the mesh's rim nor in holes.
            prior = mesh.inside / mesh.inside.sum()
        vars(self).update(
            reports=reports,
            outputs=frozen(reports.codes),
            loss=_check_loss(self.loss, size, len(reports)),
            epsilon=check_epsilon(self.epsilon),
            prior=frozen(check_probabilities(prior, size)),
            prior_source=self.prior_source or source,
            loss_unit=own_unit if self.loss_unit is None else self.loss_unit,
        )
        for unit in (own_unit, self.loss_unit):
            # Whoever prints it prints one line, and nothing that a terminal would obey.
            if CONTROLS.search(str(unit)):
                raise ProblemError(f"the unit {unit!r} has control characters; leave them out")
        if self.scale_warning:
            warnings.warn(self.scale_warning, ScaleWarning, stacklevel=3)

    def __repr__(self) -> str:
        return (
            f"Problem(K={self.size}, m={self.outputs_count}, "
            f"epsilon={self.epsilon:g} {per(self.domain.unit)})"
        )

    @cached_property
    def scale_warning(self) -> str:
        """What is wrong with epsilon per this unit, in words; empty where nothing is.

        Half of the records have a neighbour so near that epsilon times the distance is the number
        of nats by which the two may be told from each other at the very least.
        """
        domain = self.domain
        some = np.linspace(0, domain.size - 1, min(domain.size, SCALE_RECORDS)).astype(np.int64)
        distance = domain.distances(some)
        distance[np.arange(len(some)), some] = np.inf
        nats = self.epsilon * float(np.median(distance.min(axis=1)))
        if nats <= OPEN_NATS:
            return ""
        nearest = nats / self.epsilon
        unit = domain.unit
        return (
            f"epsilon {self.epsilon:g} {per(unit)} hides nothing here: records are typically "
            f"{nearest:.3g} {unit} from the nearest other, and may be told from it with odds of "
            f"e^{nats:.4g}. Is the unit right (metres taken for km)? Protection at {nearest:.3g} "
            f"{unit} takes an epsilon of about {1 / nearest:.2g}"
        )

    @property
    def size(self) -> int:
        """Number of records, K."""
        return self.domain.size

    @property
    def outputs_count(self) -> int:
        """Number of outputs, m."""
        return len(self.outputs)

    @cached_property
    def weighted_loss(self) -> FloatArray:
        """p_x c_xy, the objective's coefficients."""
        given = self.loss
        loss = given.stored() if isinstance(given, DistanceLoss) else np.asarray(given)
        return frozen(self.prior[:, None] * loss)

    @property
    def loss_error(self) -> float:
        """Relative error of the losses: 0 where they are given, for they are what they are."""
        return getattr(self.loss, "relative_error", 0.0)

    @cached_property
    def mean_loss(self) -> FloatArray:
        """sum_x p_x c_xy of every output y: its loss where the record is not used at all, (m,)."""
        return frozen(self.prior @ self.loss)

    @cached_property
    def best_single_output(self) -> int:
        """Column of the output that is best when the record is not used at all."""
        return int(np.argmin(self.mean_loss))

    def expected_loss(self, matrix: FloatArray) -> float:
        """sum_x p_x sum_y c_xy z_xy."""
        return float(np.einsum("xy,xy->", self.weighted_loss, matrix))

    @cached_property
    def identity(self) -> str:
        """SHA-256 over all that is asked: metric, places, labels, outputs, losses, prior, epsilon,
        however they are stored. A file that left its losses out has their digest."""
        return identify(*describe_problem(self, given=False))

    def with_epsilon(self, epsilon: float) -> Problem:
        """The same problem at another epsilon."""
        return replace(self, epsilon=epsilon)


Losses = Any
"""What a problem has: an array, or what answers as one."""


def loss_blocks(loss: Losses) -> Iterator[tuple[slice, FloatArray]]:
    """All losses, some records at a time."""
    if isinstance(loss, DistanceLoss):
        return loss.blocks()
    step = max(1, BLOCK_ENTRIES // loss.shape[1])
    parts = (slice(begin, begin + step) for begin in range(0, len(loss), step))
    return ((rows, loss[rows]) for rows in parts)


def losses_of(loss: Losses, rows: Weights) -> FloatArray:
    """sum_y z_xy c_xy of every record, of integers without a floor."""
    placed = getattr(loss, "placed", None)
    if placed and isinstance(rows, FactoredRows):
        from panda_mdp.compute.jax import peaks

        places = np.ldexp(rows.points.astype(float), -rows.unit_bits)
        if np.array_equal(places, loss.domain.metric.embedding):
            return peaks.losses(rows, placed) / 2.0**ROW_BITS
    shares = (
        np.einsum("xy,xy->x", losses, rows[some] / 2.0**ROW_BITS)
        for some, losses in loss_blocks(loss)
    )
    return np.concatenate(list(shares))


def losses_above(loss: Losses, rows: FlooredRows) -> FloatArray:
    """sum_y (w_xy - floor_y) c_xy of every record, some of what is stored at a time."""
    if getattr(loss, "on_device", False):
        from panda_mdp.compute.jax import device

        return device.losses_above(loss.domain, loss.outputs, loss.power, rows)
    sums = np.zeros(len(loss))
    for begin in range(0, len(rows.columns), BLOCK_ENTRIES):
        part = slice(begin, min(begin + BLOCK_ENTRIES, len(rows.columns)))
        columns = rows.columns[part]
        record = np.searchsorted(rows.starts, np.arange(part.start, part.stop), "right") - 1
        lost = (rows.values[part] - rows.floor[columns]) * loss[record, columns]
        sums += np.bincount(record, lost, len(loss))
    return sums


def describe_problem(
    problem: Problem, mesh: Mesh | None = None, *, given: bool = True
) -> Described:
    """What files say of a problem, and of the mesh of a table for every point, with arrays by name:
    losses that are distances follow from them, others go with it where they are `given` and leave
    their digest where not."""
    domain = problem.domain
    reports = problem.reports
    sections: Sections = dict(domain.metric.arrays())
    if domain.nodes is not None:
        sections["nodes"] = domain.nodes
    if reports.records is not None:
        sections["outputs"] = reports.records
    if reports.lat is not None and reports.lon is not None:
        sections |= {"output_lat": reports.lat, "output_lon": reports.lon}
    if not (problem.prior == 1 / domain.size).all():
        sections["prior"] = problem.prior
    power = distance_power(problem)
    left_out = None
    if isinstance(problem.loss, UnknownLoss):
        left_out = problem.loss.digest
    elif power is None and given:
        sections["loss"] = np.asarray(problem.loss)
    elif power is None:
        left_out = digest(np.asarray(problem.loss))
    header: Facts = {
        "epsilon": problem.epsilon,
        "domain": {
            "kind": domain.metric.kind,
            "unit": domain.unit,
            "labels": None if domain.labels is None else list(domain.labels),
        },
        "outputs": {
            "kind": reports.kind,
            "labels": None if reports.names is None else list(reports.names),
        },
        "loss": {"power": power, "unit": problem.loss_unit, "digest": left_out},
    }
    said, arrays = describe_mesh(mesh)
    return header | said, sections | arrays


def describe_mesh(mesh: Mesh | None) -> Described:
    """What files say of the mesh of a table for every point; nothing of other tables."""
    if mesh is None:
        return {}, {}
    arrays = {"mesh_vertices": mesh.vertices, "mesh_area": mesh.area, "mesh_inside": mesh.inside}
    return {"mesh": {"middle": list(mesh.middle), "spacing": mesh.spacing}}, arrays


def distance_power(problem: Problem) -> float | None:
    """The power of the distance that every loss is, to the last bit; None where it is another."""
    loss = problem.loss
    reports = problem.reports
    if isinstance(loss, DistanceLoss):
        same = loss.domain.metric.fingerprint == problem.domain.metric.fingerprint
        same = same and np.array_equal(loss.outputs, reports.codes)
        return loss.power if same and not is_steep(problem.domain, loss.power) else None
    distant = reports.records is not None or (
        reports.kind == "places" and problem.domain.metric.kind == "haversine"
    )
    if isinstance(loss, UnknownLoss) or not distant:
        return None
    every = np.arange(problem.size)
    same = (
        np.array_equal(block, reports.distances(problem.domain, every[rows]))
        for rows, block in loss_blocks(loss)
    )
    return 1.0 if all(same) else None


@contextmanager
def quiet_scale() -> Iterator[None]:
    """Make problems inside whose scale is not a user's choice: cells, anchors, relaxations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        yield


def check_outputs(
    outputs: npt.ArrayLike | Outputs, reports: Outputs | None, domain: Domain
) -> Outputs:
    """Outputs as they are given, or as records of the domain by their indices."""
    if isinstance(outputs, Outputs):
        reports = outputs
        outputs = outputs.codes
    if reports is None or reports.records is not None:
        return Outputs.of(outputs, domain)
    if not np.array_equal(reports.codes, np.asarray(outputs)):
        raise ProblemError(
            "outputs and reports differ; give one of them: problem.reports.take(columns)"
        )
    return reports


def _check_loss(loss: npt.ArrayLike | DistanceLoss | UnknownLoss, size: int, count: int) -> Any:
    computed = isinstance(loss, DistanceLoss | UnknownLoss)
    table: Any = loss if computed else real_numbers(loss, "loss", ProblemError)
    if table.shape != (size, count):
        hint = "; transpose it" if table.shape == (count, size) else ""
        raise ProblemError(
            f"loss has shape {table.shape}; it must be (records, outputs) = {size, count}{hint}"
        )
    if computed:
        return table
    if len(bad := np.argwhere(~(table >= 0) | (table == np.inf))):
        x, y = bad[0]
        raise ProblemError(
            f"loss[{x}, {y}] is {table[x, y]}; losses must be finite and not negative "
            f"({len(bad)} such): unreachable pairs need a large finite loss"
        )
    return frozen(table)


def check_number(
    value: float | None,
    name: str,
    rule: str,
    *,
    least: float = sys.float_info.min,
    most: float = sys.float_info.max,
    whole: bool = False,
    needed: bool = False,
) -> None:
    """Refuse what is not a number, or a whole one, from `least` to `most`; positive and finite by
    default. None passes, unless it is `needed`: it stands for a default."""
    if value is None and not needed:
        return
    if value is None or not (is_number(value, whole=whole) and least <= value <= most):
        raise MethodError(f"{name} is {value!r}; it must be {rule}")


def check_epsilon(epsilon: float) -> float:
    """A positive, finite epsilon, or `ProblemError`."""
    if not (is_number(epsilon) and 0 < epsilon < np.inf):
        raise ProblemError(
            f"epsilon is {epsilon!r}; it must be a positive, finite number per unit of distance"
        )
    return float(epsilon)


def check_probabilities(
    given: npt.ArrayLike | None, size: int, name: str = "prior", owner: str = "record"
) -> FloatArray:
    """Probabilities of `size` things as an array that sums to 1; uniform where None."""
    if given is None:
        return np.full(size, 1.0 / size)
    weights = real_numbers(given, name, ProblemError)
    if weights.shape != (size,):
        raise ProblemError(
            f"{name} has shape {weights.shape}; give one probability per {owner}, ({size},)"
        )
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(bad):
        raise ProblemError(
            f"{name}[{bad[0]}] is {weights[bad[0]]}; probabilities are finite and not negative"
        )
    total = float(weights.sum())
    if abs(total - 1) > PRIOR_TOLERANCE:
        raise ProblemError(
            f"the {name} sums to {total:.12g}; it must sum to 1: divide it by its sum"
        )
    # A prior that was normalised before stays as it is to the last bit (files are read back so).
    return weights if abs(total - 1) <= PRIOR_ROUNDING else weights / total
