"""The checklist of the paper's claims, each judged from result rows, never from memory.

A claim is data (`claims.toml`): what the paper says and where, the quantities that decide it, and
the interval in which each must lie; numbers of the paper have 10 % of room, shares 10 points. It is
judged twice where PAnDA is involved: under published accounting (does the number come out when the
published code's choices are followed?) and under exact accounting (does it stand when everything is
charged?). Beside both stands what the library's own methods do at the same settings.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from string import Formatter
from typing import Literal, get_args

from panda_paper import evidence
from panda_paper.evidence import Evidence, NoRowsError, Words, exact_runs, fill, holding
from panda_paper.results import CityResults

Verdict = Literal["holds", "does not hold", "cannot be checked", "does not apply"]
Rule = Mapping[str, tuple[float, float]]
"""Quantities with the least and the largest value that each may have."""
FIELDS = Formatter()


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
    measure: str | None = None
    """What gives the quantities that are no means of rows."""
    published: Rule = field(default_factory=dict)
    figures: Words = ""
    exact: Rule = field(default_factory=dict)
    exact_figures: Words = ""
    needs_fit: bool = False
    """Whether in exact accounting nothing is to be judged where PAnDA fits nowhere."""
    ours: Words = ""

    def command(self, city: str) -> str:
        """What produces the rows."""
        return f"panda-mdp reproduce {','.join(self.items)} --city {city}"

    def evaluate(self, results: CityResults) -> Finding:
        """The verdict from one city's rows."""
        try:
            quantities = {} if self.measure is None else getattr(evidence, self.measure)(results)
        except NoRowsError:
            return self._open(results)
        held = {"holding": holding(results.of(self.items[0]))}
        found = Evidence(results.of, {**quantities, **held})
        published = judge(self.published, found)
        exact = judge(self.exact, found)
        figures = fill(self.figures, found)
        exact_figures = fill(self.exact_figures, found)
        if not figures and not exact_figures:
            return self._open(results)
        if self.needs_fit:
            runs = exact_runs(results)
            exact = "does not hold" if runs.get("fitting") == 0 else "cannot be checked"
            exact_figures = exact_figures or f"{runs['runs']} (see guarantee)"
        return Finding(published, figures, exact, exact_figures, fill(self.ours, found))

    def _open(self, results: CityResults) -> Finding:
        missing = f"there are no rows for it yet; run `{self.command(results.name)}`"
        return Finding("cannot be checked", missing, "cannot be checked")


def judge(rule: Rule, found: Mapping[str, float]) -> Verdict:
    """Whether all quantities lie where they must; unknown ones leave it open.

    >>> judge({"share": (0.1, 0.2)}, {"share": 0.15}), judge({"share": (0.1, 0.2)}, {"share": 0.3})
    ('holds', 'does not hold')
    >>> judge({"share": (0.1, 0.2)}, {}), judge({}, {})
    ('cannot be checked', 'does not apply')
    """
    if not rule:
        return "does not apply"
    unknown = False
    for name, (low, high) in rule.items():
        try:
            if not low <= FIELDS.get_field(name, (), found)[0] <= high:
                return "does not hold"
        except KeyError:
            unknown = True
    return "cannot be checked" if unknown else "holds"


def checklist(results: CityResults) -> dict[str, Finding]:
    """Every claim judged from one city's rows, by its key."""
    return {claim.key: claim.evaluate(results) for claim in CLAIMS}


def tally(verdicts: Iterable[Verdict]) -> Mapping[Verdict, int]:
    """How often each verdict was given.

    >>> tally(["holds", "holds", "does not hold"])["holds"]
    2
    """
    counts = Counter(verdicts)
    return {word: counts[word] for word in get_args(Verdict)}


_TEXT = files("panda_paper").joinpath("claims.toml").read_text(encoding="utf-8")
CLAIMS = tuple(Claim(**claim) for claim in tomllib.loads(_TEXT)["claim"])
"""Every claim, the main ones first."""
