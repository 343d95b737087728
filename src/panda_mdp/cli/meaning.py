"""What a table means, what an attacker gains from it, and which epsilon to take."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from panda_mdp.base.atomic import atomic_file
from panda_mdp.cli.frame import output_console, working, write_json
from panda_mdp.cli.options import CityFile, Html, Json, Seed, SnapLimit, TableFile
from panda_mdp.cli.perturb import read_record
from panda_mdp.cli.printing import facts

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>What this table means</title>
<style>body {{ font: 16px/1.5 sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem }}
svg {{ display: block; margin: 1.5rem 0; max-width: 100% }}</style></head>
<body><h1>What this table means</h1>{body}</body></html>
"""


def explain(
    file: TableFile,
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="Speak of one place, read as lat,lon or index from standard input."
        ),
    ] = False,
    snap_limit: SnapLimit = 0.5,
    html: Html = None,
) -> None:
    """Say in plain language what a saved mechanism means for people, or for one place.

    The place is read from standard input, never from the arguments. What is said of one place is
    as secret as the place: mind where it is written.
    """
    from panda_mdp.meaning.explain import explain as explanation_of
    from panda_mdp.panda.file import decode_panda
    from panda_mdp.table.decode import at_path, inspect, load_mechanism

    if inspect(file).phased:
        if record or html is not None:
            msg = "a file of PAnDA is explained as a whole, in words"
            raise typer.BadParameter(msg)
        with working("auditing both phases"):
            lines = at_path(file, decode_panda).explain()
        typer.echo("\n".join(lines))
        return
    with working("auditing and measuring"):
        mechanism = load_mechanism(file)
        domain = mechanism.problem.domain
        mine = read_record(domain, snap_limit, sys.stdin) if record else None
        explanation = explanation_of(mechanism, mine)
    typer.echo(explanation.text, nl=False)
    if html is not None:
        with atomic_file(html) as stream:
            stream.write(PAGE.format(body=explanation.html).encode())


def attack(
    file: TableFile,
    radius: Annotated[
        list[float] | None,
        typer.Option(metavar="DISTANCE", help="How often the place is located within it; repeat."),
    ] = None,
    json: Json = None,
) -> None:
    """Measure exactly what the best attacker gains from one report of a saved mechanism.

    The attacker knows the table and the prior that is stored with it, and nothing else.
    """
    from panda_mdp.meaning.attack import attack as attack_on
    from panda_mdp.table.decode import load_mechanism

    with working("measuring"):
        seen = attack_on(load_mechanism(file), radii=radius)
    unit = seen.unit
    rows = [
        ("prior", seen.prior_source),
        ("guessed right", _beside(seen.vulnerability, seen.prior_vulnerability)),
        ("most often guessed record", f"{seen.most_hit:.4g}"),
        ("attacker's error", _beside(seen.error, seen.prior_error, unit)),
        ("least protected record", f"{seen.least_error:.4g} {unit}"),
        *(
            (f"located within {r:g} {unit}", _beside(share, seen.prior_located[r]))
            for r, share in seen.located.items()
        ),
        ("Shannon leakage", f"{seen.shannon_leakage:.4g} of {seen.prior_entropy:.4g} bits"),
        ("min-entropy leakage", f"{seen.min_entropy_leakage:.4g} bits"),
        ("capacity", f"{seen.capacity:.4g}: helps no attacker with any prior by more"),
    ]
    output_console().print(facts(f"Attack on {file} ({seen.method})", rows))
    write_json(json, seen.numbers())


def epsilon(
    city: CityFile,
    within: Annotated[
        float | None, typer.Option(metavar="KM", help="With --odds: places within this distance.")
    ] = None,
    odds: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Odds of at most so many to 1.")
    ] = None,
    loss: Annotated[
        float | None, typer.Option(metavar="KM", help="A displacement that is acceptable.")
    ] = None,
    error: Annotated[
        float | None, typer.Option(metavar="KM", help="How far off the best attacker should be.")
    ] = None,
    records: Annotated[
        int, typer.Option(metavar="COUNT", help="Records drawn from the city.")
    ] = 400,
    outputs: Annotated[int, typer.Option(metavar="COUNT", help="Outputs among the records.")] = 60,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Choose epsilon from odds within a distance, from a loss, or from an attacker's error."""
    from dataclasses import asdict

    from panda_mdp.city.draw import find_city
    from panda_mdp.meaning.epsilon import choose_epsilon

    with working("solving at several epsilons"):
        choice = choose_epsilon(
            find_city(city, records, seed),
            within=within,
            odds=odds,
            loss=loss,
            error=error,
            records=records,
            outputs=outputs,
            seed=seed,
        )
    typer.echo(choice.text, nl=False)
    write_json(
        json,
        {
            "epsilon": choice.epsilon,
            "unit": choice.unit,
            "reason": choice.reason,
            "verdict": choice.verdict,
            "constant_loss": choice.constant_loss,
            "free_loss": choice.free_loss,
            "prior_error": choice.prior_error,
            "curve": [asdict(point) for point in choice.curve],
        },
    )


def _beside(value: float, before: float, unit: str = "") -> str:
    return f"{value:.4g} {unit}".rstrip() + f" (without a report {before:.4g})"
