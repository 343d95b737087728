"""The paper's evaluation: its tables and figures, run again and put beside what it reports.

    items, paper               what is run, as data: settings, cells, items (`items.toml`), the
                               paper's own values (`paper.json`)
    study, runner              draws of a city, its cells on the bench
    methods, published, accounts              what computes each kind of cell
    results                    lines on the disk, and one table of all of them (pandas)
    figures, claims, tables    figures (`figures.toml`), the paper's claims judged from results
                               (`claims.toml`), files and one page on everything

**To add an item** (a table or figure):

1. Write a kind of cell, if none fits: `def my_kind(draw) -> Outcome`, and enter it under a name of
   its own in `runner.py`. The name is saved with every result, so it never changes. `draw` has the
   problem and users of the cell's setting and repeat, and `draw.limit`, the seconds it may take;
   `draw.cell.options` what the item varies beyond the setting. Return numbers in `Outcome.values`
   (JSON scalars, or flat lists of them, one row for each entry). Raise a PandaError where there is
   nothing to measure: the cell is infeasible; anything else is recorded as failed.
2. Declare the item's cells in `items.toml`, and a figure's panels and lines in `figures.toml`.
   `panda-mdp reproduce NAME` then works, with resuming, limits, progress, `--toy` and `--records`.

Cells know nothing of items: two items that need the same cell (times and losses of one run) share
its result. What a cell is identified by is its kind, method, setting, options and repeat.
"""
