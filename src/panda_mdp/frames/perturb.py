"""`perturb`: a frame in, the same kind of frame out, with reports instead of places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.packages import need
from panda_mdp.errors import BudgetError, InvalidInputError, SnapError
from panda_mdp.frames.drawing import HELD, OUTSIDE, Drawer, FrameSummary, Sampler, people_of
from panda_mdp.frames.key import DrawKey
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.space.snapping import snap_values
from panda_mdp.table.mechanism import Mechanism

Frame = TypeVar("Frame")
Uncovered = Literal["refuse", "drop", "null"]
"""What becomes of rows that are not covered."""
Period = Literal["hour", "day", "week", "month"]
STEPS = {"hour": "h", "day": "D", "week": "W", "month": "M"}
PREFIX = "reported"
DEGREES = 4326


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; `record` instead of `lat` and `lon` for records.

    >>> Columns(record="age", person="user").true
    ['age']
    """

    lat: str = "lat"
    lon: str = "lon"
    record: str | None = None
    person: str | None = None
    time: str | None = None
    period: str | None = None
    """hour, day, week or month (UTC) of `time`; without `time` a column that says the period."""
    keep: bool = False
    """Whether the true columns stay beside the reports."""

    @property
    def true(self) -> list[str]:
        """The columns that hold secrets."""
        return [self.lat, self.lon] if self.record is None else [self.record]

    @property
    def dropped(self) -> list[str]:
        """Those that do not stay."""
        return [] if self.keep else self.true

    @property
    def read(self) -> list[str]:
        """All columns that are looked at."""
        period = self.period if self.time is None else None
        named = (*self.true, self.person, self.time, period)
        return [name for name in named if name is not None]


@dataclass(frozen=True, eq=False)
class Reports:
    """What the outputs of a table are: places, labels, or indices into the domain."""

    index: IntArray
    lat: FloatArray | None = None
    lon: FloatArray | None = None
    names: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, mechanism: Mechanism | PandaTable) -> Reports:
        """The outputs of a mechanism; records are called as the domain calls them."""
        domain, outputs = mechanism.problem.domain, mechanism.problem.reports
        if outputs.records is None:
            return cls(outputs.codes, outputs.lat, outputs.lon, outputs.names)
        chosen = outputs.records
        names = None if domain.labels is None else tuple(domain.labels[k] for k in chosen.tolist())
        if not domain.geographic:
            return cls(chosen, names=names)
        return cls(chosen, domain.lat[chosen], domain.lon[chosen], names)

    def columns(self, drawn: IntArray) -> dict[str, Any]:
        """Columns of reports: coordinates, names or indices; NaN or None where there is none."""
        made: dict[str, Any] = {}
        if self.names is not None:
            made[PREFIX] = [self.names[k] if k >= 0 else None for k in drawn.tolist()]
        if self.lat is not None and self.lon is not None:
            parts = {f"{PREFIX}_lat": self.lat, f"{PREFIX}_lon": self.lon}
            made |= {k: np.where(drawn >= 0, v[drawn], np.nan) for k, v in parts.items()}
        if made:
            return made
        if (drawn >= 0).all():
            return {PREFIX: self.index[drawn]}
        return {PREFIX: np.where(drawn >= 0, self.index[drawn].astype(np.float64), np.nan)}


def perturb(
    frame: Frame,
    mechanism: Mechanism | PandaTable,
    columns: Columns | None = None,
    *,
    limit: float = 0.5,
    outside: Uncovered = "refuse",
    key: DrawKey | None = None,
    budget: float | None = None,
    summary: FrameSummary | None = None,
) -> Frame:
    """Draw a report for every row; the same kind of frame comes back.

    `frame` is a frame of pandas, GeoPandas, Polars (lazy too), PyArrow or DuckDB; `columns` says
    what its columns are. Places are the columns `lat` and `lon` in degrees (a GeoPandas frame's own
    points), snapped to the nearest record within `limit` km; or `record` names a column of indices
    into the domain, of labels where its records have labels, of numbers where the domain is
    `from_values`: those are snapped to the nearest value within `limit`, in the domain's unit.
    Columns `reported_lat` and `reported_lon`, and `reported` for labels or indices, take the place
    of the true ones, which are dropped unless `keep`; all others stay as they are. Rows beyond the
    limit or without a place are refused, dropped or null, as `outside` says; so are those that a
    budget holds back.

    Without `key` every row is an independent draw, and a person in n rows spends n epsilon. With a
    key and the column `person`, repeats of a record in a period are the same draw (docs/frames.md
    says what becomes of the guarantee). A period is an hour, day, week or month (UTC) of the column
    `time`, or what the column `period` says, or everything. `budget` is the most epsilon, per unit
    of distance, of a person in a period. `summary` collects what happened.

    A `PandaTable` runs Phase I first: for every row, or with `person` once for each person, period
    and place, whose rows share the selection. It is not released; (epsilon, delta) holds for each
    row, and n rows cost at most n times both.
    """
    perturber = Perturber(
        mechanism, columns or Columns(), limit=limit, outside=outside, key=key, budget=budget
    )
    return perturber.frame(frame, summary)


