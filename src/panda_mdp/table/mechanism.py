"""Perturbation tables: those with a proven guarantee, and those that say they have none.

    Table                 integer weights over a problem; matrix, loss, audit
    ├── Mechanism         its audit over all pairs holds; can be sampled, saved, served
    └── NoGuarantee       for study only: refuses to be saved or sampled from for release

A table computes its audit when it is made, on the integers that it owns; none is ever accepted from
outside. `Simulation` wraps either for seeded experiments and is never for release. `Release` is
what users of tables rely on, whatever kind they are of.

`release` is the one door through which methods hand out mechanisms.

Quantising moves an entry by up to 2^-62, which matters where entries are tiny or records very near.
Mixing in a row that is common to all records, z <- (1 - s) z + f with s = sum_y f_y, keeps every
inequality (they are linear and f satisfies them with room to spare) and lifts the tiny entries. The
floor f follows the loss: outputs that no record uses get none, and those that cost much get less.
It takes the lowest floor on a ladder for which the audit on the final integers holds, and
gives up beyond `MAX_SHARE`: what needs more than that was not private in the first place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from pathlib import Path
from types import EllipsisType, MappingProxyType
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    Stages,
    frozen,
    identify,
    real_numbers,
)
from panda_mdp.base.atomic import FilePath, write_whole
from panda_mdp.base.factored import Rows
from panda_mdp.base.floored import FlooredRows, Weights
from panda_mdp.base.text import per, present
from panda_mdp.base.threads import check_time
from panda_mdp.compute.pairs import Backend
from panda_mdp.errors import MethodError, NotForReleaseError, PrivacyError, sealed
from panda_mdp.loss import UnknownLoss
from panda_mdp.privacy.audit import Audit, audit_weights
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import (
    TOTAL,
    BitSource,
    SeededBits,
    SystemBits,
    check_weights,
    choose_rows,
    quantise,
)
from panda_mdp.problem import Problem, describe_mesh, losses_above, losses_of
from panda_mdp.space.domain import check_record, check_records
from panda_mdp.space.mesh import Mesh
from panda_mdp.table.bound import Bound, Proved, Stated
from panda_mdp.table.encode import encode

LOSS_ROUNDING = 1e-9
"""Share by which a lower bound may lie above the loss of a private table: rounding of the two."""


Kind = TypeVar("Kind", bound="Table")


class Release(Protocol):
    """What can be drawn from with a guarantee: mechanisms, tables for every point, PAnDA's."""

    @property
    def problem(self) -> Problem:
        """Records, outputs, losses and epsilon."""

    @property
    def guarantee(self) -> Guarantee:
        """What one draw may tell about two records."""

    @property
    def identity(self) -> str:
        """SHA-256 over everything that has a meaning."""

    def row(self, record: int) -> FloatArray:
        """The probabilities of what is reported for a record, m of them."""

    def sample(self, records: npt.ArrayLike, size: int | None = None) -> Any:
        """Draws with the operating system's generator; each costs the guarantee again."""

    def save(self, path: FilePath) -> Path:
        """Write it to one file, which `panda_mdp.load` verifies."""


