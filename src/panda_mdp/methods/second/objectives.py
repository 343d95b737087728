"""What else a table may be good for, as sums of largest linear forms.

Every objective here is

    v(z) = sum over outputs y of  max over guesses w of  (A z)_wy,

convex and piecewise linear in the table z, to be made small: the g-vulnerability of an attacker
with gains g. v is linear after one variable per output is added, so bounds by weak duality and
audits stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self, get_args

import numpy as np
import scipy

from panda_mdp.base.arrays import AnyArray, Float32Array, FloatArray, IntArray, owners
from panda_mdp.errors import MethodError
from panda_mdp.methods.optimal.program import Program
from panda_mdp.problem import Problem, check_number
from panda_mdp.space.guesses import (
    AT_REST,
    as_guesses,
    best_guesses,
    best_records,
    guess_distances,
    held_sets,
    largest_sets,
)
from panda_mdp.table.claims import ERROR, LOCATED, LOSS, NO_GUESSES, VULNERABILITY, Term

ROUNDED = 1e-11
"""Relative, and more than sums of a few thousand float64 terms of one sign can err."""
FAINTEST = 1e-6
"""Records that count less than this, of the one that counts most, are taken to count so much."""
HELD = 16
"""Guesses of an output: half of them its nearest records, the others ever farther ones."""
FARTHEST_RANK = 0.1
"""Of all records: how far the farthest of them reaches."""
STORED = 2e-7
"""More than storing a distance in float32 and summing in float64 can err, relatively."""
NEARER = 1e-4
"""Relative: guesses that are better by less than this are no new ones."""
ON_THE_WAY = 1e-6
"""Precision of medians while a table is looked for; what is said of it at the end has all."""
LARGEST_GAIN = 40_000_000
"""Entries of a gain that are held."""


@dataclass(frozen=True)
class Forms:
    """The linear forms of an objective over tables of shape (K, m), all guesses alike for every
    output: (A z)_wy = sum_x a_wx z_xy, with all a_wx >= 0; others are classes below it.

    The quantity that the name says is `sign` v: an error, which should be large, is -v.
    """

    stiffness: float
    """What the forms add to a record's degree at most, which is a dozen edges or so: the more, the
    longer the steps of the weights and the shorter those of the table."""
    coefficients: Any
    """A, in the form that the class says."""
    name = ""
    sign = 1.0
    work = 0.5
    """Iterations, of those of the first solve, that take with checks and repair no longer than it
    did."""
    relative = False
    """Whether the value is a share already, of which a gap is one."""
    least_step = 0.1
    """In logarithms: prices are not moved by less."""
    faster = 1.0
    """By which the longest step of a price grows while it goes one way; where it does not, a price
    that has turned often enough stays where it is."""
    price_factor = 6.0
    """The price at which a slack is used up, near enough to begin with: so many slacks of loss for
    all that the objective could fall."""

    @property
    def unit(self) -> str:
        """Of the quantity."""
        return ""

    def forward(self, table: FloatArray) -> FloatArray:
        """The forms' values, (guesses, m)."""
        return self.coefficients @ table

    def adjoint(self, weights: FloatArray) -> FloatArray:
        """sum_wy w_wy A_wy as a table, (K, m)."""
        return self.coefficients.T @ weights

    def value(self, table: FloatArray) -> float:
        """v(z)."""
        return float(self.forward(table).max(axis=0).sum())

    def below(self, weights: FloatArray) -> FloatArray:
        """A table b, near A^T w, with <b, z> <= v(z) for every z >= 0; roundings accounted for."""
        made = self.adjoint(on_simplex(weights))
        return made - ROUNDED * np.abs(made)

    def shares(self) -> FloatArray:
        """How much of the forms hangs on each record, (K,), positive, 1 at most."""
        return relative(self._column_sums())

    def steepness(self, weight: FloatArray) -> FloatArray:
        """For every output a bound on the largest eigenvalue of A diag(weight) A^T, (m,)."""
        # Entries are of one sign, so no eigenvalue exceeds the largest row sum.
        return self.forward(weight * self._column_sums()[:, None]).max(axis=0)

    def _column_sums(self) -> FloatArray:
        return np.asarray(self.coefficients.sum(axis=0), dtype=float).ravel()

    def penalty(self, table: FloatArray) -> float:
        """What is added to the value of a table that misses what it must have."""
        return 0.0

    @property
    def offset(self) -> float:
        """What is added to a bound of the forms to bound what they stand for."""
        return 0.0

    def ceilings(self, most: float, on_loss: bool) -> list[Measure]:
        """What an LP keeps them below, where the loss is limited to `most` or else they are."""
        unit = float(np.abs(self.coefficients).sum(axis=-1).max()) or 1.0
        if on_loss:
            return [Measure("", self, unit)]
        return [Measure("", self, unit, False, most, most)]

    def priced(self, ceilings: Sequence[Measure], prices: FloatArray) -> tuple[Forms, float]:
        """The forms of an LP's ceilings at its prices, and what all of them are at."""
        return ceilings[0].gain, float(prices[0])

    def rows(self, outputs: int) -> scipy.sparse.csr_array:
        """The forms as rows over the entries of a table, those of a guess behind each other."""
        each = scipy.sparse.eye_array(outputs)
        return scipy.sparse.csr_array(scipy.sparse.kron(self.coefficients, each))

    def moved(self, table: FloatArray, weights: FloatArray) -> Self:
        """Forms that suit another table better, where only some are held; weights go with them."""
        return self

    def terms(self, weights: FloatArray, price: float, limit: float, grows: float) -> list[Term]:
        """What a bound at these weights and this price rests on, as files hold it; nothing where
        they cannot."""
        return []

    def paced(self, values: FloatArray) -> Self:
        """The same after a look at what `gains` are worth."""
        return self

    def worth(self, values: FloatArray) -> float:
        """v, of what `gains` are worth."""
        return float(values.sum())

    def taken_over(self, before: Any, weights: FloatArray) -> FloatArray:
        """Weights of these forms on other nodes."""
        return weights

    def on(self, program: Program, tiled: bool) -> Forms:
        """The same forms of tables on the nodes of a program, its records in their order there;
        gains, which `tiled` forms are of."""
        if tiled:
            return Tiled.over(program, self)
        return replace(self, coefficients=self.coefficients[..., program.record])

    @property
    def gains(self) -> list[tuple[float, Forms]]:
        """The gains that are added up, and their rates."""
        return [(1.0, self)]

    @property
    def guesses(self) -> int:
        """Forms of each output."""
        return int(self.coefficients.shape[-2])

    def onto(self, weights: FloatArray) -> FloatArray:
        """The nearest weights, (guesses, m), that are not negative and sum to 1 for each output."""
        from panda_mdp.compute.numba.pdhg import onto_simplex

        return onto_simplex(weights)

    def heaviest(self, values: FloatArray) -> FloatArray:
        """Weights on the largest form of each output alone."""
        weights = np.zeros_like(values)
        weights[values.argmax(axis=0), np.arange(values.shape[1])] = 1.0
        return weights


