"""Results: one line of JSON per cell on the disk, appended and flushed as each is done, and the
table of all of them that tables, figures and claims are made from."""

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
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.atomic import write_whole
from panda_mdp.base.packages import need
from panda_mdp.base.text import Facts, plain
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.survey.bench import Outcome
from panda_mdp.version import __version__
from panda_paper.items import ITEMS, Cell, Item, Setting
from panda_paper.paper import CITY_NAMES
from panda_paper.study import Study

RESULTS = "cells.jsonl"
ENVIRONMENT = "environment.json"
STUDY = "study.json"
PACKED = f"{RESULTS}.gz"
"""Earlier lines, where they were packed: `gzip -c cells.jsonl >> cells.jsonl.gz`."""
PACKAGES = ("panda-mdp", "numpy", "scipy", "numba", "highspy", "jax", "matplotlib")
SPREAD = 1.96
COLUMNS = ("cell", "setting", "method", "repeat", "status", "note", "limit", "date", "version")
"""Columns of every table of results, with those of `Setting`, `done`, `spent` and `seconds`."""
Frame = Any
"""A data frame of pandas."""


class Results:
    """The results of one city: a folder with `cells.jsonl`, readable at any moment.

    Lines are appended, flushed and synced one by one, so an interrupt loses at most the cell that
    was running. The last line of a cell counts, and lines in `cells.jsonl.gz` come before those in
    `cells.jsonl`. Nothing but the folder is needed to write tables, figures and the report.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts = read_json(folder / STUDY)
        self.environments = read_json(folder / ENVIRONMENT)
        self.lines = read_lines(folder)
        self._environment = ""

    @classmethod
    def of_study(cls, study: Study) -> Results:
        """Those of a study, to add to: results of another city are refused, and a line that was cut
        off is dropped."""
        study.folder.mkdir(parents=True, exist_ok=True)
        found = cls(study.folder)
        for name in ("fingerprint", "real_prior") if found.facts else ():
            if found.facts.get(name) != study.facts[name]:
                raise InvalidInputError(
                    f"{study.folder} holds results of another study ({name} differs: "
                    f"{found.facts.get(name)!r}, now {study.facts[name]!r}); choose another --out"
                )
        found.facts = study.facts
        here = environment()
        name = hashlib.sha256(json.dumps(here, sort_keys=True).encode()).hexdigest()[:8]
        found._environment = name
        found.environments = {**found.environments, name: here}
        for file, facts in ((STUDY, found.facts), (ENVIRONMENT, found.environments)):
            write_whole(study.folder / file, json.dumps(facts, indent=1) + "\n")
        path = study.folder / RESULTS
        if path.exists():
            text = path.read_bytes()
            write_whole(path, text[: text.rfind(b"\n") + 1])
        return found

    @property
    def name(self) -> str:
        """The city's name."""
        return str(self.facts.get("city") or self.folder.name)

    @property
    def title(self) -> str:
        """The city's name as a word of a sentence, with the remark on its map."""
        title = CITY_NAMES.get(self.name.lower(), self.name.capitalize())
        return f"{title} ({self.facts['remark']})" if self.facts.get("remark") else title

    def has_final(self, cell: Cell, limit: float | None) -> bool:
        """Whether another run of a cell could not tell more: it was done or infeasible, or ran into
        a limit at least as long."""
        line = self.lines.get(cell, {"status": "failed"})
        if line["status"] == "time limit" and line["limit"] is not None:
            return limit is not None and line["limit"] >= limit
        return line["status"] not in ("failed", "time limit")

    def add(self, cell: Cell, outcome: Outcome, limit: float | None) -> None:
        """Append a result."""
        facts = {
            **cell.fields(),
            **vars(outcome),
            "limit": limit,
            "environment": self._environment,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "version": made_by(),
        }
        line = json.dumps(plain(facts, "words"), allow_nan=False).encode() + b"\n"
        with (self.folder / RESULTS).open("ab") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
        self.lines |= [read_line(line)]
        self.__dict__.pop("rows", None)

    @cached_property
    def rows(self) -> Frame:
        """All results as a table."""
        return table_of(self.lines)

    def shown(self, item: Item) -> Frame:
        """The rows of an item's cells."""
        return self.rows[self.rows["cell"].map(item.shows).astype(bool)]

    def of(self, name: str) -> Frame:
        """The rows of an item at its own settings, else at toy size."""
        own = self.shown(ITEMS[name])
        return own if len(own) else self.shown(ITEMS[name].toy())


