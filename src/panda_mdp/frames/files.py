"""Files in, files out, batch by batch: CSV and TSV (gzip too), NDJSON, Parquet and GeoParquet.

Columns that are not asked about are copied as they are; a file appears whole or not at all.
Separators, decimal commas, encodings and quotes of text files come back as they came; a field that
some lines of NDJSON lack is null there. The points of GeoParquet are GeoPandas' affair, which reads
them all at once.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.packages import need
from panda_mdp.base.text import Facts
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.frames.columns import Treatment
from panda_mdp.frames.drawing import FrameSummary
from panda_mdp.frames.perturb import Perturber

ROWS = 1 << 18
"""Rows of a batch: a few tens of MB."""
WORKERS = 2
CSV, LINES, PARQUET = (
    (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
    (".ndjson", ".jsonl"),
    (".parquet", ".geoparquet"),
)
SAMPLE = 1 << 16
"""Bytes that separators, quotes and the encoding are told from."""
SEPARATORS = ",;\t|"
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
Progress = Callable[[int], None]
"""Called with the rows so far."""


def perturb_file(
    perturber: Perturber,
    source: Path,
    target: Path,
    *,
    progress: Progress = lambda rows: None,
    rows: int = ROWS,
) -> FrameSummary:
    """Perturb a file into another of the same format, in the memory of a few batches of `rows`.

    The perturber's treatment must speak of every other column that looks telling, or nothing is
    written.
    """
    kind = _kind(source)
    if _kind(target) is not kind:
        raise InvalidInputError(
            f"{target.name} and {source.name} are of different formats; give the same suffix"
        )
    if target.resolve() == source.resolve():
        raise InvalidInputError(f"{target.name} would overwrite the file that it is read from")
    pyarrow = need("pyarrow", "perturbing files", "frames")
    tally = FrameSummary()
    perturber = copy(perturber)
    perturber.treatment = perturber.treatment or Treatment()
    try:
        with atomic_file(target) as raw:
            if kind is PARQUET and _is_of_points(perturber, source):
                geopandas = need("geopandas", "perturbing GeoParquet", "geo")
                perturber.frame(geopandas.read_parquet(source), tally).to_parquet(raw)
                return tally
            batches = _batches(source, rows, perturber.numeric)
            made = _stream(perturber, batches, tally, progress)
            if kind is not PARQUET:
                write = TextForm.of(source).write if kind is CSV else _write_lines
                with _zipped(target, raw) as stream:
                    stream.writelines(write(batch, header=k == 0) for k, batch in enumerate(made))
            elif (first := next(made, None)) is not None:
                from pyarrow import parquet

                with parquet.ParquetWriter(raw, first.schema) as writer:
                    for batch in chain([first], made):
                        writer.write(batch)
            tally.refuse_none()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError):
        # Arrow's messages show the value that it could not read.
        raise FileFormatError(
            f"{source.name} is damaged, its columns change their type, or one that is to be of "
            "numbers is not"
        ) from None
    return tally


def _zipped(target: Path, raw: BinaryIO) -> AbstractContextManager[Any]:
    """The stream itself, or one that compresses into it where the name says so."""
    if not target.name.lower().endswith(".gz"):
        return nullcontext(raw)
    return gzip.GzipFile("", "wb", fileobj=raw, mtime=0)


def _kind(path: Path) -> tuple[str, ...]:
    for suffixes in (CSV, LINES, PARQUET):
        if path.name.lower().endswith(suffixes):
            return suffixes
    known = ", ".join((*CSV, *LINES, *PARQUET))
    raise FileFormatError(f"{path.name} has an unknown suffix; known: {known}")


def _batches(source: Path, rows: int, numeric: list[str]) -> Iterator[Any]:
    """Arrow batches of a file; in text files the named columns are numbers, all others text."""
    kind = _kind(source)
    if kind is CSV:
        return iter(TextForm.of(source).batches(source, rows, numeric))
    if kind is LINES:
        return _objects(source, rows // 4)
    from pyarrow import parquet

    # What is buffered ahead stays until the end: memory would grow with the file.
    return iter(parquet.ParquetFile(source, pre_buffer=False).iter_batches(rows))


def _is_of_points(perturber: Perturber, source: Path) -> bool:
    """Whether places are GeoParquet's points, and not columns of degrees."""
    from pyarrow import parquet

    schema = parquet.read_schema(source)
    placed = set(perturber.columns.true) <= set(schema.names)
    return b"geo" in (schema.metadata or {}) and not placed


