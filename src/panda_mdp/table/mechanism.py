"""Perturbation tables: those with a proven guarantee, and those that say they have none.

    Table                 integer weights over a problem; matrix, loss, audit
    ├── Mechanism         its audit over all pairs holds; can be sampled, saved, served
    └── NoGuarantee       for study only: refuses to be saved or sampled from for release

`Simulation` wraps either for seeded experiments and is never for release.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError, NotForReleaseError, PrivacyError
from panda_mdp.privacy.audit import Audit, audit_weights, subject
from panda_mdp.privacy.quantise import TOTAL, check_weights, quantise
from panda_mdp.privacy.sampler import BitSource, SeededBits, SystemBits, choose
from panda_mdp.problem import Problem
from panda_mdp.space.domain import check_record
from panda_mdp.table.pmdp.encode import encode, write


@dataclass(frozen=True, eq=False)
class Table:
    """A perturbation table: row x holds the distribution of what is reported for record x."""

    problem: Problem
    weights: IntArray
    """K x m integers, each row summing to 2^62: the numbers that are audited and sampled."""
    method: str
    audit: Audit
    lower_bound: float | None = None
    """A rigorous lower bound on the optimum of the problem, where the method has one."""
    stages: tuple[tuple[str, float], ...] = ()
    """What was done, and the seconds that it took."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_weights(self.weights, (self.problem.size, self.problem.outputs_count))
        object.__setattr__(self, "weights", frozen(self.weights))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    @classmethod
    def from_matrix(
        cls,
        problem: Problem,
        matrix: npt.ArrayLike,
        *,
        method: str = "given",
        lower_bound: float | None = None,
        stages: tuple[tuple[str, float], ...] = (),
        details: Mapping[str, Any] | None = None,
    ) -> Self:
        """Quantise a K x m matrix of probabilities and audit it over all pairs.

        `Mechanism.from_matrix` raises `PrivacyError` where the audit does not hold.
        """
        table = np.asarray(matrix, dtype=np.float64)
        shape = (problem.size, problem.outputs_count)
        if table.shape != shape:
            msg = f"the matrix has shape {table.shape}; this problem needs {shape}"
            raise PrivacyError(msg)
        weights = quantise(table)
        return cls(
            problem=problem,
            weights=weights,
            method=method,
            audit=audit_weights(problem.domain, problem.outputs, weights, problem.epsilon),
            lower_bound=lower_bound,
            stages=stages,
            details=details or {},
        )

    @cached_property
    def matrix(self) -> FloatArray:
        """Probabilities, K x m: the weights over 2^62."""
        return frozen(self.weights / float(TOTAL))

    @cached_property
    def loss(self) -> float:
        """Expected loss under the prior, over true records."""
        return self.problem.expected_loss(self.matrix)

    @property
    def epsilon(self) -> float:
        """The epsilon that was asked for, per unit of the domain's metric."""
        return self.problem.epsilon

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

    def with_details(self, **details: Any) -> Self:
        """The same table with more said about it."""
        return replace(self, details={**self.details, **details})

    def simulate(self, seed: int) -> Simulation:
        """A seeded twin for experiments. Its draws are predictable: it is not for release."""
        return Simulation(self, SeededBits(seed))

    def _summary(self) -> str:
        unit = self.problem.loss_unit
        bound = "" if self.lower_bound is None else f", lower bound {self.lower_bound:.6g}"
        return (
            f"{self.method}: K={self.problem.size}, m={self.problem.outputs_count}, "
            f"loss {self.loss:.6g} {unit}{bound}, epsilon {self.epsilon:g} per "
            f"{self.problem.domain.unit}, audited {self.audit.epsilon:.6g}"
        )


class Mechanism(Table):
    """A table that is epsilon-mDP: the audit over all pairs, on its integers, holds.

    The constructor refuses anything else, an audit of other weights or at another epsilon
    included, so an instance of this type is the guarantee:
    z(y|x) <= exp(epsilon d(x, x')) z(y|x') for all records x, x' and outputs y.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.audit.holds:
            msg = (
                f"{self.audit.shortfall}; repair the matrix, raise epsilon, or keep it as "
                "NoGuarantee"
            )
            raise PrivacyError(msg)
        about = subject(self.problem.domain, self.problem.outputs, self.weights)
        if self.audit.subject != about or self.audit.claimed != self.problem.epsilon:
            msg = "the audit is of another table or epsilon; audit_weights(...) makes the right one"
            raise PrivacyError(msg)

    def __repr__(self) -> str:
        return f"Mechanism({self._summary()})"

    @overload
    def sample(self, record: int) -> int: ...
    @overload
    def sample(self, record: int, size: int) -> IntArray: ...
    def sample(self, record: int, size: int | None = None) -> int | IntArray:
        """Draw outputs (indices into the domain) for a record.

        Drawn from the integers with the operating system's generator. Each further draw for the
        same record spends epsilon again: independent reports compose and average out.
        """
        return _draw(self, SystemBits(), record, size)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write table, problem and certificate to one file, atomically."""
        target = Path(path)
        write(target, encode(self))
        return target


class NoGuarantee(Table):
    """A table without a privacy guarantee, for study. It can be neither sampled nor saved.

    Use `simulate(seed)` to draw from it in an experiment.
    """

    def __repr__(self) -> str:
        return f"NoGuarantee({self._summary()}; NO PRIVACY GUARANTEE)"

    def sample(self, record: int, size: int | None = None) -> int:
        """Refused: a draw from this table would be released without a guarantee."""
        msg = "this table has no privacy guarantee; simulate(seed) draws for experiments"
        raise NotForReleaseError(msg)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Refused: files are for release."""
        msg = "this table has no privacy guarantee and cannot be saved for release"
        raise NotForReleaseError(msg)


class Simulation:
    """A table with a seeded generator, for experiments. NOT FOR RELEASE."""

    for_release = False

    def __init__(self, table: Table, bits: SeededBits) -> None:
        self.table = table
        self._bits = bits

    def __repr__(self) -> str:
        return f"Simulation({self.table.method}, seed=<hidden>; NOT FOR RELEASE)"

    @overload
    def sample(self, record: int) -> int: ...
    @overload
    def sample(self, record: int, size: int) -> IntArray: ...
    def sample(self, record: int, size: int | None = None) -> int | IntArray:
        """Draw outputs (indices into the domain) with the seeded generator."""
        return _draw(self.table, self._bits, record, size)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Refused: a seeded mechanism is not for release."""
        msg = "a simulation uses a seeded generator and is not for release; save the mechanism"
        raise NotForReleaseError(msg)


def _draw(table: Table, bits: BitSource, record: int, size: int | None) -> int | IntArray:
    row = check_record(record, table.problem.size, MethodError)
    if size is not None and size < 0:
        msg = f"size is {size}; it must not be negative"
        raise MethodError(msg)
    columns = choose(table.weights[row], bits.integers(1 if size is None else size))
    outputs = table.problem.outputs[columns]
    return int(outputs[0]) if size is None else outputs
