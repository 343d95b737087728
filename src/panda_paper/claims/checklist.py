"""The checklist of the paper's claims: each is evaluated from result rows, never from memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from panda_paper.cells.city_results import CityResults
from panda_paper.claims import on_cost, on_loss, on_privacy
from panda_paper.claims.claim import VERDICTS, Checked, Claim, Verdict

FIRST = (
    "C1",
    "C2",
    "5,000 records",
    "14.81 % anchors",
    "ratio 1.3649",
    "76.40 % lower loss",
    "guarantee",
    "violation below 1e-7",
    "67/24/9 % of the budget",
    "margins 13.3 % above",
    "guideline",
)
"""The artifact's two claims and those of the abstract and the introduction."""


def _place(claim: Claim) -> int:
    return FIRST.index(claim.key) if claim.key in FIRST else len(FIRST)


CLAIMS: tuple[Claim, ...] = tuple(
    sorted((*on_cost.CLAIMS, *on_loss.CLAIMS, *on_privacy.CLAIMS), key=_place)
)
"""Every claim, the main ones first."""


def checklist(results: CityResults) -> list[Checked]:
    """Every claim judged from one city's rows."""
    return [Checked(claim, results.name, claim.evaluate(results)) for claim in CLAIMS]


def tally(verdicts: Iterable[Verdict]) -> Mapping[Verdict, int]:
    """How often each verdict was given.

    >>> tally(["holds", "holds", "does not hold"])["holds"]
    2
    """
    counts = Counter(verdicts)
    return {word: counts[word] for word in VERDICTS}
