"""Compact tables on disk: written whole or not at all, checked and audited when read."""

from __future__ import annotations

import math
import os
from pathlib import Path

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.floored import MOST_DENSE, FlooredRows
from panda_mdp.errors import MethodError, NotForReleaseError
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.problem import Problem
from panda_mdp.table.certificate import Expected, describe, output_arrays
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.pmdc import layout
from panda_mdp.table.pmdc.codec import BLOCK_ROWS, MOST_OUTPUTS, encode_block, spanning_order
from panda_mdp.table.pmdc.compact import CompactTable
from panda_mdp.table.pmdc.levels import level
from panda_mdp.table.pmdc.thin import Thin, thin
from panda_mdp.table.pmdp.decode import at_path

SLACK = 1e-3
FLOOR_COST = 1e-3
LARGE = MOST_DENSE
"""Entries beyond which rows over a floor are written as levels: what reads blocks alone, a browser
and the second checker, writes out whole tables and reads none so large."""
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
    data = encode(mechanism, slack=slack, floor_cost=floor_cost, large=LARGE)
    table = CompactTable(data)
    with atomic_file(Path(path)) as stream:
        stream.write(data)
    return table


def encode(
    mechanism: Mechanism,
    *,
    slack: float = SLACK,
    floor_cost: float = FLOOR_COST,
    large: float = math.inf,
) -> bytes:
    """The bytes of a compact file; see `save_compact`. Without `large` every reader reads them."""
    rows = mechanism.weights
    room = 1 - mechanism.audit.epsilon / mechanism.problem.epsilon
    if isinstance(rows, FlooredRows) and math.prod(rows.shape) > large and room >= slack / 2:
        return _levels(mechanism, rows, room)
    return _file(mechanism, thin(mechanism, slack, floor_cost))


def load_compact(
    path: str | os.PathLike[str], verify: bool = True, *, expected: Expected | None = None
) -> CompactTable:
    """Read a compact table, check it, and audit its weights over all pairs.

    Raises `FileFormatError` with the reason where the file is damaged, truncated, foreign, of an
    unknown version, or claims an epsilon that its weights do not keep; `PrivacyError` where it is
    not what was `expected`. `verify=False` is refused: `inspect` looks without verifying.
    """
    if not verify:
        msg = (
            "load_compact always verifies; panda_mdp.inspect(path) looks into a file without "
            "verifying"
        )
        raise MethodError(msg)
    return at_path(path, lambda data: decode(data, expected))


def decode(data: bytes, expected: Expected | None = None) -> CompactTable:
    """The table of a compact file's bytes, verified as by `load_compact`."""
    table = CompactTable(data)
    if expected is not None:
        expected.check(table.domain, table.epsilon)
    return table


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
    arrays, sections = _arrays(problem, order)
    header = describe(thinned.mechanism) | {
        "format": layout.FORMAT,
        "version": layout.VERSION if problem.reports.kind == "records" else layout.PLACED_VERSION,
        "arrays": arrays,
        "blocks": [len(block) for block in blocks],
        "compact": _price(mechanism, thinned.mechanism)
        | {
            "slack": thinned.slack,
            "floor_share": float(thinned.floors.sum()) / TOTAL,
            "raised_share": thinned.rows.raised_share,
        },
        "subject": thinned.mechanism.audit.subject,
    }
    if isinstance(thinned.mechanism.weights, FlooredRows):
        header["stored"] = thinned.mechanism.weights.stored
    sections["floors"] = layout.pack_integers(thinned.floors)
    return layout.pack(header, {**sections, "blocks": b"".join(blocks)})


def _levels(mechanism: Mechanism, rows: FlooredRows, room: float) -> bytes:
    levelled = level(mechanism, rows, room)
    arrays, sections = _arrays(mechanism.problem, levelled.order)
    header = describe(levelled.mechanism) | {
        "format": layout.FORMAT,
        "version": layout.LEVELS_VERSION,
        "arrays": arrays,
        "compact": _price(mechanism, levelled.mechanism)
        | {
            "slack": room,
            "floor_share": float(levelled.rows.floor.sum()) / TOTAL,
            "raised_share": levelled.rows.stored / math.prod(rows.shape),
        },
        "subject": levelled.mechanism.audit.subject,
    }
    return layout.pack({**header, **levelled.header}, {**sections, **levelled.sections})


def _price(mechanism: Mechanism, thinned: Mechanism) -> dict[str, float]:
    before, after = mechanism.loss, thinned.loss
    return {
        "loss_before": before,
        "loss_cost": (after - before) / before if before > 0 else 0.0,
    }


def _arrays(problem: Problem, order: IntArray) -> tuple[dict[str, str], dict[str, bytes]]:
    """How each array of the domain and the outputs is coded, and the sections of all of them."""
    domain = problem.domain
    arrays: dict[str, str] = {}
    sections = {
        "order": layout.pack_integers(order),
        "outputs": layout.pack_integers(problem.outputs),
    }
    for name, values in domain.metric.arrays().items():
        # Near in the file is near on the map, and near numbers are short.
        ordered = values[order] if name in ("lat", "lon") else values
        arrays[name], sections[name] = layout.pack_floats(ordered)
    for name, values in output_arrays(problem.reports).items():
        if name != "outputs":
            arrays[name], sections[name] = layout.pack_floats(values)
    if domain.nodes is not None:
        sections["nodes"] = layout.pack_integers(domain.nodes)
    return arrays, sections
