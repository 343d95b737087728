"""What the second checker computes of PAnDA and meshes is what the library and all sets say."""

from __future__ import annotations

import contextlib
import io
from fractions import Fraction
from math import exp, log
from pathlib import Path

import forging
import numpy as np
import pytest
from second_checker import SOURCE, checker

from panda_mdp.panda.certificate import certify
from panda_mdp.panda.leakage import cost_table


def second(path: Path) -> tuple[int, list[str]]:
    """Exit code and lines of the second checker."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = checker().main(str(path))
    return code, said.getvalue().splitlines()


def test_of_balls_the_rows_are_compared_at_what_is_left(tmp_path: Path) -> None:
    made = forging.panda_table("common")
    code, said = second(made.save(tmp_path / "balls.pmdp"))
    assert code == 0, said
    left = float(next(line for line in said if line.startswith("pairs:")).split()[5].rstrip(","))
    assert left == pytest.approx(made.scheme.table_epsilon, rel=1e-11)
    assert said[-1].endswith("centre and report")


@pytest.mark.parametrize("kind", ["coins", "exponential", "power"])
def test_the_law_of_coins_is_within_its_bounds(kind: str, tmp_path: Path) -> None:
    """Probabilities that float64 draws with lie between the checker's; Phase I costs as much."""
    made = forging.panda_table(kind)
    module = checker()
    table = module.read(made.save(tmp_path / "coins.pmdp").read_bytes())
    scheme = table.prove.__globals__["Coins"](table, module.METRICS[table.kind](table))
    law = made.scheme.law
    drawn = law.dense(np.arange(forging.SIZE))[:, law.candidates]
    for row, coins in zip(drawn, scheme.coins, strict=True):
        for probability, (low, high, _) in zip(row, coins, strict=True):
            assert low <= int(Fraction(probability) * 2**62) <= high
            assert high - low < 2**62 * 1e-11
    cost = cost_table(law, law.all_rows, made.problem.domain.distances())
    for x, x2 in ((0, 1), (3, 17), (22, 9)):
        told = log(Fraction(scheme.leak(x, x2), 1 << module.Q))
        assert cost[x, x2] - 1e-13 <= told <= cost[x, x2] + 1e-9
    found = certify(law, 1.0, made.delta, made.scheme.budgets)
    assert found.violation <= made.delta


def test_logarithms_are_bounds() -> None:
    module = checker()
    log_of = module.runpy.run_path(str(SOURCE.with_name("panda_verify_phases.py")))["logarithm"]
    for value in (1e-9, 0.3, 0.999, 1.0, 1.5, 2.0, 7.25, 1e6):
        v = int(Fraction(value) * 2**module.Q)
        low, high = (Fraction(log_of(v, above), 1 << module.Q) for above in (False, True))
        assert low < high
        assert high - low < Fraction(1, 1 << 110)
        assert float(low) == pytest.approx(log(value), abs=1e-15, rel=1e-15)
        assert exp(float(high)) == pytest.approx(value, rel=1e-14)


