"""What people have today against this library: the same months, the same attackers, one picture.

    python benchmarks/lab_today.py rome.npz --out docs/images/lab-today.png

People are made up, for want of public traces that may be kept here: a home, a work place, the
shortest way between them on the city's own roads, reports at home every night. Every protection
turns the same fixes into reports, and attackers know it in full, how draws are made included. One
report: the best attacker's expected error for a single report of a place, an exact sum over guesses
anywhere. The way: the mean error of the attackers who know how others move, a Markov chain learnt
from the ways of other people, along one way to work: the best guess by forward-backward, which
takes no repeated draw for a new one. A month: of the beliefs of the Bayesian attacker, who sees all
reports of the month's nights and knows that one in five is spent elsewhere, the guess of least
expected distance, and the disc of 200 m, wherever its centre lies, that most likely holds the home.
Intervals are of 95 %, over people. Of dropped fixes attackers see the others exactly, and where the
way begins; where they are dropped at random, the place that is shown most often by night is the
home.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats
from scipy.sparse.csgraph import dijkstra

import panda_mdp as pm
from panda_mdp.city.city import travel_graph
from panda_mdp.city.draw import find_city
from panda_mdp.meaning.several import (
    Movement,
    forward_backward,
    likelihoods,
    locate_anchor,
    track,
)
from panda_mdp.methods.references import android_grid, at_displacement, decimals, rounding
from panda_mdp.plot import save_figure
from panda_mdp.plot.style import BLUE, GREEN, INK, VERMILION, new_figure, plain_axes
from panda_mdp.space.guesses import best_guesses, guess_distances, held_sets
from panda_mdp.table.mechanism import Table

DAYS, NIGHTLY, AWAY = 30, 2, 0.2
ZONE_KM = 0.5
NEAR_KM = 0.2
STEP_KM = 0.3
FENCE_KM = 1.0


@dataclass(frozen=True)
class Person:
    home: int
    work: int
    nights: np.ndarray
    """Records of the night fixes: mostly the home."""
    way: np.ndarray
    """Records along the way from home to work, the home first."""


@dataclass(frozen=True)
class Protection:
    name: str
    table: Table | None
    """None: fixes near home and work are dropped, the others are exact."""
    once: bool = False
    """Whether a place's report is drawn once and repeated."""
    dropped: float = 1.0
    """Where there is no table: how often a fix near home or work is dropped."""


def people(city: pm.City, domain: pm.Domain, count: int, rng: np.random.Generator) -> list[Person]:
    made = []
    roads = travel_graph(city)
    at = np.stack([city.lat, city.lon], axis=1)
    while len(made) < count:
        home, work = rng.choice(domain.size, 2, replace=False)
        if not 2 < domain.distance(int(home), int(work)) < 8:
            continue
        km, before = dijkstra(
            roads, indices=int(domain.nodes[home]), return_predecessors=True, limit=30.0
        )
        node = int(domain.nodes[work])
        if not np.isfinite(km[node]):
            continue
        path = [node]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        # One fix every STEP_KM of road, at the nearest place.
        nodes = np.array(path[::-1])
        marks = np.arange(0, km[node], STEP_KM)
        passed = nodes[np.searchsorted(km[nodes], marks)]
        way = snap(domain, at[passed])
        nights = np.where(
            rng.random(DAYS * NIGHTLY) < AWAY, rng.integers(0, domain.size, DAYS * NIGHTLY), home
        )
        made.append(Person(int(home), int(work), nights, way))
    return made


def snap(domain: pm.Domain, at: np.ndarray) -> np.ndarray:
    """The nearest records of some places."""
    east = np.cos(np.radians(domain.lat.mean()))
    own = np.stack([domain.lat, domain.lon * east], axis=1)
    there = np.stack([at[:, 0], at[:, 1] * east], axis=1)
    return ((there[:, None, :] - own) ** 2).sum(axis=2).argmin(axis=1)


