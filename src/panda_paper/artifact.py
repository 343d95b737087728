"""Baselines as the published code runs them: LP+CA, LP+BD, and EM on its distances.

None has a guarantee that this library would state; each is audited over all pairs of records.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import SolverError
from panda_mdp.methods.adjust import remap
from panda_mdp.methods.closed_forms import exponential
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.outputs import Outputs
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.survey.bench import Outcome
from panda_mdp.table.mechanism import NoGuarantee, Table
from panda_paper.cell import Values
from panda_paper.published import clusters, exchanged, solve_near
from panda_paper.study import METRES, Draw

GAP = 0.01
"""Gap to which the LPs of this library are solved."""
SIDE = 10
"""The artifact's grid; the paper's text has 8 x 8."""
SHARE = 0.1
"""The artifact's LP+CA has epsilon / 10 in its constraints."""
BENDERS_CLUSTERS = 50


def audited_values(table: Table) -> Values:
    """A table's loss, what it claims and what the audit over all pairs of records finds."""
    return {
        "loss_m": METRES * table.loss,
        "claimed_epsilon": table.epsilon,
        "audited_epsilon": table.audit.epsilon,
        "holds": table.audit.holds,
    }


def coarse_published(draw: Draw) -> Outcome:
    """LP+CA of the artifact: a 10 x 10 grid over the whole city, epsilon / 10.

    A cell is represented by the city's node nearest to its centre (in degrees); its loss in the LP
    is that of the record nearest to the representative; a record takes the row of the nearest one.
    """
    problem, city = draw.problem, draw.study.city
    nodes = representatives(city.lat, city.lon)
    spots = np.stack([city.lat[nodes], city.lon[nodes]], axis=1)
    places = np.stack([problem.domain.lat, problem.domain.lon], axis=1)
    squares = ((places[:, None] - spots) ** 2).sum(axis=2)
    nearest_cell, nearest_record = squares.argmin(axis=1), squares.argmin(axis=0)
    distance = Domain.from_points(spots[:, 0], spots[:, 1]).distances()
    cells = representative_problem(problem, distance, nearest_record)
    stages = draw.clock.lap("cells")
    solved = optimal(cells, GAP, time_limit=draw.limit)
    stages += tuple((f"cells: {name}", seconds) for name, seconds in solved.stages)
    matrix = solved.matrix[nearest_cell]
    table = NoGuarantee.from_matrix(problem, matrix, method="LP+CA, published")
    centres = distance[np.ix_(nearest_cell, nearest_cell)]
    counted = problem.domain.distances() < centres
    values = {
        **audited_values(table),
        "violation_as_published": float(counted.mean()),
    }
    return Outcome(values, stages, "done", "published variant: 10 x 10, epsilon / 10")


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


def benders_published(draw: Draw) -> Outcome:
    """LP+BD of the artifact: the LP over pairs nearer than 0.8 km alone, rows of at least 1e-4 on
    the borders of 50 clusters.

    All other pairs of records are unconstrained, so its optimum is below that of the true LP. The
    artifact stops at a gap of 10 %; this solves every component of the 0.8 km graph with HiGHS.
    """
    problem = draw.problem
    distance = problem.domain.distances()
    label = clusters(distance, draw.seed, BENDERS_CLUSTERS)
    draw.clock.lap("distances and clusters")
    try:
        matrix = solve_near(
            problem.weighted_loss,
            distance,
            problem.epsilon * distance,
            label,
            algorithm="ipm",
            time_limit=draw.limit,
        )
    except SolverError as error:
        return Outcome({}, draw.clock.lap("LP"), "time limit", str(error))
    stages = draw.clock.lap("LP")
    table = NoGuarantee.from_matrix(problem, matrix, method="LP+BD, published")
    note = "published variant: only pairs nearer than 0.8 km are constrained"
    return Outcome(audited_values(table), stages, "done", note)


def exponential_swapped(draw: Draw) -> Outcome:
    """EM, or EM+BR as the cell says, on the artifact's distances (latitude and longitude
    exchanged); audited on right ones."""
    problem = draw.problem
    # The artifact's EM and EM+BR know only the uniform prior.
    uniform = np.full(problem.size, 1 / problem.size)
    table: Table = exponential(replace(problem, domain=exchanged(problem.domain), prior=uniform))
    if draw.cell.method.startswith("EM+BR"):
        table = remap(table)
    stages = draw.clock.lap("weights")
    seen = NoGuarantee.from_matrix(problem, table.matrix, method="published distances")
    values = audited_values(seen) | {"loss_m": METRES * table.loss}
    return Outcome(values, stages, "done", "published variant: latitude and longitude exchanged")
