"""Import of large maps: time and memory, on files generated from a synthetic city.

    python benchmarks/maps.py                 # 130,000 junctions as pbf, xml, graphml, npz
    python benchmarks/maps.py --nodes 20000

Each import runs in its own process, the best of a few; seconds of the clock and of the processor
(which other work on the machine does not stretch). Memory is that process's peak; what it takes
before it reads anything stands beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from panda_mdp import City, synthetic_city

KINDS = ("residential", "tertiary", "secondary", "unclassified", "primary")
READ = """
import json, sys, time
from pathlib import Path
import geopandas, numpy, scipy.spatial, scipy.sparse.csgraph
from panda_mdp.city.maps import read_map
def peak_mb():
    # Not ru_maxrss, which a process inherits from the one that started it.
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
base = peak_mb()
start, cpu = time.perf_counter(), time.process_time()
report = read_map(Path(sys.argv[1]))
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
peak = peak_mb()
city = report.city
print(json.dumps({"nodes": city.nodes, "streets": city.streets, "seconds": seconds, "cpu": cpu,
                  "base_mb": base, "peak_mb": peak}))
"""


def write_osm(city: City, path: Path, seed: int = 0) -> int:
    """Write a city as an OpenStreetMap extract with two or three shape points per street.

    Every fifth way carries no road (buildings), as real extracts are full of other things.
    Returns the number of nodes written.
    """
    import osmium

    rng = np.random.default_rng(seed)
    points = rng.integers(2, 4, len(city.u))
    writer = osmium.SimpleWriter(str(path), overwrite=True)
    try:
        for k, (lat, lon) in enumerate(zip(city.lat.tolist(), city.lon.tolist(), strict=True)):
            writer.add_node(osmium.osm.mutable.Node(id=k + 1, location=(lon, lat)))
        number = city.nodes + 1
        refs: list[list[int]] = []
        for a, b, count in zip(city.u.tolist(), city.v.tolist(), points.tolist(), strict=True):
            inner = []
            for share in np.linspace(0, 1, count + 2)[1:-1].tolist():
                lat = city.lat[a] + share * (city.lat[b] - city.lat[a])
                lon = city.lon[a] + share * (city.lon[b] - city.lon[a])
                place = (float(lon), float(lat))
                writer.add_node(osmium.osm.mutable.Node(id=number, location=place))
                inner.append(number)
                number += 1
            refs.append([a + 1, *inner, b + 1])
        for k, nodes in enumerate(refs):
            tags = {"highway": KINDS[k % len(KINDS)], "name": f"Street {k}", "surface": "asphalt"}
            writer.add_way(osmium.osm.mutable.Way(id=2 * k + 1, nodes=nodes, tags=tags))
            if k % 5 == 0:
                house = {"building": "yes", "addr:housenumber": str(k)}
                writer.add_way(osmium.osm.mutable.Way(id=2 * k + 2, nodes=nodes, tags=house))
    finally:
        writer.close()
    return number - 1


def write_graphml(city: City, path: Path) -> None:
    """Write a city as OSMnx does: a street is two edges, there and back."""
    import networkx
    import osmnx

    graph = networkx.MultiDiGraph(crs="epsg:4326", simplified=True)
    for node, (lat, lon) in enumerate(zip(city.lat.tolist(), city.lon.tolist(), strict=True)):
        graph.add_node(node, y=lat, x=lon)
    for u, v, length in zip(city.u.tolist(), city.v.tolist(), city.length_m.tolist(), strict=True):
        graph.add_edges_from([(u, v), (v, u)], length=length)
    osmnx.save_graphml(graph, path)


def write_files(city: City, folder: Path) -> dict[str, Path]:
    """The city in each format that is measured."""
    files = {kind: folder / f"city.{kind}" for kind in ("osm.pbf", "osm", "graphml", "npz")}
    write_osm(city, files["osm.pbf"])
    write_osm(city, files["osm"])
    write_graphml(city, files["graphml"])
    city.save(files["npz"])
    return files


def measure(path: Path) -> dict[str, float]:
    """Import one file in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=130_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--files", type=Path, nargs="*", help="measure these files instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.files:
            files = {path.name: path for path in arguments.files}
        else:
            start = time.perf_counter()
            files = write_files(synthetic_city(arguments.nodes), Path(folder))
            print(f"files written in {time.perf_counter() - start:.0f} s")
        print("format    file MB   nodes   streets  seconds     CPU s  base MB  peak MB")
        for kind, path in files.items():
            runs = [measure(path) for _ in range(arguments.repeat)]
            best = min(runs, key=lambda run: run["seconds"])
            size = path.stat().st_size / 1e6
            print(
                f"{kind:9s} {size:7.1f} {best['nodes']:8,d} {best['streets']:9,d} "
                f"{best['seconds']:8.2f} {best['cpu']:9.2f} "
                f"{best['base_mb']:8.0f} {best['peak_mb']:8.0f}"
            )


if __name__ == "__main__":
    main()
