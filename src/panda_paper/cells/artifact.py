"""Baselines as the published code runs them: LP+CA, LP+BD, and EM on its distances.

None has a guarantee that this library would state; each is audited over all pairs of records.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from panda_mdp.base.adjacency import adjacency
from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.methods.exponential import exponential
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.remap import remap
from panda_mdp.outputs import Outputs
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import NoGuarantee
from panda_paper.cells.outcome import METRES, Outcome
from panda_paper.cells.panda_methods import GAP
from panda_paper.cells.published import FLOOR, NEAR_KM, clusters
from panda_paper.cells.workspace import Draw, Workspace
from panda_paper.settings.cell import Cell

SIDE = 10
"""The artifact's grid; the paper's text has 8 x 8."""
SHARE = 0.1
"""The artifact's LP+CA has epsilon / 10 in its constraints."""
BENDERS_CLUSTERS = 50


def coarse_published(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """LP+CA of the artifact: a 10 x 10 grid over the whole city, epsilon / 10.

    A cell is represented by the city's node nearest to its centre (in degrees); its loss in the LP
    is that of the record nearest to the representative; a record takes the row of the nearest one.
    """
    problem, city = draw.problem, work.study.city
    start = time.perf_counter()
    nodes = representatives(city.lat, city.lon)
    spots = np.stack([city.lat[nodes], city.lon[nodes]], axis=1)
    places = np.stack([problem.domain.lat, problem.domain.lon], axis=1)
    squares = ((places[:, None] - spots) ** 2).sum(axis=2)
    nearest_cell, nearest_record = squares.argmin(axis=1), squares.argmin(axis=0)
    distance = Domain.from_points(spots[:, 0], spots[:, 1]).distances()
    cells = representative_problem(problem, distance, nearest_record)
    stages = [("cells", time.perf_counter() - start)]
    solved = optimal(cells, GAP, time_limit=work.limit)
    stages += [(f"cells: {name}", seconds) for name, seconds in solved.stages]
    matrix = solved.matrix[nearest_cell]
    table = NoGuarantee.from_matrix(problem, matrix, method="LP+CA, published")
    centres = distance[np.ix_(nearest_cell, nearest_cell)]
    counted = problem.domain.distances() < centres
    values = {
        "loss_m": METRES * table.loss,
        "claimed_epsilon": problem.epsilon,
        "audited_epsilon": table.audit.epsilon,
        "holds": table.audit.holds,
        "cells": len(nodes),
        "cells_gap": solved.gap,
        "violation_as_published": float(counted.mean()),
    }
    return Outcome(values, tuple(stages), "done", "published variant: 10 x 10, epsilon / 10")


def representatives(lat: FloatArray, lon: FloatArray, side: int = SIDE) -> IntArray:
    """The node nearest to the centre of each cell of a grid over the city that has nodes."""
    places = np.stack([lat, lon], axis=1)
    low, extent = places.min(axis=0), np.ptp(places, axis=0)
    step = np.where(extent > 0, extent, 1.0) / side
    index = np.minimum(((places - low) / step).astype(np.int64), side - 1)
    centre = low + (index + 0.5) * step
    offset = ((places - centre) ** 2).sum(axis=1)
    key = index[:, 0] * side + index[:, 1]
    order = np.lexsort((offset, key))
    _, first = np.unique(key[order], return_index=True)
    return np.asarray(order[first])


def representative_problem(problem: Problem, distance: FloatArray, stand_in: IntArray) -> Problem:
    """The LP over representatives at epsilon / 10."""
    return Problem(
        Domain.from_matrix(distance, unit=problem.domain.unit),
        Outputs.labels(range(problem.outputs_count)),
        problem.loss[stand_in],
        SHARE * problem.epsilon,
        loss_unit=problem.loss_unit,
    )


def benders_published(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """LP+BD of the artifact: the LP over pairs nearer than 0.8 km alone, rows of at least 1e-4 on
    the borders of 50 clusters.

    All other pairs of records are unconstrained, so its optimum is below that of the true LP. The
    artifact stops at a gap of 10 %; this solves every component of the 0.8 km graph with HiGHS.
    """
    from scipy.sparse import vstack

    from panda_mdp.compute.highs import Lp, cost_scale, privacy_rows, sum_rows

    problem = draw.problem
    start = time.perf_counter()
    size, outputs = problem.size, problem.outputs_count
    near = [(i, j, distance) for i, j, distance in problem.domain.pairs_within(NEAR_KM) if len(i)]
    empty = np.empty(0, dtype=np.int64)
    first = np.concatenate([part[0] for part in near]) if near else empty
    second = np.concatenate([part[1] for part in near]) if near else empty
    length = np.concatenate([part[2] for part in near]) if near else np.empty(0)
    graph = adjacency(first, second, size)
    parts, component = connected_components(graph, directed=False)
    stages = [("pairs within 0.8 km", time.perf_counter() - start)]
    start = time.perf_counter()
    matrix = np.zeros((size, outputs))
    matrix[np.arange(size), problem.loss.argmin(axis=1)] = 1.0
    # Its floor applies to boundary records: those with a constraint across two of its clusters.
    label = clusters(problem.domain.distances(), draw.seed, BENDERS_CLUSTERS)
    across = label[first] != label[second]
    boundary = np.zeros(size, dtype=bool)
    boundary[np.concatenate([first[across], second[across]])] = True
    floor = np.where(boundary, min(FLOOR, 1 / outputs), 0.0)
    for part in np.flatnonzero(np.bincount(component, minlength=parts) > 1):
        members = np.flatnonzero(component == part)
        mine = component[first] == part
        place = np.searchsorted(members, np.stack([first[mine], second[mine]], axis=1))
        rows = privacy_rows(place, problem.epsilon * length[mine], len(members), outputs)
        cost = problem.weighted_loss[members]
        lp = Lp(
            cost.ravel() / cost_scale(cost),
            csr_array(vstack([sum_rows(len(members), outputs), rows])),
            np.concatenate([np.ones(len(members)), np.full(rows.shape[0], -np.inf)]),
            np.concatenate([np.ones(len(members)), np.zeros(rows.shape[0])]),
            lower=np.repeat(floor[members], outputs),
            algorithm="ipm",
        )
        spent = time.perf_counter() - start
        left = None if work.limit is None else work.limit - spent
        if left is not None and left <= 0:
            return Outcome({}, (("LP", spent),), "time limit", f"stopped after {work.limit:g} s")
        answer = lp.solve(left)
        if answer.primal is None or not answer.optimal:
            spent = time.perf_counter() - start
            return Outcome({}, (("LP", spent),), "time limit", f"HiGHS: {answer.status}")
        matrix[members] = np.maximum(answer.primal, 0.0).reshape(len(members), outputs)
    stages.append(("LP", time.perf_counter() - start))
    matrix /= matrix.sum(axis=1, keepdims=True)
    table = NoGuarantee.from_matrix(problem, matrix, method="LP+BD, published")
    values = {
        "loss_m": METRES * table.loss,
        "claimed_epsilon": problem.epsilon,
        "audited_epsilon": table.audit.epsilon,
        "holds": table.audit.holds,
        "constrained_pairs": len(first),
        "components": int(parts),
    }
    note = "published variant: only pairs nearer than 0.8 km are constrained"
    return Outcome(values, tuple(stages), "done", note)


def exponential_swapped(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """EM on the artifact's distances (latitude and longitude exchanged); audited on right ones."""
    return _swapped(draw, remapped=False)


def remap_swapped(cell: Cell, draw: Draw, work: Workspace) -> Outcome:
    """EM+BR on the artifact's distances."""
    return _swapped(draw, remapped=True)


def _swapped(draw: Draw, *, remapped: bool) -> Outcome:
    problem = draw.problem
    start = time.perf_counter()
    exchanged = Domain.from_points(problem.domain.lon, problem.domain.lat)
    # The artifact's EM and EM+BR know only the uniform prior.
    uniform = np.full(problem.size, 1 / problem.size)
    table = exponential(replace(problem, domain=exchanged, prior=uniform))
    if remapped:
        table = remap(table)
    stages = (("weights", time.perf_counter() - start),)
    seen = NoGuarantee.from_matrix(problem, table.matrix, method="published distances")
    values = {
        "loss_m": METRES * table.loss,
        "claimed_epsilon": problem.epsilon,
        "audited_epsilon": seen.audit.epsilon,
        "holds": seen.audit.holds,
    }
    return Outcome(values, stages, "done", "published variant: latitude and longitude exchanged")
