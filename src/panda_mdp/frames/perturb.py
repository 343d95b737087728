"""`perturb`: a frame in, the same kind of frame out, with reports instead of places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import BudgetError, InvalidInputError, SnapError
from panda_mdp.frames.columns import (
    TIMES,
    Treatment,
    beginnings,
    classify,
    narwhals_of,
    need_columns,
    numbers,
)
from panda_mdp.frames.drawing import HELD, OUTSIDE, Drawer, FrameSummary, Sampler, people_of
from panda_mdp.frames.key import DrawKey
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.space.snapping import check_limit
from panda_mdp.table.mechanism import Mechanism

Frame = TypeVar("Frame")
Uncovered = Literal["refuse", "drop", "null"]
"""What becomes of rows that are not covered."""
Period = Literal["hour", "day", "week", "month"]
DEGREES = 4326
ROUNDING = 1e-9


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
    places: tuple[tuple[str, str], ...] = ()
    """Several pairs of latitude and longitude, instead of `lat` and `lon`: the ends of trips."""
    crs: str | None = None
    """Reference system of a frame of points that names none."""

    @property
    def true(self) -> list[str]:
        """The columns that hold secrets."""
        if self.places:
            return [name for pair in self.places for name in pair]
        return [self.lat, self.lon] if self.record is None else [self.record]

    @property
    def drawn(self) -> list[tuple[str, ...]]:
        """The columns of each report of a row."""
        return list(self.places) if self.places else [tuple(self.true)]

    def reported(self, index: int, name: str) -> str:
        """What a column of the report of a place is called: after the place's where there are
        several."""
        part = {"reported_lat": 0, "reported_lon": 1}.get(name)
        if not self.places:
            return name
        return f"reported_{index + 1}" if part is None else f"reported_{self.places[index][part]}"

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


def perturb(
    frame: Frame,
    mechanism: Mechanism | PandaTable,
    columns: Columns = Columns(),
    *,
    limit: float = 0.5,
    outside: Uncovered = "refuse",
    key: DrawKey | None = None,
    budget: float | None = None,
    summary: FrameSummary | None = None,
) -> Frame:
    """Draw a report for every row; the same kind of frame comes back.

    `frame` is a frame of pandas, GeoPandas, Polars (lazy too), PyArrow, DuckDB or Spark; `columns`
    says what its columns are. Places are the columns `lat` and `lon` in degrees (a GeoPandas
    frame's own points), snapped to the nearest record within `limit` km; or `record` names a column
    of indices into the domain, of labels where its records have labels, of numbers where the domain
    is `from_values`: those are snapped to the nearest value within `limit`, in the domain's unit.
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
    return Perturber(mechanism, columns, limit, outside, key, budget).frame(frame, summary)


@dataclass(eq=False, repr=False)
class Perturber:
    """The options of `perturb` bound to a mechanism: a picklable function of frames or batches."""

    mechanism: InitVar[Mechanism | PandaTable]
    columns: Columns = Columns()
    limit: float = 0.5
    outside: Uncovered = "refuse"
    key: DrawKey | None = None
    budget: float | None = None
    treatment: Treatment | None = None
    """What becomes of the other columns; where None they stay, and the summary names some."""
    sampler: Sampler = field(init=False)

    def __post_init__(self, mechanism: Mechanism | PandaTable) -> None:
        columns = self.columns
        outside = self.outside
        period = self.columns.period
        if outside not in (choices := get_args(Uncovered)):
            raise InvalidInputError(f"outside is {outside!r}; choose one of {', '.join(choices)}")
        if columns.time is not None and period not in TIMES:
            raise InvalidInputError(
                f"period is {period!r}; with time=... it is one of {', '.join(TIMES)}"
            )
        if columns.places and columns.record is not None:
            raise InvalidInputError("places=... and record=... exclude each other")
        if len(set(columns.true)) < len(columns.true):
            raise InvalidInputError(
                f"places are in {', '.join(columns.true)}; each has two columns of its own"
            )
        if (columns.time or period or self.key or self.budget) and columns.person is None:
            raise InvalidInputError(
                "periods, keys and budgets are per person; name the person's column: person=..."
            )
        check_limit(self.limit)
        self.sampler = Sampler.of(mechanism)
        each = self.sampler.guarantee
        if self.budget is not None and not self.budget >= each.epsilon * (1 - ROUNDING):
            raise BudgetError(
                f"the budget of {self.budget!r} is less than one report costs "
                f"({each.epsilon:g} per {each.unit}); allow at least that"
            )
        if self.key is not None and self.sampler.mesh is not None and columns.record is None:
            raise InvalidInputError(
                "a key repeats draws of a record, and this table draws at the point, at another "
                "vertex each time; draw without key=..., or use a table that snaps"
            )

    def __repr__(self) -> str:
        return f"Perturber({self.sampler!r})"

    def drawer(self, summary: FrameSummary | None = None) -> Drawer:
        """What draws for one pass over the rows."""
        summary = FrameSummary() if summary is None else summary
        summary.places = len(self.columns.drawn)
        places = self.columns.record is None and self.sampler.mesh is None
        if places or (self.columns.record is not None and self.sampler.domain.values is not None):
            summary.limit = self.limit
        epsilon = self.sampler.guarantee.epsilon
        most = None if self.budget is None else int(self.budget / epsilon * (1 + ROUNDING))
        return Drawer(self.sampler, self.key, most, summary)

    @property
    def numeric(self) -> list[str]:
        """The columns that are read as numbers."""
        labelled = self.columns.record is not None and self.sampler.domain.labels is not None
        treated = [] if self.treatment is None else self.treatment.rounded
        return [*([] if labelled else self.columns.true), *treated]

    def frame(self, frame: Frame, summary: FrameSummary | None = None) -> Frame:
        """Perturb a frame of any known kind, by what it is."""
        narwhals = narwhals_of()
        kind = f"{type(frame).__module__}.{type(frame).__name__}"
        result: Any
        if kind.startswith("pyspark"):
            result = _spark(self, frame)
            return result
        drawer = self.drawer(summary)
        try:
            if kind.startswith("geopandas"):
                result = _points(self, frame, drawer)
            elif isinstance(whole := narwhals.from_native(frame), narwhals.LazyFrame):
                # Drawn here and once: what is computed at each look would be drawn at each look.
                perturbed = self.eager(whole.collect().to_native(), drawer)
                if kind.startswith("polars"):
                    result = perturbed.lazy()
                else:
                    # Of the same connection: DuckDB finds the table by the name of the variable.
                    result = whole.to_native().query("source", "SELECT * FROM perturbed")
            else:
                result = self.eager(frame, drawer)
        except TypeError as error:
            raise InvalidInputError(
                f"{kind} is no frame that is known; give one of pandas, GeoPandas, Polars, "
                "PyArrow, DuckDB or Spark, or columns by mechanism.sample(records)"
            ) from error
        drawer.summary.refuse_none()
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
        need_columns(wrapped, self.columns.read)
        places = self.columns.drawn
        if self.treatment is not None:
            self.treatment.check(wrapped, places)
        else:
            drawer.summary.beside = classify(wrapped, places)
        ends = self._draw(wrapped, drawer)
        drawn = np.min(ends, axis=0)
        drawer.summary.complete += int((drawn >= 0).sum())
        if self.outside == "refuse" and (drawn == HELD).any():
            raise BudgetError(
                "some rows are beyond their person's budget; raise it, or leave them out: "
                "outside='drop' or 'null' (--outside)"
            )
        if self.outside == "refuse" and (drawn == OUTSIDE).any():
            drawer.summary.refuse_none()
            raise SnapError(
                "some rows have no place or lie beyond the snap limit from every record; leave "
                "them out: outside='drop' or 'null' (--outside), or raise limit (--snap-limit)"
            )
        backend = narwhals.get_native_namespace(wrapped)
        kinds = {str: narwhals.String, int: narwhals.Int64, float: narwhals.Float64}
        fresh = []
        told = (
            (self.columns.reported(index, name), name, values)
            for index, end in enumerate(ends)
            for name, values in self.sampler.reports(end).items()
        )
        for column, name, values in told:
            # The type of labels, which an empty column does not tell; open where some are missing.
            types = {type(value) for value in self.sampler.reported[name]}
            kind = kinds.get(types.pop()) if len(types) == 1 else None
            kind = None if kind is None or None in values else kind
            series = narwhals.new_series(column, values, kind, backend=backend)
            # NaN stands for a missing report; frames that know nulls get those.
            if series.dtype.is_float() and not wrapped.implementation.is_pandas():
                series = series.fill_nan(None)
            fresh.append(series)
        result = wrapped.drop(self.columns.dropped).with_columns(*fresh)
        if self.outside == "drop" and (drawn < 0).any():
            result = result.filter((drawn >= 0).tolist())
        return (result if self.treatment is None else self.treatment.apply(result)).to_native()

    def _draw(self, frame: Any, drawer: Drawer) -> list[IntArray]:
        """An output's column for every row, of each place that a row has."""
        columns = self.columns
        for index in range(len(columns.drawn)):
            for name in self.sampler.reported:
                if (column := columns.reported(index, name)) in frame.columns:
                    raise InvalidInputError(f"there is a column {column!r} already; rename it")
        people = None
        if columns.person is not None:
            step = ""
            period = None
            if columns.time is not None:
                step = f"{columns.period} "
                begun = beginnings(frame[columns.time], str(columns.period))
                if begun is None or np.isnat(begun).any():
                    raise InvalidInputError(
                        f"the column {columns.time!r} has rows without a time (seconds, "
                        "timestamps or ISO text)"
                    )
                period = begun.astype(np.int64)
            elif columns.period is not None:
                period = frame[columns.period].to_arrow()
            people = people_of(frame[columns.person].to_arrow(), period, step)
        drawn = []
        for names in columns.drawn:
            records = self.records(frame, names)
            if len(names) == 2 and len(records) and (records == OUTSIDE).all():
                exchanged = self.records(frame, names[::-1])
                drawer.summary.swapped += int((exchanged != OUTSIDE).sum())
            drawn.append(drawer.draw(records, people))
        return drawn

    def records(self, frame: Any, names: Sequence[str]) -> IntArray:
        """The record of every row's place, negative where none is covered; nothing is drawn.

        Of two columns of degrees; or of one: nearest to its numbers, by its labels, or its indices.
        """
        if len(names) == 2:
            lat, lon = (numbers(frame[name], name) for name in names)
            return self.sampler.snapped(lat, lon, self.limit)
        domain = self.sampler.domain
        series = frame[names[0]]
        if domain.values is not None:
            return domain.nearest(numbers(series, series.name), self.limit).record
        if domain.labels is not None:
            place = {label: k for k, label in enumerate(domain.labels)}
            return np.array([place.get(value, OUTSIDE) for value in series.to_list()], np.int64)
        values = numbers(series, series.name)
        whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)
        return np.where(whole, values, OUTSIDE).astype(np.int64)


