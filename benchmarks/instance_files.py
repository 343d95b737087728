"""Public instances of the privacy LP: their files, and those of tables and bounds for them.

docs/instances.md describes the formats. An instance is a JSON file of decimal numbers, from which
every distance and every loss follows; a table is a K x m array of integers, rows summing to 2^62
(`.npz` with `weights`, or a `.pmdp` file); a bound is a list of multipliers (`.npz` with
`x`, `x2`, `y` and `multiplier`). Nothing that a file says of itself is believed.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

import panda_mdp as pm
from panda_mdp.base.atomic import atomic_file
from panda_mdp.errors import FileFormatError
from panda_mdp.table.bound import Multipliers

FOLDER = Path(__file__).resolve().parent / "instances"
FORMAT, VERSION = "panda-mdp instance", 1
MOST_BYTES = 1 << 30
"""Unpacked, of a file that somebody sends."""
FIELDS = {
    "format",
    "version",
    "name",
    "about",
    "unit",
    "points",
    "outputs",
    "epsilon",
    "loss",
    "prior",
}


def instance_path(name: str, folder: Path = FOLDER) -> Path:
    """The file of an instance, or an error that names those there are."""
    path = folder / f"{name}.json"
    names = sorted(p.stem for p in folder.glob("*.json") if p.stem != "entries")
    if path.stem not in names:
        msg = f"there is no instance {name!r}; there are: {', '.join(names)}"
        raise FileFormatError(msg)
    return path


def read_instance(path: Path) -> pm.Problem:
    """The problem of an instance's file."""
    try:
        given = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        msg = f"{path.name} cannot be read as JSON: {error}"
        raise FileFormatError(msg) from error
    if not isinstance(given, dict) or set(given) != FIELDS:
        msg = f"{path.name} is no instance: it must have the fields {', '.join(sorted(FIELDS))}"
        raise FileFormatError(msg)
    if (given["format"], given["version"]) != (FORMAT, VERSION):
        msg = f"{path.name} is {given['format']!r} of version {given['version']!r}"
        raise FileFormatError(msg)
    domain = pm.Domain.from_vectors(given["points"], unit=given["unit"])
    outputs = np.asarray(given["outputs"], dtype=np.int64)
    prior = None if given["prior"] == "uniform" else given["prior"]
    if given["loss"] == "distance":
        loss = domain.distances(None, outputs)
    else:
        values = np.asarray(given["loss"], dtype=np.float64)
        if values.shape != (domain.size,):
            msg = f"{path.name}: loss must be 'distance' or one number per record"
            raise FileFormatError(msg)
        loss = np.abs(values[:, None] - values[None, outputs])
    return pm.Problem(domain, outputs, loss, given["epsilon"], prior)


def instance_text(given: dict[str, Any]) -> str:
    """The text of an instance's file: a line for each field, points and numbers as they are."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in given.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_weights(path: Path, problem: pm.Problem) -> np.ndarray:
    """The K x m integers of a table that somebody sent; what they are worth is for the audit."""
    if path.suffix == ".npz":
        arrays = read_arrays(path, ("weights",))
        return arrays["weights"]
    table = pm.load(path)
    domain, outputs, weights = table.problem.domain, table.problem.outputs, table.weights
    same = domain.fingerprint == problem.domain.fingerprint
    if not same or not np.array_equal(outputs, problem.outputs):
        msg = f"{path.name} is a table of other records or outputs than the instance's"
        raise FileFormatError(msg)
    return np.asarray(weights)


def read_bound(path: Path, problem: pm.Problem) -> Multipliers:
    """The multipliers of a bound that somebody sent; several entries for one constraint add up."""
    arrays = read_arrays(path, ("x", "x2", "y", "multiplier"))
    lengths = {array.shape for array in arrays.values()}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        msg = f"{path.name}: x, x2, y and multiplier must be four lists of one length"
        raise FileFormatError(msg)
    size, outputs = problem.size, problem.outputs_count
    columns = []
    for name, most in (("x", size), ("x2", size), ("y", outputs)):
        array = arrays[name]
        if array.dtype.kind not in "iu" or (
            len(array) and not (array.min() >= 0 and int(array.max()) < most)
        ):
            msg = f"{path.name}: {name} must hold integers from 0 to {most - 1}"
            raise FileFormatError(msg)
        columns.append(array.astype(np.int64))
    values = arrays["multiplier"].astype(np.float64)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        msg = f"{path.name}: multipliers must be finite and not negative"
        raise FileFormatError(msg)
    x, x2, y = columns
    codes, place = np.unique(x * size + x2, return_inverse=True)
    return Multipliers.listed(np.stack([codes // size, codes % size], axis=1), place, y, values)


def write_bound(path: Path, multipliers: Multipliers) -> None:
    """The entries that are not 0, in order."""
    (x, x2), y = multipliers.pairs[multipliers.owner].T, multipliers.columns
    order = np.lexsort((y, x2, x))
    largest = max(int(part.max(initial=0)) for part in (x, x2, y))
    small = np.uint16 if largest < 1 << 16 else np.uint32
    with atomic_file(path) as stream:
        np.savez_compressed(
            stream,
            x=x[order].astype(small),
            x2=x2[order].astype(small),
            y=y[order].astype(small),
            multiplier=multipliers.values[order].astype(np.float32),
        )


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The named arrays of an .npz file: no pickles, nothing that unpacks without end."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > MOST_BYTES:
            msg = f"{path.name} unpacks to {unpacked:,} bytes; at most {MOST_BYTES:,} are read"
            raise FileFormatError(msg)
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in names if name not in arrays]
            if missing:
                msg = f"{path.name} lacks the array {missing[0]!r}; it needs {', '.join(names)}"
                raise FileFormatError(msg)
            return {name: arrays[name] for name in names}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, FileFormatError):
            raise
        msg = f"{path.name} is no .npz file of plain arrays: {error}"
        raise FileFormatError(msg) from error


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def listed_digests(folder: Path = FOLDER) -> dict[str, str]:
    """What SHA256SUMS says, by name of the file."""
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    return {name: code for code, name in (line.split("  ", 1) for line in lines)}


def write_digests(folder: Path = FOLDER) -> None:
    """SHA256SUMS of all files of the folder, for `sha256sum -c`."""
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name != "SHA256SUMS")
    with atomic_file(folder / "SHA256SUMS") as stream:
        stream.write("".join(f"{digest(p)}  {p.name}\n" for p in files).encode())


def refuse_changed(path: Path, folder: Path = FOLDER) -> None:
    """An error where a file of the set is not the one that was published."""
    if listed_digests(folder).get(path.name) != digest(path):
        msg = f"{path.name} is not the published file: its SHA-256 is not in SHA256SUMS"
        raise FileFormatError(msg)
