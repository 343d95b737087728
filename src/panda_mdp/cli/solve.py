"""From a map to a table: `solve`, with the `prior` that it may use and the `map` of the result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from panda_mdp.base.units import per
from panda_mdp.cli.frame import check_target, output_console, progress_console, working, write_json
from panda_mdp.cli.options import Epsilon, Json, MapFile, Outputs, Records, Seed, TableFile, Tasks

RECORDS, OUTPUTS = 5000, 100


@dataclass(frozen=True)
class Size:
    """How much of a map is drawn; counts as the options give them."""

    records: int | None
    outputs: int | None
    tasks: int
    most: int = RECORDS
    """Records that are drawn from a map with more places, where no number was given."""


def solve(
    city: MapFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Target, .pmdp.")],
    records: Records = None,
    outputs: Outputs = None,
    tasks: Tasks = 0,
    epsilon: Epsilon = 5.0,
    prior: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A prior that `panda-mdp prior` made.")
    ] = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="A method that `compare` knows.")
    ] = "optimal",
    gap: Annotated[
        float, typer.Option(metavar="NUMBER", help="Gap to the bound at which `optimal` ends.")
    ] = 0.01,
    then: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What `optimal` makes best within --slack of the loss."),
    ] = None,
    slack: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="With --then: share of the loss to give; 0.01."),
    ] = None,
    attacker: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --limit: what an attacker may gain at most."),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="With --attacker: at most so often, or km off."),
    ] = None,
    radius: Annotated[
        float | None, typer.Option(metavar="KM", help="With the name 'located': within so much.")
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="End with the best so far; 0 for no limit."),
    ] = 0.0,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Make a table for a map: the reports of least loss that are private, audited and saved.

    A map has roads, or points, zones or cells without them (a `.csv` with lat and lon, or h3).
    Of one with up to 5,000 places all are records, of a larger one 5,000 drawn at random
    ('--records all' takes all). With '--outputs all' any of them may be reported. Prints what the
    table means.

    The loss alone is made least, unless --then or --attacker names what an attacker gains:
    vulnerability, located or error.
    """
    from panda_mdp.city.draw import find_places
    from panda_mdp.city.visits import load_prior
    from panda_mdp.cli.printing import facts
    from panda_mdp.panda.panda_table import PandaTable

    check_target(out)
    if out.suffix != ".pmdp":
        msg = f"{out.name} does not end in .pmdp"
        raise typer.BadParameter(msg, param_hint="--out")
    wishes = _wishes(method, then, slack, attacker, limit, radius)
    with working("reading the map"):
        source = find_places(city, records or RECORDS, seed)
        problem = drawn_problem(source, Size(records, outputs, tasks), epsilon, seed)
        if prior is not None:
            problem = load_prior(prior, problem.domain).on(problem)
    mechanism = _run(problem, method, gap, time_limit or None, wishes)
    mechanism.save(out)
    console = output_console()
    if isinstance(mechanism, PandaTable):
        for line in mechanism.explain():
            console.print(line, soft_wrap=True)
        console.print(f"saved to {out}; panda-mdp perturb {out} runs both phases", soft_wrap=True)
        write_json(json, _phased_row(out, method, mechanism))
        return
    console.print(facts(str(out), meaning(mechanism)))
    write_json(
        json,
        {
            "file": str(out),
            "method": mechanism.method,
            "records": problem.size,
            "outputs": problem.outputs_count,
            "epsilon": problem.epsilon,
            "audited_epsilon": mechanism.audit.epsilon,
            "loss": mechanism.loss,
            "lower_bound": mechanism.lower_bound,
            "unit": problem.loss_unit,
            "seconds": mechanism.seconds,
            "second": mechanism.details.get("second"),
            "limited": mechanism.details.get("limited"),
        },
    )


def _wishes(
    method: str,
    then: str | None,
    slack: float | None,
    attacker: str | None,
    limit: float | None,
    radius: float | None,
) -> dict[str, Any]:
    """What is asked of `optimal` beyond the loss; the method itself looks at names and numbers."""
    given = {"then": then, "attacker": attacker, "limit": limit, "radius": radius}
    if slack is not None:
        if then is None:
            msg = "a slack is given for a second objective; name it with --then"
            raise typer.BadParameter(msg, param_hint="--slack")
        given["slack"] = slack
    if radius is not None and "located" not in (then, attacker):
        msg = "a radius belongs to 'located'; name it with --then or --attacker"
        raise typer.BadParameter(msg, param_hint="--radius")
    if (attacker is None) != (limit is None) or (attacker is not None and then is not None):
        msg = "--attacker and --limit belong together, and exclude --then: give both, or --then"
        raise typer.BadParameter(msg, param_hint="--attacker")
    wanted = {name: value for name, value in given.items() if value is not None}
    if wanted and method.strip() != "optimal":
        msg = f"--then and --attacker are for the method 'optimal', not {method.strip()!r}"
        raise typer.BadParameter(msg, param_hint="--method")
    return wanted