class Perturber:
    """The options of `perturb` bound to a mechanism: a picklable function of frames or batches."""

    def __init__(
        self,
        mechanism: Mechanism | PandaTable,
        columns: Columns,
        *,
        limit: float = 0.5,
        outside: Uncovered = "refuse",
        key: DrawKey | None = None,
        budget: float | None = None,
    ) -> None:
        if outside not in (choices := get_args(Uncovered)):
            raise InvalidInputError(f"outside is {outside!r}; choose one of {', '.join(choices)}")
        if columns.time is not None and columns.period not in STEPS:
            raise InvalidInputError(
                f"period is {columns.period!r}; with time=... it is one of {', '.join(STEPS)}"
            )
        if (columns.time or columns.period or key or budget) and columns.person is None:
            raise InvalidInputError(
                "periods, keys and budgets are per person; name the person's column: person=..."
            )
        self.sampler = Sampler.of(mechanism)
        if key is not None and self.sampler.mesh is not None and columns.record is None:
            raise InvalidInputError(
                "a key repeats draws of a record, and this table draws at the point, at another "
                "vertex each time; draw without key=..., or use a table that snaps"
            )
        self.reports = Reports.of(mechanism)
        self.labels = mechanism.problem.domain.labels
        self.values = mechanism.problem.domain.values
        self.columns = columns
        self.limit, self.outside = limit, outside
        self.key, self.budget = key, budget
        # Refuses a budget or a limit that cannot be, before any row is read.
        self.drawer()

    def __repr__(self) -> str:
        return f"Perturber({self.sampler!r})"

    def drawer(self, summary: FrameSummary | None = None) -> Drawer:
        """What draws for one pass over the rows."""
        return Drawer(
            self.sampler, limit=self.limit, key=self.key, budget=self.budget, summary=summary
        )

    def frame(self, frame: Frame, summary: FrameSummary | None = None) -> Frame:
        """Perturb a frame of any known kind."""
        result: Frame = perturb_frame(self, frame, summary)
        return result

    def batches(self, batches: Any, summary: FrameSummary | None = None) -> Iterator[Any]:
        """Perturb Arrow batches one after the other, in the memory of one."""
        import pyarrow

        drawer = self.drawer(summary)
        for batch in batches:
            table = pyarrow.Table.from_batches([batch])
            yield from self.eager(table, drawer).combine_chunks().to_batches()

    def eager(self, frame: Any, drawer: Drawer) -> Any:
        """Perturb a frame that is in memory, by narwhals."""
        narwhals = narwhals_of()
        wrapped = narwhals.from_native(frame, eager_only=True)
        drawn = self.refused(self._draw(wrapped, drawer))
        backend = narwhals.get_native_namespace(wrapped)
        fresh = []
        for name, values in self.reports.columns(drawn).items():
            kind = self._kind(values)
            series = narwhals.new_series(name, values, kind, backend=backend)
            plain = isinstance(values, list) or np.issubdtype(values.dtype, np.integer)
            fresh.append(series if plain else _null(series))
        result = wrapped.drop(self.columns.dropped).with_columns(*fresh)
        if self.outside == "drop" and (drawn < 0).any():
            result = result.filter((drawn >= 0).tolist())
        return result.to_native()

    def _kind(self, values: Any) -> Any:
        """The type of a column of labels, which an empty one does not tell; None leaves it open."""
        if not isinstance(values, list) or self.reports.names is None or None in values:
            return None
        narwhals = narwhals_of()
        kinds = {str: narwhals.String, int: narwhals.Int64, float: narwhals.Float64}
        different = {type(name) for name in self.reports.names}
        return kinds.get(different.pop()) if len(different) == 1 else None

    def refused(self, drawn: IntArray) -> IntArray:
        """The draws, or an error where some rows have none and that is to be refused."""
        if self.outside == "refuse" and (drawn == HELD).any():
            raise BudgetError(
                "some rows are beyond their person's budget; raise it, or leave them out: "
                "outside='drop' or 'null' (--outside)"
            )
        if self.outside == "refuse" and (drawn == OUTSIDE).any():
            raise SnapError(
                "some rows have no place or lie beyond the snap limit from every record; leave "
                "them out: outside='drop' or 'null' (--outside), or raise limit (--snap-limit)"
            )
        return drawn

    def _draw(self, frame: Any, drawer: Drawer) -> IntArray:
        columns = self.columns
        for name in columns.read:
            if name not in frame.columns:
                raise InvalidInputError(
                    f"there is no column {name!r}; it has {', '.join(map(str, frame.columns))}"
                )
        for name in self.reports.columns(np.empty(0, dtype=np.int64)):
            if name in frame.columns:
                raise InvalidInputError(f"there is a column {name!r} already; rename it")
        people = None
        if columns.person is not None:
            step = "" if columns.time is None else f"{columns.period} "
            people = people_of(frame[columns.person].to_arrow(), self._period(frame), step)
        if columns.record is not None:
            records = self._records(frame[columns.record])
            return drawer.draw(records, people, snapped=self.values is not None)
        lat, lon = (numbers(frame[name], name) for name in columns.true)
        records = self.sampler.snapped(lat, lon, self.limit)
        return drawer.draw(records, people, snapped=self.sampler.mesh is None)

    def _records(self, series: Any) -> IntArray:
        """Records of a column: nearest to its numbers, by their labels, or their indices."""
        if self.values is not None:
            given = numbers(series, series.name)
            return snap_values(self.values, given, self.limit).record
        if self.labels is None:
            return whole_numbers(series)
        known = {label: k for k, label in enumerate(self.labels)}
        return np.array([known.get(value, OUTSIDE) for value in series.to_list()], dtype=np.int64)

    def _period(self, frame: Any) -> Any:
        columns = self.columns
        if columns.time is not None:
            return periods(frame[columns.time], columns.time, str(columns.period))
        return None if columns.period is None else frame[columns.period].to_arrow()


