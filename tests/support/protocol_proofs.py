"""What somebody who watches a log checks its proofs with (RFC 6962, 2.1.1 and 2.1.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def check_inclusion(
    leaf: bytes, number: int, size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """Whether a proof shows that a tree of `size` leaves has the leaf at `number`."""
    if not 0 <= number < size:
        return False
    at, last, top = number, size - 1, leaf
    for beside in proof:
        if last == 0:
            return False
        if at & 1 or at == last:
            top = _node(beside, top)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            top = _node(top, beside)
        at, last = at >> 1, last >> 1
    return last == 0 and top == root


def check_consistency(
    first: int, second: int, first_root: bytes, second_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Whether a proof shows that one tree is the beginning of another."""
    if not 1 <= first <= second:
        return False
    if first == second:
        return not proof and first_root == second_root
    steps = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    if not steps:
        return False
    at, last = first - 1, second - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    before = after = steps[0]
    for beside in steps[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            before, after = _node(beside, before), _node(beside, after)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            after = _node(after, beside)
        at, last = at >> 1, last >> 1
    return last == 0 and before == first_root and after == second_root
