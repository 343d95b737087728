"""Where results are kept: one line of JSON per cell, appended and flushed as each is done."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.plain import plain
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_paper.draws import Study
from panda_paper.specs import Cell, Item, Setting

Status = Literal["done", "infeasible", "time limit", "out of memory", "failed"]
RESULTS, ENVIRONMENT, STUDY = "cells.jsonl", "environment.json", "study.json"
PACKAGES = ("panda-mdp", "numpy", "scipy", "numba", "highspy", "jax", "matplotlib")


@dataclass(frozen=True)
class Outcome:
    """What a cell gave. Losses in metres (`..._m`), epsilons per km, times in seconds."""

    values: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[tuple[str, float], ...] = ()
    status: Status = "done"
    note: str = ""

    @property
    def seconds(self) -> float:
        """Time that all stages took."""
        return sum(seconds for _, seconds in self.stages)


@dataclass(frozen=True)
class Row:
    """A cell with its outcome, the seed of its draw, the limit it ran under, and where and when."""

    cell: Cell
    outcome: Outcome
    limit: float | None
    environment: str
    date: str

    @property
    def status(self) -> Status:
        return self.outcome.status

    def value(self, name: str) -> Any:
        """A value of the outcome; None where it has none. `seconds` is the sum of the stages."""
        if name == "seconds":
            return self.outcome.seconds if self.status == "done" else None
        return self.outcome.values.get(name)

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "key": self.cell.key,
            **self.cell.fields(),
            "status": self.outcome.status,
            "note": self.outcome.note,
            "values": dict(self.outcome.values),
            "stages": [list(stage) for stage in self.outcome.stages],
            "seed": self.cell.repeat,
            "limit": self.limit,
            "environment": self.environment,
            "date": self.date,
        }

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Row:
        """The row of a line."""
        cell = Cell(
            kind=fields["kind"],
            method=fields["method"],
            setting=Setting(**fields["setting"]),
            repeat=fields["repeat"],
            options=tuple(fields["options"].items()),
        )
        stages = tuple((str(name), float(seconds)) for name, seconds in fields["stages"])
        outcome = Outcome(_restored(fields["values"]), stages, fields["status"], fields["note"])
        return cls(cell, outcome, fields["limit"], fields["environment"], fields["date"])


def matching(item: Item, rows: Iterable[Row]) -> list[Row]:
    """The rows of an item's cells, those of one cell in order of their repeats."""
    found = [row for row in rows if item.shows(row.cell)]
    return sorted(found, key=lambda row: row.cell.repeat)


class Store:
    """The results of one study: a folder with `cells.jsonl`, readable at any moment.

    Lines are appended, flushed and synced one by one, so an interrupt loses at most the cell that
    was running; a line that was cut off is dropped when the store is opened again. The last line
    of a cell counts. Results of another city are refused.
    """

    def __init__(self, folder: Path, study: Study) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._check_study(study)
        self._environment = self._remember_environment()
        self._rows: dict[str, Row] = {}
        self._open()

    @property
    def path(self) -> Path:
        return self.folder / RESULTS

    def get(self, cell: Cell) -> Row | None:
        """The latest result of a cell."""
        return self._rows.get(cell.key)

    @property
    def rows(self) -> list[Row]:
        """The latest result of every cell."""
        return list(self._rows.values())

    def add(self, cell: Cell, outcome: Outcome, limit: float | None) -> Row:
        """Append a result."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        row = Row(cell, outcome, limit, self._environment, now)
        line = json.dumps(plain(row.fields(), "words"), allow_nan=False) + "\n"
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        self._rows[cell.key] = row
        return row

    def _open(self) -> None:
        if not self.path.exists():
            return
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            with atomic_file(self.path) as stream:
                stream.write(whole)
        for number, line in enumerate(whole.decode().splitlines(), start=1):
            try:
                row = Row.read(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                msg = (
                    f"{self.path}: line {number} is no result ({error}); remove the line, or "
                    "choose another folder"
                )
                raise FileFormatError(msg) from None
            self._rows[row.cell.key] = row

    def _check_study(self, study: Study) -> None:
        path = self.folder / STUDY
        facts = {
            "city": study.name,
            "synthetic": study.synthetic,
            "nodes": study.city.nodes,
            "streets": study.city.streets,
            "fingerprint": city_fingerprint(study),
            "real_prior": study.prior_source("real"),
        }
        if path.exists():
            known = json.loads(path.read_text())
            for name in ("fingerprint", "real_prior"):
                if known.get(name) != facts[name]:
                    msg = (
                        f"{self.folder} holds results of another study ({name} differs: "
                        f"{known.get(name)!r}, now {facts[name]!r}); choose another --out"
                    )
                    raise InvalidInputError(msg)
            return
        with atomic_file(path) as stream:
            stream.write((json.dumps(facts, indent=1) + "\n").encode())

    def _remember_environment(self) -> str:
        path = self.folder / ENVIRONMENT
        known = json.loads(path.read_text()) if path.exists() else {}
        found = environment()
        name = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:8]
        if name not in known:
            known[name] = found
            with atomic_file(path) as stream:
                stream.write((json.dumps(known, indent=1) + "\n").encode())
        return name


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


def city_fingerprint(study: Study) -> str:
    """A hash of the city's nodes and streets."""
    digest = hashlib.sha256()
    city = study.city
    for array in (city.lat, city.lon, city.u, city.v, city.length_m):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _restored(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _restore(value) for name, value in values.items()}


def _restore(value: Any) -> Any:
    if isinstance(value, list):
        return [_restore(entry) for entry in value]
    return float(value) if value in ("inf", "-inf", "nan") else value
