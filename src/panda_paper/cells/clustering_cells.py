"""Clustering coefficients of all records and of the anchors (Table 13 of the paper)."""

from __future__ import annotations

import time

import numpy as np

from panda_mdp.panda.simulate.clustering import clustering_coefficient
from panda_mdp.space.domain import Domain
from panda_paper.cells.outcome import Outcome
from panda_paper.cells.published import PublishedSelection
from panda_paper.cells.workspace import Workspace
from panda_paper.settings.cell import Cell
from panda_paper.settings.method_names import decay_of

PARTS = 100
"""The threshold is d_max over this. The paper does not tell it; this one, on the published code's
distances, gives its values for all records of Rome and of London at every K."""


def run_clustering(cell: Cell, work: Workspace) -> Outcome:
    """The average clustering coefficient where records nearer than d_max / 100 are neighbours.

    "Origin" is that of all records, the others those of the union of the users' anchors, drawn by
    the published code's selection. Distances are the published code's (latitude and longitude
    exchanged); `on_right_distances` has the coefficient on right ones.
    """
    draw = work.draw(cell)
    start = time.perf_counter()
    right = draw.problem.domain
    domain = Domain.from_points(right.lon, right.lat)
    anchors = None
    if cell.method != "Origin":
        law = PublishedSelection.of(decay_of(cell.method), domain, work.study.name).on(domain)
        generator = np.random.default_rng([draw.seed, 3])
        drawn = generator.random((len(draw.users), domain.size)) < law.dense(draw.users)
        anchors = np.flatnonzero(drawn.any(axis=0))
    values = {
        "coefficient": clustering_coefficient(domain, domain.diameter / PARTS, anchors),
        "on_right_distances": clustering_coefficient(right, right.diameter / PARTS, anchors),
        "threshold_km": domain.diameter / PARTS,
        "anchors": domain.size if anchors is None else len(anchors),
    }
    return Outcome(values, (("clustering", time.perf_counter() - start),))
