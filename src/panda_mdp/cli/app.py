"""The commands and their options."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from panda_mdp.base.text import picked
from panda_mdp.cli.backup import backup, doctor, restore, signing_app
from panda_mdp.cli.city import city_app
from panda_mdp.cli.client import client_app
from panda_mdp.cli.estimate import estimate, quality
from panda_mdp.cli.frame import Frame, output_console, working, write_json
from panda_mdp.cli.meaning import attack, epsilon, explain, verify
from panda_mdp.cli.options import (
    CityFile,
    Json,
    MaybePath,
    NonNegative,
    TableFile,
    Travelled,
    comma_separated,
    described,
    require,
)
from panda_mdp.cli.panda import panda
from panda_mdp.cli.perturb import PLACES_IN_ARGUMENTS, key, perturb
from panda_mdp.cli.printing import print_comparison, run_all, show, tell
from panda_mdp.cli.publish import publish, remove, witness
from panda_mdp.cli.reproduce import reproduce
from panda_mdp.cli.serve import invite, quickstart, serve, token
from panda_mdp.cli.solve import draw_map, prior, problem_of_words, sanitise, solve, words
from panda_mdp.errors import PandaError
from panda_mdp.meaning.attack import hides_nothing
from panda_mdp.panda.file import decode_panda, load
from panda_mdp.privacy.audit import audit as audit_table
from panda_mdp.survey.registry import choose_methods
from panda_mdp.survey.registry import methods as existing
from panda_mdp.table.decode import at_path, examine, inspect, promise
from panda_mdp.version import __version__

MOST_BYTES = 20_000_000
"""Of a file that `info` reads whole."""

app = typer.Typer(
    cls=Frame,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Metric differential privacy for finite domains: compare, audit and run mechanisms.",
)

app.add_typer(city_app, name="city")
app.add_typer(client_app, name="client")
app.add_typer(signing_app, name="signing")
for command in (
    *(attack, epsilon, estimate, explain, key, prior, quality, solve),
    *(panda, reproduce, publish, quickstart, serve, token, invite, verify),
    *(backup, restore, doctor, remove, witness, words, sanitise),
):
    app.command()(command)
app.command(context_settings=PLACES_IN_ARGUMENTS)(perturb)
app.command("map")(draw_map)

COMPARED = 2000
AUDITED = {
    "holds": "{verdict}",
    "audited epsilon": "{audited_epsilon:.9g} {per}",
    "claimed epsilon": "{epsilon:.9g} {per}",
    "delta": "{delta:g}",
    "violation": "at most {violation:.6g}",
    "Phase I": "{selection_epsilon:.6g} {per}",
    "worst pair": "records {worst[records][0]} and {worst[records][1]}",
    "their distance": "{distance:.6g} {unit}",
    "worst output": "{worst[output]}",
    "pairs covered": "{pairs:,}, all outputs, and both phases where there are two",
}
STATED = {
    "claims": "{guarantee}",
    "snapping": "{snapping}",
    "epsilon": "{epsilon:g} per {domain[unit]}",
    "domain": "{domain[kind]}, {domain[unit]}",
    "selection": "{selection}",
    "mesh": "{mesh}",
}
NOTED = {
    "loss, not verified": "{loss}",
    "lower_bound, not verified": "{lower_bound}",
    "method, not verified": "{method}",
    "prior, not verified": "{prior_source}",
    "made, not verified": "{date} by panda-mdp {library}",
}


def main() -> None:
    """The entry point of `panda-mdp`."""
    app(prog_name="panda-mdp")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"panda-mdp {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
@described
def demo(out: Path = Path("out/demo")) -> None:
    """Compare methods on a synthetic city and draw a map and a chart.

    1,000 records, 100 outputs, one task, epsilon 5 per km. Each method runs in a fresh process
    under a time limit, which the table states where it bites. Peak memory is the largest resident
    set of that process, interpreter and libraries included; seconds exclude compilation.

    Options:
        out DIR: Folder for the pictures and the results.
    """
    from panda_mdp.cli.demo import run_demo

    raise typer.Exit(any(outcome.failed for outcome in run_demo(out, output_console())))


@app.command()
@described
def compare(
    city: CityFile,
    drawn: Travelled,
    methods: str = "all",
    limit: NonNegative = 60.0,
    names: MaybePath = None,
    json: Json = None,
) -> None:
    """Compare methods on records, outputs and tasks drawn from a city, or on words.

    In place of a city a file of word vectors, as `words` takes it: all words may be reported, and
    it is told how often they are kept, and how often the topic of a text is still told.

    Each method runs in a fresh process: peak memory is the largest resident set of that process,
    interpreter and libraries included; seconds exclude compilation.

    Options:
        methods NAMES: Methods, separated by commas, or 'all' that exist.
        limit SECONDS: Time limit of a method; 0 for none.
        names FILE: The words of vectors in .npy or .safetensors, one per line.
    """
    named = choose_methods(existing() if methods == "all" else comma_separated(methods))
    with working("drawing the problem"):
        words_problem = problem_of_words(city, names, drawn.records or COMPARED, drawn.epsilon)
        problem = words_problem or drawn.read(city, COMPARED)[1]
    outcomes = list(run_all(named, problem, (limit or None,) * len(named)))
    title = city if words_problem else f"{city}, {drawn.tasks} task(s)"
    print_comparison(output_console(), outcomes, title)
    write_json(json, [outcome.row() for outcome in outcomes])
    raise typer.Exit(any(outcome.failed for outcome in outcomes))


@app.command()
@described
def audit(file: TableFile, epsilon: float | None = None, json: Json = None) -> None:
    """Audit a saved mechanism over all pairs of records. Exit code 1 where it does not hold.

    Options:
        epsilon NUMBER: Audit against this epsilon, not the file's own.
    """
    phased = inspect(file).phased
    require(
        not phased or epsilon is None,
        "a file of PAnDA is audited against its own epsilon and delta",
        "--epsilon",
    )
    with working("auditing all pairs"):
        if phased:
            both = at_path(file, decode_panda)
            size = both.problem.size
            facts = picked(both, "epsilon", "delta", "selection_epsilon")
            facts |= {"holds": True, "unit": both.problem.domain.unit}
            facts |= {"violation": both.account.violation, "pairs": size * (size - 1) // 2}
            facts["worst"] = {"records": both.account.pair}
        else:
            table = at_path(file, examine)
            verdict = table.audit if epsilon is None else audit_table(table, epsilon)
            *records, output = verdict.worst
            facts = picked(verdict, "holds", "unit", "distance", "pairs")
            facts |= {"audited_epsilon": verdict.epsilon, "epsilon": verdict.claimed}
            facts |= {"worst": {"records": records, "output": output}}
    show(f"Audit of {file}", AUDITED, json, facts)
    raise typer.Exit(not facts["holds"])


@app.command()
def info(file: TableFile, json: Json = None) -> None:
    """Show what a saved mechanism says about itself. Its sum is verified, nothing is audited.

    A file of up to 20 MB is read for one thing more: whether it hides anything.
    """
    said = inspect(file).header
    shapes = said["shapes"]
    notes = said["notes"]
    guarantee, snapping = promise(said)
    rows = tell(STATED, guarantee=guarantee, snapping=snapping, **said)
    if "bound_pairs" in shapes or "bound_prices" in shapes:
        rows.append(("bound", "what its multipliers prove, which `verify` computes"))
    rows += ((name, " x ".join(map(str, shape))) for name, shape in shapes.items())
    rows += tell(NOTED, **notes)
    with suppress(PandaError):
        if file.stat().st_size <= MOST_BYTES and (loud := hides_nothing(load(file))):
            rows = [("WARNING", loud), *rows]
    show(str(file), rows, json, said)
