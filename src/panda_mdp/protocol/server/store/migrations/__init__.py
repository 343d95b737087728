"""How a database of an earlier layout becomes one of this version (Alembic).

Versions are numbered; `schema.VERSION` is the latest. A database that was made before migrations
existed has layout 1 and is taken from there.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect

FIRST = "1"


def upgrade(connection: Connection) -> None:
    """Bring a database, empty or of any earlier layout, to the latest, in the open transaction."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    known = MigrationContext.configure(connection).get_current_revision()
    if known is None and inspect(connection).has_table("reports"):
        command.stamp(config, FIRST)
    command.upgrade(config, "head")