@dataclass(frozen=True)
class Measure:
    """A sum of largest forms, and what an LP keeps it below: a share of its reference that is made
    least, or something fixed."""

    name: str
    gain: Forms
    reference: float
    """What it may grow by with what is made least; in any case about as large as its value."""
    shared: bool = True
    fixed: float = 0.0
    aim: float = 0.0
    """What is asked of the LP: `fixed`, or a little less for what rounds."""


@dataclass(frozen=True)
class Gain(Forms):
    """How much of a prior each guess holds, under a name of its own."""

    name: str = ""
    prior: FloatArray | None = None
    radius: float | None = None
    """Within which a guess holds records; itself alone without one."""
    held: AnyArray | None = None
    """The guesses, one for each form."""

    @classmethod
    def within(
        cls,
        radius: float | None,
        guesses: tuple[scipy.sparse.csr_array, AnyArray],
        prior: FloatArray,
        stiffness: float = 2.0,
    ) -> Gain:
        """Of those of all `guess_sets` within a radius that hold something of a prior."""
        sets, held = guesses
        gain = scipy.sparse.csr_array(sets * prior)
        some = np.flatnonzero(gain.sum(axis=1))
        name = "vulnerability" if radius is None else "located"
        return cls(stiffness, gain[some], name, prior, radius, held[some])

    def terms(self, weights: FloatArray, price: float, limit: float, grows: float) -> list[Term]:
        if self.held is None or self.prior is None:
            return []
        kind, radius = (VULNERABILITY, 0.0) if self.radius is None else (LOCATED, self.radius)
        shares = on_simplex(weights)
        return [Term(kind, self.prior, price, limit, grows, radius, self.held, shares)]


