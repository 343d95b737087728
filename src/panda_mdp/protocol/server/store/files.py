"""Tables as bytes: what is uploaded, what is stored."""

from __future__ import annotations

from panda_mdp.errors import DomainError, FileFormatError, PrivacyError, ProblemError
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.pmdc import archive
from panda_mdp.table.pmdc.compact import CompactTable
from panda_mdp.table.pmdc.thin import thin
from panda_mdp.table.pmdp import decode as pmdp

_CONTENTS = (DomainError, ProblemError, PrivacyError)
_FIELDS = (LookupError, TypeError, ValueError, AttributeError)


def decode(data: bytes) -> Mechanism:
    """The mechanism of a .pmdp file, audited over all pairs."""
    return pmdp.decode(data)


def decode_compact(data: bytes, verify: bool = True) -> CompactTable:
    """The table of a .pmdc file; with `verify`, audited over all pairs."""
    try:
        return archive._read(data, verify)
    except FileFormatError:
        raise
    except _CONTENTS as error:
        raise FileFormatError(str(error)) from None
    except _FIELDS as error:
        msg = f"the header lacks a field or holds a wrong value: {error!r}"
        raise FileFormatError(msg) from None


def encode_compact(mechanism: Mechanism) -> bytes:
    """The bytes of a .pmdc file."""
    return archive._file(mechanism, thin(mechanism, archive.SLACK, archive.FLOOR_COST))
