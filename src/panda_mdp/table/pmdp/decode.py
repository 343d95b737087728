"""Reads `.pmdp` files: checksums, contents, and the audit over all pairs again."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import frozen
from panda_mdp.errors import (
    DomainError,
    FileFormatError,
    PrivacyError,
    ProblemError,
)
from panda_mdp.privacy.audit import Audit, audit_weights, subject
from panda_mdp.privacy.quantise import BITS, check_weights
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import Matrix
from panda_mdp.table.certificate import FORMAT, VERSION
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.pmdp.encode import CERTIFICATE, SEAL, SEAL_LENGTH, checksum

LOSS_TOLERANCE = 1e-9
METRIC_ARRAYS = {
    "haversine": ("lat", "lon"),
    "euclidean": ("vectors",),
    "angular": ("vectors",),
    "matrix": ("distances",),
}
_INTEGERS = frozenset({"weights", "outputs", "nodes"})


def load(path: str | os.PathLike[str], verify: bool = True) -> Mechanism:
    """Read a mechanism, check it, and by default audit its weights again over all pairs.

    Raises `FileFormatError` with the reason where the file is damaged, truncated, foreign, of an
    unknown version, inconsistent, or claims an epsilon that its weights do not keep.
    `verify=False` takes the audit from the certificate (and the triangle inequality of a distance
    matrix on trust); `details["audit_source"]` says which of the two happened.
    """
    certificate, members = _read(Path(path))
    try:
        return _rebuild(certificate, members, verify)
    except (DomainError, ProblemError, PrivacyError) as error:
        msg = f"{path}: the contents contradict the certificate: {error}"
        raise FileFormatError(msg) from error
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FileFormatError):
            msg = f"{path}: {error}"
            raise FileFormatError(msg) from error
        msg = f"{path}: the certificate lacks a field or holds a wrong value: {error!r}"
        raise FileFormatError(msg) from error


def read_certificate(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The certificate of a file whose checksums hold; nothing in it is audited again."""
    return _read(Path(path))[0]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Certificate and array members of a file, every checksum verified."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT,
            "there is no mechanism file here; mechanism.save(path) writes one",
            str(path),
        ) from None
    try:
        return _open(data)
    except FileFormatError as error:
        msg = f"{path}: {error}"
        raise FileFormatError(msg) from error