def nearest_table(problem: pm.Problem, names: np.ndarray) -> pm.NoGuarantee:
    """Every record reports names[record] (an output's column), for sure."""
    matrix = np.zeros((problem.size, problem.outputs_count))
    matrix[np.arange(problem.size), names] = 1.0
    return pm.NoGuarantee.from_matrix(problem, matrix, method="deterministic")


def interest(problem: pm.Problem, count: int, seed: int = 1) -> pm.NoGuarantee:
    """Apple's reduced accuracy as far as it is published: a nearby point of interest."""
    points = np.random.default_rng(seed).choice(problem.outputs_count, count, replace=False)
    apart = problem.domain.distances(None, problem.outputs[points])
    return nearest_table(problem, points[apart.argmin(axis=1)])


def reports(protection: Protection, fixes: np.ndarray, seed: int) -> np.ndarray:
    simulation = protection.table.simulate(seed)
    if not protection.once:
        return np.array([simulation.sample(int(fix)) for fix in fixes])
    drawn = {int(fix): simulation.sample(int(fix)) for fix in dict.fromkeys(fixes.tolist())}
    return np.array([drawn[int(fix)] for fix in fixes])


def home_found(
    protection: Protection, person: Person, domain: pm.Domain, seed: int
) -> tuple[float, bool]:
    """How far from the home the best guess after a month is, and whether the best disc of 200 m
    holds it."""
    if protection.table is None:
        off = domain.distance(shown_guess(protection, person, domain, seed), person.home)
        return off, off <= NEAR_KM
    seen = reports(protection, person.nights, seed)
    zone = locate_anchor(protection.table, seen, away=AWAY, keyed=protection.once)
    discs = held_sets(domain, NEAR_KM)
    best = int((discs @ zone.belief).argmax())
    guess = best_guesses(domain, zone.belief[:, None])[0]
    off = float(guess_distances(domain, guess)[0, person.home])
    return off, bool(discs[[best]].toarray()[0, person.home])


def shown_guess(protection: Protection, person: Person, domain: pm.Domain, seed: int) -> int:
    """The place shown most often by night, where fixes of the home may be shown at all; else, and
    where none is shown twice, by the shape of the way."""
    if protection.dropped == 1:
        return zone_guess(person, domain)
    nights = person.nights[shown(protection, person.nights, person, domain, seed)]
    places, counts = np.unique(nights, return_counts=True)
    if counts.max(initial=0) > 1:
        return int(places[counts.argmax()])
    return zone_guess(person, domain)


def shown(
    protection: Protection, fixes: np.ndarray, person: Person, domain: pm.Domain, seed: int
) -> np.ndarray:
    """Which fixes are not dropped."""
    near = domain.distances(fixes, [person.home, person.work]).min(axis=1) <= ZONE_KM
    return ~near | (np.random.default_rng(seed).random(len(fixes)) >= protection.dropped)


def zone_guess(person: Person, domain: pm.Domain) -> int:
    """Against dropped fixes: homes from which this way would first be seen where it was."""
    apart = domain.distances([person.home], None)[0]
    outside = person.way[apart[person.way] > ZONE_KM]
    if len(outside) == 0:
        return int(domain.distances().mean(axis=1).argmin())
    first = domain.distances([int(outside[0])], None)[0]
    likely = np.flatnonzero((first > ZONE_KM) & (first <= ZONE_KM + 2 * STEP_KM))
    # On the side that the way comes from.
    plane = domain.plane
    ahead = plane[outside[min(2, len(outside) - 1)]] - plane[outside[0]]
    behind = likely[(plane[likely] - plane[outside[0]]) @ ahead <= 0]
    consistent = behind if len(behind) else likely
    if len(consistent) == 0:
        return int(outside[0])
    return int(consistent[domain.distances(consistent, consistent).mean(axis=1).argmin()])


