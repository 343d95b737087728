"""The paper's values, to stand beside ours: means with 1.96 standard deviations, and the README's.

The numbers are data (`paper.json`); a test reads them again from the LaTeX source where that is at
hand. The README's are those of one example run of the published code.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import NamedTuple

from panda_mdp.base.text import Facts

CITY_NAMES = {"rome": "Rome", "london": "London", "nyc": "NYC"}
"""In the paper's order."""
PAPER: Facts = json.loads(files("panda_paper").joinpath("paper.json").read_text(encoding="utf-8"))
"""Everything, as it is in the file."""


class PaperValue(NamedTuple):
    """One entry of one of the paper's tables."""

    text: str | None
    """As the paper has it: `167.34±46.52`, `>1800`, `<=0.005` or `-` (unsolved)."""
    mean: float | None = None
    spread: float | None = None
    """1.96 standard deviations over ten repeats."""


def paper_value(item: str, city: str, method: str, records: int) -> PaperValue | None:
    """The paper's entry of an item for a city, method and K; None where it has none.

    >>> paper_value("table4", "rome", "LP+BD", 500)
    PaperValue(text='167.34±46.52', mean=167.34, spread=46.52)
    >>> paper_value("table4", "rome", "LP", 500).text
    '-'
    """
    try:
        entry = PAPER["tables"][item][CITY_NAMES[city.lower()]][method][str(records)]
    except KeyError:
        return None
    if isinstance(entry, str):
        return PaperValue(entry)
    mean, spread = entry
    return PaperValue(f"{mean:g}±{spread:g}", mean, spread)


def readme_value(measure: str, city: str, method: str, records: int) -> float | None:
    """The value of the published code's README (Rome, uniform prior, epsilon 5); None elsewhere."""
    try:
        return None if city.lower() != "rome" else PAPER["readme"][measure][method][str(records)]
    except KeyError:
        return None