def _open(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    _check_seal(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
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
    try:
        certificate = json.loads(members.pop(CERTIFICATE))
    except KeyError:
        msg = f"a zip archive without {CERTIFICATE}; it is not a mechanism file"
        raise FileFormatError(msg) from None
    except ValueError as error:
        msg = f"{CERTIFICATE} is not JSON; the file is damaged"
        raise FileFormatError(msg) from error
    if not isinstance(certificate, dict) or certificate.get("format") != FORMAT:
        msg = f"{CERTIFICATE} is not of the format {FORMAT!r}; it is a foreign file"
        raise FileFormatError(msg)
    if certificate.get("version") != VERSION:
        msg = (
            f"format version {certificate.get('version')!r}; this library reads version {VERSION}: "
            "use the library that wrote it"
        )
        raise FileFormatError(msg)
    if certificate.get("sha256") != checksum(certificate, members):
        msg = "the checksum of certificate and arrays does not match; the file was changed"
        raise FileFormatError(msg)
    return certificate, members


def _check_seal(data: bytes) -> None:
    if not data:
        msg = "the file is empty"
        raise FileFormatError(msg)
    seal = data[-SEAL_LENGTH:]
    if seal.startswith(SEAL):
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


def _rebuild(certificate: dict[str, Any], members: Mapping[str, bytes], verify: bool) -> Mechanism:
    claims = certificate["domain"]
    kind, size, count = claims["kind"], int(claims["records"]), int(certificate["outputs"])
    if kind not in METRIC_ARRAYS:
        msg = f"a metric of kind {kind!r}; this library knows {', '.join(METRIC_ARRAYS)}"
        raise FileFormatError(msg)
    if certificate["bits"] != BITS:
        msg = f"weights of {certificate['bits']!r} bits; this library reads {BITS}"
        raise FileFormatError(msg)
    shapes = {
        "lat": (size,),
        "lon": (size,),
        "vectors": (size, claims["dimensions"]),
        "distances": (size, size),
        "nodes": (size,),
        "outputs": (count,),
        "prior": (size,),
        "loss": (size, count),
        "weights": (size, count),
    }
    names = [*METRIC_ARRAYS[kind], "outputs", "prior", "loss", "weights"]
    names += ["nodes"] if claims["nodes"] else []
    if {f"arrays/{name}.npy" for name in names} != set(members):
        msg = f"the archive holds {sorted(members)}; expected the arrays {sorted(names)}"
        raise FileFormatError(msg)
    arrays = {name: _array(members, name, shapes[name]) for name in names}
    problem = _problem(certificate, arrays, verify)
    weights = frozen(arrays["weights"])
    check_weights(weights, (size, count))  # an audit of anything else would mean nothing
    audit = _audit(certificate, problem, weights, verify)
    lower_bound = certificate["lower_bound"]
    source = "audited again on load" if verify else "taken from the certificate, not verified"
    mechanism = Mechanism(
        problem=problem,
        weights=weights,
        method=str(certificate["method"]),
        audit=audit,
        lower_bound=None if lower_bound is None else float(lower_bound),
        stages=tuple((str(name), float(seconds)) for name, seconds in certificate["stages"]),
        details={**certificate["details"], "audit_source": source},
    )
    claimed = float(certificate["loss"])
    if not abs(mechanism.loss - claimed) <= LOSS_TOLERANCE * max(abs(claimed), 1e-300):
        msg = f"the certificate claims a loss of {claimed!r}; the weights give {mechanism.loss!r}"
        raise FileFormatError(msg)
    return mechanism


def _array(members: Mapping[str, bytes], name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    expected = np.dtype("<i8") if name in _INTEGERS else np.dtype("<f8")
    stream = io.BytesIO(members[f"arrays/{name}.npy"])
    try:
        array = np.lib.format.read_array(stream, allow_pickle=False)
    except ValueError as error:
        msg = f"array {name} cannot be read: {error}"
        raise FileFormatError(msg) from error
    if array.shape != shape or array.dtype != expected or stream.read(1):
        msg = (
            f"array {name} is {array.dtype.str} of shape {array.shape}; "
            f"the certificate needs {expected.str} of shape {shape}"
        )
        raise FileFormatError(msg)
    return np.ascontiguousarray(array, dtype=expected.newbyteorder("="))


def _problem(
    certificate: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]], verify: bool
) -> Problem:
    return Problem(
        build_domain(certificate["domain"], arrays, verify),
        arrays["outputs"],
        arrays["loss"],
        float(certificate["epsilon"]),
        prior=arrays["prior"],
        loss_unit=str(certificate["loss_unit"]),
        prior_source=str(certificate["prior_source"]),
    )


def build_domain(
    claims: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], verify: bool
) -> Domain:
    """The domain that a certificate names, from its arrays; it must have the same fingerprint.

    `verify=False` takes the triangle inequality of a distance matrix on trust.
    """
    kind, unit = claims["kind"], str(claims["unit"])
    if kind == "haversine":
        domain = Domain.from_points(arrays["lat"], arrays["lon"])
    elif kind == "euclidean":
        domain = Domain.from_vectors(arrays["vectors"], unit=unit)
    elif kind == "angular":
        domain = Domain.from_vectors(arrays["vectors"], metric="angular")
    elif verify:
        # The audit passes over far pairs by the triangle inequality, so that is checked first.
        domain = Domain.from_matrix(arrays["distances"], unit=unit)
    else:
        domain = Domain(Matrix(arrays["distances"], unit))
    if domain.fingerprint != claims["fingerprint"] or domain.unit != unit:
        msg = "the domain is not the one that the certificate names"
        raise FileFormatError(msg)
    return domain.with_nodes(arrays["nodes"]) if "nodes" in arrays else domain


def _audit(
    certificate: dict[str, Any], problem: Problem, weights: npt.NDArray[np.int64], verify: bool
) -> Audit:
    if verify:
        return audit_weights(problem.domain, problem.outputs, weights, problem.epsilon)
    stated = certificate["audit"]
    x, x2, y = (int(value) for value in stated["worst"])
    return Audit(
        holds=stated["holds"] is True,
        epsilon=float(stated["epsilon"]),
        worst=(x, x2, y),
        claimed=problem.epsilon,
        unit=problem.domain.unit,
        distance=float(stated["distance"]),
        pairs=int(stated["pairs"]),
        subject=subject(problem.domain, problem.outputs, weights),
    )
