"""`estimate`: what frames and files of reports tell about where people are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.text import Facts
from panda_mdp.errors import InvalidInputError
from panda_mdp.frames.columns import Treatment, narwhals_of, need_columns, numbers
from panda_mdp.frames.drawing import reported_columns
from panda_mdp.frames.files import read_columns
from panda_mdp.frames.perturb import Perturber
from panda_mdp.meaning.attack import columns_of
from panda_mdp.meaning.estimate import (
    Estimate,
    Flows,
    Trips,
    Zones,
    estimate_counts,
    estimate_pairs,
    zone_matrix,
)
from panda_mdp.methods.closed_forms import tight_constraints
from panda_mdp.problem import Problem, check_epsilon, check_number
from panda_mdp.space.domain import Domain, Label
from panda_mdp.table.mechanism import Mechanism, Release

PLACE = ("reported_lat", "reported_lon")
SAME_KM = 2e-4
"""How far a reported place may be from an output's: of text and rounding."""
MOST_WINDOWS = 2000
TOP = 10
STEPS = 400
"""Of a measure that is released."""
Columns = str | tuple[str, str]
"""A column of labels or indices, or two of degrees."""
ROWS = "\0rows"
"""The column of how many rows a row stands for, where somebody else has counted."""


class Batch(NamedTuple):
    """Rows that have all their outputs, or records."""

    drawn: list[IntArray]
    window: IntArray
    names: list[Label]
    """Of the windows."""
    rows: FloatArray
    """How many each stands for."""
    given: float
    """All rows, those without an output included."""


def estimate(
    reports: Any,
    release: Release,
    zones: Zones | None = None,
    *,
    columns: Columns | None = None,
    by: str | None = None,
    end: Columns | None = None,
) -> Estimate | Trips:
    """Shares of people per zone from reports that were drawn from a release, with 95 % limits: an
    `Estimate`. With `end`, the reports of where a trip that starts at `columns` ends, shares of
    trips from zone to zone: `Trips`; both are independent draws from the same release.

    `reports` is a frame (pandas, Polars, PyArrow; of Spark, which counts), a file that `perturb`
    writes, which is read batch by batch, or outputs as `release.sample` gives them. `columns` names
    the reports: latitude and longitude, or a column of labels or indices; by default those that
    `perturb` makes. `zones` says which records lie in which zone: a mapping of names to records,
    the zone of each record, or `load_places` of outlines; without it, single records, or cells of
    near ones. `by` is a column whose values are estimated each for itself; "time=hour" takes the
    hours of its times (day, week, month). Rows without a report are left out.

    The limits hold whatever the truth is, as long as reports are independent draws: a person's rows
    that repeat a draw (a key) tell nothing new, so leave repeats out first.
    """
    size = release.problem.outputs_count
    if end is not None:
        if by is not None:
            raise InvalidInputError("flows have no windows; leave out by=...")
        pairs = _pairs(_batches(reports, release, [columns, end], None), size)
        return estimate_pairs(pairs, release, zones)
    tally = _tally(_batches(reports, release, [columns], by), size)
    return estimate_counts(list(tally.values()), release, zones, windows=list(tally))


def _tally(batches: Iterator[Batch], size: int) -> dict[Label, FloatArray]:
    """Counts of outputs, or of records, in each window."""
    tally: dict[Label, FloatArray] = {}
    for drawn, window, names, rows, _ in batches:
        if len(names) + len(tally) > MOST_WINDOWS:
            raise InvalidInputError(
                f"by= names a column of over {MOST_WINDOWS // 2:,} values; it is for hours or days"
            )
        flat = np.bincount(window * size + drawn[0], rows, len(names) * size)
        for name, seen in zip(names, flat.reshape(-1, size), strict=True):
            if seen.any():
                tally[name] = tally.get(name, np.zeros(size)) + seen
    return {name: tally[name] for name in sorted(tally, key=str)} or {"all": np.zeros(size)}


def _pairs(batches: Iterator[Batch], size: int) -> Any:
    counts = scipy.sparse.csr_array((size, size))
    for batch in batches:
        start, end = batch.drawn
        counts = counts + scipy.sparse.coo_array((batch.rows, (start, end)), (size, size)).tocsr()
    return counts


