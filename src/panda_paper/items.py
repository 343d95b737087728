"""The tables and figures of the paper, as the cells that they need (sections 3 and 4, appendix D).

A cell is a method at a setting on a draw; its names are saved with every result, so they never
change. An item is a plan of cells, declared in `items.toml`. Items that need the same cell, as a
table of times and one of losses, share its result.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.resources import files
from itertools import product
from typing import Any, Literal, get_args

from panda_mdp.base.text import Facts
from panda_mdp.errors import MethodError
from panda_mdp.panda.coins import Decay

Scalar = bool | int | float | str
Options = tuple[tuple[str, Scalar], ...]
PriorName = Literal["uniform", "real"]
Kind = Literal[
    "method", "clustering", "accounts", "text table", "bound", "selection", "margins", "estimates"
]
"""What is computed; `runner.py` says how."""

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
"""What `items.toml` calls several methods."""


def named(names: Sequence[str]) -> tuple[str, ...]:
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
        if method == decay or paper_row(method) == f"PAnDA-{letter}":
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

    kind: Kind
    method: str
    setting: Setting
    repeat: int = 0
    options: Options = ()

    def fields(self) -> Facts:
        """As JSON has it."""
        return asdict(self) | {"options": dict(self.options)}

    @classmethod
    def read(cls, fields: Facts) -> Cell:
        """The cell of a saved result; KeyError where there is no such kind."""
        kinds: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
        setting = Setting(**fields["setting"])
        options = tuple(fields["options"].items())
        return cls(kinds[fields["kind"]], fields["method"], setting, fields["repeat"], options)

    @property
    def key(self) -> str:
        """What the cell's result is saved under: a hash of everything that it depends on."""
        text = json.dumps(self.fields(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def first(self) -> Cell:
        """The cell on the first draw, options in the order of their names."""
        return replace(self, repeat=0, options=tuple(sorted(self.options)))

    def at(self, **setting: Any) -> Cell:
        """The same with another setting."""
        return replace(self, setting=replace(self.setting, **setting))

    def option(self, name: str, default: float) -> float:
        """One of the cell's options, a number."""
        return float(dict(self.options).get(name, default))

    def __str__(self) -> str:
        parts = [f"K={self.setting.records:,}"]
        parts += [f"{name}={value}" for name, value in self.options]
        return f"{self.method}, {', '.join(parts)}, draw {self.repeat + 1}"


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
    names = [one.name for one in fields(Setting) if one.name in axes]
    several = ([one] if isinstance(one := axes[name], int | str) else one for name in names)
    return {
        Cell(
            kind, method, Setting(**dict(zip(names, place, strict=True))), options=options
        ): repeats
        for place, method, options in product(product(*several), methods, variants)
    }


@dataclass(frozen=True, eq=False)
class Item:
    """One table or figure of the paper."""

    name: str
    title: str
    plan: Plan
    measure: str | None = None
    """Which value of a row a table shows; None for a figure."""
    group: str = "paper"
    """`all` runs the items of the group "paper"."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        return tuple(dict.fromkeys(cell.setting for cell in self.plan))

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.method for cell in self.plan))

    def cells(self) -> list[Cell]:
        """All cells, those of one draw together, so that the draw is made once."""
        cells = (replace(one, repeat=k) for one, count in self.plan.items() for k in range(count))
        return sorted(cells, key=lambda cell: (self.settings.index(cell.setting), cell.repeat))

    def shows(self, cell: Cell) -> bool:
        """Whether a cell belongs to the item.

        A table shows whatever was repeated, a figure its own repeats alone: a curve with three
        draws at one point and a table's ten at the next would show the draws.
        """
        repeats = self.plan.get(cell.first, 0)
        return cell.repeat < repeats or (repeats > 0 and self.measure is not None)

    def with_all_of(self, part: Item) -> Item:
        """This item with what was run of it beyond its own."""
        beyond = {one: max(count, self.plan.get(one, 0)) for one, count in part.plan.items()}
        return replace(self, plan={**self.plan, **beyond})

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
        toy = {
            one.at(
                outputs=min(one.setting.outputs, TOY_OUTPUTS), users=max(1, one.setting.users // 10)
            ): min(repeats, 2)
            for one, repeats in self.plan.items()
        }
        return replace(self, plan=toy).resized(lambda sizes: zip(sizes, TOY_RECORDS, strict=False))

    def restricted(
        self,
        records: Sequence[int] | None = None,
        methods: Sequence[str] | None = None,
        repeats: int | None = None,
    ) -> Item:
        """The item with other sizes, some of its methods, or another number of repeats.

        Its own sizes keep their settings, others take those of the first one. Methods that run on
        request are left out where none are named.
        """
        named_methods = {*self.methods} - ON_REQUEST if methods is None else methods
        plan = {
            one: repeats or count for one, count in self.plan.items() if one.method in named_methods
        }
        if not plan:
            _checked(methods or ("",), self.methods, f"method of {self.name}")
        part = replace(self, plan=plan)
        if records is None:
            return part
        asked = dict.fromkeys(records)
        return part.resized(lambda sizes: ((k if k in sizes else sizes[0], k) for k in asked))


def _read_items() -> Iterator[Item]:
    """The items as they are declared."""
    text = files("panda_paper").joinpath("items.toml").read_text(encoding="utf-8")
    for declared in tomllib.loads(text)["item"]:
        plan: dict[Cell, int] = {}
        for cells in declared.pop("cells"):
            variants = [tuple(one.items()) for one in cells.pop("variants", [{}])]
            plan |= grid(named(cells.pop("methods")), variants=variants, **cells)
        yield Item(plan=plan, **declared)


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
    return tuple(ITEMS[name] for name in _checked(what.split(","), [*ITEMS], "item"))


def restricted(
    items: Sequence[Item],
    records: Sequence[int] | None,
    methods: Sequence[str] | None,
    repeats: int | None,
) -> tuple[Item, ...]:
    """Items with other sizes, some of their methods, or another number of repeats."""
    _checked(methods or (), sorted({name for item in items for name in item.methods}), "method")
    return tuple(item.restricted(records, methods, repeats) for item in items)


def _checked(names: Sequence[str], choices: Sequence[str], word: str) -> list[str]:
    stripped = [name.strip() for name in names]
    for name in stripped:
        if name not in choices:
            raise MethodError(f"there is no {word} {name!r}; choose from {', '.join(choices)}")
    return stripped
