"""The paper's evaluation as data: items, cells, one runner, tables and figures.

    specs.py    what is run: Setting, Cell, Item, and the registry `items()`
    draws.py    one draw of records, outputs, tasks, users and prior, shared by all methods
    cells.py    how a cell of a table is run; each cell kind is `run(cell, work) -> Outcome`
    runner.py   runs cells with a time limit, saves each at once, resumes
    store.py    where results are kept
    tables.py   rows, CSV, JSON and markdown beside the paper's values

**To add an item** (a table or figure):

1. Write a cell kind, if none fits, in a module of this package:
   `def my_kind(cell: Cell, work: Workspace) -> Outcome`. `work.draw(cell)` has the problem and
   users of the cell's setting and repeat; `work.limit` the seconds it may take; `cell.options` what
   the item varies beyond the setting. Return numbers in `Outcome.values` (JSON scalars, or flat
   lists of them), and say "infeasible" with a note where there is nothing to measure.
   Raise a PandaError for the same; anything else is recorded as failed.
2. Write a renderer: `def my_render(item: Item, rows: Sequence[Row], study: Study) -> list[Path]`,
   which writes its files into `study.folder` and returns their paths.
3. Add an `Item` that names both ("module:function", modules of this package) to the `ITEMS` of
   `specs.py` (tables) or `figure_specs.py` (figures). `panda-mdp reproduce NAME` then works, with
   resuming, limits, progress, `--toy` and `--records`.

Cells know nothing of items: two items that need the same cell (times and losses of one run) share
its result. What a cell is identified by is its kind, method, setting, options and repeat.
"""