@dataclass(frozen=True, eq=False)
class Quality:
    """What data is still good for: shares before, as reported, and as estimated from reports."""

    found: Flows
    before: FloatArray
    """The true shares, of the shape of `found.share`; they are people's own."""
    counted: float
    """Rows that the true shares are made of."""
    given: float
    """All rows of the data, near a record or not: as many whatever a row says."""

    def rows(self) -> Iterator[Facts]:
        """Those of the estimate, with the true share first."""
        for row, before in zip(self.found.rows(), self.before.reshape(-1).tolist(), strict=True):
            yield {**{n: row.pop(n) for n in list(row)[:2]}, "before": before, **row}

    def measures(self) -> dict[str, float]:
        """How far reports and estimates are from the truth; windows count by their trips or people.

        Total variation is the part of the people that are put into a wrong zone.
        """
        found = self.found
        whole = max(float(self.before.sum()), 1e-300)
        told: dict[str, float] = {}
        for name, part in (("reported", found.raw), ("estimated", found.share)):
            apart = float(np.abs(part - self.before).sum() / (2 * whole))
            most, other = (
                np.argsort(-p, axis=None, kind="stable")[:TOP] for p in (part, self.before)
            )
            told[f"total variation, {name}"] = min(apart, 1.0)
            told[f"of the {len(most)} largest, {name}"] = len(np.intersect1d(most, other))
        held = (found.low - 1e-9 <= self.before) & (self.before <= found.high + 1e-9)
        return told | {"limits that hold": float(held.mean())}

    def apart(self) -> dict[str, float]:
        """Both total variations over all rows: those near no record are in no zone, and so wrong.

        Given the reports, one that is another moves them by 1 / `given` at most.
        """
        if len(self.found.first) > 1 and self.found.heads[0] == "window":
            raise InvalidInputError("windows have measures of their own; leave out by=...")
        covered = self.counted / max(self.given, 1)
        found = self.found
        true = covered * self.before
        return {
            f"total variation, {name}": min(float(np.abs(part - true).sum() + 1 - covered) / 2, 1.0)
            for name, part in (("reported", found.raw), ("estimated", found.share))
        }

    def drawing(self, epsilon: float, rows: int = 1) -> Mechanism:
        """The audited table that both total variations are drawn from, each once, as numbers of
        1 / `STEPS`; it follows from how many rows there are, and nothing else of the data."""
        check_number(rows, "rows", "a whole number from 1: a person's rows", least=1, whole=True)
        # A number is rounded to one of the table's, whose step is added.
        moved = min(rows / max(self.given, 1), 1.0) + 1 / STEPS
        numbers = Domain.from_values(np.linspace(0, 1, STEPS + 1), unit="share")
        of_numbers = np.arange(STEPS + 1)
        return tight_constraints(
            Problem(numbers, of_numbers, numbers.distances(), check_epsilon(epsilon) / 2 / moved)
        )

    def private(self, epsilon: float, rows: int = 1) -> dict[str, float]:
        """`apart` to be handed on, drawn from `drawing`: both numbers together are
        epsilon-differentially private for a person of up to so many `rows` (trips) of the data,
        whoever knows the reports. What is hidden is what these rows say, not how many there are:
        neighbours have equally many."""
        table = self.drawing(epsilon, rows)
        return {
            name: table.sample(round(value * STEPS)) / STEPS for name, value in self.apart().items()
        }


def quality(
    before: Any,
    after: Any,
    release: Release,
    zones: Zones | None = None,
    *,
    true: Sequence[Columns] = (("lat", "lon"),),
    reported: Sequence[Columns | None] = (None,),
    by: str | None = None,
    limit: float = 0.5,
) -> Quality:
    """Compare the data that was perturbed with its reports, by zone (and window) or zone to zone.

    `true` names the columns of one place of `before`, or of both ends of a trip, and `reported`
    those of `after`; places are snapped within `limit`, as `perturb` does.
    """
    domain = release.problem.domain
    if len(true) != len(reported) or not 1 <= len(true) <= 2 or (by and len(true) == 2):
        raise InvalidInputError(
            f"{len(true)} true and {len(reported)} reported places; name one of both, or two of "
            "both without windows"
        )
    given = 0.0

    def counted() -> Iterator[Batch]:
        nonlocal given
        for batch in _batches(before, release, list(true), by, limit):
            given += batch.given
            yield batch

    batches = counted()
    _, matrix = zone_matrix(zones, domain)
    if len(true) == 2:
        start, end = (columns or "reported" for columns in reported)
        found = estimate(after, release, zones, columns=start, end=end)
        pairs = _pairs(batches, domain.size)
        within = matrix.T @ (pairs @ matrix) / max(pairs.sum(), 1)
        return Quality(found, within, pairs.sum(), given)
    shares: Any = estimate(after, release, zones, columns=reported[0], by=by)
    tally = _tally(batches, domain.size)
    if by and not tally.keys() & {*shares.windows}:
        raise InvalidInputError(
            f"no value of {by!r} is in both the data and its reports; where times were coarsened, "
            "name the step: by='time=hour' (--by time=hour)"
        )
    counts = np.stack([tally.get(name, np.zeros(domain.size)) for name in shares.windows])
    within = counts @ matrix / np.maximum(counts.sum(axis=1), 1)[:, None]
    return Quality(shares, within, counts.sum(), given)


