"""A table that stays compressed: one block of rows is decoded when a row is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np

from panda_mdp.base.arrays import IntArray, frozen
from panda_mdp.errors import FileFormatError, MethodError, PrivacyError, ProblemError
from panda_mdp.privacy.audit import Audit, audit_weights
from panda_mdp.privacy.quantise import check_weights
from panda_mdp.privacy.sampler import SystemBits, choose
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_record
from panda_mdp.table.claims import TOLERANCE
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.pmdc.codec import BLOCK_ROWS, Rows, decode_block


@dataclass(frozen=True, eq=False)
class CompactTable:
    """A released table as it lies in a compact file: rows are decoded when they are asked for.

    `audit` speaks about the decoded integers, over all pairs; `certificate` says what the table
    claims: its loss, the loss of the table it was made from, the lower bound. The file holds
    neither losses nor the prior; `mechanism(problem)` puts the table back into its problem.
    """

    domain: Domain
    outputs: IntArray
    audit: Audit
    certificate: Mapping[str, Any]
    size_bytes: int
    """Length of the file."""
    _floors: IntArray = field(repr=False)
    _order: IntArray = field(repr=False)
    _blocks: tuple[bytes, ...] = field(repr=False)

    def __repr__(self) -> str:
        return (
            f"CompactTable(K={self.domain.size}, m={len(self.outputs)}, epsilon "
            f"{self.epsilon:g} per {self.domain.unit}, audited {self.audit.epsilon:.6g}, "
            f"{self.size_bytes:,} bytes)"
        )

    @property
    def epsilon(self) -> float:
        """The epsilon that is claimed, per unit of the domain's metric."""
        return float(self.certificate["epsilon"])

    @property
    def loss(self) -> float:
        """Expected loss, as the certificate states it."""
        return float(self.certificate["loss"])

    @property
    def loss_cost(self) -> float:
        """What the compact form costs: the relative rise of the loss, from the certificate."""
        return float(self.certificate["compact"]["loss_cost"])

    def row(self, record: int) -> IntArray:
        """The m weights of a record, summing to 2^62; one block of 256 rows is decoded."""
        wanted = check_record(record, self.domain.size, MethodError)
        place = int(np.argmax(self._order == wanted))
        block = self._decode(place // BLOCK_ROWS)
        return frozen(block.weights[place % BLOCK_ROWS])

    def weights(self) -> IntArray:
        """All weights, K x m, in the domain's order."""
        table = np.empty((self.domain.size, len(self.outputs)), dtype=np.int64)
        for block in range(len(self._blocks)):
            places = self._order[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS]
            table[places] = self._decode(block).weights
        return table

    @overload
    def sample(self, record: int) -> int: ...
    @overload
    def sample(self, record: int, size: int) -> IntArray: ...
    def sample(self, record: int, size: int | None = None) -> int | IntArray:
        """Draw outputs (indices into the domain) for a record, as `Mechanism.sample` does."""
        if size is not None and size < 0:
            msg = f"size is {size}; it must not be negative"
            raise MethodError(msg)
        columns = choose(self.row(record), SystemBits().integers(1 if size is None else size))
        drawn = self.outputs[columns]
        return int(drawn[0]) if size is None else drawn

    def mechanism(self, problem: Problem) -> Mechanism:
        """The table as a mechanism of the problem that it was made for, audited again.

        Raises `ProblemError` where domain, outputs, epsilon or losses are other ones.
        """
        same = (
            problem.domain.fingerprint == self.domain.fingerprint
            and np.array_equal(problem.outputs, self.outputs)
            and problem.epsilon == self.epsilon
        )
        if not same:
            msg = "the problem has other records, outputs or another epsilon than this table"
            raise ProblemError(msg)
        weights = self.weights()
        stated = self.certificate
        bound = stated["lower_bound"]
        mechanism = Mechanism(
            problem=problem,
            weights=weights,
            method=str(stated["method"]),
            audit=audit_weights(problem.domain, problem.outputs, weights, problem.epsilon),
            lower_bound=None if bound is None else float(bound),
            stages=tuple((str(name), float(seconds)) for name, seconds in stated["stages"]),
            details={**stated["details"], "compact": stated["compact"]},
        )
        if abs(mechanism.loss - self.loss) > TOLERANCE * max(self.loss, 1e-300):
            msg = (
                f"the certificate states a loss of {self.loss!r} and this problem gives "
                f"{mechanism.loss!r}; it has other losses or another prior"
            )
            raise ProblemError(msg)
        return mechanism

    def audited(self) -> CompactTable:
        """The same table with an audit of the decoded integers, over all pairs, which must hold."""
        weights = self.weights()
        check_weights(weights, (self.domain.size, len(self.outputs)))
        verdict = audit_weights(self.domain, self.outputs, weights, self.epsilon)
        if not verdict.holds:
            raise PrivacyError(verdict.shortfall)
        if verdict.subject != self.audit.subject:
            msg = "the weights are not the ones that the certificate speaks about"
            raise FileFormatError(msg)
        return replace(self, audit=verdict)

    def _decode(self, block: int) -> Rows:
        count = min(BLOCK_ROWS, self.domain.size - block * BLOCK_ROWS)
        return decode_block(self._blocks[block], count, self._floors)