@dataclass(frozen=True, eq=False)
class Table(RebuiltOnCopy):
    """A perturbation table: row x holds the distribution of what is reported for record x."""

    warning: ClassVar[str] = ""
    """What every printer says first of a table without a guarantee."""
    problem: Problem
    weights: Weights
    """K x m integers, each row summing to 2^62: the numbers that are audited and sampled. As an
    array, as rows over a floor where most entries are alike (`FlooredRows`), or computed as they
    are asked for (`FactoredRows`)."""
    method: str
    bound: Bound | None = None
    """A lower bound on the optimum of the problem: `Proved` by multipliers, or `Stated` by a method
    that keeps none, a file or a caller. A number that is passed is stated by the caller."""
    stages: Stages = ()
    """What was done, and the seconds that it took."""
    details: Mapping[str, Any] = field(default_factory=dict)
    audit: Audit = field(init=False)
    """How private the weights are over all pairs of records."""
    backend: InitVar[Backend | None] = None
    """What computes the audit; the default where None."""

    def __post_init__(self, backend: Backend | None) -> None:
        try:
            self._judge(backend)
        except BaseException:
            # What a traceback, or a second call of the constructor, leaves behind is no table.
            vars(self).clear()
            raise

    def _judge(self, backend: Backend | None) -> None:
        """Own the weights and audit them."""
        set_ = object.__setattr__
        problem = self.problem
        if not isinstance(self.weights, Rows):
            set_(self, "weights", frozen(self.weights))
        check_weights(self.weights, (problem.size, problem.outputs_count), backend)
        set_(self, "details", MappingProxyType(dict(self.details)))
        set_(self, "bound", as_bound(self.bound))
        verdict = audit_weights(
            problem.domain, problem.outputs, self.weights, problem.epsilon, backend
        )
        set_(self, "audit", verdict)
        self._check()

    @classmethod
    def from_matrix(
        cls,
        problem: Problem,
        matrix: npt.ArrayLike,
        *,
        method: str = "given",
        bound: Bound | float | None = None,
    ) -> Self:
        """Quantise a K x m matrix of probabilities and audit it over all pairs.

        `Mechanism.from_matrix` raises `PrivacyError` where the audit does not hold.
        """
        table = real_numbers(matrix, "the matrix", PrivacyError)
        shape = (problem.size, problem.outputs_count)
        if table.shape != shape:
            raise PrivacyError(f"the matrix has shape {table.shape}; this problem needs {shape}")
        return cls(problem, quantise(table), method, as_bound(bound))

    @cached_property
    def matrix(self) -> FloatArray:
        """Probabilities, K x m: the weights over 2^62. `MethodError` where that takes more than
        1 GiB: `row(record)` is one row."""
        return frozen(np.asarray(self.weights) / float(TOTAL))

    @cached_property
    def loss(self) -> float:
        """Expected loss under the prior, over true records."""
        problem = self.problem
        weights = self.weights
        if isinstance(weights, FlooredRows):
            common = problem.mean_loss @ (weights.floor / float(TOTAL))
            above = losses_above(problem.loss, weights) / float(TOTAL)
            return float(problem.prior @ above + common)
        return float(problem.prior @ losses_of(problem.loss, weights))

    @property
    def mesh(self) -> Mesh | None:
        """The triangles between whose corners it is private too; None of most tables."""
        return None

    @cached_property
    def identity(self) -> str:
        """SHA-256 over everything that has a meaning: the problem's identity, the mesh of a table
        for every point, and the integers, however they are stored."""
        said, parts = describe_mesh(self.mesh)
        whole = {"problem": self.problem.identity, **said}
        return identify(whole, {**parts, "weights": self.weights})

    @property
    def epsilon(self) -> float:
        """The epsilon that was asked for, per unit of the domain's metric."""
        return self.problem.epsilon

    @property
    def lower_bound(self) -> float | None:
        """The value of `bound`, which says how sure it is."""
        return None if self.bound is None else self.bound.value

    @property
    def bound_over_records(self) -> Bound | None:
        """The bound where it is one of all tables that are private over the records: tables of
        every point have more to keep."""
        return self.bound if self.mesh is None else None

    @property
    def gap(self) -> float | None:
        """Relative distance of the loss to the lower bound; None where there is no bound."""
        if self.lower_bound is None:
            return None
        excess = self.loss - self.lower_bound
        if excess <= 0:
            return 0.0
        return excess / self.lower_bound if self.lower_bound > 0 else float("inf")

    @property
    def seconds(self) -> float:
        """Time that all stages took."""
        return sum(seconds for _, seconds in self.stages)

    @sealed
    def row(self, record: int) -> FloatArray:
        """The probabilities of one record, m of them."""
        return frozen(self.weights[check_record(record, self.problem.size)] / float(TOTAL))

    def with_facts(
        self,
        *,
        method: str | None = None,
        bound: Bound | float | EllipsisType | None = ...,
        stages: Stages | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Self:
        """The same problem and weights, and so the same audit, with other things said of them; a
        `bound` of None takes away the one that there is."""
        new = self._as(type(self))
        facts = {
            "method": method,
            "stages": stages,
            "details": None if details is None else MappingProxyType(dict(details)),
        }
        vars(new).update(present(facts))
        if bound is not ...:
            vars(new)["bound"] = as_bound(bound)
        new._check()
        return new

    def _as(self, kind: type[Kind]) -> Kind:
        """The same weights and all that was computed of them, the audit too, as another kind."""
        new = object.__new__(kind)
        vars(new).update(vars(self))
        return new

    def with_details(self, **details: Any) -> Self:
        """The same table with more said about it."""
        return self.with_facts(details={**self.details, **details})

    def _check(self) -> None:
        """Refuse what is said of the table where it cannot be."""
        if isinstance(self.bound, Proved) and not self.bound.bounds(self.problem):
            raise PrivacyError("the proof of the lower bound is of another problem")

    @sealed
    def simulate(self, seed: int) -> Simulation:
        """A seeded twin for experiments. Its draws are predictable: it is not for release."""
        return Simulation(self, _seeded(seed))

    @property
    def loss_words(self) -> str:
        """Loss and lower bound, or what the file says of a loss that it left out."""
        if isinstance(self.problem.loss, UnknownLoss):
            stated = self.details.get("stated_loss")
            return "unknown" if stated is None else f"{stated:.6g}, as stated and not verified"
        bound = self.bound
        least = "" if bound is None else f", lower bound {bound.value:.6g} ({bound.words})"
        return f"{self.loss:.6g} {self.problem.loss_unit}{least}"

    def __repr__(self) -> str:
        end = f"; {self.warning}" if self.warning else ""
        return f"{type(self).__name__}({self._summary()}{end})"

    def _summary(self) -> str:
        return (
            f"{self.method}: K={self.problem.size}, m={self.problem.outputs_count}, "
            f"loss {self.loss_words}, epsilon {self.epsilon:g} "
            f"{per(self.problem.domain.unit)}, audited {self.audit.epsilon:.6g}"
        )


class Mechanism(Table):
    """A table that is epsilon-mDP: the audit over all pairs, on its integers, holds.

    The constructor audits and refuses anything else, so an instance of this type is the guarantee:
    z(y|x) <= exp(epsilon d(x, x')) z(y|x') for all records x, x' and outputs y.
    """

    def _check(self) -> None:
        if not self.audit.holds:
            raise PrivacyError(
                f"{self.audit.shortfall}; pm.repair(problem, matrix) gives the nearest table that "
                "holds; or raise epsilon, or keep it as NoGuarantee"
            )
        super()._check()
        if self.bound is None or isinstance(self.problem.loss, UnknownLoss):
            return
        bound = self.bound.value
        # No private table loses less than the optimum.
        if bound > self.loss * (1 + LOSS_ROUNDING):
            raise PrivacyError(
                f"a lower bound of {bound!r} lies above the loss, {self.loss!r}; it is no bound"
            )

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, 0) of one draw."""
        return Guarantee(self.epsilon, 0.0, self.problem.domain.unit)

    @sealed
    def sample(self, records: npt.ArrayLike, size: int | None = None) -> Any:
        """Draw outputs for a record, or one for each of many records.

        Returns what is reported: indices into the domain, or labels where outputs are no records;
        `size` draws of one record, or one draw for each of `records`.
        Drawn from the integers with the operating system's generator. Each further draw for the
        same record spends epsilon again: independent reports compose and average out.
        """
        return _draw(self, SystemBits(), records, size)

    def save(self, path: FilePath, *, losses: bool = True) -> Path:
        """Write table and problem to one file, atomically; `panda_mdp.load` reads and audits it.

        Without `losses` those that are not distances stay out of the file: who only draws needs
        none. `panda_mdp.compact` makes a table whose file is far shorter.
        """
        return write_whole(Path(path), encode(self, losses=losses))


class NoGuarantee(Table):
    """A table without a privacy guarantee, for study. It can be neither sampled nor saved.

    Use `simulate(seed)` to draw from it in an experiment.
    """

    warning = "NO PRIVACY GUARANTEE"

    def sample(self, record: int, size: int | None = None) -> int:
        """Refused: a draw from this table would be released without a guarantee."""
        raise NotForReleaseError(
            "this table has no privacy guarantee; simulate(seed) draws for experiments"
        )

    def save(self, path: FilePath) -> Path:
        """Refused: files are for release."""
        raise NotForReleaseError(
            "this table has no privacy guarantee and cannot be saved for release"
        )


class Simulation:
    """A table with a seeded generator, for experiments. NOT FOR RELEASE."""

    for_release = False

    def __init__(self, table: Table, bits: SeededBits) -> None:
        self.table = table
        self._bits = bits

    def __repr__(self) -> str:
        return f"Simulation({self.table.method}, seed=<hidden>; NOT FOR RELEASE)"

    @sealed
    def sample(self, records: npt.ArrayLike, size: int | None = None) -> Any:
        """Draw outputs as `Mechanism.sample` does, with the seeded generator."""
        return _draw(self.table, self._bits, records, size)

    def save(self, path: FilePath) -> Path:
        """Refused: a seeded mechanism is not for release."""
        raise NotForReleaseError(
            "a simulation uses a seeded generator and is not for release; save the mechanism"
        )


def audited_table(
    problem: Problem,
    weights: Weights,
    method: str,
    *,
    bound: Bound | float | None = None,
    stages: Stages = (),
    details: Mapping[str, Any] | None = None,
    backend: Backend | None = None,
) -> Mechanism | NoGuarantee:
    """A `Mechanism` where the audit of these weights holds, else a `NoGuarantee` with its audit."""
    table = NoGuarantee(problem, weights, method, None, stages, details or {}, backend=backend)
    if not table.audit.holds:
        return table
    # The audit that the table computed on the arrays that it owns; it is not made twice.
    return table._as(Mechanism).with_facts(bound=bound)


def as_bound(given: Bound | float | None) -> Bound | None:
    """A bound as it is; a number is what the caller states."""
    if given is None or isinstance(given, Proved | Stated):
        return given
    return Stated(float(given), "the caller")


def _seeded(seed: int) -> SeededBits:
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise MethodError("the seed is not a whole number from 0 on (it is not shown)")
    return SeededBits(int(seed))


def requested_records(
    records: npt.ArrayLike, size: int | None, count: int
) -> tuple[IntArray, bool]:
    """The records, of `count`, that draws are asked for, and whether it is a single draw."""
    if np.ndim(records) > 0:
        if size is not None:
            raise MethodError("size is for draws of one record; many records get one draw each")
        return check_records(records, count, MethodError), False
    if size is not None and size < 0:
        raise MethodError(f"size is {size}; it must not be negative")
    record = check_record(records, count, MethodError)
    return np.full(1 if size is None else size, record), size is None


def _draw(table: Table, bits: BitSource, records: npt.ArrayLike, size: int | None) -> Any:
    rows, single = requested_records(records, size, table.problem.size)
    columns = choose_rows(table.weights, rows, bits)
    return table.problem.reports.report(columns, single=single)


FLOOR_SHARE = 1e-8
MAX_SHARE = 1e-3
FLOOR_WORTH = 1e-6
"""Of the loss: what a floor may cost before the audit asks for a higher one."""
LEAST_ENTRY = 2.0**-57
"""An entry of 32 units of the integers: below it rounding is most of the entry."""
ROUNDING_NATS = 1e-11
"""Log ratios below this are within the reach of rounding: 1e-12 of the audit, and the method's."""
LADDER = 16
"""Floors that are tried, each ten times the one before."""
COMMON_NATS = 1e-6
"""Where the rows differ by less than this, one row for all records costs no more than this share of
the loss."""


