"""The tables and figures of the paper, as the cells that they need (sections 3 and 4, appendix D).

An item is made of grids of cells. Items that need the same cell, as a table of times and one of
losses, share its result. The paper's Table 1 defines the three decays and its Table 6 lists
symbols: nothing to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from panda_mdp.errors import MethodError
from panda_paper.cell import (
    COARSE,
    DECAYS,
    EXACT,
    NOISE,
    OURS,
    PUBLISHED,
    SLOW,
    SWAPPED,
    TEXT,
    Cell,
    Kind,
    Options,
    PriorName,
    Setting,
    Template,
)

SIZES = (500, 1000, 2000, 3000, 4000, 5000)
GENEROUS_SIZES = (500, 1000, 1500, 2000, 2500, 3000)
"""K of the tables with delta = 0.15, which have 15 users."""
FEW = (500, 1000, 2000, 5000)
"""Sizes of what is slow: our own tables, and the text's accounts."""
SMALL, MIDDLE = 500, 2000
"""Sizes of single-size figures; the second is the paper's default."""
USERS = (20, 50, 100, 150, 200)
EPSILONS = (2.5, 5.0, 7.5, 10.0, 12.5, 15.0)
DELTAS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.15)
ALPHAS = (0.25, 0.5, 0.9, 0.95)
TOY_RECORDS, TOY_STEP, TOY_OUTPUTS = 40, 10, 8


