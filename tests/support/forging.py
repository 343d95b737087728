"""Files as a forger would write them: the sum fits, and something in them is not so.

`good()` are honest files of every kind, `forged()` the others. A file is taken to pieces by code of
its own, one thing is changed, and its sum computed again, so that only the contents can give it
away. Group "plain" holds what all three checkers read, the other groups what two of them do.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from helpers import KINDS, displacement_problem, random_domain
from scipy.sparse.csgraph import shortest_path

import panda_mdp as pm
from panda_mdp.methods.optimal.stars import Stars, factored
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.privacy.quantise import quantise_floored
from panda_mdp.table.bound import Multipliers, Prices, Proved
from panda_mdp.table.claims import Averaged, lower_problem, spread

TOTAL = 1 << 62
SIZE, DELTA = 24, 2e-2
PHASED = ("common", "candidates", "coins", "exponential", "power")
FLOORED = ("distance", "given", "places", "matrix")
BOX = (41.89, 12.48, 41.91, 12.505)
MAGIC = b"panda-mdp\n"


@dataclass(frozen=True)
class Sample:
    """The bytes of a file and what was done to it."""

    name: str
    group: str
    data: bytes

    def write(self, folder: Path) -> Path:
        path = folder / "given.pmdp"
        path.write_bytes(self.data)
        return path


@dataclass
class File:
    """A file in pieces."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]
    sections: dict[str, tuple[str, list[int], bytes]] = field(default_factory=dict)
    """Sections whose coding, shape and bytes are given."""
    text: bytes | None = None
    """The header as it is written, in place of the canonical one."""

    @classmethod
    def of(cls, data: bytes) -> File:
        at = len(MAGIC) + 4
        end = at + struct.unpack_from("<I", data, len(MAGIC))[0]
        header, file = json.loads(data[at:end]), cls({}, {})
        for name, (coding, shape, length) in header.pop("sections").items():
            part, end = data[end : end + length], end + length
            if coding == "blocks":
                file.sections[name] = (coding, shape, part)
                continue
            plain = zlib.decompress(part)
            if coding == "int64":
                file.arrays[name] = np.frombuffer(plain, "<i8").reshape(shape).copy()
                continue
            if coding == "float64":
                told = np.zeros((int(np.prod(shape)), 8), dtype=np.uint8)
                told[:, : plain[0]] = np.frombuffer(plain[1:], np.uint8).reshape(plain[0], -1).T
                file.arrays[name] = told.view(">f8").astype(np.float64).reshape(shape)
                continue
            values = _differences(plain, int(np.prod(shape))).reshape(shape)
            file.arrays[name] = values / 1e7 if coding == "degrees" else values
        file.header = header
        return file

    def pieces(self) -> dict[str, tuple[str, list[int], Any]]:
        """Coding, shape and bytes of every section, in order."""
        made = {}
        for name, array in self.arrays.items():
            coding, plain = "int64", np.ascontiguousarray(array).tobytes()
            if array.dtype.kind == "f":
                told = np.ascontiguousarray(array).astype(">f8").view(np.uint8).reshape(-1, 8)
                coding, plain = "float64", b"\x08" + told.T.tobytes()
            made[name] = (coding, [*array.shape], zlib.compress(plain))
        return dict(sorted((made | self.sections).items()))

    def bytes(self) -> bytes:
        made = self.pieces()
        listed = {name: [coding, shape, len(data)] for name, (coding, shape, data) in made.items()}
        text = self.text
        if text is None:
            text = canonical({"sections": listed, **self.header})
        body = b"".join(
            [MAGIC, struct.pack("<I", len(text)), text, *(d for *_, d in made.values())]
        )
        return body + hashlib.sha256(body).digest()


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _differences(plain: bytes, count: int) -> np.ndarray:
    parts = np.frombuffer(plain[1:], np.uint8).reshape(plain[0], count)
    folded = np.zeros(count, dtype=np.int64)
    for k, part in enumerate(parts):
        folded += part.astype(np.int64) << 8 * k
    return np.cumsum(np.where(folded & 1, -(folded >> 1) - 1, folded >> 1))


# Honest files


@cache
def mechanism(kind: str, scale: float = 1.25) -> pm.Mechanism:
    """A table of 12 records; losses of the scale 1 are distances, which no file holds."""
    domain = random_domain(kind, 12, seed=5)
    if kind == "haversine":
        domain = domain.with_nodes(np.arange(70, 82)).with_labels([f"place {k}" for k in range(12)])
    prior = np.arange(1.0, 13.0) / 78
    problem = displacement_problem(domain, [7, 2, 9, 4], 1.5, prior=prior)
    problem = replace(problem, loss=scale * problem.loss)
    made = pm.optimal(problem, gap=0.05)
    # Without the proof of its bound, which is a section of its own.
    return made.with_facts(bound=made.lower_bound)


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
    asked = problem(metric="matrix" if kind == "power" else "haversine")
    some = np.arange(0, SIZE, 3)
    selection = {
        "common": lambda: pm.BallAnchors(0.4, radius=9.0),
        "candidates": lambda: pm.BernoulliAnchors.alike(asked.domain, 9, DELTA),
        "coins": lambda: pm.BernoulliAnchors("logistic", 0.997, 1e-4, 3.0, candidates=some),
        "exponential": lambda: pm.BernoulliAnchors(
            "exponential", 0.997, 1e-4, 3.0, tail=0.9968, candidates=some
        ),
        "power": lambda: pm.BernoulliAnchors("power", 0.997, 20.0, 0.5, candidates=some),
    }[kind]()
    return pm.PandaTable(selection.scheme(asked, DELTA, PandaOptions(gap=0.02)))


@cache
def floored(kind: str) -> pm.Mechanism:
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
    return pm.Mechanism(pm.Problem(domain, reports, loss, 2.0), rows, "given")


@cache
def everywhere(rate: float = 0.3, epsilon: float = 1.0) -> pm.Mechanism:
    """A table over a mesh; `rate` is how fast it changes, of which 0.3 holds at every point."""
    domain = pm.Domain.from_area(BOX, spacing=0.4)
    outputs = np.flatnonzero(domain.mesh.inside)[::2]
    asked = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), epsilon)
    table = np.exp(-rate * asked.loss)
    kind = pm.EverywhereMechanism if rate <= 0.3 else pm.Mechanism
    return kind.from_matrix(asked, table / table.sum(axis=1, keepdims=True))


@cache
def factors() -> pm.Mechanism:
    """A table of 16 vectors in factors, with the prices that prove its bound."""
    domain = pm.Domain.from_vectors(np.random.default_rng(2).normal(size=(16, 24)))
    asked = pm.Problem(domain, np.arange(16), domain.distances(), 1.2)
    made, _ = factored(asked)
    proof = Proved(asked, Prices(Stars(asked).prices))
    return made.with_facts(bound=proof)


