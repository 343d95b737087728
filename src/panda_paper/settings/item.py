"""Items: the tables and figures of the paper, as the cells that they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from panda_mdp.errors import MethodError
from panda_paper.settings.cell import Cell, Kind, Options, Setting, Template
from panda_paper.settings.method_names import SLOW

TOY_RECORDS, TOY_STEP, TOY_OUTPUTS = 40, 10, 8


@dataclass(frozen=True)
class Item:
    """One table or figure of the paper: the cells that it needs, and what makes files of them."""

    name: str
    title: str
    settings: tuple[Setting, ...]
    methods: tuple[str, ...]
    kind: Kind = "method"
    measure: str = "loss_m"
    """Which value of a row the item shows."""
    repeats: int = 10
    variants: tuple[Options, ...] = ((),)
    """Options that vary beyond the setting, one cell for each."""
    optional: tuple[str, ...] = ()
    """Methods that are run only where they are named."""
    slow: frozenset[str] = field(default=SLOW)
    group: str = "paper"
    """`all` runs the items of the group "paper"."""

    def cells(self, *, slow_repeats: int = 0) -> Iterator[Cell]:
        """All cells, those of one draw together. Slow methods run `slow_repeats` times."""
        for setting in self.settings:
            for repeat in range(self.repeats):
                for method in self.methods:
                    if method in self.slow and repeat >= slow_repeats:
                        continue
                    for options in self.variants:
                        yield Cell(self.kind, method, setting, repeat, options)

    @cached_property
    def templates(self) -> frozenset[Template]:
        """What the item's cells are, their repeats aside."""
        once = self.restricted(repeats=1)
        return frozenset(cell.template for cell in once.cells(slow_repeats=1))

    def shows(self, cell: Cell) -> bool:
        """Whether a cell belongs to the item, whichever repeat it is."""
        return cell.template in self.templates

    def with_all_of(self, part: Item) -> Item:
        """This item with its optional methods, and with the settings of a part that was run."""
        methods = (*self.methods, *self.optional)
        settings = (*self.settings, *part.settings)
        return replace(
            self,
            methods=methods,
            optional=(),
            settings=tuple(sorted(dict.fromkeys(settings), key=lambda one: one.records)),
        )

    def toy(self) -> Item:
        """The same item at toy size: a few dozen records, two repeats, seconds in all."""
        sizes = sorted({setting.records for setting in self.settings})
        small = {size: TOY_RECORDS + TOY_STEP * rank for rank, size in enumerate(sizes)}
        settings = tuple(
            replace(
                setting,
                records=small[setting.records],
                outputs=min(setting.outputs, TOY_OUTPUTS),
                users=max(1, setting.users // 10),
            )
            for setting in self.settings
            if small[setting.records] < TOY_RECORDS + 2 * TOY_STEP
        )
        return replace(self, settings=settings, repeats=min(self.repeats, 2))

    def restricted(
        self,
        *,
        records: Sequence[int] | None = None,
        methods: Sequence[str] | None = None,
        repeats: int | None = None,
    ) -> Item:
        """The item with other sizes, fewer methods, or another number of repeats.

        Sizes that the item has keep its settings; others take those of its first one.
        """
        out = self
        if records is not None:
            own = {setting.records for setting in self.settings}
            settings: list[Setting] = []
            for size in records:
                base = size if size in own else self.settings[0].records
                settings += [
                    replace(setting, records=size)
                    for setting in self.settings
                    if setting.records == base
                ]
            out = replace(out, settings=tuple(dict.fromkeys(settings)))
        if methods is not None:
            known = (*self.methods, *self.optional)
            foreign = [name for name in methods if name not in known]
            if foreign:
                msg = f"{self.name} has no method {foreign[0]!r}; choose from {', '.join(known)}"
                raise MethodError(msg)
            out = replace(out, methods=tuple(methods))
        if repeats is not None:
            if repeats < 1:
                msg = f"repeats is {repeats}; run each cell at least once"
                raise MethodError(msg)
            out = replace(out, repeats=repeats)
        return out


@dataclass(frozen=True)
class Figure(Item):
    """An item whose cells are those of its parts."""

    parts: tuple[Item, ...] = ()

    def cells(self, *, slow_repeats: int = 0) -> Iterator[Cell]:
        """All parts' cells, those of one draw together, so that the draw is made once."""
        cells = [cell for part in self.parts for cell in part.cells(slow_repeats=slow_repeats)]
        order = {setting: k for k, setting in enumerate(self.settings)}
        yield from sorted(
            cells, key=lambda cell: (order.get(cell.setting, len(order)), cell.repeat)
        )

    def shows(self, cell: Cell) -> bool:
        """Whether a cell belongs to the figure: one of its own repeats, because a curve with three
        draws at one point and a table's ten at the next would show the draws."""
        return any(cell.repeat < part.repeats and part.shows(cell) for part in self.parts)

    def with_all_of(self, part: Item) -> Figure:
        """This figure with what was run of it beyond its own settings and repeats."""
        more = part.parts if isinstance(part, Figure) else ()
        return assembled(self, (*self.parts, *more))

    def toy(self) -> Figure:
        """Every part at toy size."""
        parts = tuple(part.toy() for part in self.parts)
        return assembled(self, parts)

    def restricted(
        self,
        *,
        records: Sequence[int] | None = None,
        methods: Sequence[str] | None = None,
        repeats: int | None = None,
    ) -> Figure:
        """Every part restricted; a part that has none of the methods is left out."""
        parts = []
        for part in self.parts:
            own = None if methods is None else [name for name in methods if name in part.methods]
            if own is None or own:
                parts.append(part.restricted(records=records, methods=own, repeats=repeats))
        if not parts:
            msg = f"{self.name} has none of these methods; choose from {', '.join(self.methods)}"
            raise MethodError(msg)
        return assembled(self, tuple(parts))


def assembled(figure: Figure, parts: tuple[Item, ...]) -> Figure:
    """The figure over these parts, with their settings, methods and repeats."""
    settings = tuple(dict.fromkeys(s for part in parts for s in part.settings))
    methods = tuple(dict.fromkeys(m for part in parts for m in part.methods))
    repeats = max(part.repeats for part in parts)
    return replace(figure, parts=parts, settings=settings, methods=methods, repeats=repeats)
