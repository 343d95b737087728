"""What the rows of one city say about each claim: quantities by name, for `claims.py` to judge.

Means and series are asked for by their path (`Evidence`), the others have a function, whose
name `claims.toml` has. What cannot be told is NaN or None, or missing. `some` ends a function where
a claim has no rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, TypeVar

import numpy as np

from panda_paper.items import COARSE, DECAYS, EXACT, NOISE, OURS, PUBLISHED, SIZES, TEXT, named
from panda_paper.paper import paper_value
from panda_paper.results import Averages, CityResults, Listed, Rows, Series, below, trend, variant

Quantities = dict[str, Any]
NAN = float("nan")
SOLVED = ("LP", COARSE, "LP+BD", "LP+EM")
LARGER_LOSS = (*NOISE, "LP+CA", COARSE)
FALLING = ("falls", "nothing to see")
ALPHAS = (0.25, 0.5, 0.9, 0.95)
ESTIMATES_ABOVE = {"exponential": 0.133, "power": 0.138, "logistic": 0.132}
"""How far the paper says estimated margins lie above real ones."""
Found = TypeVar("Found", bound=Sized)


class NoRowsError(Exception):
    """A claim has no rows to be judged by."""


Words = str | Sequence[str]
"""Templates over quantities; a part of which a quantity is unknown is left out."""


class Evidence(dict[str, Any]):
    """What templates and rules may say: quantities by name, values of items by path.

    A path is an item, a method or group of them, a value, and what of it: its `mean`, the `means`
    of the methods, their curves over an axis, or how far these are on average `below` or `above`
    those of another method: `table4/published/loss_m/below EM+BR.low`.
    """

    def __init__(self, rows_of: Callable[[str], Rows], quantities: Mapping[str, Any]) -> None:
        super().__init__(quantities)
        self.rows_of = rows_of
        for name, one in quantities.items():
            if one is None or (isinstance(one, float) and np.isnan(one)):
                del self[name]

    def __missing__(self, path: str) -> Any:
        item, *parts = path.split("/")
        if len(parts) != 3:
            raise KeyError(path)
        group, value, what = parts
        rows, (how, _, other) = self.rows_of(item), what.partition(" ")
        finished = rows.of(*named([group]))
        axis = "records" if other or how in ("mean", "means") else what
        found: Any = finished.curves(finished.methods, value, axis)
        if how == "means":
            found = Averages({one.label: finished.of(one.label).mean(value) for one in found})
        elif other:
            theirs = rows.of(other).series(value.removeprefix("true_"))
            sign = 1 if how == "below" else -1
            shares = ((one.label, sign * below(one, theirs)) for one in found)
            found = Averages({name: float(one.mean()) for name, one in shares if len(one)})
        if not found:
            raise KeyError(path)
        return finished.mean(value) if how == "mean" else found


def fill(words: Words, found: Mapping[str, Any]) -> str:
    """The templates with the quantities in them.

    >>> fill(("{share:.0%} of all", "; {rest:.0%} left"), {"share": 0.5})
    '50% of all'
    """
    text = ""
    for part in (words,) if isinstance(words, str) else words:
        try:
            text += part.format_map(found)
        except KeyError:
            continue
    return text.removeprefix("; ")


def some(found: Found) -> Found:
    """What was found, where it is anything."""
    if not len(found):
        raise NoRowsError
    return found


def finished(rows: Rows, methods: Sequence[str] = PUBLISHED) -> list[str]:
    """Those methods that have a finished row."""
    return [name for name in methods if rows.of(name)]


def holding(rows: Rows) -> str | None:
    """Which of our methods have a holding audit in every cell."""
    good = [*filter(rows.holds, OURS)]
    cells = sum(row.cell.method in good for row in rows)
    return f"{', '.join(good)}: no violated pair in {cells} cells" if good else None


def exact_runs(results: CityResults) -> Quantities:
    """Whether PAnDA fits (epsilon, delta) in any run at the paper's settings, fully accounted.

    From the text's conditions at all sizes of Figure 7, and the tables' own runs.
    """
    rows = results.of("figure7").of(*TEXT)
    tables = (*results.of("table4"), *results.of("table5"))
    fits = [bool(row.value("fits")) for row in rows]
    fits += [row.status == "done" for row in tables if row.cell.method in EXACT]
    if not fits:
        return {"runs": "no run in exact accounting yet"}
    fitting = sum(fits)
    total = len(fits)
    words = f"{fitting} of {total} runs fit" if fitting else f"none of {total} runs fits"
    found: Quantities = {"fitting": fitting, "unfit": total - fitting, "runs": words}
    if rows and not fitting:
        costs = rows.numbers("cost_epsilon")
        found |= {"least": costs.min(), "most": costs.max()}
        found |= {"delta": rows[0].cell.setting.delta, "shortfall": rows.largest("shortfall")}
    return found


def order_of_times(results: CityResults) -> Quantities:
    rows = results.of("table2")
    some(finished(rows, NOISE))
    right: dict[str, list[bool]] = {}
    for mine in some(rows.curves(PUBLISHED, "seconds")):
        for size, seconds in zip(mine.x, mine.mean, strict=True):
            for other in (*NOISE, *SOLVED):
                theirs = _seconds(rows.where(records=size), other)
                if not np.isnan(theirs):
                    right.setdefault(other, []).append((seconds < theirs) != (other in NOISE))
    slower = _paper_slower(results.name)
    return {
        "wrong": sum(one.count(False) for one in right.values()),
        "parts": ", ".join(f"{name} {sum(one)} of {len(one)}" for name, one in right.items()),
        "missing": ", ".join(name for name in SOLVED if name not in right) or None,
        "slower": sum(slower) if slower else None,
        "columns": len(slower),
    }


def _seconds(rows: Rows, method: str) -> float:
    """The mean time of a method; its limit where it ran into it, NaN where unknown."""
    stopped = [row for row in rows if row.cell.method == method and row.status == "time limit"]
    mean = rows.of(method).mean("seconds")
    limits = (row.outcome.seconds for row in stopped)
    return max(limits, default=NAN) if np.isnan(mean) else mean


def _paper_slower(city: str) -> list[bool]:
    """Where a variant is slower than LP+CA in the paper's own table of times."""
    pairs = (
        [paper_value("table2", city, name, size) for name in (mine, "LP+CA")]
        for size in SIZES
        for mine in EXACT
    )
    known_means = ([entry.mean for entry in pair if entry and entry.mean] for pair in pairs)
    return [pair[0] > pair[1] for pair in known_means if len(pair) == 2]


