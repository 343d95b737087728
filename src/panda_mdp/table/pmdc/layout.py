"""The bytes around the rows: a header that says everything, sections, a checksum.

    magic, header length (4 bytes, little-endian), header (JSON), sections, SHA-256 of all before

The checksum finds damage, not forgery; what protects the user of a foreign file is the audit.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.errors import FileFormatError
from panda_mdp.table.claims import parse, whole
from panda_mdp.table.pmdc.codec import deflate, inflate, pack_planes, unpack_planes

MAGIC = b"panda-mdp compact\n"
FORMAT = "panda-mdp compact table"
VERSION = 1
PLACED_VERSION = 2
"""Of files whose outputs are no records."""
LEVELS_VERSION = 3
"""Of files whose rows are levels (`levels`), with outputs of every kind."""
DEGREES = 10_000_000
"""Coordinates of maps are whole numbers of 1e-7 degrees, and far shorter as such."""
_DIGEST = 32


def pack(header: Mapping[str, Any], sections: Mapping[str, bytes]) -> bytes:
    """A whole file. The header gets the sections' names and lengths, in their order."""
    listed = {name: len(data) for name, data in sections.items()}
    text = json.dumps({**header, "sections": listed}, separators=(",", ":"), allow_nan=False)
    encoded = text.encode()
    body = b"".join([MAGIC, struct.pack("<I", len(encoded)), encoded, *sections.values()])
    return body + hashlib.sha256(body).digest()


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Header and sections of a file whose checksum holds."""
    start = len(MAGIC) + 4
    if not data.startswith(MAGIC):
        msg = "the file is empty" if not data else "not a compact table: it starts differently"
        raise FileFormatError(msg)
    body = data[:-_DIGEST]
    if len(body) < start or hashlib.sha256(body).digest() != data[-_DIGEST:]:
        msg = "the checksum does not match the contents; the file is truncated or damaged"
        raise FileFormatError(msg)
    (length,) = struct.unpack_from("<I", data, len(MAGIC))
    header = parse(body[start : start + length])
    if header.get("format") != FORMAT:
        msg = f"the header is not of the format {FORMAT!r}; it is a foreign file"
        raise FileFormatError(msg)
    if header.get("version") not in (VERSION, PLACED_VERSION, LEVELS_VERSION):
        msg = (
            f"format version {header.get('version')!r}; this library reads versions {VERSION} to "
            f"{LEVELS_VERSION}: use the library that wrote it"
        )
        raise FileFormatError(msg)
    return header, _cut(body, start + length, header["sections"])


def _cut(body: bytes, start: int, lengths: Mapping[str, int]) -> dict[str, bytes]:
    for name in lengths:
        whole(lengths, name, 0)
    if start + sum(lengths.values()) != len(body):
        msg = "the sections are not as long as the header says; the file is damaged"
        raise FileFormatError(msg)
    sections = {}
    for name, length in lengths.items():
        sections[name] = body[start : start + length]
        start += length
    return sections


def pack_integers(values: npt.NDArray[np.int64]) -> bytes:
    """Whole numbers as differences from the one before, in planes, deflated."""
    return deflate(pack_planes(np.diff(values, prepend=0)))


def unpack_integers(data: bytes, count: int) -> npt.NDArray[np.int64]:
    """`count` whole numbers of `pack_integers`."""
    return np.cumsum(unpack_planes(inflate(data, 1 + 8 * count), count), dtype=np.int64)


def pack_floats(values: npt.NDArray[np.float64]) -> tuple[str, bytes]:
    """The coding, "degrees" where all values are whole numbers over 1e7, else "float64"."""
    flat = np.ascontiguousarray(values).ravel()
    with np.errstate(over="ignore"):
        whole = np.rint(flat * DEGREES)
    if np.all(np.abs(whole) < 2**53) and np.array_equal(whole / DEGREES, flat):
        return "degrees", pack_integers(whole.astype(np.int64))
    return "float64", deflate(flat.astype("<f8").tobytes())


def unpack_floats(coding: str, data: bytes, count: int) -> npt.NDArray[np.float64]:
    """`count` numbers of `pack_floats`, to the bit."""
    if coding == "degrees":
        return np.asarray(unpack_integers(data, count) / DEGREES)
    if coding != "float64":
        msg = f"an array is coded as {coding!r}; this library knows degrees and float64"
        raise FileFormatError(msg)
    plain = inflate(data, 8 * count)
    if len(plain) != 8 * count:
        msg = f"an array of {count} numbers has {len(plain)} bytes; the file is damaged"
        raise FileFormatError(msg)
    return np.frombuffer(plain, "<f8").astype(np.float64)