def means_of(
    rows: Frame,
    value: str,
    axes: Sequence[str],
    across: Sequence[str] = (),
    of: Any = "mean",
) -> Frame:
    """Means of a value, or what else is taken of the repeats: by places, with columns for the rest.

    Rows that do not have the value as a number are left out.
    """
    places = rows.reindex(columns=[*axes, *across])
    groups = numbers(rows, value).groupby([places[name] for name in places])
    return groups.agg(of).unstack([*across]) if across else groups.agg(of)


def table_of(lines: Mapping[Cell, Facts]) -> Frame:
    """One row for each line: its setting, options and numbers beside each other; for each entry,
    where values are lists. `spent` is the sum of the stages, `seconds` that of what was done."""
    pandas = need("pandas", "a table of results", "paper")
    records = []
    for cell, line in lines.items():
        spent = sum(seconds for _, seconds in line["stages"]) or np.nan
        facts = {
            **{name: line[name] for name in COLUMNS[2:]},
            **{**line["setting"], **line["options"], **line["values"]},
            **{"cell": cell, "setting": cell.setting},
            "done": float(line["status"] == "done"),
            "spent": spent,
            "seconds": spent if line["status"] == "done" else np.nan,
        }
        lists = {name: value for name, value in facts.items() if isinstance(value, list)}
        parts = zip(*lists.values(), strict=True) if lists else [()]
        records += [{**facts, **dict(zip(lists, part, strict=True))} for part in parts]
    columns = (*COLUMNS, *Setting.__dataclass_fields__, "done", "spent", "seconds")
    return pandas.DataFrame(records, columns=None if records else columns)


def numbers(rows: Frame, value: str) -> Frame:
    """A column of all rows that have it as a number."""
    return rows.get(value, rows["repeat"][:0]).dropna().astype(float)


def read_line(line: bytes) -> tuple[Cell, Facts]:
    """The cell of a line and what it says; for infinities, which JSON lacks, it has words."""
    for word, number in ((b'"inf"', b"Infinity"), (b'"-inf"', b"-Infinity"), (b'"nan"', b"NaN")):
        line = line.replace(word, number)
    facts = json.loads(line)
    return Cell.read(facts), facts


def read_lines(folder: Path) -> dict[Cell, Facts]:
    """The latest line of every cell of a folder: packed lines, then the others.

    A last line that was cut off, which is what an interrupt leaves, is passed over.
    """
    lines: dict[Cell, Facts] = {}
    for path in filter(Path.exists, (folder / PACKED, folder / RESULTS)):
        try:
            text = (gzip.decompress if path.name == PACKED else bytes)(path.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise FileFormatError(
                f"{path} cannot be unpacked ({error}); choose another folder"
            ) from None
        for number, line in enumerate(text.split(b"\n")[:-1], start=1):
            try:
                lines |= [read_line(line)]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise FileFormatError(
                    f"{path}: line {number} is no result ({error}); remove the line, or choose "
                    "another folder"
                ) from None
    return lines


def read_json(path: Path) -> Facts:
    """What a JSON file says; nothing where there is none."""
    facts: Facts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return facts


def load_results(folder: Path) -> list[Results]:
    """The results in a folder and in the folders right below it, the paper's cities first."""
    places = {path.parent for end in ("", "*/") for path in folder.glob(f"{end}{RESULTS}*")}
    if not places:
        raise FileFormatError(
            f"{folder} holds no results ({RESULTS}); run `panda-mdp reproduce all --city FILE "
            f"--out {folder}` first"
        )
    loaded = sorted(map(Results, places), key=lambda one: one.name)
    return sorted(loaded, key=lambda one: [*CITY_NAMES, one.name].index(one.name))


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
