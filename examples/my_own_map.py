"""My own map: from an OpenStreetMap file to a private mechanism for its city.

    python examples/my_own_map.py MAP [FOLDER]      # .osm.pbf, .osm, .graphml, .gpkg, ...
    python examples/my_own_map.py                   # writes a small .osm file and uses that

Draws the city and what privacy costs at each place (my_own_map.png).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.city.maps import read_map
from panda_mdp.city.statistics import WORDS, city_statistics


def main(out: Path = Path("out/examples"), source: str = "", records: int = 1500) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(source) if source else write_small_map(Path(folder) / "small.osm")
        report = read_map(path)
    for line in report.lines():
        print(line)
    measured = city_statistics(report.city)
    for name, words in WORDS.items():
        print(f"  {name:34s} {words.format(**measured)}")

    city = report.city
    domain = city.domain(records=min(records, city.nodes // 2), seed=0)
    rng = np.random.default_rng(0)
    outputs = rng.choice(domain.size, 80, replace=False)
    tasks = rng.choice(domain.size, 10, replace=False)
    problem = pm.Problem(domain, outputs, pm.travel_loss(city, domain, outputs, tasks), 5.0)
    table = pm.loss_exponential(problem)
    print(table)
    table.save(out / "my_own_map.pmdp")
    plot.write_map(out / "my_own_map.html", city=city, table=table)
    return plot.save_figure(plot.draw_expected_loss(table, city=city), out / "my_own_map.png")


def write_small_map(path: Path) -> Path:
    """An OpenStreetMap file with the streets of a made-up town."""
    town = pm.synthetic_city(nodes=1200, seed=4)
    lines = ['<osm version="0.6">']
    for k, (lat, lon) in enumerate(zip(town.lat, town.lon, strict=True)):
        lines.append(f'<node id="{k + 1}" lat="{lat:.7f}" lon="{lon:.7f}" version="1"/>')
    for k, (u, v) in enumerate(zip(town.u, town.v, strict=True)):
        nodes = f'<nd ref="{u + 1}"/><nd ref="{v + 1}"/>'
        road = '<tag k="highway" v="residential"/>'
        lines.append(f'<way id="{k + 1}" version="1">{nodes}{road}</way>')
    path.write_text("\n".join([*lines, "</osm>"]))
    return path


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("out/examples")
    print("drawn to", main(folder, chosen))
