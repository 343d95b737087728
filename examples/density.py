"""Density: every place hidden among as many people, beside the same epsilon for every km.

    python examples/density.py [FOLDER]

Under the straight line a place in the suburbs is hidden among few people, one in the centre among
many. Lengths that follow the density of people even that out. Prints, by decile of the people
around a place, how often an attacker who sees a report names the place or points within 200 m of
it, under tables of equal loss, and draws the metric that is audited, nats per km (density.png).
Attackers who only know the city guess where most people are, whatever the metric; those who know
the decile too show how well its places are hidden among each other; what they hit without any
report no metric can prevent.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.plot.style import INK, map_axes, new_figure

FloatArray = npt.NDArray[np.float64]
RADIUS_KM = 0.2


def main(
    out: Path = Path("out/examples"),
    source: str = "",
    records: int = 400,
    people: float = 40,
    evened: float = 0.0,
) -> Path:
    """`evened` is the power of the junctions around by which one counts less: with 0 places are
    hidden among equally many, with 1 on equally large areas."""
    city = pm.load_city(source) if source else pm.synthetic_city(nodes=3 * records, seed=7)
    nodes = city.sample_nodes(records, seed=0)
    straight = pm.Domain.from_points(city.lat[nodes], city.lon[nodes]).with_nodes(nodes)
    away = straight.distances()
    # People around a place: junctions within 500 m.
    whole = city.domain(records=None)
    if whole.nodes is None:
        raise SystemExit("a city's domain knows its nodes")
    held = np.ones(whole.size)
    for pair in whole.pairs_within(0.5):
        held += np.bincount(np.concatenate(pair[:2]), minlength=whole.size)
    weights = np.zeros(city.nodes)
    weights[whole.nodes] = held**-evened
    dense = city.density_domain(people * weights.sum() / whole.size, weights, nodes)
    around = held[np.searchsorted(whole.nodes, nodes)]
    outputs = np.random.default_rng(1).choice(records, 60, replace=False)
    loss = pm.distance_loss(straight, outputs)
    by_density = pm.optimal(pm.Problem(dense, outputs, loss, 1.0, loss_unit="km"), gap=0.03)
    by_km = at_equal_loss(straight, outputs, loss, by_density.loss)
    decile = np.searchsorted(np.quantile(around, np.arange(0.1, 1, 0.1)), around)
    for name, table in (("straight line", by_km), ("density", by_density)):
        print(
            f"{name}: loss {1000 * table.loss:.0f} m, audited epsilon {table.audit.epsilon:.4g} "
            f"per {table.problem.domain.unit}; by decile of the junctions within 500 m, in %"
        )
        within = f"located within {1000 * RADIUS_KM:.0f} m"
        for measure, near in (("the right place", away == 0), (within, away <= RADIUS_KM)):
            parts = [np.flatnonzero(decile == k) for k in range(10) if (decile == k).any()]
            found = guessed(table.matrix, near.astype(float))
            for knows, rates in (
                ("city", [float(found[part].mean()) for part in parts]),
                ("decile", [known_to_be_in(part, table.matrix, near) for part in parts]),
                ("decile, no report", [float(near[:, part].mean(axis=1).max()) for part in parts]),
            ):
                listed = " ".join(f"{100 * rate:4.1f}" for rate in rates)
                ratio = f"{max(rates) / min(rates):.2f}" if min(rates) > 0 else "no end"
                print(f"  {measure:20s} knowing the {knows:17s} {listed}  ratio {ratio}")
    return plot.save_figure(draw(dense, straight), out / "density.png")


def at_equal_loss(
    domain: pm.Domain, outputs: npt.NDArray[np.int64], loss: FloatArray, wanted: float
) -> pm.Mechanism:
    """The table per km whose loss is the wanted one, to 3 %, or whose epsilon is within 5 %."""
    low, high = 0.2, 20.0
    while True:
        middle = float(np.sqrt(low * high))
        table = pm.optimal(pm.Problem(domain, outputs, loss, middle), gap=0.03)
        if abs(table.loss / wanted - 1) < 0.03 or high / low < 1.05:
            return table
        low, high = (middle, high) if table.loss > wanted else (low, middle)


def guessed(matrix: FloatArray, near: FloatArray) -> FloatArray:
    """For each record how often the best guess, a record, is near it: `near` is 1 where it is."""
    guess = (near @ matrix).argmax(axis=0)
    return np.asarray((matrix * near[:, guess]).sum(axis=1))


def known_to_be_in(
    part: npt.NDArray[np.int64], matrix: FloatArray, near: npt.NDArray[np.bool_]
) -> float:
    """How often the best guess of somebody who knows that the record is one of `part` is near."""
    found = near[:, part].astype(float) @ matrix[part]
    return float(found.max(axis=0).sum() / len(part))


def draw(dense: pm.Domain, straight: pm.Domain) -> Figure:
    """Nats per km along each edge, at its middle."""
    edges = dense.metric.generating_pairs
    if edges is None:
        raise SystemExit("a path metric has edges")
    slope = dense.metric.pairs(*edges.T) / straight.metric.pairs(*edges.T)
    points = straight.plane
    figure = new_figure(7, 6.2)
    axes = figure.subplots()
    middle = points[edges].mean(axis=1)
    shown = axes.scatter(*middle.T, c=np.log2(slope), s=9, cmap="viridis")
    bar = figure.colorbar(shown, ax=axes)
    bar.set_label("log2 of nats per km")
    map_axes(axes, points)
    axes.set_title("The metric that is audited: nats per km", loc="left", color=INK)
    return figure


if __name__ == "__main__":
    print("drawn to", main(*map(Path, sys.argv[1:2])))
