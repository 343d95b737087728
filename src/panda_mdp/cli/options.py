"""Arguments and options that several commands share: their bounds are declared, not checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer

from panda_mdp.base.text import Facts, picked, present
from panda_mdp.city.draw import Source, draw_displacement, draw_problem
from panda_mdp.city.traces import load_prior
from panda_mdp.cli.frame import check_target
from panda_mdp.problem import Problem
from panda_mdp.table.decode import Expected

ALL = 0
"""What the word 'all' stands for among counts."""
PARAGRAPH = re.compile(r"^(\w+)(?: ([^:\n]+))?: (.+(?:\n +.+)*)", re.M)
Command = TypeVar("Command", bound=Callable[..., None])


def described(command: Command) -> Command:
    """A command, with what its docstring says of its parameters.

    Below the line `Options:` a parameter has a paragraph: its name, the placeholder of its value
    (switches have none), a colon, and the help. Its type may declare bounds beside that. A
    parameter whose type is a dataclass stands for the dataclass's fields, which are declared and
    described there for all commands that take them.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: Facts = {}
    parameters: dict[str, inspect.Parameter] = {}
    for name, one in signature.parameters.items():
        if not is_dataclass(one.annotation):
            parameters[name] = one
            continue
        groups[name] = group = cast("Any", one.annotation)
        parameters |= inspect.signature(group, eval_str=True).parameters
    for thing in (*groups.values(), command):
        _describe(parameters, thing.__doc__ or "")

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{one.name: given.pop(one.name) for one in fields(group)})
        command(**given)

    listed = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters.values()]
    run.__dict__["__signature__"] = signature.replace(parameters=listed)
    run.__annotations__ = {one.name: one.annotation for one in listed}
    run.__doc__ = (command.__doc__ or "").partition("Options:\n")[0].rstrip()
    return cast("Command", run)


def _describe(parameters: dict[str, inspect.Parameter], text: str) -> None:
    """Give parameters the placeholders and the help of a docstring."""
    for name, placeholder, words in PARAGRAPH.findall(
        inspect.cleandoc(text.partition("Options:\n")[2])
    ):
        default = parameters[name].default
        kind = parameters[name].annotation
        declared = getattr(kind, "__metadata__", None)
        if declared:
            kind = kind.__origin__
            described_as = copy(declared[0])
        elif default is inspect.Parameter.empty:
            described_as = typer.Argument()
        else:
            # Without its own name a switch would have a second one, --no-...
            names = (f"--{name.replace('_', '-')}",) if default is False else ()
            described_as = typer.Option(*names)
        described_as.metavar = placeholder or None
        described_as.help = " ".join(words.split())
        parameters[name] = parameters[name].replace(annotation=Annotated[kind, described_as])


def require(holds: object, message: str, option: str | None = None) -> None:
    """Refuse options that do not go together, in words that say what does."""
    if not holds:
        raise typer.BadParameter(message, param_hint=option)


def check_table(path: Path) -> Path:
    """A path for a table; refused before the work where none could be written there."""
    require(path.suffix == ".pmdp", f"{path.name} does not end in .pmdp", "--out")
    check_target(path)
    return path


def is_page(path: Path) -> bool:
    """Whether a target is a page to look around in, and no picture."""
    return path.suffix.lower() in (".html", ".htm")


def count_or_all(text: str) -> int:
    """A whole number from 1, or ALL for the word."""
    text = str(text)
    if text == "all":
        return ALL
    whole = text.isascii() and text.isdigit() and 1 <= int(text[:12]) < 10**9
    require(whole, f"{text!r} is neither a whole number from 1 to 999,999,999 nor 'all'")
    return int(text)


def comma_separated(text: str) -> list[str]:
    """Names that commas separate; empty ones are none."""
    return [part.strip() for part in text.split(",") if part.strip()]


