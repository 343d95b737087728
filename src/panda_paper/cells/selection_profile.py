"""Figure 4: how likely an anchor is to be selected, by distance, and what that means on a map."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from panda_mdp.panda.accounts.leakage import worst_leakage
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors
from panda_mdp.panda.selection.law import AnchorLaw
from panda_paper.cells.outcome import Outcome
from panda_paper.cells.published import PublishedSelection
from panda_paper.cells.workspace import Workspace
from panda_paper.settings.cell import Cell
from panda_paper.settings.method_names import decay_of

RADIUS_KM = 2.0
"""gamma of the paper's Figure 4."""
REACH_KM = 4.0
STEPS = 161


def run_selection(cell: Cell, work: Workspace) -> Outcome:
    """A decay's profile with the text's gamma of 2 km, and both forms of it on the cell's domain.

    `text_...` are the numbers of the paper's parameters (gamma = d_max / 50, clipped at h(gamma)),
    `code_...` those of the published code: mean number of records that a user selects within gamma
    and beyond, and the largest cost of Phase I over all pairs, per km (Proposition 1).
    """
    draw = work.draw(cell)
    domain = draw.problem.domain
    start = time.perf_counter()
    decay = decay_of(cell.method)
    text = BernoulliAnchors(decay, radius=RADIUS_KM)
    distance = np.linspace(0, REACH_KM, STEPS)
    published = PublishedSelection.of(decay, domain, work.study.name)
    inside = distance < published.radius
    values: dict[str, Any] = {
        "distance": distance.tolist(),
        "text": text.h(np.minimum(distance, RADIUS_KM)).tolist(),
        "code": np.where(inside, published.near(distance), published.tail).tolist(),
        "code_radius": published.radius,
        "code_tail": published.tail,
        **_counts("text", BernoulliAnchors(decay).on(domain)),
        **_counts("code", published.on(domain)),
    }
    return Outcome(values, (("law", time.perf_counter() - start),))


def _counts(name: str, law: AnchorLaw) -> dict[str, float]:
    """Expected anchors of a user within the radius and beyond, and the worst cost of Phase I."""
    rows = law.all_rows
    size = law.domain.size
    near = float(rows.probability.sum()) / size
    far = law.tail * (len(law.candidates) - len(rows.anchor) / size)
    return {
        f"{name}_near": near,
        f"{name}_far": far,
        f"{name}_worst_epsilon": worst_leakage(law).rate,
    }
