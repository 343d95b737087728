"""The bytes of every file: a canonical header, typed sections, a checksum.

    "panda-mdp\\n", length of the header (4 bytes, little-endian), header (JSON), sections, SHA-256

The header is JSON in one form alone: names sorted, no blanks. Under `sections` it lists each
section's coding, shape and length; they follow in the order of their names. docs/format.md has
every byte. The checksum finds damage, not forgery: what protects the user of a foreign file is
that everything which is said about a table is computed from its integers by whoever reads it.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.text import Facts, canonical
from panda_mdp.errors import FileFormatError

MAGIC = b"panda-mdp\n"
FORMAT = "panda-mdp table"
VERSION = 1
DEGREES = 10_000_000
"""Coordinates of maps are whole numbers of 1e-7 degrees, and far shorter as such."""
SHORT = 1 << 31
"""Whole numbers below this are told as differences; larger ones, weights, as they are."""
UNPACKED_BYTES = 1 << 28
UNPACKED_RATIO = 128
"""A file may unpack to 256 MiB and 128 bytes for each of its own, whatever it says."""
LEVEL = 9
DEEPEST = 100
"""Of deflate; and how deep a header may be, whatever Python could read."""
FEATURES = ("factored", "mesh", "selection")
"""What a reader must know beyond the plain table, each with its field of the header and its
sections: what is added later has a name here, and who does not know it refuses the file."""
INTEGERS, REALS, BLOCKS = ("integers", "int64"), ("degrees", "float64"), ("blocks",)
CODINGS = {
    **dict.fromkeys(("lat", "lon", "vectors", "distances", "output_lat", "output_lon"), REALS),
    **dict.fromkeys(("loss", "prior", "bound_prices", "bound_multipliers", "mesh_area"), REALS),
    **dict.fromkeys(("nodes", "outputs", "mesh_vertices", "mesh_inside"), INTEGERS),
    **dict.fromkeys(("weights", "floor", "starts", "columns", "values", "order"), INTEGERS),
    **dict.fromkeys(("peaks", "centres"), INTEGERS),
    **dict.fromkeys(("candidates", "anchor_rows"), INTEGERS),
    **dict.fromkeys(("bound_pairs", "bound_starts", "bound_columns"), INTEGERS),
    **dict.fromkeys(("edges", "steps"), INTEGERS),
    **dict.fromkeys(("given_prior", "given_loss", "term_multipliers", "term_numbers"), REALS),
    **dict.fromkeys(("term_weights", "term_priors", "term_places"), REALS),
    **dict.fromkeys(("term_pairs", "term_starts", "term_columns"), INTEGERS),
    **dict.fromkeys(("term_kinds", "term_guesses"), INTEGERS),
    "blocks": BLOCKS,
}
"""Every section that there is, and how it may be coded."""


@dataclass(frozen=True)
class Section:
    """Some numbers of a file as they lie there."""

    coding: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Section:
        """The coding and the bytes of an array of int64 or float64."""
        flat = np.ascontiguousarray(values).reshape(-1)
        if flat.dtype == np.float64:
            with np.errstate(over="ignore"):
                units = np.rint(flat * DEGREES)
            if np.all(np.abs(units) < 2**53) and np.array_equal(units / DEGREES, flat):
                return cls("degrees", values.shape, _pack_differences(units.astype(np.int64)))
            # The highest bytes first: the last ones of short numbers are 0, and are not told.
            return cls("float64", values.shape, deflate(pack_bytes(flat.astype(">f8")), 6))
        flat = flat.astype(np.int64)
        if np.abs(flat).max(initial=0) < SHORT:
            return cls("integers", values.shape, _pack_differences(flat))
        return cls("int64", values.shape, deflate(flat.astype("<i8").tobytes(), 6))

    @property
    def count(self) -> int:
        """Numbers that it holds."""
        return math.prod(self.shape)

    def values(self) -> npt.NDArray[Any]:
        """The array, to the bit."""
        if self.coding == "int64":
            plain = inflate(self.data, 8 * self.count)
            if len(plain) != 8 * self.count:
                raise FileFormatError(
                    f"{self.count} numbers in {len(plain)} bytes; the file is damaged"
                )
            return np.frombuffer(plain, "<i8").astype(np.int64).reshape(self.shape)
        plain = inflate(self.data, 1 + 8 * self.count)
        if self.coding == "float64":
            reals = read_planes(plain, self.count).view(">f8").astype(float)
            return reals.reshape(self.shape)
        steps = unpack_planes(plain, self.count)
        whole = np.cumsum(steps, dtype=np.int64).reshape(self.shape)
        # A sum that left 64 bits is 2^64 away from that of floats.
        if (np.abs(np.cumsum(steps, dtype=float) - whole.reshape(-1)) > 2.0**62).any():
            raise FileFormatError("a number beyond 64 bits; the file is damaged")
        return whole / DEGREES if self.coding == "degrees" else whole


class Sections:
    """The sections of a file: each is taken once, of the shape that is due, and none is left."""

    def __init__(self, listed: Mapping[str, Section]) -> None:
        self._left = dict(listed)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a section that must be there."""
        if name not in self._left:
            raise FileFormatError(f"the section {name} is missing; the file is damaged")
        return self._left[name].shape

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of what was not taken yet, by name."""
        return {name: section.shape for name, section in self._left.items()}

    def take(self, name: str, *shape: int | None) -> npt.NDArray[Any]:
        """The numbers of a section; None in `shape` stands for any length."""
        return self.packed(name, *shape).values()

    def packed(self, name: str, *shape: int | None) -> Section:
        """A section as it lies in the file."""
        found = self.shape(name)
        same = len(found) == len(shape) and all(
            b is None or a == b for a, b in zip(found, shape, strict=True)
        )
        if not same:
            due = tuple("any" if n is None else n for n in shape)
            raise FileFormatError(f"the section {name} has shape {found}; {due} is due")
        return self._left.pop(name)

    def finish(self) -> None:
        """Refuse what nobody asked for."""
        if self._left:
            raise FileFormatError(f"the sections {sorted(self._left)} do not belong to this table")


def pack(header: Mapping[str, Any], sections: Mapping[str, npt.NDArray[Any] | Section]) -> bytes:
    """A whole file."""
    made = {
        name: part if isinstance(part, Section) else Section.of(part)
        for name, part in sorted(sections.items())
    }
    listed = {name: [s.coding, list(s.shape), len(s.data)] for name, s in made.items()}
    features = [name for name in FEATURES if name in header]
    head = {"format": FORMAT, "version": VERSION, "features": features, **header}
    head["sections"] = listed
    text = canonical(head)
    parts = [MAGIC, struct.pack("<I", len(text)), text, *(s.data for s in made.values())]
    body = b"".join(parts)
    return body + hashlib.sha256(body).digest()


def unpack(data: bytes) -> tuple[Facts, Sections]:
    """Header and sections of a file whose checksum holds; nothing is unpacked yet."""
    start = len(MAGIC) + 4
    if not data.startswith(MAGIC):
        raise FileFormatError(
            "the file is empty" if not data else "not a table of panda-mdp: it starts differently"
        )
    body = data[:-32]
    if len(body) < start or hashlib.sha256(body).digest() != data[-32:]:
        raise FileFormatError(
            "the checksum does not match the contents; the file is truncated or damaged"
        )
    (length,) = struct.unpack_from("<I", data, len(MAGIC))
    header = parse(body[start : start + length])
    form = header.pop("format", None)
    version = header.pop("version", None)
    if form != FORMAT or type(version) is not int or version != VERSION:
        raise FileFormatError(
            f"format version {str(version)[:40]!r}; this library reads version {VERSION} of "
            f"{FORMAT!r}: use the library that wrote it"
        )
    features = header.pop("features", None)
    if features != [name for name in FEATURES if name in header]:
        raise FileFormatError(
            f"a table with the features {str(features)[:80]}; this library knows "
            f"{', '.join(FEATURES)}, each beside its field: use the library that wrote it"
        )
    return header, Sections(_cut(body, start + length, header.pop("sections", None)))


def _cut(body: bytes, start: int, listed: Any) -> dict[str, Section]:
    """The sections as the header lists them; sizes are refused before anything is unpacked."""
    sections = {}
    plain = 0
    for name, entry in fit(listed, dict, "sections").items():
        what = f"coding, shape and length of the section {name[:40]}"
        coding, shape, length = fit(entry, (str, [int], int), what)
        if coding not in CODINGS.get(name, ()) or min((length, *shape)) < 0:
            raise FileFormatError(
                f"a section {name[:40]!r} in the coding {coding[:40]!r} is none of this format"
            )
        lengths = tuple(shape)
        end = start + length
        sections[name] = Section(coding, lengths, body[start:end])
        # Of blocks that stand for rows over a floor only what is above it is kept.
        plain += 16 * lengths[-1] if len(lengths) == 3 else 8 * math.prod(lengths)
        start = end
    if start != len(body):
        raise FileFormatError(
            "the sections are not as long as the header says; the file is damaged"
        )
    check_unpacked(plain, len(body))
    return sections


def check_unpacked(plain: int, packed: int) -> None:
    """Refuse a file of `packed` bytes that would become `plain` bytes, before it does."""
    most = UNPACKED_BYTES + UNPACKED_RATIO * packed
    if plain > most:
        raise FileFormatError(
            f"{packed:,} bytes would unpack to {plain:,}; at most {most:,} are unpacked: "
            "it is not a table that this library wrote"
        )


def parse(text: bytes) -> Facts:
    """A JSON object in its canonical form: names once and sorted, numbers finite, no blanks."""
    try:
        header = json.loads(text)
        same = _nested(header, DEEPEST) and canonical(header) == text
    except (ValueError, RecursionError) as error:
        raise FileFormatError("the header is not JSON; the file is damaged") from error
    if not same or not isinstance(header, dict):
        raise FileFormatError(
            "the header is no JSON object in its canonical form; the file was not written by us"
        )
    return header


def _nested(value: Any, left: int) -> bool:
    """Whether nothing lies deeper than `left`."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left >= 0 and all(_nested(part, left - 1) for part in parts)


