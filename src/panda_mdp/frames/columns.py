"""What columns hold: numbers, times, what may give a place away; and what becomes of them.

A report hides a place; an exact time, an id or a fare beside it may give it away again. Columns
that look like one of those, by their name or by what they hold, are named, and a file is not
written before each is kept, coarsened or dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.packages import need
from panda_mdp.errors import InvalidInputError
from panda_mdp.space.metrics import haversine_km

COORDINATES, TIME, ID, LENGTH = "coordinates", "a time", "an id", "what determines a length"
NAMES = {
    COORDINATES: re.compile(
        r"lat|lon|lng|coord|geo|h3|(\b|_)[xy]\d*(\b|_)|address|street|zip|post|location|tract|station"
    ),
    TIME: re.compile(r"time|date|hour|minute|stamp|\bat\b|_ts\b"),
    ID: re.compile(r"id\b|_id|user|person|passenger_?name|medallion|licen[cs]e|plate|phone|mail"),
    LENGTH: re.compile(r"fare|amount|price|toll|tip|dist|mile|km|durat|secs|speed"),
}
"""What a column looks like by its name, in lower case."""
TEXTS = {
    COORDINATES: re.compile(
        r"\s*[A-Z]*\s*\(*\s*-?\d+\.\d{3,}\s*[,; ]\s*-?\d+\.\d{3,}.*|8[0-9a-f]{14}"
    ),
    TIME: re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?|\d\d?[/.]\d\d?[/.]\d{4}.*|\d\d?:\d\d.*"),
}
"""What one looks like by the texts in it: pairs of degrees, WKT, H3; dates and times of day."""
EPOCHS = ((1e9, 2.2e9), (1e12, 2.2e12))
"""Seconds and milliseconds of 2001 to 2039."""
SAMPLE, FEW, MOST, ALIKE = 2000, 20, 0.9, 0.7
"""Rows that are looked at, and how few tell nothing; the share of them that must look alike, or be
different for an id; a rank correlation with places or their lengths that gives them away."""
TIMES = {"hour": "h", "day": "D", "week": "W", "month": "M"}
WAYS = f"keep, drop, {', '.join(TIMES)} (of a time) or a number to round to"
Moments = npt.NDArray[np.datetime64]


def narwhals_of() -> Any:
    """The package narwhals, or an error that says how to get it."""
    return need("narwhals", "perturbing frames", "frames")


def need_columns(frame: Any, names: Iterable[str]) -> None:
    """Refuse a frame that lacks one."""
    for name in names:
        if name not in frame.columns:
            raise InvalidInputError(
                f"there is no column {name!r}; it has {', '.join(map(str, frame.columns))}"
            )


def numbers(series: Any, name: str) -> FloatArray:
    """A column of numbers; missing ones as NaN. The error names no value."""
    # Each engine has errors of its own, which show the value.
    with suppress(Exception):
        return np.ascontiguousarray(series.cast(narwhals_of().Float64).to_numpy(), np.float64)
    raise InvalidInputError(
        f"the column {name!r} is not of numbers; where it holds labels, make the table over a "
        "domain that has them: domain.with_labels(...)"
    )


def beginnings(series: Any, step: str) -> Moments | None:
    """When the hour, day, week or month (UTC) of each time begins; weeks begin on Mondays.

    Times are timestamps, dates, seconds, or texts of these: ISO with or without a zone. NaT where
    one is missing, None for a column of anything else.
    """
    import pyarrow
    from pyarrow import compute

    values = series.to_arrow()
    moments = None
    if pyarrow.types.is_string(values.type) or pyarrow.types.is_large_string(values.type):
        values = compute.if_else(compute.equal(values, ""), None, values)
    kinds = (pyarrow.timestamp("us"), pyarrow.timestamp("us", "UTC"), pyarrow.float64())
    for kind in kinds[2 if series.dtype.is_numeric() else 0 :]:
        # What Arrow says of a value that it cannot read shows the value.
        with suppress(Exception):
            found = np.asarray(values.cast(kind))
            moments = (1e6 * found if found.dtype.kind == "f" else found).astype("datetime64[us]")
            break
    if moments is None or step != "week":
        return None if moments is None else moments.astype(f"datetime64[{TIMES[step]}]")
    days: Any = moments.astype("datetime64[D]")
    # 1970 began on a Thursday.
    return days - (days.astype(np.int64) + 3) % 7


def classify(frame: Any, places: Sequence[Sequence[str]] = (), spoken: Iterable[str] = ()) -> str:
    """Columns that may give places away, and what each looks like; empty where none does.

    By their names; by texts and numbers that look like coordinates or times; as ids, where nearly
    every row has its own; and by rank correlation with the true places, and with the lengths
    between two. `places` names the columns of the true places, which are not classified, nor are
    those that were `spoken` of.

    >>> import pyarrow as pa
    >>> classify(narwhals_of().from_native(pa.table({"colour": [1], "fare_amount": [2]})))
    'fare_amount looks like what determines a length'
    """
    rows = frame.head(SAMPLE)
    known = {*spoken, *(name for names in places for name in names)}
    degrees: list[list[FloatArray]] = []
    for pair in places:
        with suppress(InvalidInputError):
            if len(pair) == 2 and len(rows) >= FEW:
                degrees.append([numbers(rows[name], name) for name in pair])
    telling = [(COORDINATES, part) for pair in degrees for part in pair]
    if len(degrees) == 2:
        (lat, lon), (to_lat, to_lon) = degrees
        telling.append((LENGTH, haversine_km(lat, lon, to_lat, to_lon)))
    found = []
    for name in (name for name in frame.columns if name not in known):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name)).lower()
        kind = next((kind for kind, look in NAMES.items() if look.search(words)), None)
        if kind := kind or _held(rows[name], telling):
            found.append(f"{name} looks like {kind}")
    return "; ".join(found)


def _held(series: Any, telling: Sequence[tuple[str, FloatArray]]) -> str | None:
    """What a column looks like by what it holds."""
    if series.dtype.is_temporal():
        return TIME
    values: npt.NDArray[Any]
    try:
        values = numbers(series, "")
    except InvalidInputError:
        texts = [str(value) for value in series.to_list() if value not in (None, "")]
        for kind, look in TEXTS.items():
            if texts and np.mean([look.fullmatch(text) is not None for text in texts]) > MOST:
                return kind
        values = np.array(texts)
    else:
        if (kind := next((k for k, other in telling if _alike(values, other)), "")) != "":
            return kind
        values = values[np.isfinite(values)]
        if any(((low <= values) & (values <= high)).all() for low, high in EPOCHS if len(values)):
            return TIME
        if (values % 1 != 0).any():
            return None
    return ID if len(values) >= FEW and len(np.unique(values)) > MOST * len(values) else None


def _alike(one: FloatArray, other: FloatArray) -> bool:
    """Whether one number's rank tells much of the other's."""
    known = np.isfinite(one) & np.isfinite(other)
    if known.sum() < FEW or np.ptp(one[known]) == 0 or np.ptp(other[known]) == 0:
        return False
    return abs(float(spearmanr(one[known], other[known]).statistic)) > ALIKE


@dataclass(frozen=True)
class Treatment:
    """What becomes of the columns that are no places: `keep`, `drop`, a step, or a number."""

    columns: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, way in self.columns.items():
            number = isinstance(way, int | float) and not isinstance(way, bool) and way > 0
            if not number and way not in ("keep", "drop", *TIMES):
                raise InvalidInputError(f"column {name!r} is to be {way!r}; choose {WAYS}")

    @property
    def rounded(self) -> list[str]:
        """The columns that are read as numbers."""
        return [name for name, way in self.columns.items() if not isinstance(way, str)]

    def check(self, frame: Any, places: Sequence[Sequence[str]]) -> None:
        """Refuse columns that look telling and are not spoken of, and words about none."""
        need_columns(frame, self.columns)
        if telling := classify(frame, places, self.columns):
            raise InvalidInputError(
                f"nothing is written before each is spoken of: {telling}. Say for each what "
                f"becomes of it: --column NAME=WAY, or [columns] of a recipe; a way is {WAYS}"
            )

    def apply(self, frame: Any) -> Any:
        """A frame with the columns dropped or coarsened."""
        narwhals = narwhals_of()
        backend = narwhals.get_native_namespace(frame)
        coarse = []
        for name, way in self.columns.items():
            if way in ("keep", "drop") or name not in frame.columns:
                continue
            values: Any = beginnings(frame[name], way) if isinstance(way, str) else None
            with suppress(InvalidInputError):
                if isinstance(way, str) and values is not None:
                    texts = np.datetime_as_string(values.astype("datetime64[m]"))
                    values = [None if text == "NaT" else text for text in texts.tolist()]
                elif not isinstance(way, str):
                    values = np.round(numbers(frame[name], name) / way) * way
            if values is None:
                raise InvalidInputError(
                    f"column {name!r} cannot be coarsened to {way!r}: it holds other values"
                )
            coarse.append(narwhals.new_series(name, values, backend=backend))
        gone = [name for name, way in self.columns.items() if way == "drop"]
        return frame.with_columns(*coarse).drop(gone, strict=False)
