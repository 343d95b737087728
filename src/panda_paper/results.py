"""Results on disk: one line of JSON per cell, appended and flushed as each is done."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
import os
import platform
import subprocess
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.plain import plain
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.survey.bench import Outcome, Status
from panda_mdp.version import __version__
from panda_paper.cell import Cell, Template
from panda_paper.items import ITEMS, Item
from panda_paper.study import Study, title_of

RESULTS, ENVIRONMENT, STUDY = "cells.jsonl", "environment.json", "study.json"
PACKED = f"{RESULTS}.gz"
"""Earlier lines, where they were packed: `gzip -c cells.jsonl >> cells.jsonl.gz`."""
PACKAGES = ("panda-mdp", "numpy", "scipy", "numba", "highspy", "jax", "matplotlib")
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
        """A value of the outcome; None where it has none. `seconds` is the sum of the stages."""
        if name == "seconds":
            return self.outcome.seconds if self.status == "done" else None
        return self.outcome.values.get(name)

    def settled(self, limit: float | None) -> bool:
        """Whether running the cell again under a limit could not tell more."""
        if self.status == "time limit":
            return self.limit is not None and limit is not None and self.limit >= limit
        return self.status != "failed"

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "key": self.cell.key,
            **self.cell.fields(),
            "status": self.outcome.status,
            "note": self.outcome.note,
            "values": dict(self.outcome.values),
            "stages": self.outcome.stages,
            "seed": self.cell.repeat,
            "limit": self.limit,
            "environment": self.environment,
            "date": self.date,
            "version": self.version,
        }

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Row:
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


def matching(item: Item, rows: Iterable[Row]) -> list[Row]:
    """The rows of an item's cells, those of one cell in order of their repeats."""
    return sorted((row for row in rows if item.shows(row.cell)), key=lambda row: row.cell.repeat)


def rows_of(item: Item, rows: Sequence[Row]) -> list[Row]:
    """Rows of an item at its own settings, else at toy size, else at any size."""
    for shown in (item.with_all_of(item), item.toy()):
        fitting = matching(shown, rows)
        if fitting:
            return fitting
    loose = {_any_size(template) for template in item.templates}
    return [row for row in rows if _any_size(row.cell.template) in loose]


def _any_size(template: Template) -> Template:
    kind, method, setting, options = template
    return kind, method, replace(setting, records=0), options


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
        if self.path.exists():
            text = self.path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            if len(whole) < len(text):
                with atomic_file(self.path) as stream:
                    stream.write(whole)
        self._rows = read_rows(self.folder)

    @property
    def path(self) -> Path:
        return self.folder / RESULTS

    @property
    def rows(self) -> list[Row]:
        """The latest result of every cell."""
        return list(self._rows.values())

    def get(self, cell: Cell) -> Row | None:
        """The latest result of a cell."""
        return self._rows.get(cell.key)

    def known(self, cell: Cell, limit: float | None) -> Outcome | None:
        """The outcome of a cell where another run could not tell more.

        That is where it was done or infeasible, or ran into a limit at least as long.
        """
        row = None if self._fresh else self.get(cell)
        return row.outcome if row is not None and row.settled(limit) else None

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
        path = self.folder / STUDY
        facts = study.facts
        known = read_json(path)
        for name in ("fingerprint", "real_prior") if known else ():
            if known.get(name) != facts[name]:
                msg = (
                    f"{self.folder} holds results of another study ({name} differs: "
                    f"{known.get(name)!r}, now {facts[name]!r}); choose another --out"
                )
                raise InvalidInputError(msg)
        if not known or known.get("remark", "") != study.remark:
            _write_json(path, facts)

    def _remember_environment(self) -> str:
        path = self.folder / ENVIRONMENT
        known, here = read_json(path), environment()
        name = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()[:8]
        if name not in known:
            _write_json(path, {**known, name: here})
        return name


def read_rows(folder: Path) -> dict[str, Row]:
    """The latest row of every cell of a folder, by the cell's key: packed lines, then the others.

    A last line that was cut off, which is what an interrupt leaves, is passed over.
    """
    rows: dict[str, Row] = {}
    for path in (folder / PACKED, folder / RESULTS):
        text = _text(path) if path.exists() else ""
        lines = text.splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                row = Row.read(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if number == len(lines) and not text.endswith("\n"):
                    continue
                msg = (
                    f"{path}: line {number} is no result ({error}); remove the line, or choose "
                    "another folder"
                )
                raise FileFormatError(msg) from None
            rows[row.cell.key] = row
    return rows


def _text(path: Path) -> str:
    if path.name != PACKED:
        return path.read_text(encoding="utf-8")
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            return stream.read()
    except (OSError, EOFError, zlib.error) as error:
        msg = f"{path} cannot be unpacked ({error}); choose another folder"
        raise FileFormatError(msg) from None


def read_json(path: Path) -> dict[str, Any]:
    """What a JSON file says; nothing where there is none."""
    if not path.exists():
        return {}
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return known


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with atomic_file(path) as stream:
        stream.write((json.dumps(value, indent=1) + "\n").encode())


@dataclass(frozen=True, eq=False)
class CityResults:
    """What is known of one city: its rows, the city's facts, the machines that ran it.

    This is what the report and the checklist read; no city file is needed.
    """

    folder: Path
    facts: Mapping[str, Any]
    environments: Mapping[str, Any]
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The city's name."""
        return str(self.facts.get("city") or self.folder.name)

    @property
    def title(self) -> str:
        """The city's name as a word of a sentence."""
        return title_of(self.name, self.facts.get("remark", ""))

    def of(self, name: str) -> list[Row]:
        """The rows that belong to an item."""
        if name not in self._rows_by_item:
            self._rows_by_item[name] = rows_of(ITEMS[name], self.rows)
        return self._rows_by_item[name]

    @cached_property
    def _rows_by_item(self) -> dict[str, list[Row]]:
        return {}

    @property
    def versions(self) -> list[str]:
        """What made the results."""
        return sorted({row.version for row in self.rows})

    @property
    def dates(self) -> tuple[str, str]:
        """When the first and the last result came in."""
        dates = sorted(row.date for row in self.rows) or [""]
        return dates[0], dates[-1]


def load_results(folder: Path) -> tuple[CityResults, ...]:
    """The results in a folder and in the folders right below it, the paper's cities first."""
    places = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    loaded = [
        CityResults(
            place,
            read_json(place / STUDY),
            read_json(place / ENVIRONMENT),
            tuple(read_rows(place).values()),
        )
        for place in places
        if (place / PACKED).exists() or (place / RESULTS).exists()
    ]
    if not loaded:
        msg = (
            f"{folder} holds no results ({RESULTS}); run `panda-mdp reproduce all --city FILE "
            f"--out {folder}` first"
        )
        raise FileFormatError(msg)
    order = {name: place for place, name in enumerate(CITIES)}
    return tuple(sorted(loaded, key=lambda one: (order.get(one.name.lower(), 9), one.name)))


@cache
def made_by() -> str:
    """The library's version, with its commit where it runs from a checkout."""
    source = Path(__file__).parents[1]
    try:
        commit = _git(source, "rev-parse", "--short", "HEAD")
        changed = _git(source, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{commit}{'-changed' if changed else ''}"


def _git(folder: Path, *arguments: str) -> str:
    command = ("git", "-C", str(folder), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    return done.stdout.strip()


def environment() -> dict[str, Any]:
    """The machine and the versions that results depend on."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "packages": versions,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