def _points(perturber: Perturber, frame: Any, drawer: Drawer) -> Any:
    """A GeoDataFrame's points become reported points, in its own reference system."""
    import geopandas

    if set(perturber.columns.true) <= set(frame.columns):
        return perturber.eager(frame, drawer)
    from panda_mdp.city.layers import system_of

    system = system_of(frame, perturber.columns.crs, "the frame")
    frame = frame.set_crs(system, allow_override=True)
    if not (frame.geom_type.dropna() == "Point").all():
        raise InvalidInputError(
            "some rows are no points; frame.representative_point() makes points of areas"
        )
    degrees = frame.geometry.to_crs(DEGREES)
    if perturber.columns.places:
        raise InvalidInputError("a frame of points has one place a row; name columns of degrees")
    lat, lon = perturber.columns.true
    placed = frame.drop(columns=frame.geometry.name).assign(
        **{lat: degrees.y.to_numpy(), lon: degrees.x.to_numpy()}
    )
    result = perturber.eager(placed, drawer)
    reported = [result.pop(f"reported_{part}") for part in ("lon", "lat")]
    points = geopandas.GeoSeries.from_xy(*reported, crs=DEGREES)
    points = points.where(reported[0].notna(), None).to_crs(frame.crs)
    if perturber.columns.keep:
        result = result.drop(columns=[lat, lon])
        result = result.assign(true_geometry=frame.geometry.loc[result.index])
    result[frame.geometry.name] = points
    return geopandas.GeoDataFrame(result, geometry=frame.geometry.name)


