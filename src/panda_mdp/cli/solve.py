"""From a map to a table: `solve`, with the `prior` that it may use and the `map` of the result."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import typer

from panda_mdp.base.text import per
from panda_mdp.cli.frame import progress_console, working, write_json
from panda_mdp.cli.options import (
    Epsilon,
    Json,
    MapFile,
    NonNegative,
    Outputs,
    Records,
    Seed,
    Share,
    TableFile,
    Target,
    Tasks,
    described,
    require,
)
from panda_mdp.cli.printing import show, tell

RECORDS, OUTPUTS = 5000, 100
Reference = Literal["android", "laplace", "plain-laplace", "decimals"]


@described
def solve(
    city: MapFile,
    out: Target,
    records: Records = None,
    outputs: Outputs = None,
    tasks: Tasks = 0,
    epsilon: Epsilon = 5.0,
    metric: str = "straight",
    people: float | None = None,
    prior: Path | None = None,
    delta: Share = None,
    method: str = "optimal",
    gap: float = 0.01,
    then: str | None = None,
    slack: float | None = None,
    attacker: str | None = None,
    limit: float | None = None,
    radius: float | None = None,
    against: Reference | None = None,
    displacement: float | None = None,
    time_limit: NonNegative = 0.0,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Make a table for a map: the reports of least loss that are private, audited and saved.

    A map has roads, or points, zones or cells without them (a `.csv` with lat and lon, or h3).
    Of one with up to 5,000 places all are records, of a larger one 5,000 drawn at random
    ('--records all' takes all). With '--outputs all' any of them may be reported. Prints what the
    table means.

    Asked for a --displacement, or for an epsilon and a --radius, it makes the table from which all
    who guess gain least, in shares of what planar Laplace noise of that displacement or epsilon
    gives away, at its loss; --against takes another reference. Otherwise the loss alone is made
    least, or what --then or --attacker names: vulnerability, located or error.

    Privacy follows the straight line, the streets (--metric road), or the density of junctions
    (--metric density): at epsilon 1 each place is then hidden among --people of them.

    Options:
        out FILE: Target, .pmdp.
        metric NAME: 'straight', 'road' or 'density'.
        people NUMBER: With the metric 'density': junctions within a nat.
        prior FILE: A prior that `panda-mdp prior` made.
        delta NUMBER: With a method of PAnDA: probability of more than epsilon.
        method NAME: A method that `compare` knows.
        gap NUMBER: Gap to the bound at which `optimal` ends.
        then NAME: What `optimal` makes best within --slack of the loss.
        slack NUMBER: With --then: share of the loss to give; 0.01.
        attacker NAME: With --limit: what an attacker may gain at most.
        limit NUMBER: With --attacker: at most so often, or km off.
        radius KM: A guess this near counts.
        against NAME: Be better by every measure than this.
        displacement KM: Be better than noise of this mean displacement.
        time_limit SECONDS: End with the best so far; 0 for no limit.
    """
    from panda_mdp.city.draw import find_places
    from panda_mdp.city.traces import load_prior
    from panda_mdp.methods.references import REFERENCES, at_displacement
    from panda_mdp.panda.panda_table import PandaTable

    require(out.suffix == ".pmdp", f"{out.name} does not end in .pmdp", "--out")
    # The method itself looks at names and numbers; here only at what goes together.
    asked = {"then": then, "slack": slack, "attacker": attacker, "limit": limit}
    wishes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    second = "a slack is given for a second objective; name it with --then"
    require(slack is None or then, second, "--slack")
    require(
        (attacker is None) == (limit is None) and not (attacker and then),
        "--attacker and --limit belong together, and exclude --then: give both, or --then",
        "--attacker",
    )
    alone = "--against and --displacement exclude --then and --attacker: they mind every measure"
    compared = against is not None or displacement is not None
    require(not compared or not wishes, alone, "--against")
    noise = against in (None, "laplace", "plain-laplace")
    fixed = f"{against!r} has a displacement of its own; leave --displacement out"
    require(displacement is None or noise, fixed, "--displacement")
    if radius is not None:
        wishes["radius"] = radius
    if compared or (radius is not None and not (then or attacker)):
        wishes["against"] = against or "laplace"
    method = method.strip()
    only = (
        f"--then, --attacker, --against and --radius are for the method 'optimal', not {method!r}"
    )
    require(method == "optimal" or not wishes, only, "--method")
    phased = method.startswith("panda")
    require(delta is None or phased, "only PAnDA's methods have a delta", "--delta")
    if delta is not None:
        wishes["delta"] = delta
    with working("reading the map"):
        source = find_places(city, records or RECORDS, seed)
        problem = drawn_problem(source, (records, outputs, tasks), epsilon, seed)
        problem = measured_by(problem, source, metric, people)
        if prior is not None:
            problem = load_prior(prior, problem.domain).on(problem)
        if displacement is not None:
            noise_of = REFERENCES[wishes["against"]]
            problem = at_displacement(problem, noise_of, displacement).problem
    table = _run(problem, method, gap, time_limit or None, wishes)
    table.save(out)
    numbers = {
        "file": str(out),
        "method": method,
        "records": problem.size,
        "outputs": problem.outputs_count,
        "epsilon": problem.epsilon,
        "loss": table.loss,
        "unit": problem.loss_unit,
    }
    if isinstance(table, PandaTable):
        saved = f"saved to {out}; panda-mdp perturb {out} runs both phases"
        typer.echo("\n".join([*table.explain(), saved]))
        more = {"delta": table.delta, "violation": table.account.violation}
        write_json(json, {**numbers, **more, "download": table.download})
        return
    details = {name: table.details.get(name) for name in ("second", "limited", "dominates")}
    solved = {name: getattr(table, name) for name in ("method", "lower_bound", "seconds")}
    solved["bound"] = None if table.bound is None else table.bound.words
    numbers |= {**solved, **details, "audited_epsilon": table.audit.epsilon}
    show(str(out), meaning(table), json, numbers)


