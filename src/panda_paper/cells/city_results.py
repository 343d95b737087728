"""Results on disk as the report and the checklist read them; no city file is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from panda_mdp.errors import FileFormatError
from panda_paper.cells.outcome import Row, matching
from panda_paper.cells.results import (
    ENVIRONMENT,
    RESULTS,
    STUDY,
    has_results,
    read_json,
    read_rows,
)
from panda_paper.cells.workspace import title_of
from panda_paper.settings.cell import Template
from panda_paper.settings.item import Item
from panda_paper.settings.paper_items import items

PAPER = ("rome", "nyc", "london")


@dataclass(frozen=True, eq=False)
class CityResults:
    """What is known of one city: its rows, the city's facts, the machines that ran it."""

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
        """The rows that belong to an item: at its own settings, else at toy size, else any size."""
        if name not in self._rows_by_item:
            self._rows_by_item[name] = rows_of(items()[name], self.rows)
        return self._rows_by_item[name]

    @cached_property
    def _rows_by_item(self) -> dict[str, list[Row]]:
        return {}

    @property
    def versions(self) -> list[str]:
        """What made the results; those of version 0.1 name none."""
        return sorted({row.version or "0.1.0" for row in self.rows})

    @property
    def dates(self) -> tuple[str, str]:
        """When the first and the last result came in."""
        dates = sorted(row.date for row in self.rows)
        return (dates[0], dates[-1]) if dates else ("", "")


def rows_of(item: Item, rows: Sequence[Row]) -> list[Row]:
    """Rows of an item, whichever repeats and optional methods of it were run."""
    for wanted in (item.with_all_of(item), item.toy()):
        fitting = matching(wanted, rows)
        if fitting:
            return fitting
    loose = {_any_size(template) for template in item.templates}
    return [row for row in rows if _any_size(row.cell.template) in loose]


def _any_size(template: Template) -> Template:
    kind, method, setting, options = template
    return kind, method, replace(setting, records=0), options


def load_results(folder: Path) -> tuple[CityResults, ...]:
    """The results in a folder and in the folders right below it, the paper's cities first."""
    places = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    loaded = [_load(path) for path in places if has_results(path)]
    if not loaded:
        msg = (
            f"{folder} holds no results ({RESULTS}); run `panda-mdp reproduce all --city FILE "
            f"--out {folder}` first"
        )
        raise FileFormatError(msg)
    return tuple(sorted(loaded, key=_place))


def _place(results: CityResults) -> tuple[int, str]:
    """Cities in the paper's order, others after them by name."""
    name = results.name.lower()
    return (PAPER.index(name) if name in PAPER else len(PAPER), name)


def _load(folder: Path) -> CityResults:
    return CityResults(
        folder,
        read_json(folder / STUDY),
        read_json(folder / ENVIRONMENT),
        tuple(read_rows(folder).values()),
    )
