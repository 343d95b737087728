"""Files of version 3 (rows over a floor), 4 (PAnDA) and 5 (every point of an area), as a forger
would write them: every sum and seal fits, and something in them is not so.

`good()` are honest files of all three, `forged()` the others, each with the reason why the library
refuses it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from forging import TOTAL, Archive, Sample

import panda_mdp as pm
from panda_mdp.panda.file.encode import encode
from panda_mdp.panda.options import Options
from panda_mdp.privacy.quantise import quantise_floored

Change = Callable[[Archive], Any]
SIZE, DELTA = 24, 2e-2
PHASED = ("common", "nearest", "candidates", "coins", "exponential", "power")
FLOORED = ("distance", "given", "places", "matrix")
BOX = (41.89, 12.48, 41.91, 12.505)


@cache
def problem(kind: str = "records", metric: str = "haversine") -> pm.Problem:
    rng = np.random.default_rng(3)
    domain = pm.Domain.from_points(41.8 + 0.2 * rng.random(SIZE), 12.4 + 0.2 * rng.random(SIZE))
    if metric == "matrix":
        domain = pm.Domain.from_matrix(domain.distances(), unit="km")
    chosen = np.arange(0, SIZE, 4)
    losses = domain.distances(None, chosen)
    outputs = chosen if kind == "records" else pm.Outputs.labels([f"zone {k}" for k in range(6)])
    return pm.Problem(domain, outputs, losses, 1.0, prior=rng.dirichlet(np.ones(SIZE)))


@cache
def panda_table(kind: str) -> pm.PandaTable:
    asked, some = (
        problem(metric="matrix" if kind == "power" else "haversine"),
        np.arange(0, SIZE, 3),
    )
    selection = {
        "common": lambda: pm.BallAnchors(0.4, outside="common"),
        "nearest": lambda: pm.BallAnchors(0.4, outside="nearest"),
        "candidates": lambda: pm.BernoulliAnchors.alike(asked.domain, 9, DELTA),
        "coins": lambda: pm.BernoulliAnchors("logistic", 0.997, 1e-4, 3.0, candidates=some),
        "exponential": lambda: pm.BernoulliAnchors(
            "exponential", 0.997, 1e-4, 3.0, tail=0.9968, candidates=some
        ),
        "power": lambda: pm.BernoulliAnchors("power", 0.997, 20.0, 0.5, candidates=some),
    }[kind]()
    return pm.PandaTable.of(selection.scheme(asked, DELTA, Options(gap=0.02)))


@cache
def floored(kind: str) -> bytes:
    """A table most of whose entries are at a floor."""
    domain = problem(metric="matrix" if kind == "matrix" else "haversine").domain
    reports = pm.Outputs.of(range(SIZE), domain)
    if kind == "places":
        reports = pm.Outputs.at(domain.lat + 0.001, domain.lon)
    apart = reports.distances(domain)
    floor, table = np.full(SIZE, 1e-4), np.exp(-0.7 * apart)
    for _ in range(50):
        table = np.maximum(table / table.sum(axis=1, keepdims=True), floor)
    raised = table > floor
    starts = np.concatenate([[0], np.cumsum(raised.sum(axis=1))])
    rows = quantise_floored(floor, starts, np.nonzero(raised)[1].astype(np.int32), table[raised])
    loss = apart**2 if kind == "given" else apart
    made = pm.Mechanism(pm.Problem(domain, reports, loss, 2.0), rows, "given")
    return saved(made)


@cache
def everywhere(rate: float = 0.3) -> bytes:
    """A table over a mesh; `rate` is how fast it changes, of which 0.3 holds at every point."""
    domain = pm.Domain.from_area(BOX, spacing=0.4)
    outputs = np.flatnonzero(domain.mesh.inside)[::2]
    asked = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 1.0)
    table = np.exp(-rate * asked.loss)
    return saved(
        pm.EverywhereMechanism.from_matrix(asked, table / table.sum(axis=1, keepdims=True))
    )


def saved(made: pm.Mechanism) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return made.save(Path(folder) / "table.pmdp").read_bytes()


def phased(kind: str) -> bytes:
    return encode(panda_table(kind))


def good() -> Iterator[Sample]:
    """Honest files."""
    for kind in FLOORED:
        yield Sample(f"rows over a floor: {kind}", ".pmdp", floored(kind))
    for kind in PHASED:
        yield Sample(f"PAnDA: {kind}", ".pmdp", phased(kind))
    yield Sample("every point", ".pmdp", everywhere())


def forged() -> Iterator[Sample]:
    """Files that must be refused."""
    for name, (kind, change) in FLOORS.items():
        yield Sample(f"version 3: {name}", ".pmdp", changed(floored(kind), change))
    for name, (kind, change, _) in PHASES.items():
        yield Sample(f"version 4: {name}", ".pmdp", changed(phased(kind), change))
    for name, change in MESHES.items():
        yield Sample(f"version 5: {name}", ".pmdp", changed(everywhere(), change))


def changed(data: bytes, change: Change) -> bytes:
    file = Archive.of(data)
    file.arrays = {name: array.copy() for name, array in file.arrays.items()}
    change(file)
    return file.bytes()


def swap(name: str, i: int, j: int) -> Change:
    def change(file: Archive) -> None:
        file.arrays[name][[i, j]] = file.arrays[name][[j, i]]

    return change


def swap_far(name: str) -> Change:
    """The first row for the one that differs most from it."""

    def change(file: Archive) -> None:
        rows = file.arrays[name].astype(np.float64)
        swap(name, 0, int(np.abs(rows - rows[0]).sum(axis=1).argmax()))(file)

    return change


def put(name: str, place: Any, value: Any) -> Change:
    """Another number in an array; a function is given the old one."""

    def change(file: Archive) -> None:
        array = file.arrays[name]
        array[place] = value(array[place]) if callable(value) else value

    return change


def state(path: str, value: Any) -> Change:
    """Another claim; a function is given the old one."""

    def change(file: Archive) -> None:
        claims: Any = file.certificate
        *parents, last = path.split(".")
        for parent in parents:
            claims = claims[parent]
        claims[last] = value(claims[last]) if callable(value) else value

    return change


def claim(path: str, value: Any) -> Change:
    """Another claim of a file of PAnDA, in words and numbers."""

    def change(file: Archive) -> None:
        top = file.certificate
        before = top["epsilon"], top["delta"]
        state(path, value)(file)
        words = top["guarantee"].replace(f"of {before[0]!r} d", f"of {top['epsilon']!r} d")
        top["guarantee"] = words.replace(f"most {before[1]!r}.", f"most {top['delta']!r}.")

    return change


def scaled(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


def both(*changes: Change) -> Change:
    def change(file: Archive) -> None:
        for one in changes:
            one(file)

    return change


def moved_value(file: Archive) -> None:
    """A row that gives half of its largest entry to its next: sums fit, the pair does not."""
    starts, values = file.arrays["starts"], file.arrays["values"]
    row = values[starts[3] : starts[4]]
    first = int(row.argmax())
    share = row[first] // 2
    row[first] -= share
    row[first - 1] += share


FLOORS: dict[str, tuple[str, Change]] = {
    "a value moved": ("distance", moved_value),
    "a value moved, losses given": ("given", moved_value),
    "a row that sums to more": ("distance", put("values", 5, lambda v: v + 1)),
    "a floor that was raised": ("distance", put("floor", 2, lambda v: v + 1)),
    "a negative floor": ("distance", put("floor", 2, -1)),
    "columns that do not ascend": ("distance", swap("columns", 0, 1)),
    "a column twice": (
        "distance",
        lambda a: a.arrays["columns"].__setitem__(1, a.arrays["columns"][0]),
    ),
    "a column beyond": ("distance", put("columns", 2, SIZE)),
    "a negative column": ("distance", put("columns", 0, -1)),
    "starts that fall": ("distance", swap("starts", 3, 4)),
    "starts that begin late": ("distance", put("starts", 0, 1)),
    "starts that end early": ("distance", put("starts", -1, lambda v: v - 1)),
    "fewer entries announced": ("distance", state("stored", lambda v: v - 1)),
    "far more entries announced": ("distance", state("stored", 1 << 40)),
    "entries announced as a text": ("distance", state("stored", "5")),
    "losses that are not there": ("distance", state("losses", "given")),
    "losses called distances": ("given", state("losses", "distance")),
    "losses of another problem": ("given", put("loss", (0, 0), lambda v: v + 9)),
    "another loss": ("distance", state("loss", scaled(1.001))),
    "another loss, to places": ("places", state("loss", scaled(1.001))),
    "another loss, by a matrix": ("matrix", state("loss", scaled(0.999))),
    "outputs elsewhere": ("places", put("output_lat", slice(None), lambda v: v + 0.01)),
    "an output that is no place": ("places", put("output_lat", 0, 99.0)),
    "a lower audit": ("distance", state("audit.epsilon", scaled(1 - 1e-11))),
    "a bound above the loss": ("distance", state("lower_bound", 1e9)),
    "a plain version": ("distance", state("version", 1)),
    "nearer records": (
        "distance",
        both(put("lat", slice(None), lambda v: 41.9 + (v - 41.9) / 3), Archive.rename),
    ),
    "a matrix with a pair too near": (
        "matrix",
        both(
            put("distances", (0, 5), 1e-6),
            put("distances", (5, 0), 1e-6),
            Archive.rename,
        ),
    ),
}


def one_zero(file: Archive) -> None:
    rows = file.arrays["weights"]
    rows[0, 1] += rows[0, 0]
    rows[0, 0] = 0


def point_mass(file: Archive) -> None:
    """Everybody outside says where the centre is."""
    rows = np.zeros_like(file.arrays["outside_weights"])
    rows[np.arange(len(rows)), np.arange(len(rows)) % rows.shape[1]] = TOTAL
    file.arrays["outside_weights"] = rows


def one_of_two(file: Archive) -> None:
    """A unit moved in the common row of the last of several centres that have one ball."""
    last = max(panda_table("common").scheme.law.groups, key=len)[-1]
    file.arrays["outside_weights"][last] += np.array([1, -1, 0, 0, 0, 0])


PHASES: dict[str, tuple[str, Change, str]] = {
    "centres swapped": ("common", swap_far("centre_weights"), "contradict"),
    "a centre moved": ("common", swap("centres", 0, 11), "centre|ball|probability|violation|loss"),
    "a centre twice": ("common", put("centres", 0, 11), "twice|probability|ball|loss|violation"),
    "a law that does not sum": ("common", put("centre_weights", (0, 0), lambda v: v + 1), "sum"),
    "rows swapped": ("common", swap("weights", 0, 9), "contradict"),
    "rows outside swapped": ("common", swap_far("outside_weights"), "different rows|loss"),
    "one of two rows outside one ball": ("common", one_of_two, "different rows"),
    "anchors that tell, and say so": (
        "candidates",
        both(claim("selection.rate", 2.0), claim("account.selection_epsilon", 20.0)),
        "contradict",
    ),
    "rows outside that tell": ("common", point_mass, "no mean of the records"),
    "a smaller radius": ("common", claim("selection.radius", scaled(0.7)), "contradict|different"),
    "a radius of 0": ("common", claim("selection.radius", 0.0), "are none"),
    "a smaller delta": ("common", claim("delta", 1e-5), "contradict"),
    "a delta a little below what is summed": (
        "candidates",
        both(claim("delta", 0.00992512), claim("account.violation", 0.00992512)),
        "contradict",
    ),
    "no delta": ("common", claim("delta", 0.0), "contradict"),
    "delta of 1": ("common", claim("delta", 1.0), "no probability below 1"),
    "a smaller epsilon": ("common", claim("epsilon", 0.9), "contradict"),
    "a smaller epsilon_1": ("common", claim("selection.epsilon", 0.3), "contradict"),
    "a smaller table": ("common", claim("selection.table_epsilon", 0.5), "contradict"),
    "another rule outside": (
        "common",
        claim("selection.outside", "nearest"),
        "expected the arrays",
    ),
    "an unknown rule": ("nearest", claim("selection.outside", "extend"), "are none"),
    "nearest, a smaller radius": ("nearest", claim("selection.radius", scaled(0.7)), "contradict"),
    "nearest, a smaller delta": ("nearest", claim("delta", 1e-5), "contradict"),
    "nearest, rows swapped": ("nearest", swap("weights", 0, 9), "contradict"),
    "an account below": ("common", claim("account.violation", scaled(0.2)), "violation is"),
    "an account of 0": ("candidates", claim("account.violation", 0.0), "violation is"),
    "an account above delta": ("common", claim("account.violation", 0.5), "violation is"),
    "a cheaper upload": ("common", claim("account.selection_epsilon", 0.1), "selection_epsilon is"),
    "a cheaper upload by little": (
        "common",
        claim("account.selection_epsilon", scaled(1 - 1e-9)),
        "selection_epsilon is",
    ),
    "coins, a cheaper upload": (
        "coins",
        claim("account.selection_epsilon", scaled(0.99)),
        "selection_epsilon is",
    ),
    "a smaller download": ("coins", claim("account.expected_anchors", 1.0), "expected_anchors is"),
    "balls, a smaller download": (
        "common",
        claim("account.expected_anchors", scaled(0.5)),
        "expected_anchors is",
    ),
    "fewer pairs": ("common", claim("account.pairs", 7), "accounts for 7 pairs"),
    "a smaller loss": ("common", claim("loss", scaled(0.9)), "claims a loss"),
    "coins, a smaller loss": ("power", claim("loss", scaled(0.999)), "claims a loss"),
    "other words": ("common", claim("guarantee", "It is private."), "words are not those"),
    "another kind": ("common", claim("selection.kind", "net"), "kind 'net'"),
    "other anchors": ("candidates", swap("anchor_rows", 0, 5), "contradict|loss"),
    "anchors that moved": ("candidates", swap("candidates", 0, 5), "do not ascend"),
    "anchors beyond": ("candidates", put("candidates", slice(None), lambda v: v + SIZE), "candid"),
    "rows beyond": ("candidates", put("anchor_rows", 0, 99), "anchor_rows"),
    "rarer anchors": ("candidates", claim("selection.alpha", 0.9), "contradict"),
    "certain anchors": ("candidates", claim("selection.alpha", 1.0), "contradict"),
    "anchors that tell": ("candidates", claim("selection.rate", 2.0), "contradict"),
    "anchors that tell at once": ("coins", claim("selection.tail", 1e-9), "contradict"),
    "a tail of 0": ("exponential", claim("selection.tail", 0.0), "contradict"),
    "budgets: rows swapped": ("candidates", swap("weights", 0, 5), "contradict|loss"),
    "budgets: an impossible output": ("candidates", one_zero, "impossible for one"),
    "candidates, smaller epsilon": ("candidates", claim("epsilon", 0.8), "contradict"),
    "candidates, smaller delta": ("candidates", claim("delta", 1e-4), "contradict"),
    "a sharper decay": ("coins", claim("selection.rate", 3.0), "contradict"),
    "another power": ("power", claim("selection.rate", 0.5), "contradict|loss"),
    "another decay": ("coins", claim("selection.decay", "step"), "contradict"),
    "outputs twice": ("common", put("outputs", 1, 0), "named 2 times"),
    "no outputs of it": ("common", put("outputs", slice(None), lambda v: v + SIZE), "outputs"),
    "weights that do not sum": ("coins", put("weights", slice(None), lambda v: v + 1), "sum"),
    "records moved": ("common", put("lat", slice(None), lambda v: v * 0.99), "domain"),
    "records nearer": (
        "common",
        both(put("lat", slice(None), lambda v: 41.8 + (v - 41.8) / 3), Archive.rename),
        "contradict",
    ),
}


def steep(file: Archive) -> None:
    """Rows that the pairs of vertices allow and the triangles do not, with their own audit."""
    domain = pm.Domain.from_area(BOX, spacing=0.4)
    outputs = np.flatnonzero(domain.mesh.inside)[::2]
    asked = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 1.0)
    table = np.exp(-0.9 * asked.loss)
    table /= table.sum(axis=1, keepdims=True)
    loose = pm.Mechanism.from_matrix(asked.with_epsilon(9.0), table)
    made = pm.Mechanism(asked.with_epsilon(loose.audit.epsilon), loose.weights, "given")
    told, audit = file.certificate, made.audit
    told |= {"loss": made.loss, "epsilon": made.epsilon, "lower_bound": None, "gap": None}
    told["audit"] |= {
        "epsilon": audit.epsilon,
        "worst": list(audit.worst),
        "distance": audit.distance,
    }
    for words in ("guarantee", "snapping"):
        told[words] = told[words].replace("exp(1.0 ", f"exp({made.epsilon!r} ")
    told["everywhere"]["epsilon"] = made.epsilon
    file.arrays["weights"] = np.asarray(made.weights).copy()


def bent(area: np.ndarray) -> np.ndarray:
    """One corner drawn to the middle of the others."""
    out = area.copy()
    out[0] = area.mean(axis=0)
    return out


MESHES: dict[str, Change] = {
    "steep between the vertices": steep,
    "a rate 1e-9 lower": state("everywhere.epsilon", scaled(1 - 1e-9)),
    "a rate 1e-12 lower": state("everywhere.epsilon", scaled(1 - 1e-12)),
    "half the rate": state("everywhere.epsilon", scaled(0.5)),
    "a rate above epsilon": state("everywhere.epsilon", 1.5),
    "a rate that does not hold": state("everywhere.holds", False),
    "fewer triangles": state("everywhere.triangles", lambda v: v - 1),
    "a worst triangle that is none": state("everywhere.worst", [0, 1, 99, 5]),
    "a worst triangle of two vertices": state("everywhere.worst", lambda v: [v[0], v[0], *v[2:]]),
    "a finer resolution": state("everywhere.resolution_km", scaled(0.5)),
    "words of a smaller epsilon": state(
        "snapping", lambda v: v.replace("exp(1.0 (d", "exp(0.1 (d")
    ),
    "words of a finer resolution": state(
        "snapping", lambda v: v.replace(f" + {2 * (0.4 / 2**30 + 1e-10)!r})", " + 1e-12)")
    ),
    "a finer resolution, in words too": both(
        state("everywhere.resolution_km", scaled(0.5)),
        state(
            "snapping", lambda v: v.replace(*(f" + {k * (0.4 / 2**30 + 1e-10)!r})" for k in (2, 1)))
        ),
    ),
    "words without a resolution": state("snapping", lambda v: v.replace(" + ", " - ")),
    "a coarser mesh": state("mesh.spacing", scaled(2.0)),
    "a mesh 1e-7 coarser": state("mesh.spacing", scaled(1 + 1e-7)),
    "a mesh without spacing": state("mesh.spacing", 0.0),
    "another middle": state("mesh.middle", [41.9, 12.4]),
    "a middle that is no place": state("mesh.middle", [91.0, 12.4]),
    "more corners announced": state("mesh.corners", lambda v: v + 1),
    "a vertex elsewhere": put("mesh_vertices", 0, [1000, 1000]),
    "a vertex twice": put("mesh_vertices", 1, lambda v: v - v),
    "two vertices swapped": swap("mesh_vertices", 0, 7),
    "a wider area": put("mesh_area", slice(None), lambda v: v * 1.5),
    "an area a little wider than its triangles": put("mesh_area", slice(None), lambda v: v * 1.2),
    "an area clockwise": put("mesh_area", slice(None), lambda v: v[::-1].copy()),
    "an area that is not convex": put("mesh_area", slice(None), bent),
    "a corner that is not finite": put("mesh_area", (0, 0), np.nan),
    "a flag of 2": put("mesh_inside", 0, 2),
    "the rim inside": put("mesh_inside", slice(None), 1),
    "a step in a row": lambda file: moved_weight(file.arrays["weights"][20]),
    "a record moved": both(put("lat", 0, lambda v: v + 1e-6), Archive.rename),
    "a plain version": state("version", 1),
    "no mesh": lambda file: file.certificate.pop("mesh"),
}


def moved_weight(row: np.ndarray) -> None:
    share = row[0] // 3
    row[0] -= share
    row[1] += share
