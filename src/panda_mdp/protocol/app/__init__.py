"""The server's application: routes over the store, and what surrounds them."""

from panda_mdp.protocol.app.factory import Server, create_app

__all__ = ["Server", "create_app"]