def drawn_problem(
    source: Any,
    size: tuple[int | None, int | None, int],
    epsilon: float,
    seed: int,
    most: int = RECORDS,
) -> Any:
    """A problem over records, outputs and tasks drawn from a map, counts as the options give them;
    up to `most` records where no number was given."""
    from panda_mdp.city.draw import draw_displacement, draw_problem, places_count
    from panda_mdp.space.domain import Domain

    places, (records, outputs, tasks) = places_count(source), size
    if records is None and places > most:
        records = most
    taken = records or places
    fits = not records or 2 <= records <= places
    whole = f"{taken} is not in 2..{places:,}, the places of this map; 'all' takes all"
    require(fits, whole, "--records")
    chosen = min(OUTPUTS, taken) if outputs is None else outputs or taken
    among = f"{chosen} is not in 1..{taken:,}, the records; 'all' takes all"
    require(chosen <= taken, among, "--outputs")
    if not tasks:
        return draw_displacement(source, records or None, chosen, epsilon, seed)
    streets = "travel needs streets, and this file has places alone; leave --tasks out"
    require(not isinstance(source, Domain), streets, "--tasks")
    return draw_problem(source, records or None, chosen, tasks, epsilon, seed).problem


def measured_by(problem: Any, city: Any, metric: str, people: float | None) -> Any:
    """The same records, outputs and losses with privacy along streets, or by density."""
    from dataclasses import replace

    from panda_mdp.space.domain import Domain

    names = ("straight", "road", "density")
    require(metric in names, f"{metric!r} is none of {', '.join(names)}", "--metric")
    belongs = "--people and --metric density belong together: give both, or neither"
    require((people is not None) == (metric == "density"), belongs, "--people")
    if metric == "straight":
        return problem
    streets = "this file has places alone; a map with streets is needed"
    require(not isinstance(city, Domain), streets, "--metric")
    if metric == "road":
        return replace(problem, domain=city.road_domain(problem.domain.nodes))
    nats = f"{problem.epsilon:g} is beyond 1, at which a place is hidden among --people"
    require(problem.epsilon <= 1, nats, "--epsilon")
    return replace(problem, domain=city.density_domain(people, None, problem.domain.nodes))


