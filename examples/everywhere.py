"""Every point of an area: a mesh over a park with a lake, the best table, and a walk through it.

    python examples/everywhere.py [FOLDER]

Solves once for the vertices alone and once for every point, prints what the two promise between the
vertices, and draws the mesh with one output's probability, and the rate at which that probability
changes along a walk (everywhere.png): for the vertices' own table it exceeds epsilon.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.plot.style import BLUE, INK, PALE, SEQUENCE, VERMILION, new_figure, plain_axes
from panda_mdp.privacy.continuous import audit_mesh
from panda_mdp.space.mesh import unproject

PARK = [(41.908, 12.476), (41.908, 12.497), (41.921, 12.501), (41.921, 12.472)]
LAKE = [(41.912, 12.484), (41.912, 12.490), (41.916, 12.491), (41.916, 12.483)]
STEPS = 1500


def main(out: Path = Path("out/examples"), spacing: float = 0.1, epsilon: float = 2.0) -> Path:
    domain = pm.Domain.from_area([PARK, LAKE], spacing=spacing)
    outputs = np.flatnonzero(domain.mesh.inside)[::6]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), epsilon)
    here = pm.optimal_everywhere(problem)
    plain = pm.optimal(here.problem, backend="cpu")
    weights = np.asarray(plain.weights)
    between = audit_mesh(domain.mesh, problem.outputs, weights, epsilon)
    print(f"{domain.size} vertices, {1000 * spacing:g} m a side, epsilon {epsilon:g} per km")
    print(f"for the vertices alone: loss {1000 * plain.loss:.1f} m, {between}")
    print(f"for every point: loss {1000 * here.loss:.1f} m, {here.everywhere}")
    print(f"none that is private at every point loses less than {1000 * here.lower_bound:.1f} m")
    report = here.sample_at(41.9143, 12.4787)
    print(f"a report from the park: {domain.lat[report]:.5f}, {domain.lon[report]:.5f}")
    return plot.save_figure(draw(here, plain), out / "everywhere.png")


def draw(here: pm.EverywhereMechanism, plain: pm.Mechanism) -> Figure:
    figure = new_figure(11, 4.8)
    left, right = figure.subplots(1, 2)
    mesh = here.mesh
    column = int((here.problem.prior @ here.matrix).argmax())
    metres, inside = 1000 * mesh.plane, mesh.inside == 1
    shade = left.tripcolor(
        *metres.T, mesh.triangles, here.matrix[:, column], shading="gouraud", cmap=SEQUENCE
    )
    left.triplot(*metres.T, mesh.triangles, color=PALE, linewidth=0.3)
    left.plot(*metres[inside].T, ".", color=INK, markersize=2)
    left.set_aspect("equal")
    left.set_title("One output's probability, linear in every triangle", fontsize=10.5, loc="left")
    left.set_xlabel("metres east; dots: where people are")
    figure.colorbar(shade, ax=left, shrink=0.85)

    start = mesh.plane[here.problem.outputs[column]]
    away = np.hypot(*(mesh.plane - start).T)
    end = mesh.plane[np.where(inside, away, 0.0).argmax()]
    place = start + np.linspace(0.01, 0.99, STEPS)[:, None] * (end - start)
    left.plot(*(1000 * place[[0, -1]].T), color=VERMILION, linewidth=1.5)
    along = np.hypot(*(place - place[0]).T)
    located = mesh.locate(*unproject(place, mesh.middle))
    weights = located.weights / 2.0**30
    for table, name, colour in (
        (plain, "for the vertices alone", VERMILION),
        (here, "for every point", BLUE),
    ):
        chance = (weights * table.matrix[located.vertices, column]).sum(axis=1)
        rate = np.abs(np.diff(np.log(chance))) / np.diff(along) / here.epsilon
        right.plot(1000 * along[1:], rate, color=colour, label=name, linewidth=1.3)
    right.axhline(1, color=INK, linewidth=0.8, linestyle="--", label="epsilon: what is allowed")
    right.set_ylim(0, 1.6)
    right.set_title(
        "How fast it changes along the red walk, over epsilon", fontsize=10.5, loc="left"
    )
    right.set_xlabel("metres walked")
    right.legend(frameon=False, loc="upper right")
    plain_axes(right)
    return figure


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
