"""The paper's values, to stand beside ours: means with 1.96 standard deviations, and the README's.

The numbers are data (`paper.json`); a test reads them again from the LaTeX source where that is at
hand. The README's are those of one example run of the published code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from panda_mdp.base.text import Facts

CITY_NAMES = {"rome": "Rome", "london": "London", "nyc": "NYC"}


@dataclass(frozen=True)
class PaperValue:
    """One entry of one of the paper's tables."""

    text: str | None
    """As the paper has it: `167.34±46.52`, `>1800`, `<=0.005` or `-` (unsolved)."""
    mean: float | None = None
    spread: float | None = None
    """1.96 standard deviations over ten repeats."""

    def meets(self, value: float | None, reach: float = 0.0) -> bool | None:
        """Whether a value, give or take a reach, lies within the paper's interval; None where there
        is no interval or no value."""
        if value is None or self.mean is None or self.spread is None:
            return None
        low = self.mean - self.spread
        high = self.mean + self.spread
        return value - reach <= high and value + reach >= low


@lru_cache(maxsize=1)
def paper_data() -> Facts:
    """Everything, as it is in the file."""
    text = files("panda_paper").joinpath("paper.json").read_text(encoding="utf-8")
    data: Facts = json.loads(text)
    return data


def paper_value(item: str, city: str, method: str, records: int) -> PaperValue | None:
    """The paper's entry of an item for a city, method and K; None where it has none.

    >>> paper_value("table4", "rome", "LP+BD", 500)
    PaperValue(text='167.34±46.52', mean=167.34, spread=46.52)
    >>> paper_value("table4", "rome", "LP", 500).text
    '-'
    """
    name = CITY_NAMES.get(city.lower(), "")
    entry = _entry(paper_data()["tables"], item, name, method, str(records))
    if entry is None or isinstance(entry, str):
        return None if entry is None else PaperValue(entry)
    mean, spread = entry
    return PaperValue(f"{mean:g}±{spread:g}", float(mean), float(spread))


def readme_value(measure: str, city: str, method: str, records: int) -> float | None:
    """The value of the published code's README (Rome, uniform prior, epsilon 5); None elsewhere."""
    readme = paper_data()["readme"] if city.lower() == "rome" else {}
    entry = _entry(readme, measure, method, str(records))
    return None if entry is None else float(entry)


def _entry(data: Any, *path: str) -> Any:
    """What lies at the end of a path of names; None where there is nothing."""
    for name in path:
        data = (data or {}).get(name)
    return data