def _run(problem: Any, name: str, gap: float, limit: float | None, wishes: dict[str, Any]) -> Any:
    from panda_mdp.methods.optimal.optimal import optimal
    from panda_mdp.methods.references import REFERENCES
    from panda_mdp.methods.second.dominate import RADII, dominate
    from panda_mdp.methods.second.second import limit_attacker, second_objective
    from panda_mdp.survey.registry import choose_methods

    (method,) = choose_methods([name])
    console = progress_console()
    if method.function is not optimal:
        with working(f"running {method.label}"):
            return method.run(problem, limit, **wishes)
    with console.status("solving") as status:

        def tell(now: Any) -> None:
            if now.note and not now.iterations:
                console.print(now.note)
                return
            reached = f"loss {now.loss:.4g}, bound {now.lower_bound:.4g} {problem.loss_unit}"
            status.update(f"solving: {now.note or reached}, {now.seconds:.0f} s")

        solver: Any = optimal
        if "then" in wishes:
            solver, wishes["name"] = second_objective, wishes.pop("then")
        elif "attacker" in wishes:
            solver = limit_attacker
        elif "against" in wishes:
            reference = REFERENCES[wishes["against"]](problem)
            radii = [wishes["radius"]] if "radius" in wishes else RADII
            return dominate(
                problem, reference, radii=radii, gap=gap, time_limit=limit, progress=tell
            )
        return solver(problem, gap=gap, time_limit=limit, progress=tell, **wishes)


TABLE = {
    "method": "{0.method}",
    "records": "{0.problem.size:,} with {0.problem.outputs_count:,} outputs",
    "epsilon": "{0.problem.epsilon:g} {per}, audited {0.audit.epsilon:.6g}",
    "expected loss": "{0.loss:.4g} {0.problem.loss_unit}",
}
SECOND = (
    "the loss, then {what} within {percent:g} % of it: {value:.4g}{of}, with the loss alone "
    "{before:.4g}{of}; no private table of loss {budget:.4g} {loss_unit} gets beyond "
    "{bound:.4g}{of}"
)
LIMITED = (
    "the loss, with {what} at {side} {limit:.4g}{of} (it is {value:.4g}{of}); no private table "
    "within that limit has less than {bound:.4g} {loss_unit}, and without it the loss is "
    "{loss_without:.4g} {loss_unit}"
)


DOMINATES = (
    "all that a guesser gains, at the loss of the reference ({loss[1]:.4g} {loss_unit}): each is "
    "at most {factor:.3f} of what the reference gives away, and no private table has less than "
    "{bound:.3f}; {parts}; the best guess is {error[0]:.3g} {unit} off, {error[1]:.3g} there"
)


def meaning(mechanism: Any) -> list[tuple[str, str]]:
    """What a table promises and costs, in words."""
    problem = mechanism.problem
    rows = tell(TABLE, mechanism, per=per(problem.domain.unit))
    bound = mechanism.bound
    if bound is not None and "dominates" not in mechanism.details:
        share = f"{100 * mechanism.gap:.2g} % above" if mechanism.gap else "at"
        least = f"{bound.value:.4g} {problem.loss_unit}"
        rows.append(("bound", f"{share} the least possible, {least} ({bound.words})"))
    if mechanism.method.startswith("optimal"):
        rows.append(("optimised", _optimised(mechanism.details, problem)))
    for distance in (0.1, 1.0) if problem.domain.unit == "km" else ():
        factor = math.exp(min(problem.epsilon * distance, 700))
        said = f"{factor:.3g}" if factor < 1e6 else "more than a million: nothing is hidden"
        rows.append((f"{distance:g} km apart", f"odds change by at most a factor of {said}"))
    return [*rows, ("prior", problem.prior_source)]


