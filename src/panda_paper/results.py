"""Results: rows on disk, one line of JSON per cell, appended and flushed as each is done; and the
series that tables, figures and claims make of them, means and 1.96 standard deviations as the paper
gives them."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
import os
import platform
import re
import subprocess
import zlib
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import distributions
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.atomic import write_whole
from panda_mdp.base.text import Facts, plain
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.survey.bench import Outcome, Status
from panda_mdp.version import __version__
from panda_paper.items import ITEMS, Cell, Item
from panda_paper.study import Study, title_of

SPREAD = 1.96
STEP = 0.02
"""A step of less than this share of the largest value is neither up nor down."""

Trend = Literal["grows", "falls", "neither", "nothing to see"]


@dataclass(frozen=True)
class Series:
    """Points (x, mean) with their spread over repeats; x ascending."""

    label: str
    x: FloatArray
    mean: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, label: str, points: Iterable[tuple[float, ...]]) -> Series:
        """The series of points (x, mean, spread)."""
        x, mean, spread = np.array(list(points), dtype=float).reshape(-1, 3).T
        return cls(label, x, mean, spread)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def low(self) -> float:
        """The least mean."""
        return float(self.mean.min())

    @property
    def high(self) -> float:
        """The largest mean."""
        return float(self.mean.max())

    @property
    def ends(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The first point and the last."""
        points = list(zip(self.x.tolist(), self.mean.tolist(), strict=True))
        return points[0], points[-1]

    def at(self, x: float) -> float:
        """The mean at a point; NaN where there is none."""
        return float(np.append(self.mean[np.isclose(self.x, x)], np.nan)[0])


class Listed(dict[str, Any]):
    """Something of each variant, in words by its name without its accounting.

    >>> f"{Listed({'PAnDA-e published': 0.5, 'PAnDA-p text': 1}):.1%}"
    'PAnDA-e 50.0%, PAnDA-p 100.0%'
    """

    def __format__(self, form: str) -> str:
        return ", ".join(f"{variant(name)} {format(one, form)}" for name, one in self.items())


class Averages(dict[str, float]):
    """One number of each method, in words the range of shares.

    >>> f"{Averages(a=0.5, b=0.25):.1%}", f"{Averages(a=0.5):.1%}", Averages(a=0.5, b=0.25).mean
    ('25.0% to 50.0%', '50.0%', 0.375)
    """

    @property
    def low(self) -> float:
        """The least number."""
        return min(self.values())

    @property
    def high(self) -> float:
        """The largest number."""
        return max(self.values())

    @property
    def mean(self) -> float:
        """The mean of all."""
        return float(np.mean([*self.values()]))

    @property
    def each(self) -> Listed:
        """All of them by name."""
        return Listed(self)

    def __format__(self, form: str) -> str:
        low = format(self.low, form)
        high = format(self.high, form)
        return low if self.high - self.low < 5e-4 else f"{low} to {high}"


class Curves(list[Series]):
    """The series of several methods."""

    @property
    def low(self) -> float:
        """The least mean of all."""
        return min(one.low for one in self)

    @property
    def high(self) -> float:
        """The largest mean of all."""
        return max(one.high for one in self)

    @property
    def share(self) -> float:
        """The mean of all, each as a share of its place."""
        return float(np.concatenate([one.mean / one.x for one in self]).mean())

    @property
    def averages(self) -> Averages:
        """The mean of each method's means."""
        return Averages({one.label: float(one.mean.mean()) for one in self})


def variant(name: str) -> str:
    """The name of a variant without its accounting."""
    return name.removesuffix(" published").removesuffix(" text")


def below(mine: Series, theirs: Series) -> FloatArray:
    """How much lower one series is than another, at every point that both have."""
    return np.array([1 - mine.at(x) / theirs.at(x) for x in np.intersect1d(mine.x, theirs.x)])


def deviation(values: FloatArray) -> float:
    """1.96 sample standard deviations; 0 for a single value or where one is infinite."""
    spread_known = len(values) > 1 and np.isfinite(values).all()
    return SPREAD * float(np.std(values, ddof=1)) if spread_known else 0.0


