"""Files in, files out, batch by batch: CSV, NDJSON, Parquet and GeoParquet.

Columns that are not asked about are copied as they are; a file appears whole or not at all. The
points of GeoParquet are GeoPandas' affair, which reads them all at once.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.packages import need
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.frames.drawing import FrameSummary
from panda_mdp.frames.perturb import Perturber

ROWS = 1 << 18
"""Rows of a batch: a few tens of MB."""
WORKERS = 2
CSV, LINES, PARQUET = (".csv",), (".ndjson", ".jsonl"), (".parquet", ".geoparquet")
Progress = Callable[[int], None]
"""Called with the rows so far."""
Format = tuple[Any, Callable[[Any], Any], Callable[[BinaryIO, Any], Any] | None]
"""Batches of a file, what becomes of each once it is perturbed, and who writes them; None where
they are bytes by then."""


def perturb_file(
    perturber: Perturber,
    source: Path,
    target: Path,
    *,
    summary: FrameSummary | None = None,
    progress: Progress = lambda rows: None,
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
            if kind is PARQUET and _is_of_points(perturber, source):
                geopandas = need("geopandas", "perturbing GeoParquet", "geo")
                perturber.frame(geopandas.read_parquet(source), tally).to_parquet(stream)
                return tally
            batches, finish, writer_of = run(perturber, source, rows)
            made = map(finish, _stream(perturber, batches, tally, progress))
            if writer_of is None:
                stream.writelines(made)
            elif (first := next(made, None)) is not None:
                with writer_of(stream, first.schema) as writer:
                    for batch in chain([first], made):
                        writer.write(batch)
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


def _csv(perturber: Perturber, source: Path, rows: int) -> Format:
    import pyarrow
    from pyarrow import csv

    with source.open("rb") as raw:
        header = raw.readline()
    names = csv.open_csv(pyarrow.BufferReader(header + b"\n")).schema.names
    # Text stays text: 007 is not 7, and an empty field is not a missing one.
    types = dict.fromkeys(names, pyarrow.string())
    types |= dict.fromkeys(perturber.columns.true, pyarrow.float64())
    convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    read = csv.ReadOptions(block_size=64 * rows)
    batches = csv.open_csv(source, read_options=read, convert_options=convert)
    options = csv.WriteOptions(quoting_style="needed")
    return batches, _same, partial(csv.CSVWriter, write_options=options)


def _parquet(perturber: Perturber, source: Path, rows: int) -> Format:
    from pyarrow import parquet

    # What is buffered ahead stays until the end: memory would grow with the file.
    file = parquet.ParquetFile(source, pre_buffer=False)
    return file.iter_batches(rows), _same, parquet.ParquetWriter


def _is_of_points(perturber: Perturber, source: Path) -> bool:
    """Whether places are GeoParquet's points, and not columns of degrees."""
    from pyarrow import parquet

    schema = parquet.read_schema(source)
    placed = set(perturber.columns.true) <= set(schema.names)
    return b"geo" in (schema.metadata or {}) and not placed


def _lines(perturber: Perturber, source: Path, rows: int) -> Format:
    """Objects, one per line; only the columns that are asked for become a table beside them."""
    import pyarrow

    columns = perturber.columns

    def read() -> Iterator[Any]:
        with source.open("rb") as raw:
            while lines := list(islice(raw, rows // 4)):
                lines = [line for line in lines if line.strip()]
                objects = [_object(line, source.name) for line in lines]
                named = {name: [row.get(name) for row in objects] for name in columns.read}
                yield pyarrow.RecordBatch.from_pydict({**named, "\0": lines})

    def written(batch: Any) -> bytes:
        lines = []
        for drawn in batch.to_pylist():
            row = json.loads(drawn["\0"])
            row |= {name: value for name, value in drawn.items() if name.startswith("reported")}
            kept = {name: value for name, value in row.items() if name not in columns.dropped}
            lines.append(json.dumps(kept, ensure_ascii=False) + "\n")
        return "".join(lines).encode()

    return read(), written, None


def _same(batch: Any) -> Any:
    return batch


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
