"""One cell of an experiment: a method at a setting on a draw, under names that never change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Scalar = bool | int | float | str
Options = tuple[tuple[str, Scalar], ...]
PriorName = Literal["uniform", "real"]
Kind = Literal[
    "method", "clustering", "accounts", "text table", "bound", "selection", "margins", "estimates"
]
"""What is computed; `cells/runner.py` says how. Saved with every result."""
FORMER_KINDS: Mapping[str, Kind] = {
    "cells:run_method": "method",
    "clustering:run_clustering": "clustering",
    "figures_exact:run_accounts": "accounts",
    "figures_exact:run_table": "text table",
    "figures_bounds:run_bound": "bound",
    "figures_selection:run_surface": "selection",
    "figures_margins:run_margins": "margins",
    "figures_margins:run_estimates": "estimates",
}
"""Names in results of version 0.1, which were places in its source."""


def kind_of(name: str) -> Kind:
    """The kind of a name, former ones included; KeyError where there is none.

    >>> kind_of("bound"), kind_of("cells:run_method")
    ('bound', 'method')
    """
    known: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
    return (known | dict(FORMER_KINDS))[name]


@dataclass(frozen=True)
class Setting:
    """One point of an experiment: what a problem is drawn with. Units: epsilon per km."""

    records: int
    epsilon: float = 5.0
    delta: float = 1e-7
    users: int = 50
    prior: PriorName = "uniform"
    outputs: int = 100
    tasks: int = 1


Template = tuple[Kind, str, Setting, Options]
"""A cell without its repeat."""


@dataclass(frozen=True)
class Cell:
    """One method at one setting on one draw."""

    kind: Kind
    method: str
    setting: Setting
    repeat: int
    options: Options = ()

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "kind": self.kind,
            "method": self.method,
            "setting": asdict(self.setting),
            "repeat": self.repeat,
            "options": dict(self.options),
        }

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Cell:
        """The cell of a saved result."""
        return cls(
            kind_of(fields["kind"]),
            fields["method"],
            Setting(**fields["setting"]),
            fields["repeat"],
            tuple(fields["options"].items()),
        )

    @property
    def key(self) -> str:
        """What the cell's result is saved under: a hash of everything that it depends on.

        >>> cell = Cell("method", "EM", Setting(500), 0)
        >>> cell.key == Cell.read(cell.fields() | {"kind": "cells:run_method"}).key
        True
        """
        text = json.dumps(self.fields(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def template(self) -> Template:
        """What the cells of all repeats have in common."""
        return self.kind, self.method, self.setting, tuple(sorted(self.options))

    def option(self, name: str, default: Scalar) -> Scalar:
        """One of the cell's options."""
        return dict(self.options).get(name, default)

    def __str__(self) -> str:
        parts = [f"K={self.setting.records:,}"]
        parts += [f"{name}={value}" for name, value in self.options]
        return f"{self.method}, {', '.join(parts)}, draw {self.repeat + 1}"
