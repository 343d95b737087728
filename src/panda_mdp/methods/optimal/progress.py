"""What a running solve tells those who watch it."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Where a solve stands."""

    seconds: float
    iterations: int
    loss: float
    """Of the best table so far whose audit holds."""
    lower_bound: float
    edges: int
    note: str = ""
    """What takes its time apart from iterations, such as compiling for the first time."""

    @property
    def gap(self) -> float:
        """Relative gap between the best certified loss and the lower bound."""
        return self.loss / self.lower_bound - 1 if self.lower_bound > 0 else math.inf


def tell(step: Progress) -> None:
    """One line on standard error."""
    where = (
        f"{step.iterations:6,} iterations  loss {step.loss:.6g}  "
        f"at least {step.lower_bound:.6g}  gap {100 * step.gap:.2f} %"
    )
    sys.stderr.write(f"{step.seconds:6.1f} s  {step.note or where}\n")
    sys.stderr.flush()
