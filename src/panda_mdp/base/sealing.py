"""Calls whose errors leave no trace of what they saw.

A traceback holds the arguments and locals of every frame, and whatever collects errors collects
those. A function that sees a user's record or place is `sealed`: an error inside is thrown away
with its frames, and a new one without them is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from panda_mdp.errors import DomainError, MethodError, SnapError

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
