"""The command that runs the paper's evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.text import Facts
from panda_mdp.city.city import City
from panda_mdp.city.maps import MapOptions, load_city
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.city.traces import load_traces
from panda_mdp.cli.frame import INTERRUPTED, output_console, progress_console, working
from panda_mdp.cli.options import (
    Crs,
    FromOne,
    MaybePath,
    MaybeText,
    comma_separated,
    described,
    require,
)
from panda_mdp.cli.printing import progress
from panda_mdp.errors import MethodError
from panda_mdp.survey.bench import Bench

if TYPE_CHECKING:
    from panda_paper.items import Cell, Item
    from panda_paper.study import Study

SYNTHETIC_NODES = 12_000
TOY_NODES = 400
SHOWN = 3
"""Failures that are printed; all are in the results."""


@dataclass(frozen=True)
class Where:
    """A city and what is known of it.

    Options:
        city FILE: A road map; a synthetic city where none is given.
        out DIR: Folder for the results.
        traces FILE: Traces for the real prior; else counts of streets.
        remark TEXT: On the map, for all titles; remembered in DIR/CITY.
        toy: Toy sizes: tries everything in seconds.
    """

    city: MaybePath = None
    out: Path = Path("results")
    traces: MaybePath = None
    remark: MaybeText = None
    toy: bool = False
    crs: Crs = None

    def study(self) -> Study:
        """The study of the city, with its folder below `out`."""
        from panda_paper.results import STUDY, read_json
        from panda_paper.study import Study

        if self.city is None:
            name = "synthetic"
            roads = synthetic_city(TOY_NODES if self.toy else SYNTHETIC_NODES, 0)
        else:
            name = self.city.name.split(".")[0].lower()
            roads = load_city(self.city, MapOptions(crs=self.crs))
        visits, source = (None, "") if self.traces is None else _visits(roads, self.traces)
        folder = self.out / (f"{name}-toy" if self.toy else name)
        remark = self.remark or read_json(folder / STUDY).get("remark", "")
        return Study(roads, name, folder, self.city is None, visits, source, remark)


@dataclass(frozen=True)
class Part:
    """What of the items is run.

    Options:
        repeats COUNT: Draws of each cell, instead of the item's.
        records COUNTS: Sizes K, separated by commas.
        methods NAMES: Methods, separated by commas; LP, LP+BD and LP+EM, which mostly time out,
            and those on swapped coordinates run only where they are named.
    """

    repeats: FromOne = None
    records: MaybeText = None
    methods: MaybeText = None

    def of(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Of each item."""
        from panda_paper.items import restricted

        sizes = None if self.records is None else _sizes(self.records)
        names = None if self.methods is None else comma_separated(self.methods)
        return restricted(items, sizes, names, self.repeats)


@described
def reproduce(
    what: str,
    where: Where,
    part: Part,
    time_limit: Annotated[float, typer.Option(min=0.1)] = 1800.0,
    fresh: bool = False,
) -> None:
    """Regenerate tables and figures of the paper, its value beside ours.

    Results are saved cell by cell under DIR/CITY and used again: an interrupted run goes on where
    it was, and tables show all repeats that the folder holds. Published accounting follows the
    published code and has no guarantee; its audited epsilon is printed beside the claimed one.
    'list' shows the items, 'report' writes a page (DIR/report.md) on all results in DIR,
    without running anything.

    Options:
        what WHAT: An item of the paper, several with commas, 'all', 'list' or 'report'.
        time_limit SECONDS: Limit of each cell; the paper has 1800.
        fresh: Run again what is already in the results.
    """
    from panda_paper.items import ITEMS, choose_items
    from panda_paper.results import Results
    from panda_paper.runner import CellLaboratory, run_cells
    from panda_paper.tables import write_item, write_report

    console = output_console()
    if what == "list":
        for item in ITEMS.values():
            console.print(f"{item.name:14} {item.title}", soft_wrap=True)
        return
    if what == "report":
        console.print(str(write_report(where.out)), soft_wrap=True)
        return
    items = [item.toy() if where.toy else item for item in choose_items(what)]
    parts = part.of(items)
    with working("reading the map"):
        study = where.study()
    results = Results.of_study(study)
    cells = list(dict.fromkeys(cell for one in parts for cell in one.draws()))
    laboratory = CellLaboratory(study)
    try:
        with progress(len(cells)) as show_step, Bench(laboratory, "shared") as bench:
            run_cells(cells, results, bench, time_limit, fresh=fresh, progress=show_step)
    except KeyboardInterrupt:
        progress_console().print(f"interrupted; what was done is in {study.folder}")
        raise typer.Exit(INTERRUPTED) from None
    for item, ran in zip(items, parts, strict=True):
        for path in write_item(item.with_all_of(ran), results) if ran.plan else ():
            console.print(str(path), soft_wrap=True)
    tell_failures({cell: results.lines[cell] for cell in cells})


def tell_failures(lines: Mapping[Cell, Facts]) -> None:
    """Print the first cells that failed, and leave with exit code 1 where there are any."""
    failed = [cell for cell, line in lines.items() if line["status"] == "failed"]
    for cell in failed[:SHOWN]:
        progress_console().print(f"failed: {cell}: {lines[cell]['note']}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _visits(city: City, traces: Path) -> tuple[FloatArray, str]:
    """How often each node of the city was visited."""
    domain = city.domain(records=None)
    counted = load_traces(traces).visits(domain)
    visits = np.zeros(city.nodes)
    if domain.nodes is not None:
        visits[domain.nodes] = counted.counts
    if not visits.any():
        raise MethodError(
            f"no fix of {traces} lies near a street of this city; give traces of the same city"
        )
    return visits, counted.source


def _sizes(text: str) -> list[int]:
    sizes = comma_separated(text)
    for size in sizes or [text]:
        require(
            size.isdigit() and int(size) >= 2,
            f"{size!r} is not a number of records; give sizes such as 500,1000",
            "--records",
        )
    return [int(size) for size in sizes]
