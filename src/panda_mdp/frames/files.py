"""Files in, files out, batch by batch: CSV and TSV (gzip too), NDJSON, Parquet and GeoParquet.

Columns that are not asked about are copied as they are; a file appears whole or not at all.
Separators, decimal commas, encodings and quotes of text files come back as they came. The points of
GeoParquet are GeoPandas' affair, which reads them all at once.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.packages import need
from panda_mdp.base.text import Facts
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.frames.drawing import FrameSummary
from panda_mdp.frames.perturb import Perturber
from panda_mdp.frames.recipe import UNTREATED, Treatment

ROWS = 1 << 18
"""Rows of a batch: a few tens of MB."""
WORKERS = 2
CSV, LINES, PARQUET = (
    (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
    (".ndjson", ".jsonl"),
    (".parquet", ".geoparquet"),
)
OBJECT = "\0"
"""The column of a line's whole object."""
SAMPLE = 1 << 16
"""Bytes that separators, quotes and the encoding are told from."""
SEPARATORS = ",;\t|"
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
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
    treatment: Treatment = UNTREATED,
) -> FrameSummary:
    """Perturb a file into another of the same format, in the memory of a few batches of `rows`.

    The `treatment` must speak of every other column that looks telling, or nothing is written.
    """
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
        with atomic_file(target) as raw:
            if kind is PARQUET and _is_of_points(perturber, source):
                geopandas = need("geopandas", "perturbing GeoParquet", "geo")
                frame = geopandas.read_parquet(source)
                treatment.check(list(frame.columns), [frame.geometry.name])
                made = perturber.frame(frame, tally)
                others = [name for name in made.columns if name in treatment.columns]
                table = pyarrow.Table.from_pandas(made[others], preserve_index=False)
                coarse = treatment.apply(table).to_pandas().set_index(made.index)
                gone = [name for name in others if name not in coarse]
                made.drop(columns=gone).assign(**coarse).to_parquet(raw)
                return tally
            if kind is not LINES:
                treatment.check(_names_of(source), perturber.columns.true)
            batches, finish, writer_of = run(perturber, source, rows, treatment)
            stream_of = _stream(perturber, batches, tally, progress)
            made = map(finish, _treated(stream_of, treatment))
            if writer_of is None:
                with _zipped(target, raw) as stream:
                    stream.writelines(made)
            elif (first := next(made, None)) is not None:
                with writer_of(raw, first.schema) as writer:
                    for batch in chain([first], made):
                        writer.write(batch)
            tally.refuse_none()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        # Arrow's messages show the value that it could not read.
        raise FileFormatError(
            f"{source.name} is damaged or its columns change their type"
        ) from None
    return tally


def _names_of(source: Path) -> list[str]:
    if _kind(source) is CSV:
        return TextForm.of(source).names
    from pyarrow import parquet

    return list(parquet.read_schema(source).names)


def _treated(batches: Iterator[Any], treatment: Treatment) -> Iterator[Any]:
    import pyarrow

    for batch in batches:
        treated = treatment.apply(pyarrow.Table.from_batches([batch]))
        yield from treated.combine_chunks().to_batches()


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


def _csv(perturber: Perturber, source: Path, rows: int, _: Treatment) -> Format:
    form, written = TextForm.of(source), [0]
    numeric = [] if perturber.columns.record is not None else perturber.columns.true
    if perturber.columns.record is not None and perturber.sampler.domain.labels is None:
        numeric = perturber.columns.true

    def finish(batch: Any) -> bytes:
        written[0] += 1
        return form.write(batch, header=written[0] == 1)

    return form.batches(source, rows, numeric), finish, None


def _parquet(perturber: Perturber, source: Path, rows: int, _: Treatment) -> Format:
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


def _lines(perturber: Perturber, source: Path, rows: int, treatment: Treatment) -> Format:
    """Objects, one per line; only the columns that are asked for become a table beside them."""
    import pyarrow

    columns, ways = perturber.columns, treatment.columns
    gone = {*columns.dropped, *(name for name, way in ways.items() if way == "drop")}

    def read() -> Iterator[Any]:
        for objects in _objects(source, rows):
            names = {name: None for row in objects for name in row}
            treatment.check([*names, *ways], columns.true)
            named = {n: [row.get(n) for row in objects] for n in {*columns.read, *ways} - {OBJECT}}
            yield pyarrow.RecordBatch.from_pydict({**named, OBJECT: list(map(json.dumps, objects))})

    def written(batch: Any) -> bytes:
        lines = []
        for drawn in batch.to_pylist():
            row = json.loads(drawn[OBJECT])
            row |= {
                name: value
                for name, value in drawn.items()
                if name.startswith("reported") or (name in row and ways.get(name, "keep") != "keep")
            }
            kept = {name: value for name, value in row.items() if name not in gone}
            lines.append(json.dumps(kept, ensure_ascii=False) + "\n")
        return "".join(lines).encode()

    return read(), written, None


def _same(batch: Any) -> Any:
    return batch


def _objects(source: Path, rows: int) -> Iterator[list[Facts]]:
    """The objects of a file of lines, some at a time."""
    with source.open("rb") as raw:
        while lines := list(islice(raw, rows // 4)):
            try:
                objects = [json.loads(line) for line in lines if line.strip()]
            except ValueError:
                objects = [None]
            if not all(isinstance(row, dict) for row in objects):
                raise FileFormatError(f"{source.name} holds a line that is no JSON object")
            yield objects


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


def read_columns(source: Path, names: list[str], rows: int = ROWS) -> Iterator[Any]:
    """Arrow tables of a file's rows, batch by batch: some columns, and those of reports."""
    pyarrow = need("pyarrow", "reading files", "frames")
    kind = _kind(source)
    if kind is CSV:
        form = TextForm.of(source)
        placed = [name for name in form.names if "lat" in name or "lon" in name]
        batches = form.batches(source, rows, [name for name in placed if _told(name, names)])
    elif kind is PARQUET:
        from pyarrow import parquet

        batches = parquet.ParquetFile(source, pre_buffer=False).iter_batches(rows)
    else:
        batches = map(pyarrow.RecordBatch.from_pylist, _objects(source, rows))
    for batch in batches:
        kept = [name for name in batch.schema.names if _told(name, names)]
        yield pyarrow.Table.from_batches([batch]).select(kept)


def _told(name: str, names: list[str]) -> bool:
    return name in names or name.startswith("reported")
