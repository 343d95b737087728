"""The log's tree against its definition, written down once more, and every forgery that is near."""

from __future__ import annotations

import hashlib

from panda_mdp.protocol.messages.log import (
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
