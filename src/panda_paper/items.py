"""The tables and figures of the paper, as the cells that they need (sections 3 and 4, appendix D).

An item is a plan of cells, declared in `items.toml`. Items that need the same cell, as a table of
times and one of losses, share its result.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from itertools import product
from typing import Any

from panda_mdp.errors import MethodError
from panda_paper.cell import SLOW, Cell, Kind, Options, Setting, named

SIZES = (500, 1000, 2000, 3000, 4000, 5000)
TOY_RECORDS, TOY_OUTPUTS = (40, 50), 8
Plan = Mapping[Cell, int]
"""Cells on the first draw with their number of repeats; one for what hardly varies or is slow."""


def grid(
    methods: Sequence[str],
    records: Sequence[int] = SIZES,
    kind: Kind = "method",
    repeats: int = 3,
    *,
    variants: Sequence[Options] = ((),),
    **axes: Any,
) -> Plan:
    """Cells of one kind: methods at all settings, one for each variant of their options; `axes`
    are fields of a setting with one value or several."""
    axes["records"] = records
    named = [one.name for one in fields(Setting) if one.name in axes]
    several = ([one] if isinstance(one := axes[name], int | str) else one for name in named)
    settings = [Setting(**dict(zip(named, place, strict=True))) for place in product(*several)]
    return {
        Cell(kind, method, setting, options=options): repeats
        for setting, method, options in product(settings, methods, variants)
    }


@dataclass(frozen=True, eq=False)
class Item:
    """One table or figure of the paper."""

    name: str
    title: str
    plan: Plan
    measure: str | None = None
    """Which value of a row a table shows; None for a figure."""
    optional: tuple[str, ...] = ()
    """Methods of a table that are run only where they are named."""
    group: str = "paper"
    """`all` runs the items of the group "paper"."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        return tuple(dict.fromkeys(cell.setting for cell in self.plan))

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.method for cell in self.plan))

    def cells(self, *, slow_repeats: int = 0) -> list[Cell]:
        """All cells, those of one draw together, so that the draw is made once.

        Slow methods run `slow_repeats` times.
        """
        cells = [
            replace(one, repeat=repeat)
            for one, repeats in self.plan.items()
            for repeat in range(min(repeats, slow_repeats) if one.method in SLOW else repeats)
        ]
        return sorted(cells, key=lambda cell: (self.settings.index(cell.setting), cell.repeat))

    def shows(self, cell: Cell) -> bool:
        """Whether a cell belongs to the item.

        A table shows whatever was repeated, a figure its own repeats alone: a curve with three
        draws at one point and a table's ten at the next would show the draws.
        """
        repeats = self.plan.get(cell.first, 0)
        return cell.repeat < repeats or (repeats > 0 and self.measure is not None)

    def with_all_of(self, part: Item) -> Item:
        """This item with its optional methods, and with what was run of it beyond its own."""
        plan = {one: max(repeats, part.plan.get(one, 0)) for one, repeats in self.plan.items()}
        whole = {**part.plan, **plan}
        more = {replace(one, method=name): whole[one] for one in whole for name in self.optional}
        return replace(self, plan={**plan, **whole, **more}, optional=())

    def resized(self, sizes: Callable[[Sequence[int]], Iterable[tuple[int, int]]]) -> Item:
        """The item at other sizes: for each method of a kind those that its own are turned into."""
        plan: dict[Cell, int] = {}
        for pair in dict.fromkeys((one.kind, one.method) for one in self.plan):
            part = {one: self.plan[one] for one in self.plan if (one.kind, one.method) == pair}
            for old, new in sizes(sorted({one.setting.records for one in part})):
                of_size = (one for one in part if one.setting.records == old)
                plan |= {one.at(records=new): part[one] for one in of_size}
        return replace(self, plan=plan)

    def toy(self) -> Item:
        """The item at toy size: a few dozen records, two repeats, seconds in all."""
        plan = self.resized(lambda own: zip(own, TOY_RECORDS, strict=False)).plan
        toy = {
            one.at(
                outputs=min(one.setting.outputs, TOY_OUTPUTS), users=max(1, one.setting.users // 10)
            ): min(repeats, 2)
            for one, repeats in plan.items()
        }
        return replace(self, plan=toy)

    def restricted(
        self,
        *,
        records: Sequence[int] | None = None,
        methods: Sequence[str] | None = None,
        repeats: int | None = None,
    ) -> Item:
        """The item with other sizes, some of its methods, or another number of repeats.

        Its own sizes keep their settings, others take those of the first one.
        """
        whole = self if methods is None else self.with_all_of(self)
        named = whole.methods if methods is None else methods
        plan = {one: repeats or own for one, own in whole.plan.items() if one.method in named}
        if not plan:
            names = ", ".join((*self.methods, *self.optional))
            raise MethodError(
                f"{self.name} has no method {', '.join(methods or ())!r}; choose from {names}"
            )
        part = replace(self, plan=plan)
        if records is None:
            return part
        sizes = dict.fromkeys(records)
        return part.resized(lambda own: ((k if k in own else own[0], k) for k in sizes))


def _read_items() -> Iterator[Item]:
    """The items as they are declared."""
    text = files("panda_paper").joinpath("items.toml").read_text(encoding="utf-8")
    for declared in tomllib.loads(text)["item"]:
        plan: dict[Cell, int] = {}
        for cells in declared.pop("cells"):
            variants = [tuple(one.items()) for one in cells.pop("variants", [{}])]
            plan |= grid(named(cells.pop("methods")), variants=variants, **cells)
        yield Item(plan=plan, optional=named(declared.pop("optional", ())), **declared)


ITEMS: Mapping[str, Item] = {item.name: item for item in _read_items()}
"""Every item, by name, in the paper's order."""
TABLES, FIGURES = (
    tuple(item for item in ITEMS.values() if (item.measure is None) == drawn)
    for drawn in (False, True)
)


def choose_items(what: str) -> tuple[Item, ...]:
    """The items of a name, of several separated by commas, or of the word `all`."""
    if what == "all":
        return tuple(item for item in ITEMS.values() if item.group == "paper")
    return tuple(ITEMS[name] for name in _known(what.split(","), [*ITEMS], "item"))


def restricted(
    items: Sequence[Item],
    records: Sequence[int] | None,
    methods: Sequence[str] | None,
    repeats: int | None,
) -> tuple[Item, ...]:
    """Items with other sizes, some of their methods, or another number of repeats."""
    known_methods = {name for item in items for name in (*item.methods, *item.optional)}
    _known(methods or (), sorted(known_methods), "method")
    return tuple(
        item.restricted(records=records, methods=methods, repeats=repeats) for item in items
    )


def _known(names: Sequence[str], known: Sequence[str], word: str) -> list[str]:
    stripped = [name.strip() for name in names]
    for name in stripped:
        if name not in known:
            raise MethodError(f"there is no {word} {name!r}; choose from {', '.join(known)}")
    return stripped