def test_a_mesh_with_a_hole_does_not_cover(tmp_path: Path) -> None:
    """A triangle of the middle that lacks a corner, all else as it was."""
    module = checker()
    table = module.read(forging.honest("mesh"))
    mesh = table.prove.__globals__
    vertices = {tuple(v): x for x, v in enumerate(module.rows(table.values["mesh_vertices"], 2))}
    mesh["check_cover"](table, vertices)
    for gone in list(vertices)[:: max(1, len(vertices) // 12)]:
        left = {v: x for v, x in vertices.items() if v != gone}
        with pytest.raises(ValueError, match="a triangle is missing"):
            mesh["check_cover"](table, left)


@pytest.mark.parametrize(("height", "needed"), [(1e-6, True), (1.3e-6, False)])
def test_triangles_within_the_margin_of_the_area_are_needed(height: float, needed: bool) -> None:
    """An area in one triangle, whose lower side is 0.87 or 1.13 millionths of a side away."""
    module = checker()
    table = module.read(forging.honest("mesh"))
    kind = type(table.values["mesh_area"])
    table.values["mesh_area"] = kind([0.2, height, 0.3, height, 0.2, 0.3])
    vertices = {(0, 0): 0, (1, 0): 1, (0, 1): 2}
    check = table.prove.__globals__["check_cover"]
    if needed:
        with pytest.raises(ValueError, match="a triangle is missing"):
            check(table, vertices)
    else:
        check(table, vertices)


def test_a_vertex_is_there_once() -> None:
    module = checker()
    table = module.read(forging.honest("mesh"))
    given = table.values["mesh_vertices"]
    table.values["mesh_vertices"] = type(given)([*given[:2], *given[:2], *given[4:]])
    with pytest.raises(ValueError, match="a vertex is there twice"):
        table.prove(table)


def test_the_rate_of_a_triangle_is_exact() -> None:
    """At the rate of the worst triangle it passes, a part in 10^15 below it does not."""
    module = checker()
    table = module.read(forging.honest("mesh"))
    mesh = table.prove.__globals__
    vertices = {tuple(v): x for x, v in enumerate(module.rows(table.values["mesh_vertices"], 2))}
    triangles = list(mesh["all_triangles"](vertices))
    spacing = Fraction(table.claims["mesh"]["spacing"])
    worst = Fraction(0)
    for corners, far in triangles:
        for a, b, c in zip(*(table.rows[x] for x in corners), strict=True):
            changes = (a - b) ** 2 + (b - c) ** 2 + (c - a) ** 2
            square = Fraction(2 * changes, 3 * min(a, b, c) ** 2)
            stretch = 1 + spacing**2 * far / Fraction(63710088, 10**4) ** 2
            worst = max(worst, square * stretch**2 / spacing**2)
    near = Fraction(int(float(worst) ** 0.5 * 2**80), 2**80)
    up, down = near * (1 + Fraction(1, 10**15)), near * (1 - Fraction(1, 10**15))
    assert down**2 < worst < up**2
    mesh["check_rates"](table, triangles, spacing, up)
    with pytest.raises(ValueError, match="the rate is exceeded"):
        mesh["check_rates"](table, triangles, spacing, down)


@pytest.mark.parametrize("kind", ["coins", "power"])
def test_the_mass_of_coins_is_the_one_of_all_sets(kind: str, tmp_path: Path) -> None:
    """Every set of the candidates, one by one: never below, and above by rounding alone."""
    made = forging.panda_table(kind)
    module = checker()
    table = module.read(made.save(tmp_path / "coins.pmdp").read_bytes())
    scheme = table.prove.__globals__["Coins"](table, module.METRICS[table.kind](table))
    law, count = made.scheme.law, len(made.scheme.law.candidates)
    drawn = law.dense(np.arange(forging.SIZE))[:, law.candidates]
    rows = [np.array([w for w in row if w], dtype=np.float64) for row in scheme.own]
    for x, x2 in ((0, 13), (20, 2), (5, 6)):
        orders = [scheme.order[x], scheme.order[x2]]
        far = [[np.abs(np.log(a / b)).max() for b in rows] for a in rows]
        for limit in sorted({far[0][1], far[2][5], far[1][3] / 2}):
            total = {x: 0.0, x2: 0.0}
            for code in range(1 << count):
                member = [code >> a & 1 for a in range(count)]
                ends = [next((a for a in order if member[a]), None) for order in orders]
                if ends[0] is None or far[ends[0]][ends[1]] > limit * (1 + 1e-9):
                    for who in total:
                        w = drawn[who]
                        total[who] += float(np.prod(np.where(member, w, 1 - w)))
            room = int(exp(limit * (1 + 1e-9)) * 2**64)
            for who, expected in total.items():
                told = scheme.unsafe(x, x2, who, room) / 2**module.Q
                assert (
                    expected * (1 - 1e-9) <= told <= expected * (1 + 1e-6) + 3 * made.delta * 1e-6
                )
    one = table.rows[0]
    assert scheme.violation(0, 13, 0, 0) == 1
    for truth in (0, 13):
        scheme.unsafe = lambda i, j, who, room, truth=truth: 7 if who == truth else 3
        assert scheme.violation(0, 13, *module.dyadic(1.0)) == Fraction(7, 1 << module.Q)
    spread = table.prove.__globals__["spread"]
    assert spread(one, one) == 1 << 64
    assert spread((1, 9), (3, 9)) == spread((3, 9), (1, 9)) == 3 << 64


def test_stored_entries_belong_to_one_row_and_one_column() -> None:
    module = checker()
    write = module.written_out
    assert list(write((1, 1, 9), (0, 2, 3), (0, 1, 2), (5, 6, 7))) == [[5, 6, 9], [1, 1, 7]]
    wrong = {
        "a column twice": ((0, 2, 3), (0, 0, 2)),
        "an entry of no row": ((0, 1, 2), (0, 1, 2)),
        "a row that starts late": ((1, 2, 3), (0, 1, 2)),
        "a column beyond": ((0, 2, 3), (0, 3, 2)),
    }
    for name, (starts, columns) in wrong.items():
        with pytest.raises(ValueError, match=r"the stored entries|the columns of a row"):
            list(write((1, 1, 9), starts, columns, (5, 6, 7)))
            pytest.fail(name)


@pytest.mark.parametrize("kind", forging.TERMS)
def test_what_a_limit_costs_is_the_same_a_second_time(kind: str, tmp_path: Path) -> None:
    made = forging.limited(kind)
    name = {"limit": "limited", "dominates": "dominates"}.get(kind, "second")
    proof = made.details[name]["proof"]
    code, said = second(made.save(tmp_path / "t.pmdp"))
    line = next(line for line in said if line.startswith("terms:"))
    assert code == 0 and line.endswith(", proved")
    told = float(line.split()[-2].rstrip(","))
    assert proof.value <= told <= proof.value + 1e-9 * abs(proof.value)


def test_weights_of_guesses_are_shares_of_their_sum(tmp_path: Path) -> None:
    """Ten times as much on each of them says the same."""
    file = forging.File.of(forging.honest("terms located"))
    before = second(forging.Sample("", "", file.bytes()).write(tmp_path))[1]
    file.arrays["term_weights"] *= 10.0
    after = second(forging.Sample("", "", file.bytes()).write(tmp_path))[1]
    assert [line[:60] for line in after] == [line[:60] for line in before]


@pytest.mark.parametrize("given", [False, True])
def test_averages_are_those_of_what_was_given(given: bool, tmp_path: Path) -> None:
    """The bound of every point, summed up again in fractions; of another prior there is none."""
    made = forging.averaged(given)
    code, said = second(made.save(tmp_path / "t.pmdp"))
    bound = next(float(line.split()[1].rstrip(",")) for line in said if line.startswith("bound:"))
    assert code == 0 and made.bound.value <= bound <= made.bound.value * (1 + 1e-9)
    file = forging.File.of(forging.honest("averages given" if given else "averages"))
    prior = file.arrays["given_prior"]
    here = np.flatnonzero(prior)
    prior[here] = prior[here][::-1].copy()
    code, said = second(forging.Sample("", "", file.bytes()).write(tmp_path))
    assert code == 0 and "bound: 0.0, proved by the multipliers in this file" in said
