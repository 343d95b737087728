"""Files as nobody would write them, and three checkers that must say the same of each.

    python tests/support/fuzzing.py --files 100000 --seed 7

A file of `forging` is taken to pieces, one thing or several in it are changed at random (header,
names, types, sections, shapes, codings, bytes), and its sum is computed again, or not. The library,
the second checker and the one that is extracted from the proofs (where it is built) read the
result. Broken is the rule where they disagree, where anything but the typed refusal comes out, or
where one of them takes more than a second of processor time or 100 MB for it.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import resource
import select
import struct
import subprocess
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import forging
import numpy as np
from forging import MAGIC, TOTAL, File, Sample
from second_checker import checker

import panda_mdp as pm
from panda_mdp.errors import FileFormatError

SECONDS, BYTES = 1.0, 100 << 20
LONGEST = 60
BUILT = Path(__file__).parents[2] / "out" / "proofs" / "checker"
COMMON = 0.93
"""Of the files are of plain tables, which all three read in milliseconds."""
NUMBERS = (0, -1, 1, 2, 3, 12, 1 << 31, 1 << 53, 1 << 63, 10**400, -(10**400))
FLOATS = (0.0, -0.0, 0.5, 1.0, 5e-324, 1e-320, 1e-9, 1e300, 1.7976931348623157e308, -2.5)
TEXTS = ("", "1", "1.5", "km", "m", "rad", "records", "places", "labels", "clip", "é", "\ud800")
OTHERS = (None, True, False, [], {}, [1], [[]], {"a": 1}, float("nan"), float("inf"))
VALUES = (*NUMBERS, *FLOATS, *TEXTS, *OTHERS)
ENTRIES = (0, 1, -1, 3, 12, TOTAL, TOTAL - 1, (1 << 63) - 1, -(1 << 63), 1 << 32)
REALS = (*FLOATS, 90.0, 180.0, 1e140, 1e-120, float("nan"), float("inf"), -float("inf"))
CODINGS = ("leading", "float64", "int64", "integers", "degrees", "blocks", "float32", "", None)


# What is done to a file


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a header, from the outside in."""
    items = {dict: dict.items, list: enumerate}.get(type(value), lambda _: ())
    for name, part in list(items(value)):
        yield (*at, name)
        yield from places(part, (*at, name))


def deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def near(rng: random.Random, old: Any) -> Any:
    """Something that looks like what was there."""
    if isinstance(old, bool) or old is None:
        return rng.choice((not old, 0, 1, "null"))
    if isinstance(old, int | float):
        changes = (str(old), float(old), old * 2, old / 2, -old, old + 1, [old], old * (1 + 3e-9))
        return rng.choice(changes)
    if isinstance(old, str):
        return rng.choice((old + " ", old.upper(), old[:-1], [old], old + "\0", len(old)))
    if isinstance(old, list | tuple):
        old = list(old)
        shuffled = rng.sample(old, len(old))
        return rng.choice((shuffled, old[1:], [*old, *old[:1]], [old], dict(enumerate(old))))
    return rng.choice(
        (list(old), list(old.items()), {**old, "more": 1}, dict(list(old.items())[1:]))
    )


def in_header(rng: random.Random, file: File) -> None:
    """Another value, a name less, another name, one more, or one far too deep."""
    *parents, last = rng.choice([*places(file.header)])
    where: Any = file.header
    for parent in parents:
        where = where[parent]
    kind = rng.randrange(10)
    if kind < 4:
        where[last] = rng.choice(VALUES)
    elif kind < 7:
        where[last] = near(rng, where[last])
    elif kind == 7:
        del where[last]
    elif kind == 8:
        where[last] = deep(rng.choice((3, 40, 99, 101, 200, 300)))
    elif isinstance(where, dict):
        where[rng.choice(("", "x", "epsilon", "audit", "é", str(last) + "s"))] = where[last]