def seen_on_the_way(
    protection: Protection, person: Person, domain: pm.Domain, seed: int
) -> np.ndarray:
    """What the reports of one way to work say of every record, (steps, K)."""
    if protection.table is None:
        visible = shown(protection, person.way, person, domain, seed)
        seen = np.eye(domain.size)[person.way]
        exact = np.flatnonzero(visible)
        for t in np.flatnonzero(~visible):
            seen[t] = 1.0
            if len(exact):
                # A zone across, and a step, from the fix that was shown next to it in time.
                beside = person.way[exact[np.abs(exact - t).argmin()]]
                seen[t] = domain.distances([beside], None)[0] <= 2 * ZONE_KM + STEP_KM
        return seen
    return likelihoods(protection.table, reports(protection, person.way, seed))


def way_error(
    protection: Protection, person: Person, domain: pm.Domain, movement: Movement, seed: int
) -> float:
    """Mean distance of the best guesses by forward-backward from the way."""
    if protection.once:
        # A shortest way does not come back: draws of each place are kept while it stays there.
        drawn = reports(protection, person.way, seed)
        belief = track(movement, protection.table, drawn, "stay")
    else:
        belief = forward_backward(movement, seen_on_the_way(protection, person, domain, seed))
    off = guess_distances(domain, best_guesses(domain, belief.T)[0])
    return float(off[np.arange(len(off)), person.way].mean())


def interval(values: np.ndarray) -> float:
    """Half of a 95 % interval of a mean, by Student's distribution."""
    count = len(values)
    return float(stats.t.ppf(0.975, count - 1) * values.std(ddof=1) / np.sqrt(count))


def shares(hits: int, count: int) -> tuple[float, float]:
    """A 95 % interval of a share (Clopper and Pearson)."""
    found = stats.binomtest(hits, count).proportion_ci(0.95)
    return float(found.low), float(found.high)


def measure(
    protection: Protection, crowd: list[Person], domain: pm.Domain, movement: Movement
) -> dict[str, object]:
    homes = [home_found(protection, person, domain, seed) for seed, person in enumerate(crowd)]
    errors, found = np.array(homes).T
    ways = np.array(
        [way_error(protection, person, domain, movement, seed) for seed, person in enumerate(crowd)]
    )
    table = protection.table
    row = {
        "protection": protection.name,
        "epsilon": None if not isinstance(table, pm.Mechanism) else table.epsilon,
        "guarantee": isinstance(table, pm.Mechanism),
        "displacement_km": 0.0 if table is None else table.loss,
        "one_report_km": None if table is None else pm.attack(table, radii=()).error,
        "way_km": float(ways.mean()),
        "way_95_km": interval(ways),
        "month_km": float(errors.mean()),
        "month_95_km": interval(errors),
        "month_within_200m": float(found.mean()),
        "month_within_95": shares(int(found.sum()), len(found)),
    }
    print(json.dumps(row), flush=True)
    return row