def trend(values: npt.ArrayLike) -> Trend:
    """Whether a sequence grows or falls: every step, up to 2 % of its largest value.

    >>> trend([1.0, 2.0, 2.0, 5.0]), trend([3.0, 1.0]), trend([1.0, 3.0, 1.0]), trend([1.0])
    ('grows', 'falls', 'neither', 'nothing to see')
    """
    every = np.asarray(values, dtype=float)
    finite = every[np.isfinite(every)]
    if len(finite) < 2 or np.ptp(finite) == 0:
        return "nothing to see"
    steps = np.diff(finite) / np.abs(finite).max()
    if finite[-1] > finite[0] and steps.min() >= -STEP:
        return "grows"
    return "falls" if finite[-1] < finite[0] and steps.max() <= STEP else "neither"


RESULTS = "cells.jsonl"
ENVIRONMENT = "environment.json"
STUDY = "study.json"
PACKED = f"{RESULTS}.gz"
"""Earlier lines, where they were packed: `gzip -c cells.jsonl >> cells.jsonl.gz`."""
PACKAGES = ("panda-mdp", "numpy", "scipy", "numba", "highspy", "jax", "matplotlib")
NO_NUMBER = (bool, str, type(None))
CITIES = ("rome", "nyc", "london")
"""In the paper's order."""


@dataclass(frozen=True)
class Row:
    """A cell with its outcome, the limit it ran under, and when, where and by what it was made."""

    cell: Cell
    outcome: Outcome
    limit: float | None
    environment: str
    date: str
    version: str = ""
    """The library's version, with its commit where it ran from a checkout."""

    @property
    def status(self) -> Status:
        return self.outcome.status

    def value(self, name: str) -> Any:
        """A value of the outcome, an option or part of the setting; None where there is none.

        `seconds` is the sum of the stages, where it is done.
        """
        if name == "seconds":
            return self.outcome.seconds if self.status == "done" else None
        options = dict(self.cell.options)
        setting = vars(self.cell.setting)
        return ChainMap(dict(self.outcome.values), options, setting).get(name)

    def is_final(self, limit: float | None) -> bool:
        """Whether running the cell again under a limit could not tell more."""
        if self.status == "time limit":
            return self.limit is not None and limit is not None and self.limit >= limit
        return self.status != "failed"

    def fields(self) -> Facts:
        """As JSON has it."""
        facts_of_row = asdict(self) | {"seed": self.cell.repeat}
        del facts_of_row["cell"]
        return {
            "key": self.cell.key,
            **self.cell.fields(),
            **facts_of_row.pop("outcome"),
            **facts_of_row,
        }

    @classmethod
    def read(cls, fields: Facts) -> Row:
        """The row of a line."""
        stages = tuple((str(name), float(seconds)) for name, seconds in fields["stages"])
        values = {name: _restored(value) for name, value in fields["values"].items()}
        outcome = Outcome(values, stages, fields["status"], fields["note"])
        facts = (fields[name] for name in ("limit", "environment", "date", "version"))
        return cls(Cell.read(fields), outcome, *facts)


