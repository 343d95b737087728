"""Files as a forger would write them: every sum and seal fits, and something in them is not so.

`good()` are honest files of both formats and all metrics, `forged()` the others. A file is taken
to pieces, one thing is changed, and all that depends on it (fingerprint, subject, checksums, seal)
is computed again by code of its own, so that only the contents can give it away.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from helpers import KINDS, displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.table.bound import dual_bound
from panda_mdp.table.pmdc.codec import decode_block

TOTAL = 1 << 62
METRIC = {
    "haversine": ["lat", "lon"],
    "euclidean": ["vectors"],
    "angular": ["vectors"],
    "matrix": ["distances"],
}


@dataclass(frozen=True)
class Sample:
    """The bytes of a file and what was done to it."""

    name: str
    suffix: str
    data: bytes

    def write(self, folder: Path) -> Path:
        path = folder / f"given{self.suffix}"
        path.write_bytes(self.data)
        return path


def digest(*arrays: np.ndarray) -> str:
    state = hashlib.sha256()
    for array in arrays:
        state.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return state.hexdigest()


def fingerprint(kind: str, unit: str, arrays: dict[str, np.ndarray]) -> str:
    tag = np.frombuffer(f"{kind}|{unit}".encode(), np.uint8)
    return digest(tag, *(np.ascontiguousarray(arrays[name]) for name in METRIC[kind]))


def npy(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version)
    return stream.getvalue()


@dataclass
class Archive:
    """A .pmdp file in pieces."""

    certificate: dict[str, Any]
    arrays: dict[str, np.ndarray]
    members: dict[str, bytes] = field(default_factory=dict)
    """Members whose bytes are given, in place of an array's or beside them."""
    text: str | None = None
    """The certificate's text, with SUM where the checksum belongs."""
    compression: int = zipfile.ZIP_DEFLATED

    @classmethod
    def of(cls, data: bytes) -> Archive:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [name for name in archive.namelist() if name.startswith("arrays/")]
            arrays = {name[7:-4]: np.load(io.BytesIO(archive.read(name))) for name in names}
            return cls(json.loads(archive.read("certificate.json")), arrays)

    def rename(self) -> None:
        """Let the certificate name these records."""
        domain = self.certificate["domain"]
        domain["fingerprint"] = fingerprint(domain["kind"], domain["unit"], self.arrays)

    def bytes(self) -> bytes:
        parts = {f"arrays/{name}.npy": npy(array) for name, array in self.arrays.items()}
        parts |= self.members
        self.certificate.pop("sha256", None)
        claims = self.certificate if self.text is None else json.loads(self.text)
        claims.pop("sha256", None)
        state = hashlib.sha256(json.dumps(claims, sort_keys=True, separators=(",", ":")).encode())
        for name in sorted(parts):
            state.update(f"\n{name} {len(parts[name])}\n".encode() + parts[name])
        text = self.text
        if text is None:
            text = json.dumps(self.certificate | {"sha256": "SUM"})
        text = text.replace("SUM", state.hexdigest())
        return self.sealed([("certificate.json", text.encode()), *parts.items()])

    def sealed(self, parts: list[tuple[str, bytes]]) -> bytes:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", self.compression) as archive:
            for name, data in parts:
                archive.writestr(name, data)
            archive.comment = b" " * 81
        return seal(stream.getvalue()[:-81])


def seal(body: bytes) -> bytes:
    return body + b"panda-mdp sha256 " + hashlib.sha256(body).hexdigest().encode()