def draw(rows: list[dict[str, object]], path: Path, title: str) -> None:
    figure = new_figure(11.5, 5.8)
    figure.suptitle(title, x=0.015, ha="left", color=INK, fontsize=11.5)
    axes = figure.subplots()
    for k, row in enumerate(rows):
        y = len(rows) - 1 - k
        axes.plot(row["displacement_km"], y, "|", color=INK, markersize=16, markeredgewidth=2.5)
        if row["one_report_km"] is not None:
            axes.plot(row["one_report_km"], y + 0.2, "o", color=BLUE, markersize=9)
        axes.errorbar(
            row["way_km"], y, xerr=row["way_95_km"], fmt="s", color=GREEN, markersize=8,
            capsize=3,
        )  # fmt: skip
        axes.errorbar(
            row["month_km"], y - 0.2, xerr=row["month_95_km"], fmt="D", color=VERMILION,
            markersize=8, capsize=3,
        )  # fmt: skip
        axes.annotate(
            f"{row['month_within_200m']:.0%} of homes within 200 m", (1.01, y),
            xycoords=("axes fraction", "data"), va="center", color=INK, annotation_clip=False,
        )  # fmt: skip
    names = [
        f"{row['protection']}" + ("" if row["guarantee"] else " (no guarantee)") for row in rows
    ]
    axes.set_yticks(range(len(rows) - 1, -1, -1), names)
    axes.plot([], [], "|", color=INK, markersize=14, markeredgewidth=2.5, label="mean displacement")
    axes.plot([], [], "o", color=BLUE, markersize=9, label="attacker off by, one report")
    axes.plot([], [], "s", color=GREEN, markersize=8, label="off by, way to work (Markov)")
    axes.plot([], [], "D", color=VERMILION, markersize=8, label="home off by, after a month")
    axes.set_xlabel(
        "km (the attacker's: larger is better protected; displacement: smaller is better)"
    )
    axes.set_xlim(left=-0.05)
    plain_axes(axes)
    axes.legend(loc="upper center", bbox_to_anchor=(0.3, 1.12), ncol=4, frameon=False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("city")
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--people", type=int, default=60)
    parser.add_argument("--time-limit", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/lab/today.png"))
    chosen = parser.parse_args()
    city = find_city(chosen.city, chosen.records, chosen.seed)
    whole = city.domain(None, chosen.seed)
    # Neighbourhoods rather than a whole city: the nodes nearest to one in its middle.
    middle = int(((whole.plane - np.median(whole.plane, axis=0)) ** 2).sum(axis=1).argmin())
    near = np.argsort(whole.distances([middle], None)[0])[: 20 * chosen.records]
    rng = np.random.default_rng(chosen.seed)
    domain = whole.take(np.sort(rng.choice(near, chosen.records, replace=False)))
    outputs = np.arange(domain.size)
    problem = pm.Problem(domain, outputs, domain.distances(), 1.0)
    crowd = people(city, domain, chosen.people, rng)
    others = people(city, domain, 2 * chosen.people, rng)
    movement = Movement.learn([person.way for person in others], domain.size)
    coarse = android_grid(problem)
    equal = coarse.loss

    def laplace(at: pm.Problem) -> Table:
        return pm.remap(pm.planar_laplace(at))

    def best(at: pm.Problem) -> Table:
        return pm.optimal(at, gap=0.02)

    fences = pm.Fences.cells(domain, FENCE_KM)

    def fenced(at: pm.Problem) -> Table:
        return fences.unfold(pm.optimal(fences.fold(at), gap=0.02), at)

    noise, ours, behind = (
        at_displacement(problem, make, equal) for make in (laplace, best, fenced)
    )
    minded = pm.dominate(noise.problem, [coarse, noise], time_limit=chosen.time_limit)
    print(json.dumps({name: minded.details["dominates"][name] for name in ("factor", "bound")}))
    protections = [
        Protection("fixes within 500 m of home and work dropped", None),
        Protection("nine in ten of those dropped at random", None, dropped=0.9),
        Protection("rounding to cells of 1 km", rounding(problem, 1.0)),
        Protection("rounding to 2 decimals", decimals(problem, 2)),
        Protection("Android approximate (2 km cells, one offset)", coarse, once=True),
        Protection("iOS reduced (nearby point of interest)", interest(problem, 5)),
        Protection("planar Laplace + remap, new draws", noise),
        Protection("planar Laplace + remap, one draw per place", noise, once=True),
        Protection("optimal, new draws", ours),
        Protection("optimal, one draw per place", ours, once=True),
        Protection("dominate, one draw per place", minded, once=True),
        Protection("optimal behind public fences of 1 km, new draws", behind),
    ]
    rows = [measure(protection, crowd, domain, movement) for protection in protections]
    title = (
        f"{city.name or 'City'}: {domain.size} places, {chosen.people} people, {DAYS} nights\n"
        f"noise at Android's mean displacement, {equal:.2f} km"
    )
    draw(rows, chosen.out, title)
    print("drawn to", chosen.out)


if __name__ == "__main__":
    main()