@dataclass(frozen=True)
class Grid:
    """Cells of one kind: methods at settings, with variants of their options, over repeats."""

    settings: tuple[Setting, ...]
    methods: tuple[str, ...]
    kind: Kind = "method"
    repeats: int = 3
    """One draw is enough for what hardly varies or is slow."""
    variants: tuple[Options, ...] = ((),)
    """Options that vary beyond the setting, one cell for each."""

    def cells(self, slow_repeats: int) -> Iterator[Cell]:
        """All cells. Slow methods run `slow_repeats` times."""
        for setting in self.settings:
            for repeat in range(self.repeats):
                for method in self.methods:
                    if method in SLOW and repeat >= slow_repeats:
                        continue
                    for options in self.variants:
                        yield Cell(self.kind, method, setting, repeat, options)

    @cached_property
    def templates(self) -> frozenset[Template]:
        """What the cells are, their repeats aside."""
        return frozenset(cell.template for cell in replace(self, repeats=1).cells(1))

    def toy(self) -> Grid:
        """The same at toy size: a few dozen records, two repeats, seconds in all."""
        sizes = sorted({setting.records for setting in self.settings})[:2]
        small = {size: TOY_RECORDS + TOY_STEP * rank for rank, size in enumerate(sizes)}
        settings = tuple(
            replace(
                setting,
                records=small[setting.records],
                outputs=min(setting.outputs, TOY_OUTPUTS),
                users=max(1, setting.users // 10),
            )
            for setting in self.settings
            if setting.records in small
        )
        return replace(self, settings=settings, repeats=min(self.repeats, 2))

    def at_sizes(self, records: Sequence[int]) -> Grid:
        """The grid at other sizes: its own keep their settings, others take the first one's."""
        own = {setting.records for setting in self.settings}
        settings = [
            replace(setting, records=size)
            for size in records
            for setting in self.settings
            if setting.records == (size if size in own else self.settings[0].records)
        ]
        return replace(self, settings=tuple(dict.fromkeys(settings)))


@dataclass(frozen=True)
class Item:
    """One table or figure of the paper."""

    name: str
    title: str
    grids: tuple[Grid, ...]
    measure: str | None = None
    """Which value of a row a table shows; None for a figure."""
    optional: tuple[str, ...] = ()
    """Methods of a table that are run only where they are named."""
    group: str = "paper"
    """`all` runs the items of the group "paper"."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        return tuple(dict.fromkeys(setting for grid in self.grids for setting in grid.settings))

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(method for grid in self.grids for method in grid.methods))

    def cells(self, *, slow_repeats: int = 0) -> Iterator[Cell]:
        """All cells, those of one draw together, so that the draw is made once."""
        order = {setting: k for k, setting in enumerate(self.settings)}
        cells = [cell for grid in self.grids for cell in grid.cells(slow_repeats)]
        yield from sorted(cells, key=lambda cell: (order[cell.setting], cell.repeat))

    @property
    def templates(self) -> frozenset[Template]:
        """What the item's cells are, their repeats aside."""
        return frozenset(template for grid in self.grids for template in grid.templates)

    def shows(self, cell: Cell) -> bool:
        """Whether a cell belongs to the item.

        A table shows whatever was repeated, a figure its own repeats alone: a curve with three
        draws at one point and a table's ten at the next would show the draws.
        """
        return any(
            cell.template in grid.templates
            for grid in self.grids
            if self.measure is not None or cell.repeat < grid.repeats
        )

    def with_all_of(self, part: Item) -> Item:
        """This item with its optional methods, and with what was run of it beyond its own."""
        whole = (
            replace(grid, methods=(*grid.methods, *self.optional))
            for grid in (*self.grids, *part.grids)
        )
        return replace(self, grids=tuple(whole), optional=())

    def toy(self) -> Item:
        """The item at toy size."""
        return replace(self, grids=tuple(grid.toy() for grid in self.grids))

    def restricted(
        self,
        *,
        records: Sequence[int] | None = None,
        methods: Sequence[str] | None = None,
        repeats: int | None = None,
    ) -> Item:
        """The item with other sizes, some of its methods, or another number of repeats."""
        grids = []
        for grid in self.grids:
            available = (*grid.methods, *self.optional)
            named = grid.methods if methods is None else methods
            shared = tuple(name for name in named if name in available)
            sized = grid if records is None else grid.at_sizes(records)
            if shared:
                grids.append(replace(sized, methods=shared, repeats=repeats or grid.repeats))
        if not grids:
            names = ", ".join((*self.methods, *self.optional))
            msg = f"{self.name} has no method {', '.join(methods or ())!r}; choose from {names}"
            raise MethodError(msg)
        return replace(self, grids=tuple(grids))


def _settings(
    sizes: tuple[int, ...] = SIZES,
    epsilon: float = 5.0,
    delta: float = 1e-7,
    users: int = 50,
    prior: PriorName = "uniform",
) -> tuple[Setting, ...]:
    return tuple(Setting(size, epsilon, delta, users, prior) for size in sizes)


TABLE_METHODS = (
    *("EM", "LP", "LP+CA", COARSE, "LP+CA published", "LP+BD", "LP+BD published", "LP+EM", "EM+BR"),
    *EXACT,
    *PUBLISHED,
    *OURS,
)
MEASURES = {"seconds": "Computation time in seconds", "loss_m": "Utility loss in metres"}
_UNIFORM = ("uniform prior, epsilon 5 /km, delta 1e-7", _settings())
_REAL = ("real prior, epsilon 5 /km, delta 1e-7", _settings(prior="real"))
_MORE = ("uniform prior, epsilon 15 /km, delta 1e-7", _settings(epsilon=15.0))
_GENEROUS = (
    "uniform prior, epsilon 15 /km, delta 0.15, 15 users",
    _settings(GENEROUS_SIZES, epsilon=15.0, delta=0.15, users=15),
)
_REAL_MORE = (
    "real prior, epsilon 15 /km, delta 1e-7",
    _settings(epsilon=15.0, prior="real"),
)
TABLES = (
    *(
        Item(
            f"table{number}",
            f"{MEASURES[measure]}, {words}",
            (Grid(settings, TABLE_METHODS, repeats=10),),
            measure,
            SWAPPED,
        )
        for number, measure, (words, settings) in (
            (2, "seconds", _UNIFORM),
            (3, "seconds", _REAL),
            (4, "loss_m", _UNIFORM),
            (5, "loss_m", _REAL),
            (7, "seconds", _MORE),
            (8, "seconds", _GENEROUS),
            (9, "loss_m", _MORE),
            (10, "loss_m", _GENEROUS),
            (11, "seconds", _REAL_MORE),
            (12, "loss_m", _REAL_MORE),
        )
    ),
    Item(
        "clustering",
        "Clustering coefficients of all records and of the anchors (Table 13)",
        (Grid(_settings(), ("Origin", *EXACT), "clustering", 10),),
        "coefficient",
    ),
    Item(
        "toy",
        "A small table that tries the machinery",
        (
            Grid(
                (Setting(40, outputs=8, users=4), Setting(50, outputs=8, users=4)),
                (*NOISE, "loss exponential"),
                repeats=2,
            ),
        ),
        "loss_m",
        group="toy",
    ),
)

_MIDDLE = (Setting(MIDDLE),)
_ALPHA = tuple((("alpha", alpha), ("part", 50.0)) for alpha in ALPHAS)
# Many records lie within a wide gamma, and the work grows with their cube.
_WIDE = tuple((("alpha", alpha), ("part", 16.0), ("pairs", 60)) for alpha in ALPHAS)
_BY_USERS = tuple(Setting(MIDDLE, users=users) for users in USERS)
_BY_EPSILON = tuple(Setting(MIDDLE, epsilon) for epsilon in EPSILONS)
_FEW_EPSILONS = (*_BY_EPSILON[:2], _BY_EPSILON[-1])
_BY_DELTA = tuple(Setting(MIDDLE, delta=delta) for delta in DELTAS)
_FEW_DELTAS = (_BY_DELTA[0], _BY_DELTA[5], _BY_DELTA[-1])
# Three figures over the same cells.
_USERS = (
    Grid(_BY_USERS, PUBLISHED),
    Grid(_MIDDLE, NOISE),
    Grid(_MIDDLE, OURS[:2], repeats=1),
    Grid(_MIDDLE, ("ball",)),
    Grid(_BY_USERS[::2], TEXT, "accounts", 1),
    Grid(_MIDDLE, TEXT, "text table", 1),
)


def _violations(epsilon: float) -> tuple[Grid, ...]:
    return (
        Grid(_settings(epsilon=epsilon), (*PUBLISHED, COARSE)),
        Grid(_settings(FEW, epsilon), OURS[:2], repeats=1),
        Grid(_settings(FEW, epsilon), ("ball",)),
        Grid((Setting(MIDDLE, epsilon),), TEXT, "text table", 1),
    )


def _budgets(epsilon: float) -> tuple[Grid, ...]:
    return (
        Grid(_settings(epsilon=epsilon), PUBLISHED),
        Grid(_settings(epsilon=epsilon), PUBLISHED, "bound", 1),
        Grid(_settings(FEW, epsilon), TEXT, "accounts", 1),
    )


FIGURES = tuple(
    Item(f"figure{number}", title, grids)
    for number, title, grids in (
        (4, "Selection probabilities", (Grid(_MIDDLE, DECAYS, "selection", 1),)),
        (
            6,
            "Safety margin against lambda and alpha at the paper's gamma and delta (also 21, 22)",
            (Grid(_MIDDLE, DECAYS, "margins", 1, _ALPHA),),
        ),
        (
            "6-wide",
            "Safety margin against lambda and alpha where margins exist",
            (Grid((Setting(SMALL, delta=1e-2),), DECAYS, "margins", 1, _WIDE),),
        ),
        (
            7,
            "Records covered by the LP against K",
            (Grid(_settings(), PUBLISHED), Grid(_settings(FEW), TEXT, "accounts", 1)),
        ),
        (8, "Computation time against users", _USERS),
        (9, "Decision variables against users", _USERS),
        (10, "Utility loss against users", _USERS),
        (
            11,
            "Utility loss against epsilon",
            (
                Grid(_BY_EPSILON, (*PUBLISHED, *NOISE)),
                Grid(_BY_EPSILON, ("LP+CA", COARSE, *OURS[:2]), repeats=1),
                Grid(_FEW_EPSILONS, ("ball",)),
                Grid(_FEW_EPSILONS, TEXT, "text table", 1),
            ),
        ),
        (12, "Violation rate at epsilon 5 /km", _violations(5.0)),
        (13, "Budget allocation at epsilon 5 /km", _budgets(5.0)),
        (14, "Violation rate at epsilon 15 /km", _violations(15.0)),
        (15, "Budget allocation at epsilon 15 /km", _budgets(15.0)),
        (
            16,
            "Utility loss against delta",
            (
                Grid(_BY_DELTA, PUBLISHED),
                Grid(_FEW_DELTAS, ("ball",)),
                Grid(_MIDDLE, (*NOISE, *OURS[:2]), repeats=1),
                Grid(_FEW_DELTAS, TEXT, "text table", 1),
            ),
        ),
        (
            17,
            "Violation rate against delta",
            (
                Grid(_BY_DELTA, PUBLISHED),
                Grid(_FEW_DELTAS, ("ball",)),
                Grid(_FEW_DELTAS, TEXT, "text table", 1),
            ),
        ),
        (
            18,
            "Estimated against real safety margins (also 19, 20)",
            (
                Grid(
                    tuple(Setting(1000, delta=delta) for delta in DELTAS),
                    DECAYS,
                    "estimates",
                    1,
                    ((("part", 50.0),),),
                ),
            ),
        ),
        (
            23,
            "PAnDA, its lower bound and the optimum against K (also 24, 25)",
            (
                Grid(_settings(), PUBLISHED),
                Grid(_settings(FEW), ("optimal",), repeats=1),
                Grid(_settings(), PUBLISHED, "bound", 1),
            ),
        ),
    )
)
ITEMS: Mapping[str, Item] = {item.name: item for item in (*TABLES, *FIGURES)}
"""Every item, by name, in the paper's order."""


def choose_items(what: str) -> tuple[Item, ...]:
    """The items of a name, of several separated by commas, or of the word `all`."""
    if what == "all":
        return tuple(item for item in ITEMS.values() if item.group == "paper")
    names = [part.strip() for part in what.split(",")]
    for name in names:
        if name not in ITEMS:
            msg = f"there is no item {name!r}; choose from all, {', '.join(ITEMS)}"
            raise MethodError(msg)
    return tuple(ITEMS[name] for name in names)


def restricted(
    items: Sequence[Item],
    records: Sequence[int] | None,
    methods: Sequence[str] | None,
    repeats: int | None,
) -> tuple[Item, ...]:
    """Items with other sizes, some of their methods, or another number of repeats."""
    known = {name for item in items for name in (*item.methods, *item.optional)}
    for name in methods or ():
        if name not in known:
            msg = f"there is no method {name!r}; choose from {', '.join(sorted(known))}"
            raise MethodError(msg)
    return tuple(
        item.restricted(records=records, methods=methods, repeats=repeats) for item in items
    )
