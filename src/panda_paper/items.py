"""The tables and figures of the paper, as the cells that they need (sections 3 and 4, appendix D).

A cell is a method at a setting on a draw; its names are saved with every result, so they never
change. An item is a plan of cells, declared in `items.toml`. Items that need the same cell, as a
table of times and one of losses, share its result.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from importlib.resources import files
from itertools import product
from typing import Any, Literal

from panda_mdp.base.text import Facts
from panda_mdp.errors import MethodError
from panda_mdp.panda.coins import Decay

PriorName = Literal["uniform", "real"]
DECLARED: Facts = tomllib.loads(
    files("panda_paper").joinpath("items.toml").read_text(encoding="utf-8")
)
GROUPS = {name: tuple(methods) for name, methods in DECLARED["groups"].items()}
"""What `items.toml`, `figures.toml` and `claims.toml` call several methods."""
DECAYS: tuple[Decay, ...] = GROUPS["decays"]
EXACT, PUBLISHED, SWAPPED, TEXT, NOISE, OURS = (
    GROUPS[name] for name in ("exact", "published", "swapped", "text", "noise", "ours")
)
COARSE = "LP+CA 8x8"
"""LP+CA as the paper's text has it."""
ON_REQUEST = {*GROUPS["slow"], *SWAPPED}
"""Methods that run where they are named."""


def named(names: Iterable[str]) -> tuple[str, ...]:
    """The methods of names, those of a group one by one.

    >>> named(["noise", "ball"])
    ('EM', 'EM+BR', 'ball')
    """
    return tuple(method for name in names for method in GROUPS.get(name, (name,)))


def decay_of(method: str) -> Decay:
    """The decay of a variant, or of a decay's own name.

    >>> decay_of("PAnDA-p published"), decay_of("logistic")
    ('power', 'logistic')
    """
    decays = dict(zip((*EXACT, *DECAYS), DECAYS * 2, strict=True))
    _checked([paper_row(method)], [*decays], "decay")
    return decays[paper_row(method)]


def paper_row(method: str) -> str:
    """The row of the paper's tables that a method stands beside, where it has one.

    >>> paper_row("PAnDA-e published"), paper_row("LP+CA 8x8"), paper_row("EM")
    ('PAnDA-e', 'LP+CA', 'EM')
    """
    return method.split(" ", maxsplit=1)[0]


@dataclass(frozen=True, order=True)
class Setting:
    """One point of an experiment: what a problem is drawn with. Units: epsilon per km."""

    records: int
    epsilon: float = 5.0
    delta: float = 1e-7
    users: int = 50
    prior: PriorName = "uniform"
    outputs: int = 100
    tasks: int = 1


@dataclass(frozen=True)
class Cell:
    """One method at one setting on one draw."""

    kind: str
    """What is computed; `runner.py` says how."""
    method: str
    setting: Setting
    repeat: int = 0
    options: tuple[tuple[str, float], ...] = ()
    """In the order of their names."""

    def fields(self) -> Facts:
        """As JSON has it."""
        return asdict(self) | {"options": dict(self.options)}

    @classmethod
    def read(cls, line: Facts) -> Cell:
        """The cell of a saved result."""
        options = tuple(sorted(line["options"].items()))
        setting = Setting(**line["setting"])
        return cls(line["kind"], line["method"], setting, line["repeat"], options)

    def __str__(self) -> str:
        options = "".join(f"{name}={value}, " for name, value in self.options)
        return f"{self.method}, K={self.setting.records:,}, {options}draw {self.repeat + 1}"


TOY_RECORDS, TOY_OUTPUTS = (40, 50), 8
Grid = Mapping[str, Any]
"""Cells at every combination of methods, sizes, other fields of a setting and options, each one
value or several; their kind, and how often each is repeated: once what hardly varies or is slow."""


