"""The paper's evaluation: its tables and figures, run again and put beside what it reports.

    items, paper               what is run, as data: settings, cells, items (`items.toml`), the
                               paper's own values (`paper.json`)
    study, runner, results     draws of a city, its cells on the bench, results as rows and series
    methods, published, accounts              what computes each kind of cell
    figures                    figures declared over the series (`figures.toml`)
    claims, evidence           the paper's claims (`claims.toml`), judged from results alone
    tables                     files: tables, pictures, and one page on everything

**To add an item** (a table or figure):

1. Write a kind of cell, if none fits: `def my_kind(cell, work) -> Outcome`, and enter it under a
   name of its own in `runner.py` and `items.py`. The name is saved with every result, so it never
   changes. `work.draw(cell)` has the problem and users of the cell's
   setting and repeat; `work.limit` the seconds it may take; `cell.options` what the item varies
   beyond the setting. Return numbers in `Outcome.values` (JSON scalars, or flat lists of them), and
   say "infeasible" with a note where there is nothing to measure. Raise a PandaError for the same;
   anything else is recorded as failed.
2. Declare the item's cells in `items.toml`, and a figure's panels and lines in `figures.toml`: what
   they show is also said in words. `panda-mdp reproduce NAME` then works, with resuming, limits,
   progress, `--toy` and `--records`.

Cells know nothing of items: two items that need the same cell (times and losses of one run) share
its result. What a cell is identified by is its kind, method, setting, options and repeat.
"""
