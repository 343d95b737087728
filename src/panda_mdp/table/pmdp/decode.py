"""Reads `.pmdp` files: checksums, contents, and the audit over all pairs again."""

from __future__ import annotations

import errno
import hashlib
import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.errors import (
    DomainError,
    FileFormatError,
    MethodError,
    PrivacyError,
    ProblemError,
)
from panda_mdp.loss import MOST_STORED, DistanceLoss, distance_loss
from panda_mdp.outputs import Outputs
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.table import claims
from panda_mdp.table.bound import BoundProof, dual_bound
from panda_mdp.table.certificate import (
    EVERYWHERE_VERSION,
    FORMAT,
    PHASED_VERSION,
    PLACED_VERSION,
    SPARSE_VERSION,
    VERSION,
    Expected,
    restore_domain,
    restore_mesh,
    restore_outputs,
)
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import Mechanism, NoGuarantee, judged
from panda_mdp.table.pmdp.encode import CERTIFICATE, SEAL, SEAL_LENGTH, checksum

T = TypeVar("T")

PLAIN = (VERSION, PLACED_VERSION, SPARSE_VERSION, EVERYWHERE_VERSION)
Shapes = Callable[[Mapping[str, Any]], dict[str, tuple[int, ...]]]
"""The arrays that belong to a certificate."""
_INTEGERS = frozenset(
    {
        "weights",
        "outputs",
        "nodes",
        "bound_pairs",
        "floor",
        "starts",
        "columns",
        "values",
        "mesh_vertices",
        "mesh_inside",
        "centres",
        "centre_weights",
        "outside_weights",
        "candidates",
        "anchor_rows",
    }
)
_NPY_HEADER = 256
"""Bytes before the numbers of an array, at most."""


def load(
    path: str | os.PathLike[str], verify: bool = True, *, expected: Expected | None = None
) -> Mechanism:
    """Read a mechanism, check it, and audit its weights again over all pairs.

    Raises `FileFormatError` with the reason where the file is damaged, truncated, foreign, of an
    unknown version, inconsistent, would unpack to far more than it is, or claims what is not so:
    an epsilon that its weights do not keep, another audit, a lower bound above the loss; and
    `PrivacyError` where it is not what was `expected`. `details["bound_source"]` says whether the
    file proves its lower bound. There is no way to load without that (`verify=False` is refused):
    `inspect` looks into a file and returns what can be neither sampled, saved nor served.
    """
    if not verify:
        msg = "load always verifies; panda_mdp.inspect(path) looks into a file without verifying"
        raise MethodError(msg)
    return at_path(path, lambda data: decode(data, expected))


def decode(data: bytes, expected: Expected | None = None) -> Mechanism:
    """The mechanism of a file's bytes, verified as by `load`."""
    table = examine(data)
    if not isinstance(table, Mechanism):
        msg = f"the contents contradict the certificate: {table.audit.shortfall}"
        raise FileFormatError(msg)
    if expected is not None:
        expected.check(table.problem.domain, table.epsilon)
    return table


def examine(data: bytes) -> Mechanism | NoGuarantee:
    """The table of a file's bytes with the audit that was just made of it, holding or not.

    What the audit rests on is verified first: form and sums, the metric, the weights. Where the
    table keeps the file's own epsilon, every other claim of the file is checked too.
    """
    with contradictions():
        return _rebuild(*unpack(data))


@contextmanager
def contradictions() -> Iterator[None]:
    """What a file's contents break, as `FileFormatError`."""
    try:
        yield
    except FileFormatError:
        raise
    except (DomainError, ProblemError, PrivacyError, MethodError) as error:
        msg = f"the contents contradict the certificate: {error}"
        raise FileFormatError(msg) from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        msg = f"the certificate lacks a field or holds a wrong value: {error!r}"
        raise FileFormatError(msg) from error


def at_path(path: str | os.PathLike[str], read: Callable[[bytes], T]) -> T:
    """What `read` makes of a file's bytes; its errors name the file."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT,
            "there is no table here; mechanism.save(path) or save_compact(...) writes one",
            str(path),
        ) from None
    try:
        return read(data)
    except FileFormatError as error:
        msg = f"{path}: {error}"
        raise FileFormatError(msg) from error


def read_certificate(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The certificate of a file whose checksums hold; nothing in it is audited again.

    One that contradicts itself is refused: numbers that are none, words of another epsilon, a
    lower bound above the loss, an audit that does not hold.
    """
    return at_path(path, _certificate)


def _certificate(data: bytes) -> dict[str, Any]:
    with contradictions():
        certificate = unpack(data)[0]
        claims.check_stated(certificate)
    return certificate


