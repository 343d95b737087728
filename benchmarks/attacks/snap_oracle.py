"""A server learns by silence who is near: a signed box of 20 m, and an area with places outside.

python benchmarks/attacks/snap_oracle.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from stage import KM, Standin, client, judge, rogue

import panda_mdp as pm
from panda_mdp.errors import PandaError

BOX = "a box of 20 m"
AWAY_KM = (0.0, 0.005, 0.03, 0.3, 3.0, 300.0)


def boxed(folder: Path, side_km: float) -> Standin:
    """A signed table over twelve places in a small box."""
    rng = np.random.default_rng(0)
    lat, lon = (at + side_km * KM * rng.random(12) for at in (41.9, 12.5))
    domain, outputs = pm.Domain.from_points(lat, lon), np.array([1, 5, 9])
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 0.05)
    table = pm.compact(pm.exponential(problem))
    return Standin(table.save(folder / f"{side_km}.pmdp"), table)


def main() -> None:
    folder, promises = Path(tempfile.mkdtemp()), {}
    for name, server in {
        BOX: boxed(folder, 0.02),
        "a city of 2 km": rogue(folder),
    }.items():
        domain, heard = server.table.problem.domain, []
        north = int(np.argmax(domain.lat))
        for number, away_km in enumerate(AWAY_KM):
            before = len(server.reports)
            with client(server, folder / f"{name} {number}") as user:
                try:
                    plan = user.plan("table")
                    lat = float(domain.lat[north]) + away_km * KM
                    user.report(plan, plan.place(lat, float(domain.lon[north])))
                except PandaError as error:
                    print(f"  {name}, {away_km:g} km: {type(error).__name__}")
            heard.append(len(server.reports) > before)
        print(f"{name}: reports by distance {dict(zip(AWAY_KM, heard, strict=True))}")
        promises[f"{name}: silence does not tell who is near"] = len(set(heard)) == 1
        promises[f"{name}: taking part does not tell it"] = any(heard) == (name != BOX)
    judge(promises)


if __name__ == "__main__":
    main()
