"""Experiments as data: keys, cells, restriction, the registry."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from panda_mdp.errors import MethodError
from panda_paper.items import ITEMS, Cell, Item, Setting, choose_items, restricted
from panda_paper.methods import METHODS
from panda_paper.runner import KINDS

CELL = Cell("method", "EM", Setting(500), 0)


def test_a_cell_is_everything_that_a_result_depends_on() -> None:
    others = [
        replace(CELL, kind="bound"),
        replace(CELL, method="EM+BR"),
        replace(CELL, repeat=1),
        replace(CELL, options=(("alpha", 0.5),)),
    ]
    changed = {"records": 501, "prior": "real", "users": 51, "outputs": 99, "tasks": 2}
    for field in fields(Setting):
        value = changed.get(field.name, 0.25)
        others.append(replace(CELL, setting=replace(CELL.setting, **{field.name: value})))
    assert len({CELL, *others}) == len(others) + 1
    assert {Cell.read(cell.fields()) for cell in others} == {*others}


def test_times_and_losses_of_one_run_share_their_cells() -> None:
    (time,) = choose_items("table2")
    (loss,) = choose_items("table4")
    assert list(time.draws()) == list(loss.draws())


def test_slow_methods_run_where_they_are_named() -> None:
    item = Item("x", "x", [{"methods": ("EM", "LP", "EM swapped"), "records": (500, 1000)}])
    assert item.restricted().methods == ("EM",)
    slow = item.restricted(methods=["LP"], repeats=1).draws()
    assert [(cell.method, cell.setting.records, cell.repeat) for cell in slow] == [
        ("LP", 500, 0),
        ("LP", 1000, 0),
    ]


def test_cells_of_one_draw_come_together() -> None:
    item = Item("x", "x", [{"methods": ["noise"], "records": (500, 1000), "repeats": 2}])
    draws = [(cell.setting.records, cell.repeat) for cell in item.draws()]
    assert draws == sorted(draws)


def test_restriction_keeps_the_items_own_settings_and_refuses_foreign_methods() -> None:
    (item,) = choose_items("table8")
    other = item.restricted(records=[500, 7777], methods=["EM"], repeats=2)
    assert [cell.setting.records for cell in other.plan] == [500, 7777]
    assert {cell.setting.users for cell in other.plan} == {15}
    assert {cell.setting.delta for cell in other.plan} == {0.15}
    assert len(list(other.draws())) == 4
    assert item.restricted(methods=["EM swapped"]).methods == ("EM swapped",)
    assert item.restricted(methods=["XY"]).plan == {}


def test_a_method_that_one_item_lacks_is_left_out_and_one_that_none_has_is_refused() -> None:
    figures = choose_items("figure7,figure8")
    first, second = restricted(figures, [500], ["PAnDA-e text", "EM"], 1)
    assert first.methods == ("PAnDA-e text",) and set(second.methods) == {"PAnDA-e text", "EM"}
    with pytest.raises(MethodError, match="no method 'XY'; choose from"):
        restricted(figures, None, ["EM", "XY"], None)


def test_toy_items_are_small_and_keep_their_shape() -> None:
    for item in ITEMS.values():
        toy = item.toy()
        assert toy.plan, item.name
        assert max(cell.setting.records for cell in toy.plan) <= 60
        assert max(cell.setting.users for cell in toy.plan) <= 20
        assert toy.methods == item.methods


def test_everything_that_an_item_names_exists() -> None:
    for item in ITEMS.values():
        for kind, method in {(cell.kind, cell.method) for cell in item.draws()}:
            assert kind in KINDS, item.name
            assert kind != "method" or method in METHODS, (item.name, method)


def test_the_papers_tables_are_all_there_and_unknown_ones_are_refused() -> None:
    names = set(ITEMS)
    assert names >= {f"table{n}" for n in (2, 3, 4, 5, 7, 8, 9, 10, 11, 12)} | {"clustering"}
    assert choose_items("all") == tuple(ITEMS.values())
    assert [item.name for item in choose_items("table4, clustering")] == ["table4", "clustering"]
    with pytest.raises(MethodError, match="no item 'table99'"):
        choose_items("table99")


def test_settings_are_those_of_the_paper() -> None:
    def settings(name: str) -> list[Setting]:
        return list(dict.fromkeys(cell.setting for cell in ITEMS[name].plan))

    assert [s.records for s in settings("table10")] == [500, 1000, 1500, 2000, 2500, 3000]
    assert {(s.epsilon, s.delta, s.users) for s in settings("table10")} == {(15.0, 0.15, 15)}
    assert [s.records for s in settings("table4")] == [500, 1000, 2000, 3000, 4000, 5000]
    assert {(s.epsilon, s.delta, s.users, s.outputs, s.tasks) for s in settings("table4")} == {
        (5.0, 1e-7, 50, 100, 1)
    }
    assert {s.prior for s in settings("table12")} == {"real"}


def test_tables_show_every_repeat_and_figures_their_own() -> None:
    table, figure = ITEMS["table4"], ITEMS["figure11"]
    cell = Cell("method", "PAnDA-e published", Setting(2000), 2)
    later = replace(cell, repeat=7)
    assert table.shows(cell) and figure.shows(cell)
    assert table.shows(later) and not figure.shows(later)
    assert figure.with_all_of(figure.restricted(repeats=8)).shows(later)
    other = replace(cell, setting=Setting(2000, outputs=7))
    assert not table.shows(other) and not figure.shows(other)