def _phased_row(out: Path, method: str, table: Any) -> dict[str, Any]:
    return {
        "file": str(out),
        "method": method,
        "records": table.problem.size,
        "outputs": table.problem.outputs_count,
        "epsilon": table.epsilon,
        "delta": table.delta,
        "violation": table.account.violation,
        "download": table.download,
        "loss": table.loss,
        "unit": table.problem.loss_unit,
    }


def drawn_problem(source: Any, size: Size, epsilon: float, seed: int) -> Any:
    """A problem over records, outputs and tasks drawn from a map."""
    from panda_mdp.city.draw import draw_displacement, draw_problem, places_count
    from panda_mdp.space.domain import Domain

    places = places_count(source)
    count = size.records or None
    if size.records is None and places > size.most:
        count = size.most
    if count is not None and not 2 <= count <= places:
        msg = f"{count} is not in 2..{places:,}, the places of this map; 'all' takes all"
        raise typer.BadParameter(msg, param_hint="--records")
    taken = count or places
    outputs = size.outputs or taken
    if size.outputs is None:
        outputs = min(OUTPUTS, taken)
    if outputs > taken:
        msg = f"{outputs} is not in 1..{taken:,}, the records; 'all' takes all"
        raise typer.BadParameter(msg, param_hint="--outputs")
    if not size.tasks:
        return draw_displacement(source, count, outputs, epsilon, seed)
    if isinstance(source, Domain):
        msg = "travel needs streets, and this file has places alone; leave --tasks out"
        raise typer.BadParameter(msg, param_hint="--tasks")
    return draw_problem(source, count, outputs, size.tasks, epsilon, seed).problem


def _run(problem: Any, name: str, gap: float, limit: float | None, wishes: dict[str, Any]) -> Any:
    from panda_mdp.methods.optimal.optimal import optimal
    from panda_mdp.methods.second.second import limit_attacker, second_objective
    from panda_mdp.survey.registry import choose_methods

    (method,) = choose_methods([name])
    console = progress_console()
    if method.function is not optimal or method.options:
        with working(f"running {method.label}"):
            return method.run(problem, limit)
    with console.status("solving") as status:

        def tell(now: Any) -> None:
            if now.note and not now.iterations:
                console.print(now.note)
                return
            if now.note:
                status.update(f"solving: {now.note}, {now.seconds:.0f} s")
                return
            status.update(
                f"solving: loss {now.loss:.4g}, bound {now.lower_bound:.4g} {problem.loss_unit}, "
                f"{now.seconds:.0f} s"
            )

        common: dict[str, Any] = {"time_limit": limit, "progress": tell}
        if "then" in wishes:
            then = wishes.pop("then")
            return second_objective(problem, then, gap=gap, **wishes, **common)
        if "attacker" in wishes:
            return limit_attacker(problem, gap=gap, **wishes, **common)
        return optimal(problem, gap, **common)


def meaning(mechanism: Any) -> list[tuple[str, object]]:
    """What a table promises and costs, in words."""
    problem = mechanism.problem
    unit, per_unit = problem.loss_unit, problem.domain.unit
    rows: list[tuple[str, object]] = [
        ("method", mechanism.method),
        ("records", f"{problem.size:,} with {problem.outputs_count:,} outputs"),
        ("epsilon", f"{problem.epsilon:g} {per(per_unit)}, audited {mechanism.audit.epsilon:.6g}"),
        ("expected loss", f"{mechanism.loss:.4g} {unit}"),
    ]
    if mechanism.lower_bound is not None:
        share = f"{100 * mechanism.gap:.2g} % above" if mechanism.gap else "at"
        rows.append(("proved", f"{share} the least possible, {mechanism.lower_bound:.4g} {unit}"))
    if mechanism.method.startswith("optimal"):
        rows.append(("optimised", _optimised(mechanism.details, unit)))
    for distance in (0.1, 1.0) if per_unit == "km" else ():
        factor = math.exp(min(problem.epsilon * distance, 700))
        said = f"{factor:.3g}" if factor < 1e6 else "more than a million: nothing is hidden"
        rows.append((f"{distance:g} km apart", f"odds change by at most a factor of {said}"))
    rows.append(("prior", problem.prior_source))
    return rows