def in_numbers(rng: random.Random, file: File) -> None:
    """Other numbers in a section."""
    if not file.arrays:
        return
    name = rng.choice(sorted(file.arrays))
    array, kind = file.arrays[name], rng.randrange(12)
    flat = array.reshape(-1)
    at = rng.randrange(max(1, len(flat)))
    if kind < 4 and len(flat):
        flat[at] = rng.choice(ENTRIES if array.dtype.kind == "i" else REALS)
    elif kind < 6 and len(flat):
        with np.errstate(over="ignore", invalid="ignore"):
            flat[at] = flat[at] + 1 if array.dtype.kind == "i" else flat[at] * (1 + 3e-9)
    elif kind == 6 and len(array) > 1:
        forging.swap(name, *rng.sample(range(len(array)), 2))(file)
    elif kind == 7:
        file.arrays[name] = array[1:] if rng.random() < 0.5 else np.concatenate([array, array[:1]])
    elif kind == 8:
        with np.errstate(invalid="ignore"):
            file.arrays[name] = array.astype(float if array.dtype.kind == "i" else np.int64)
    elif kind == 9:
        file.arrays[name] = rng.choice((flat, array[None], array.T, array[:, None], array[:0]))
    elif kind == 10 and len(array) > 1:
        array[0] = array[1]
    elif len(flat) > 1:  # a sum that stays
        other = rng.randrange(len(flat))
        step = flat[at] // 2 if array.dtype.kind == "i" else flat[at] / 2
        flat[at] -= step
        flat[other] += step


def in_sections(rng: random.Random, file: File) -> None:
    """A section less or more, of another shape, coding or length, or of other bytes."""
    made = file.pieces()
    name = rng.choice(sorted(made))
    coding, shape, data = made[name]
    kind = rng.randrange(10)
    if kind == 0:
        file.arrays.pop(name, None)
        file.sections.pop(name, None)
        return
    if kind == 1:
        other = rng.choice((*KNOWN, "audit", ""))
        file.sections.setdefault(other, (coding, shape, data))
        return
    if kind < 4:
        coding = rng.choice(CODINGS)
    elif kind < 6:
        sizes = (0, 1, 2, 12, 10**6, 1 << 31, 1 << 53, -1, "12", None, True, 1.0, 10**20)
        shape = list(shape)
        if rng.random() < 0.3 or not shape:
            shape.insert(rng.randrange(len(shape) + 1), rng.choice((1, 0)))
        else:
            shape[rng.randrange(len(shape))] = rng.choice(sizes)
    elif kind == 6:  # the same numbers in another way
        data = (
            zlib.compress(zlib.decompress(data), rng.choice((0, 1, 9)))
            if coding != "blocks"
            else data
        )
    elif kind == 7 and coding != "blocks":
        plain = zlib.decompress(data)
        cut = rng.randrange(len(plain) + 1)
        data = zlib.compress(rng.choice((plain[:cut], plain + b"\0", flipped(rng, plain))))
    elif kind == 8:
        data = rng.choice((data[:-1], data + b"\0", b"", flipped(rng, data)))
    elif coding in ("int64", "float64") and name in file.arrays:
        data, coding = recoded(file.arrays[name], coding)
    file.arrays.pop(name, None)
    file.sections[name] = (coding, shape, data)


def recoded(array: np.ndarray, coding: str) -> tuple[bytes, str]:
    """The other coding of the same kind of numbers: the same where they are short."""
    with np.errstate(invalid="ignore", over="ignore"):
        units = array.reshape(-1) if coding == "int64" else np.rint(array.reshape(-1) * 1e7)
        steps = np.diff(units.astype(np.int64), prepend=np.int64(0))
    folded = ((steps << 1) ^ (steps >> 63)).astype("<i8").view(np.uint8).reshape(-1, 8)
    plain = b"\x08" + np.ascontiguousarray(folded.T).tobytes()
    return zlib.compress(plain), "integers" if coding == "int64" else "degrees"


