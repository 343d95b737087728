"""One file that holds a mechanism, the problem it answers, and its certificate.

A `.pmdp` file is a zip archive of `certificate.json` and `.npy` arrays (never pickled):

    certificate.json       what is claimed, and a SHA-256 over itself and all arrays
    arrays/<metric>.npy    the domain: lat and lon, vectors, or distances
    arrays/weights.npy     K x m integers, rows summing to 2^62: what is audited and sampled
    arrays/loss.npy  arrays/prior.npy  arrays/outputs.npy  [arrays/nodes.npy]
    [arrays/bound_pairs.npy  arrays/bound_multipliers.npy]  what proves the lower bound

A table over a floor (version 3) has floor, starts, columns and values in place of weights, and no
loss.npy where the loss is the distance, which the domain gives.
    [arrays/mesh_vertices.npy  arrays/mesh_area.npy  arrays/mesh_inside.npy]   every point's

The archive's comment seals the file: it is the SHA-256 of every byte before it, so that a change
anywhere is noticed, also in the parts of a zip archive that its own checks leave out. Both sums
find damage, not forgery: whoever can write the file can write the sums. What protects the user of a
foreign file is that `load` audits the weights again, over all pairs.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.floored import FlooredRows
from panda_mdp.problem import Problem
from panda_mdp.table.certificate import describe, describe_mesh, mesh_of, output_arrays
from panda_mdp.table.claims import most_unpacked
from panda_mdp.table.sparse import is_distance

if TYPE_CHECKING:
    from panda_mdp.privacy.continuous import ContinuousAudit
    from panda_mdp.table.bound import BoundProof
    from panda_mdp.table.mechanism import Mechanism

SUFFIX = ".pmdp"
"""The suffix by convention; nothing depends on it."""

SEAL = b"panda-mdp sha256 "
SEAL_LENGTH = len(SEAL) + 64
CERTIFICATE = "certificate.json"
LONGEST = 2
"""Times the length that a file has without the proof of its bound."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def encode(mechanism: Mechanism) -> bytes:
    """The bytes of a mechanism's file.

    The proof of the lower bound goes with it unless that makes the file more than twice as long.
    """
    plain = _encoded(mechanism, None)
    if mechanism.proof is None:
        return plain
    proving = _encoded(mechanism, mechanism.proof)
    return proving if len(proving) <= LONGEST * len(plain) else plain


def _encoded(mechanism: Mechanism, proof: BoundProof | None) -> bytes:
    contents, certificate = arrays(mechanism), describe(mechanism)
    mesh = mesh_of(mechanism)
    if mesh is not None:
        verdict: ContinuousAudit = mechanism.everywhere  # type: ignore[attr-defined]
        certificate |= describe_mesh(mesh, verdict, mechanism.epsilon)
        contents |= {
            "mesh_vertices": mesh.vertices,
            "mesh_area": mesh.area,
            "mesh_inside": mesh.inside,
        }
    if isinstance(mechanism.weights, FlooredRows):
        certificate["stored"] = mechanism.weights.stored
        certificate["losses"] = "given" if "loss" in contents else "distance"
    if proof is not None:
        certificate["bound_pairs"] = len(proof.pairs)
        contents |= {"bound_pairs": proof.pairs, "bound_multipliers": proof.multipliers}
    return pack(certificate, contents)


def pack(certificate: dict[str, Any], contents: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The bytes of a file with a certificate and arrays, every sum computed."""
    members = {f"arrays/{name}.npy": npy(array) for name, array in contents.items()}
    certificate["sha256"] = checksum(certificate, members)
    text = json.dumps(certificate, indent=1, sort_keys=True, allow_nan=False)
    return archive({CERTIFICATE: text.encode(), **members})


def problem_arrays(problem: Problem) -> dict[str, npt.NDArray[Any]]:
    """What a file holds of a problem besides its losses, by name."""
    members: dict[str, npt.NDArray[Any]] = dict(problem.domain.metric.arrays())
    if problem.domain.nodes is not None:
        members["nodes"] = problem.domain.nodes
    members |= output_arrays(problem.reports)
    members["prior"] = problem.prior
    return members


def arrays(mechanism: Mechanism) -> dict[str, npt.NDArray[Any]]:
    """What a file holds of a plain table, by name."""
    problem, weights = mechanism.problem, mechanism.weights
    members = problem_arrays(problem)
    if not isinstance(weights, FlooredRows):
        return members | {"loss": problem.loss, "weights": weights}
    for name in ("floor", "starts", "columns", "values"):
        members[name] = getattr(weights, name).astype(np.int64, copy=False)
    if not is_distance(problem):
        members["loss"] = problem.loss
    return members


def checksum(certificate: Mapping[str, Any], members: Mapping[str, bytes]) -> str:
    """SHA-256 over the certificate in canonical form and the bytes of every array, by name."""
    claims = {name: value for name, value in certificate.items() if name != "sha256"}
    state = hashlib.sha256(
        json.dumps(claims, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    )
    for name in sorted(members):
        state.update(f"\n{name} {len(members[name])}\n".encode())
        state.update(members[name])
    return state.hexdigest()


def npy(array: npt.NDArray[Any]) -> bytes:
    """An array in NumPy's format, little-endian."""
    fixed = np.ascontiguousarray(array)
    buffer = io.BytesIO()
    np.lib.format.write_array(
        buffer, fixed.astype(fixed.dtype.newbyteorder("<")), version=(1, 0), allow_pickle=False
    )
    return buffer.getvalue()


def archive(members: Mapping[str, bytes]) -> bytes:
    """A sealed zip archive, deflated where a reader will not take that for a bomb."""
    data = _zipped(members, zipfile.ZIP_DEFLATED)
    if sum(map(len, members.values())) > most_unpacked(len(data)):
        return _zipped(members, zipfile.ZIP_STORED)
    return data


def _zipped(members: Mapping[str, bytes], compression: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=_EPOCH)
            info.compress_type = compression
            info.external_attr = 0o644 << 16
            packed.writestr(info, data)
        packed.comment = b" " * SEAL_LENGTH
    body = buffer.getvalue()[:-SEAL_LENGTH]
    return body + SEAL + hashlib.sha256(body).hexdigest().encode()


def write(target: Path, data: bytes) -> None:
    """Write a file atomically into a folder that exists."""
    if target.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "a mechanism is saved to a file, not a folder", str(target)
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, "the folder to save in does not exist; create it", str(target.parent)
        )
    with atomic_file(target) as stream:
        stream.write(data)
