"""Every error that the library raises on purpose, and how solves end (`Stopped`).

    PandaError
    ├── InvalidInputError (ValueError)       a value breaks a rule
    │   ├── DomainError                      records or distances
    │   │   └── SnapError                    a place too far from every record
    │   ├── CityError                        a road network
    │   ├── ProblemError                     outputs, loss, prior, epsilon
    │   ├── MethodError                      an option of a method, or a problem it cannot take
    │   └── PrivacyError                     a guarantee that does not hold, or has none
    │       ├── NotForReleaseError           an attempt to release what has no guarantee
    │       └── InfeasibleError              PAnDA's parameters do not fit (epsilon, delta)
    │           ├── PhaseOneCostError        choosing anchors alone costs more than epsilon
    │           ├── ShortfallError           no anchor near enough, more often than delta
    │           ├── CoverageError            the margin misses likely records, beyond delta
    │           ├── SurrogateError           neighbours share no row, more often than delta
    │           └── EmptyAnchorsError        a user drew no anchor at all
    ├── FileFormatError (ValueError, OSError) a damaged, truncated or foreign file
    ├── MissingDependencyError (ImportError) an optional package is not installed
    ├── ProtocolError                        a server, a message or a key that cannot be trusted
    │   ├── SignatureError                   not signed by the key that is pinned
    │   ├── ServerError                      the server refused, with its code and remedy
    │   └── ConnectionLostError              no answer; what was charged is kept for a retry
    ├── LedgerError                          a user's ledger that cannot be relied on
    │   └── BudgetError                      a report would spend more than the user allows
    └── SolverError (RuntimeError)           a solver ended without an answer
        └── TimeLimitError                   there was no time for one

    GapWarning (UserWarning)                 a certified gap above the one that was asked for
    SlowerWarning (UserWarning)              the same result takes longer than it could

A message names the value, the rule and the remedy. It never contains a user's record or a seed:
indices that appear in messages come from public inputs (the domain, a matrix, an output list).

Errors of `sealed` functions leave no trace of what they saw.

A traceback holds the arguments and locals of every frame, and whatever collects errors collects
those. A function that sees a user's record or place is `sealed`: an error inside is thrown away
with its frames, and a new one without them is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import ParamSpec, TypeVar


class PandaError(Exception):
    """Base of all errors raised on purpose by this library."""


class InvalidInputError(PandaError, ValueError):
    """A value breaks a rule."""


class DomainError(InvalidInputError):
    """Records or distances that do not form a metric space of distinct points."""


class SnapError(DomainError):
    """A place lies farther from every record than the snap limit."""


class CityError(InvalidInputError):
    """A road network that cannot be used as it is."""


class ProblemError(InvalidInputError):
    """Outputs, loss, prior or epsilon that do not fit the domain."""


class MethodError(InvalidInputError):
    """An option of a method is out of range, or the method cannot take this problem."""


class PrivacyError(InvalidInputError):
    """A guarantee was asked for that the numbers do not give."""


class NotForReleaseError(PrivacyError):
    """Something without a guarantee, or drawn with a seed, was about to be released."""


class InfeasibleError(PrivacyError):
    """PAnDA's parameters do not fit (epsilon, delta): `value` exceeds `limit` at `pair`.

    `pair` holds two records of the domain, chosen over all records; no user's record is in it.
    """

    def __init__(
        self,
        message: str,
        *,
        value: float = float("nan"),
        limit: float = float("nan"),
        pair: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.value = value
        self.limit = limit
        self.pair = pair


class PhaseOneCostError(InfeasibleError):
    """Choosing anchors alone tells more than epsilon allows."""


class ShortfallError(InfeasibleError):
    """The chance that no anchor lies within the radius exceeds delta, so no margin suffices."""


class CoverageError(InfeasibleError):
    """The records that a margin covers are less likely than 1 - delta to hold the user's."""


class SurrogateError(InfeasibleError):
    """Two records use rows that are too different, more often than delta, for one anchor set."""


class EmptyAnchorsError(InfeasibleError):
    """A user drew no anchor at all, and so has no row to use."""


