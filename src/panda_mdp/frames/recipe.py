"""Recipes for tables of trips, and a statement of what was done."""

from __future__ import annotations

from pathlib import Path

from panda_mdp.base.text import Facts, per
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.frames.drawing import FrameSummary
from panda_mdp.frames.perturb import Perturber
from panda_mdp.meaning.attack import hides_nothing
from panda_mdp.meaning.explain import explain
from panda_mdp.meaning.shuffled import ShuffledReports
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.table.mechanism import Mechanism

MOST_ENTRIES = 10_000_000
"""Of a table, beyond which the attacker's sums take too long for a statement."""
SHUFFLED_DELTA = 1e-6


def read_recipe(path: Path) -> Facts:
    """A recipe in TOML: `places`, `person`, `time`, `period`, `snap_limit`, and `[columns]`."""
    import tomllib

    known = {"places", "person", "time", "period", "snap_limit", "outside", "budget", "columns"}
    try:
        recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path.name} is no recipe in TOML ({error})") from error
    if unknown := sorted(set(recipe) - known):
        raise FileFormatError(
            f"{path.name} speaks of {unknown[0]!r}; a recipe has {', '.join(sorted(known))}"
        )
    return recipe


def statement(
    summary: FrameSummary, perturber: Perturber, table: Mechanism | PandaTable, name: str
) -> str:
    """One page for whoever is responsible: what was done, what it costs, what an attacker gains,
    what is not covered. It follows from the summary, the recipe and the table, and nothing else."""
    each: Guarantee = summary.guarantee
    unit = each.unit
    columns = perturber.columns
    told = "\n".join(f"- {line}" for line in summary.lines())
    treated = {} if perturber.treatment is None else perturber.treatment.columns
    done = {n: way if isinstance(way, str) else f"rounded to {way:g}" for n, way in treated.items()}
    ways = "\n".join(f"| {column} | {way} |" for column, way in done.items())
    drawn = "\n".join(f"- {', '.join(pair)}" for pair in columns.drawn)
    whole = (
        f"A person spends at most epsilon {summary.spent_in_all:g} {per(unit)} over the whole file."
        if summary.totals
        else "No column names persons, so what one person spends in several rows is **not known**."
    )
    return f"""# What was done to this file

Places were replaced by random reports, drawn from the table `{name}` with the operating system's
generator:

{drawn}

One report has epsilon {each.epsilon:g} {per(unit)} and delta {each.delta:g}:
whoever sees it, whatever they knew before, can raise the odds between two places
d {unit} apart by a factor of at most e^({each.epsilon:g} d). {whole}

{told}

## What an attacker gains from one report

{_gained(table)}

## Where the order of the reports is lost

{_shuffled(table, summary)}

## Other columns

| column | what became of it |
|---|---|
{ways or "| (none was spoken of) | |"}

## What is not covered

- The other columns are not random. What is kept, exact or coarse, is as telling as it was.
- That a person is in the file, and in how many rows, is not hidden.
- Reports of one person add up: the total above is what counts against somebody who links rows.
- Rows that are missing because no record is near tell that their places lie outside the table.
"""


def _gained(table: Mechanism | PandaTable) -> str:
    if isinstance(table, PandaTable):
        return "Anchors are not released; `panda-mdp attack` says what a server sees that has them."
    if table.problem.size * table.problem.outputs_count > MOST_ENTRIES:
        return f"The table is too large for exact sums here. {hides_nothing(table)}"
    return explain(table).text.replace("\n\n", "\n").replace("\n", "  \n")


def _shuffled(table: Mechanism | PandaTable, summary: FrameSummary) -> str:
    """What a batch tells of which counts alone are handed on."""
    try:
        epsilon = ShuffledReports(table, summary.reported).epsilon(SHUFFLED_DELTA)
    except InvalidInputError as error:
        return f"No better than each report alone: {error}."
    return (
        f"Whoever hands on **counts of the {summary.reported:,} reports and nothing beside them**, "
        f"one report of each person, gives (epsilon {epsilon:.3g}, delta {SHUFFLED_DELTA:g}) "
        "between any two places. This file has rows with their other columns, and several may be "
        "of one person: for it the lines above count, and for whoever counts sees each report too."
    )
