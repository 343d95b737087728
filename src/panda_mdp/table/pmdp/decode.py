"""Reads `.pmdp` files: checksums, contents, and the audit over all pairs again."""

from __future__ import annotations

import errno
import hashlib
import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import IntArray, frozen
from panda_mdp.errors import (
    DomainError,
    FileFormatError,
    PrivacyError,
    ProblemError,
)
from panda_mdp.privacy.audit import Audit, audit_weights, subject
from panda_mdp.privacy.quantise import check_weights
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import Matrix
from panda_mdp.table import claims
from panda_mdp.table.bound import dual_bound
from panda_mdp.table.certificate import FORMAT, VERSION
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.pmdp.encode import CERTIFICATE, SEAL, SEAL_LENGTH, checksum

_INTEGERS = frozenset({"weights", "outputs", "nodes", "bound_pairs"})
_NPY_HEADER = 256
"""Bytes before the numbers of an array, at most."""


def load(path: str | os.PathLike[str], verify: bool = True) -> Mechanism:
    """Read a mechanism, check it, and by default audit its weights again over all pairs.

    Raises `FileFormatError` with the reason where the file is damaged, truncated, foreign, of an
    unknown version, inconsistent, would unpack to far more than it is, or claims what is not so:
    an epsilon that its weights do not keep, another audit, a lower bound above the loss.
    `verify=False` takes the audit from the certificate (and the triangle inequality of a distance
    matrix on trust); `details["audit_source"]` says which of the two happened, and
    `details["bound_source"]` whether the file proves its lower bound.
    """
    with _naming(f"{path}: "):
        return _decode(_bytes(Path(path)), verify)


def decode(data: bytes, verify: bool = True) -> Mechanism:
    """The mechanism of a file's bytes, as `load` reads it."""
    with _naming(""):
        return _decode(data, verify)


def _decode(data: bytes, verify: bool) -> Mechanism:
    certificate, members = unpack(data)
    problem, weights, arrays = _contents(certificate, members, verify)
    verdict = None
    if verify:
        verdict = audit_weights(problem.domain, problem.outputs, weights, problem.epsilon)
    return _mechanism(certificate, problem, weights, arrays, verdict)


