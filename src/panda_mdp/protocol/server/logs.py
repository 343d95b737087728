"""Lines of the log, as text or as JSON. No field holds an address, a path, a token or a body.

A record may be of several requests that were answered together (`requests`): one line each.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class TextLines(logging.Formatter):
    """Time, level and message."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or one for each request."""
        seconds, rest = divmod(record.created, 1)
        day = datetime.fromtimestamp(seconds).isoformat(" ")
        start = f"{day},{int(1000 * rest):03d} {record.levelname} "
        message = record.getMessage()
        if hasattr(record, "requests"):
            message = message.replace("\n", f"\n{start}")
        return start + message


class JsonLines(logging.Formatter):
    """Time, level, logger and message, and for requests method, route, status and milliseconds."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or one for each request."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        requests = getattr(record, "requests", None)
        if requests is None:
            return json.dumps(line)
        messages = line["message"].split("\n")
        return "\n".join(
            json.dumps(line | {"message": message} | fields)
            for message, fields in zip(messages, requests, strict=True)
        )
