"""The command `panda-mdp`: a thin skin over the library."""

from panda_mdp.cli.app import app, main

__all__ = ["app", "main"]