@dataclass
class Compact:
    """A .pmdc file in pieces."""

    header: dict[str, Any]
    sections: dict[str, bytes]
    text: str | None = None

    @classmethod
    def of(cls, data: bytes) -> Compact:
        (length,) = struct.unpack_from("<I", data, 18)
        header, at, sections = json.loads(data[22 : 22 + length]), 22 + length, {}
        for name, size in header["sections"].items():
            sections[name], at = data[at : at + size], at + size
        return cls(header, sections)

    def bytes(self) -> bytes:
        self.header["sections"] = {name: len(data) for name, data in self.sections.items()}
        text = (json.dumps(self.header) if self.text is None else self.text).encode()
        body = b"panda-mdp compact\n" + struct.pack("<I", len(text)) + text
        body += b"".join(self.sections.values())
        return body + hashlib.sha256(body).digest()

    def integers(self, name: str, count: int) -> np.ndarray:
        plain = zlib.decompress(self.sections[name])
        parts = np.frombuffer(plain, np.uint8, offset=1).reshape(plain[0], count)
        folded = sum(part.astype(np.int64) << 8 * k for k, part in enumerate(parts))
        folded = np.broadcast_to(folded, count)
        return np.cumsum(np.where(folded & 1, -(folded >> 1) - 1, folded >> 1))

    def set_integers(self, name: str, values: list[int]) -> None:
        steps = [b - a for a, b in zip([0, *values], values, strict=False)]
        folded = [2 * v if v >= 0 else -2 * v - 1 for v in steps]
        planes = b"".join(bytes(u >> 8 * k & 255 for u in folded) for k in range(8))
        self.sections[name] = zlib.compress(b"\x08" + planes)

    def set_floats(self, name: str, values: np.ndarray) -> None:
        """The numbers of an array, in the order of the records; the certificate names them."""
        domain = self.header["domain"]
        self.header["arrays"][name] = "float64"
        order = self.integers("order", domain["records"])
        stored = values[order] if name in ("lat", "lon") else values
        self.sections[name] = zlib.compress(np.ascontiguousarray(stored, "<f8").tobytes())
        arrays = {other: self.floats(other) for other in METRIC[domain["kind"]]}
        domain["fingerprint"] = fingerprint(domain["kind"], domain["unit"], arrays)
        about = self.header["subject"].split(":")[1]
        self.header["subject"] = f"{domain['fingerprint'][:32]}:{about}"

    def floats(self, name: str) -> np.ndarray:
        domain = self.header["domain"]
        size = domain["records"]
        shape = {"vectors": (size, domain["dimensions"]), "distances": (size, size)}.get(name, size)
        if self.header["arrays"][name] == "float64":
            flat = np.frombuffer(zlib.decompress(self.sections[name]), "<f8").copy()
        else:
            flat = self.integers(name, int(np.prod(shape))) / 1e7
        if name in ("lat", "lon"):
            back = np.empty(size)
            back[self.integers("order", size)] = flat
            return back
        return flat.reshape(shape)

    def change_block(self, change: Callable[[bytearray], None]) -> None:
        """Change the plain bytes of the first block; the subject follows what it decodes to."""
        plain = bytearray(zlib.decompress(self.sections["blocks"]))
        change(plain)
        self.sections["blocks"] = zlib.compress(bytes(plain))
        self.header["blocks"] = [len(self.sections["blocks"])]
        size, count = self.header["domain"]["records"], self.header["outputs"]
        try:
            rows = decode_block(
                self.sections["blocks"], size, self.integers("floors", count)
            ).weights
        except pm.errors.FileFormatError:
            return
        weights = np.empty((size, count), np.int64)
        weights[self.integers("order", size)] = rows
        about = digest(self.integers("outputs", count), weights)
        self.header["subject"] = f"{self.header['domain']['fingerprint'][:32]}:{about}"


@cache
def mechanism(kind: str) -> pm.Mechanism:
    domain = random_domain(kind, 12, seed=5)
    if kind == "haversine":
        domain = domain.with_nodes(np.arange(70, 82))
    prior = np.arange(1.0, 13.0) / 78
    problem = displacement_problem(domain, [7, 2, 9, 4], 1.5, prior=prior)
    made = pm.optimal(problem, gap=0.05)
    # Without the proof of its bound, which would be what refuses many a forged file.
    return made.with_facts(lower_bound=made.lower_bound)


