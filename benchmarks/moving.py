"""A day of people who move over Rome: what keeping a ball tells, loses and fetches.

    python benchmarks/moving.py [--people 40] [--records 1500] [--centre 2] [--leaving 4] [--most 6]

Everybody goes from home to work and back by the shortest way at 25 km/h, is looked at every ten
minutes from 7 to 23 o'clock and reports every hour. Records are junctions of Rome, the loss is the
distance, epsilon 5 per km for a centre and a report. Four rules: a new centre for every report, by
a public clock every four hours, a ball that is kept while its record stays inside (`Moving`), and
one ball for the whole day. Losses are exact for the balls that were drawn; bytes are those of the
rows as the service sends them. Draws are the operating system's, so figures vary a little.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import scipy

import panda_mdp as pm
from panda import rome_map
from panda_mdp.panda.calibrate import wire_bytes
from panda_mdp.panda.lattice import radius_for
from panda_mdp.panda.moving import Moving, Way
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.protocol.messages.deployments import BallTerms
from panda_mdp.protocol.server.solving import Tiles, ball_facts
from panda_mdp.table.encode import encode

EPSILON, EDGE, MINUTES = 5.0, 0.2, 10
KMH = 25.0
LOOKS = 16 * 60 // MINUTES
REPORTS = range(0, LOOKS, 60 // MINUTES)


def days(city: pm.City, domain: pm.Domain, people: int) -> Iterator[np.ndarray]:
    """The record where somebody is at every look: home, way, work, way, home."""
    u, v, metres = city.pairs
    roads = scipy.sparse.coo_array((metres / 1000, (u, v)), shape=(city.nodes, city.nodes)).tocsr()
    nearest = domain.snap(city.lat, city.lon, np.inf).record
    rng, drawn = np.random.default_rng(0), 0
    while drawn < people:
        home, work = rng.choice(city.nodes, 2, replace=False).tolist()
        length, before = scipy.sparse.csgraph.dijkstra(
            roads, directed=False, indices=home, return_predecessors=True
        )
        if not np.isfinite(length[work]):
            continue
        drawn += 1
        way = [work]
        while way[-1] != home:
            way.append(int(before[way[-1]]))
        there = np.array(way[::-1])
        hours = np.arange(LOOKS) * MINUTES / 60
        gone = KMH * np.clip(hours - 1, 0, None)
        back = length[work] - KMH * np.clip(hours - 10.5, 0, None)
        along = np.clip(np.minimum(gone, back), 0, length[work])
        yield nearest[there[np.searchsorted(length[there], along, side="right") - 1]]


def main() -> None:
    """Solve the table, walk, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--people", type=int, default=40)
    parser.add_argument("--records", type=int, default=1500)
    parser.add_argument("--outputs", type=int, default=100)
    parser.add_argument("--centre", type=float, default=2.0)
    parser.add_argument("--leaving", type=float, default=4.0)
    parser.add_argument("--most", type=int, default=6)
    parser.add_argument("--depth", type=float, default=-1.0)
    given = parser.parse_args()
    city = pm.load_city(rome_map())
    domain = city.domain(given.records, 0)
    outputs = np.sort(np.random.default_rng(1).choice(domain.size, given.outputs, replace=False))
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), EPSILON)
    radius = radius_for(given.centre, 1e-3) + 1
    selection = pm.BallAnchors(given.centre, radius, EDGE)
    table = PandaTable(selection.scheme(problem, 0.0, PandaOptions(gap=0.02, time_limit=120)))
    scheme, whole = table.scheme, pm.compact(pm.optimal(problem, 0.02, time_limit=120))
    terms = BallTerms(epsilon_1=given.centre, edge=EDGE, radius=radius, snap=0.5)
    _, packed = ball_facts(encode(pm.compact(scheme.mechanism)), terms)
    served = Tiles(packed, terms.law(domain, scheme.problem.epsilon))

    def weigh(centre: np.ndarray, records: np.ndarray) -> tuple[float, int]:
        """What reports of records from a ball lose, and the bytes of its rows."""
        rows, row = scheme.rows(centre, scheme.whole_table, records)
        place = tuple(centre.tolist())
        message = served.ball(1, place).model_dump_json()
        return float((problem.loss[records] * rows[row]).sum()), len(message)

    bits = pm.privacy.quantise.SystemBits()
    every = [*days(city, domain, given.people)]
    further = table.further.epsilon
    clocks = {"every report": 1, "every 4 hours, by a clock": 4, "one for the day": len(REPORTS)}
    print(f"Rome, {domain.size:,} records, {given.outputs} outputs, epsilon {EPSILON:g} per km, "
          f"centre {given.centre:g}, radius {radius:.1f} km, {given.people} people, "
          f"{len(REPORTS)} reports a day")  # fmt: skip
    print(f"whole table: {whole.loss:.3f} km under the prior, {wire_bytes(whole):,} bytes")
    print("| a new ball | balls a day | told of two days, per km | loss, km | bytes a day |")
    print("|---|---|---|---|---|")
    for name, reports in clocks.items():
        found = []
        for day in every:
            told = day[list(REPORTS)].reshape(-1, reports)
            found.append(sum(np.array(weigh(scheme.draw(int(p[0]), bits), p)) for p in told))
        lost, size = np.mean(found, axis=0)
        balls = len(REPORTS) // reports
        spent = balls * given.centre + len(REPORTS) * further
        print(f"| {name} | {balls} | {spent:g} | {lost / len(REPORTS):.3f} | {size:,.0f} |")
    moving, found = Moving(table, given.leaving, given.most, given.depth), []
    for day in every:
        way, lost, size, balls, centre = Way(moving), 0.0, 0, 0, np.zeros(2, np.int64)
        for look, record in enumerate(day):
            new = way.look(int(record))
            if new is not None:
                centre, balls = new, balls + 1
                size += weigh(centre, day[:0])[1]
            if look in REPORTS:
                lost += weigh(centre, day[look : look + 1])[0]
        spent = moving.guarantee(len(REPORTS), balls).epsilon
        found.append((balls, spent, lost / len(REPORTS), size))
    balls, spent, lost, size = np.mean(found, axis=0)
    most = moving.guarantee(len(REPORTS)).epsilon
    print(f"| when it was left, {LOOKS} looks | {balls:.1f} | {spent:.1f}, at most {most:g} | "
          f"{lost:.3f} | {size:,.0f} |")  # fmt: skip


if __name__ == "__main__":
    main()
