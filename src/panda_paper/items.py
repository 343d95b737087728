"""The tables and figures of the paper, as the cells that they need (sections 3 and 4, appendix D).

A cell is a method at a setting on a draw; its names are saved with every result, so they never
change. An item is a plan of cells, declared in `items.toml`. Items that need the same cell, as a
table of times and one of losses, share its result.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.resources import files
from itertools import product
from typing import Any, Literal

from panda_mdp.base.text import Facts
from panda_mdp.errors import MethodError
from panda_mdp.panda.coins import Decay

PriorName = Literal["uniform", "real"]
DECAYS: tuple[Decay, ...] = ("exponential", "power", "logistic")
VARIANTS: dict[str, Decay] = dict(zip("epl", DECAYS, strict=True))
"""The paper's letters."""
EXACT = tuple(f"PAnDA-{letter}" for letter in VARIANTS)
"""The text's parameters, everything accounted for, or why it does not fit."""
PUBLISHED = tuple(f"{name} published" for name in EXACT)
"""The published code's choices."""
SWAPPED = ("EM swapped", "EM+BR swapped", *(f"{name} swapped" for name in EXACT))
"""On the published code's distances."""
TEXT = tuple(f"{name} text" for name in EXACT)
"""The text's parameters, computed without a guarantee where they do not fit."""
NOISE = ("EM", "EM+BR")
COARSE = "LP+CA 8x8"
"""LP+CA as the paper's text has it."""
OURS = ("loss exponential", "optimal", "ball")
SLOW = frozenset({"LP", "LP+BD", "LP+BD published", "LP+EM"})
"""Methods that run into the time limit at most sizes."""
ON_REQUEST = SLOW | {*SWAPPED}
"""Methods that run where they are named."""
GROUPS: dict[str, tuple[str, ...]] = {
    "decays": DECAYS,
    "exact": EXACT,
    "noise": NOISE,
    "ours": OURS,
    "published": PUBLISHED,
    "pure": OURS[:2],
    "swapped": SWAPPED,
    "text": TEXT,
    "tables": (
        *("EM", "LP", "LP+CA", COARSE, "LP+CA published", "LP+BD", "LP+BD published", "LP+EM"),
        *("EM+BR", *EXACT, *PUBLISHED, *OURS, *SWAPPED),
    ),
}
"""What `items.toml` and `figures.toml` call several methods."""


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
    for letter, decay in VARIANTS.items():
        if paper_row(method) in (decay, f"PAnDA-{letter}"):
            return decay
    raise MethodError(f"there is no decay {method!r}; choose from {', '.join((*DECAYS, *EXACT))}")


def paper_row(method: str) -> str:
    """The row of the paper's tables that a method stands beside, where it has one.

    >>> paper_row("PAnDA-e published"), paper_row("LP+CA 8x8"), paper_row("EM")
    ('PAnDA-e', 'LP+CA', 'EM')
    """
    return method.split(" ", maxsplit=1)[0]


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

    def at(self, **setting: Any) -> Cell:
        """The same with another setting."""
        return replace(self, setting=replace(self.setting, **setting))

    def option(self, name: str, default: float) -> float:
        """One of the cell's options, a number."""
        return float(dict(self.options).get(name, default))

    def __str__(self) -> str:
        options = "".join(f"{name}={value}, " for name, value in self.options)
        return f"{self.method}, K={self.setting.records:,}, {options}draw {self.repeat + 1}"


TOY_RECORDS, TOY_OUTPUTS = (40, 50), 8
Plan = Mapping[Cell, int]
"""Cells on the first draw with their number of repeats; one for what hardly varies or is slow."""


