"""Files looked into, not verified: what can be read, and neither sampled, saved nor served."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.pmdc import layout
from panda_mdp.table.pmdc.compact import CompactTable
from panda_mdp.table.pmdp import decode as pmdp


@dataclass(frozen=True, eq=False)
class Unverified:
    """What a file says about itself. Only its checksums were looked at: none of it is proved."""

    certificate: Mapping[str, Any]
    data: bytes = field(repr=False)

    def __repr__(self) -> str:
        claims = self.certificate
        return (
            f"Unverified({claims.get('method')}, claims epsilon {claims.get('epsilon')} "
            f"{claims.get('epsilon_unit', '')}; NOT VERIFIED, NO PRIVACY GUARANTEE)"
        )

    def __reduce__(self) -> tuple[Callable[[bytes], Unverified], tuple[bytes]]:
        return _look, (self.data,)

    def verified(self) -> Mechanism | CompactTable:
        """The table, read and audited over all pairs; `FileFormatError` where it does not hold."""
        return CompactTable(self.data) if is_compact(self.data) else pmdp.decode(self.data)


def inspect(path: str | os.PathLike[str]) -> Unverified:
    """Look into a `.pmdp` or compact file; checksums are checked and nothing else."""
    return pmdp.at_path(path, _look)


def decode(data: bytes) -> Mechanism | CompactTable:
    """The verified table of a file's bytes, of either format."""
    return _look(data).verified()


def is_compact(data: bytes) -> bool:
    """Whether these are the bytes of a compact file."""
    return data.startswith(layout.MAGIC)


def _look(data: bytes) -> Unverified:
    header = layout.unpack(data)[0] if is_compact(data) else pmdp.unpack(data)[0]
    return Unverified(MappingProxyType(header), data)
