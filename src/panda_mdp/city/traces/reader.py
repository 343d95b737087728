"""Streams of positions from files of any size, in constant memory."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.city.traces import documents
from panda_mdp.city.traces.formats import (
    NOBODY,
    SUFFIXES,
    BadLineError,
    Fix,
    Format,
    check_format,
    doubtful_person,
    files_of,
    header_lines,
    parser_of,
    seconds,
)
from panda_mdp.errors import FileFormatError, InvalidInputError

CHUNK = 1 << 16
SHOWN = 5
SHOWN_CHARACTERS = 80
Progress = Callable[[int, int], None]
"""Called with the bytes that were read and the bytes in all."""


@dataclass
class TraceReport:
    """What was read; `examples` are the first lines that could not be.

    Examples hold text from the file, which is people's own: look at them, do not publish them.
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

    def refuse(self, where: str, reason: str, line: str) -> None:
        """Count a malformed line, and keep it if it is one of the first."""
        self.malformed += 1
        if len(self.examples) < SHOWN:
            self.examples.append(f"{where}: {reason}: {line[:SHOWN_CHARACTERS]!r}")


@dataclass(frozen=True)
class Fixes:
    """A chunk of positions. `user` numbers people in order of appearance over the whole stream."""

    user: IntArray
    time: FloatArray
    """Seconds since 1970; NaN where the file tells none."""
    lat: FloatArray
    lon: FloatArray

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True)
class Traces:
    """Positions in files, read anew by each pass. Nothing of them is kept here."""

    path: Path
    format: Format
    columns: dict[str, str] | None = None
    frame: Any = None
    """A frame of data that is read instead of a file."""

    def __repr__(self) -> str:
        return f"Traces({self.name})"

    @property
    def name(self) -> str:
        """What they are called in certificates."""
        return "a frame" if self.frame is not None else f"{self.path.name} ({self.format})"

    def chunks(
        self,
        report: TraceReport | None = None,
        *,
        times: bool = True,
        progress: Progress | None = None,
    ) -> Iterator[Fixes]:
        """All positions, in chunks of bounded size; `report` collects what happened.

        `times=False` leaves times unread, which is faster.
        """
        tally = report if report is not None else TraceReport()
        people: dict[str, int] = {}
        pending: list[Fix] = []
        for fix in self._fixes(tally, progress):
            pending.append(fix)
            tally.anonymous += fix.user.strip().lower() in NOBODY
            if len(pending) == CHUNK:
                yield _pack(pending, people, times)
                pending.clear()
        if pending:
            yield _pack(pending, people, times)

    def _fixes(self, report: TraceReport, progress: Progress | None) -> Iterator[Fix]:
        if self.frame is not None:
            yield from _counted(documents.frame(self.frame, self.columns), report, "the frame")
            names = [str(n) for n in getattr(self.frame, "column_names", self.frame.columns)]
            report.doubtful = doubtful_person(",".join(names), self.columns)
            return
        files = files_of(self.path, self.format)
        total = sum(path.stat().st_size for path in files)
        done = 0
        for path in files:
            yield from self._file(path, report, progress, done, total)
            done += path.stat().st_size
            if progress is not None:
                progress(done, total)

    def _file(
        self, path: Path, report: TraceReport, progress: Progress | None, done: int, total: int
    ) -> Iterator[Fix]:
        skipped = header_lines(self.format)
        with path.open("rb") as raw, _unpacked(path, raw) as stream:
            if self.format in ("gpx", "geojson"):
                entries = (
                    documents.gpx(stream, path)
                    if self.format == "gpx"
                    else documents.geojson(stream, path, self.columns)
                )
                yield from _counted(entries, report, path.name)
                return
            header = [line.rstrip("\r\n").lstrip("\ufeff") for line in islice(stream, skipped)]
            parse = parser_of(path, self.format, header, self.columns)
            if self.format == "csv":
                report.doubtful = report.doubtful or doubtful_person(header[0], self.columns)
            for number, text in enumerate(stream, start=skipped + 1):
                line = text.rstrip("\r\n")
                if not line:
                    continue
                report.lines += 1
                if progress is not None and not number & 0xFFFF:
                    progress(done + raw.tell(), total)
                try:
                    fixes = parse(line)
                except BadLineError as error:
                    report.refuse(f"{path.name}, line {number}", str(error), line)
                    continue
                report.fixes += len(fixes)
                yield from fixes


def _counted(
    entries: Iterable[Fix | BadLineError], report: TraceReport, where: str
) -> Iterator[Fix]:
    """The positions; what is none is counted, and not shown: its place in the file is not known."""
    for number, entry in enumerate(entries, start=1):
        report.lines += 1
        if isinstance(entry, BadLineError):
            report.refuse(f"{where}, entry {number}", str(entry), "")
            continue
        report.fixes += 1
        yield entry


@contextmanager
def _unpacked(path: Path, raw: io.BufferedReader) -> Iterator[io.TextIOWrapper]:
    """The lines of a file; what cannot be decoded shows up as malformed lines."""
    packed = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else None
    source = raw if packed is None else io.BufferedReader(packed)
    text = io.TextIOWrapper(source, encoding="utf-8", errors="replace")
    try:
        yield text
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        msg = f"{path.name} is damaged or cut short ({error})"
        raise FileFormatError(msg) from error
    finally:
        text.detach()
        if packed is not None:
            packed.close()


def _pack(fixes: list[Fix], people: dict[str, int], times: bool) -> Fixes:
    number = people.setdefault
    return Fixes(
        user=np.array([number(fix.user, len(people)) for fix in fixes], dtype=np.int64),
        time=np.array([seconds(fix.time) if times else np.nan for fix in fixes], dtype=np.float64),
        lat=np.array([fix.lat for fix in fixes]),
        lon=np.array([fix.lon for fix in fixes]),
    )


def load_traces(
    path: str | os.PathLike[str] | Any,
    format: Format | None = None,
    *,
    columns: dict[str, str] | None = None,
) -> Traces:
    """Name a trace file (or folder of them); it is streamed when it is used.

    Formats: `rome` (`id;time;POINT(lat lon)`), `tdrive` (`id,time,lon,lat`), `porto` (POLYLINE of
    `[lon, lat]`), `geolife` (`.plt`), `csv` (a header that names the columns; `columns` maps
    `lat`, `lon`, `user`, `time` to the file's names), `gpx` (a person per file), `geojson` (points
    and lines with a user and a time among their properties). Without a format the name tells it:
    `.gpx`, `.geojson`, `.plt`, otherwise `csv`. Files ending in `.gz` are unpacked on the way. A
    frame (pandas, GeoPandas, Polars, PyArrow) is taken as a file is.
    """
    if not isinstance(path, str | os.PathLike):
        if not hasattr(path, "columns"):
            msg = f"traces are a {type(path).__name__}; give a file, a folder or a frame"
            raise InvalidInputError(msg)
        return Traces(Path(), "csv", columns, path)
    where = Path(path)
    if format is None:
        bare = where.with_suffix("") if where.suffix == ".gz" else where
        format = SUFFIXES.get(bare.suffix.lower(), "csv")
    check_format(format)
    files_of(where, format)
    return Traces(where, format, columns)
