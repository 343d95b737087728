"""The log's tree against its definition, written down once more, and every forgery that is near."""

from __future__ import annotations

import hashlib

import pytest
from protocol_proofs import check_consistency, check_inclusion

from panda_mdp.protocol.messages.log import (
    consistency,
    inclusion,
    leaf_hash,
    root_of,
)

MOST = 33


def entries(count: int, salt: int = 0) -> list[bytes]:
    return [b"%d %d" % (salt, k) for k in range(count)]


def defined_root(given: list[bytes]) -> bytes:
    """RFC 6962, 2.1, word by word, over entries."""
    if not given:
        return hashlib.sha256(b"").digest()
    if len(given) == 1:
        return hashlib.sha256(b"\x00" + given[0]).digest()
    k = 1
    while 2 * k < len(given):
        k *= 2
    sides = defined_root(given[:k]) + defined_root(given[k:])
    return hashlib.sha256(b"\x01" + sides).digest()


def test_roots_are_those_of_the_definition() -> None:
    for size in range(MOST):
        given = entries(size)
        assert root_of([leaf_hash(entry) for entry in given]) == defined_root(given)


def test_a_known_root() -> None:
    """The first test vector of RFC 6962's reference: the tree over one empty entry."""
    found = root_of([leaf_hash(b"")]).hex()
    assert found == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"


def test_every_leaf_is_shown_and_no_other() -> None:
    for size in range(1, MOST):
        leaves = [leaf_hash(entry) for entry in entries(size)]
        root = root_of(leaves)
        for number in range(size):
            proof = inclusion(leaves, number)
            for other in range(size):
                # By brute force: the proof of one place shows one leaf at one place.
                for place in range(size):
                    right = other == number == place
                    assert check_inclusion(leaves[other], place, size, proof, root) == right
            assert not check_inclusion(leaves[number], number, size, proof[:-1], root) or not proof
            assert not check_inclusion(leaves[number], number, size, [*proof, root], root)


def test_every_beginning_is_shown_and_no_other() -> None:
    for size in range(1, MOST):
        leaves = [leaf_hash(entry) for entry in entries(size)]
        roots = [root_of(leaves[:k]) for k in range(size + 1)]
        for first in range(1, size + 1):
            proof = consistency(leaves, first)
            for other in range(1, size + 1):
                shown = check_consistency(first, size, roots[other], roots[size], proof)
                assert shown == (other == first)
            assert not check_consistency(first, size, roots[first], roots[size - 1], proof)
            assert not check_consistency(first, size, roots[first], roots[size], [*proof, roots[1]])
            if proof:
                assert not check_consistency(first, size, roots[first], roots[size], proof[:-1])


def test_another_history_has_no_proof() -> None:
    """Whatever proof of whichever length a server makes from what it has."""
    mine = [leaf_hash(entry) for entry in entries(6)]
    theirs = [leaf_hash(entry) for entry in [*entries(4), *entries(5, salt=1)]]
    for size in range(6, 10):
        for first in range(1, size + 1):
            proof = consistency(theirs[:size], first)
            assert not check_consistency(6, size, root_of(mine), root_of(theirs[:size]), proof)


@pytest.mark.parametrize(("first", "second"), [(0, 3), (4, 3), (-1, 3)])
def test_impossible_sizes(first: int, second: int) -> None:
    root = root_of([leaf_hash(b"")] * 3)
    assert not check_consistency(first, second, root, root, [])
    assert not check_inclusion(leaf_hash(b""), 3, 3, [], root)
