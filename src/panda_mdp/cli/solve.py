"""From a map to a table: `solve`, with the `prior` that it may use and the `map` of the result; and
from vectors to a table of words, with texts through it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import typer

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.text import Facts, per, picked
from panda_mdp.city.draw import Source
from panda_mdp.city.maps import MapOptions, load_city
from panda_mdp.city.traces import load_traces, save_prior
from panda_mdp.cli.frame import progress_console, working, write_json
from panda_mdp.cli.options import (
    RECORDS,
    AtMost,
    Crs,
    Drawn,
    Epsilon,
    FromOne,
    Json,
    MapFile,
    MaybePath,
    MaybeText,
    NewTable,
    NonNegative,
    Number,
    Share,
    TableFile,
    Target,
    described,
    is_page,
    require,
    told,
)
from panda_mdp.cli.printing import show, tell
from panda_mdp.errors import InvalidInputError
from panda_mdp.frames.text import TextSummary
from panda_mdp.frames.text import sanitise as sanitised
from panda_mdp.loss import distance_loss
from panda_mdp.meaning.attack import hides_nothing
from panda_mdp.methods.certify import print_progress
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.references import REFERENCES, at_displacement
from panda_mdp.methods.second.dominate import RADII, dominate
from panda_mdp.panda.file import load
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.problem import Problem
from panda_mdp.space.embeddings import VECTORS, load_embeddings
from panda_mdp.survey.registry import choose_methods
from panda_mdp.table.decode import load_mechanism
from panda_mdp.table.thin import compact

Reference = Literal["android", "laplace", "plain-laplace", "decimals"]


@dataclass(frozen=True)
class Objectives:
    """What `optimal` minds beside the loss.

    Options:
        radius KM: A guess this near counts.
        against NAME: Be better by every measure than this.
        displacement KM: Be better than noise of this mean displacement.
    """

    radius: AtMost = None
    against: Reference | None = None
    displacement: Number = None

    def __post_init__(self) -> None:
        require(
            self.displacement is None or self.against in (None, "laplace", "plain-laplace"),
            f"{self.against!r} has a displacement of its own; leave --displacement out",
            "--displacement",
        )

    @property
    def reference(self) -> str | None:
        """What to be better than by every measure; None where the loss alone counts."""
        return self.against or ("laplace" if told(self, "radius", "displacement") else None)

    def solver(self, problem: Problem) -> Callable[..., Any]:
        """What solves for them."""
        if self.reference is None:
            return optimal
        radii = RADII if self.radius is None else [self.radius]
        return partial(dominate, references=REFERENCES[self.reference](problem), radii=radii)


@dataclass(frozen=True)
class Measured:
    """What distance privacy follows.

    Options:
        metric: Along what distances are measured.
        people NUMBER: With the metric 'density': junctions within a nat.
    """

    metric: Literal["straight", "road", "density"] = "straight"
    people: Number = None

    def apply(self, problem: Problem, source: Source) -> Problem:
        """The same records, outputs and losses with privacy along streets, or by density."""
        require(
            (self.people is not None) == (self.metric == "density"),
            "--people and --metric density belong together: give both, or neither",
            "--people",
        )
        if self.metric == "straight":
            return problem
        nodes = problem.domain.nodes
        if self.people is None:
            return replace(problem, domain=source.streets.road_domain(nodes))
        require(
            problem.epsilon <= 1,
            f"{problem.epsilon:g} is beyond 1, at which a place is hidden among --people",
            "--epsilon",
        )
        return replace(problem, domain=source.streets.density_domain(self.people, None, nodes))


@dataclass(frozen=True)
class Solving:
    """By what a table is made, and when that ends.

    Options:
        delta NUMBER: With a method of PAnDA: probability of more than epsilon.
        method NAME: A method that `compare` knows.
        gap NUMBER: Gap to the bound at which `optimal` ends.
        time_limit SECONDS: End with the best so far; 0 for no limit.
        compact: Save it short, as browsers and the npm package read it; a little is lost.
    """

    delta: Share = None
    compact: bool = False
    method: str = "optimal"
    gap: NonNegative = 0.01
    time_limit: NonNegative = 0.0

    def table(self, problem: Problem, objectives: Objectives) -> Any:
        """The table of a problem; with progress where the method tells of it."""
        (method,) = choose_methods([self.method])
        limit = self.time_limit or None
        console = progress_console()
        if method.function is not optimal:
            delta = {} if self.delta is None else {"delta": self.delta}
            with working(f"running {method.label}"):
                return method.run(problem, limit, **delta)
        with console.status("solving") as status:

            def tell(now: Any) -> None:
                if now.note and not now.iterations:
                    console.print(now.note)
                    return
                reached = f"loss {now.loss:.4g}, bound {now.lower_bound:.4g} {problem.loss_unit}"
                status.update(f"solving: {now.note or reached}, {now.seconds:.0f} s")

            return objectives.solver(problem)(
                problem, gap=self.gap, time_limit=limit, progress=tell
            )


@described
def solve(
    city: MapFile,
    out: NewTable,
    drawn: Drawn,
    measured: Measured,
    solving: Solving,
    objectives: Objectives,
    prior: MaybePath = None,
    json: Json = None,
) -> None:
    """Make a table for a map: the reports of least loss that are private, audited and saved.

    A map has roads, or points or zones without them (a `.csv` with lat and lon).
    Of one with up to 5,000 places all are records, of a larger one 5,000 drawn at random
    ('--records all' takes all). With '--outputs all' any of them may be reported. Prints what the
    table means.

    Asked for a --displacement, or for an epsilon and a --radius, it makes the table from which all
    who guess gain least, in shares of what planar Laplace noise of that displacement or epsilon
    gives away, at its loss; --against takes another reference. Otherwise the loss alone is made
    least, and with --method optimal_then, within 1 % of it, how often a guess is right.

    Privacy follows the straight line, the streets (--metric road), or the density of junctions
    (--metric density): at epsilon 1 each place is then hidden among --people of them.

    Options:
        out FILE: Target, .pmdp.
        prior FILE: A prior that `panda-mdp prior` made.
    """
    method = solving.method.strip()
    require(
        method == "optimal" or objectives == Objectives(),
        f"--against, --radius and --displacement are for the method 'optimal', not {method!r}",
        "--method",
    )
    require(
        solving.delta is None or method.startswith("panda"),
        "only PAnDA's methods have a delta",
        "--delta",
    )
    with working("reading the map"):
        source, drawn_problem = drawn.read(city, prior=prior)
        problem = measured.apply(drawn_problem, source)
        if objectives.displacement is not None:
            noise_of = REFERENCES[str(objectives.reference)]
            problem = at_displacement(problem, noise_of, objectives.displacement).problem
    table = solving.table(problem, objectives)
    if solving.compact:
        table = compact(table)
    table.save(out)
    numbers: Facts = {"file": str(out), "method": method, **picked(table, "epsilon", "loss")}
    numbers |= {"records": problem.size, "outputs": problem.outputs_count}
    numbers["unit"] = problem.loss_unit
    if isinstance(table, PandaTable):
        saved = f"saved to {out}; panda-mdp perturb {out} runs both phases"
        typer.echo("\n".join([*table.explain(), saved]))
        numbers |= {"delta": table.delta, "violation": table.account.violation}
        write_json(json, numbers | {"download": table.download})
        return
    for name in ("second", "dominates"):
        said = table.details.get(name, {})
        numbers[name] = {fact: said[fact] for fact in said if fact != "proof"} or None
    numbers |= picked(table, "method", "lower_bound", "seconds")
    numbers["bound"] = None if table.bound is None else table.bound.words
    numbers["audited_epsilon"] = table.audit.epsilon
    rows = tell(TABLE, **numbers, per=per(problem.domain.unit))
    show(str(out), [*rows, *meaning(table)], json, numbers)


TABLE = {
    "method": "{method}",
    "records": "{records:,} with {outputs:,} outputs",
    "epsilon": "{epsilon:g} {per}, audited {audited_epsilon:.6g}",
    "expected loss": "{loss:.4g} {unit}",
}
SECOND = (
    "the loss, then {objective} within {percent:g} % of it: {value:.4g}, with the loss alone "
    "{before:.4g}; no private table of loss {budget:.4g} {loss_unit} gets beyond "
    "{bound:.4g} ({proof})"
)
DOMINATES = (
    "all that a guesser gains, at the loss of the reference ({loss[1]:.4g} {loss_unit}): each is "
    "at most {factor:.3f} of what the reference gives away, and no private table has less than "
    "{bound:.3f} ({proof}); {parts}; the best guess is {error[0]:.3g} {unit} off, {error[1]:.3g} "
    "there"
)


def meaning(mechanism: Any) -> list[tuple[str, str]]:
    """What a table promises and costs, in words."""
    problem = mechanism.problem
    rows = []
    bound = mechanism.bound
    if bound is not None and "dominates" not in mechanism.details:
        share = f"{100 * mechanism.gap:.2g} % above" if mechanism.gap else "at"
        least_loss = f"{bound.value:.4g} {problem.loss_unit}"
        rows.append(("bound", f"{share} the least possible, {least_loss} ({bound.words})"))
    if mechanism.method.startswith("optimal"):
        rows.append(("optimised", _optimised(mechanism.details, problem)))
    for distance in (0.1, 1.0) if problem.domain.unit == "km" else ():
        factor = math.exp(min(problem.epsilon * distance, 700))
        said = f"{factor:.3g}" if factor < 1e6 else "more than a million: nothing is hidden"
        rows.append((f"{distance:g} km apart", f"odds change by at most a factor of {said}"))
    if loud := hides_nothing(mechanism):
        rows.insert(0, ("WARNING", loud))
    return [*rows, ("prior", problem.prior_source)]


def _optimised(details: Any, problem: Any) -> str:
    """Which objectives a table of `optimal` was made for, and what is proved of the second."""
    loss_unit = problem.loss_unit
    found = details.get("dominates") or details.get("second")
    if not found:
        return "the loss alone, which helps who guesses; --radius minds that (docs/lab.md)"
    proof = found.get("proof")
    facts = found | {"proof": proof.words if proof else "stated by this run, in no file proved"}
    if "dominates" in details:
        parts = ", ".join(
            f"{name} {a:.3g} of {b:.3g}" for name, (a, b) in facts["measures"].items()
        )
        said = DOMINATES.format(**facts, parts=parts, unit=problem.domain.unit, loss_unit=loss_unit)
        return said if facts["holds"] else f"NOT better by every measure: {said}"
    return SECOND.format(**facts, percent=100 * facts["slack"], loss_unit=loss_unit)


@described
def prior(
    city: MapFile,
    traces: Path,
    out: Target,
    epsilon: Number = None,
    public: str = "",
    person: MaybeText = None,
    limit: float = 0.5,
    crs: Crs = None,
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
    require(
        (epsilon is None) == bool(public),
        "say --epsilon NUMBER for a private prior, or --public SOURCE; there is no third way",
    )
    columns = None if person is None else {"user": person}
    with working("counting visits"):
        domain = Source.find(city, RECORDS, 0, crs).places
        visits = load_traces(traces, columns=columns).visits(domain, limit_km=limit)
        made = (
            visits.public_prior(source=public) if epsilon is None else visits.private_prior(epsilon)
        )
    save_prior(out, made, domain)
    typer.echo(f"{made.source}\nsaved to {out}")


@described
def draw_map(
    table: TableFile,
    out: Target,
    city: MaybePath = None,
    against: Reference | None = None,
    crs: Crs = None,
) -> None:
    """Draw the expected losses of a table on a map.

    A page (.html) shows any record that is clicked; with --against it is a card for whoever lives
    there: what each of the two tables tells of that place. Of PAnDA reports are drawn, with both
    phases summed: who is sent anchors too sees more (`attack`).

    Options:
        out FILE: Target: .html, .png, .svg, .pdf.
        city MAP: Draw its streets below.
        against NAME: On a page: show beside it what this gives away.
    """
    from panda_mdp.plot import draw_expected_loss, save_figure, write_map

    page = is_page(out)
    require(page or against is None, "a card is a page; give a target that ends in .html", "--out")
    with working("drawing"):
        mechanism: Any = load(table)
        if isinstance(mechanism, PandaTable):
            mechanism = mechanism.summed
        streets = None if city is None else load_city(city, MapOptions(crs=crs))
        if page:
            reference = None if against is None else REFERENCES[against](mechanism.problem)
            write_map(out, city=streets, table=mechanism, against=reference)
        else:
            save_figure(draw_expected_loss(mechanism, city=streets), out)
    typer.echo(f"drawn to {out}")


TOGETHER = 20_000
"""Lines that are drawn at a time."""
WORDS_TABLE = {
    "words": "{words:,}",
    "epsilon": "{epsilon:g} {per}, audited {audited_epsilon:.6g}",
    "expected distance": "{loss_words}",
    "drawn as they are": "{kept:.1%}",
    "texts": "panda-mdp sanitise {file} FILE -o FILE; the words of a text add up",
}


@dataclass(frozen=True)
class Vectors:
    """Vectors of words in a file.

    Options:
        vectors VECTORS: A file of word vectors.
        metric: Distance of vectors, or their angle.
        names FILE: For .npy and .safetensors: the words, one per line.
        limit COUNT: Take only so many words, the first ones.
    """

    vectors: Path
    metric: Literal["euclidean", "angular"] = "euclidean"
    names: MaybePath = None
    limit: FromOne = None

    def problem(self, epsilon: float) -> Problem:
        """Any word may be reported for any other, at their distance."""
        found = load_embeddings(self.vectors, words=self.names, limit=self.limit)
        domain = found.domain(self.metric)
        every = np.arange(domain.size)
        return Problem(domain, every, distance_loss(domain, every), epsilon)


def problem_of_words(
    file: str, names: Path | None, limit: int, epsilon: float = 1.0
) -> Problem | None:
    """The problem of the first words of a file of vectors; None where its name is of none."""
    if not file.lower().endswith(VECTORS):
        return None
    return Vectors(Path(file), names=names, limit=limit).problem(epsilon)


@described
def words(
    vectors: Vectors,
    out: NewTable,
    epsilon: Epsilon = 2.0,
    gap: NonNegative = 0.01,
    time_limit: NonNegative = 0.0,
    json: Json = None,
) -> None:
    """Make a table of words from their vectors: any word may be reported for any other.

    Vectors are text (GloVe, word2vec, fastText .vec), word2vec's .bin, or .npy or a model's
    .safetensors with --names. The expected distance of word and report is made least, certified and
    audited.

    Options:
        out FILE: Target, .pmdp.
        epsilon NUMBER: Privacy budget per unit of distance.
        gap NUMBER: Gap to the bound at which it ends.
        time_limit SECONDS: End with the best so far; 0 for no limit.
    """
    with working("reading the vectors"):
        problem = vectors.problem(epsilon)
    table = optimal(problem, gap, time_limit=time_limit or None, progress=print_progress)
    table.save(out)
    domain = problem.domain
    kept = np.mean([table.row(k)[k] for k in range(0, domain.size, max(1, domain.size // 1000))])
    numbers = {"file": str(out), "words": domain.size, "unit": domain.unit, "kept": kept}
    numbers |= picked(table, "epsilon", "loss", "loss_words", "lower_bound")
    numbers["audited_epsilon"] = table.audit.epsilon
    show(str(out), WORDS_TABLE, json, numbers)


@described
def sanitise(table: Path, text: Path, out: Target, json: Json = None) -> None:
    """Replace every word of a text file by a draw from a table of words; a line is a text.

    Words and numbers are replaced; those that the table does not have take the row of its unknown
    word, or of the word in the middle. Blanks and punctuation stay. Prints how many words were
    drawn as they were, and what the longest line spends; never a word of the text.

    Options:
        table TABLE: A saved table of words (.pmdp).
        text FILE: The text, UTF-8.
        out FILE: Target for the text.
    """
    mechanism = load_mechanism(table)
    summary = TextSummary()
    with (
        progress_console().status("drawing") as status,
        text.open("rb") as stream,
        atomic_file(out) as target,
    ):
        while lines := list(islice(stream, TOGETHER)):
            try:
                texts = [line.decode() for line in lines]
            except UnicodeDecodeError:
                texts = []
            if not texts:
                raise InvalidInputError(f"{text} is not text in UTF-8; convert it first")
            target.write("".join(sanitised(texts, mechanism, summary=summary)).encode())
            status.update(f"drawing: {summary.words:,} words")
    typer.echo("\n".join([*summary.lines(), f"saved to {out}"]))
    write_json(json, picked(summary, "texts", "words", "kept", "unknown"))