def _optimised(details: Any, unit: str) -> str:
    """Which objectives a table of `optimal` was made for, and what is proved of the second."""
    if "second" in details:
        facts = details["second"]
        value, before, bound = (_quantity(facts, facts[k]) for k in ("value", "before", "bound"))
        return (
            f"the loss, then {_named(facts)} within {100 * facts['slack']:g} % of it: {value}, "
            f"with the loss alone {before}; no private table of loss {facts['budget']:.4g} {unit} "
            f"gets beyond {bound}"
        )
    if "limited" in details:
        facts = details["limited"]
        value, limit = (_quantity(facts, facts[k]) for k in ("value", "limit"))
        side = "least" if facts["objective"] == "error" else "most"
        return (
            f"the loss, with {_named(facts)} at {side} {limit} (it is {value}); no private table "
            f"within that limit has less than {facts['bound']:.4g} {unit}, and without it the loss "
            f"is {facts['loss_without']:.4g} {unit}"
        )
    return "the loss alone; --then also makes an attacker gain little (docs/lab.md)"


def _named(facts: Any) -> str:
    where = "" if facts.get("radius") is None else f" within {facts['radius']:g} km"
    return f"{facts['objective']}{where}"


def _quantity(facts: Any, value: float) -> str:
    return f"{value:.4g} {facts.get('unit') or ''}".rstrip()


def prior(
    city: MapFile,
    traces: Annotated[Path, typer.Argument(metavar="TRACES", help="A trace file or folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Target, .npz.")],
    epsilon: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Make it private: epsilon for each person behind it."),
    ] = None,
    public: Annotated[
        str, typer.Option(metavar="SOURCE", help="The traces are public already, says SOURCE.")
    ] = "",
    person: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of a CSV that names people.")
    ] = None,
    limit: Annotated[
        float, typer.Option(metavar="KM", help="Farthest that a fix may be from a place.")
    ] = 0.5,
) -> None:
    """Make a prior from traces, private or public, for `solve --prior`.

    Give --epsilon, or --public with the words that certificates will carry.
    """
    from panda_mdp.city.draw import find_places
    from panda_mdp.city.traces import load_traces
    from panda_mdp.city.visits import count_visits, save_prior
    from panda_mdp.space.domain import Domain

    check_target(out)
    if (epsilon is None) == (not public):
        msg = "say --epsilon NUMBER for a private prior, or --public SOURCE; there is no third way"
        raise typer.BadParameter(msg)
    columns = None if person is None else {"user": person}
    with working("counting visits"):
        places = find_places(city, RECORDS, 0)
        domain = places if isinstance(places, Domain) else places.domain(None)
        source = load_traces(traces, columns=columns)
        visits = count_visits(source, domain, limit_km=limit)
        made = (
            visits.public_prior(source=public) if epsilon is None else visits.private_prior(epsilon)
        )
    save_prior(out, made, domain)
    console = output_console()
    console.print(f"{made.source}", soft_wrap=True)
    console.print(f"saved to {out}", soft_wrap=True)


def draw_map(
    table: TableFile,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Target: .html, .png, .svg, .pdf.")
    ],
    city: Annotated[
        Path | None, typer.Option("--city", metavar="MAP", help="Draw its streets below.")
    ] = None,
    record: Annotated[
        int | None,
        typer.Option(metavar="INDEX", help="Draw the reports of this record, not all losses."),
    ] = None,
    zones: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the zones that the records are.")
    ] = None,
) -> None:
    """Draw a table on a map: expected losses, or where one record is reported.

    A page (.html) shows any record that is clicked.
    """
    from panda_mdp.city.maps import load_city
    from panda_mdp.city.places import load_places
    from panda_mdp.plot import draw_expected_loss, draw_record, save_figure, write_map
    from panda_mdp.table.decode import load_mechanism

    check_target(out)
    with working("drawing"):
        mechanism = load_mechanism(table)
        streets = None if city is None else load_city(city)
        areas = None if zones is None else load_places(zones)
        if out.suffix.lower() in (".html", ".htm"):
            write_map(out, city=streets, table=mechanism)
        elif record is None:
            save_figure(draw_expected_loss(mechanism, city=streets, zones=areas), out)
        else:
            save_figure(draw_record(mechanism, record, city=streets, zones=areas), out)
    output_console().print(f"drawn to {out}", soft_wrap=True)
