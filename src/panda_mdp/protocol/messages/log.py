"""The log of everything that an operator signed for good: a hash tree (RFC 6962), and its messages.

    leaf   SHA-256(0x00 || entry)        node   SHA-256(0x01 || left || right)

A tree of n > 1 leaves has the largest power of two below n on its left side. The whole list is
published, so that whoever looks computes the roots of its beginnings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from panda_mdp.errors import SignatureError
from panda_mdp.protocol.messages.blind import Issuer
from panda_mdp.protocol.messages.signing import Keyring, Signed, signed_bytes
from panda_mdp.protocol.messages.types import Base64, Count, Message, Sha256

MOST_LEAVES = 100_000
MOST_WITNESSES = 16


def leaf_hash(entry: bytes) -> bytes:
    """The hash of an entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over leaves; of none, the hash of nothing.

    >>> root_of([leaf_hash(b"")]).hex()[:16]
    '6e340b9cffb37a98'
    """
    return levels_of(leaves)[-1][0] if leaves else hashlib.sha256().digest()


def levels_of(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """All nodes of the tree over leaves, from those up to the root; a last one without a sibling
    goes up as it is."""
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        nodes = levels[-1]
        pairs = zip(nodes[::2], nodes[1::2], strict=False)
        above = [hashlib.sha256(b"\x01" + left + right).digest() for left, right in pairs]
        levels.append(above + nodes[2 * len(above) :])
    return levels


def root_from(known: dict[int, bytes], count: int, sibling: Callable[[int, int], bytes]) -> bytes:
    """The root of the tree over `count` leaves, of which some are known, by number. What lies
    beside them `sibling` gives by level and number, always in the same order. A leaf beyond the
    tree is a `ValueError`: nothing would look at it."""
    if max(known) >= count:
        raise ValueError("a leaf beyond the tree")
    level = 0
    while count > 1:
        above: dict[int, bytes] = {}
        for at in sorted(known):
            if at // 2 in above:
                continue
            node = known[at]
            if at ^ 1 < count:
                other = known.get(at ^ 1) or sibling(level, at ^ 1)
                left, right = (other, node) if at % 2 else (node, other)
                node = hashlib.sha256(b"\x01" + left + right).digest()
            above[at // 2] = node
        known = above
        count = (count + 1) // 2
        level = level + 1
    return known[0]


class LogHead(Signed):
    """The log's length and root (`root_of`), signed by the operator."""

    size: Count
    root: Sha256
    at: Count
    """Milliseconds since 1970."""

    @property
    def signed(self) -> bytes:
        """What the operator signs."""
        return signed_bytes("log", self.size, self.root, self.at)


class CoSigned(LogHead):
    """POST /v1/log/witnesses: a length and root that a witness has seen, and signs for everybody.

    Whoever trusts it need not compare heads with others: an operator who shows two logs would have
    to show both to the witness, who signs one.
    """

    public: Base64
    """The witness's key."""

    @property
    def signed(self) -> bytes:
        """What the witness signs."""
        return signed_bytes("witness", self.size, self.root, self.at)


class Log(Message):
    """GET /v1/log: the latest head and the hashes of all entries.

    All of them, for everybody: a client that asked for a proof from where it was would tell which
    head it saw last, and a server could give everybody another one.
    """

    head: LogHead
    leaves: Annotated[list[Sha256], Field(max_length=MOST_LEAVES)]
    witnesses: Annotated[list[CoSigned], Field(max_length=MOST_WITNESSES, default_factory=list)]

    def verify(self, keys: Keyring) -> None:
        """Raise `SignatureError` unless the head is signed and is that of the entries."""
        self.head.verify(keys)
        if len(self.leaves) != self.head.size or not self.continues(self.head):
            raise SignatureError(
                "the entries of the server's log are not those that its operator signed"
            )

    def continues(self, head: LogHead) -> bool:
        """Whether a head is that of the first entries."""
        first = [bytes.fromhex(leaf) for leaf in self.leaves[: head.size]]
        return len(first) == head.size and root_of(first).hex() == head.root

    def number_of(self, entry: bytes, what: str) -> int:
        """The number of an entry, which must be in the log."""
        leaf = leaf_hash(entry).hex()
        if leaf not in self.leaves:
            raise SignatureError(
                f"{what} is signed and not in the operator's log: it was made for you alone, or is "
                "not published yet; do not report"
            )
        return self.leaves.index(leaf)

    def check_round(self, name: str, number: int | None) -> None:
        """Refuse a round that is not the latest one: its number is in the address of what is sent,
        so one that a server shows to a single user would mark that user."""
        if number is None:
            return
        what = f"round {number} of deployment {name}"
        self.number_of(signed_bytes("round", name, number), what)
        if leaf_hash(signed_bytes("round", name, number + 1)).hex() in self.leaves:
            raise SignatureError(f"{what} is over by the log; do not report")

    def check_issuer(self, name: str, issuer: Issuer) -> None:
        """Refuse a key of one-use tokens that is not the one of its period: a key for a single user
        would mark what it signs. A period is in the log once, and its key right behind it."""
        period = str(issuer.period)
        what = f"the key of one-use tokens of deployment {name}"
        first = self.number_of(signed_bytes("issuer", name, period), what)
        number = self.number_of(signed_bytes("issuer", name, period, issuer.modulus), what)
        if number != first + 1 or self.leaves.count(self.leaves[first]) > 1:
            raise SignatureError(f"{what} is not the only one of its period; do not report")


class LogEntries(Message):
    """GET /v1/log/entries: the entries as they were signed, from a number on."""

    first: Count
    entries: Annotated[list[Annotated[str, Field(max_length=2_000)]], Field(max_length=1_000)]