def mix(matrix: FloatArray, share: float, common: FloatArray | None = None) -> FloatArray:
    """(1 - share) z + share u, with u uniform by default."""
    return (1.0 - share) * matrix + share * (1.0 / matrix.shape[1] if common is None else common)


def floor_row(problem: Problem, rows: FloatArray, share: float = FLOOR_SHARE) -> FloatArray:
    """A floor f (m,) under all rows: share / m for each output, but 0 where no record uses it, and
    so little where it is expensive that all of f costs at most `FLOOR_WORTH` of the loss."""
    return floor_under(problem, rows.max(axis=0) > 0, problem.expected_loss(rows), share)


def floor_under(
    problem: Problem,
    used: BoolArray,
    loss: float,
    share: float = FLOOR_SHARE,
    worth: float = FLOOR_WORTH,
) -> FloatArray:
    """`floor_row` of a table of which only the outputs `used` and the expected loss are known."""
    outputs = problem.outputs_count
    cost = problem.mean_loss
    each = worth * loss / outputs
    affordable = np.divide(each, cost, out=np.full(outputs, np.inf), where=cost > 0)
    floor = np.minimum(share / outputs, np.maximum(affordable, LEAST_ENTRY))
    return np.where(used, floor, 0.0)


def release(
    problem: Problem,
    matrix: FloatArray,
    *,
    method: str,
    bound: Bound | float | None = None,
    stages: Stages = (),
    details: Mapping[str, Any] | None = None,
    floor: float = FLOOR_SHARE,
    backend: Backend | None = None,
) -> Mechanism:
    """Quantise, audit and hand out a matrix that is epsilon-mDP up to rounding.

    Where all rows differ by less than 1e-6 and rounding breaks epsilon between near records, every
    record gets the rows' mean under the prior. A matrix that misses epsilon by more than
    rounding is refused with `PrivacyError`, and so are records too near for float64.
    """
    start = time.perf_counter()
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = matrix / matrix.sum(axis=1, keepdims=True)
    for table, facts in attempts(problem, rows, floor):
        check_time()
        try:
            weights = quantise(table)
        except PrivacyError as error:
            raise PrivacyError(f"{method} gave a matrix that is not private: {error}") from error
        answer = audited_table(problem, weights, method, bound=bound, backend=backend)
        result = answer.audit
        if isinstance(answer, Mechanism):
            return answer.with_facts(
                stages=(*stages, ("quantise and audit", time.perf_counter() - start)),
                details={**(details or {}), **facts},
            )
    msg = f"{method} gave a matrix that is not private: {result.shortfall}"
    if problem.epsilon * result.distance < ROUNDING_NATS:
        msg += (
            f"; at {result.distance:.3g} {result.unit} and epsilon {problem.epsilon:g} these two "
            "may differ by less than rounding does: merge records this near, or raise epsilon"
        )
    raise PrivacyError(msg)


