"""Traces in: positions of people, streamed from CSV files, or from frames; how often each record
was visited, and priors made of it."""

from __future__ import annotations

import csv
import gzip
import io
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, group_ranks
from panda_mdp.base.atomic import FilePath, atomic_file
from panda_mdp.base.packages import need
from panda_mdp.city.layers import find_name, system_of
from panda_mdp.errors import FileFormatError, InvalidInputError, PrivacyError
from panda_mdp.prior import Prior
from panda_mdp.space.domain import Domain

SUFFIXES = (".csv", ".csv.gz")
"""What is read of a folder; a file of another name is taken for CSV."""
COLUMNS = {
    "lat": ("lat", "latitude", "y"),
    "lon": ("lon", "lng", "long", "longitude", "x"),
    "user": (
        *("user", "user_id", "userid", "person", "person_id", "driver", "driver_id"),
        *("rider_id", "passenger_id", "customer_id", "device_id", "taxi", "taxi_id"),
        *("vehicle", "vehicle_id", "uid", "id"),
    ),
}
"""Names of columns that are recognised where none are given."""
DOUBTFUL = frozenset({"uid", "id"})
"""Columns that name people in some files and number the rows in others."""
NOBODY = frozenset({"", "na", "nan", "none", "null", "nil", "unknown", "-"})
"""What stands in a column of people where the person is not known."""
CHUNK = 1 << 16
PRIOR_ARRAYS = ("lat", "lon", "weights", "source", "epsilon")
FARTHEST_KM = 20_100.0
CONTRIBUTION = 16
EXAMPLES = 5
EXAMPLE_CHARACTERS = 80

Rows = tuple[list[str], Iterable[tuple[int, Sequence[Any]]]]
"""Names of columns, and rows with their numbers."""
Sample = npt.NDArray[np.uint64]
"""People, records and random keys of visits, (3, n)."""


@dataclass
class TraceReport:
    """What was read; `examples` are the first rows that could not be.

    Examples hold text from the source, which is people's own: look at them, do not publish them.
    """

    lines: int = 0
    fixes: int = 0
    malformed: int = 0
    anonymous: int = 0
    """Fixes that name no person."""
    doubtful: str | None = None
    """A column that was taken for the person's although it may number the rows."""
    examples: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return (
            f"TraceReport({self.lines:,} lines, {self.fixes:,} fixes, {self.malformed:,} malformed)"
        )