@dataclass(frozen=True)
class Tiled(Forms):
    """Gains over the nodes of tiles: (A z)_gy = rate sum_x a_gx z_xy for the guesses g of one gain
    that hold some record which the tile of output y sees.

    Guesses lie gain by gain, within a gain tile by tile: such a group has a simplex for each of the
    tile's outputs. What a guess gains from records that a tile does not see is left out, so that
    bounds hold. `coefficients` are those of guesses and nodes, without the rates.
    """

    starts: IntArray
    """(groups + 1,): where the guesses of a group begin."""
    gain: IntArray
    """Of every guess."""
    rates: FloatArray
    """Of every gain."""
    steep: Any
    """The coefficients times the sums over all guesses of the same gain and node."""
    share: Any
    """(nodes,)."""
    keys: IntArray
    """A number for every guess of a gain and a tile, ascending: the same on other nodes."""
    group: Any
    """Of every guess."""
    xp = np
    """What arrays of nodes are of: NumPy, or JAX (device_forms.py)."""

    @classmethod
    def over(cls, program: Program, forms: Forms) -> Tiled:
        """The gains of forms, over the nodes of a program."""
        tiles, count = len(program.tiling.tiles), program.count
        lists, below = [], 0
        shares = np.zeros(count)
        for _, gain in forms.gains:
            of_record = scipy.sparse.csc_array(gain.coefficients)
            held = scipy.sparse.coo_array(of_record[:, program.record])
            key = below + program.tile[held.col] * gain.guesses + held.row
            sums = np.bincount(held.col, held.data, minlength=count).astype(float)
            shares = np.maximum(shares, relative(sums))
            lists.append((key, held.col, held.data, held.data * sums[held.col]))
            below += tiles * gain.guesses
        key, node, value, steep = (np.concatenate(part) for part in zip(*lists, strict=True))
        keys, row = np.unique(key, return_inverse=True)
        each = np.array([gain.guesses for _, gain in forms.gains])
        begins = np.concatenate([[0], np.cumsum(tiles * each)])
        of_gain = np.asarray(np.searchsorted(begins, keys, side="right") - 1, np.int64)
        group = of_gain * tiles + (keys - begins[of_gain]) // each[of_gain]
        starts = np.append(np.flatnonzero(np.diff(group, prepend=-1)), len(keys)).astype(np.int64)
        matrix, steeper = (
            scipy.sparse.csr_array((data.astype(np.float32), (row, node)), (len(keys), count))
            for data in (value, steep)
        )
        rates = np.array([rate for rate, _ in forms.gains])
        own = owners(starts)
        return cls(forms.stiffness, matrix, starts, of_gain, rates, steeper, shares, keys, own)

    @cached_property
    def rate(self) -> Any:
        """Of every guess, as a column."""
        return self.rates[self.gain, None]

    @cached_property
    def _single(self) -> Any:
        return self.rate.astype(np.float32)

    def forward(self, table: Any) -> Any:
        return self._single * (self.coefficients @ table)

    def adjoint(self, weights: Any) -> Any:
        return self.coefficients.T @ (self._single * weights)

    def below(self, weights: Any) -> Any:
        xp = self.xp
        positive = xp.maximum(weights.astype(float), 0.0)
        sums, count = (
            self.over_groups("add", w)[self.group] for w in (positive, 1.0 + 0 * positive)
        )
        shares = xp.where(sums > 0, positive, 1.0) / xp.where(sums > 0, sums, count)
        made = self.coefficients.astype(float).T @ (self.rate * shares)
        # Storing coefficients in single precision may have made them larger.
        return made * (1 - STORED)

    def shares(self) -> Any:
        return self.share

    def steepness(self, weight: Any) -> Any:
        largest = self.over_groups("maximum", self.steep @ weight.astype(np.float32))
        # Steps of several gains add up: each has its share of them.
        return len(self.rates) * largest[self.group] * self._single**2

    def over_groups(self, kind: str, values: Any) -> Any:
        """Sums or largest numbers of every group, (groups, width)."""
        return getattr(np, kind).reduceat(values, self.starts[:-1], axis=0)

    def values(self, table: Any) -> FloatArray:
        """What every gain is worth, without its rate."""
        best = np.asarray(self.over_groups("maximum", self.coefficients @ table), dtype=float)
        groups = self.gain[self.starts[:-1]]
        sums = best.sum(axis=1)[: len(groups)]
        return np.bincount(groups, sums, minlength=len(self.rates)).astype(float)

    def onto(self, weights: Any) -> Any:
        project = super().onto
        parts = (weights[a:b] for a, b in pairwise(self.starts.tolist()))
        return np.concatenate([project(part).astype(np.float32) for part in parts])

    def heaviest(self, values: Any) -> Any:
        return (values >= self.over_groups("maximum", values)[self.group]).astype(np.float32)

    def at(self, forms: Forms) -> Self:
        """The same gains at the rates of forms."""
        return replace(self, rates=np.array([rate for rate, _ in forms.gains]))

    def taken_over(self, before: Any, weights: Any) -> Any:
        at = np.minimum(np.searchsorted(before.keys, self.keys), len(before.keys) - 1)
        known = before.keys[at] == self.keys
        return np.where(known[:, None], np.asarray(weights)[at], np.float32(0))


