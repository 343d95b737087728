"""The checklist of the paper's claims: each is evaluated from result rows, never from memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from panda_mdp.experiments import claims_cost, claims_loss, claims_privacy
from panda_mdp.experiments.claims_model import VERDICTS, Checked, Claim, Verdict
from panda_mdp.experiments.report_results import CityResults

CLAIMS: tuple[Claim, ...] = (*claims_cost.CLAIMS, *claims_loss.CLAIMS, *claims_privacy.CLAIMS)
"""Every claim, the two of the artifact first in their parts."""


def checklist(results: CityResults) -> list[Checked]:
    """Every claim judged from one city's rows."""
    return [Checked(claim, results.name, claim.evaluate(results)) for claim in CLAIMS]


def tally(found: Iterable[Verdict]) -> Mapping[Verdict, int]:
    """How often each verdict was given.

    >>> tally(["holds", "holds", "does not hold"])["holds"]
    2
    """
    counts = Counter(found)
    return {word: counts[word] for word in VERDICTS}
