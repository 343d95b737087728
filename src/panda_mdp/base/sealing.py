"""Calls whose errors leave no trace of what they saw.

A traceback holds the arguments and locals of every frame, and whatever collects errors collects
those. A function that sees a user's record or place is called through `attempt`: an error inside is
thrown away with its frames, and a new one without them is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from panda_mdp.errors import DomainError, MethodError, PandaError, SnapError

T = TypeVar("T")
P = ParamSpec("P")

SILENT = (SnapError, MethodError, DomainError)
"""Errors whose messages never show a record, a place or what follows from them."""


@dataclass(frozen=True)
class Failed:
    """What stays of an error: its kind and its silent message, no frames."""

    kind: type[BaseException]
    message: str

    def error(self) -> BaseException:
        """A new error, which has never seen the record."""
        return self.kind(self.message) if self.message else self.kind()


def attempt(action: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | Failed:
    """Call a function that sees the record; whatever it raises comes back without frames."""
    try:
        return action(*arguments, **options)
    except SILENT as error:
        return Failed(type(error), str(error))
    except PandaError as error:
        return Failed(MethodError, f"the draw failed ({type(error).__name__}); nothing was sent")
    except KeyboardInterrupt:
        return Failed(KeyboardInterrupt, "")
    except MemoryError:
        return Failed(MemoryError, "")
    except Exception as error:
        # The message of a foreign error may hold anything.
        return Failed(MethodError, f"the draw failed ({type(error).__name__}); nothing was sent")


def sealed(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose errors carry none of its frames, and no argument."""

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        outcome = attempt(function, *arguments, **options)
        # The frame of the error below must not hold them.
        del arguments, options
        if isinstance(outcome, Failed):
            raise outcome.error()
        return outcome

    return call
