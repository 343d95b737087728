"""One cell of an experiment, a method at a setting on a draw, and the names of the methods.

Names are saved with every result, so they never change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
"""On the published code's distances; run when they are named."""
TEXT = tuple(f"{name} text" for name in EXACT)
"""The text's parameters, computed without a guarantee where they do not fit."""
NOISE = ("EM", "EM+BR")
COARSE = "LP+CA 8x8"
"""LP+CA as the paper's text has it."""
OURS = ("loss exponential", "optimal", "ball")
SLOW = frozenset({"LP", "LP+BD", "LP+BD published", "LP+EM"})
"""Methods that run into the time limit at most sizes: run on request, once per setting."""
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
        *("EM+BR", *EXACT, *PUBLISHED, *OURS),
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
        setting, options = Setting(**fields["setting"]), tuple(fields["options"].items())
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
