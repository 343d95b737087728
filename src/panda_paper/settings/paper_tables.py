"""The paper's tables as items (section 4 and appendix D)."""

from __future__ import annotations

from panda_paper.settings.cell import PriorName, Setting
from panda_paper.settings.item import Item
from panda_paper.settings.method_names import COARSE, EXACT, NOISE, OURS, PUBLISHED, SWAPPED

SIZES = (500, 1000, 2000, 3000, 4000, 5000)
GENEROUS_SIZES = (500, 1000, 1500, 2000, 2500, 3000)
"""K of the tables with delta = 0.15, which have 15 users."""
METHODS = (
    "EM",
    "LP",
    "LP+CA",
    COARSE,
    "LP+CA published",
    "LP+BD",
    "LP+BD published",
    "LP+EM",
    "EM+BR",
    *EXACT,
    *PUBLISHED,
    *OURS,
)


def _settings(
    sizes: tuple[int, ...] = SIZES,
    epsilon: float = 5.0,
    delta: float = 1e-7,
    users: int = 50,
    prior: PriorName = "uniform",
) -> tuple[Setting, ...]:
    return tuple(Setting(size, epsilon, delta, users, prior) for size in sizes)


def _pair(
    time: tuple[str, str], loss: tuple[str, str], settings: tuple[Setting, ...]
) -> tuple[Item, Item]:
    """A table of times and a table of losses over the same cells."""
    return (
        Item(time[0], time[1], settings, METHODS, measure="seconds", optional=SWAPPED),
        Item(loss[0], loss[1], settings, METHODS, measure="loss_m", optional=SWAPPED),
    )


_TIME, _LOSS = "Computation time in seconds", "Utility loss in metres"
_UNIFORM = _pair(
    ("table2", f"{_TIME}, uniform prior, epsilon 5 /km, delta 1e-7"),
    ("table4", f"{_LOSS}, uniform prior, epsilon 5 /km, delta 1e-7"),
    _settings(),
)
_REAL = _pair(
    ("table3", f"{_TIME}, real prior, epsilon 5 /km, delta 1e-7"),
    ("table5", f"{_LOSS}, real prior, epsilon 5 /km, delta 1e-7"),
    _settings(prior="real"),
)
_MORE = _pair(
    ("table7", f"{_TIME}, uniform prior, epsilon 15 /km, delta 1e-7"),
    ("table9", f"{_LOSS}, uniform prior, epsilon 15 /km, delta 1e-7"),
    _settings(epsilon=15.0),
)
_GENEROUS = _pair(
    ("table8", f"{_TIME}, uniform prior, epsilon 15 /km, delta 0.15, 15 users"),
    ("table10", f"{_LOSS}, uniform prior, epsilon 15 /km, delta 0.15, 15 users"),
    _settings(GENEROUS_SIZES, epsilon=15.0, delta=0.15, users=15),
)
_REAL_MORE = _pair(
    ("table11", f"{_TIME}, real prior, epsilon 15 /km, delta 1e-7"),
    ("table12", f"{_LOSS}, real prior, epsilon 15 /km, delta 1e-7"),
    _settings(epsilon=15.0, prior="real"),
)
CLUSTERING = Item(
    "clustering",
    "Clustering coefficients of all records and of the anchors (Table 13)",
    _settings(),
    ("Origin", *EXACT),
    kind="clustering",
    measure="coefficient",
)
TOY = Item(
    "toy",
    "A small table that tries the machinery",
    (Setting(40, outputs=8, users=4), Setting(50, outputs=8, users=4)),
    (*NOISE, "loss exponential"),
    repeats=2,
    group="toy",
)
# The paper's Table 1 defines the three decays and its Table 6 lists symbols: nothing to run.
ITEMS = (
    *(_UNIFORM[0], _REAL[0], _UNIFORM[1], _REAL[1]),
    *(_MORE[0], _GENEROUS[0], _MORE[1], _GENEROUS[1]),
    *_REAL_MORE,
    CLUSTERING,
    TOY,
)