def narwhals_of() -> Any:
    """The package narwhals, or an error that says how to get it."""
    return need("narwhals", "perturbing frames", "frames")


def _null(series: Any) -> Any:
    """NaN stands for a missing report; frames that know nulls get those."""
    kind = str(series.implementation)
    return series if "PANDAS" in kind.upper() else series.fill_nan(None)


def numbers(series: Any, name: str) -> FloatArray:
    """A column of numbers; missing ones as NaN. The error names no value."""
    try:
        return np.ascontiguousarray(series.cast(narwhals_of().Float64).to_numpy(), np.float64)
    except Exception:  # noqa: S110 -- each engine has errors of its own, which show the value
        pass
    raise InvalidInputError(f"the column {name!r} is not of numbers")


def whole_numbers(series: Any) -> IntArray:
    """A column of indices; -1 where there is none."""
    values = numbers(series, series.name)
    whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)
    return np.where(whole, np.where(whole, values, 0).astype(np.int64), -1)


def _moments(values: Any) -> Any:
    """UTC times of timestamps, dates, or texts: ISO with or without a zone, or seconds."""
    import pyarrow

    for kind in (pyarrow.timestamp("us"), pyarrow.timestamp("us", "UTC")):
        try:
            return np.asarray(values.cast(kind), dtype="datetime64[us]")
        except pyarrow.ArrowInvalid:
            continue
    return (np.asarray(values.cast(pyarrow.float64())) * 1e6).astype("datetime64[us]")