def cells_of(grid: Grid) -> dict[Cell, int]:
    """The cells of a grid on the first draw with their number of repeats.

    >>> [str(cell) for cell in cells_of({"methods": ["EM"], "records": [500, 1000], "alpha": 0.5})]
    ['EM, K=500, alpha=0.5, draw 1', 'EM, K=1,000, alpha=0.5, draw 1']
    """
    axes = {"kind": "method", "repeats": 3, **grid}
    methods, repeats, kind = (axes.pop(name) for name in ("methods", "repeats", "kind"))
    several = [one if isinstance(one, list | tuple) else [one] for one in axes.values()]
    in_setting = {field.name for field in fields(Setting)}
    plan = {}
    for *place, method in product(*several, named(methods)):
        values = dict(zip(axes, place, strict=True))
        options = tuple(sorted((name, values.pop(name)) for name in {*values} - in_setting))
        plan[Cell(kind, method, Setting(**values), options=options)] = repeats
    return plan


@dataclass(frozen=True, eq=False)
class Item:
    """One table or figure of the paper."""

    name: str
    title: str
    cells: Sequence[Grid]
    measure: str | None = None
    """Which value of a row a table shows; None for a figure."""

    @cached_property
    def plan(self) -> dict[Cell, int]:
        """The cells on the first draw, with their number of repeats."""
        plan: dict[Cell, int] = {}
        for grid in self.cells:
            for cell, repeats in cells_of(grid).items():
                plan[cell] = max(repeats, plan.get(cell, 0))
        return plan

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.method for cell in self.plan))

    def draws(self) -> list[Cell]:
        """All cells, those of one draw together, so that the draw is made once."""
        cells = (replace(one, repeat=k) for one, count in self.plan.items() for k in range(count))
        return sorted(cells, key=lambda cell: (cell.setting, cell.repeat))

    def shows(self, cell: Cell) -> bool:
        """Whether a cell belongs to the item.

        A table shows whatever was repeated, a figure its own repeats alone: a curve with three
        draws at one point and a table's ten at the next would show the draws.
        """
        repeats = self.plan.get(replace(cell, repeat=0), 0)
        return cell.repeat < repeats or (repeats > 0 and self.measure is not None)

    def with_all_of(self, part: Item) -> Item:
        """This item with what was run of it beyond its own."""
        return replace(self, cells=[*self.cells, *part.cells])

    def toy(self) -> Item:
        """The item at toy size: a few dozen records, two repeats, seconds in all."""
        toy = [
            {
                **grid,
                "records": TOY_RECORDS[: len(grid["records"])],
                "users": [users // 10 for users in grid.get("users", [Setting.users])],
                "outputs": TOY_OUTPUTS,
                "repeats": min(grid.get("repeats", 2), 2),
            }
            for grid in self.cells
        ]
        return replace(self, cells=toy)

    def restricted(
        self,
        records: Sequence[int] | None = None,
        methods: Iterable[str] | None = None,
        repeats: int | None = None,
    ) -> Item:
        """The item with other sizes, some of its methods, or another number of repeats. Methods
        that run on request are left out where none are named."""
        chosen = {*self.methods} - ON_REQUEST if methods is None else {*methods}
        given = {"records": records, "repeats": repeats}
        part = [
            {
                **grid,
                **{name: one for name, one in given.items() if one is not None},
                "methods": [name for name in named(grid["methods"]) if name in chosen],
            }
            for grid in self.cells
        ]
        return replace(self, cells=part)


ITEMS: Mapping[str, Item] = {
    item["name"]: Item(
        **{**item, "cells": [{"records": DECLARED["sizes"], **grid} for grid in item["cells"]]}
    )
    for item in DECLARED["item"]
}
"""Every item, by name, in the paper's order."""


def choose_items(what: str) -> tuple[Item, ...]:
    """The items of a name, of several separated by commas, or of the word `all`."""
    names = [*ITEMS] if what == "all" else [name.strip() for name in what.split(",")]
    _checked(names, [*ITEMS], "item")
    return tuple(ITEMS[name] for name in names)


def restricted(
    items: Sequence[Item],
    records: Sequence[int] | None,
    methods: Sequence[str] | None,
    repeats: int | None,
) -> tuple[Item, ...]:
    """Items with other sizes, some of their methods, or another number of repeats."""
    _checked(methods or (), sorted({name for item in items for name in item.methods}), "method")
    return tuple(item.restricted(records, methods, repeats) for item in items)


def _checked(names: Iterable[str], choices: Sequence[str], word: str) -> None:
    for name in names:
        if name not in choices:
            raise MethodError(f"there is no {word} {name!r}; choose from {', '.join(choices)}")