class FileFormatError(PandaError, ValueError, OSError):
    """A file is damaged, truncated, of a foreign format or of an unknown version."""

    def __str__(self) -> str:
        # OSError would render its arguments as an errno pair.
        return str(self.args[0]) if self.args else ""


class MissingDependencyError(PandaError, ImportError):
    """An optional package is needed for this and is not installed."""


class ProtocolError(PandaError):
    """A server, a message or a key that cannot be trusted or understood."""


class SignatureError(ProtocolError):
    """A signature, or the key that it should be by, is not the expected one."""


class ServerError(ProtocolError):
    """The server refused a request: its stable `code`, HTTP `status` and `remedy`."""

    def __init__(
        self, message: str, *, code: str = "unavailable", status: int = 0, remedy: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.remedy = remedy


class ConnectionLostError(ProtocolError):
    """The server could not be reached or did not answer. Whatever was charged is kept."""


class LedgerError(PandaError):
    """A ledger that is damaged, missing, locked, or not the one of its key."""


class BudgetError(LedgerError):
    """A report would spend more epsilon, delta or reports than the user allows in a period."""


class SolverError(PandaError, RuntimeError):
    """A solver ended without an answer that could be certified."""


class TimeLimitError(SolverError):
    """The time for some work was over before it had an answer; solvers end with what they have."""


class ScaleWarning(UserWarning):
    """Epsilon and the unit of distance do not fit each other: nothing, or all, would be hidden."""


class GapWarning(UserWarning):
    """A table is private and its bound holds, but its certified gap exceeds the one asked for."""


class SlowerWarning(UserWarning):
    """A faster way to the same result does not work on this machine, so another one is taken."""


T = TypeVar("T")
P = ParamSpec("P")

SILENT = (SnapError, MethodError, DomainError)
"""Errors whose messages never show a record, a place or what follows from them."""


def sealed(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose errors carry none of its frames, and no argument."""

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        silent: BaseException
        try:
            return function(*arguments, **options)
        except SILENT as error:
            silent = type(error)(str(error))
        except (KeyboardInterrupt, MemoryError) as error:
            silent = type(error)()
        except Exception as error:
            # The message of a foreign error may hold anything.
            silent = MethodError(f"the draw failed ({type(error).__name__}); nothing was sent")
        # The frame of the error below must not hold them.
        del arguments, options
        raise silent

    return call


class Stopped(StrEnum):
    """Why a solve ended; `explanation` says what that means for the table that came of it.

    The members are strings, so files and tables that hold the bare words remain readable:

    >>> Stopped("gap reached") is Stopped.GAP_REACHED, Stopped.TIME_LIMIT == "time limit"
    (True, True)
    """

    explanation: str

    def __new__(cls, value: str, explanation: str) -> Stopped:
        member = str.__new__(cls, value)
        member._value_ = value
        member.explanation = explanation
        return member

    GAP_REACHED = (
        "gap reached",
        "the certified gap, loss over lower bound, is at most the one asked for",
    )
    NEGLIGIBLE = (
        "negligible",
        "what is left above the lower bound is below 1e-7 of the least loss that ignores the "
        "record; a relative gap says little about an optimum this near 0",
    )
    PRECISION_REACHED = (
        "precision reached",
        "neither loss nor bound moves any more at the solver's precision, and the gap asked for is "
        "not certified",
    )
    ITERATIONS = (
        "iterations",
        "the most iterations were made and the gap asked for is not certified",
    )
    TIME_LIMIT = ("time limit", "the time given was over; the table is the best so far")
    INTERRUPTED = ("interrupted", "it was interrupted; the table is the best so far")
    SOLVED = ("solved", "the LP solver says that it solved its LP; the bound says how well")
    FAILED = (
        "failed",
        "the LP solver ended without an answer; the table is the best of those at hand",
    )

    @property
    def by_request(self) -> bool:
        """Whether the caller ended it, by a limit or an interrupt."""
        return self in (Stopped.TIME_LIMIT, Stopped.INTERRUPTED)