@dataclass(frozen=True)
class Fixes:
    """A chunk of positions. `user` numbers people in order of appearance over the whole stream."""

    user: IntArray
    lat: FloatArray
    lon: FloatArray

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True)
class Traces:
    """Positions in files or a frame, read anew by each pass. Nothing of them is kept here."""

    source: Any
    columns: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"Traces({self.name})"

    @property
    def name(self) -> str:
        """What the source is called: in certificates too."""
        return self.source.name if isinstance(self.source, Path) else "a frame"

    def chunks(self, report: TraceReport | None = None) -> Iterator[Fixes]:
        """All positions, in chunks of bounded size; `report` collects what happened."""
        people: dict[str, int] = {}
        fixes = self._fixes(TraceReport() if report is None else report)
        while chunk := list(islice(fixes, CHUNK)):
            user, lat, lon = zip(*chunk, strict=True)
            numbers = [people.setdefault(name, len(people)) for name in user]
            yield Fixes(np.array(numbers, dtype=np.int64), np.array(lat), np.array(lon))

    def visits(
        self, domain: Domain, *, limit_km: float = 0.5, contribution: int = CONTRIBUTION
    ) -> Visits:
        """Snap every fix to its nearest record and count; one pass, memory as domain and people.

        Fixes beyond `limit_km` from every record are counted as outside; where more of them would
        be inside with latitude and longitude exchanged than are inside, the file is refused.
        """
        if contribution < 1:
            raise InvalidInputError(
                f"contribution is {contribution}; a person contributes at least 1 visit"
            )
        report = TraceReport()
        counts = np.zeros(domain.size, np.int64)
        sample = np.empty((3, 0), np.uint64)
        outside = people = swapped = 0
        for fixes in self.chunks(report):
            snaps = domain.snap(fixes.lat, fixes.lon, limit_km)
            nearest = snaps.record
            inside = snaps.inside
            counts += np.bincount(nearest[inside], minlength=domain.size)
            outside += int((~inside).sum())
            turned = ~inside & (np.abs(fixes.lon) <= 90)
            swapped += int(domain.snap(fixes.lon[turned], fixes.lat[turned], limit_km).inside.sum())
            people = max(people, int(fixes.user.max()) + 1)
            sample = _sample(sample, fixes.user[inside], nearest[inside], contribution)
        if swapped > counts.sum():
            raise InvalidInputError(
                "most fixes lie on the map only with latitude and longitude exchanged; "
                "name the columns: load_traces(..., columns={'lat': ..., 'lon': ...})"
            )
        return Visits(
            domain=domain,
            counts=counts,
            bounded=np.bincount(sample[1].astype(np.int64), minlength=domain.size),
            contribution=contribution,
            people=people,
            outside=outside,
            limit_km=limit_km,
            report=report,
            source=f"traces {self.name}",
        )

    def _fixes(self, report: TraceReport) -> Iterator[tuple[str, float, float]]:
        """Person and place of every row that tells them; the other rows are counted."""
        if not isinstance(self.source, Path):
            yield from self._read("the frame", _frame_rows(self.source), report)
            return
        for path in _files(self.source):
            try:
                with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
                    # What cannot be decoded shows up as malformed lines.
                    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
                    yield from self._read(path.name, _csv_rows(text, path.name), report)
            except (gzip.BadGzipFile, EOFError, zlib.error, csv.Error) as error:
                raise FileFormatError(f"{path.name} is damaged or cut short ({error})") from error

    def _read(
        self, source: str, table: Rows, report: TraceReport
    ) -> Iterator[tuple[str, float, float]]:
        names, rows = table
        lat, lon, user = (self._column(kind, names, report) for kind in COLUMNS)
        for number, row in rows:
            report.lines += 1
            try:
                north = float(row[lat])
                east = float(row[lon])
            except (ValueError, TypeError, IndexError):
                north = east = np.nan
            # Comparisons are false for NaN, so that it is refused too.
            if len(row) != len(names) or not (-90 <= north <= 90 and -180 <= east <= 180):
                report.malformed += 1
                if len(report.examples) < EXAMPLES:
                    text = ",".join(map(str, row))[:EXAMPLE_CHARACTERS]
                    report.examples.append(
                        f"{source}, line {number}: not {len(names)} fields with a latitude in "
                        f"[-90, 90] and a longitude in [-180, 180] (swapped?): {text!r}"
                    )
                continue
            name = "" if user < 0 else str(row[user])
            report.fixes += 1
            report.anonymous += name.strip().lower() in NOBODY
            yield name, north, east

    def _column(self, kind: str, names: list[str], report: TraceReport) -> int:
        """Where a kind of column stands: as named, or under a name that is recognised; else -1."""
        given = (self.columns or {}).get(kind)
        usual = find_name(names, *COLUMNS[kind])
        found = usual if given is None else given
        if found not in names:
            if given is None and kind == "user":
                return -1
            raise FileFormatError(
                f"there is no column {given or kind!r} among {', '.join(names)}; "
                f"name it: columns={{{kind!r}: ...}}"
            )
        if kind == "user" and given is None and found.lower() in DOUBTFUL:
            report.doubtful = found
        return names.index(found)


def load_traces(source: FilePath | Any, *, columns: dict[str, str] | None = None) -> Traces:
    """Name a trace file (or folder of them); it is read when it is used.

    CSV has a header that names the columns (`columns` maps `lat`, `lon` and `user` to the file's
    names) and is streamed; `.gz` is unpacked on the way. A frame (pandas, Polars, PyArrow, or
    GeoPandas with the vertices of its shapes) is taken as a file is.
    """
    if not isinstance(source, str | os.PathLike):
        if not hasattr(source, "columns"):
            raise InvalidInputError(
                f"traces are a {type(source).__name__}; give a file, a folder or a frame"
            )
        return Traces(source, columns)
    _files(Path(source))
    return Traces(Path(source), columns)


