"""The error tree is the one drawn at its top, and errors are what users expect to catch."""

from __future__ import annotations

import inspect
import re

import pytest

from panda_mdp import errors


def classes() -> dict[str, type[Exception]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, Exception)
        and value.__module__ == errors.__name__
        and not issubclass(value, Warning)
    }


def test_drawing_matches_the_classes():
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^ {4}((?:[│├└─ ]{4})*)([A-Z]\w+Error)\b", line)
        if found:
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else None
    assert drawn == {
        name: next((b.__name__ for b in cls.__bases__ if b.__name__ in classes()), None)
        for name, cls in classes().items()
    }


@pytest.mark.parametrize("name", sorted(classes()))
def test_every_error_is_ours_and_explained(name):
    error = classes()[name]
    assert issubclass(error, errors.PandaError)
    assert inspect.getdoc(error)
    assert str(error("the reason")) == "the reason"


@pytest.mark.parametrize(
    "error",
    [c for c in classes().values() if issubclass(c, errors.InvalidInputError)],
)
def test_errors_about_values_are_value_errors(error):
    assert issubclass(error, ValueError)


def test_builtin_bases():
    assert issubclass(errors.FileFormatError, ValueError)
    assert issubclass(errors.FileFormatError, OSError)
    assert issubclass(errors.MissingDependencyError, ImportError)
    assert issubclass(errors.SolverError, RuntimeError)
    assert str(errors.FileFormatError()) == ""
