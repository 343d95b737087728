"""The paper's evaluation: its tables and figures, run again and put beside what it reports.

    settings/   what is run, as data: settings, cells, items, and the paper's own values
    cells/      computing: one draw, the kinds of cells, the runner, the results on disk
    draw/       drawing: series of results, and one picture for each figure
    claims/     the paper's claims, judged from results alone
    report/     files: tables, pictures, and one page on everything

**To add an item** (a table or figure):

1. Write a kind of cell, if none fits, in `cells/`: `def my_kind(cell, work) -> Outcome`, and enter
   it under a name of its own in `cells/runner.py` and `settings/cell.py`. The name is saved with
   every result, so it never changes. `work.draw(cell)` has the problem and users of the cell's
   setting and repeat; `work.limit` the seconds it may take; `cell.options` what the item varies
   beyond the setting. Return numbers in `Outcome.values` (JSON scalars, or flat lists of them), and
   say "infeasible" with a note where there is nothing to measure. Raise a PandaError for the same;
   anything else is recorded as failed.
2. Add an `Item` to `settings/paper_tables.py` or a `Figure` to `settings/paper_figures.py`, and for
   a figure what draws it and says it in words to `draw/figures.py`. `panda-mdp reproduce NAME` then
   works, with resuming, limits, progress, `--toy` and `--records`.

Cells know nothing of items: two items that need the same cell (times and losses of one run) share
its result. What a cell is identified by is its kind, method, setting, options and repeat.
"""
