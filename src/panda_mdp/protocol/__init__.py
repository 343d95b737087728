"""PAnDA and public tables as a service: messages, a client, a ledger and a server.

    from panda_mdp.protocol import Allowance, Client

The record never leaves the client (docs/protocol.md). Parts are imported where they are used: the
client needs the extra `client`, the server the extra `server`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from panda_mdp.base.packages import need

if TYPE_CHECKING:
    from panda_mdp.protocol.client.client import Answer, Client
    from panda_mdp.protocol.client.plans import Plan, Record
    from panda_mdp.protocol.client.wire import Network
    from panda_mdp.protocol.ledger.books import Allowance
    from panda_mdp.protocol.ledger.ledger import Ledger
    from panda_mdp.protocol.messages.signing import SigningKey, VerifyKey

__all__ = [
    "Allowance",
    "Answer",
    "Client",
    "Ledger",
    "Network",
    "Plan",
    "Record",
    "SigningKey",
    "VerifyKey",
]

_HOMES = {
    "Allowance": "ledger.books",
    "Answer": "client.client",
    "Client": "client.client",
    "Ledger": "ledger.ledger",
    "Network": "client.wire",
    "Plan": "client.plans",
    "Record": "client.plans",
    "SigningKey": "messages.signing",
    "VerifyKey": "messages.signing",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for; say which extra is missing where one is."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(need(f"{__name__}.{_HOMES[name]}", "the protocol", "client"), name)
