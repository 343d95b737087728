"""The paper's figures as items (sections 3 and 4, appendix D).

A figure may need cells of several kinds: those of the tables, which it shares with them, and cells
of its own. It is an `Item` made of parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from panda_mdp.errors import MethodError
from panda_paper.specs import Cell, Item, Options, Setting
from panda_paper.table_specs import SIZES

PUBLISHED = ("PAnDA-e published", "PAnDA-p published", "PAnDA-l published")
TEXT = ("PAnDA-e text", "PAnDA-p text", "PAnDA-l text")
DECAYS = ("exponential", "power", "logistic")
OURS = ("loss exponential", "optimal", "ball")
SMALL, MIDDLE = 500, 2000
"""Sizes of single-size figures; the second is the paper's default."""
FEW = (500, 1000, 2000, 5000)
"""Sizes of what is slow: our own tables, and the text's accounts."""
USERS = (20, 50, 100, 150, 200)
EPSILONS = (2.5, 5.0, 7.5, 10.0, 12.5, 15.0)
DELTAS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.15)
ALPHAS = (0.25, 0.5, 0.9, 0.95)
RENDER = "figures:render_figure"
REPEATS = 3
"""Of cells with users; one draw is enough for what hardly varies or is slow."""


@dataclass(frozen=True)
class Figure(Item):
    """An item whose cells are those of its parts."""

    parts: tuple[Item, ...] = ()

    def cells(self, *, slow_repeats: int = 0) -> Iterator[Cell]:
        """All parts' cells, those of one draw together, so that the draw is made once."""
        found = [cell for part in self.parts for cell in part.cells(slow_repeats=slow_repeats)]
        order = {setting: k for k, setting in enumerate(self.settings)}
        yield from sorted(
            found, key=lambda cell: (order.get(cell.setting, len(order)), cell.repeat)
        )

    def shows(self, cell: Cell) -> bool:
        """Whether a cell belongs to the figure: one of its own repeats, because a curve with three
        draws at one point and a table's ten at the next would show the draws."""
        return any(cell.repeat < part.repeats and part.shows(cell) for part in self.parts)

    def with_all_of(self, part: Item) -> Figure:
        """This figure with what was run of it beyond its own settings and repeats."""
        more = part.parts if isinstance(part, Figure) else ()
        return _made(self, (*self.parts, *more))

    def toy(self) -> Figure:
        """Every part at toy size."""
        parts = tuple(part.toy() for part in self.parts)
        return _made(self, parts)

    def restricted(
        self,
        *,
        records: Sequence[int] | None = None,
        methods: Sequence[str] | None = None,
        repeats: int | None = None,
    ) -> Figure:
        """Every part restricted; a part that has none of the methods is left out."""
        parts = []
        for part in self.parts:
            own = None if methods is None else [name for name in methods if name in part.methods]
            if own is None or own:
                parts.append(part.restricted(records=records, methods=own, repeats=repeats))
        if not parts:
            msg = f"{self.name} has none of these methods; choose from {', '.join(self.methods)}"
            raise MethodError(msg)
        return _made(self, tuple(parts))


def _made(figure: Figure, parts: tuple[Item, ...]) -> Figure:
    settings = tuple(dict.fromkeys(s for part in parts for s in part.settings))
    methods = tuple(dict.fromkeys(m for part in parts for m in part.methods))
    repeats = max(part.repeats for part in parts)
    return replace(figure, parts=parts, settings=settings, methods=methods, repeats=repeats)


def _part(
    settings: tuple[Setting, ...],
    methods: tuple[str, ...],
    kind: str = "cells:run_method",
    *,
    repeats: int = REPEATS,
    variants: tuple[Options, ...] = ((),),
) -> Item:
    return Item("part", "", settings, methods, kind, RENDER, repeats=repeats, variants=variants)


def _figure(name: str, title: str, *parts: Item) -> Figure:
    blank = Figure(name, title, (), (), render=RENDER, measure="figure", parts=parts)
    return _made(blank, parts)


def _sizes(epsilon: float = 5.0, sizes: tuple[int, ...] = SIZES) -> tuple[Setting, ...]:
    return tuple(Setting(size, epsilon) for size in sizes)


_ALPHA = tuple((("alpha", alpha), ("part", 50.0)) for alpha in ALPHAS)
# Many records lie within a wide gamma, and the work grows with their cube.
_WIDE = tuple((("alpha", alpha), ("part", 16.0), ("pairs", 60)) for alpha in ALPHAS)
_BY_USERS = tuple(Setting(MIDDLE, users=users) for users in USERS)
_BY_EPSILON = tuple(Setting(MIDDLE, epsilon) for epsilon in EPSILONS)
_FEW_EPSILONS = tuple(Setting(MIDDLE, epsilon) for epsilon in (2.5, 5.0, 15.0))
_BY_DELTA = tuple(Setting(MIDDLE, delta=delta) for delta in DELTAS)
_FEW_DELTAS = tuple(Setting(MIDDLE, delta=delta) for delta in (1e-7, 1e-2, 0.15))
_ACCOUNTS, _TABLE = "figures_exact:run_accounts", "figures_exact:run_table"
_BOUND = "figures_bounds:run_bound"