def _optimised(details: Any, problem: Any) -> str:
    """Which objectives a table of `optimal` was made for, and what is proved of the second."""
    loss_unit = problem.loss_unit
    if "dominates" in details:
        facts = details["dominates"]
        parts = ", ".join(
            f"{name} {a:.3g} of {b:.3g}" for name, (a, b) in facts["measures"].items()
        )
        said = DOMINATES.format(**facts, parts=parts, unit=problem.domain.unit, loss_unit=loss_unit)
        return said if facts["holds"] else f"NOT better by every measure: {said}"
    facts = details.get("second") or details.get("limited")
    if facts is None:
        return "the loss alone, which helps who guesses; --radius minds that (docs/lab.md)"
    within = "" if facts.get("radius") is None else f" within {facts['radius']:g} km"
    return (SECOND if "second" in details else LIMITED).format(
        **facts,
        what=f"{facts['objective']}{within}",
        of=f" {facts.get('unit') or ''}".rstrip(),
        percent=100 * facts.get("slack", 0.0),
        side="least" if facts["objective"] == "error" else "most",
        loss_unit=loss_unit,
    )


@described
def prior(
    city: MapFile,
    traces: Path,
    out: Target,
    epsilon: float | None = None,
    public: str = "",
    person: str | None = None,
    limit: float = 0.5,
) -> None:
    """Make a prior from traces, private or public, for `solve --prior`.

    Give --epsilon, or --public with the words that certificates will carry.

    Options:
        traces TRACES: A trace file or folder.
        out FILE: Target, .npz.
        epsilon NUMBER: Make it private: epsilon for each person behind it.
        public SOURCE: The traces are public already, says SOURCE.
        person COLUMN: The column of a CSV that names people.
        limit KM: Farthest that a fix may be from a place.
    """
    from panda_mdp.city.draw import find_places
    from panda_mdp.city.traces import load_traces, save_prior
    from panda_mdp.space.domain import Domain

    require(
        (epsilon is None) == bool(public),
        "say --epsilon NUMBER for a private prior, or --public SOURCE; there is no third way",
    )
    columns = None if person is None else {"user": person}
    with working("counting visits"):
        places = find_places(city, RECORDS, 0)
        domain = places if isinstance(places, Domain) else places.domain(None)
        source = load_traces(traces, columns=columns)
        visits = source.visits(domain, limit_km=limit)
        made = (
            visits.public_prior(source=public) if epsilon is None else visits.private_prior(epsilon)
        )
    save_prior(out, made, domain)
    typer.echo(f"{made.source}\nsaved to {out}")


@described
def draw_map(
    table: TableFile,
    out: Target,
    city: Path | None = None,
    record: int | None = None,
    zones: Path | None = None,
    against: Reference | None = None,
) -> None:
    """Draw a table on a map: expected losses, or where one record is reported.

    A page (.html) shows any record that is clicked; with --against it is a card for whoever lives
    there: what each of the two tables tells of that place.

    Options:
        out FILE: Target: .html, .png, .svg, .pdf.
        city MAP: Draw its streets below.
        record INDEX: Draw the reports of this record, not all losses.
        zones FILE: Draw the zones that the records are.
        against NAME: On a page: show beside it what this gives away.
    """
    from panda_mdp.city.maps import load_city
    from panda_mdp.city.places import load_places
    from panda_mdp.methods.references import REFERENCES
    from panda_mdp.plot import draw_expected_loss, draw_record, save_figure, write_map
    from panda_mdp.table.decode import load_mechanism

    page = out.suffix.lower() in (".html", ".htm")
    require(page or against is None, "a card is a page; give a target that ends in .html", "--out")
    with working("drawing"):
        mechanism = load_mechanism(table)
        streets = None if city is None else load_city(city)
        areas = None if zones is None else load_places(zones)
        if page:
            reference = None if against is None else REFERENCES[against](mechanism.problem)
            write_map(out, city=streets, table=mechanism, against=reference)
        elif record is None:
            save_figure(draw_expected_loss(mechanism, city=streets, zones=areas), out)
        else:
            save_figure(draw_record(mechanism, record, city=streets, zones=areas), out)
    typer.echo(f"drawn to {out}")