class Maybe(NamedTuple):
    """What has a form, or is null."""

    form: Any


DUE = {int: "a whole number", float: "a finite number", str: "a text", dict: "an object"}


def fit(value: Any, form: Any, what: str) -> Any:
    """A value of a header, refused unless it has the form that is due: a type, with a float for
    every number where that is the form, or any value for `object`; an object of forms by name, and
    of no other names; [form] for a list of things of that form, (form, ...) for one of just these.
    """
    if isinstance(form, Maybe):
        return None if value is None else fit(value, form.form, what)
    if isinstance(form, list | tuple):
        due = "a list"
        if isinstance(value, list) and (isinstance(form, list) or len(form) == len(value)):
            forms = form * len(value) if isinstance(form, list) else form
            return [fit(part, own, what) for part, own in zip(value, forms, strict=True)]
    elif isinstance(form, dict):
        due = f"an object with {', '.join(form)} and nothing else"
        if isinstance(value, dict) and value.keys() == form.keys():
            return {name: fit(value[name], own, name) for name, own in form.items()}
    else:
        due = DUE.get(form, "anything")
        number = type(value) in (int, float) and abs(value) <= sys.float_info.max
        if form is float and number:
            return float(value)
        if form is object or (type(value) is form and (form is not int or abs(value) < 1 << 53)):
            return value
    raise FileFormatError(f"{what} is {str(value)[:40]!r}, not {due}; the file is damaged")