def audit_file(path: str | os.PathLike[str], epsilon: float | None = None) -> Audit:
    """The audit of a file's table over all pairs, whether or not it holds.

    What the answer rests on is verified first: form and sums, the metric, the weights. Where the
    table keeps the file's own epsilon, every other claim of the file is checked too, as by `load`.
    """
    with _naming(f"{path}: "):
        certificate, members = unpack(_bytes(Path(path)))
        problem, weights, arrays = _contents(certificate, members, verify=True)
        verdict = audit_weights(problem.domain, problem.outputs, weights, problem.epsilon)
        if verdict.holds:
            _mechanism(certificate, problem, weights, arrays, verdict)
    if epsilon is None:
        return verdict
    if not epsilon > 0:
        msg = f"epsilon is {epsilon!r}; it must be positive"
        raise ProblemError(msg)
    return replace(verdict, claimed=float(epsilon), holds=verdict.epsilon <= epsilon)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Whatever is wrong with a file is a `FileFormatError` that says where."""
    try:
        yield
    except FileFormatError as error:
        msg = f"{where}{error}"
        raise FileFormatError(msg) from error
    except (DomainError, ProblemError, PrivacyError) as error:
        msg = f"{where}the contents contradict the certificate: {error}"
        raise FileFormatError(msg) from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        msg = f"{where}the certificate lacks a field or holds a wrong value: {error!r}"
        raise FileFormatError(msg) from error


def read_certificate(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The certificate of a file whose checksums hold; nothing in it is audited again."""
    with _naming(f"{path}: "):
        return unpack(_bytes(Path(path)))[0]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT,
            "there is no mechanism file here; mechanism.save(path) writes one",
            str(path),
        ) from None


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Certificate and array members of a file's bytes, every checksum verified."""
    _check_seal(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            certificate, members = _members(archive, len(data))
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


def _members(archive: zipfile.ZipFile, packed: int) -> tuple[dict[str, Any], dict[str, bytes]]:
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
    if certificate.get("version") != VERSION:
        msg = (
            f"format version {certificate.get('version')!r}; this library reads version {VERSION}: "
            "use the library that wrote it"
        )
        raise FileFormatError(msg)
    expected = {f"arrays/{name}.npy": shape for name, shape in _shapes(certificate).items()}
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


def _contents(
    certificate: Mapping[str, Any], members: Mapping[str, bytes], verify: bool
) -> tuple[Problem, IntArray, dict[str, npt.NDArray[Any]]]:
    """The problem and the weights of a file, and all its arrays."""
    shapes = _shapes(certificate)
    arrays = {name: _array(members, name, shape) for name, shape in shapes.items()}
    domain = build_domain(certificate["domain"], arrays, verify)
    problem = Problem(
        domain,
        arrays["outputs"],
        arrays["loss"],
        claims.real(certificate, "epsilon"),
        prior=arrays["prior"],
        loss_unit=str(certificate["loss_unit"]),
        prior_source=str(certificate["prior_source"]),
    )
    weights = frozen(arrays["weights"])
    check_weights(weights, problem.loss.shape)  # an audit of anything else would mean nothing
    return problem, weights, arrays


def _mechanism(
    certificate: Mapping[str, Any],
    problem: Problem,
    weights: IntArray,
    arrays: Mapping[str, npt.NDArray[Any]],
    verdict: Audit | None,
) -> Mechanism:
    """The mechanism, every claim checked against the audit; `verdict` None takes the stated one."""
    domain = problem.domain
    stated = claims.stated_audit(certificate, domain, subject(domain, problem.outputs, weights))
    mechanism = Mechanism(
        problem=problem,
        weights=weights,
        method=str(certificate["method"]),
        audit=stated if verdict is None else verdict,
        stages=tuple((str(name), float(seconds)) for name, seconds in certificate["stages"]),
        details=certificate["details"],
    )
    if verdict is not None:
        claims.check_audit(stated, verdict, domain, problem.outputs)
    claims.check_words(certificate, domain.unit)
    bound = claims.check_bound(certificate, mechanism.loss)
    sources = {"audit_source": "audited again on load"}
    if verdict is None:
        sources["audit_source"] = "taken from the certificate, not verified"
    if bound is not None:
        sources["bound_source"] = _bound_source(bound, problem, arrays)
    return replace(mechanism, lower_bound=bound, details={**mechanism.details, **sources})


def _bound_source(bound: float, problem: Problem, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    if "bound_pairs" not in arrays:
        return "stated in the file, not proved there"
    proved = dual_bound(problem, arrays["bound_pairs"], arrays["bound_multipliers"])
    if not bound <= proved:
        msg = f"the lower bound is {bound!r}, and its multipliers prove {proved!r}"
        raise FileFormatError(msg)
    return "proved by the file's multipliers"


def _array(members: Mapping[str, bytes], name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    expected = np.dtype("<i8") if name in _INTEGERS else np.dtype("<f8")
    stream = io.BytesIO(members[f"arrays/{name}.npy"])
    try:
        version = np.lib.format.read_magic(stream)
        found, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except ValueError as error:
        msg = f"array {name} cannot be read: {error}"
        raise FileFormatError(msg) from error
    data = stream.read()
    same = (version, found, fortran, dtype) == ((1, 0), shape, False, expected)
    if not same or len(data) != 8 * math.prod(shape):
        msg = (
            f"array {name} is {dtype.str} of shape {found}{' in Fortran order' if fortran else ''} "
            f"in {len(data)} bytes; the certificate needs {expected.str} of shape {shape}"
        )
        raise FileFormatError(msg)
    return np.frombuffer(data, expected).reshape(shape).astype(expected.newbyteorder("="))


def build_domain(
    stated: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], verify: bool
) -> Domain:
    """The domain that a certificate names, from its arrays; it must have the same fingerprint.

    `verify=False` takes the triangle inequality of a distance matrix on trust.
    """
    kind, unit = stated["kind"], str(stated["unit"])
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
    if domain.fingerprint != stated["fingerprint"] or domain.unit != unit:
        msg = "the domain is not the one that the certificate names"
        raise FileFormatError(msg)
    return domain.with_nodes(arrays["nodes"]) if "nodes" in arrays else domain