@cache
def paths(places: bool) -> pm.Mechanism:
    """A table over a ring of 12 records with two chords, lengths in quarters."""
    rng = np.random.default_rng(8)
    ring = np.stack([np.arange(12), (np.arange(12) + 1) % 12], axis=1)
    lengths = np.append(rng.integers(2, 6, 12) / 4, [2.25, 1.75])
    where = (rng.uniform(-90, 90, 12), rng.uniform(-180, 180, 12)) if places else None
    domain = pm.Domain.from_graph([*ring, (0, 5), (3, 9)], lengths, places=where)
    asked = displacement_problem(domain, [7, 2, 9, 4], 1.5, prior=np.arange(1.0, 13.0) / 78)
    return pm.optimal(asked, gap=0.05)


@cache
def limited(kind: str) -> pm.Mechanism:
    """A table of 12 records with the proof of what a second objective or a limit costs."""
    domain = random_domain("matrix" if kind == "vulnerability" else "haversine", 12, seed=5)
    asked = displacement_problem(domain, [7, 2, 9, 4], 1.5, prior=np.arange(1.0, 13.0) / 78)
    # So few iterations that guesses which were best on the way are left.
    options = {"backend": "cpu", "gap": 0.05}
    if kind == "limit":
        return pm.limit_attacker(asked, "vulnerability", 0.3, **options)
    if kind == "dominates":
        zones = np.arange(12) % 2
        return pm.dominate(asked, pm.planar_laplace(asked), radii=(1.0,), districts=zones)
    radius = 5.0 if kind == "located" else None
    return pm.second_objective(asked, kind, 0.05, radius=radius, **options)


@cache
def averaged(given: bool) -> pm.EverywhereMechanism:
    """A table over a mesh with the proof of its bound, where losses are given or distances."""
    domain = pm.Domain.from_area(BOX, spacing=0.4)
    outputs = np.flatnonzero(domain.mesh.inside)[::2]
    people = domain.mesh.interior * (1.0 + np.arange(domain.size))
    loss = pm.distance_loss(domain, outputs)
    loss = np.asarray(loss) ** 2 if given else loss
    asked = pm.Problem(domain, outputs, loss, 1.0, prior=people / people.sum())
    solved = pm.optimal(lower_problem(asked, domain.mesh), 0.1)
    over_points = spread(asked)
    table = np.exp(-0.3 * np.asarray(pm.distance_loss(domain, outputs)))
    table /= table.sum(axis=1, keepdims=True)
    made = pm.EverywhereMechanism.from_matrix(over_points, table)
    return made.with_facts(bound=Averaged(asked, solved.bound.multipliers))


def placed(outputs: str) -> pm.Mechanism:
    """A table whose outputs are no records."""
    domain = mechanism("haversine").problem.domain
    lat, lon = domain.lat[:5] + 0.01, domain.lon[:5]
    names = ["a", "b", "c", "d", "e"]
    reports = {
        "places": pm.Outputs.at(lat, lon),
        "labels": pm.Outputs.labels(names),
        "places with labels": pm.Outputs.at(lat, lon, names),
    }[outputs]
    loss = np.abs(domain.lat[:, None] - lat)
    return pm.optimal(pm.Problem(domain, reports, loss, 1.5), gap=0.05)


def saved(made: pm.Mechanism | pm.PandaTable, **options: bool) -> bytes:
    with TemporaryDirectory() as folder:
        return made.save(Path(folder) / "table.pmdp", **options).read_bytes()


@cache
def honest(name: str) -> bytes:
    """The file of a kind: a metric's, "compact" and a metric's, and all the others by name."""
    word, _, kind = name.partition(" ")
    if word == "compact":
        table = placed(kind[3:]) if kind.startswith("of ") else mechanism(kind, 1.0)
        return saved(pm.compact(table), losses=False)
    if word == "floor":
        return saved(floored(kind))
    if word == "panda":
        return saved(panda_table(kind))
    if word == "mesh":
        return saved(everywhere())
    if word == "terms":
        return saved(limited(kind))
    if word == "averages":
        return saved(averaged(bool(kind)))
    if word == "factors":
        return saved(factors())
    if word in ("graph", "streets"):
        return saved(paths(word == "streets"))
    if word == "proved":
        return saved(pm.optimal(mechanism(kind).problem, gap=0.05))
    if word == "distances":
        return saved(pm.optimal(mechanism(kind, 1.0).problem, gap=0.05))
    return saved(placed(name) if name in PLACED else mechanism(name))


PLACED = ("places", "labels", "places with labels")
TERMS = ("vulnerability", "located", "error", "limit", "dominates")
PLAIN = (
    *KINDS,
    *(f"compact {kind}" for kind in KINDS),
    *(f"{word} {kind}" for word in ("proved", "distances") for kind in KINDS),
    *PLACED,
    *(f"compact of {outputs}" for outputs in PLACED),
)
OTHERS = (
    *(f"floor {k}" for k in FLOORED),
    *(f"panda {k}" for k in PHASED),
    *("mesh", "graph", "streets", "factors"),
    *(f"terms {kind}" for kind in TERMS),
    *("averages", "averages given"),
)


UNTRUE = "a stated bound above the loss"
"""A note that cannot be true: the table is what it is, and the note is shown to nobody."""


def good() -> Iterator[Sample]:
    """Honest files of every kind."""
    for name in PLAIN:
        yield Sample(name, "plain", honest(name))
    equal = File.of(honest("euclidean"))
    equal.arrays["weights"][:] = TOTAL // 4
    equal.header["notes"]["lower_bound"] = None
    yield Sample("equal rows", "plain", equal.bytes())
    yield Sample(UNTRUE, "plain", changed("euclidean", state("notes.lower_bound", 1e9)))
    for unit in ("é", "\xa0"):
        yield Sample(f"in {unit!r}", "plain", changed("matrix", state("domain.unit", unit)))
    for name in OTHERS:
        yield Sample(name, name.partition(" ")[0], honest(name))