def in_text(rng: random.Random, file: File) -> None:
    """The header's text in another form."""
    found = file.bytes()
    start = len(MAGIC) + 4
    text = found[start : start + struct.unpack_from("<I", found, len(MAGIC))[0]]
    at = rng.randrange(len(text))
    colon = text.find(b":", at)
    digit = next((k for k in range(at, len(text)) if text[k] in b"0123456789"), 0)
    file.text = rng.choice(
        (
            text[:at],
            text + rng.choice((b" ", b"\n", b"\0", b"}")),
            b"\xef\xbb\xbf" + text,
            text[:at] + rng.choice((b" ", b"\\", b'"', b"[", b"}", b"\xff", b"\0")) + text[at:],
            text[: colon + 1]
            + rng.choice((b" ", b"+", b"-", b"0", b"1e", b"NaN,"))
            + text[colon + 1 :],
            text[: digit + 1]
            + rng.choice((b"0", b".0", b"e0", b"E1", b"e+400", b"_0"))
            + text[digit + 1 :],
            flipped(rng, text),
            text.replace(b'"epsilon":', b'"epsilon":1.5,"epsilon":'),
            text.replace(b"a", b"\\u0061", 1),
            text.replace(b'"m', b'"\\ud83d\\ude00m', 1),
        )
    )


def in_blocks(rng: random.Random, file: File) -> None:
    """Other plain bytes of a block, or other blocks."""
    if "blocks" not in file.sections:
        in_numbers(rng, file)
        return

    def change(plain: bytearray) -> None:
        at = rng.randrange(len(plain))
        for _ in range(rng.choice((1, 1, 3))):
            plain[at] = rng.choice((0, 1, 7, 46, 47, 255, rng.randrange(256)))
            at = rng.randrange(len(plain))
        if rng.random() < 0.1:
            del plain[-rng.randrange(1, 9) :]

    forging.block(change)(file)


CHANGES: tuple[Callable[[random.Random, File], None], ...] = (
    *(in_header, in_header, in_numbers, in_numbers, in_sections, in_text, in_blocks),
)
KNOWN = (
    *("weights", "floor", "starts", "columns", "values", "order", "blocks", "prior", "loss"),
    *("nodes", "centres", "candidates", "mesh_area", "bound_pairs", "bound_starts"),
    *("bound_columns", "bound_multipliers"),
    *("lat", "vectors", "distances", "output_lat", "outputs", "anchor_rows", "mesh_inside"),
    *("edges", "steps", "peaks", "centres", "bound_prices"),
    *("given_prior", "given_loss", "term_kinds", "term_numbers", "term_guesses", "term_weights"),
    *("term_priors", "term_places", "term_pairs", "term_starts", "term_multipliers"),
)
"""Sections that may be where they do not belong."""


