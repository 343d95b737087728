"""How a solve ended: one vocabulary for every solver, each word with its explanation."""

from __future__ import annotations

from enum import StrEnum


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
