"""What an operator can set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Limits and places of one server. Rates are requests per second."""

    token_rate: float = 50.0
    token_burst: float = 200.0
    address_rate: float = 50.0
    """Of requests without a valid token, per address."""
    address_burst: float = 500.0
    table_bytes: int = 512 << 20
    """Largest file that may be published."""
    document_bytes: int = 64 << 20
    """Largest JSON body of an operator: domains, jobs, deployments."""
    anchors_bytes: int = 8 << 20
    small_bytes: int = 64 << 10
    """Every other body."""
    body_seconds: float = 60.0
    """A body must have arrived by then."""
    header_bytes: int = 32 << 10
    header_seconds: float = 15.0
    """A request's header must have arrived by then."""
    connections: int = 4_000
    """At once; further ones are refused."""
    reporters_bytes: int = 64 << 20
    """All bodies of reporters that are in memory at once."""
    queued_reports: int = 20_000
    """Reports that may wait for the disk before the server says that it is busy."""
    batch_reports: int = 1_000
    """Reports that share one commit."""
    cached_bytes: int = 256 << 20
    """Tables and balls kept in memory."""
    retention_days: int | None = None
    """What users sent is deleted after so many days, sooner where a deployment says so."""
    cors_origins: tuple[str, ...] = ()
    """Other origins whose pages may use the API; none by default."""
    log_addresses: bool = False
    static: Path = Path(__file__).parents[1] / "static"
    poll_seconds: float = 0.25
    """How often rounds, jobs and changes by other processes are looked at."""
