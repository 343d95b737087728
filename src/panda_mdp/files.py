"""One file that holds a mechanism, the problem it answers, and its certificate.

A `.pmdp` file is a zip archive of `certificate.json` and `.npy` arrays (never pickled):

    certificate.json       what is claimed, and a SHA-256 over itself and all arrays
    arrays/<metric>.npy    the domain: lat and lon, vectors, or distances
    arrays/weights.npy     K x m integers, rows summing to 2^62: what is audited and sampled
    arrays/loss.npy  arrays/prior.npy  arrays/outputs.npy  [arrays/nodes.npy]

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
import os
import secrets
import struct
import zipfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp._arrays import frozen
from panda_mdp.domain import Domain
from panda_mdp.errors import (
    DomainError,
    FileFormatError,
    NotForReleaseError,
    PrivacyError,
    ProblemError,
)
from panda_mdp.mechanism import Mechanism
from panda_mdp.metrics import Matrix
from panda_mdp.privacy.audit import Audit, audit_weights, subject
from panda_mdp.privacy.quantise import BITS, check_weights
from panda_mdp.problem import Problem

FORMAT = "panda-mdp mechanism"
VERSION = 1
SUFFIX = ".pmdp"
"""The suffix by convention; nothing depends on it."""
LOSS_TOLERANCE = 1e-9

_SEAL = b"panda-mdp sha256 "
_SEAL_LENGTH = len(_SEAL) + 64
_END_RECORD = 22
_EPOCH = (1980, 1, 1, 0, 0, 0)
_CERTIFICATE = "certificate.json"
METRIC_ARRAYS = {
    "haversine": ("lat", "lon"),
    "euclidean": ("vectors",),
    "angular": ("vectors",),
    "matrix": ("distances",),
}
_INTEGERS = frozenset({"weights", "outputs", "nodes"})


def save(mechanism: Mechanism, path: str | os.PathLike[str]) -> Path:
    """Write a mechanism to one file, atomically: a reader sees the old file or the whole new one.

    Raises `NotForReleaseError` for anything but a `Mechanism`, since files are for release.
    """
    if not isinstance(mechanism, Mechanism):
        msg = f"a {type(mechanism).__name__} is not for release; only a Mechanism can be saved"
        raise NotForReleaseError(msg)
    target = Path(path)
    members = {f"arrays/{name}.npy": _npy(array) for name, array in _arrays(mechanism).items()}
    certificate = describe(mechanism)
    certificate["sha256"] = _checksum(certificate, members)
    text = json.dumps(certificate, indent=1, sort_keys=True, allow_nan=False)
    _write_atomically(target, _archive({_CERTIFICATE: text.encode(), **members}))
    return target


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


def _arrays(mechanism: Mechanism) -> dict[str, npt.NDArray[Any]]:
    problem = mechanism.problem
    arrays: dict[str, npt.NDArray[Any]] = dict(problem.domain.metric.arrays())
    if problem.domain.nodes is not None:
        arrays["nodes"] = problem.domain.nodes
    arrays["outputs"] = problem.outputs
    arrays["prior"] = problem.prior
    arrays["loss"] = problem.loss
    arrays["weights"] = mechanism.weights
    return arrays


def describe(mechanism: Mechanism) -> dict[str, Any]:
    """What a certificate says about a mechanism: plain values for JSON."""
    from panda_mdp import __version__

    problem, result = mechanism.problem, mechanism.audit
    domain = problem.domain
    details, left_out = _plain_details(mechanism.details)
    gap = mechanism.gap
    return {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": mechanism.method,
        "epsilon": problem.epsilon,
        "epsilon_unit": f"per {domain.unit}",
        "loss": mechanism.loss,
        "loss_unit": problem.loss_unit,
        "lower_bound": mechanism.lower_bound,
        "gap": "infinite" if gap == np.inf else gap,
        "domain": {
            "kind": domain.metric.kind,
            "unit": domain.unit,
            "records": domain.size,
            "dimensions": (
                domain.metric.embedding.shape[1]
                if domain.metric.kind in ("euclidean", "angular")
                else None
            ),
            "nodes": domain.nodes is not None,
            "fingerprint": domain.fingerprint,
        },
        "outputs": problem.outputs_count,
        "prior_source": problem.prior_source,
        "bits": BITS,
        "audit": {
            "holds": result.holds,
            "epsilon": result.epsilon,
            "worst": list(result.worst),
            "distance": result.distance,
            "pairs": result.pairs,
        },
        "guarantee": (
            f"For all records x, x' of the domain and all outputs y: "
            f"z(y|x) <= exp({problem.epsilon!r} d(x, x')) z(y|x'), d in {domain.unit}. "
            "Each further report of the same record spends epsilon again."
        ),
        "snapping": (
            "A place that is snapped to its nearest record is covered only up to the distances of "
            f"the snaps: z(y|p) <= exp({problem.epsilon!r} (d(p, p') + s(p) + s(p'))) z(y|p'), at "
            "most epsilon (d + 2 s) where no place is snapped farther than s."
        ),
        "stages": [[name, seconds] for name, seconds in mechanism.stages],
        "details": details,
        "details_left_out": left_out,
    }


def _plain_details(details: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What JSON can hold, and the names of what it cannot."""
    kept: dict[str, Any] = {}
    left_out = []
    for name, value in details.items():
        if name == "audit_source":
            continue
        try:
            kept[name] = json.loads(json.dumps(_plain(value), allow_nan=False))
        except (TypeError, ValueError):
            left_out.append(name)
    return kept, sorted(left_out)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _checksum(certificate: Mapping[str, Any], members: Mapping[str, bytes]) -> str:
    """SHA-256 over the certificate in canonical form and the bytes of every array, by name."""
    claims = {name: value for name, value in certificate.items() if name != "sha256"}
    state = hashlib.sha256(
        json.dumps(claims, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    )
    for name in sorted(members):
        state.update(f"\n{name} {len(members[name])}\n".encode())
        state.update(members[name])
    return state.hexdigest()


def _npy(array: npt.NDArray[Any]) -> bytes:
    fixed = np.ascontiguousarray(array)
    buffer = io.BytesIO()
    np.lib.format.write_array(
        buffer, fixed.astype(fixed.dtype.newbyteorder("<")), version=(1, 0), allow_pickle=False
    )
    return buffer.getvalue()


def _archive(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=_EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
        archive.comment = b" " * _SEAL_LENGTH
    body = buffer.getvalue()[:-_SEAL_LENGTH]
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode()


def _write_atomically(target: Path, data: bytes) -> None:
    if target.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "a mechanism is saved to a file, not a folder", str(target)
        )
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        # Not a private temporary file: the result gets the permissions that the user's mask gives.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT, "the folder to save in does not exist; create it", str(target.parent)
        ) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the system lets folders be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
        certificate = json.loads(members.pop(_CERTIFICATE))
    except KeyError:
        msg = f"a zip archive without {_CERTIFICATE}; it is not a mechanism file"
        raise FileFormatError(msg) from None
    except ValueError as error:
        msg = f"{_CERTIFICATE} is not JSON; the file is damaged"
        raise FileFormatError(msg) from error
    if not isinstance(certificate, dict) or certificate.get("format") != FORMAT:
        msg = f"{_CERTIFICATE} is not of the format {FORMAT!r}; it is a foreign file"
        raise FileFormatError(msg)
    if certificate.get("version") != VERSION:
        msg = (
            f"format version {certificate.get('version')!r}; this library reads version {VERSION}: "
            "use the library that wrote it"
        )
        raise FileFormatError(msg)
    if certificate.get("sha256") != _checksum(certificate, members):
        msg = "the checksum of certificate and arrays does not match; the file was changed"
        raise FileFormatError(msg)
    return certificate, members


def _check_seal(data: bytes) -> None:
    if not data:
        msg = "the file is empty"
        raise FileFormatError(msg)
    seal = data[-_SEAL_LENGTH:]
    if seal.startswith(_SEAL):
        if seal[len(_SEAL) :] != hashlib.sha256(data[:-_SEAL_LENGTH]).hexdigest().encode():
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
