"""The paper's values, to stand beside ours: means with 1.96 standard deviations, and the README's.

The numbers are data (`paper.json`), read from the LaTeX source by `paper_latex`; a test reads them
again where the source is at hand. The README's are those of one example run of the published code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

CITY_NAMES = {"rome": "Rome", "london": "London", "nyc": "NYC"}


@dataclass(frozen=True)
class PaperValue:
    """One entry of one of the paper's tables."""

    text: str
    """As the paper has it: `167.34±46.52`, `>1800`, `<=0.005` or `-` (unsolved)."""
    mean: float | None = None
    spread: float | None = None
    """1.96 standard deviations over ten repeats."""

    @property
    def low(self) -> float | None:
        return None if self.mean is None or self.spread is None else self.mean - self.spread

    @property
    def high(self) -> float | None:
        return None if self.mean is None or self.spread is None else self.mean + self.spread

    def holds(self, value: float) -> bool | None:
        """Whether a value lies within the paper's interval; None where it has none."""
        if self.low is None or self.high is None:
            return None
        return self.low <= value <= self.high


@lru_cache(maxsize=1)
def paper_data() -> Mapping[str, Any]:
    """Everything, as it is in the file."""
    text = files("panda_paper.settings").joinpath("paper.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def paper_value(item: str, city: str, method: str, records: int) -> PaperValue | None:
    """The paper's entry of an item for a city, method and K; None where it has none.

    >>> paper_value("table4", "rome", "LP+BD", 500)
    PaperValue(text='167.34±46.52', mean=167.34, spread=46.52)
    >>> paper_value("table4", "rome", "LP", 500).text
    '-'
    """
    tables = paper_data()["tables"]
    name = CITY_NAMES.get(city.lower(), "")
    entry = tables.get(item, {}).get(name, {}).get(method, {}).get(str(records))
    if entry is None:
        return None
    if isinstance(entry, str):
        return PaperValue(entry)
    mean, spread = entry
    return PaperValue(f"{mean:g}±{spread:g}", float(mean), float(spread))


def readme_value(measure: str, city: str, method: str, records: int) -> float | None:
    """The value of the published code's README (Rome, uniform prior, epsilon 5); None elsewhere."""
    if city.lower() != "rome":
        return None
    entry = paper_data()["readme"].get(measure, {}).get(method, {}).get(str(records))
    return None if entry is None else float(entry)
