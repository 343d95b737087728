"""What a cell gave, and the row that it is saved as."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from panda_paper.settings.cell import Cell
from panda_paper.settings.item import Item

Status = Literal["done", "infeasible", "time limit", "out of memory", "failed"]
METRES = 1000.0
"""In a km: losses are shown in metres."""


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
            "version": self.version,
        }

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Row:
        """The row of a line; those of version 0.1 do not name it."""
        stages = tuple((str(name), float(seconds)) for name, seconds in fields["stages"])
        values = {name: _restored(value) for name, value in fields["values"].items()}
        return cls(
            Cell.read(fields),
            Outcome(values, stages, fields["status"], fields["note"]),
            fields["limit"],
            fields["environment"],
            fields["date"],
            fields.get("version", ""),
        )


def matching(item: Item, rows: Iterable[Row]) -> list[Row]:
    """The rows of an item's cells, those of one cell in order of their repeats."""
    return sorted((row for row in rows if item.shows(row.cell)), key=lambda row: row.cell.repeat)


def _restored(value: Any) -> Any:
    """Infinities, for which JSON has words."""
    if isinstance(value, list):
        return [_restored(entry) for entry in value]
    return float(value) if value in ("inf", "-inf", "nan") else value