@cache
def proof(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Pairs and multipliers of an optimal dual solution, from HiGHS by way of SciPy."""
    from scipy.optimize import linprog

    asked = mechanism(kind).problem
    size, count, distances = asked.size, asked.outputs_count, asked.domain.distances()
    pairs = [(x, x2) for x in range(size) for x2 in range(size) if x != x2]
    rows = np.zeros((len(pairs) * count, size * count))
    for k, (x, x2) in enumerate(pairs):
        for y in range(count):
            rows[k * count + y, x * count + y] = 1
            rows[k * count + y, x2 * count + y] = -np.exp(asked.epsilon * distances[x, x2])
    sums = np.kron(np.eye(size), np.ones(count))
    found = linprog(
        asked.weighted_loss.ravel(), rows, np.zeros(len(rows)), sums, np.ones(size), (0, None)
    )
    multipliers = np.maximum(0.0, -found.ineqlin.marginals).reshape(len(pairs), count)
    return np.array(pairs, dtype=np.int64), multipliers


# Changes

Change = Callable[[File], Any]


def state(path: str, value: Any) -> Change:
    """Another value in the header; a function is given the old one."""

    def change(file: File) -> None:
        *parents, last = path.split(".")
        where: Any = file.header
        for parent in parents:
            where = where[parent]
        where[last] = value(where[last]) if callable(value) else value

    return change


def without(path: str) -> Change:
    """A field less."""

    def change(file: File) -> None:
        *parents, last = path.split(".")
        where: Any = file.header
        for parent in parents:
            where = where[parent]
        del where[last]

    return change


def put(name: str, place: Any, value: Any) -> Change:
    """Another number in an array; a function is given the old one."""

    def change(file: File) -> None:
        array = file.arrays[name]
        array[place] = value(array[place]) if callable(value) else value

    return change


def array(name: str, make: Any) -> Change:
    """Another array in place of one; None takes it away."""

    def change(file: File) -> None:
        made = make(file.arrays.get(name)) if callable(make) else make
        file.arrays.pop(name, None)
        if made is not None:
            file.arrays[name] = np.asarray(made)

    return change


def section(name: str, coding: str, shape: list[Any], data: bytes) -> Change:
    """A section of given bytes."""

    def change(file: File) -> None:
        file.arrays.pop(name, None)
        file.sections[name] = (coding, shape, data)

    return change


def swap(name: str, i: int, j: int) -> Change:
    def change(file: File) -> None:
        file.arrays[name][[i, j]] = file.arrays[name][[j, i]]

    return change


def swap_far(name: str) -> Change:
    """The first row for the one that differs most from it."""

    def change(file: File) -> None:
        rows = file.arrays[name].astype(np.float64)
        swap(name, 0, int(np.abs(rows - rows[0]).sum(axis=1).argmax()))(file)

    return change


def text(make: Callable[[bytes], bytes]) -> Change:
    """Another text of the header."""

    def change(file: File) -> None:
        at = len(MAGIC) + 4
        data = file.bytes()
        end = at + struct.unpack_from("<I", data, len(MAGIC))[0]
        file.text = make(data[at:end])

    return change


def both(*changes: Change) -> Change:
    def change(file: File) -> None:
        for one in changes:
            one(file)

    return change


def everything(value: Callable[[np.ndarray], Any], name: str) -> Change:
    return put(name, slice(None), value)


def block(change: Callable[[bytearray], Any]) -> Change:
    """Other plain bytes of the first block."""

    def changed(file: File) -> None:
        coding, shape, data = file.sections["blocks"]
        length = struct.unpack_from("<I", data)[0]
        plain = bytearray(zlib.decompress(data[4 : 4 + length]))
        change(plain)
        packed = zlib.compress(bytes(plain))
        rest = data[4 + length :]
        file.sections["blocks"] = (coding, shape, struct.pack("<I", len(packed)) + packed + rest)

    return changed


def byte(place: int, value: int) -> Change:
    return block(lambda plain: plain.__setitem__(place, value))


def blocks(change: Callable[[list[Any], bytes], tuple[list[Any], bytes]]) -> Change:
    """Another shape and other bytes of all blocks."""

    def changed(file: File) -> None:
        coding, shape, data = file.sections["blocks"]
        shape, data = change(list(shape), data)
        file.sections["blocks"] = (coding, shape, data)

    return changed


def moved(share: float) -> Change:
    """A share of an output of one row given to another: sums fit, pairs do not."""

    def change(file: File) -> None:
        row = file.arrays["weights"][3]
        mass = int(row[0] * share)
        row[0] -= mass
        row[1] += mass

    return change


def moved_value(file: File) -> None:
    """The same of what a row stores over its floor."""
    starts, values = file.arrays["starts"], file.arrays["values"]
    row = values[starts[3] : starts[4]]
    first = int(row.argmax())
    share = row[first] // 2
    row[first] -= share
    row[first - 1] += share


def round_2_64(file: File) -> None:
    file.arrays["weights"][3] = [1, 2**62, 2**62, 2**62 - 1]


def certain(file: File) -> None:
    rows = np.zeros_like(file.arrays["weights"])
    rows[np.arange(12), np.arange(12) % 4] = TOTAL
    file.arrays["weights"] = rows


def with_proof(*changes: Change) -> Change:
    def change(file: File) -> None:
        made = Multipliers.of(*proof("euclidean"))
        for name in ("pairs", "starts", "columns"):
            file.arrays[f"bound_{name}"] = getattr(made, name).copy()
        file.arrays["bound_multipliers"] = made.values.copy()
        both(*changes)(file)

    return change


def negative_floor(file: File) -> None:
    """A floor below 0 that no row shows, because all rows store that output."""
    stored = np.bincount(file.arrays["columns"], minlength=len(file.arrays["floor"]))
    everywhere = np.flatnonzero(stored == len(file.arrays["starts"]) - 1)
    file.arrays["floor"][everywhere[0]] = -(1 << 63)


def too_few_words(file: File) -> None:
    """The same numbers deflated with a code of code lengths that has one word too few.

    Bytes have words of 8 bits, but 255 and the end 9; the lengths 1, 8 and 9 have words of 2.
    """
    coding, shape, data = file.pieces()["weights"]
    plain = zlib.decompress(data)
    bits = "1" + "01" + "00000" + "00000" + "0111"  # the last block, 257 and 1 codes, 18 lengths
    first = {1: 2, 8: 2, 9: 2}
    order = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)
    bits += "".join(f"{first.get(symbol, 0):03b}"[::-1] for symbol in order)
    bits += "01" * 255 + "10" * 2 + "00"
    words = {255: f"{510:09b}", 256: f"{511:09b}"}
    bits += "".join(words.get(symbol, f"{symbol:08b}") for symbol in (*plain, 256))
    bits += "0" * (-len(bits) % 8)
    body = bytes(int(bits[k : k + 8][::-1], 2) for k in range(0, len(bits), 8))
    made = b"\x78\x9c" + body + zlib.adler32(plain).to_bytes(4, "big")
    section("weights", coding, list(shape), made)(file)


def two_clusters(size: int = 400) -> bytes:
    """Two clusters 1,000 from each other; then one pair across is said to be 1e-6 near."""
    rng = np.random.default_rng(1)
    places = rng.random((size, 2))
    places[size // 2 :, 0] += 1000
    distances = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2))
    domain = pm.Domain.from_matrix(distances)
    loss = distances[:, [0, size - 1]]
    file = File.of(saved(pm.exponential(pm.Problem(domain, [0, size - 1], loss, 0.01))))
    file.arrays["distances"][0, size - 1] = file.arrays["distances"][size - 1, 0] = 1e-6
    return file.bytes()


def bomb(size: int = 10_000) -> bytes:
    """A table of size^2 equal distances: small deflated, very much unpacked."""
    file = File.of(honest("matrix"))
    # After a full flush the same bytes may be repeated.
    packer = zlib.compressobj(9)
    head = packer.flush(zlib.Z_FULL_FLUSH)
    rows = packer.compress(np.ones(100 * size).tobytes()) + packer.flush(zlib.Z_FULL_FLUSH)
    data = head + rows * (size // 100) + packer.flush()
    section("distances", "float64", [size, size], data)(file)
    return file.bytes()


NAN, INF = float("nan"), float("inf")
HEADERS: dict[str, Change] = {
    **{
        f"epsilon {value!r}"[:60]: state("epsilon", value)
        for value in (0.0, -1.5, "1.5", True, None, [1.5], 10**400, 1e-9, 1.485)
    },
    "epsilon NaN": text(lambda t: t.replace(b'"epsilon":1.5', b'"epsilon":NaN')),
    "epsilon infinite": text(lambda t: t.replace(b'"epsilon":1.5', b'"epsilon":Infinity')),
    "epsilon 1e999": text(lambda t: t.replace(b'"epsilon":1.5', b'"epsilon":1e999')),
    "epsilon of 4,000 digits": state("epsilon", 10**3999),
    "another format": state("format", "panda-mdp"),
    **{f"version {v!r}": state("version", v) for v in (0, 2, "1", None, True, 1.0)},
    **{f"no {name}": without(name) for name in ("epsilon", "domain", "outputs", "loss", "notes")},
    **{f"no {n}": without(n) for n in ("domain.kind", "domain.labels", "loss.power")},
    **{f"no {n}": without(n) for n in ("outputs.kind", "notes.method", "notes.lower_bound")},
    "an unknown field": state("audit", {"holds": True, "epsilon": 0.1}),
    "an unknown field of the domain": state("domain.fingerprint", "0" * 64),
    "an unknown field of the notes": state("notes.guarantee", "Further reports are free."),
    "an unknown field of the losses": state("loss.mean", 1.0),
    "domain a list": state("domain", []),
    "outputs a number": state("outputs", 4),
    "notes none": state("notes", None),
    **{
        f"kind {kind!r}": state("domain.kind", kind)
        for kind in ("manhattan", "angular", "matrix", "haversine", None, 3)
    },
    "a unit that is no text": state("domain.unit", 3),
    "outputs called places": state("outputs.kind", "places"),
    "outputs called labels": state("outputs.kind", "labels"),
    "outputs of an unknown kind": state("outputs.kind", "cells"),
    "labels of outputs that are records": state("outputs.labels", ["a", "b", "c", "d"]),
    "labels of fewer records": state("domain.labels", ["a", "b"]),
    "labels twice": state("domain.labels", ["a"] * 12),
    "labels that are none": state("domain.labels", [[k] for k in range(12)]),
    "labels a text": state("domain.labels", 7),
    "a power beside losses": state("loss.power", 1.0),
    "a power that is none": both(state("loss.power", -1.0), array("loss", None)),
    "a power that is a text": both(state("loss.power", "1"), array("loss", None)),
    "a unit of losses that is no text": state("loss.unit", None),
    "a stated bound that is a text": state("notes.lower_bound", "1"),
    "a stated bound true": state("notes.lower_bound", True),
    "a stated bound beyond floats": state("notes.lower_bound", 10**400),
    "a stated loss that is a text": state("notes.loss", "1"),
    "a method that is no text": state("notes.method", 3),
    "stages that are none": state("notes.stages", [1, 2]),
    "stages without seconds": state("notes.stages", [["solve", "fast"]]),
    "details that are none": state("notes.details", None),
    "a mesh without its sections": state("mesh", {"middle": [41.9, 12.5], "spacing": 0.4}),
    "a selection without its sections": state("selection", {"kind": "ball", "delta": 0.1}),
    "sections a list": state("sections", []),
    "sections none": state("sections", None),
    "no sections": state("sections", {}),
    "JSON cut off": text(lambda t: t[:-20]),
    "JSON: a list": text(lambda t: b"[" + t + b"]"),
    "JSON: null": text(lambda _: b"null"),
    "JSON: empty": text(lambda _: b""),
    "JSON: not UTF-8": text(lambda t: t.replace(b"optimal", b"\xff\xfe")),
    "JSON: with blanks": text(lambda t: t.replace(b'"epsilon":1.5', b'"epsilon": 1.5')),
    "JSON: a name twice": text(
        lambda t: t.replace(b'"epsilon":1.5', b'"epsilon":0.001,"epsilon":1.5')
    ),
    "JSON: not sorted": text(
        lambda t: t.replace(b'"epsilon":1.5,', b"").replace(b"{", b'{"epsilon":1.5,', 1)
    ),
    "JSON: another form of a number": text(
        lambda t: t.replace(b'"epsilon":1.5', b'"epsilon":15e-1')
    ),
    "JSON: 100,000 deep": text(
        lambda t: t.replace(b'"details":{', b'"details":{"deep":' + b"[" * 10**5 + b"]" * 10**5, 1)
    ),
}
SECTIONS: dict[str, Change] = {
    "outputs missing": array("outputs", None),
    "weights missing": array("weights", None),
    "a section of another table": array("centres", np.arange(3)),
    "a section that is none of the format": section("audit", "float64", [1], zlib.compress(b"0")),
    "nodes that are too few": array("nodes", np.arange(11)),
    "one output less": array("outputs", lambda a: a[:3]),
    "an output out of range": array("outputs", np.array([7, 2, 9, 12])),
    "a negative output": array("outputs", np.array([7, 2, 9, -1])),
    "an output twice": array("outputs", np.array([7, 2, 9, 9])),
    "outputs as floats": array("outputs", lambda a: a.astype(float)),
    "no outputs": array("outputs", np.empty(0, np.int64)),
    "prior that sums to 2": array("prior", lambda a: a * 2),
    "prior NaN": put("prior", 3, NAN),
    "prior negative": array("prior", lambda a: a - a[1]),
    "prior too short": array("prior", lambda a: a[1:]),
    "a loss NaN": put("loss", (0, 0), NAN),
    "a loss infinite": put("loss", (0, 0), INF),
    "a loss negative": put("loss", (0, 0), -1.0),
    "losses of fewer records": array("loss", lambda a: a[1:]),
    "losses as integers": array("loss", lambda a: a.astype(np.int64)),
    "weights as floats": array("weights", lambda a: a.astype(float)),
    "weights transposed": array("weights", lambda a: np.ascontiguousarray(a.T)),
    "weights flat": array("weights", lambda a: a.ravel()),
    "weights of a row less": array("weights", lambda a: a[1:]),
    "most of an output moved": moved(0.9),
    "all of an output moved": moved(1.0),
    "two rows swapped": swap("weights", 0, 5),
    "a row that sums to one more": put("weights", (3, 0), lambda v: v + 1),
    "a row that sums to one less": put("weights", (3, 0), lambda v: v - 1),
    "negative weights": both(
        put("weights", (slice(None), 0), lambda v: v - TOTAL),
        put("weights", (slice(None), 1), lambda v: v + TOTAL),
    ),
    "a row that goes round 2^64": round_2_64,
    "the record itself": certain,
    "a floor beside weights": array("floor", np.zeros(4, np.int64)),
    "not deflated": section("prior", "float64", [12], b"\1" * 40),
    "a bomb": section("prior", "float64", [12], zlib.compress(bytes(64 << 20))),
    "bytes after the end": section(
        "prior", "float64", [12], zlib.compress(np.full(12, 1 / 12).tobytes()) + b"x"
    ),
    "800 MB announced": section("prior", "float64", [10**8], zlib.compress(b"0" * 96)),
    "a shape beyond memory": section("prior", "float64", [10**15], zlib.compress(b"0" * 96)),
    "a shape that is negative": section("prior", "float64", [-12], zlib.compress(b"0" * 96)),
    "a shape of texts": section("prior", "float64", ["12"], zlib.compress(b"0" * 96)),
    "a coding that is none": section("prior", "float32", [12], zlib.compress(b"0" * 48)),
    "integers for a prior": section("prior", "integers", [12], zlib.compress(b"\0")),
    "degrees of a wrong width": section(
        "prior", "degrees", [12], zlib.compress(b"\x09" + b"0" * 99)
    ),
    "proof: a multiplier negative": with_proof(put("bound_multipliers", 0, -1e-3)),
    "proof: a multiplier NaN": with_proof(put("bound_multipliers", 0, NAN)),
    "proof: a multiplier infinite": with_proof(put("bound_multipliers", 0, INF)),
    "proof: a multiplier less": with_proof(array("bound_multipliers", lambda a: a[1:])),
    "proof: an output beyond": with_proof(put("bound_columns", 0, 4)),
    "proof: an output negative": with_proof(put("bound_columns", 0, -1)),
    "proof: starts that fall": with_proof(put("bound_starts", 1, 10**6)),
    "proof: starts that begin late": with_proof(put("bound_starts", 0, 1)),
    "proof: starts that end early": with_proof(put("bound_starts", -1, lambda v: v - 1)),
    "proof: no starts": with_proof(array("bound_starts", None)),
    "proof: multipliers as plain floats": with_proof(
        section("bound_multipliers", "float64", [0], zlib.compress(b""))
    ),
    "proof: pairs out of range": with_proof(put("bound_pairs", (0, 0), 12)),
    "proof: pairs negative": with_proof(put("bound_pairs", (0, 0), -1)),
    "proof: a pair less": with_proof(array("bound_pairs", lambda a: a[1:])),
    "proof: no multipliers": with_proof(array("bound_multipliers", None)),
    "proof: no pairs": with_proof(array("bound_pairs", None)),
    "proof: prices beside it": with_proof(array("bound_prices", np.zeros(12))),
    "features: one that is not known": state("features", ["factors"]),
    "features: one without its field": state("features", ["mesh"]),
    "features: a text": state("features", "mesh"),
    "features: none": without("features"),
    "a unit of two lines": state("domain.unit", "unit\nholds: "),
    "a unit that ends early": state("domain.unit", "unit\0"),
    "a unit of losses that a terminal obeys": state("loss.unit", "\x9b2J"),
    "a unit that is taken back": state("loss.unit", "\x7f"),
    "a label of two lines": state("domain.labels", ["a\nholds: ", *range(11)]),
    "a label that a terminal obeys": state("domain.labels", ["\x1b[2J", *range(11)]),
    "notes without a date": without("notes.date"),
    "notes without a library": without("notes.library"),
    "losses with a digest": state("loss.digest", "0" * 64),
    "losses without a digest": array("loss", None),
    "losses with a digest that is none": both(array("loss", None), state("loss.digest", "0" * 63)),
    "losses with a digest that is a number": both(array("loss", None), state("loss.digest", 0)),
}
RECORDS: dict[str, dict[str, Change]] = {
    "haversine": {
        "latitude 91": put("lat", 3, 91.0),
        "latitude NaN": put("lat", 3, NAN),
        "longitude 181": put("lon", 3, 181.0),
        "longitude 180": put("lon", 3, 180.0),
        "longitude infinite": put("lon", 3, INF),
        "places nearer": array("lat", lambda a: a.mean() + np.arange(12) * 1e-5),
        "metres": state("domain.unit", "m"),
        "the north pole twice": both(
            put("lat", [3, 4], 90.0), put("lon", 3, 10.0), put("lon", 4, 20.0)
        ),
        "a place less": both(array("lat", lambda a: a[1:]), array("lon", lambda a: a[1:])),
        "places in a table": array("lat", lambda a: a.reshape(3, 4)),
    },
    "matrix": {
        "a pair too near": put("distances", ([0, 5], [5, 0]), 1e-6),
        "a pair too far": put("distances", ([0, 5], [5, 0]), 1e3),
        "asymmetric": put("distances", (0, 5), lambda v: v * 0.9),
        "asymmetric by a bit": put("distances", (0, 5), lambda v: np.nextafter(v, 0)),
        "NaN": put("distances", ([0, 5], [5, 0]), NAN),
        "infinite": put("distances", ([0, 5], [5, 0]), INF),
        "negative": put("distances", ([0, 5], [5, 0]), -1.0),
        "at distance 0": put("distances", ([0, 5], [5, 0]), 0.0),
        "diagonal": put("distances", (3, 3), 0.1),
        "all nearer": array("distances", lambda a: a / 2),
        "not square": array("distances", lambda a: a[:, 1:]),
    },
    "euclidean": {
        "a vector twice": put(
            "vectors", 3, lambda _: File.of(honest("euclidean")).arrays["vectors"][4]
        ),
        "a coordinate NaN": put("vectors", (3, 1), NAN),
        "a coordinate infinite": put("vectors", (3, 1), INF),
        "all nearer": array("vectors", lambda a: a / 2),
        "vectors flat": array("vectors", lambda a: a.ravel()),
    },
    "angular": {
        "a vector of 0": put("vectors", 3, 0.0),
        "a coordinate NaN": put("vectors", (3, 1), NAN),
        "two vectors nearer": put(
            "vectors", 3, lambda _: File.of(honest("angular")).arrays["vectors"][4] + 1e-6
        ),
        "degrees": state("domain.unit", "degrees"),
    },
}
COMPACT: dict[str, Change] = {
    "order: a record twice": put(
        "order", 1, lambda _: File.of(honest("compact euclidean")).arrays["order"][0]
    ),
    "order: out of range": put("order", 0, 12),
    "order: negative": put("order", 0, -1),
    "order: rows exchanged": swap("order", 0, 7),
    "order: too short": array("order", lambda a: a[1:]),
    "floor: negative": array("floor", np.array([-1, 0, 0, 0])),
    "floor: beyond 2^62": array("floor", np.array([TOTAL, TOTAL, 0, 0])),
    "floor: another": array("floor", np.array([1, 1, 1, 1])),
    "floor: missing": array("floor", None),
    "weights beside blocks": array("weights", np.zeros((12, 4), np.int64)),
    "block: a parent later": byte(3, 7),
    "block: precision 200": byte(12 + 3, 200),
    "block: rest out of range": byte(24 + 6, 9),
    "block: flags": byte(48, 0),
    "block: cut": block(lambda plain: plain.__delitem__(slice(-4, None))),
    "block: longer": block(lambda plain: plain.extend(b"\0\0")),
    "block: a bomb": block(lambda plain: plain.extend(bytes(64 << 20))),
    "blocks: cut": blocks(lambda shape, data: (shape, data[:-1])),
    "blocks: longer": blocks(lambda shape, data: (shape, data + b"\0")),
    "blocks: empty": blocks(lambda shape, _: (shape, b"")),
    "blocks: a wrong length": blocks(lambda shape, data: (shape, b"\xff\xff\xff\x7f" + data[4:])),
    "blocks: fewer entries": blocks(lambda shape, data: ([*shape[:2], shape[2] - 1], data)),
    "blocks: more entries": blocks(lambda shape, data: ([*shape[:2], shape[2] + 1], data)),
    "blocks: far more entries": blocks(lambda shape, data: ([*shape[:2], 1 << 40], data)),
    "blocks: of other records": blocks(lambda shape, data: ([13, *shape[1:]], data)),
    "blocks: no entries": blocks(lambda shape, data: (shape[:2], data)),
    "a smaller epsilon": state("epsilon", 1.4),
}
PLACES: dict[str, Change] = {
    "outputs called records": state("outputs", {"kind": "records", "labels": None}),
    "places without their sections": state("outputs.kind", "labels"),
    "a label twice": state("outputs.labels", ["a", "b", "c", "d", "a"]),
    "labels a text of as many letters": state("outputs.labels", "abcde"),
    "a label too few": state("outputs.labels", ["a", "b", "c", "d"]),
    "a place that is not finite": put("output_lat", 0, NAN),
    "a place that is none": put("output_lat", 0, 99.0),
    "weights that are not private": put("weights", 0, [TOTAL - 4, 1, 1, 1, 1]),
}
FLOORS: dict[str, tuple[str, Change]] = {
    "a value moved": ("distance", moved_value),
    "a value moved, losses given": ("given", moved_value),
    "a row that sums to more": ("distance", put("values", 5, lambda v: v + 1)),
    "a floor that was raised": ("distance", put("floor", 2, lambda v: v + 1)),
    "a negative floor": ("distance", put("floor", 2, -1)),
    "columns that do not ascend": ("distance", swap("columns", 0, 1)),
    "a column twice": ("distance", put("columns", 1, lambda _: 0)),
    "a column beyond": ("distance", put("columns", 2, SIZE)),
    "a column beyond 32 bits": ("distance", put("columns", 2, lambda v: v + (1 << 32))),
    "a negative column": ("distance", put("columns", 0, -1)),
    "starts that fall": ("distance", swap("starts", 3, 4)),
    "starts that begin late": ("distance", put("starts", 0, 1)),
    "starts that end early": ("distance", put("starts", -1, lambda v: v - 1)),
    "fewer values": ("distance", array("values", lambda a: a[1:])),
    "losses beside their power": ("given", state("loss.power", 1.0)),
    "an output that is no place": ("places", put("output_lat", 0, 99.0)),
    "losses of the power 0": ("places", state("loss.power", 0.0)),
    "losses of the power 17": ("distance", state("loss.power", 17.0)),
    "losses of labels": ("matrix", state("outputs", {"kind": "labels", "labels": ["a"]})),
    "nearer records": ("distance", everything(lambda v: 41.9 + (v - 41.9) / 3, "lat")),
    "a matrix with a pair too near": ("matrix", put("distances", ([0, 5], [5, 0]), 1e-6)),
}


def one_zero(file: File) -> None:
    rows = file.arrays["weights"]
    rows[0, 1] += rows[0, 0]
    rows[0, 0] = 0


PHASES: dict[str, tuple[str, Change]] = {
    "a prior of more than all": ("common", array("prior", lambda a: a * 1.1)),
    "a prior below 0": ("common", put("prior", [0, 1], lambda v: v - np.array([1.0, -1.0]))),
    "prices of two phases": ("common", array("bound_prices", np.zeros(SIZE))),
    "too many neighbours": ("coins", state("selection.neighbours", 1 << 53)),
    "rows of others": ("common", swap("order", 0, 9)),
    "a law over records": ("common", array("centre_weights", np.zeros((SIZE, 3), np.int64))),
    "a radius of 0": ("common", state("selection.radius", 0.0)),
    "a radius without end": ("common", state("selection.radius", float("inf"))),
    "a delta for balls": ("common", state("selection.delta", 1e-5)),
    "delta of 1": ("common", state("selection.delta", 1.0)),
    "a smaller epsilon": ("common", state("epsilon", 0.9)),
    "a larger epsilon_1": ("common", state("selection.epsilon", 0.6)),
    "all of epsilon for the centre": ("common", state("selection.epsilon", 1.0)),
    "a larger edge": ("common", state("selection.edge", 0.2)),
    "an edge of 0": ("common", state("selection.edge", 0.0)),
    "a negative edge": ("common", state("selection.edge", -0.1)),
    "an edge that rounding eats": ("common", state("selection.edge", 1e-9)),
    "an unknown field": ("common", state("selection.account", {"violation": 0.0})),
    "a field less": ("common", without("selection.radius")),
    "a selection that is none": ("common", state("selection", 3)),
    "another kind": ("common", state("selection.kind", "net")),
    "other anchors": ("candidates", swap("anchor_rows", 0, 5)),
    "anchors that moved": ("candidates", swap("candidates", 0, 5)),
    "anchors beyond": ("candidates", everything(lambda v: v + SIZE, "candidates")),
    "rows beyond": ("candidates", put("anchor_rows", 0, 99)),
    "rarer anchors": ("candidates", state("selection.alpha", 0.9)),
    "certain anchors": ("candidates", state("selection.alpha", 1.0)),
    "a share of delta for the anchors": ("coins", state("selection.delta_selection", 0.0)),
    "anchors that tell": ("candidates", state("selection.rate", 2.0)),
    "anchors that tell at once": ("coins", state("selection.tail", 1e-9)),
    "a tail of 0": ("exponential", state("selection.tail", 0.0)),
    "budgets: an impossible output": ("candidates", one_zero),
    "candidates, smaller epsilon": ("candidates", state("epsilon", 0.8)),
    "candidates, smaller delta": ("candidates", state("selection.delta", 1e-4)),
    "a sharper decay": ("coins", state("selection.rate", 3.0)),
    "another decay": ("coins", state("selection.decay", "step")),
    "outputs twice": ("common", put("outputs", 1, 0)),
    "no outputs of it": ("common", everything(lambda v: v + SIZE, "outputs")),
    "weights that do not sum": ("coins", everything(lambda v: v + 1, "weights")),
    "records nearer": ("common", everything(lambda v: 41.8 + (v - 41.8) / 3, "lat")),
    "a bound beside it": ("common", array("bound_pairs", np.zeros((1, 2), np.int64))),
}


def steep(file: File) -> None:
    """Rows that the pairs of vertices allow and the triangles do not."""
    loose = everywhere(0.9, 9.0)
    file.header["epsilon"] = loose.audit.epsilon
    file.arrays["weights"] = np.asarray(loose.weights).copy()


def prices(file: File) -> None:
    """The proof of a bound, of 0."""
    file.arrays["bound_prices"] = np.zeros(len(file.arrays["lat"]))


def bent(area: np.ndarray) -> np.ndarray:
    """One corner drawn to the middle of the others."""
    out = area.copy()
    out[0] = area.mean(axis=0)
    return out


MESHES: dict[str, Change] = {
    "steep between the vertices": steep,
    "steep, beside prices": both(steep, prices),
    "a coarser mesh": state("mesh.spacing", lambda v: 2 * v),
    "a mesh 1e-7 coarser": state("mesh.spacing", lambda v: v * (1 + 1e-7)),
    "a mesh without spacing": state("mesh.spacing", 0.0),
    "a spacing beyond floats": state("mesh.spacing", 10**400),
    "another middle": state("mesh.middle", [41.9, 12.4]),
    "a middle that is no place": state("mesh.middle", [91.0, 12.4]),
    "a middle of three numbers": state("mesh.middle", [41.9, 12.5, 0.0]),
    "corners announced": state("mesh.corners", 4),
    "a vertex elsewhere": put("mesh_vertices", 0, [1000, 1000]),
    "a vertex twice": put("mesh_vertices", 1, lambda v: v - v),
    "two vertices swapped": swap("mesh_vertices", 0, 7),
    "a wider area": everything(lambda v: v * 1.5, "mesh_area"),
    "an area a little wider than its triangles": everything(lambda v: v * 1.2, "mesh_area"),
    "an area clockwise": everything(lambda v: v[::-1].copy(), "mesh_area"),
    "an area that is not convex": everything(bent, "mesh_area"),
    "an area of two corners": array("mesh_area", lambda a: a[:2]),
    "a corner that is not finite": put("mesh_area", (0, 0), NAN),
    "a flag of 2": put("mesh_inside", 0, 2),
    "the rim inside": put("mesh_inside", slice(None), 1),
    "a step in a row": moved(1 / 3),
    "a record moved": put("lat", 0, lambda v: v + 1e-6),
    "no mesh": both(without("mesh"), state("features", [])),
    "a mesh that is not listed": state("features", []),
}


def detour(file: File) -> None:
    """The edge between records 0 and 5 as long as the way around it: it is none of the metric."""
    ends, steps = file.arrays["edges"], file.arrays["steps"]
    at = int(np.flatnonzero((ends == (0, 5)).all(axis=1))[0])
    table = np.zeros((12, 12))
    table[tuple(ends.T)] = steps
    table[0, 5] = 0
    steps[at] = shortest_path(table, directed=False, indices=0)[5]


STREETS: dict[str, Change] = {
    "an edge of no length": put("steps", 3, 0),
    "an edge of negative length": put("steps", 3, -1),
    "an edge far shorter": put("steps", 3, 1 << 20),
    "an edge as long as a way around": detour,
    "an edge longer than a way around": put("steps", 0, 1 << 40),
    "edges beyond float64": array("steps", lambda a: a << 21),
    "an end twice": put("edges", (3, 1), lambda v: v - 1),
    "the higher end first": array("edges", lambda a: a[:, ::-1].copy()),
    "edges in another order": swap("edges", 2, 3),
    "an edge less": array("edges", lambda a: a[1:]),
    "an end that is negative": put("edges", (0, 0), -1),
    "a record that no edge joins": put("edges", (-1, 1), 12),
    "a record far beyond": put("edges", (-1, 1), 1 << 40),
    "no edges": both(
        array("edges", np.zeros((0, 2), np.int64)), array("steps", np.zeros(0, np.int64))
    ),
    "latitude 91": put("lat", 3, 91.0),
    "longitude 180": put("lon", 3, 180.0),
    "places without longitudes": array("lon", None),
    "lengths as floats": array("steps", lambda a: a.astype(float)),
    "roads as straight lines": state("domain.kind", "haversine"),
}
FACTORS: dict[str, Change] = {
    "steeper": state("factored.rate", lambda rate: int(rate * 1.01)),
    "a coarse lattice": state("factored.unit_bits", 0),
    "a lattice too fine": state("factored.unit_bits", lambda bits: bits + 4),
    "a lattice beyond floats": state("factored.unit_bits", 401),
    "no rate": state("factored.rate", 0),
    "a rate that is a text": state("factored.rate", "1"),
    "a fall too deep": state("factored.rate", (34 << 40) + 1),
    "a law more": state("factored.more", 1),
    "a peak beyond the whole": put("peaks", 3, lambda v: 2 * v),
    "no peak": put("peaks", 0, 0),
    "a peak of another row": put("peaks", 3, 1 << 31),
    "a peak beyond its bits": put("peaks", 3, (1 << 31) + 1),
    "another centre": put("centres", 5, lambda c: c - 5),
    "a centre that is no record": put("centres", 5, 16),
    "a centre before all": put("centres", 5, -1),
    "centres as floats": array("centres", lambda a: a.astype(float)),
    "a negative peak": put("peaks", 3, -5),
    "a reach of its own": state("factored.reach", 300),
    "a centre less": array("centres", lambda a: a[1:]),
    "a peak less": array("peaks", lambda a: a[1:]),
    "rows of next to nothing": array("peaks", lambda a: a // a),
    "all nearer": array("vectors", lambda a: a / 2),
    "a vector too long": put("vectors", (3, 0), 1e130),
    "peaks without their law": without("factored"),
    "prices of other records": array("bound_prices", lambda a: a[1:]),
    "a price NaN": put("bound_prices", 3, NAN),
}


def of_terms(name: str, make: Any) -> Change:
    """Another array among those of the terms."""
    return array(f"term_{name}", make)


LIMITS: dict[str, tuple[str, Change]] = {
    "a term of no kind": ("located", put("term_kinds", (0, 0), 4)),
    "a term of a prior that is not there": ("located", put("term_kinds", (0, 1), 1)),
    "a term of a negative kind": ("located", put("term_kinds", (0, 0), -1)),
    "a price below 0": ("located", put("term_numbers", (0, 0), -1e-9)),
    "a radius below 0": ("located", put("term_numbers", (0, 3), -1.0)),
    "a term that shrinks": ("located", put("term_numbers", (0, 2), -1.0)),
    "a limit NaN": ("located", put("term_numbers", (1, 1), NAN)),
    "a price beyond floats": ("located", put("term_numbers", (1, 0), INF)),
    "no term that grows": ("located", put("term_numbers", (slice(None), 2), 0.0)),
    "terms without prices": ("located", put("term_numbers", (slice(None), 0), 0.0)),
    "numbers of another term": ("located", of_terms("numbers", lambda a: a[1:])),
    "a guess of no term": ("located", put("term_guesses", (0, 0), 2)),
    "a guess of the loss": ("located", put("term_guesses", (0, 0), 1)),
    "a guess of no output": ("located", put("term_guesses", (0, 1), 4)),
    "a guess at no place": ("located", put("term_guesses", (0, 2), 10**6)),
    "a guess before all": ("located", put("term_guesses", (0, 2), -1)),
    "a place as a record": ("limit", both(
        put("term_guesses", (0, 2), 12), of_terms("places", np.zeros((1, 2))))),
    "an output without guesses": ("error", both(
        of_terms("weights", lambda w: w[:1]), of_terms("guesses", lambda g: g[:1]))),
    "weights of 0": ("vulnerability", of_terms("weights", lambda w: 0 * w)),
    "a weight below 0": ("vulnerability", put("term_weights", 0, -0.5)),
    "a weight NaN": ("vulnerability", put("term_weights", 0, NAN)),
    "a weight less": ("vulnerability", of_terms("weights", lambda w: w[1:])),
    "no weights": ("vulnerability", of_terms("weights", None)),
    "no guesses": ("vulnerability", of_terms("guesses", None)),
    "no numbers": ("vulnerability", of_terms("numbers", None)),
    "no kinds": ("vulnerability", of_terms("kinds", None)),
    "kinds of three": ("vulnerability", of_terms("kinds", lambda a: np.repeat(a, 2, 1)[:, :3])),
    "places where there are none": ("vulnerability", of_terms("places", np.zeros((1, 2)))),
    "a place beyond the pole": ("error", of_terms("places", [[90.1, 0.0]])),
    "a place beyond the date line": ("error", of_terms("places", [[0.0, 180.0]])),
    "places of three numbers": ("error", of_terms("places", np.zeros((2, 3)))),
    "a prior below 0": ("dominates", put("term_priors", (0, 0), -0.1)),
    "a prior NaN": ("dominates", put("term_priors", (0, 0), NAN)),
    "priors of other records": ("dominates", of_terms("priors", lambda a: a[:, 1:])),
    "no priors": ("dominates", of_terms("priors", None)),
    "a pair of no records": ("dominates", put("term_pairs", (0, 0), 12)),
    "a multiplier below 0": ("dominates", put("term_multipliers", 0, -1e-3)),
    "a multiplier of no output": ("dominates", put("term_columns", 0, 4)),
    "starts of terms that fall": ("dominates", put("term_starts", 1, 10**6)),
    "terms without multipliers": ("dominates", of_terms("pairs", None)),
}  # fmt: skip
AVERAGES: dict[str, Change] = {
    "what was given is no law": put("given_prior", 0, 0.5),
    "what was given is negative": put("given_prior", slice(None), lambda p: p - 1e-3),
    "what was given is of others": array("given_prior", lambda p: p[1:]),
    "a given loss below 0": put("given_loss", (0, 0), -1.0),
    "a given loss NaN": put("given_loss", (0, 0), NAN),
    "given losses of others": array("given_loss", lambda c: c[1:]),
    "losses without a prior": array("given_prior", None),
    "a pair of more than the people": put("bound_pairs", (0, 0), lambda x: 66),
    "what was given without multipliers": both(
        *(array(f"bound_{name}", None) for name in ("pairs", "starts", "columns", "multipliers"))
    ),
}


def forged() -> Iterator[Sample]:
    """Files that must be refused."""
    for name, change in (HEADERS | SECTIONS).items():
        yield Sample(name, "plain", changed("euclidean", change))
    for kind, changes in RECORDS.items():
        for name, change in changes.items():
            for form in (kind, f"compact {kind}"):
                yield Sample(f"{form}: {name}", "plain", changed(form, change))
    for name, change in COMPACT.items():
        yield Sample(name, "plain", changed("compact euclidean", change))
    for name, change in PLACES.items():
        yield Sample(name, "plain", changed("places with labels", change))
    yield Sample("clusters, one pair too near", "plain", two_clusters())
    yield Sample("a matrix of 800 MB in 800 kB", "plain", bomb())
    for form in ("matrix", "compact haversine"):
        for name, data in _damaged(honest(form)):
            yield Sample(f"{form}: {name}", "plain", data)
    yield Sample("too few words", "plain", changed("matrix", too_few_words))
    yield Sample("a floor that no row shows", "floor", changed("floor places", negative_floor))
    for name, (kind, change) in FLOORS.items():
        yield Sample(name, "floor", changed(f"floor {kind}", change))
    for name, (kind, change) in PHASES.items():
        yield Sample(name, "panda", changed(f"panda {kind}", change))
    for group, changes in (("mesh", MESHES), ("streets", STREETS), ("factors", FACTORS)):
        for name, change in changes.items():
            yield Sample(name, group, changed(group, change))
    for name, (kind, change) in LIMITS.items():
        yield Sample(f"{kind}: {name}", "terms", changed(f"terms {kind}", change))
    for name, change in AVERAGES.items():
        yield Sample(name, "averages", changed("averages given", change))
    both_phases = both(*(of_terms(name, a) for name, a in of_limits().items()))
    yield Sample("terms beside balls", "panda", changed("panda common", both_phases))
    yield Sample(
        "averages of no mesh",
        "plain",
        changed("proved haversine", array("given_prior", np.full(12, 1 / 12))),
    )


def of_limits() -> dict[str, np.ndarray]:
    """The sections of some terms."""
    arrays = File.of(honest("terms located")).arrays.items()
    return {name.removeprefix("term_"): a for name, a in arrays if name.startswith("term_")}


def changed(name: str, change: Change) -> bytes:
    """An honest file with something changed."""
    file = File.of(honest(name))
    change(file)
    return file.bytes()


def _damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """A file that was cut or has a flipped bit; its sum is that of before."""
    yield "empty", b""
    yield "a text", b"hello, world\n" * 20
    for share in (0.1, 0.5, 0.9, 0.999):
        yield f"cut at {share:.1%}", data[: int(len(data) * share)]
    yield "the last byte missing", data[:-1]
    yield "a byte too many", data + b"\0"
    for position in np.linspace(0, len(data) - 1, 12, dtype=int):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        yield f"a bit flipped at {position}", bytes(flipped)