def _spark(perturber: Perturber, df: Any) -> Any:
    """The same draws on a cluster, whatever is retried, killed or run twice; nothing is counted.

    A task may run several times, and each run of an independent draw would be another report of the
    same row. So a key is required: a row has one report however often it is computed. It travels to
    the executors with the table, which is broadcast once; batches are mapped in Arrow. With a
    budget, the rows of a person are brought together and sorted by time and place, so that the same
    rows are held back on every run.
    """
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    columns = perturber.columns
    if perturber.key is None:
        raise InvalidInputError(
            "Spark may run a task twice; give key=... (pm.DrawKey), so that it draws once"
        )
    if perturber.budget is not None:
        period = None if columns.period in TIMES else columns.period
        order = [columns.person, period, columns.time, *columns.true]
        df = df.repartition(columns.person)
        df = df.sortWithinPartitions(*[name for name in order if name is not None])
    held = df.sparkSession.sparkContext.broadcast(perturber)

    def draw(batches: Iterator[Any]) -> Iterator[Any]:
        yield from held.value.batches(batches)

    empty = to_arrow_schema(df.schema).empty_table()
    kept = {field.name: field for field in df.schema.fields}
    made = perturber.eager(empty, perturber.drawer()).schema
    fields = [kept.get(f.name) or StructField(f.name, from_arrow_type(f.type)) for f in made]
    return df.mapInArrow(draw, StructType(fields))