def _restored(value: Any) -> Any:
    """Infinities, for which JSON has words."""
    if isinstance(value, list):
        return [_restored(entry) for entry in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


class Rows(tuple[Row, ...]):
    """Rows of one item or of a whole study, and what figures, tables and claims ask of them."""

    def of(self, *methods: str) -> Rows:
        """Those of some methods that ended with a result."""
        return Rows(row for row in self if row.cell.method in methods and row.status == "done")

    def where(self, **facts: Any) -> Rows:
        """Those of cells with these options, or at these settings."""
        return Rows(row for row in self if all(row.value(name) == facts[name] for name in facts))

    def places(self, axis: str) -> list[float]:
        """The points of the experiment that there are rows of."""
        return sorted({row.value(axis) for row in self})

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.cell.method for row in self))

    def points(self, value: str, axis: str = "records") -> FloatArray:
        """A value of all rows that have it as a number, with its place on an axis, entries of lists
        one by one: (2, n)."""
        found = [(row.value(axis), row.value(value)) for row in self]
        known_pairs = [
            pair for pair in found if not any(isinstance(one, NO_NUMBER) for one in pair)
        ]
        pairs = [np.stack(np.broadcast_arrays(*pair)).reshape(2, -1) for pair in known_pairs]
        every = np.hstack([np.empty((2, 0)), *pairs])
        return every[:, ~np.isnan(every[1])]

    def numbers(self, value: str) -> FloatArray:
        """A value of all rows that have it as a number, entries of lists one by one."""
        return self.points(value)[1]

    def largest(self, value: str) -> float:
        """The largest of a value; NaN where no row has it."""
        return max(self.numbers(value).tolist(), default=float("nan"))

    def mean(self, value: str) -> float:
        """The mean of a value; NaN where no row has it."""
        found = self.numbers(value)
        return float(found.mean()) if len(found) else float("nan")

    def series(self, value: str, axis: str = "records", label: str = "") -> Series:
        """A value against an axis; points that no row has it at are left out."""
        x, every = self.points(value, axis)
        found = ((place, every[x == place]) for place in np.unique(x))
        return Series.of(label, [(place, one.mean(), deviation(one)) for place, one in found])

    def curves(
        self, methods: Iterable[str], value: str, axis: str = "records", fewest: int = 1
    ) -> Curves:
        """The series of those methods that have at least so many points."""
        found = (self.of(name).series(value, axis, name) for name in methods)
        return Curves(series for series in found if len(series) >= fewest)

    def holds(self, method: str) -> bool:
        """Whether a method has results and the audit of every one holds."""
        verdicts = [row.value("holds") for row in self if row.cell.method == method]
        return bool(verdicts) and all(held is True for held in verdicts)


def matching(item: Item, rows: Iterable[Row]) -> Rows:
    """The rows of an item's cells, those of one cell in order of their repeats."""
    return Rows(
        sorted(filter(lambda row: item.shows(row.cell), rows), key=attrgetter("cell.repeat"))
    )


def rows_of(item: Item, rows: Iterable[Row]) -> Rows:
    """Rows of an item at its own settings, else at toy size, else at any size."""
    for shown in (item, item.toy()):
        fitting = matching(shown, rows)
        if fitting:
            return fitting
    loose = {cell.at(records=0) for cell in item.plan}
    return Rows(row for row in rows if row.cell.first.at(records=0) in loose)


