"""Names of the methods in tables, figures and results: they never change."""

from __future__ import annotations

from typing import Literal

from panda_mdp.errors import MethodError

Decay = Literal["exponential", "power", "logistic"]
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


def decay_of(method: str) -> Decay:
    """The decay of a variant, or of a decay's own name.

    >>> decay_of("PAnDA-p published"), decay_of("logistic")
    ('power', 'logistic')
    """
    for letter, decay in VARIANTS.items():
        if method == decay or method.split(" ", maxsplit=1)[0] == f"PAnDA-{letter}":
            return decay
    msg = f"there is no decay {method!r}; choose from {', '.join((*DECAYS, *EXACT))}"
    raise MethodError(msg)
