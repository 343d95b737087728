"""Clustering coefficients of all records and of the anchors (Table 13 of the paper)."""

from __future__ import annotations

import time

import numpy as np

from panda_mdp.experiments.draws import Workspace
from panda_mdp.experiments.published import Decay, PublishedSelection
from panda_mdp.experiments.specs import Cell
from panda_mdp.experiments.store import Outcome
from panda_mdp.panda.clustering import clustering_coefficient

DECAYS: dict[str, Decay] = {
    "Origin": "exponential",
    "PAnDA-e": "exponential",
    "PAnDA-p": "power",
    "PAnDA-l": "logistic",
}


def run_clustering(cell: Cell, work: Workspace) -> Outcome:
    """The average clustering coefficient at the published code's gamma.

    "Origin" is that of all records, the others those of the union of the users' anchors, drawn by
    the published code's selection. Two records are neighbours where they are nearer than gamma.
    """
    draw = work.draw(cell)
    start = time.perf_counter()
    domain = draw.problem.domain
    selection = PublishedSelection.of(DECAYS[cell.method], domain, work.study.name)
    anchors = None
    if cell.method != "Origin":
        law = selection.on(domain)
        generator = np.random.default_rng([draw.seed, 3])
        drawn = generator.random((len(draw.users), domain.size)) < law.dense(draw.users)
        anchors = np.flatnonzero(drawn.any(axis=0))
    value = clustering_coefficient(domain, selection.radius, anchors)
    values = {
        "coefficient": value,
        "radius_km": selection.radius,
        "anchors": domain.size if anchors is None else len(anchors),
    }
    return Outcome(values, (("clustering", time.perf_counter() - start),))