class CellStore:
    """The results of one study: a folder with `cells.jsonl`, readable at any moment.

    Lines are appended, flushed and synced one by one, so an interrupt loses at most the cell that
    was running; a line that was cut off is dropped when the store is opened again. The last line
    of a cell counts, and lines in `cells.jsonl.gz` come before those in `cells.jsonl`. Results of
    another city are refused. With `fresh` no earlier result counts as known.
    """

    def __init__(self, study: Study, *, fresh: bool = False) -> None:
        self.folder = study.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_study(study)
        self._environment = self._remember_environment()
        self._fresh = fresh
        text = self.path.read_bytes() if self.path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            write_whole(self.path, whole)
        self._rows = read_rows(self.folder)

    @property
    def path(self) -> Path:
        return self.folder / RESULTS

    @property
    def rows(self) -> Rows:
        """The latest result of every cell."""
        return Rows(self._rows.values())

    def get(self, cell: Cell) -> Row | None:
        """The latest result of a cell."""
        return self._rows.get(cell.key)

    def has_final(self, cell: Cell, limit: float | None) -> bool:
        """Whether another run of a cell could not tell more: it was done or infeasible, or ran into
        a limit at least as long."""
        row = None if self._fresh else self.get(cell)
        return row is not None and row.is_final(limit)

    def add(self, cell: Cell, outcome: Outcome, limit: float | None) -> None:
        """Append a result."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        row = Row(cell, outcome, limit, self._environment, now, made_by())
        line = json.dumps(plain(row.fields(), "words"), allow_nan=False) + "\n"
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        self._rows[cell.key] = row

    def _check_study(self, study: Study) -> None:
        stored_facts = read_json(self.folder / STUDY)
        facts = study.facts
        for name in ("fingerprint", "real_prior") if stored_facts else ():
            if stored_facts.get(name) != facts[name]:
                raise InvalidInputError(
                    f"{self.folder} holds results of another study ({name} differs: "
                    f"{stored_facts.get(name)!r}, now {facts[name]!r}); choose another --out"
                )
        if not stored_facts or stored_facts.get("remark", "") != study.remark:
            _write_json(self.folder / STUDY, facts)

    def _remember_environment(self) -> str:
        path = self.folder / ENVIRONMENT
        environments = read_json(path)
        here = environment()
        name = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()[:8]
        if name not in environments:
            _write_json(path, {**environments, name: here})
        return name


def read_rows(folder: Path) -> dict[str, Row]:
    """The latest row of every cell of a folder, by the cell's key: packed lines, then the others.

    A last line that was cut off, which is what an interrupt leaves, is passed over.
    """
    rows: dict[str, Row] = {}
    for path in filter(Path.exists, (folder / PACKED, folder / RESULTS)):
        try:
            text = (gzip.decompress if path.name == PACKED else bytes)(path.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise FileFormatError(
                f"{path} cannot be unpacked ({error}); choose another folder"
            ) from None
        *lines, cut_off = text.split(b"\n")
        for number, line in enumerate([*lines, *([cut_off] if cut_off else [])], start=1):
            try:
                row = Row.read(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if line is cut_off:
                    continue
                raise FileFormatError(
                    f"{path}: line {number} is no result ({error}); remove the line, or choose "
                    "another folder"
                ) from None
            rows[row.cell.key] = row
    return rows


def read_json(path: Path) -> Facts:
    """What a JSON file says; nothing where there is none."""
    if not path.exists():
        return {}
    facts: Facts = json.loads(path.read_text(encoding="utf-8"))
    return facts


def _write_json(path: Path, value: Facts) -> None:
    write_whole(path, json.dumps(value, indent=1) + "\n")


@dataclass(frozen=True, eq=False)
class CityResults:
    """What is known of one city: its rows, the city's facts, the machines that ran it.

    This is what the report and the checklist read; no city file is needed.
    """

    folder: Path
    facts: Facts
    environments: Facts
    rows: Rows
    _items: dict[str, Rows] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The city's name."""
        return str(self.facts.get("city") or self.folder.name)

    @property
    def title(self) -> str:
        """The city's name as a word of a sentence."""
        return title_of(self.name, self.facts.get("remark", ""))

    def of(self, name: str) -> Rows:
        """The rows that belong to an item."""
        if name not in self._items:
            self._items[name] = rows_of(ITEMS[name], self.rows)
        return self._items[name]


def load_results(folder: Path) -> tuple[CityResults, ...]:
    """The results in a folder and in the folders right below it, the paper's cities first."""
    places = {path.parent for end in ("", "*/") for path in folder.glob(f"{end}{RESULTS}*")}
    if not places:
        raise FileFormatError(
            f"{folder} holds no results ({RESULTS}); run `panda-mdp reproduce all --city FILE "
            f"--out {folder}` first"
        )
    loaded = [
        CityResults(
            place,
            read_json(place / STUDY),
            read_json(place / ENVIRONMENT),
            Rows(read_rows(place).values()),
        )
        for place in places
    ]
    order = {name: place for place, name in enumerate(CITIES)}
    return tuple(sorted(loaded, key=lambda one: (order.get(one.name.lower(), 9), one.name)))


@cache
def made_by() -> str:
    """The library's version, with its commit where it runs from a checkout."""
    describe = ("git", "describe", "--always", "--exclude=*", "--dirty=-changed")
    folder = Path(__file__).parent
    try:
        done = subprocess.run(  # noqa: S603
            describe, cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{done.stdout.strip()}"


def environment() -> Facts:
    """The machine and the versions that results depend on."""
    info = Path("/proc/cpuinfo")
    model = re.search("model name\\s*: (.*)", info.read_text() if info.exists() else "")
    installed = {one.name: one.version for one in distributions()}
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": model[1] if model else platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "packages": {name: installed.get(name, "not installed") for name in PACKAGES},
    }
