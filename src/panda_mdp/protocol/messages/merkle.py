"""A hash tree over a list that only grows (RFC 6962, section 2): its root, and proofs about it.

    leaf   SHA-256(0x00 || entry)        node   SHA-256(0x01 || left || right)

A tree of n > 1 leaves has the largest power of two below n on its left side. `inclusion` shows that
a leaf is in a tree, `consistency` that a tree is the beginning of a longer one; both have at most
about log2(n) hashes.

>>> leaves = [leaf_hash(bytes([k])) for k in range(5)]
>>> check_inclusion(leaves[3], 3, 5, inclusion(leaves, 3), root_of(leaves))
True
>>> check_consistency(3, 5, root_of(leaves[:3]), root_of(leaves), consistency(leaves, 3))
True
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def leaf_hash(entry: bytes) -> bytes:
    """The hash of an entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over leaves; of none, the hash of nothing."""
    if not leaves:
        return hashlib.sha256().digest()
    full: list[tuple[int, bytes]] = []
    for leaf in leaves:
        size, top = 1, leaf
        while full and full[-1][0] == size:
            top = _node(full.pop()[1], top)
            size *= 2
        full.append((size, top))
    top = full.pop()[1]
    while full:
        top = _node(full.pop()[1], top)
    return top


def _split(size: int) -> int:
    return 1 << ((size - 1).bit_length() - 1)


def inclusion(leaves: Sequence[bytes], number: int) -> list[bytes]:
    """The hashes beside the way from leaf `number` to the root, from below."""
    if len(leaves) <= 1:
        return []
    half = _split(len(leaves))
    if number < half:
        return [*inclusion(leaves[:half], number), root_of(leaves[half:])]
    return [*inclusion(leaves[half:], number - half), root_of(leaves[:half])]


def consistency(leaves: Sequence[bytes], first: int) -> list[bytes]:
    """The hashes that show that the first leaves, 1 .. len(leaves) of them, are a beginning."""
    return _consistency(leaves, first, True)


def _consistency(leaves: Sequence[bytes], first: int, whole: bool) -> list[bytes]:
    if first == len(leaves):
        return [] if whole else [root_of(leaves)]
    half = _split(len(leaves))
    if first <= half:
        return [*_consistency(leaves[:half], first, whole), root_of(leaves[half:])]
    return [*_consistency(leaves[half:], first - half, False), root_of(leaves[:half])]


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
