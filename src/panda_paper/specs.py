"""Experiments as data: settings, cells, items and the registry of the paper's items."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from panda_mdp.errors import MethodError

Scalar = bool | int | float | str
Options = tuple[tuple[str, Scalar], ...]
PriorName = Literal["uniform", "real"]
ITEM_MODULES = ("panda_paper.table_specs", "panda_paper.figure_specs")
"""Modules with an `ITEMS` tuple; those that are not part of the installation are passed over."""
SLOW = frozenset({"LP", "LP+BD", "LP+BD published", "LP+EM"})
"""Methods that run into the time limit at most sizes: run on request, once per setting."""
TOY_RECORDS, TOY_STEP, TOY_OUTPUTS = 40, 10, 8


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


Template = tuple[str, str, Setting, Options]
"""A cell, its repeat aside."""


@dataclass(frozen=True)
class Cell:
    """One method at one setting on one draw; `kind` is the `module:function` that runs it."""

    kind: str
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

    @property
    def key(self) -> str:
        """What the cell's result is kept under: a hash of everything that it depends on.

        >>> cell = Cell("cells:run_method", "EM", Setting(500), 0)
        >>> cell.key == Cell("cells:run_method", "EM", Setting(500), 0).key
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


@dataclass(frozen=True)
class Item:
    """One table or figure of the paper: the cells that it needs, and what makes files of them."""

    name: str
    title: str
    settings: tuple[Setting, ...]
    methods: tuple[str, ...]
    kind: str = "cells:run_method"
    """Runs a cell: `module:function` of this package."""
    render: str = "tables:write_table"
    """Makes the item's files from its rows: `module:function` of this package."""
    measure: str = "loss_m"
    """Which value of a row the item shows."""
    repeats: int = 10
    variants: tuple[Options, ...] = ((),)
    """Options that vary beyond the setting, one cell for each."""
    optional: tuple[str, ...] = ()
    """Methods that are run only where they are named."""
    slow: frozenset[str] = field(default=SLOW)
    group: str = "paper"
    """`all` runs the items of the group "paper"."""

    def cells(self, *, slow_repeats: int = 0) -> Iterator[Cell]:
        """All cells, those of one draw together. Slow methods run `slow_repeats` times."""
        for setting in self.settings:
            for repeat in range(self.repeats):
                for method in self.methods:
                    if method in self.slow and repeat >= slow_repeats:
                        continue
                    for options in self.variants:
                        yield Cell(self.kind, method, setting, repeat, options)

    @cached_property
    def templates(self) -> frozenset[Template]:
        """What the item's cells are, their repeats aside."""
        once = self.restricted(repeats=1)
        return frozenset(cell.template for cell in once.cells(slow_repeats=1))

    def shows(self, cell: Cell) -> bool:
        """Whether a cell belongs to the item, whichever repeat it is."""
        return cell.template in self.templates

    def with_all_of(self, part: Item) -> Item:
        """This item with its optional methods, and with the settings of a part that was run."""
        methods = (*self.methods, *self.optional)
        settings = (*self.settings, *part.settings)
        return replace(
            self,
            methods=methods,
            optional=(),
            settings=tuple(sorted(dict.fromkeys(settings), key=lambda one: one.records)),
        )

    def toy(self) -> Item:
        """The same item at toy size: a few dozen records, two repeats, seconds in all."""
        sizes = sorted({setting.records for setting in self.settings})
        small = {size: TOY_RECORDS + TOY_STEP * rank for rank, size in enumerate(sizes)}
        settings = tuple(
            replace(
                setting,
                records=small[setting.records],
                outputs=min(setting.outputs, TOY_OUTPUTS),
                users=max(1, setting.users // 10),
            )
            for setting in self.settings
            if small[setting.records] < TOY_RECORDS + 2 * TOY_STEP
        )
        return replace(self, settings=settings, repeats=min(self.repeats, 2))

    def restricted(
        self,
        *,
        records: Sequence[int] | None = None,
        methods: Sequence[str] | None = None,
        repeats: int | None = None,
    ) -> Item:
        """The item with other sizes, fewer methods, or another number of repeats.

        Sizes that the item has keep its settings; others take those of its first one.
        """
        out = self
        if records is not None:
            own = {setting.records for setting in self.settings}
            settings: list[Setting] = []
            for size in records:
                base = size if size in own else self.settings[0].records
                settings += [
                    replace(setting, records=size)
                    for setting in self.settings
                    if setting.records == base
                ]
            out = replace(out, settings=tuple(dict.fromkeys(settings)))
        if methods is not None:
            known = (*self.methods, *self.optional)
            foreign = [name for name in methods if name not in known]
            if foreign:
                msg = f"{self.name} has no method {foreign[0]!r}; choose from {', '.join(known)}"
                raise MethodError(msg)
            out = replace(out, methods=tuple(methods))
        if repeats is not None:
            if repeats < 1:
                msg = f"repeats is {repeats}; run each cell at least once"
                raise MethodError(msg)
            out = replace(out, repeats=repeats)
        return out


def items() -> Mapping[str, Item]:
    """Every item, by name, in the paper's order."""
    found: dict[str, Item] = {}
    for name in ITEM_MODULES:
        if find_spec(name) is None:
            continue
        for item in import_module(name).ITEMS:
            found[item.name] = item
    return found


def choose_items(what: str) -> tuple[Item, ...]:
    """The items of a name, of several separated by commas, or of the word `all`."""
    known = items()
    if what == "all":
        return tuple(item for item in known.values() if item.group == "paper")
    chosen: list[Item] = []
    for name in (part.strip() for part in what.split(",")):
        if name not in known:
            msg = f"there is no item {name!r}; choose from all, {', '.join(known)}"
            raise MethodError(msg)
        chosen.append(known[name])
    return tuple(chosen)


def function(path: str) -> Any:
    """The function behind `module:function` of this package."""
    module, _, name = path.partition(":")
    return getattr(import_module(f"panda_paper.{module}"), name)
