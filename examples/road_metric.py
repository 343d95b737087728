"""Road metric: privacy by distance along the streets instead of the straight line.

    python examples/road_metric.py [FOLDER]

Two places on opposite banks may be near as the crow flies and far by road. Under the road metric
they need not look alike: it promises less between such places, and the same epsilon costs less
where the loss is travel.
Draws where one record goes under either metric (road_metric.png).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.plot.maps import draw_reports, draw_reports_legend
from panda_mdp.plot.style import INK, circle_areas, draw_streets, map_axes, new_figure
from panda_mdp.space.metrics import Haversine

IntArray = npt.NDArray[np.int64]


def main(out: Path = Path("out/examples"), records: int = 500, seconds: float = 30) -> Path:
    city = pm.synthetic_city(nodes=3 * records, seed=7)
    nodes = city.sample_nodes(records, seed=0)
    by_road = city.road_domain(nodes)
    as_the_crow_flies = pm.Domain.from_points(city.lat[nodes], city.lon[nodes]).with_nodes(nodes)
    rng = np.random.default_rng(1)
    outputs = rng.choice(records, 50, replace=False)
    tasks = rng.choice(records, 1)
    tables = {}
    for name, domain in (("straight line", as_the_crow_flies), ("along the streets", by_road)):
        loss = pm.travel_loss(city, domain, outputs, tasks)
        problem = pm.Problem(domain, outputs, loss, epsilon=5.0)
        table = pm.optimal(problem, gap=0.02, time_limit=seconds)
        tables[name] = table
        print(
            f"{name:18s} loss {1000 * table.loss:.0f} m, no table is below "
            f"{1000 * (table.lower_bound or 0):.0f} m, audited epsilon {table.audit.epsilon:.4f}"
        )
    figure = draw(city, nodes, outputs, tasks, tables)
    return plot.save_figure(figure, out / "road_metric.png")


def draw(
    city: pm.City,
    nodes: IntArray,
    outputs: IntArray,
    tasks: IntArray,
    tables: dict[str, pm.Mechanism],
) -> Figure:
    lat, lon = city.lat[nodes], city.lon[nodes]
    around = Haversine(lat, lon)
    points = around.project(lat, lon)
    record = int(np.hypot(*points.T).argmin())
    figure = new_figure(12, 6.2)
    for axes, (name, table) in zip(figure.subplots(1, 2), tables.items(), strict=True):
        draw_streets(axes, around.project(city.lat, city.lon), city.u, city.v)
        area = circle_areas(table.matrix[record])
        draw_reports(axes, points[outputs], area, points[record], points[tasks])
        map_axes(axes, points)
        axes.set_title(
            f"Distance: {name}\nepsilon 5 per km, expected loss {1000 * table.loss:.0f} m",
            loc="left",
            color=INK,
        )
        draw_reports_legend(axes, area)
    return figure


if __name__ == "__main__":
    print("drawn to", main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples")))