def periods(series: Any, name: str, step: str) -> Any:
    """The number of the hour, day, week or month (UTC) of each time; weeks begin on Mondays."""
    values = series.to_numpy()
    try:
        if np.issubdtype(values.dtype, np.number):
            moments = (values * 1e6).astype("datetime64[us]")
        else:
            moments = _moments(series.to_arrow())
    except Exception:
        moments = np.array(["NaT"], dtype="datetime64[us]")
    if np.isnat(moments).any():
        raise InvalidInputError(
            f"the column {name!r} has rows without a time (seconds, timestamps or ISO text)"
        )
    if step == "week":
        # 1970 began on a Thursday.
        return (moments.astype("datetime64[D]").astype(np.int64) + 3) // 7
    return moments.astype(f"datetime64[{STEPS[step]}]").astype(np.int64)


def perturb_frame(perturber: Perturber, frame: Any, summary: FrameSummary | None) -> Any:
    """Perturb a frame by what it is."""
    kind = f"{type(frame).__module__}.{type(frame).__name__}"
    for package, name, perturb_kind in KINDS:
        if package in kind and kind.endswith(name):
            return perturb_kind(perturber, frame, summary)
    try:
        return perturber.eager(frame, perturber.drawer(summary))
    except TypeError as error:
        raise InvalidInputError(
            f"{kind} is no frame that is known; give one of pandas, GeoPandas, Polars, PyArrow or "
            "DuckDB, or columns by mechanism.sample(records)"
        ) from error


def _points(perturber: Perturber, frame: Any, summary: FrameSummary | None) -> Any:
    """A GeoDataFrame's points become reported points, in its own reference system."""
    import geopandas

    if set(perturber.columns.true) <= set(frame.columns):
        return perturber.eager(frame, perturber.drawer(summary))
    if frame.crs is None:
        raise InvalidInputError(
            "the frame names no reference system; frame.set_crs('EPSG:4326') says degrees"
        )
    if not (frame.geom_type.dropna() == "Point").all():
        raise InvalidInputError(
            "some rows are no points; frame.representative_point() makes points of areas"
        )
    degrees = frame.geometry.to_crs(DEGREES)
    rest = frame.drop(columns=frame.geometry.name)
    lat, lon = perturber.columns.true
    placed = rest.assign(**{lat: degrees.y.to_numpy(), lon: degrees.x.to_numpy()})
    result = perturber.eager(placed, perturber.drawer(summary))
    points = geopandas.points_from_xy(result["reported_lon"], result["reported_lat"], crs=DEGREES)
    points = np.where(result["reported_lat"].isna(), None, points)
    reported = geopandas.GeoSeries(points, index=result.index, crs=DEGREES).to_crs(frame.crs)
    dropped = ["reported_lat", "reported_lon", *([lat, lon] if perturber.columns.keep else [])]
    result = result.drop(columns=dropped)
    if perturber.columns.keep:
        result = result.assign(true_geometry=frame.geometry.loc[result.index])
    return geopandas.GeoDataFrame(
        result.assign(**{frame.geometry.name: reported}), geometry=frame.geometry.name
    )


def _lazy(perturber: Perturber, frame: Any, summary: FrameSummary | None) -> Any:
    """Drawn when the lazy frame is collected, anew each time unless there is a key."""
    schema = perturber.eager(frame.limit(0).collect(), perturber.drawer()).schema

    def draw(batch: Any) -> Any:
        return perturber.eager(batch, perturber.drawer(summary)).cast(schema)

    return frame.map_batches(
        draw,
        schema=schema,
        # A filter or a limit that is moved below the draws would see, or change, true columns.
        predicate_pushdown=False,
        projection_pushdown=False,
        slice_pushdown=False,
    )


def _relation(perturber: Perturber, relation: Any, summary: FrameSummary | None) -> Any:
    """A relation of the same connection, over a table in memory."""
    rows = getattr(relation, "to_arrow_table", relation.arrow)()
    # DuckDB finds the table by the name of the variable.
    perturbed = perturber.eager(rows, perturber.drawer(summary))  # noqa: F841
    return relation.query("source", "SELECT * FROM perturbed")


KINDS = (
    ("geopandas", "GeoDataFrame", _points),
    ("polars", "LazyFrame", _lazy),
    ("duckdb", "DuckDBPyRelation", _relation),
)
"""Frames that are not simply in memory, by package and type."""
