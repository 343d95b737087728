"""Every item by name."""

from __future__ import annotations

from collections.abc import Mapping

from panda_mdp.errors import MethodError
from panda_paper.settings import paper_figures, paper_tables
from panda_paper.settings.item import Item


def items() -> Mapping[str, Item]:
    """Every item, by name, in the paper's order."""
    return {item.name: item for item in (*paper_tables.ITEMS, *paper_figures.ITEMS)}


def choose_items(what: str) -> tuple[Item, ...]:
    """The items of a name, of several separated by commas, or of the word `all`."""
    known = items()
    if what == "all":
        return tuple(item for item in known.values() if item.group == "paper")
    chosen: list[Item] = []
    for name in (part.strip() for part in what.split(",")):
        if name not in known:
            msg = f"there is no item {name!r}; choose from all, {', '.join(known)}"
            raise MethodError(msg)
        chosen.append(known[name])
    return tuple(chosen)
