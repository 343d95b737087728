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
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.plain import plain
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.version import __version__
from panda_paper.cells.outcome import Outcome, Row
from panda_paper.cells.workspace import Study
from panda_paper.settings.cell import Cell

RESULTS, ENVIRONMENT, STUDY = "cells.jsonl", "environment.json", "study.json"
PACKED = f"{RESULTS}.gz"
"""Earlier lines, where they were packed: `gzip -c cells.jsonl >> cells.jsonl.gz`."""
PACKAGES = ("panda-mdp", "numpy", "scipy", "numba", "highspy", "jax", "matplotlib")


class Store:
    """The results of one study: a folder with `cells.jsonl`, readable at any moment.

    Lines are appended, flushed and synced one by one, so an interrupt loses at most the cell that
    was running; a line that was cut off is dropped when the store is opened again. The last line
    of a cell counts, and lines in `cells.jsonl.gz` come before those in `cells.jsonl`. Results of
    another city are refused.
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
        row = Row(cell, outcome, limit, self._environment, now, made_by())
        line = json.dumps(plain(row.fields(), "words"), allow_nan=False) + "\n"
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        self._rows[cell.key] = row
        return row

    def _open(self) -> None:
        if self.path.exists():
            text = self.path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            if len(whole) < len(text):
                with atomic_file(self.path) as stream:
                    stream.write(whole)
        self._rows = read_rows(self.folder)

    def _check_study(self, study: Study) -> None:
        path = self.folder / STUDY
        facts = {
            "city": study.name,
            "synthetic": study.synthetic,
            "nodes": study.city.nodes,
            "streets": study.city.streets,
            "fingerprint": city_fingerprint(study),
            "real_prior": study.prior_source("real"),
            "remark": study.remark,
        }
        known = read_json(path)
        if known:
            for name in ("fingerprint", "real_prior"):
                if known.get(name) != facts[name]:
                    msg = (
                        f"{self.folder} holds results of another study ({name} differs: "
                        f"{known.get(name)!r}, now {facts[name]!r}); choose another --out"
                    )
                    raise InvalidInputError(msg)
            if known.get("remark", "") == study.remark:
                return
        with atomic_file(path) as stream:
            stream.write((json.dumps(facts, indent=1) + "\n").encode())

    def _remember_environment(self) -> str:
        path = self.folder / ENVIRONMENT
        known, here = read_json(path), environment()
        name = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()[:8]
        if name not in known:
            with atomic_file(path) as stream:
                stream.write((json.dumps({**known, name: here}, indent=1) + "\n").encode())
        return name


def has_results(folder: Path) -> bool:
    """Whether a folder holds results, packed or not."""
    return any((folder / name).exists() for name in (PACKED, RESULTS))


def read_rows(folder: Path) -> dict[str, Row]:
    """The latest row of every cell of a folder, by the cell's key: packed lines, then the others.

    A last line that was cut off, which is what an interrupt leaves, is passed over.
    """
    rows: dict[str, Row] = {}
    for name in (PACKED, RESULTS):
        path = folder / name
        if not path.exists():
            continue
        text = _text(path)
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


@cache
def made_by() -> str:
    """The library's version, with its commit where it runs from a checkout."""
    source = Path(__file__).parents[2]
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
