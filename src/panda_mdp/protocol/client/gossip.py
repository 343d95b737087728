"""Heads of a server's log, passed on from person to person, on paper or by mail.

A server that shows two people two logs can keep that up only as long as they never compare: a
head that one of them was shown is not a beginning of the other's log, and both are signed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from panda_mdp.errors import FileFormatError, SignatureError
from panda_mdp.protocol.client.trust import check_head
from panda_mdp.protocol.messages.log import LogHead
from panda_mdp.protocol.messages.merkle import root_of
from panda_mdp.protocol.messages.signing import head_bytes

if TYPE_CHECKING:
    from panda_mdp.protocol.client.client import Client


def head_line(head: LogHead) -> str:
    """A head as one line. It says nothing about whoever passes it on but the time."""
    return head.model_dump_json()


def compare_heads(client: Client, text: str) -> int:
    """How many heads of a text are of the log that this client is shown; raises for another.

    Raises `SignatureError` where somebody was shown a log that is not this one.
    """
    log, keys = client.log(), client.key
    leaves = check_head(log, keys)
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines:
        try:
            head = LogHead.model_validate_json(line)
        except ValidationError:
            msg = "a line is not a head; `panda-mdp client heads` prints one"
            raise FileFormatError(msg) from None
        keys.verify(head_bytes(head.size, head.root, head.at), head.signature)
        if head.size > len(leaves):
            msg = (
                f"somebody was shown a log of {head.size} entries and you are shown {len(leaves)}: "
                "compare again in a minute; if it stays so, you are shown a past state"
            )
            raise SignatureError(msg)
        if root_of(leaves[: head.size]).hex() != head.root:
            msg = (
                f"somebody was shown another log of {head.size} entries than you: the operator "
                "shows different things to different people. Both heads are signed; keep them as "
                "proof, and do not report"
            )
            raise SignatureError(msg)
    client.trust.pin_log(client.server, log.head)
    return len(lines)