@cache
def honest(kind: str, suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{suffix}"
        if suffix == ".pmdp":
            mechanism(kind).save(path)
        else:
            pm.save_compact(mechanism(kind), path)
        return path.read_bytes()


def good() -> Iterator[Sample]:
    """Honest files."""
    for kind in KINDS:
        for suffix in (".pmdp", ".pmdc"):
            yield Sample(f"{kind}{suffix}", suffix, honest(kind, suffix))
    yield Sample("stored, not deflated", ".pmdp", archive("matrix", stored))
    yield Sample("equal rows", ".pmdp", archive("euclidean", equal_rows))
    yield Sample("a proof of the bound", ".pmdp", archive("euclidean", prove))
    yield Sample("all that is proved", ".pmdp", archive("euclidean", prove_all))
    for kind in KINDS:
        yield Sample(f"{kind}, proved as it was solved", ".pmdp", solved(kind))
    for outputs in ("places", "labels", "places with labels"):
        for suffix in (".pmdp", ".pmdc"):
            yield Sample(f"{outputs}{suffix}", suffix, placed(outputs, suffix))
    yield Sample("a bound without a proof", ".pmdp", archive("euclidean", no_proof_needed))


def solved(kind: str) -> bytes:
    """A file with the proof that the solver had."""
    made = mechanism(kind)
    with tempfile.TemporaryDirectory() as folder:
        return pm.optimal(made.problem, gap=0.05).save(Path(folder) / "x.pmdp").read_bytes()


@cache
def placed(outputs: str, suffix: str) -> bytes:
    """A file of version 2: outputs that are no records."""
    domain = mechanism("haversine").problem.domain
    lat, lon = domain.lat[:5] + 0.01, domain.lon[:5]
    names = ["a", "b", "c", "d", "e"]
    reports = {
        "places": pm.Outputs.at(lat, lon),
        "labels": pm.Outputs.labels(names),
        "places with labels": pm.Outputs.at(lat, lon, names),
    }[outputs]
    loss = np.abs(domain.lat[:, None] - lat)
    made = pm.optimal(pm.Problem(domain, reports, loss, 1.5), gap=0.05)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        (made.save if suffix == ".pmdp" else partial(pm.save_compact, made))(path)
        return path.read_bytes()


def archive(kind: str, change: Callable[[Archive], bytes | None]) -> bytes:
    file = deepcopy(Archive.of(honest(kind, ".pmdp")))
    return change(file) or file.bytes()


def compact(kind: str, change: Callable[[Compact], bytes | None]) -> bytes:
    file = deepcopy(Compact.of(honest(kind, ".pmdc")))
    return change(file) or file.bytes()


def stored(file: Archive) -> None:
    file.compression = zipfile.ZIP_STORED


def equal_rows(file: Archive) -> None:
    file.arrays["weights"][:] = TOTAL // 4
    loss = float((file.arrays["prior"][:, None] * file.arrays["loss"]).sum() / 4)
    file.certificate |= {"loss": loss, "lower_bound": None, "gap": None}
    first = [0, 1, int(file.arrays["outputs"][0])]
    vectors = file.arrays["vectors"]
    distance = float(np.sqrt(((vectors[0] - vectors[1]) ** 2).sum()))
    file.certificate["audit"] |= {"epsilon": 0.0, "worst": first, "distance": distance}


def no_proof_needed(file: Archive) -> None:
    file.certificate |= {"lower_bound": 0.0, "gap": "infinite"}


def dual(problem: pm.Problem) -> tuple[np.ndarray, np.ndarray]:
    """Pairs and multipliers of an optimal dual solution, from HiGHS by way of SciPy."""
    from scipy.optimize import linprog

    size, count, distances = problem.size, problem.outputs_count, problem.domain.distances()
    pairs = [(x, x2) for x in range(size) for x2 in range(size) if x != x2]
    rows = np.zeros((len(pairs) * count, size * count))
    for k, (x, x2) in enumerate(pairs):
        for y in range(count):
            rows[k * count + y, x * count + y] = 1
            rows[k * count + y, x2 * count + y] = -np.exp(problem.epsilon * distances[x, x2])
    sums = np.kron(np.eye(size), np.ones(count))
    found = linprog(
        problem.weighted_loss.ravel(), rows, np.zeros(len(rows)), sums, np.ones(size), (0, None)
    )
    multipliers = np.maximum(0.0, -found.ineqlin.marginals).reshape(len(pairs), count)
    return np.array(pairs, dtype=np.int64), multipliers


@cache
def proof(kind: str) -> tuple[np.ndarray, np.ndarray]:
    return dual(mechanism(kind).problem)


def prove(file: Archive) -> None:
    pairs, multipliers = proof("euclidean")
    file.arrays |= {"bound_pairs": pairs, "bound_multipliers": multipliers}
    file.certificate["bound_pairs"] = len(pairs)


def prove_all(file: Archive) -> None:
    prove(file)
    _state(file, 0.0)


def _placed() -> Iterator[tuple[str, bytes]]:
    """Files of version 2 with something changed."""

    def changed(change: Callable[[Archive], Any]) -> bytes:
        file = Archive.of(placed("places with labels", ".pmdp"))
        change(file)
        return file.bytes()

    names = {
        "outputs called records in a file of version 2": {"kind": "records", "labels": None},
        "outputs of an unknown kind": {"kind": "cells", "labels": None},
        "places without their arrays": {"kind": "labels", "labels": ["a", "b", "c", "d", "e"]},
        "a label twice": {"kind": "places", "labels": ["a", "b", "c", "d", "a"]},
        "a label too few": {"kind": "places", "labels": ["a", "b", "c", "d"]},
    }
    for name, reports in names.items():
        yield name, changed(lambda file, reports=reports: file.certificate.update(reports=reports))
    yield "places in a file of version 1", changed(lambda file: file.certificate.update(version=1))
    yield "a place that is not finite", changed(_set("output_lat", lambda a: a * np.nan))
    yield "an output beyond the columns", changed(_set("outputs", lambda a: a + 1))
    yield "weights of version 2 that are not private", changed(_set("weights", _leaking))


def _leaking(weights: np.ndarray) -> np.ndarray:
    """One row nearly certain of its first output."""
    table = weights.copy()
    table[0] = [TOTAL - 4, 1, 1, 1, 1]
    return table


def forged() -> Iterator[Sample]:
    """Files that must be refused."""
    for name, data in _placed():
        yield Sample(name, ".pmdp", data)
    for name, data in _archives():
        yield Sample(name, ".pmdp", data)
    for name, data in _compacts():
        yield Sample(name, ".pmdc", data)


CLAIMS: dict[str, Any] = {
    "epsilon 0": {"epsilon": 0.0},
    "epsilon negative": {"epsilon": -1.5},
    "epsilon NaN": {"epsilon": float("nan")},
    "epsilon infinite": {"epsilon": float("inf")},
    "epsilon a text": {"epsilon": "1.5"},
    "epsilon true": {"epsilon": True},
    "epsilon none": {"epsilon": None},
    "epsilon a list": {"epsilon": [1.5]},
    "epsilon beyond floats": {"epsilon": 10**400},
    "epsilon tiny": {"epsilon": 1e-9},
    "epsilon 1 % lower": {"epsilon": 1.485},
    "epsilon huge, words unchanged": {"epsilon": 1e300},
    "epsilon per another unit": {"epsilon_unit": "per furlong"},
    "words of another epsilon": {"guarantee": "z(y|x) <= exp(0.1 d(x, x')) z(y|x')"},
    "words about snaps of another epsilon": {"snapping": "z(y|p) <= exp(0.1 (d(p, p') + s)) z"},
    "lower bound 1e9": {"lower_bound": 1e9},
    "lower bound infinite": {"lower_bound": float("inf")},
    "lower bound NaN": {"lower_bound": float("nan")},
    "lower bound a text": {"lower_bound": "1"},
    "lower bound true": {"lower_bound": True},
    "lower bound beyond floats": {"lower_bound": 10**400},
    "gap 0": {"gap": 0.0},
    "gap none": {"gap": None},
    "gap infinite": {"gap": "infinite"},
    "loss NaN": {"loss": float("nan")},
    "loss infinite": {"loss": float("inf")},
    "loss negative": {"loss": -1.0},
    "loss a text": {"loss": "1"},
    "another format": {"format": "panda-mdp"},
    "another version": {"version": 2},
    "another number of bits": {"bits": 53},
    "one output less": {"outputs": 3},
    "outputs true": {"outputs": True},
    "no outputs": {"outputs": 0},
}
AUDITS: dict[str, Any] = {
    "audit that does not hold": {"holds": False},
    "audit that holds as a text": {"holds": "yes"},
    "audit 1 % lower": {"epsilon": 0.99},
    "audit 1e-11 lower": {"epsilon": 1 - 1e-11},
    "audit of 0": {"epsilon": 0.0},
    "audit above epsilon": {"epsilon": 1.01},
    "audit NaN": {"epsilon": float("nan")},
    "audit infinite": {"epsilon": float("inf")},
    "audit of fewer pairs": {"pairs": 3},
    "audit of another worst pair": {"worst": [0, 99, 2]},
    "audit of a negative record": {"worst": [-1, 3, 2]},
    "audit of one record": {"worst": [3, 3, 2]},
    "audit of an output that is none": {"worst": [0, 3, 0]},
}
DOMAINS: dict[str, Any] = {
    "another kind": {"kind": "manhattan"},
    "kind of another metric": {"kind": "angular"},
    "another fingerprint": {"fingerprint": "0" * 64},
    "fingerprint none": {"fingerprint": None},
    "another unit": {"unit": "miles"},
    "one record": {"records": 1},
    "one record less": {"records": 11},
    "a record more": {"records": 13},
    "half a record": {"records": 12.5},
    "records a text": {"records": "12"},
    "records beyond memory": {"records": 10**12},
    "nodes that are not there": {"nodes": True},
    "nodes a number": {"nodes": 3},
    "dimensions": {"dimensions": 2},
}


def _claims(certificate: dict[str, Any], epsilon: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Certificates with one claim changed."""
    for name, changes in CLAIMS.items():
        yield name, certificate | changes
    yield "gap halved", certificate | {"gap": certificate["gap"] / 2}
    above = certificate["loss"] * 1.01
    yield "lower bound above the loss", certificate | {"lower_bound": above, "gap": 0.0}
    for name, changes in AUDITS.items():
        audit = certificate["audit"] | changes
        if name in ("audit 1 % lower", "audit 1e-11 lower", "audit above epsilon"):
            factor = changes["epsilon"]
            audit["epsilon"] = (epsilon if factor > 1 else certificate["audit"]["epsilon"]) * factor
        yield name, certificate | {"audit": audit}
    for name, changes in DOMAINS.items():
        yield name, certificate | {"domain": certificate["domain"] | changes}
    for gone in ("epsilon", "audit", "domain", "loss", "lower_bound", "guarantee", "bits"):
        yield f"no {gone}", {key: value for key, value in certificate.items() if key != gone}


def _matrices(distances: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Distance matrices that are none, or in which pairs are nearer than the table allows."""

    def changed(value: float, places: list[tuple[int, int]]) -> np.ndarray:
        table = distances.copy()
        for place in places:
            table[place] = value
        return table

    both = [(0, 5), (5, 0)]
    yield "a pair too near", changed(1e-6, both)
    yield "a pair too far for the triangle inequality", changed(1e3, both)
    yield "a pair 1e-8 too far", changed(_detour(distances) * (1 + 1e-8), both)
    yield "asymmetric", changed(distances[0, 5] * 0.9, both[:1])
    yield "asymmetric by a bit", changed(np.nextafter(distances[0, 5], 0), both[:1])
    yield "NaN", changed(np.nan, both)
    yield "NaN on one side", changed(np.nan, both[:1])
    yield "infinite", changed(np.inf, both)
    yield "negative", changed(-1.0, both)
    yield "at distance 0", changed(0.0, both)
    yield "diagonal", changed(0.1, [(3, 3)])
    yield "NaN on the diagonal", changed(np.nan, [(3, 3)])
    yield "all nearer", distances / 2


def _detour(distances: np.ndarray) -> float:
    return min(distances[0, k] + distances[k, 5] for k in range(1, 12) if k != 5)


def _records(kind: str, arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Records that are none, twice there, or nearer than the table allows: array and values."""

    def at(name: str, value: Any, place: Any = 3) -> np.ndarray:
        table = arrays[name].copy()
        table[place] = value
        return table

    if kind == "haversine":
        yield "latitude 91", "lat", at("lat", 91.0)
        yield "latitude NaN", "lat", at("lat", np.nan)
        yield "longitude 181", "lon", at("lon", 181.0)
        yield "longitude infinite", "lon", at("lon", np.inf)
        yield (
            "places nearer by half",
            "lat",
            arrays["lat"].mean() + np.zeros(12) + np.arange(12) * 1e-5,
        )
    elif kind == "matrix":
        for name, table in _matrices(arrays["distances"]):
            yield name, "distances", table
    else:
        vectors = arrays["vectors"]
        yield "a vector twice", "vectors", at("vectors", vectors[4])
        yield "a coordinate NaN", "vectors", at("vectors", np.nan, (3, 1))
        yield "a coordinate infinite", "vectors", at("vectors", np.inf, (3, 1))
        yield "a vector of 0s and one twice", "vectors", at("vectors", 0.0, [3, 4])
        yield "two vectors nearer", "vectors", at("vectors", vectors[4] + 1e-6)
        if kind == "euclidean":
            yield "all nearer", "vectors", vectors / 2


def _tables(weights: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Weights that break a pair, or are none."""

    def moved(share: float) -> np.ndarray:
        table = weights.copy()
        mass = int(table[3, 0] * share)
        table[3, 0] -= mass
        table[3, 1] += mass
        return table

    yield "most of an output moved", moved(0.9)
    yield "all of an output moved", moved(1.0)
    swapped = weights.copy()
    swapped[[0, 5]] = swapped[[5, 0]]
    yield "two rows swapped", swapped
    for name, change in (("more", 1), ("less", -1), ("much more", TOTAL // 2)):
        table = weights.copy()
        table[3, 0] += change
        yield f"a row that sums to {name}", table
    negative = weights.copy()
    negative[:, 0] -= TOTAL
    negative[:, 1] += TOTAL
    yield "negative weights", negative
    around = weights.copy()
    around[3] = [2**62, 2**62, 2**62, 2**62 - 1]
    around[3, 0] += 1 - 2**62
    yield "a row that goes round 2^64", around
    certain = np.zeros_like(weights)
    certain[np.arange(12), np.arange(12) % 4] = TOTAL
    yield "the record itself", certain


def _archives() -> Iterator[tuple[str, bytes]]:
    base = Archive.of(honest("euclidean", ".pmdp"))
    yield from wrong_claims()
    for kind in KINDS:
        yield from wrong_records(kind)
    file = Archive.of(honest("haversine", ".pmdp"))
    file.certificate["domain"]["unit"], file.certificate["epsilon_unit"] = "m", "per m"
    file.certificate["guarantee"] = file.certificate["guarantee"].replace("d in km", "d in m")
    file.rename()
    yield "haversine in metres", file.bytes()
    file = Archive.of(honest("haversine", ".pmdp"))
    file.arrays["lat"][3:5], file.arrays["lon"][3:5] = 90.0, (10.0, 20.0)
    file.rename()
    yield "the north pole twice", file.bytes()
    for name, weights in _tables(base.arrays["weights"]):
        yield name, Archive(base.certificate, base.arrays | {"weights": weights}).bytes()
    for name, array in _arrays(base.arrays):
        yield name, Archive(base.certificate, base.arrays | array).bytes()
    yield "clusters, one pair too near", two_clusters()
    for name, change in PROOFS.items():
        file = deepcopy(base)
        prove(file)
        change(file)
        yield f"proof: {name}", file.bytes()
    yield from _zips(base)
    yield from _damaged(honest("matrix", ".pmdp"))


def wrong_claims() -> Iterator[tuple[str, bytes]]:
    """Archives with one claim of the certificate changed."""
    base = Archive.of(honest("euclidean", ".pmdp"))
    for name, certificate in _claims(base.certificate, 1.5):
        yield name, Archive(certificate, base.arrays).bytes()


def wrong_records(kind: str) -> Iterator[tuple[str, bytes]]:
    """Archives whose records are not those that the table was made for; the certificate is."""
    for name, array, values in _records(kind, Archive.of(honest(kind, ".pmdp")).arrays):
        file = Archive.of(honest(kind, ".pmdp"))
        file.arrays[array] = values
        file.rename()
        yield f"{kind}: {name}", file.bytes()


def _arrays(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Other arrays of wrong values or forms."""
    outputs, prior, loss, weights = (arrays[n] for n in ("outputs", "prior", "loss", "weights"))
    for name, values in {
        "an output out of range": [7, 2, 9, 12],
        "a negative output": [7, 2, 9, -1],
        "an output twice": [7, 2, 9, 9],
    }.items():
        yield name, {"outputs": np.array(values)}
    yield "outputs of 32 bits", {"outputs": outputs.astype("<i4")}
    yield "outputs as floats", {"outputs": outputs.astype("<f8")}
    yield "one output less in the array", {"outputs": outputs[:3]}
    yield "prior that sums to 2", {"prior": prior * 2}
    yield "prior NaN", {"prior": np.where(prior == prior[0], np.nan, prior)}
    yield "prior negative", {"prior": prior - prior[1]}
    yield "losses of another problem", {"loss": loss * 1.5}
    yield "loss NaN in the array", {"loss": np.where(loss == loss[0, 0], np.nan, loss)}
    yield "loss negative in the array", {"loss": loss - 1}
    yield "loss of 32 bits", {"loss": loss.astype("<f4")}
    yield "weights big-endian", {"weights": weights.astype(">i8")}
    yield "weights unsigned", {"weights": weights.astype("<u8")}
    yield "weights in Fortran's order", {"weights": np.asfortranarray(weights)}
    yield "weights transposed", {"weights": np.ascontiguousarray(weights.T)}
    yield "weights flat", {"weights": weights.ravel()}
    yield "an array too many", {"nodes": np.arange(12)}


def two_clusters(size: int = 400) -> bytes:
    """Two clusters 1,000 from each other; then one pair across is said to be 1e-6 near."""
    rng = np.random.default_rng(1)
    places = rng.random((size, 2))
    places[size // 2 :, 0] += 1000
    distances = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2))
    domain = pm.Domain.from_matrix(distances)
    loss = distances[:, [0, size - 1]]
    made = pm.exponential(pm.Problem(domain, [0, size - 1], loss, 0.01))
    with tempfile.TemporaryDirectory() as folder:
        data = made.save(Path(folder) / "table.pmdp").read_bytes()
    file = Archive.of(data)
    file.arrays["distances"][0, size - 1] = file.arrays["distances"][size - 1, 0] = 1e-6
    file.rename()
    return file.bytes()


def _set(name: str, value: Any) -> Callable[[Archive], None]:
    def change(file: Archive) -> None:
        file.arrays[name] = value(file.arrays[name])

    return change


def _state(file: Archive, share: float) -> None:
    """State what the multipliers prove, and a share of the way from there to the loss."""
    loss = file.certificate["loss"]
    proved = dual_bound(mechanism("euclidean").problem, *proof("euclidean"))
    bound = proved + share * (loss - proved)
    file.certificate |= {"lower_bound": bound, "gap": (loss - bound) / bound}


PROOFS: dict[str, Callable[[Archive], None]] = {
    "multipliers doubled": _set("bound_multipliers", lambda a: a * 2),
    "multipliers 0": _set("bound_multipliers", lambda a: a * 0),
    "a multiplier negative": _set("bound_multipliers", lambda a: a - 1e-3),
    "a multiplier NaN": _set("bound_multipliers", lambda a: np.where(a > 0, np.nan, a)),
    "a multiplier infinite": _set("bound_multipliers", lambda a: np.where(a > 0, np.inf, a)),
    "pairs reversed": _set("bound_pairs", lambda a: a[:, ::-1].copy()),
    "pairs out of range": _set("bound_pairs", lambda a: a + 5),
    "pairs negative": _set("bound_pairs", lambda a: a - 12),
    "one pair less": _set("bound_pairs", lambda a: a[1:]),
    "a bound above what it proves": lambda file: file.certificate.update(
        lower_bound=file.certificate["loss"], gap=0.0
    ),
    "a bound a little above what it proves": lambda file: _state(file, 0.5),
    "more pairs announced": lambda file: file.certificate.update(bound_pairs=10**9),
    "pairs announced as a text": lambda file: file.certificate.update(bound_pairs="132"),
    "no pairs announced": lambda file: file.certificate.pop("bound_pairs"),
}


def _zips(base: Archive) -> Iterator[tuple[str, bytes]]:
    """Archives and certificates of wrong forms."""
    parts = [(f"arrays/{name}.npy", npy(array)) for name, array in base.arrays.items()]
    certificate = ("certificate.json", json.dumps(base.certificate).encode())
    yield "no certificate", base.sealed(parts)
    wrong = json.dumps(base.certificate | {"sha256": "0" * 64}).encode()
    yield "the certificate's sum is wrong", base.sealed([("certificate.json", wrong), *parts])
    yield (
        "a member missing",
        Archive(base.certificate, {k: v for k, v in base.arrays.items() if k != "prior"}).bytes(),
    )
    with zipfile.ZipFile(io.BytesIO(base.bytes())) as whole:
        fitting = ("certificate.json", whole.read("certificate.json"))
    yield "a member twice", _quietly(lambda: base.sealed([fitting, *parts, parts[0]]))
    yield "the certificate twice", _quietly(lambda: base.sealed([certificate, *parts, certificate]))
    extra = {"readme.txt": b"hello", "arrays/../weights.npy": b"", "/etc/passwd": b"root"}
    for name, data in extra.items():
        yield (
            f"an extra member {name}",
            Archive(base.certificate, base.arrays, {name: data}).bytes(),
        )
    for name, text in _texts(base.certificate | {"sha256": "SUM"}):
        try:
            yield name, Archive({}, base.arrays, text=text).bytes()
        except (ValueError, RecursionError, AttributeError, TypeError):
            yield name, base.sealed([("certificate.json", text.encode()), *parts])
    weights = base.arrays["weights"]
    forms = {
        "weights in version 2 of npy": npy(weights, (2, 0)),
        "weights with bytes after them": npy(weights) + b"\0",
        "weights that end early": npy(weights)[:-8],
        "weights without numbers": npy(weights)[:128],
        "weights that are no npy": b"\0" * 512,
        "weights with a pickle": npy(weights).replace(b"'<i8'", b"'|O' ", 1),
        "weights of a huge shape": npy(weights)
        .replace(b"(12, 4)", b"(1200000000000, 4)")
        .replace(b" " * 12, b"", 1),
    }
    for name, data in forms.items():
        yield name, Archive(base.certificate, base.arrays, {"arrays/weights.npy": data}).bytes()
    for name, method in (("bzip2", zipfile.ZIP_BZIP2), ("lzma", zipfile.ZIP_LZMA)):
        yield (
            f"packed by {name}",
            Archive(base.certificate, base.arrays, compression=method).bytes(),
        )
    data = base.bytes()
    yield "bytes before the archive", seal(b"MZ" + data[:-81])
    encrypted = bytearray(data[:-81])
    encrypted[6] |= 1
    encrypted[encrypted.index(b"PK\1\2") + 8] |= 1
    yield "encrypted", seal(bytes(encrypted))
    yield "a bomb beside the arrays", bomb("readme.txt", 300)
    yield "blanks for weights", bomb("arrays/weights.npy", 1)
    yield "blanks for a certificate", bomb("certificate.json", 1)
    yield "800 MB announced", announced("arrays/weights.npy", 800 << 20)


def bomb(name: str, megabytes: int) -> bytes:
    """An archive of which one member unpacks to very much."""
    base = Archive.of(honest("euclidean", ".pmdp"))
    parts = {"certificate.json": json.dumps(base.certificate).encode()}
    parts |= {f"arrays/{key}.npy": npy(array) for key, array in base.arrays.items()}
    parts[name] = b" " * (megabytes << 20)
    return base.sealed(list(parts.items()))


def announced(name: str, size: int) -> bytes:
    """An archive whose lists say that a member unpacks to `size` bytes."""
    data = bytearray(Archive.of(honest("euclidean", ".pmdp")).bytes()[:-81])
    for mark, place, length in ((b"PK\3\4", 22, 30), (b"PK\1\2", 24, 46)):
        at = data.index(mark)
        while data[at + length : at + length + len(name)] != name.encode():
            at = data.index(mark, at + 1)
        struct.pack_into("<I", data, at + place, size)
    return seal(bytes(data))


def _quietly(make: Callable[[], bytes]) -> bytes:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def _texts(certificate: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Certificates that are no JSON, or JSON that means two things."""
    text = json.dumps(certificate)
    epsilon = '"epsilon": 1.5'
    yield "JSON cut off", text[:-20]
    yield "JSON: a list", f"[{text}]"
    yield "JSON: null", "null"
    yield "JSON: empty", ""
    yield "JSON: not UTF-8", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1") + text
    yield "JSON: a name twice", text.replace(epsilon, f'"epsilon": 0.001, {epsilon}', 1)
    yield (
        "JSON: a name twice further in",
        text.replace('"holds": true', '"holds": false, "holds": true'),
    )
    yield "JSON: epsilon 1e999", text.replace(epsilon, '"epsilon": 1e999')
    yield "JSON: epsilon of 5,000 digits", text.replace(epsilon, f'"epsilon": {"1" * 5000}')
    yield "JSON: 100,000 deep", text.replace(epsilon, f'"deep": {"[" * 100_000}{"]" * 100_000}')


def _damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """A file that was cut or has a flipped bit; its sums are those of before."""
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


def _compacts() -> Iterator[tuple[str, bytes]]:
    base = Compact.of(honest("euclidean", ".pmdc"))
    for name, header in _claims(base.header, 1.5):
        yield name, Compact(header, base.sections).bytes()
    for kind in KINDS:
        found = Compact.of(honest(kind, ".pmdc"))
        arrays = {name: found.floats(name) for name in METRIC[kind]}
        for name, array, values in _records(kind, arrays):
            file = Compact.of(honest(kind, ".pmdc"))
            file.set_floats(array, values)
            yield f"{kind}: {name}", file.bytes()
    lengths = {name: len(data) for name, data in base.sections.items()}
    for name, text in _texts(base.header | {"sections": lengths}):
        yield name, Compact(base.header, base.sections, text=text).bytes()
    for name, change in COMPACT.items():
        yield name, compact("euclidean", change)
    yield "a matrix of 800 MB in 800 kB", wide_bomb()
    yield from _damaged(honest("haversine", ".pmdc"))


def _integers(name: str, values: list[int]) -> Callable[[Compact], None]:
    return lambda file: file.set_integers(name, values)


def _header(**changes: Any) -> Callable[[Compact], None]:
    return lambda file: file.header.update(changes)


def _block(change: Callable[[bytearray], None]) -> Callable[[Compact], None]:
    return lambda file: file.change_block(change)


def _byte(place: int, value: int) -> Callable[[Compact], None]:
    def change(plain: bytearray) -> None:
        plain[place] = value

    return _block(change)


def _section(name: str, data: bytes | None) -> Callable[[Compact], None]:
    def change(file: Compact) -> None:
        file.sections.pop(name, None)
        if data is not None:
            file.sections[name] = data

    return change


def _lengths(file: Compact) -> bytes:
    """Sections that are longer and shorter than they are, by as much."""
    data = file.bytes()
    start = 22 + struct.unpack_from("<I", data, 18)[0]
    names = list(file.header["sections"])
    file.header["sections"] |= {names[0]: 10**6, names[1]: len(data) - start - 32 - 10**6}
    file.header["sections"] |= dict.fromkeys(names[2:], 0)
    text = json.dumps(file.header).encode()
    body = b"panda-mdp compact\n" + struct.pack("<I", len(text)) + text + data[start:-32]
    return body + hashlib.sha256(body).digest()


COMPACT: dict[str, Callable[[Compact], bytes | None]] = {
    "order: a record twice": _integers("order", [0, 0, *range(2, 12)]),
    "order: out of range": _integers("order", [12, *range(1, 12)]),
    "order: negative": _integers("order", [-1, *range(1, 12)]),
    "outputs: out of range": _integers("outputs", [7, 2, 9, 12]),
    "outputs: twice": _integers("outputs", [7, 2, 9, 9]),
    "floors: negative": _integers("floors", [-1, 0, 0, 0]),
    "floors: beyond 2^62": _integers("floors", [TOTAL, TOTAL, 0, 0]),
    "floors: others": _integers("floors", [1, 1, 1, 1]),
    "block: a parent later": _byte(3, 7),
    "block: precision 200": _byte(12 + 3, 200),
    "block: precision 1": _byte(12 + 3, 1),
    "block: rest out of range": _byte(24 + 6, 9),
    "block: rest in another column": _block(lambda p: p.__setitem__(30, (p[30] + 1) % 4)),
    "block: flags": _byte(48, 0),
    "block: changes": _block(lambda p: p.__setitem__(56, p[56] ^ 0x40)),
    "block: cut": _block(lambda p: p.__delitem__(slice(-4, None))),
    "block: longer": _block(lambda p: p.extend(b"\0\0")),
    "block: a bomb": _block(lambda p: p.extend(bytes(64 << 20))),
    "blocks: no list": _header(blocks=3),
    "blocks: two": _header(blocks=[10, 20]),
    "blocks: negative": _header(blocks=[-5]),
    "section missing": _section("floors", None),
    "section too many": _section("nodes", b""),
    "section not deflated": _section("order", b"\1" * 40),
    "section a bomb": _section("order", zlib.compress(bytes(64 << 20))),
    "sections of other lengths": _lengths,
    "coding unknown": _header(arrays={"vectors": "float32"}),
    "codings missing": _header(arrays={}),
    "subject of another table": _header(subject="0" * 97),
    "subject missing": lambda file: file.header.pop("subject") and None,
}


def wide_bomb(size: int = 10_000) -> bytes:
    """A compact table of size^2 equal distances: small deflated, very much unpacked."""
    file = Compact.of(honest("matrix", ".pmdc"))
    file.header["domain"]["records"] = size
    file.header["arrays"]["distances"] = "float64"
    file.set_integers("order", list(range(size)))
    # After a full flush the same bytes may be repeated.
    packer = zlib.compressobj(9)
    head = packer.flush(zlib.Z_FULL_FLUSH)
    rows = packer.compress(np.ones(100 * size).tobytes()) + packer.flush(zlib.Z_FULL_FLUSH)
    file.sections["distances"] = head + rows * (size // 100) + packer.flush()
    return file.bytes()
