"""How likely each record is, and why it is all right to know that.

A table that is optimised for a prior is a function of the people behind the prior, and it is
handed to everyone. So a prior is either public already, or it is made differentially private
first; which of the two, and how, is its `source`, and the certificate carries it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import (
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    frozen,
    is_number,
    real_numbers,
)
from panda_mdp.errors import InvalidInputError, PrivacyError
from panda_mdp.privacy.discrete_laplace import discrete_laplace
from panda_mdp.problem import Problem, check_probabilities
from panda_mdp.space.domain import Domain


@dataclass(frozen=True, eq=False)
class Prior(RebuiltOnCopy):
    """Probabilities of the records, shape (K,), and their provenance.

    >>> Prior.public([3, 1], source="census 2021").weights.tolist()
    [0.75, 0.25]
    """

    weights: FloatArray
    source: str
    epsilon: float | None = None
    """Privacy loss of the prior itself per person, in nats; None where it is public."""

    def __post_init__(self) -> None:
        weights = check_probabilities(self.weights, np.size(self.weights))
        if not self.source:
            raise InvalidInputError(
                "say where the prior comes from: source='...' goes into certificates"
            )
        object.__setattr__(self, "weights", frozen(weights))

    def __repr__(self) -> str:
        return f"Prior({len(self.weights)} records; {self.source})"

    @classmethod
    def public(cls, counts: npt.ArrayLike, *, source: str) -> Prior:
        """Counts per record that are public already, as their owner says."""
        values = real_numbers(counts, "counts", InvalidInputError)
        if values.ndim != 1 or not (np.isfinite(values).all() and (values >= 0).all()):
            raise InvalidInputError(
                "counts are a flat list of finite, non-negative numbers, one per record"
            )
        if values.sum() <= 0:
            raise InvalidInputError(
                "no count is positive, so they tell no prior; use a uniform one (prior=None)"
            )
        return cls(values / values.sum(), source and f"public: {source}")

    @classmethod
    def private(
        cls,
        domain: Domain,
        bounded: npt.ArrayLike,
        *,
        epsilon: float,
        contribution: int,
        source: str,
        cell_km: float | None = 1.0,
    ) -> Prior:
        """A prior that is epsilon-differentially private for each person behind it.

        `bounded` are whole counts per record in which no person counts for more than
        `contribution`. Counts are summed over square cells of `cell_km` (None: over records), get
        discrete Laplace noise of scale contribution / epsilon, negative ones become 0, and what a
        cell has is spread evenly over its records. Adding or removing one person changes the
        probability of any result by at most exp(epsilon): the counts move by at most
        `contribution` in all, and what follows the noise uses nothing else. Cells depend on the
        domain alone. Where nothing is left the prior is uniform.
        """
        if not (is_number(epsilon) and 0 < epsilon < np.inf):
            raise PrivacyError(
                f"the prior's epsilon is {epsilon!r}; it must be positive and finite"
            )
        counts = _whole_counts(bounded, domain.size)
        cell = np.arange(domain.size) if cell_km is None else square_cells(domain, cell_km)
        sums = np.zeros(int(cell.max()) + 1, dtype=np.int64)
        np.add.at(sums, cell, counts)
        noisy = sums + discrete_laplace(Fraction(epsilon) / contribution, len(sums))
        weights = (np.maximum(noisy, 0) / np.bincount(cell))[cell]
        weights = weights if weights.any() else np.ones(domain.size)
        where = "records" if cell_km is None else f"cells of {cell_km:g} {domain.unit}"
        # Exact counts would undo the noise, so the source names none.
        provenance = (
            f"private: {source}; epsilon={epsilon:g} per person (add or remove one), "
            f"at most {contribution} visits each, discrete Laplace on {where}"
        )
        return cls(weights / weights.sum(), provenance, epsilon=float(epsilon))

    def on(self, problem: Problem) -> Problem:
        """The problem with this prior; its source goes into certificates."""
        return replace(problem, prior=self.weights, prior_source=self.source)


def _whole_counts(values: npt.ArrayLike, size: int) -> IntArray:
    counts = np.asarray(values)
    if counts.shape != (size,) or not np.issubdtype(counts.dtype, np.integer) or (counts < 0).any():
        raise InvalidInputError(
            f"bounded counts must be {size} whole, non-negative numbers, one per record"
        )
    return counts.astype(np.int64)


def square_cells(domain: Domain, side: float) -> IntArray:
    """The cell of each record on a square grid over the plane, which is nobody's; cells with
    records are numbered from 0."""
    if not 0 < side < np.inf:
        raise InvalidInputError(f"the side of a cell is {side!r}; it must be positive and finite")
    if domain.plane is None:
        raise InvalidInputError(
            "cells need a domain in a plane, such as places within a few degrees"
        )
    keys = np.floor(domain.plane / side).astype(np.int64)
    return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