MaybeText = str | None
MaybePath = Path | None
Number = float | None
NonNegative = Annotated[float, typer.Option(min=0)]
AtMost = Annotated[float | None, typer.Option(min=0)]
Share = Annotated[float | None, typer.Option(min=0, max=1)]
FromOne = Annotated[int | None, typer.Option(min=1)]
Positive = Annotated[int, typer.Option(min=1)]
Target = Annotated[Path, typer.Option("--out", "-o", callback=check_target)]
NewTable = Annotated[Path, typer.Option("--out", "-o", callback=check_table)]
NewFile = Annotated[Path | None, typer.Option("--out", "-o", callback=check_target)]
MaybeFile = Annotated[Path | None, typer.Argument()]
Picture = Annotated[Path | None, typer.Option(callback=check_target)]
TableFile = Annotated[Path, typer.Argument(metavar="FILE", help="A saved mechanism (.pmdp).")]
MapFile = Annotated[
    str, typer.Argument(metavar="MAP", help="A map with roads, points or zones, or 'synthetic'.")
]
CityFile = Annotated[
    str, typer.Argument(metavar="CITY", help="Path of a road map, or the word 'synthetic'.")
]
Json = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=check_target, help="Also write the results as JSON."),
]
Records = Annotated[
    int | None,
    typer.Option(
        parser=count_or_all,
        metavar="COUNT",
        help="Records drawn from the map, or 'all'; by default all of a small one.",
    ),
]
Outputs = Annotated[
    int | None,
    typer.Option(
        parser=count_or_all,
        metavar="COUNT",
        help="Outputs drawn from the records, or 'all'; up to 100.",
    ),
]
Tasks = Annotated[
    int,
    typer.Option(min=0, metavar="COUNT", help="Travel loss to so many tasks; 0 for displacement."),
]
Epsilon = Annotated[float, typer.Option(min=0, metavar="NUMBER", help="Privacy budget per km.")]
Seed = Annotated[
    int, typer.Option(min=0, metavar="NUMBER", help="Seed of the draw of records, outputs, tasks.")
]
Crs = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Reference system of a map or zones whose file names none: EPSG:32632.",
    ),
]
SnapLimit = Annotated[
    float,
    typer.Option(
        metavar="NUMBER",
        help="Farthest that a place or a number may be from a record, in km or the table's unit.",
    ),
]


def told(group: object, *names: str) -> Facts:
    """The options of some names that were given."""
    return present(picked(group, *names))


@dataclass(frozen=True)
class Promise:
    """What a table must be for whoever uses it.

    Options:
        at_most NUMBER: Refuse a table of which a report costs more epsilon.
        unit NAME: Refuse distances in another unit.
        identity HEX: Refuse another table, problem or records.
    """

    at_most: AtMost = None
    unit: MaybeText = None
    identity: MaybeText = None

    @property
    def expected(self) -> Expected:
        """As readers of tables take it."""
        return Expected(self.at_most, self.unit, self.identity)


RECORDS = 5000
OUTPUTS = 100
"""Drawn of larger maps where nothing else is said."""


@dataclass(frozen=True)
class Drawn:
    """What is drawn from a map: counts of places, and how private their reports are."""

    records: Records = None
    outputs: Outputs = None
    tasks: Tasks = 0
    epsilon: Epsilon = 5.0
    seed: Seed = 0
    crs: Crs = None

    def read(
        self, city: str, most: int = RECORDS, prior: Path | None = None
    ) -> tuple[Source, Problem]:
        """A map, and a problem over its places: up to `most` where no number was given."""
        source = Source.find(city, self.records or most, self.seed, self.crs)
        places = source.places.size
        taken = (min(most, places) if self.records is None else self.records) or places
        require(
            2 <= taken <= places,
            f"{taken} is not in 2..{places:,}, the places of this map; 'all' takes all",
            "--records",
        )
        outputs = min(OUTPUTS, taken) if self.outputs is None else self.outputs or taken
        require(
            outputs <= taken,
            f"{outputs} is not in 1..{taken:,}, the records; 'all' takes all",
            "--outputs",
        )
        drawn = None if taken == places else taken
        how = (self.epsilon, self.seed)
        if self.tasks:
            problem = draw_problem(source.streets, drawn, outputs, self.tasks, *how).problem
        else:
            problem = draw_displacement(source.sample(drawn, self.seed), outputs, *how)
        if prior is not None:
            problem = load_prior(prior, problem.domain).on(problem)
        return source, problem


@dataclass(frozen=True)
class Travelled(Drawn):
    """What is drawn, with a loss of travel to a task where nothing else is said."""

    tasks: Tasks = 1


@dataclass(frozen=True)
class PapersDraw(Travelled):
    """What is drawn, as many as in the paper where nothing else is said."""

    records: Records = 1000
    outputs: Outputs = 100