def _violation(name: str, epsilon: float) -> Figure:
    return _figure(
        name,
        f"Violation rate at epsilon {epsilon:g} /km",
        _part(_sizes(epsilon), (*PUBLISHED, "LP+CA 8x8")),
        _part(_sizes(epsilon, FEW), ("loss exponential", "optimal"), repeats=1),
        _part((Setting(MIDDLE, epsilon),), ("ball",), repeats=1),
        _part((Setting(MIDDLE, epsilon),), TEXT, _TABLE, repeats=1),
    )


def _budget(name: str, epsilon: float) -> Figure:
    return _figure(
        name,
        f"Budget allocation at epsilon {epsilon:g} /km",
        _part(_sizes(epsilon), PUBLISHED),
        _part(_sizes(epsilon), PUBLISHED, _BOUND, repeats=1),
        _part(_sizes(epsilon, FEW), TEXT, _ACCOUNTS, repeats=1),
    )


def _users(name: str, title: str) -> Figure:
    """Three figures over the same cells."""
    return _figure(
        name,
        title,
        _part(_BY_USERS, PUBLISHED),
        _part((Setting(MIDDLE),), ("EM", "EM+BR")),
        _part((Setting(MIDDLE),), OURS, repeats=1),
        _part(_BY_USERS[::2], TEXT, _ACCOUNTS, repeats=1),
        _part((Setting(MIDDLE),), TEXT, _TABLE, repeats=1),
    )


ITEMS = (
    _figure(
        "figure4",
        "Selection probabilities",
        _part((Setting(MIDDLE),), DECAYS, "figures_selection:run_surface", repeats=1),
    ),
    _figure(
        "figure6",
        "Safety margin against lambda and alpha at the paper's gamma and delta (also 21, 22)",
        _part(
            (Setting(MIDDLE),), DECAYS, "figures_margins:run_margins", repeats=1, variants=_ALPHA
        ),
    ),
    _figure(
        "figure6-wide",
        "Safety margin against lambda and alpha where margins exist",
        _part(
            (Setting(SMALL, delta=1e-2),),
            DECAYS,
            "figures_margins:run_margins",
            repeats=1,
            variants=_WIDE,
        ),
    ),
    _figure(
        "figure7",
        "Records covered by the LP against K",
        _part(_sizes(), PUBLISHED),
        _part(_sizes(sizes=FEW), TEXT, _ACCOUNTS, repeats=1),
    ),
    _users("figure8", "Computation time against users"),
    _users("figure9", "Decision variables against users"),
    _users("figure10", "Utility loss against users"),
    _figure(
        "figure11",
        "Utility loss against epsilon",
        _part(_BY_EPSILON, (*PUBLISHED, "EM", "EM+BR")),
        _part(_BY_EPSILON, ("LP+CA", "LP+CA 8x8", "loss exponential", "optimal"), repeats=1),
        _part(_FEW_EPSILONS, ("ball",), repeats=1),
        _part(_FEW_EPSILONS, TEXT, _TABLE, repeats=1),
    ),
    _violation("figure12", 5.0),
    _budget("figure13", 5.0),
    _violation("figure14", 15.0),
    _budget("figure15", 15.0),
    _figure(
        "figure16",
        "Utility loss against delta",
        _part(_BY_DELTA, PUBLISHED),
        _part(_FEW_DELTAS, ("ball",), repeats=1),
        _part((Setting(MIDDLE),), ("EM", "EM+BR", "loss exponential", "optimal"), repeats=1),
        _part(_FEW_DELTAS, TEXT, _TABLE, repeats=1),
    ),
    _figure(
        "figure17",
        "Violation rate against delta",
        _part(_BY_DELTA, PUBLISHED),
        _part(_FEW_DELTAS, ("ball",), repeats=1),
        _part(_FEW_DELTAS, TEXT, _TABLE, repeats=1),
    ),
    _figure(
        "figure18",
        "Estimated against real safety margins (also 19, 20)",
        _part(
            tuple(Setting(1000, delta=delta) for delta in DELTAS),
            DECAYS,
            "figures_margins:run_estimates",
            repeats=1,
            variants=((("part", 50.0),),),
        ),
    ),
    _figure(
        "figure23",
        "PAnDA, its lower bound and the optimum against K (also 24, 25)",
        _part(_sizes(), PUBLISHED),
        _part(_sizes(sizes=FEW), ("optimal",), repeats=1),
        _part(_sizes(), PUBLISHED, _BOUND, repeats=1),
    ),
)