class TextForm(NamedTuple):
    """How a text file is written: what a sample of it shows."""

    names: list[str]
    encoding: str
    separator: str
    decimal_comma: bool
    quoted: bool
    """Whether every field stands in quotes, as some programs write them."""
    crlf: bool

    @classmethod
    def of(cls, path: Path) -> TextForm:
        """From the first lines of a file."""
        zipped = path.name.lower().endswith(".gz")
        try:
            with gzip.open(path, "rb") if zipped else path.open("rb") as raw:
                sample = raw.read(SAMPLE)
        except gzip.BadGzipFile:
            raise FileFormatError(f"{path.name} is not compressed by gzip") from None
        encoding = "utf-16" if sample[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf8"
        try:
            # A character may be cut at the end of the sample, and nowhere else.
            text = codecs.getincrementaldecoder(encoding)().decode(sample).lstrip("\ufeff")
        except UnicodeDecodeError:
            encoding = "cp1252"
            text = sample.decode(encoding, errors="replace")
        header, _, rest = text.partition("\n")
        unquoted = re.sub(r'"[^"]*"', "", header)
        separator = max(SEPARATORS, key=unquoted.count)
        if ".tsv" in path.suffixes[-2:]:
            separator = "\t"
        lines = list(csv.reader(io.StringIO(rest), delimiter=separator))[:-1]
        fields = [field for line in lines for field in line]
        parts = header.strip().split(separator)
        return cls(
            next(csv.reader([header.rstrip("\r")], delimiter=separator), []),
            encoding,
            separator,
            separator != "," and any(DECIMAL_COMMA.fullmatch(field) for field in fields),
            len(parts) > 0 and all(part[:1] == part[-1:] == '"' for part in parts),
            header.endswith("\r"),
        )

    def batches(self, path: Path, rows: int, numeric: list[str]) -> Any:
        """Arrow batches: text stays text (007 is not 7), the named columns become numbers."""
        import pyarrow
        from pyarrow import csv as reader

        types = dict.fromkeys(self.names, pyarrow.string())
        types |= dict.fromkeys(numeric, pyarrow.float64())
        return reader.open_csv(
            path,
            read_options=reader.ReadOptions(block_size=64 * rows, encoding=self.encoding),
            parse_options=reader.ParseOptions(
                delimiter=self.separator, newlines_in_values=self.quoted
            ),
            convert_options=reader.ConvertOptions(
                column_types=types,
                strings_can_be_null=False,
                decimal_point="," if self.decimal_comma else ".",
            ),
        )

    def write(self, batch: Any, *, header: bool) -> bytes:
        """The lines of a batch, as the file has them: quotes where they were or must be."""
        out = io.StringIO()
        writer = csv.writer(
            out,
            delimiter=self.separator,
            quoting=csv.QUOTE_ALL if self.quoted else csv.QUOTE_MINIMAL,
            lineterminator="\r\n" if self.crlf else "\n",
        )
        if header:
            writer.writerow(batch.schema.names)
        columns = []
        for column in batch.columns:
            values = column.to_pylist()
            if self.decimal_comma and str(column.type) == "double":
                values = [None if v is None else repr(v).replace(".", ",") for v in values]
            columns.append(values)
        writer.writerows(zip(*columns, strict=True))
        return out.getvalue().encode("utf-16-le" if self.encoding == "utf-16" else self.encoding)


def _write_lines(batch: Any, *, header: bool) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist()).encode()


def _objects(source: Path, rows: int) -> Iterator[Any]:
    """The objects of a file of lines as batches with all names that any of them has."""
    import pyarrow

    def read() -> Iterator[list[Facts]]:
        with source.open("rb") as raw:
            while lines := list(islice(raw, rows)):
                try:
                    objects = [json.loads(line) for line in lines if line.strip()]
                except ValueError:
                    objects = [None]
                if not all(isinstance(row, dict) for row in objects):
                    raise FileFormatError(f"{source.name} holds a line that is no JSON object")
                yield objects

    names = dict.fromkeys(name for objects in read() for row in objects for name in row)
    for objects in read():
        yield pyarrow.RecordBatch.from_pydict({n: [row.get(n) for row in objects] for n in names})


def _stream(
    perturber: Perturber, batches: Iterable[Any], summary: FrameSummary, progress: Progress
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


def read_columns(source: Path, names: list[str], rows: int = ROWS) -> Iterator[Any]:
    """Arrow tables of a file's rows, batch by batch: some columns, and those of reports."""
    pyarrow = need("pyarrow", "reading files", "frames")
    known = TextForm.of(source).names if _kind(source) is CSV else []
    told = [name for name in known if name in names or name.startswith("reported")]
    placed = [name for name in told if "lat" in name or "lon" in name]
    for batch in _batches(source, rows, placed):
        has = batch.schema.names
        kept = [name for name in has if name in names or name.startswith("reported")]
        # Where there is none of them, whoever looks for one says which there are.
        yield pyarrow.Table.from_batches([batch]).select(kept or has)
