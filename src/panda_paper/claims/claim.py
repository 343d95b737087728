"""What a claim and a finding about it are.

A claim is judged twice where PAnDA is involved: under published accounting (does the number come
out when the published code's choices are followed?) and under exact accounting (does it stand when
everything is charged?). Beside both stands what the library's own methods do at the same settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from panda_paper.cells.city_results import CityResults

Verdict = Literal["holds", "does not hold", "cannot be checked", "does not apply"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "cannot be checked", "does not apply")


@dataclass(frozen=True)
class Finding:
    """What the rows of one city say about a claim."""

    published: Verdict
    """With the published code's choices."""
    figures: str
    """The figures behind it."""
    exact: Verdict = "does not apply"
    """With everything charged."""
    exact_figures: str = ""
    ours: str = ""
    """The library's own methods at the same settings."""


Check = Callable[[CityResults], Finding | None]


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, in our words, with the items whose rows decide it."""

    key: str
    says: str
    where: str
    """Where the paper says it."""
    items: tuple[str, ...]
    rule: str
    """When it counts as held."""
    check: Check

    def command(self, city: str) -> str:
        """What produces the rows."""
        return f"panda-mdp reproduce {','.join(self.items)} --city {city}"

    def evaluate(self, results: CityResults) -> Finding:
        """The verdict from one city's rows."""
        finding = self.check(results)
        if finding is None:
            return Finding(
                "cannot be checked",
                f"there are no rows for it yet; run `{self.command(results.name)}`",
                "cannot be checked",
            )
        return finding


@dataclass(frozen=True)
class Checked:
    """A claim with its finding in one city."""

    claim: Claim
    city: str
    finding: Finding


def verdict(held: bool) -> Verdict:
    """The word for a truth value."""
    return "holds" if held else "does not hold"
