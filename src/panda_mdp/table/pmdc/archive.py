"""Compact tables on disk: written whole or not at all, checked and audited when read."""

from __future__ import annotations

import errno
import itertools
import math
import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import frozen
from panda_mdp.base.atomic import atomic_file
from panda_mdp.errors import (
    DomainError,
    FileFormatError,
    MethodError,
    NotForReleaseError,
    PrivacyError,
    ProblemError,
)
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.space.domain import check_indices
from panda_mdp.table import claims
from panda_mdp.table.certificate import describe
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.pmdc import layout
from panda_mdp.table.pmdc.codec import BLOCK_ROWS, MOST_OUTPUTS, encode_block, spanning_order
from panda_mdp.table.pmdc.compact import CompactTable
from panda_mdp.table.pmdc.thin import Thin, thin
from panda_mdp.table.pmdp.decode import build_domain

SLACK = 1e-3
FLOOR_COST = 1e-3
SUFFIX = ".pmdc"
"""The suffix by convention; nothing depends on it."""


def save_compact(
    mechanism: Mechanism,
    path: str | os.PathLike[str],
    *,
    slack: float = SLACK,
    floor_cost: float = FLOOR_COST,
) -> CompactTable:
    """Write a table as a small file and return it as `load_compact` would.

    Entries below a floor are raised to it, the others are rounded to as few digits as the distance
    to the nearest record allows, and rows are stored as differences from near rows: about 2.5 MB
    for 43,160 records x 100 outputs, against 52 MB of `mechanism.save`.

    Guarantee: epsilon-mDP over all pairs, audited on the integers that the file decodes to. The
    price is in the loss: at most the share `floor_cost` for the floor, and what it costs to keep
    the share `slack` of epsilon free for rounding, about as much. `loss_cost` states the sum.

    The file holds domain, outputs, weights and certificate, but no losses and no prior. Raises
    `NotForReleaseError` for anything but a `Mechanism`.
    """
    if not isinstance(mechanism, Mechanism):
        msg = f"a {type(mechanism).__name__} is not for release; only a Mechanism can be saved"
        raise NotForReleaseError(msg)
    if mechanism.problem.outputs_count > MOST_OUTPUTS:
        msg = f"{mechanism.problem.outputs_count} outputs; a compact table has up to {MOST_OUTPUTS}"
        raise MethodError(msg)
    data = _file(mechanism, thin(mechanism, slack, floor_cost))
    table = _read(data, verify=True)
    with atomic_file(Path(path)) as stream:
        stream.write(data)
    return table