def attempts(
    problem: Problem, rows: FloatArray, floor: float = FLOOR_SHARE
) -> Iterator[tuple[FloatArray, dict[str, float | bool]]]:
    """What may be handed out for these rows, from the nearest to them on."""
    # An output that no record uses may stay impossible; one that some use may not.
    even = not ((rows == 0).any(axis=0) & (rows > 0).any(axis=0)).any()
    if even:
        yield rows, {"uniform_share": 0.0}
    lowest = floor_row(problem, rows, floor)
    for k in range(LADDER):
        row = lowest * 10.0**k
        share = float(row.sum())
        if k > 0 and not 0 < share <= MAX_SHARE * (1 + 1e-9):
            break
        yield rows * (1 - share) + row, {"uniform_share": share}
    row = 0.0 * lowest if even else lowest
    lifted = rows * (1 - row.sum()) + row
    used = lifted.max(axis=0) > 0
    spread = np.log(lifted[:, used].max(axis=0) / lifted[:, used].min(axis=0)).max()
    # Rows that differ by more than any two records may are a leak, not rounding.
    nats = problem.epsilon * problem.domain.diameter
    if spread < COMMON_NATS and spread <= nats + ROUNDING_NATS:
        mean = problem.prior @ lifted
        facts = {"uniform_share": float(row.sum()), "common_row": True}
        yield np.tile(mean, (len(rows), 1)), facts


def normalise(weights: FloatArray) -> FloatArray:
    """Rows divided by their sums."""
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