def scale(results: CityResults) -> Quantities:
    rows = results.of("table4")
    losses = some(rows.curves(PUBLISHED, "loss_m"))
    size = max(rows.places("records"))
    best = rows.of("optimal")
    top = max(best.places("records"), default=0)
    largest = best.where(records=top)
    return {
        "variants": sum(one.x[-1] == size for one in losses),
        "size": size,
        "top": top or None,
        "time": largest.mean("seconds"),
        "gap": largest.largest("gap"),
        "audit": "holds" if largest.holds("optimal") else "FAILS",
    }


def speed_of_variants(results: CityResults) -> Quantities:
    times, anchors = (
        results.of("table2").curves(PUBLISHED, name).averages for name in ("seconds", "anchors")
    )
    some(times if len(times) == len(PUBLISHED) else ())
    words = {name: f"{times[name]:.1f} s with {anchors[name]:,.0f} anchors" for name in times}
    return {"wrong": [*times.values()] != sorted(times.values()), "figures": Listed(words)}


def growth(results: CityResults) -> Quantities:
    series, text = (
        results.of("figure8").curves(methods, "variables", "users", fewest=2)
        for methods in (PUBLISHED, TEXT)
    )
    ends = {one.label: "{:,.0f} to {:,.0f}".format(*one.mean[[0, -1]]) for one in some(series)}
    found = {"wrong": sum(map(_still, series)), "figures": Listed(ends), "published": series}
    return found | ({"text_wrong": sum(map(_still, text)), "text": text} if text else {})


def _still(series: Series) -> bool:
    """Whether it does not grow at every step, and by more than a hundredth in all."""
    return trend(series.mean) != "grows" or series.mean[-1] <= 1.01 * series.mean[0]


def lower_loss(results: CityResults) -> Quantities:
    rows = results.of("table4")
    others = some(finished(rows, (*NOISE, COARSE)))
    right = [
        bool(share > 0)
        for mine in some(rows.curves(PUBLISHED, "loss_m"))
        for theirs in rows.curves(others, "loss_m")
        for share in below(mine, theirs)
    ]
    return {
        "others": ", ".join(others),
        "right": sum(right),
        "wrong": right.count(False),
        "total": len(right),
        "audit": "holds in every cell" if rows.holds("optimal") else "FAILS somewhere",
    }


def falls_with_epsilon(results: CityResults) -> Quantities:
    rows = results.of("figure11")
    every = rows.curves(rows.methods, "loss_m", "epsilon", fewest=2)
    curves = some([one for one in every if one.label not in TEXT])
    wrong = [one.label for one in curves if trend(one.mean) not in FALLING]
    shares = [
        share
        for one in curves
        for other in curves
        if one.label in PUBLISHED and other.label in LARGER_LOSS
        for share in below(one, other)
    ]
    return {
        "wrong": len(wrong),
        "curves": f"not for {', '.join(wrong)}" if wrong else "for every method",
        "least": min(shares, default=NAN),
    }


