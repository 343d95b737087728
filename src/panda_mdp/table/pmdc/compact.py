"""A table that stays compressed: one block of rows is decoded when a row is asked for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import IntArray, Rebuilt, frozen
from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.sealing import sealed
from panda_mdp.base.units import per
from panda_mdp.errors import (
    DomainError,
    FileFormatError,
    MethodError,
    PrivacyError,
    ProblemError,
)
from panda_mdp.outputs import Outputs
from panda_mdp.privacy.audit import Audit, audit_weights
from panda_mdp.privacy.quantise import TOTAL, check_weights
from panda_mdp.privacy.sampler import SystemBits, choose, choose_rows
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_record, check_records
from panda_mdp.table import claims
from panda_mdp.table.certificate import restore_domain, restore_outputs
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.pmdc import layout
from panda_mdp.table.pmdc.codec import BLOCK_ROWS, MOST_OUTPUTS, Rows, decode_block
from panda_mdp.table.pmdc.levels import LEVEL_BITS, SECTIONS, read_levels
from panda_mdp.table.pmdc.thin import ShortRows


@dataclass(frozen=True, eq=False)
class CompactTable(Rebuilt):
    """A released table as it lies in a compact file: rows are decoded when they are asked for.

    Made from the file's bytes alone, and audited: `audit` speaks about the decoded integers, over
    all pairs, and holds. `certificate` says what the table claims: its loss, the loss of the table
    it was made from, the lower bound. The file holds neither losses nor the prior;
    `mechanism(problem)` puts the table back into its problem.
    """

    data: bytes = field(repr=False)
    """The file."""
    domain: Domain = field(init=False)
    reports: Outputs = field(init=False)
    """What the outputs are."""
    audit: Audit = field(init=False)
    certificate: Mapping[str, Any] = field(init=False)
    _floors: IntArray = field(init=False, repr=False)
    _order: IntArray = field(init=False, repr=False)
    _blocks: tuple[bytes, ...] = field(init=False, repr=False)
    _levels: FlooredRows | None = field(init=False, repr=False)
    """All rows of a file of levels, which cannot be decoded singly."""

    def __post_init__(self) -> None:
        try:
            self._read()
            self._verify()
        except (DomainError, ProblemError, PrivacyError) as error:
            raise FileFormatError(str(error)) from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, FileFormatError):
                raise
            msg = f"the header lacks a field or holds a wrong value: {error!r}"
            raise FileFormatError(msg) from error

    def _read(self) -> None:
        set_ = object.__setattr__
        header, sections = layout.unpack(self.data)
        shapes = claims.shapes(header)
        size, count = shapes["weights"]
        if count > MOST_OUTPUTS:
            msg = f"{count} outputs; a compact table has up to {MOST_OUTPUTS}"
            raise FileFormatError(msg)
        levels = header["version"] == layout.LEVELS_VERSION
        own = SECTIONS if levels else ("floors", "blocks")
        if set(sections) != {"order", *own, *shapes} - {"weights"}:
            msg = f"the file holds the sections {sorted(sections)}; others belong to its domain"
            raise FileFormatError(msg)
        if self._sparse(header):
            # Columns and values of what is stored in place of all weights.
            shapes = {**shapes, "weights": (2 * claims.whole(header, "stored", 0),)}
        claims.check_unpacked(
            sum(8 * math.prod(shape) for shape in shapes.values()), len(self.data)
        )
        if not claims.real(header, "epsilon") > 0:
            msg = f"a wrong value: epsilon is {header['epsilon']!r}; it must be positive"
            raise FileFormatError(msg)
        order = layout.unpack_integers(sections["order"], size)
        if not np.array_equal(np.sort(order), np.arange(size)):
            msg = "the order of the rows does not name every record once; the file is damaged"
            raise FileFormatError(msg)
        rows = read_levels(header, sections, order, count) if levels else None
        floors = rows.floor if rows else layout.unpack_integers(sections["floors"], count)
        if (floors < 0).any() or floors.sum(dtype=np.float64) > TOTAL:
            msg = "the floors are not weights; the file is damaged"
            raise FileFormatError(msg)
        arrays = _arrays(header, sections, order, shapes)
        domain = restore_domain(header["domain"], arrays)
        set_(self, "domain", domain)
        set_(self, "reports", restore_outputs(header, arrays, domain))
        set_(self, "certificate", MappingProxyType(header))
        set_(self, "_floors", frozen(floors))
        set_(self, "_order", frozen(order))
        set_(self, "_levels", rows)
        blocks = () if levels else _blocks(sections["blocks"], header["blocks"], size)
        set_(self, "_blocks", blocks)

    def _verify(self) -> None:
        """Audit the decoded integers over all pairs."""
        weights = self.weights()
        check_weights(weights, (self.domain.size, len(self.outputs)))
        verdict = audit_weights(self.domain, self.outputs, weights, self.epsilon)
        if not verdict.holds:
            raise PrivacyError(verdict.shortfall)
        if verdict.subject != str(self.certificate["subject"]):
            msg = "the weights are not the ones that the certificate speaks about"
            raise FileFormatError(msg)
        claims.check_audit(self.certificate, verdict, self.domain, self.outputs)
        claims.check_words(self.certificate, self.domain.unit)
        # Without the losses neither loss nor bound can be proved here; the impossible is refused.
        claims.check_bound(self.certificate, claims.real(self.certificate, "loss"))
        object.__setattr__(self, "audit", verdict)

    def __repr__(self) -> str:
        return (
            f"CompactTable(K={self.domain.size}, m={len(self.outputs)}, epsilon "
            f"{self.epsilon:g} {per(self.domain.unit)}, audited {self.audit.epsilon:.6g}, "
            f"{self.size_bytes:,} bytes)"
        )

    @property
    def outputs(self) -> IntArray:
        """The number of each output: its index in the domain, or its column."""
        return self.reports.codes

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return len(self.data)

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

    @sealed
    def row(self, record: int) -> IntArray:
        """The m weights of a record, summing to 2^62; one block of 256 rows is decoded."""
        wanted = check_record(record, self.domain.size, MethodError)
        if self._levels is not None:
            return frozen(self._levels[wanted])
        place = int(np.argmax(self._order == wanted))
        block = self._decode(place // BLOCK_ROWS)
        return frozen(block.weights[place % BLOCK_ROWS])

    def rows(self, records: IntArray) -> tuple[Rows, IntArray]:
        """Some records' rows as they are stored, in the records' order, and the floors.

        Only the blocks that hold them are decoded.
        """
        if self._levels is not None:
            rest = self._levels.columns[self._levels.largest()].astype(np.int64)
            digits = np.full(self.domain.size, LEVEL_BITS)
            return ShortRows(self._levels, digits, rest).take(records), self._floors
        place = np.argsort(self._order)[records]
        parts, places = [], []
        for block in np.unique(place // BLOCK_ROWS):
            mine = np.flatnonzero(place // BLOCK_ROWS == block)
            parts.append(self._decode(int(block)).take(place[mine] % BLOCK_ROWS))
            places.append(mine)
        back = np.argsort(np.concatenate(places))
        joined = (
            np.concatenate([getattr(part, name) for part in parts])[back]
            for name in ("weights", "raised", "bits", "rest")
        )
        return Rows(*joined), self._floors

    @staticmethod
    def _sparse(header: Mapping[str, Any]) -> bool:
        return "stored" in header

    def weights(self) -> IntArray | FlooredRows:
        """All weights, K x m, in the domain's order; as rows over the floor where the table was
        stored so."""
        if self._levels is not None:
            return self._levels
        if self._sparse(self.certificate):
            return self._floored()
        table = np.empty((self.domain.size, len(self.outputs)), dtype=np.int64)
        for block in range(len(self._blocks)):
            places = self._order[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS]
            table[places] = self._decode(block).weights
        return table

    def _floored(self) -> FlooredRows:
        raised, columns, values = [], [], []
        left = claims.whole(self.certificate, "stored", 0)
        for block in range(len(self._blocks)):
            rows = self._decode(block)
            raised.append(rows.raised.sum(axis=1))
            left -= int(raised[-1].sum())
            if left < 0:
                break
            columns.append(np.nonzero(rows.raised)[1].astype(np.int32))
            values.append(rows.weights[rows.raised])
        if left != 0:
            msg = "the file stores another number of entries than it says; it is damaged"
            raise FileFormatError(msg)
        ends = np.cumsum(np.concatenate(raised))
        place = np.argsort(self._order)
        count = np.diff(ends, prepend=0)[place]
        starts = np.concatenate([[0], np.cumsum(count)])
        along = np.repeat((ends - np.diff(ends, prepend=0))[place] - starts[:-1], count)
        along += np.arange(len(along))
        return FlooredRows(
            self._floors, starts, np.concatenate(columns)[along], np.concatenate(values)[along]
        )

    @sealed
    def sample(self, records: npt.ArrayLike, size: int | None = None) -> Any:
        """Draw outputs for a record, or one for each of many, as `Mechanism.sample` does."""
        return _draw(self, records, size)

    def mechanism(self, problem: Problem) -> Mechanism:
        """The table as a mechanism of the problem that it was made for, audited again.

        Raises `ProblemError` where domain, outputs, epsilon or losses are other ones.
        """
        same = (
            problem.domain.fingerprint == self.domain.fingerprint
            and problem.reports.same_as(self.reports)
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
            lower_bound=None if bound is None else float(bound),
            stages=tuple((str(name), float(seconds)) for name, seconds in stated["stages"]),
            details={**stated["details"], "compact": stated["compact"]},
        )
        if abs(mechanism.loss - self.loss) > claims.TOLERANCE * max(self.loss, 1e-300):
            msg = (
                f"the certificate states a loss of {self.loss!r} and this problem gives "
                f"{mechanism.loss!r}; it has other losses or another prior"
            )
            raise ProblemError(msg)
        return mechanism

    def _decode(self, block: int) -> Rows:
        count = min(BLOCK_ROWS, self.domain.size - block * BLOCK_ROWS)
        return decode_block(self._blocks[block], count, self._floors)


def _draw(table: CompactTable, records: npt.ArrayLike, size: int | None) -> Any:
    bits = SystemBits()
    if np.ndim(records) > 0:
        if size is not None:
            msg = "size is for draws of one record; many records get one draw each"
            raise MethodError(msg)
        wanted, places = np.unique(
            check_records(records, table.domain.size, MethodError), return_inverse=True
        )
        rows = np.stack([table.row(int(k)) for k in wanted])
        return table.reports.report(choose_rows(rows, places.reshape(-1), bits))
    if size is not None and size < 0:
        msg = f"size is {size}; it must not be negative"
        raise MethodError(msg)
    row = table.row(check_record(records, table.domain.size, MethodError))
    drawn = table.reports.report(choose(row, bits.integers(1 if size is None else size)))
    if size is not None:
        return drawn
    return int(drawn[0]) if isinstance(drawn[0], np.integer) else drawn[0]


def _arrays(
    header: Mapping[str, Any],
    sections: Mapping[str, bytes],
    order: IntArray,
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in sorted(set(shapes) - {"weights", "outputs", "nodes"}):
        shape = shapes[name]
        flat = layout.unpack_floats(header["arrays"][name], sections[name], math.prod(shape))
        arrays[name] = flat.reshape(shape)
        if name in ("lat", "lon"):
            arrays[name] = np.empty(shape)
            arrays[name][order] = flat
    for name in sorted({"outputs", "nodes"} & set(shapes)):
        arrays[name] = layout.unpack_integers(sections[name], shapes[name][0])
    return arrays


def _blocks(data: bytes, lengths: list[int], size: int) -> tuple[bytes, ...]:
    ends = np.cumsum([0, *lengths])
    wanted = -(-size // BLOCK_ROWS)
    if len(lengths) != wanted or ends[-1] != len(data) or (np.diff(ends) < 0).any():
        msg = f"{wanted} blocks of rows do not fit the file; it is damaged"
        raise FileFormatError(msg)
    return tuple(data[a:b] for a, b in itertools.pairwise(ends))