def unpack(
    data: bytes, shapes: Shapes | None = None, versions: tuple[int, ...] = PLAIN
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Certificate and array members of a file's bytes, every checksum verified.

    `shapes` says which arrays a certificate of these `versions` goes with; by default those of a
    plain table.
    """
    _check_seal(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            certificate, members = _members(archive, len(data), shapes or _shapes, versions)
    except FileFormatError:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        EOFError,
        RuntimeError,
        ValueError,
    ) as error:
        msg = f"the archive cannot be read ({error}); it is damaged"
        raise FileFormatError(msg) from error
    if certificate.get("sha256") != checksum(certificate, members):
        msg = "the checksum of certificate and arrays does not match; the file was changed"
        raise FileFormatError(msg)
    return certificate, members


def version_of(data: bytes) -> int | None:
    """The version that a `.pmdp` file says it has; None where these bytes are no such file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            info = archive.getinfo(CERTIFICATE)
            claims.check_unpacked(info.file_size, len(data))
            version = claims.parse(archive.read(info)).get("version")
    except (FileFormatError, zipfile.BadZipFile, zlib.error, LookupError, RuntimeError, ValueError):
        return None
    return version if isinstance(version, int) else None


def is_phased(path: str | os.PathLike[str]) -> bool:
    """Whether a file says that it is a table of PAnDA."""
    try:
        return version_of(Path(path).read_bytes()) == PHASED_VERSION
    except OSError:
        return False


def _members(
    archive: zipfile.ZipFile, packed: int, shapes: Shapes, versions: tuple[int, ...]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The certificate and the bytes of the arrays; nothing is unpacked that is not expected."""
    listed = {info.filename: info for info in archive.infolist()}
    if len(listed) < len(archive.infolist()):
        msg = "a member of the archive is there twice; the file was forged"
        raise FileFormatError(msg)
    known = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if any(info.compress_type not in known for info in listed.values()):
        msg = "a member is neither stored nor deflated; the file is foreign"
        raise FileFormatError(msg)
    claims.check_unpacked(sum(info.file_size for info in listed.values()), packed)
    if CERTIFICATE not in listed:
        msg = f"a zip archive without {CERTIFICATE}; it is not a mechanism file"
        raise FileFormatError(msg)
    certificate = claims.parse(archive.read(CERTIFICATE))
    if certificate.get("format") != FORMAT:
        msg = f"{CERTIFICATE} is not of the format {FORMAT!r}; it is a foreign file"
        raise FileFormatError(msg)
    version = certificate.get("version")
    if version not in versions:
        msg = (
            f"format version {version!r}; this library reads versions {VERSION} to "
            f"{EVERYWHERE_VERSION}: use the library that wrote it"
        )
        if version == PHASED_VERSION:
            msg = (
                "a table of PAnDA, whose rows belong to anchors or balls and not to records: "
                "panda_mdp.load_panda(path) reads it, and `panda-mdp perturb` runs both phases"
            )
        elif version in PLAIN:
            msg = "a plain table, which has no first phase: panda_mdp.load(path) reads it"
        raise FileFormatError(msg)
    wanted = shapes(certificate)
    if "loss" not in wanted:
        # Losses that follow from the distances take as much room as if they were there, up to
        # the number that is stored.
        losses = min(math.prod(claims.shapes(certificate)["weights"]), MOST_STORED)
        claims.check_unpacked(8 * losses, packed)
    expected = {f"arrays/{name}.npy": shape for name, shape in wanted.items()}
    if {CERTIFICATE, *expected} != set(listed):
        msg = f"the archive holds {sorted(listed)}; expected the arrays {sorted(expected)}"
        raise FileFormatError(msg)
    for name, shape in expected.items():
        size, needed = listed[name].file_size, 8 * math.prod(shape)
        if not needed < size <= needed + _NPY_HEADER:
            msg = f"{name} has {size:,} bytes; shape {shape} takes {needed:,} and a header"
            raise FileFormatError(msg)
    return certificate, {name: archive.read(name) for name in expected}


def _shapes(certificate: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    shapes = claims.shapes(certificate)
    size, count = shapes["weights"]
    shapes |= {"prior": (size,), "loss": (size, count)}
    if certificate["version"] == SPARSE_VERSION:
        stored = claims.whole(certificate, "stored", 0)
        shapes |= {
            "floor": (count,),
            "starts": (size + 1,),
            "columns": (stored,),
            "values": (stored,),
        }
        del shapes["weights"]
        if certificate["losses"] == "distance":
            del shapes["loss"]
    elif "stored" in certificate:
        msg = f"rows over a floor in a file of version {certificate['version']!r}"
        raise FileFormatError(msg)
    if "bound_pairs" in certificate:
        pairs = claims.whole(certificate, "bound_pairs", 0)
        shapes |= {"bound_pairs": (pairs, 2), "bound_multipliers": (pairs, count)}
    return shapes


def _check_seal(data: bytes) -> None:
    if not data:
        msg = "the file is empty"
        raise FileFormatError(msg)
    seal = data[-SEAL_LENGTH:]
    if seal.startswith(SEAL) and data.startswith(b"PK\x03\x04"):
        if seal[len(SEAL) :] != hashlib.sha256(data[:-SEAL_LENGTH]).hexdigest().encode():
            msg = "the seal does not match the contents; the file is damaged"
            raise FileFormatError(msg)
        return
    if not data.startswith(b"PK\x03\x04"):
        msg = "not a zip archive, so not a mechanism file"
    elif zipfile.is_zipfile(io.BytesIO(data)):
        msg = "a zip archive without the seal of a mechanism file; it is foreign or was repacked"
    else:
        msg = "the zip archive has no end; the file is truncated or damaged"
    raise FileFormatError(msg)


def _rebuild(
    certificate: Mapping[str, Any], members: Mapping[str, bytes]
) -> Mechanism | NoGuarantee:
    """The table, and where its audit holds every claim checked against it."""
    arrays = {name: array(members, name, shape) for name, shape in _shapes(certificate).items()}
    problem = restore_problem(certificate, arrays)
    domain = problem.domain
    table = judged(
        problem,
        arrays["weights"] if "weights" in arrays else _floored(arrays),
        str(certificate["method"]),
        stages=tuple((str(name), float(seconds)) for name, seconds in certificate["stages"]),
        details=dict(certificate["details"]),
    )
    if not isinstance(table, Mechanism):
        return table
    if "mesh" in certificate:
        table = EverywhereMechanism.of(table)
        claims.check_everywhere(certificate, table.everywhere, table.mesh, problem.outputs)
    claims.check_audit(certificate, table.audit, domain, problem.outputs)
    claims.check_words(certificate, domain.unit)
    bound = claims.check_bound(certificate, table.loss)
    if bound is None:
        return table
    if "bound_pairs" not in arrays:
        source = "stated in the file, not proved there"
        return table.with_facts(lower_bound=bound).with_details(bound_source=source)
    pairs, multipliers = arrays["bound_pairs"], arrays["bound_multipliers"]
    proved = dual_bound(problem, pairs, multipliers)
    if not bound <= proved:
        msg = f"the lower bound is {bound!r}, and its multipliers prove {proved!r}"
        raise FileFormatError(msg)
    proof = BoundProof(problem, pairs, multipliers)
    # What was stated on another machine may lie within rounding of what is proved on this one.
    bound = min(bound, proof.value)
    table = table.with_facts(lower_bound=bound, proof=proof)
    return table.with_details(bound_source="proved by the file's multipliers")


def _floored(arrays: Mapping[str, npt.NDArray[Any]]) -> FlooredRows:
    columns = arrays["columns"]
    if len(columns) and not (columns.min() >= 0 and columns.max() < len(arrays["floor"])):
        msg = f"a column of the table is outside 0..{len(arrays['floor']) - 1}"
        raise FileFormatError(msg)
    return FlooredRows(arrays["floor"], arrays["starts"], columns, arrays["values"])


def _displacements(outputs: Outputs, domain: Domain) -> FloatArray | DistanceLoss:
    """The losses that follow from the distances, stored only where they are few."""
    if outputs.records is not None:
        return distance_loss(domain, outputs.records)
    if domain.size * len(outputs) > MOST_STORED:
        msg = f"{domain.size} records x {len(outputs)} places have too many losses to follow"
        raise FileFormatError(msg)
    return outputs.distances(domain)


def restore_problem(
    certificate: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> Problem:
    """The problem of a file: a metric, losses and a prior, each checked as any other."""
    domain = restore_domain(certificate["domain"], arrays)
    if "mesh" in certificate:
        domain = replace(domain, mesh=restore_mesh(certificate, arrays))
    outputs = restore_outputs(certificate, arrays, domain)
    return Problem(
        domain,
        outputs,
        arrays["loss"] if "loss" in arrays else _displacements(outputs, domain),
        claims.real(certificate, "epsilon"),
        prior=arrays["prior"],
        loss_unit=str(certificate["loss_unit"]),
        prior_source=str(certificate["prior_source"]),
    )


def array(members: Mapping[str, bytes], name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """One array of a file, where it is of the type and shape that the certificate needs."""
    expected = np.dtype("<i8") if name in _INTEGERS else np.dtype("<f8")
    stream = io.BytesIO(members[f"arrays/{name}.npy"])
    try:
        version = np.lib.format.read_magic(stream)
        stored, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except (ValueError, SyntaxError, tokenize.TokenError) as error:
        # NumPy tokenises the header, and what that raises depends on Python's version.
        msg = f"array {name} cannot be read: {error}"
        raise FileFormatError(msg) from error
    data = stream.read()
    same = (version, stored, fortran, dtype) == ((1, 0), shape, False, expected)
    if not same or len(data) != 8 * math.prod(shape):
        layout = " in Fortran order" if fortran else ""
        msg = (
            f"array {name} is {dtype.str} of shape {stored}{layout} in "
            f"{len(data)} bytes; the certificate needs {expected.str} of shape {shape}"
        )
        raise FileFormatError(msg)
    return np.frombuffer(data, expected).reshape(shape).astype(expected.newbyteorder("="))