def _pack_differences(values: IntArray) -> bytes:
    return deflate(pack_planes(np.diff(values, prepend=0)))


def pack_planes(numbers: IntArray) -> bytes:
    """Whole numbers as zigzag bytes: how many a number takes, then all first bytes, and so on."""
    return pack_bytes(((numbers << 1) ^ (numbers >> 63)).astype("<u8"))


def pack_bytes(numbers: npt.NDArray[Any]) -> bytes:
    """How many bytes of eight a number takes without those at its end that are 0 in all, then all
    first bytes, all second ones, and so on."""
    planes = numbers.view(np.uint8).reshape(-1, 8)
    width = int(np.flatnonzero(planes.any(axis=0)).max(initial=-1)) + 1
    return bytes([width]) + np.ascontiguousarray(planes[:, :width].T).tobytes()


def unpack_planes(data: bytes, count: int) -> IntArray:
    """`count` numbers of `pack_planes`; they must take all of `data`."""
    folded = read_planes(data, count).view("<u8").reshape(-1)
    return ((folded >> np.uint64(1)) ^ (np.uint64(0) - (folded & np.uint64(1)))).view(np.int64)


def read_planes(data: bytes, count: int) -> npt.NDArray[np.uint8]:
    """The bytes of `count` numbers, (count, 8), 0 where they have fewer."""
    width = data[0] if data else 9
    if width > 8 or len(data) != 1 + width * count:
        raise FileFormatError(
            f"{len(data)} bytes for {count} numbers of {width} bytes each; the file is damaged"
        )
    planes = np.zeros((count, 8), np.uint8)
    planes[:, :width] = np.frombuffer(data, np.uint8, offset=1).reshape(width, count).T
    return planes


def deflate(data: bytes, level: int = LEVEL) -> bytes:
    """The zlib format (RFC 1950), "deflate" in a browser."""
    return zlib.compress(data, level)


def inflate(data: bytes, most: int) -> bytes:
    """What was deflated, refused beyond `most` bytes."""
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(data, most + 1)
    except zlib.error as error:
        raise FileFormatError(
            f"a section cannot be inflated ({error}); the file is damaged"
        ) from error
    if not reader.eof or reader.unused_data or len(plain) > most:
        raise FileFormatError(
            f"a section does not end where it should (at most {most} bytes); the file is damaged"
        )
    return plain