def _files(path: Path) -> list[Path]:
    """The files of a data set that may be one file or a folder, in a fixed order."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if not path.is_dir():
        return [path]
    files = sorted(entry for entry in path.rglob("*") if entry.name.lower().endswith(SUFFIXES))
    if not files:
        raise FileFormatError(f"{path} holds no traces: {', '.join(SUFFIXES)}")
    return files


def _csv_rows(stream: io.TextIOWrapper, source: str) -> Rows:
    header = stream.readline()
    if not header:
        raise FileFormatError(f"{source} is empty; it needs a header line")
    delimiter = max(",;\t", key=header.count)
    names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
    rows = csv.reader(stream, delimiter=delimiter)
    return names, ((rows.line_num + 1, fields) for fields in rows if fields)


def _frame_rows(frame: Any) -> Rows:
    """Rows of a frame: pandas, Polars, PyArrow, or GeoPandas with the vertices of its shapes."""
    if hasattr(frame, "geometry") and hasattr(frame, "to_crs"):
        shapely = need("shapely", "reading shapes", "geo")
        system_of(frame, None, "the frame of traces")
        shapes = frame.to_crs(4326).geometry
        places, row = shapely.get_coordinates(shapes.to_numpy(), return_index=True)
        frame = frame.drop(columns=shapes.name).iloc[row].assign(lat=places[:, 1], lon=places[:, 0])
    names = [str(name) for name in getattr(frame, "column_names", frame.columns)]
    columns = (frame[name] for name in names)
    values = [c.to_pylist() if hasattr(c, "to_pylist") else list(c) for c in columns]
    return names, enumerate(zip(*values, strict=True), start=1)


@dataclass(frozen=True, eq=False)
class Visits:
    """Visits per record. They are people's own until they are made private or are public anyway.

    `bounded` holds at most `contribution` visits of each person, drawn at random from theirs:
    what a private prior is made of.
    """

    domain: Domain
    counts: IntArray
    bounded: IntArray
    contribution: int
    people: int
    outside: int
    """Fixes that lay beyond the limit from every record."""
    limit_km: float
    report: TraceReport
    source: str

    def __repr__(self) -> str:
        # Exact counts beside a private prior would undo its noise, and reprs end up in logs.
        return (
            f"Visits({self.domain.size:,} records, within {self.limit_km:g} km, at most "
            f"{self.contribution} of each person; counts <hidden>)"
        )

    def public_prior(self, *, source: str = "") -> Prior:
        """The shares of visits, where the traces are public already. See `Prior.public`."""
        described = source or f"{self.source}, {int(self.counts.sum()):,} fixes"
        return Prior.public(self.counts, source=described)

    def private_prior(self, epsilon: float, *, cell_km: float | None = 1.0) -> Prior:
        """A differentially private prior, safe to optimise for. See `Prior.private`.

        Refused where it is not certain which rows are one person's: nothing else bounds what a
        person contributes.
        """
        if self.report.anonymous:
            raise PrivacyError(
                f"{self.report.anonymous:,} fixes name no person, so nothing bounds what one "
                "person contributes; name the column: load_traces(..., columns={'user': ...})"
            )
        if self.report.doubtful is not None:
            name = self.report.doubtful
            raise PrivacyError(
                f"the column {name!r} may number the rows and not name people, and then one person "
                f"counts without bound; if it names people, say so: "
                f"load_traces(..., columns={{'user': {name!r}}})"
            )
        return Prior.private(
            self.domain,
            self.bounded,
            epsilon=epsilon,
            contribution=self.contribution,
            cell_km=cell_km,
            source=self.source,
        )


def _sample(kept: Sample, user: IntArray, record: IntArray, size: int) -> Sample:
    """A uniform sample of at most `size` visits of each person, from a stream: what was kept, and
    people and records of more visits.

    Every visit gets a random key from the operating system and each person's smallest keys stay.
    Which visits of a person stay depends on that person alone, as the bound on a person's
    influence needs.
    """
    keys = np.frombuffer(secrets.token_bytes(8 * len(user)), dtype=np.uint64)
    visits = np.hstack([kept, np.array([user, record, keys], dtype=np.uint64)])
    by_key = visits[:, np.argsort(visits[2], kind="stable")]
    return by_key[:, group_ranks(by_key[0]) < size]


def save_prior(path: Path, prior: Prior, domain: Domain) -> Path:
    """Write a prior over places as `.npz`, with its provenance."""
    epsilon = np.nan if prior.epsilon is None else prior.epsilon
    with atomic_file(path) as stream:
        np.savez_compressed(
            stream,
            lat=domain.lat,
            lon=domain.lon,
            weights=prior.weights,
            source=np.array(prior.source),
            epsilon=np.array(epsilon),
        )
    return path


def load_prior(path: Path, domain: Domain) -> Prior:
    """A saved prior on the records of a domain: each place counts for its nearest record.

    Nothing but the saved weights is used, so what was private for the people behind stays so.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            lat, lon, weights, source, epsilon = (stored[name] for name in PRIOR_ARRAYS)
    except FileNotFoundError:
        raise
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise FileFormatError(
            f"{path.name} is damaged or no prior; panda-mdp prior makes one"
        ) from error
    checked = Prior(weights, str(source), None if np.isnan(epsilon) else float(epsilon))
    nearest = domain.snap(lat, lon, FARTHEST_KM)
    if len(nearest) != len(checked.weights) or not nearest.inside.all():
        raise FileFormatError(f"{path.name} is damaged: its weights are not one for each place")
    sums = np.bincount(nearest.record, weights=checked.weights, minlength=domain.size)
    return Prior(sums / sums.sum(), checked.source, checked.epsilon)