def _batches(
    reports: Any,
    release: Release,
    columns: Sequence[Columns | None],
    by: str | None,
    limit: float | None = None,
) -> Iterator[Batch]:
    """Outputs of the rows that have all of them, each row's window among some, and how many rows
    there are, those without included.

    With a `limit` the columns are of true places, and their records are given instead.
    """
    narwhals = narwhals_of()
    if isinstance(reports, list | tuple | np.ndarray):
        every = _columns_of(release, np.asarray(reports))
        drawn = every[every >= 0]
        yield Batch([drawn], np.zeros_like(drawn), ["all"], np.ones(len(drawn)), len(every))
        return
    window, _, step = (by or "").partition("=")
    named = [*(name for pair in columns for name in _names(pair)), *([window] if window else [])]
    coarse = Treatment({window: step} if step else {})
    frames = iter([reports])
    if isinstance(reports, str | os.PathLike):
        frames = read_columns(Path(reports), named)
    elif type(reports).__module__.startswith("pyspark"):
        told = [name for name in (*PLACE, "reported") if name in reports.columns]
        frames = iter([_counted(reports, [*named, *(told if None in columns else [])])])
    for native in frames:
        try:
            frame = narwhals.from_native(native, eager_only=True)
        except TypeError as error:
            raise InvalidInputError(
                f"{type(native).__name__} is no frame of pandas, Polars, PyArrow or Spark; collect "
                "it first, or count outputs yourself: meaning.estimate.estimate_counts"
            ) from error
        frame = coarse.apply(frame)
        need_columns(frame, named)
        if limit is None:
            found = [_outputs(frame, release, pair) for pair in columns]
        else:
            source: Any = release
            perturber = Perturber(source, limit=limit)
            found = [perturber.records(frame, _names(pair)) for pair in columns]
            found = [np.where(part < release.problem.domain.size, part, -1) for part in found]
        kept = np.logical_and.reduce([part >= 0 for part in found])
        given = frame[window].to_list() if window else ["all"] * len(kept)
        names = sorted(set(given), key=str)
        place = {name: k for k, name in enumerate(names)}
        of_row = np.array([place[value] for value in given], dtype=np.int64)[kept]
        rows = frame[ROWS].to_numpy() if ROWS in frame.columns else np.ones(len(kept))
        yield Batch([part[kept] for part in found], of_row, names, rows[kept], float(rows.sum()))


def _counted(frame: Any, names: list[str]) -> Any:
    """How often a Spark frame has each combination of some columns: Spark counts, and what comes
    back is as long as there are combinations."""
    import pyarrow

    need_columns(frame, names)
    columns = list(dict.fromkeys(names))
    counted = frame.groupBy(*columns).count().collect()
    return pyarrow.table(
        {name: [row[k] for row in counted] for k, name in enumerate([*columns, ROWS])}
    )


def _names(columns: Columns | None) -> tuple[str, ...]:
    if columns is None:
        return ()
    return (columns,) if isinstance(columns, str) else columns


def _outputs(frame: Any, release: Release, columns: Columns | None) -> IntArray:
    """The output of every row, -1 where there is none; what no output is, is refused."""
    told = reported_columns(release.problem.domain, release.problem.reports)
    if columns is None:
        columns = PLACE if set(PLACE) <= set(frame.columns) else "reported"
        need_columns(frame, _names(columns))
    if isinstance(columns, str):
        series = frame[columns]
        names = told.get("reported", ())
        if any(isinstance(name, str) for name in names):
            return _columns_of(release, np.array(series.to_list(), dtype=object))
        return _columns_of(release, numbers(series, columns))
    if not set(PLACE) <= set(told):
        raise InvalidInputError("this table reports no places; name the column of its reports")
    lat, lon = (numbers(frame[name], name) for name in columns)
    present = np.isfinite(lat) & np.isfinite(lon)
    drawn = Domain.from_points(*(told[name] for name in PLACE)).snap(lat, lon, SAME_KM).record
    if far := int((present & (drawn < 0)).sum()):
        raise InvalidInputError(
            f"{far:,} of {present.sum():,} rows are at places that this "
            "table does not report; are they reports, and of this table?"
        )
    return drawn


def _columns_of(release: Release, reported: npt.NDArray[Any]) -> IntArray:
    """Columns of outputs that are given as `sample` reports them, or by the records' labels."""
    outputs = release.problem.reports
    known = reported_columns(release.problem.domain, outputs).get("reported", outputs.codes)
    told = (
        np.isfinite(reported)
        if reported.dtype.kind in "iuf"
        # Neither missing nor NaN nor empty.
        else np.array([v is not None and v == v and v != "" for v in reported], bool)  # noqa: PLR0124
    )
    drawn = np.full(len(reported), -1, dtype=np.int64)
    drawn[told] = columns_of(np.asarray(known, dtype=object).tolist(), reported[told])
    return drawn
