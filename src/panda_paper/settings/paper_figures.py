"""The paper's figures as items (sections 3 and 4, appendix D).

A figure may need cells of several kinds: those of the tables, which it shares with them, and cells
of its own. It is an `Item` made of parts.
"""

from __future__ import annotations

from panda_paper.settings.cell import Kind, Options, Setting
from panda_paper.settings.item import Figure, Item, assembled
from panda_paper.settings.method_names import COARSE, DECAYS, NOISE, OURS, PUBLISHED, TEXT
from panda_paper.settings.paper_tables import SIZES

SMALL, MIDDLE = 500, 2000
"""Sizes of single-size figures; the second is the paper's default."""
FEW = (500, 1000, 2000, 5000)
"""Sizes of what is slow: our own tables, and the text's accounts."""
USERS = (20, 50, 100, 150, 200)
EPSILONS = (2.5, 5.0, 7.5, 10.0, 12.5, 15.0)
DELTAS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.15)
ALPHAS = (0.25, 0.5, 0.9, 0.95)
REPEATS = 3
"""Of cells with users; one draw is enough for what hardly varies or is slow."""


def _part(
    settings: tuple[Setting, ...],
    methods: tuple[str, ...],
    kind: Kind = "method",
    *,
    repeats: int = REPEATS,
    variants: tuple[Options, ...] = ((),),
) -> Item:
    return Item("part", "", settings, methods, kind, repeats=repeats, variants=variants)


def _figure(name: str, title: str, *parts: Item) -> Figure:
    return assembled(Figure(name, title, (), (), measure="figure"), parts)


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


def _violation(name: str, epsilon: float) -> Figure:
    return _figure(
        name,
        f"Violation rate at epsilon {epsilon:g} /km",
        _part(_sizes(epsilon), (*PUBLISHED, COARSE)),
        _part(_sizes(epsilon, FEW), OURS[:2], repeats=1),
        _part(_sizes(epsilon, FEW), ("ball",)),
        _part((Setting(MIDDLE, epsilon),), TEXT, "text table", repeats=1),
    )


def _budget(name: str, epsilon: float) -> Figure:
    return _figure(
        name,
        f"Budget allocation at epsilon {epsilon:g} /km",
        _part(_sizes(epsilon), PUBLISHED),
        _part(_sizes(epsilon), PUBLISHED, "bound", repeats=1),
        _part(_sizes(epsilon, FEW), TEXT, "accounts", repeats=1),
    )


def _users(name: str, title: str) -> Figure:
    """Three figures over the same cells."""
    return _figure(
        name,
        title,
        _part(_BY_USERS, PUBLISHED),
        _part((Setting(MIDDLE),), NOISE),
        _part((Setting(MIDDLE),), OURS[:2], repeats=1),
        _part((Setting(MIDDLE),), ("ball",)),
        _part(_BY_USERS[::2], TEXT, "accounts", repeats=1),
        _part((Setting(MIDDLE),), TEXT, "text table", repeats=1),
    )


ITEMS = (
    _figure(
        "figure4",
        "Selection probabilities",
        _part((Setting(MIDDLE),), DECAYS, "selection", repeats=1),
    ),
    _figure(
        "figure6",
        "Safety margin against lambda and alpha at the paper's gamma and delta (also 21, 22)",
        _part((Setting(MIDDLE),), DECAYS, "margins", repeats=1, variants=_ALPHA),
    ),
    _figure(
        "figure6-wide",
        "Safety margin against lambda and alpha where margins exist",
        _part(
            (Setting(SMALL, delta=1e-2),),
            DECAYS,
            "margins",
            repeats=1,
            variants=_WIDE,
        ),
    ),
    _figure(
        "figure7",
        "Records covered by the LP against K",
        _part(_sizes(), PUBLISHED),
        _part(_sizes(sizes=FEW), TEXT, "accounts", repeats=1),
    ),
    _users("figure8", "Computation time against users"),
    _users("figure9", "Decision variables against users"),
    _users("figure10", "Utility loss against users"),
    _figure(
        "figure11",
        "Utility loss against epsilon",
        _part(_BY_EPSILON, (*PUBLISHED, *NOISE)),
        _part(_BY_EPSILON, ("LP+CA", COARSE, *OURS[:2]), repeats=1),
        _part(_FEW_EPSILONS, ("ball",)),
        _part(_FEW_EPSILONS, TEXT, "text table", repeats=1),
    ),
    _violation("figure12", 5.0),
    _budget("figure13", 5.0),
    _violation("figure14", 15.0),
    _budget("figure15", 15.0),
    _figure(
        "figure16",
        "Utility loss against delta",
        _part(_BY_DELTA, PUBLISHED),
        _part(_FEW_DELTAS, ("ball",)),
        _part((Setting(MIDDLE),), (*NOISE, *OURS[:2]), repeats=1),
        _part(_FEW_DELTAS, TEXT, "text table", repeats=1),
    ),
    _figure(
        "figure17",
        "Violation rate against delta",
        _part(_BY_DELTA, PUBLISHED),
        _part(_FEW_DELTAS, ("ball",)),
        _part(_FEW_DELTAS, TEXT, "text table", repeats=1),
    ),
    _figure(
        "figure18",
        "Estimated against real safety margins (also 19, 20)",
        _part(
            tuple(Setting(1000, delta=delta) for delta in DELTAS),
            DECAYS,
            "estimates",
            repeats=1,
            variants=((("part", 50.0),),),
        ),
    ),
    _figure(
        "figure23",
        "PAnDA, its lower bound and the optimum against K (also 24, 25)",
        _part(_sizes(), PUBLISHED),
        _part(_sizes(sizes=FEW), ("optimal",), repeats=1),
        _part(_sizes(), PUBLISHED, "bound", repeats=1),
    ),
)