def guideline(results: CityResults) -> Quantities:
    rows = results.of("table4")
    series = rows.curves(PUBLISHED, "loss_m")
    some(series if len(series) == len(PUBLISHED) else ())
    losses = series.averages
    anchors = rows.curves(PUBLISHED, "anchors").averages
    spreads = {one.label: float(np.mean(one.spread / one.mean)) for one in series}
    selected = ((name, results.of("figure7").of(name)) for name in TEXT)
    costs = {name: rows.largest("cost_epsilon") for name, rows in selected if rows}
    best, fewest, steady, gentle = (
        variant(min(one, key=lambda name: one[name], default=""))
        for one in (losses, anchors, spreads, costs)
    )
    exponential, power, logistic = EXACT
    found = {
        "misnamed": (best != power) + (fewest != exponential),
        "best": best,
        "losses": losses.each,
        "fewest": fewest,
        "steady": "steadiness needs repeats",
    }
    if all((one.spread > 0).all() for one in series):
        found |= {"steady": f"steadiest: {steady}", "unsteady": steady != logistic}
    if costs:
        found |= {"harsh": gentle != power, "costs": Listed(costs), "gentle": gentle}
    return found


def guarantee(results: CityResults) -> Quantities:
    rows = results.of("figure12")
    audited = some(rows.of(*PUBLISHED).numbers("audited_epsilon"))
    epsilon = rows[0].cell.setting.epsilon
    finite = audited[np.isfinite(audited)]
    parts = []
    if len(finite):
        parts.append(f"{finite.min():,.0f} to {finite.max():,.0f} /km in {len(finite)} cells")
    if len(finite) < len(audited):
        parts.append(f"infinite in {len(audited) - len(finite)} of {len(audited)} cells")
    found = {"above": np.sum(audited > epsilon), "epsilon": epsilon, "audited": " and ".join(parts)}
    return {**found, **exact_runs(results)}


def estimates(results: CityResults) -> Quantities:
    margins = {name: results.of("figure18").of(name) for name in DECAYS}
    above: dict[str, float] = some(
        {
            str(name): rows.mean("estimated") / rows.mean("real") - 1
            for name, rows in margins.items()
            if rows.mean("real") > 0
        }
    )
    farthest = max(abs(above[name] - ESTIMATES_ABOVE[name]) for name in above)
    return {"farthest": farthest, "above": Listed(above)}


def margin_by_delta(results: CityResults) -> Quantities:
    rows = results.of("figure18")
    curves = some(rows.curves(DECAYS, "real", "delta", fewest=2))
    words = {one.label: trend(one.mean) for one in curves}
    return {
        "wrong": sum(word not in FALLING for word in words.values()),
        "words": Listed(words),
    }


def margin_curves(results: CityResults) -> Iterator[tuple[str, list[Series]]]:
    """Curves over lambda by decay, one for each alpha, with a wide gamma and with the paper's."""
    for name in ("figure6-wide", "figure6"):
        for decay in DECAYS:
            rows = results.of(name).of(decay)
            cells = (rows.where(alpha=alpha) for alpha in ALPHAS)
            yield decay, [some_alpha.series("within", "rates") for some_alpha in cells]


def margin_by_lambda(results: CityResults) -> Quantities:
    words: dict[str, Counter[str]] = {decay: Counter() for decay in DECAYS}
    for decay, curves in margin_curves(results):
        words[decay].update(trend(curve.mean) for curve in curves if len(curve))
    some([*sum(words.values(), Counter[str]()).elements()])
    parts = []
    for decay, counts in words.items():
        del counts["nothing to see"]
        told = ", ".join(f"{word} {count}" for word, count in counts.items())
        parts.append(f"{decay} {told or 'nothing'}")
    total = sum(words.values(), Counter[str]())
    number = total.total()
    shares = {"growing": total["grows"], "falling": total["falls"]} if number else {}
    return {
        "curves": number,
        "parts": "; ".join(parts),
        **{name: count / number for name, count in shares.items()},
    }


def margin_by_alpha(results: CityResults) -> Quantities:
    words = [
        trend([curve.at(rate) for curve in curves])
        for _, curves in margin_curves(results)
        for rate in curves[0].x
    ]
    seen = some([word for word in words if word != "nothing to see"])
    falls = seen.count("falls")
    return {"share": falls / len(seen), "falls": falls, "columns": len(seen)}
