"""What a table means, what an attacker gains from it, which epsilon to take, and `verify`: the
second checker, in a process that cannot see this library."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from panda_mdp.city.draw import find_city
from panda_mdp.cli.frame import working, write_json
from panda_mdp.cli.options import (
    CityFile,
    Crs,
    Json,
    MaybePath,
    Number,
    Positive,
    Seed,
    TableFile,
    described,
    require,
)
from panda_mdp.cli.printing import show, tell
from panda_mdp.cli.solve import Reference, problem_of_words
from panda_mdp.meaning.attack import attack as attack_on
from panda_mdp.meaning.epsilon import choose_epsilon
from panda_mdp.meaning.explain import explain as explanation_of
from panda_mdp.methods.references import REFERENCES
from panda_mdp.panda.file import decode_panda, load
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.table.decode import at_path, inspect, load_mechanism

BESIDE = "{0:.4g} (without a report {1:.4g})"
ATTACKED = {
    "prior": "{prior_source}",
    "guessed right": "{vulnerability:.4g} (without a report {prior_vulnerability:.4g})",
    "most often guessed record": "{most_hit:.4g}",
    "attacker's error": "{error:.4g} {unit} (without a report {prior_error:.4g})",
    "least protected record": "{least_error:.4g} {unit}",
    "Shannon leakage": "{shannon_leakage:.4g} of {prior_entropy:.4g} bits",
    "min-entropy leakage": "{min_entropy_leakage:.4g} bits",
    "capacity": "{capacity:.4g}: helps no attacker with any prior by more",
}


@described
def explain(file: TableFile, against: Reference | None = None) -> None:
    """Say in plain language what a saved mechanism means for people.

    What it means for one place, the page of `map` shows, and `pm.explain` says.

    Options:
        against NAME: Say beside it what this gives away.
    """
    if inspect(file).phased:
        require(against is None, "a file of PAnDA is explained as a whole, in words")
        with working("auditing both phases"):
            typer.echo("\n".join(at_path(file, decode_panda).explain()))
        return
    with working("auditing and measuring"):
        mechanism = load_mechanism(file)
        reference = None if against is None else REFERENCES[against](mechanism.problem)
        said = explanation_of(mechanism, against=reference).text
    typer.echo(said, nl=False)


@described
def attack(file: TableFile, radius: list[float] | None = None, json: Json = None) -> None:
    """Measure exactly what the best attacker gains from one report of a saved mechanism.

    The attacker knows the table and the prior that is stored with it, and nothing else. Of a file
    of PAnDA it is who sees the anchors too, as a server does that both phases talk to.

    Options:
        radius DISTANCE: How often the place is located within it; repeat.
    """
    with working("measuring"):
        table = load(file)
        seen = attack_on(table.seen if isinstance(table, PandaTable) else table, radii=radius)
    numbers = seen.numbers()
    rows = tell(ATTACKED, **numbers)
    for within, share in numbers["located"].items():
        name = f"located within {within} {seen.unit}"
        rows += tell({name: BESIDE}, share, numbers["prior_located"][within])
    show(f"Attack on {file} ({seen.method})", rows, json, numbers)


@dataclass(frozen=True)
class Criterion:
    """What an epsilon is chosen by.

    Options:
        within KM: With --odds: places within this distance.
        odds NUMBER: Odds of at most so many to 1.
        loss KM: A displacement that is acceptable.
        error KM: How far off the best attacker should be.
    """

    within: Number = None
    odds: Number = None
    loss: Number = None
    error: Number = None


@described
def epsilon(
    city: CityFile,
    criterion: Criterion,
    records: Annotated[int, typer.Option(min=2)] = 400,
    outputs: Positive = 60,
    seed: Seed = 0,
    names: MaybePath = None,
    crs: Crs = None,
    json: Json = None,
) -> None:
    """Choose epsilon from odds within a distance, from a loss, or from an attacker's error.

    In place of a city a file of word vectors, as `words` takes it: any word may be reported.

    Options:
        records COUNT: Records drawn from the city, or the first words.
        outputs COUNT: Outputs among the records.
        names FILE: The words of vectors in .npy or .safetensors, one per line.
    """
    with working("solving at several epsilons"):
        drawn = {"records": records, "outputs": outputs, "seed": seed}
        subject = problem_of_words(city, names, records) or find_city(city, records, seed, crs)
        choice = choose_epsilon(subject, **vars(criterion), **drawn)
    typer.echo(choice.text, nl=False)
    write_json(json, choice)


HERE = Path(__file__).resolve()
PLACES = (
    HERE.parents[1] / "_verify" / "panda_verify.py",
    HERE.parents[3] / "verify" / "panda_verify.py",
)
"""Where an installed library has it, and where the repository does."""


def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .pmdp file.", exists=True, dir_okay=False)
    ],
) -> None:
    """Prove again what a file claims, by a second checker that shares no code with this library.

    Standard-library Python does it, in integers of its own, run with `python -I`.
    Prints a line for each thing that it checked. Exit code 0: all of it holds; 1: something does
    not; 2: the file cannot be read.
    """
    source = next((place for place in PLACES if place.is_file()), None)
    if source is None:
        raise FileNotFoundError(
            "the second checker, panda_verify.py, is not installed; install panda-mdp again"
        )
    command = [sys.executable, "-I", "-u", str(source), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        for line in process.stdout or ():
            typer.echo(line, nl=False)
    raise typer.Exit(process.returncode)