@dataclass(frozen=True, eq=False)
class Item:
    """One table or figure of the paper."""

    name: str
    title: str
    plan: Plan
    measure: str | None = None
    """Which value of a row a table shows; None for a figure."""

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.method for cell in self.plan))

    def cells(self) -> list[Cell]:
        """All cells, those of one draw together, so that the draw is made once."""
        settings = list(dict.fromkeys(cell.setting for cell in self.plan))
        cells = (replace(one, repeat=k) for one, count in self.plan.items() for k in range(count))
        return sorted(cells, key=lambda cell: (settings.index(cell.setting), cell.repeat))

    def shows(self, cell: Cell) -> bool:
        """Whether a cell belongs to the item.

        A table shows whatever was repeated, a figure its own repeats alone: a curve with three
        draws at one point and a table's ten at the next would show the draws.
        """
        repeats = self.plan.get(replace(cell, repeat=0), 0)
        return cell.repeat < repeats or (repeats > 0 and self.measure is not None)

    def with_all_of(self, part: Item) -> Item:
        """This item with what was run of it beyond its own."""
        beyond = {one: max(count, self.plan.get(one, 0)) for one, count in part.plan.items()}
        return replace(self, plan={**self.plan, **beyond})

    def resized(self, sizes: Callable[[Sequence[int]], Iterable[tuple[int, int]]]) -> Item:
        """The item at other sizes: for each method of a kind those that its own are turned into."""
        own: dict[tuple[str, str], set[int]] = {}
        for one in self.plan:
            own.setdefault((one.kind, one.method), set()).add(one.setting.records)
        plan = {
            one.at(records=new): repeats
            for one, repeats in self.plan.items()
            for old, new in sizes(sorted(own[one.kind, one.method]))
            if old == one.setting.records
        }
        return replace(self, plan=plan)

    def toy(self) -> Item:
        """The item at toy size: a few dozen records, two repeats, seconds in all."""
        toy = {
            one.at(outputs=TOY_OUTPUTS, users=one.setting.users // 10): min(repeats, 2)
            for one, repeats in self.plan.items()
        }
        return replace(self, plan=toy).resized(lambda sizes: zip(sizes, TOY_RECORDS, strict=False))

    def restricted(
        self,
        records: Iterable[int] | None = None,
        methods: Iterable[str] | None = None,
        repeats: int | None = None,
    ) -> Item:
        """The item with other sizes, some of its methods, or another number of repeats.

        Its own sizes keep their settings, others take those of the first one. Methods that run on
        request are left out where none are named.
        """
        chosen = {*self.methods} - ON_REQUEST if methods is None else {*methods}
        plan = {one: repeats or count for one, count in self.plan.items() if one.method in chosen}
        if not plan:
            _checked(sorted(chosen) or [""], self.methods, f"method of {self.name}")
        part = replace(self, plan=plan)
        if records is None:
            return part
        asked = dict.fromkeys(records)
        return part.resized(lambda sizes: [(k if k in sizes else sizes[0], k) for k in asked])


def grid(kind: str = "method", repeats: int = 3, **axes: Any) -> Plan:
    """Cells of one kind at every combination of methods, fields of a setting and options, each one
    value or several.

    >>> [str(cell) for cell in grid(methods=["EM"], records=[500, 1000], alpha=0.5)]
    ['EM, K=500, alpha=0.5, draw 1', 'EM, K=1,000, alpha=0.5, draw 1']
    """
    methods = named(axes.pop("methods"))
    several = [one if isinstance(one, list | tuple) else [one] for one in axes.values()]
    in_setting = {field.name for field in fields(Setting)}
    plan = {}
    for *place, method in product(*several, methods):
        values = dict(zip(axes, place, strict=True))
        options = tuple(sorted((name, values.pop(name)) for name in {*values} - in_setting))
        plan[Cell(kind, method, Setting(**values), options=options)] = repeats
    return plan


def _read_items() -> Iterator[Item]:
    """The items as they are declared."""
    text = files("panda_paper").joinpath("items.toml").read_text(encoding="utf-8")
    declared = tomllib.loads(text)
    for item in declared["item"]:
        plan: dict[Cell, int] = {}
        for cells in item.pop("cells"):
            plan |= grid(**{"records": declared["sizes"], **cells})
        yield Item(plan=plan, **item)


ITEMS: Mapping[str, Item] = {item.name: item for item in _read_items()}
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
