"""Every command and every option is documented in docs/cli.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.main import get_command

from panda_mdp.cli import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def flat(group: Any, prefix: str = "") -> dict[str, Any]:
    """Commands by their full names, those of groups included."""
    found = {}
    for name, command in group.commands.items():
        nested = getattr(command, "commands", None) is not None
        found |= flat(command, f"{prefix}{name} ") if nested else {f"{prefix}{name}": command}
    return found


COMMANDS = flat(get_command(app))


def section(command: str) -> str:
    """The text of a command's section."""
    found = re.search(rf"^## `{command}`$(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    assert found, f"docs/cli.md has no section ## `{command}`"
    return found.group(1)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_command_is_documented(command: str) -> None:
    text = section(command)
    assert f"panda-mdp {command}" in text
    for parameter in COMMANDS[command].params:
        if parameter.param_type_name == "argument":
            assert parameter.metavar in text
            continue
        for name in parameter.opts:
            assert f"| `{name}" in text, f"{name} of {command} is not documented"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_command_and_options_have_help(command: str) -> None:
    assert COMMANDS[command].help
    for parameter in COMMANDS[command].params:
        assert parameter.help, f"{parameter.name} of {command} has no help"


def test_nothing_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"^## `([\w ]+)`$", PAGE.read_text(), re.M)) == set(COMMANDS)
    for command in COMMANDS:
        known = {name for parameter in COMMANDS[command].params for name in parameter.opts}
        for name in re.findall(r"^\| `(--[\w-]+)", section(command), re.M):
            assert name in known, f"docs/cli.md names {name}, which {command} does not have"


def test_addresses_of_pip_lines_name_a_host() -> None:
    """pip of Python 3.11 refuses `git+file:///path`: a requirement's address has a host."""
    lines = re.findall(r"pip install '[^']+ @ ([^']+)'", PAGE.with_name("install.md").read_text())
    assert lines and all(urlsplit(address).netloc for address in lines)
