"""Files in, files out, batch by batch: CSV, NDJSON, Parquet and GeoParquet.

Columns that are not asked about are copied as they are; a file appears whole or not at all.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.packages import need
from panda_mdp.city.network import DEGREES, to_degrees
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.frames.drawing import FrameSummary
from panda_mdp.frames.perturb import Perturber

ROWS = 1 << 18
"""Rows of a batch: a few tens of MB."""
WORKERS = 2
CSV, LINES, PARQUET = (".csv",), (".ndjson", ".jsonl"), (".parquet", ".geoparquet")
Progress = Callable[[int], None]
"""Called with the rows so far."""


def perturb_file(
    perturber: Perturber,
    source: Path,
    target: Path,
    *,
    summary: FrameSummary | None = None,
    progress: Progress | None = None,
    rows: int = ROWS,
) -> FrameSummary:
    """Perturb a file into another of the same format, in the memory of a few batches of `rows`."""
    kind = _kind(source)
    if _kind(target) is not kind:
        raise InvalidInputError(
            f"{target.name} and {source.name} are of different formats; give the same suffix"
        )
    if target.resolve() == source.resolve():
        raise InvalidInputError(f"{target.name} would overwrite the file that it is read from")
    pyarrow = need("pyarrow", "perturbing files", "frames")
    tally = summary if summary is not None else FrameSummary()
    run = {CSV: _csv, LINES: _lines, PARQUET: _parquet}[kind]
    try:
        with atomic_file(target) as stream:
            run(perturber, source, stream, tally, progress or (lambda rows: None), rows)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        # Arrow's messages show the value that it could not read.
        raise FileFormatError(
            f"{source.name} is damaged or its columns change their type"
        ) from None
    return tally


def _kind(path: Path) -> tuple[str, ...]:
    for suffixes in (CSV, LINES, PARQUET):
        if path.suffix.lower() in suffixes:
            return suffixes
    known = ", ".join((*CSV, *LINES, *PARQUET))
    raise FileFormatError(f"{path.name} has an unknown suffix; known: {known}")


def _csv(
    perturber: Perturber,
    source: Path,
    stream: BinaryIO,
    summary: FrameSummary,
    progress: Progress,
    rows: int,
) -> None:
    import pyarrow
    from pyarrow import csv

    with source.open("rb") as raw:
        header = raw.readline()
    names = csv.open_csv(pyarrow.BufferReader(header + b"\n")).schema.names
    numeric = set(perturber.columns.true)
    # Text stays text: 007 is not 7, and an empty field is not a missing one.
    types = {n: pyarrow.float64() if n in numeric else pyarrow.string() for n in names}
    convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    read = csv.ReadOptions(block_size=64 * rows)
    writer = None
    batches = csv.open_csv(source, read_options=read, convert_options=convert)
    for batch in _stream(perturber, batches, summary, progress):
        if writer is None:
            options = csv.WriteOptions(quoting_style="needed")
            writer = csv.CSVWriter(stream, batch.schema, write_options=options)
        writer.write(batch)
    if writer is not None:
        writer.close()


def _parquet(
    perturber: Perturber,
    source: Path,
    stream: BinaryIO,
    summary: FrameSummary,
    progress: Progress,
    rows: int,
) -> None:
    from pyarrow import parquet

    # What is buffered ahead stays until the end: memory would grow with the file.
    with parquet.ParquetFile(source, pre_buffer=False) as file:
        notes = json.loads((file.schema_arrow.metadata or {}).get(b"geo", b"null"))
        placed = set(perturber.columns.true) <= set(file.schema_arrow.names)
        points = None if notes is None or placed else _Points(perturber, notes, source.name)
        batches = file.iter_batches(rows)
        if points is not None:
            batches = map(points.taken, batches)
        writer = None
        for batch in _stream(perturber, batches, summary, progress):
            ready = batch if points is None else points.given(batch)
            if writer is None:
                writer = parquet.ParquetWriter(stream, ready.schema)
            writer.write_batch(ready)
        if writer is not None:
            writer.close()


class _Points:
    """GeoParquet's points as latitude and longitude, and back, in the file's reference system.

    The bounding box in the file's notes and a column of boxes tell true places: both go.
    """

    def __init__(self, perturber: Perturber, notes: dict[str, Any], name: str) -> None:
        if perturber.columns.keep:
            raise InvalidInputError("true points are not kept in GeoParquet; keep the file itself")
        self.columns = perturber.columns
        self.name = name
        self.shape = str(notes.get("primary_column", "geometry"))
        said = notes["columns"][self.shape]
        self.crs = said.get("crs", "absent")
        self.covering = {
            path[0] for paths in said.get("covering", {}).values() for path in paths.values()
        }
        column = {"encoding": "WKB", "geometry_types": ["Point"]}
        if self.crs != "absent":
            column["crs"] = self.crs
        self.notes = {"version": "1.0.0", "primary_column": self.shape,
                      "columns": {self.shape: column}}  # fmt: skip

    @property
    def system(self) -> str | None:
        """The reference system as pyproj takes it."""
        if self.crs == "absent":
            return DEGREES
        return None if self.crs is None else json.dumps(self.crs)

    def taken(self, batch: Any) -> Any:
        """The batch with columns of degrees instead of points."""
        import pyarrow
        import shapely

        shapes = shapely.from_wkb(batch[self.shape].to_pylist())
        x, y = shapely.get_x(shapes), shapely.get_y(shapes)
        lat, lon = np.full(len(x), np.nan), np.full(len(x), np.nan)
        known = np.isfinite(x)
        lon[known], lat[known] = to_degrees(x[known], y[known], self.system, self.name)
        table = pyarrow.Table.from_batches([batch]).drop_columns([self.shape, *self.covering])
        for name, values in ((self.columns.lat, lat), (self.columns.lon, lon)):
            table = table.append_column(name, pyarrow.array(values))
        return table.combine_chunks().to_batches()[0]

    def given(self, batch: Any) -> Any:
        """The batch with reported points instead of columns of degrees."""
        import pyarrow
        import shapely

        lat, lon = (np.asarray(batch[f"reported_{n}"], dtype=np.float64) for n in ("lat", "lon"))
        if self.system not in (None, DEGREES):
            import pyproj

            turn = pyproj.Transformer.from_crs(DEGREES, self.system, always_xy=True)
            lon, lat = turn.transform(lon, lat)
        points = shapely.to_wkb(shapely.points(lon, lat))
        points = [None if np.isnan(v) else p for v, p in zip(lat, points, strict=True)]
        table = pyarrow.Table.from_batches([batch]).drop_columns(["reported_lat", "reported_lon"])
        table = table.append_column(self.shape, pyarrow.array(points, pyarrow.binary()))
        table = table.replace_schema_metadata({b"geo": json.dumps(self.notes).encode()})
        return table.combine_chunks().to_batches()[0]


def _lines(
    perturber: Perturber,
    source: Path,
    stream: BinaryIO,
    summary: FrameSummary,
    progress: Progress,
    rows: int,
) -> None:
    """Objects, one per line; only the columns that are asked for become a table."""
    import pyarrow

    columns = perturber.columns
    drawer = perturber.drawer(summary)
    with source.open("rb") as raw:
        while lines := list(islice(raw, rows // 4)):
            objects = [_object(line, source.name) for line in lines if line.strip()]
            table = pyarrow.table(
                {name: [row.get(name) for row in objects] for name in columns.read}
            ).append_column("\0", pyarrow.array(np.arange(len(objects))))
            for drawn in perturber.eager(table, drawer).to_pylist():
                row = objects[drawn["\0"]]
                for name in columns.dropped:
                    row.pop(name, None)
                row.update({k: v for k, v in drawn.items() if k.startswith("reported")})
                stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            progress(summary.rows)


def _object(line: bytes, name: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise FileFormatError(f"{name} holds a line that is no JSON object")
    return row


def _stream(
    perturber: Perturber, batches: Any, summary: FrameSummary, progress: Progress
) -> Iterator[Any]:
    """Perturbed batches in their order; several at a time where nobody's budget is counted."""
    if perturber.columns.person is not None:
        for batch in perturber.batches(batches, summary):
            yield batch
            progress(summary.rows)
        return
    waiting: deque[Future[tuple[list[Any], FrameSummary]]] = deque()
    with ThreadPoolExecutor(WORKERS) as pool:
        for batch in chain(batches, [None] * WORKERS):
            if batch is not None:
                waiting.append(pool.submit(_one, perturber, batch))
            if waiting and (batch is None or len(waiting) > WORKERS):
                done, part = waiting.popleft().result()
                summary.add(part)
                yield from done
                progress(summary.rows)


def _one(perturber: Perturber, batch: Any) -> tuple[list[Any], FrameSummary]:
    part = FrameSummary()
    return list(perturber.batches([batch], part)), part