def load_compact(path: str | os.PathLike[str], verify: bool = True) -> CompactTable:
    """Read a compact table, check it, and by default audit its weights over all pairs.

    Raises `FileFormatError` with the reason where the file is damaged, truncated, foreign, of an
    unknown version, or claims an epsilon that its weights do not keep. `verify=False` checks the
    checksum and takes the audit from the certificate; rows are then decoded only when asked for.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT, "there is no compact table here; save_compact writes one", str(path)
        ) from None
    try:
        return _read(data, verify)
    except (DomainError, ProblemError, PrivacyError, FileFormatError) as error:
        msg = f"{path}: {error}"
        raise FileFormatError(msg) from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        msg = f"{path}: the header lacks a field or holds a wrong value: {error!r}"
        raise FileFormatError(msg) from error


def _file(mechanism: Mechanism, thinned: Thin) -> bytes:
    problem, domain = mechanism.problem, mechanism.problem.domain
    order = domain.tiles.order.copy()
    blocks = []
    for start in range(0, domain.size, BLOCK_ROWS):
        members = order[start : start + BLOCK_ROWS]
        along, parent = spanning_order(domain.distances(members, members))
        order[start : start + BLOCK_ROWS] = members[along]
        rows = thinned.rows.take(order[start : start + BLOCK_ROWS])
        blocks.append(encode_block(rows, parent, thinned.floors))
    header = describe(thinned.mechanism)
    arrays: dict[str, str] = {}
    sections = {
        "order": layout.pack_integers(order),
        "outputs": layout.pack_integers(problem.outputs),
        "floors": layout.pack_integers(thinned.floors),
    }
    for name, values in domain.metric.arrays().items():
        # Near in the file is near on the map, and near numbers are short.
        ordered = values[order] if name in ("lat", "lon") else values
        arrays[name], sections[name] = layout.pack_floats(ordered)
    if domain.nodes is not None:
        sections["nodes"] = layout.pack_integers(domain.nodes)
    before, after = mechanism.loss, thinned.mechanism.loss
    header |= {
        "format": layout.FORMAT,
        "version": layout.VERSION,
        "arrays": arrays,
        "blocks": [len(block) for block in blocks],
        "compact": {
            "loss_before": before,
            "loss_cost": (after - before) / before if before > 0 else 0.0,
            "slack": thinned.slack,
            "floor_share": float(thinned.floors.sum()) / TOTAL,
            "raised_share": float(thinned.rows.raised.mean()),
        },
        "subject": thinned.mechanism.audit.subject,
    }
    return layout.pack(header, {**sections, "blocks": b"".join(blocks)})


def _read(data: bytes, verify: bool) -> CompactTable:
    header, sections = layout.unpack(data)
    shapes = claims.shapes(header)
    (size, count), kind = shapes["weights"], header["domain"]["kind"]
    if count > MOST_OUTPUTS:
        msg = f"{count} outputs; a compact table has up to {MOST_OUTPUTS}"
        raise FileFormatError(msg)
    if set(sections) != {"order", "floors", "blocks", *shapes} - {"weights"}:
        msg = f"the file holds the sections {sorted(sections)}; others belong to its domain"
        raise FileFormatError(msg)
    claims.check_unpacked(sum(8 * math.prod(shape) for shape in shapes.values()), len(data))
    order = layout.unpack_integers(sections["order"], size)
    if not np.array_equal(np.sort(order), np.arange(size)):
        msg = "the order of the rows does not name every record once; the file is damaged"
        raise FileFormatError(msg)
    floors = layout.unpack_integers(sections["floors"], count)
    if (floors < 0).any() or floors.sum(dtype=np.float64) > TOTAL:
        msg = "the floors are not weights; the file is damaged"
        raise FileFormatError(msg)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in claims.KINDS[kind]:
        flat = layout.unpack_floats(header["arrays"][name], sections[name], math.prod(shapes[name]))
        arrays[name] = flat.reshape(shapes[name])
        if name in ("lat", "lon"):
            arrays[name] = np.empty(size)
            arrays[name][order] = flat
    if "nodes" in shapes:
        arrays["nodes"] = layout.unpack_integers(sections["nodes"], size)
    domain = build_domain(header["domain"], arrays, verify)
    outputs = check_indices(
        layout.unpack_integers(sections["outputs"], count), size, "outputs", ProblemError
    )
    if len(np.unique(outputs)) < count:
        msg = "an output is named twice; the file was forged"
        raise FileFormatError(msg)
    stated = claims.stated_audit(header, domain, str(header["subject"]))
    table = CompactTable(
        domain=domain,
        outputs=frozen(outputs),
        audit=stated,
        certificate=MappingProxyType(header),
        size_bytes=len(data),
        _floors=frozen(floors),
        _order=frozen(order),
        _blocks=_blocks(sections["blocks"], header["blocks"], size),
    )
    if verify:
        table = table.audited()
        claims.check_audit(stated, table.audit, domain, outputs)
    claims.check_words(header, domain.unit)
    claims.check_bound(header, claims.real(header, "loss"))
    return table


def _blocks(data: bytes, lengths: list[int], size: int) -> tuple[bytes, ...]:
    ends = np.cumsum([0, *lengths])
    wanted = -(-size // BLOCK_ROWS)
    if len(lengths) != wanted or ends[-1] != len(data) or (np.diff(ends) < 0).any():
        msg = f"{wanted} blocks of rows do not fit the file; it is damaged"
        raise FileFormatError(msg)
    return tuple(data[a:b] for a, b in itertools.pairwise(ends))