def on_simplex(weights: FloatArray) -> FloatArray:
    """Weights that are not negative and sum to 1 for each output, alike where none is positive."""
    positive = np.maximum(weights, 0.0)
    sums = positive.sum(axis=0)
    return np.where(sums > 0, positive, 1.0) / np.where(sums > 0, sums, len(positive))


def relative(sums: FloatArray) -> FloatArray:
    """Shares of the largest sum."""
    return np.maximum(sums / (sums.max() or 1.0), FAINTEST)


@dataclass(frozen=True)
class Guesses(Forms):
    """Minus how far off the best guess of the place is.

    (A z)_gy = -sum_x p_x d(w_gy, x) z_xy for the guesses w (G, m) that are held. The best
    attacker's error is sum_y min_w sum_x p_x z_xy d(w, x) over all places w. Held are all records,
    or some near the best guess of every output, and the guesses that were best on the way. An
    attacker who has only those errs no less, so with v = -error

        v(z) >= sum_y max over the held w of (-sum_x p_x z_xy d(w, x)):

    what bounds the right side from below bounds v. Values are taken over all guesses. The
    coefficients are -p_x d(w_gy, x) by output, guess and record, (m, G, K).
    """

    problem: Problem
    at_rest: float
    """Precision of the guesses of a value."""
    held: AnyArray
    """The guesses of every output, (m, G) records or (m, G, p) places."""
    records: Any = ...
    """In which order records lie."""
    name = "error"
    sign = -1.0
    work = 0.4
    price_factor = 10.0

    @property
    def unit(self) -> str:
        return self.problem.domain.unit

    @classmethod
    def around(cls, problem: Problem, table: FloatArray | None) -> Guesses:
        """Guesses round the best one of each output of a table; all records without one."""
        domain = problem.domain
        size = problem.size
        if table is None:
            records = as_guesses(domain, np.arange(size))
            outputs = problem.outputs_count
            each = np.broadcast_to(_costs(problem, records), (outputs, size, size))
            held = np.broadcast_to(records, (outputs, *records.shape))
            return cls(2.0, each, problem, AT_REST, held)
        count = min(HELD, size)
        near = np.arange(count - count // 2)
        far = np.geomspace(len(near) + 1, max(len(near) + 1, FARTHEST_RANK * size), count // 2)
        ranks = np.unique(np.concatenate([near, np.minimum(far.astype(np.int64), size - 1)]))
        best = best_records(domain, problem.prior[:, None] * table)[1]
        held = np.argsort(domain.distances(best, None), axis=1, kind="stable")[:, ranks].T
        placed = as_guesses(domain, held.T)
        costs = np.stack([_costs(problem, guesses) for guesses in placed])
        return cls(16.0, costs, problem, ON_THE_WAY, placed)

    def forward(self, table: FloatArray) -> FloatArray:
        columns = np.ascontiguousarray(table.T, dtype=np.float32)[:, :, None]
        return np.asarray((self.coefficients @ columns)[:, :, 0].T, dtype=float)

    def adjoint(self, weights: FloatArray) -> FloatArray:
        rows = np.ascontiguousarray(weights.T, dtype=np.float32)[:, None, :]
        return (rows @ self.coefficients)[:, 0, :].T

    def below(self, weights: FloatArray) -> FloatArray:
        pairs = zip(on_simplex(weights).T, self.coefficients, strict=True)
        made = np.stack([shares @ forms.astype(float) for shares, forms in pairs], axis=1)
        # That sums of weights are 1 but for a rounding is within what storing errs.
        return made - STORED * np.abs(made)

    def shares(self) -> FloatArray:
        return relative(self.problem.prior[self.records])

    def on(self, program: Program, tiled: bool) -> Forms:
        own = self.coefficients[..., program.record]
        return replace(self, coefficients=own, records=program.record)

    def steepness(self, weight: FloatArray) -> FloatArray:
        # What all guesses of an output share moves no weights on a simplex: it is left out.
        steep = np.empty(len(self.coefficients))
        for y, forms in enumerate(self.coefficients):
            own = forms - forms.mean(axis=0)
            steep[y] = np.linalg.eigvalsh((own * weight[:, y].astype(np.float32)) @ own.T)[-1]
        return steep * 1.01

    def value(self, table: FloatArray) -> float:
        return -place_error(self.problem, table, self.at_rest)

    def rows(self, outputs: int) -> scipy.sparse.csr_array:
        # By guess, output and record; an output's forms are of its own entries.
        forms = self.coefficients.astype(float).transpose(1, 0, 2)
        guess, output, record = np.indices(forms.shape).reshape(3, -1)
        places = (guess * outputs + output, record * outputs + output)
        shape = (self.guesses * outputs, self.problem.size * outputs)
        return scipy.sparse.csr_array((forms.ravel(), places), shape=shape)

    def moved(self, table: FloatArray, weights: FloatArray) -> Guesses:
        """The best guesses of `table` take the places of the least used ones, and their weights, so
        that sums stay 1."""
        columns = self.problem.prior[:, None] * table
        best, off = best_guesses(self.problem.domain, columns, self.at_rest)
        missing = np.flatnonzero(off * (1 + NEARER) < -self.forward(table).max(axis=0))
        if len(missing) == 0:
            return self
        coefficients = self.coefficients.copy()
        out = weights[:, missing].argmin(axis=0)
        coefficients[missing, out] = _costs(self.problem, best[missing])
        held = self.held.copy()
        held[missing, out] = best[missing]
        return replace(self, coefficients=coefficients, held=held)

    def terms(self, weights: FloatArray, price: float, limit: float, grows: float) -> list[Term]:
        shares, prior = on_simplex(weights), self.problem.prior
        return [Term(ERROR, prior, price, limit, grows, 0.0, self.held, shares)]


@dataclass(frozen=True)
class Losses(Guesses):
    """The loss under a problem's prior, in shares of `most`: one form for each output."""

    most: float = 1.0

    @classmethod
    def under(cls, problem: Problem, most: float) -> Losses:
        """In the form that a class of guesses has, without any to be found."""
        shares = (problem.weighted_loss / most).T[:, None].astype(np.float32)
        return cls(2.0, shares, problem, AT_REST, NO_GUESSES, most=most)

    def terms(self, weights: FloatArray, price: float, limit: float, grows: float) -> list[Term]:
        most = self.most
        return [Term(LOSS, self.problem.prior, price / most, limit * most, grows * most)]

    value = Forms.value
    moved = Forms.moved


def place_error(problem: Problem, table: FloatArray, at_rest: float = AT_REST) -> float:
    """How far off the best guess of the place is, wherever it lies."""
    columns = problem.prior[:, None] * table
    return float(best_guesses(problem.domain, columns, at_rest)[1].sum())


def _costs(problem: Problem, guesses: AnyArray) -> Float32Array:
    return (-problem.prior * guess_distances(problem.domain, guesses)).astype(np.float32)


Name = Literal["vulnerability", "located", "error"]
NAMES: tuple[Name, ...] = get_args(Name)


def check_name(name: Name, radius: float | None) -> None:
    """Refuse what is no objective, before anything is computed."""
    if name not in NAMES:
        raise MethodError(f"{name!r} is no objective; choose one of {', '.join(NAMES)}")
    if (name == "located") != (radius is not None):
        raise MethodError(
            "radius belongs to 'located', and 'located' needs one, in the domain's unit"
        )
    check_number(radius, "radius", "a finite distance >= 0", least=0.0)


def objective(
    problem: Problem, name: Name, radius: float | None = None, table: FloatArray | None = None
) -> Forms:
    """The objective of a name, with all its forms; of an error with all records as guesses, or
    those near the best ones of `table`.

    "vulnerability": how often the best guess of the record is right, sum_y max_x p_x z_xy.
    "located": how often the best guess lies within `radius` of the record.
    "error": the best guess's expected distance from the record, to be made large.
    """
    if name == "error":
        return Guesses.around(problem, table)
    # Where a record counts for many guesses their weights must move together.
    guesses = guess_sets(problem, radius)
    return Gain.within(radius, guesses, problem.prior, 2.0 if radius is None else 5.0)


def quantity(problem: Problem, name: Name, radius: float | None, table: FloatArray) -> float:
    """What the name says of one table, exactly."""
    if name == "error":
        return place_error(problem, table)
    return objective(problem, name, radius).value(table)


def guess_sets(problem: Problem, radius: float | None) -> tuple[scipy.sparse.csr_array, AnyArray]:
    """1 for the records that a guess at some place holds within a radius, wherever it lies
    (`space/guesses.py`); for guesses at records where nothing lies between them, or too much. For
    one record each where it is None. Beside them the guesses."""
    guesses = as_guesses(problem.domain, np.arange(problem.size))
    found = held_sets(problem.domain, radius or 0.0)
    if found is not None:
        largest = largest_sets(found[0])
        held, guesses = scipy.sparse.csr_array(found[0][largest]), found[1][largest]
    else:
        radius = radius or 0.0
        near = problem.domain.pairs_within(radius) if radius > 0 else ()
        ends = [np.stack(pairs[:2]) for pairs in near]
        own = np.tile(np.arange(problem.size), (2, 1))
        places = np.concatenate([own, *ends, *(pairs[::-1] for pairs in ends)], axis=1)
        shape = (problem.size, problem.size)
        held = scipy.sparse.csr_array((np.ones(places.shape[1]), tuple(places)), shape=shape)
    if held.nnz > LARGEST_GAIN:
        raise MethodError(
            f"guesses within {radius:g} hold {held.nnz:,} records in all; at most "
            f"{LARGEST_GAIN:,} are held"
        )
    return held, guesses