def flipped(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return b"\0"
    out = bytearray(data)
    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def in_bytes(rng: random.Random, data: bytes) -> bytes:
    """Cut, lengthened or flipped; the sum fits again half of the time."""
    body = rng.choice(
        (
            data[: rng.randrange(len(data))],
            data[:-32] + rng.choice((b"\0", b"\0" * 40, data[-40:-32])),
            flipped(rng, data[:-32]),
            data[:10]
            + struct.pack("<I", rng.choice((0, 1, 1 << 31, 0xFFFFFFFF, len(data))))
            + data[14:-32],
            rng.choice((b"", b"panda-mdp\n", b"panda-mdp\n\0\0\0\0", b"PK\3\4")),
        )
    )
    return body + hashlib.sha256(body).digest() if rng.random() < 0.7 else body


def sample(rng: random.Random, common: float = COMMON) -> Sample:
    """One file."""
    group = forging.PLAIN if rng.random() < common else forging.OTHERS
    name = rng.choice(group)
    data = forging.honest(name)
    if rng.random() < 0.1:
        return Sample(name, "bytes", in_bytes(rng, data))
    file, done = File.of(data), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(CHANGES)
        # A change before it may have left nothing to change here.
        with contextlib.suppress(zlib.error, struct.error, LookupError):
            change(rng, file)
        done.append(change.__name__)
    return Sample(f"{name}: {', '.join(done)}", "pieces", file.bytes())


# What is said of it


@dataclass
class Third:
    """The extracted checker, one process for many files; it is started again where it dies."""

    path: Path
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [self.path, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (4 << 30, 4 << 30))

    def __call__(self, path: Path) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{path}\n")
        if select.select([self.process.stdout], [], [], LONGEST)[0]:
            line = self.process.stdout.readline()
            if line:
                return line
        self.process.kill()
        self.process.wait()
        self.__post_init__()
        return "no answer"

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@contextlib.contextmanager
def measured(who: str, process: int, broken: list[str]) -> Iterator[None]:
    """Adds to `broken` where more than a second or 100 MB was used."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")
    memory, start = peak(process), processor_seconds(process)
    yield
    with contextlib.suppress(FileNotFoundError):  # a process that died has said nothing
        if (took := processor_seconds(process) - start) > SECONDS:
            broken.append(f"{who} took {took:.2f} s")
        if (more := peak(process) - memory) > BYTES:
            broken.append(f"{who} took {more >> 20} MiB")


def judge(path: Path, third: Third | None) -> tuple[bool, list[str]]:
    """Whether all accept it, and every rule that was broken."""
    broken: list[str] = []
    verdicts: dict[str, bool] = {}
    words = {}
    with measured("the library", os.getpid(), broken):
        try:
            pm.load(path)
            verdicts["library"] = True
        except FileFormatError as error:
            verdicts["library"], words["library"] = False, str(error).replace(str(path), "")
            if "\n" in str(error):
                broken.append("the library's refusal has several lines")
        except Exception as error:
            broken.append(f"library: {type(error).__name__}: {str(error)[:200]}")
    try:
        repr(pm.inspect(path))
    except FileFormatError:
        pass
    except Exception as error:
        broken.append(f"inspect: {type(error).__name__}: {str(error)[:200]}")
    said, process = io.StringIO(), os.getpid()
    with measured("the second checker", process, broken), contextlib.redirect_stdout(said):
        try:
            verdicts["second"] = checker().main(str(path)) == 0
        except BaseException as error:
            broken.append(f"second: {type(error).__name__}: {str(error)[:200]}")
    words["second"] = said.getvalue().splitlines()[-1][:200]
    if not words["second"].startswith(("holds: ", "DOES NOT HOLD: ", "not readable: ")):
        broken.append(f"the second checker says {words['second']!r}")
    if third is not None:
        with measured("the third checker", third.process.pid, broken):
            words["third"] = third(path).rstrip()
        if " is not read here" not in words["third"]:
            verdicts["third"] = words["third"].startswith("holds: ")
        if not words["third"].startswith(("holds: ", "DOES NOT HOLD: ", "not readable: ")):
            broken.append(f"the third checker says {words['third']!r}")
    if len({*verdicts.values()}) > 1:
        broken.append(f"they disagree: {verdicts} {words}")
    return verdicts.get("library", False), broken


def run(
    files: int, seed: int, third: Third | None, keep: Path | None = None, common: float = COMMON
) -> tuple[Counter[str], list[tuple[str, list[str]]]]:
    """How many were accepted and refused, and what was broken by which."""
    counts: Counter[str] = Counter()
    found: list[tuple[str, list[str]]] = []
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # What reads a kind of file for the first time may have to be compiled: that is not counted.
        for name in (*forging.PLAIN, *forging.OTHERS):
            judge(Sample(name, "honest", forging.honest(name)).write(Path(folder)), None)
        for number in range(files):
            given = sample(random.Random(f"{seed} {number}"), common)
            path = given.write(Path(folder))
            accepted, broken = judge(path, third)
            counts["accepted" if accepted else "refused"] += 1
            if broken:
                found.append((f"{seed} {number}: {given.name}", broken))
                if keep is not None:
                    (keep / f"{seed}-{number}.pmdp").write_bytes(given.data)
    return counts, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--common", type=float, default=COMMON, help="the share of plain tables")
    parser.add_argument("--keep", type=Path, help="a folder for the files that break a rule")
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    third = Third(BUILT) if BUILT.exists() else None
    start = time.perf_counter()
    counts, found = run(given.files, given.seed, third, given.keep, given.common)
    for name, broken in found:
        print(name, *broken, sep="\n    ")
    checkers = "three checkers" if third else "two checkers: the proofs are not built"
    print(
        f"{given.files} files, seed {given.seed}, {checkers}, {time.perf_counter() - start:.0f} s: "
        f"{json.dumps(counts)}, {len(found)} broke a rule"
    )
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
