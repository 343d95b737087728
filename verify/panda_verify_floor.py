"""Files of version 3, for panda_verify.py: rows over a floor, and losses that are distances.

Entry (x, y) is the value that row x stores for column y, or else floor[y]. Where `losses` says
"distance", c_xy is the distance of record and output, which the domain gives, and is not stored.
"""

from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

from panda_verify import METRICS, PLAIN, Q, RATIO, Sphere, need, number, prove

STORED = ["floor", "starts", "columns", "values"]
UP = 1 + Fraction(1, 1 << 45)  # float64, in which a bound was computed, may have rounded up by less

def adapt(table, shapes, names):
    """The arrays of such a file; returns what proves it."""
    (k, m), n = shapes["weights"], number(table.claims["stored"])
    need(8 * k * m <= PLAIN + RATIO * table.length, "it would unpack to too much")
    shapes |= {"floor": (m,), "starts": (k + 1,), "columns": (n,), "values": (n,)}
    names += STORED
    names.remove("weights")
    if table.claims["losses"] == "distance":
        names.remove("loss")
    return prove_floored

def prove_floored(table):
    table.rows = [*written_out(*(table.values[name] for name in STORED))]
    if "loss" not in table.values:
        table.values["loss"] = [*distances(table)]
    prove(table)

def written_out(floor, starts, columns, values):
    good = starts[0] == 0 and starts[-1] == len(columns) and list(starts) == sorted(starts)
    need(good, "the stored entries do not fit the rows")
    for start, end in pairwise(starts):
        own = columns[start:end]
        good = {*own} <= {*range(len(floor))} and all(a < b for a, b in pairwise(own))
        need(good, "the columns of a row are not ascending columns of the table")
        row = list(floor)
        for y, value in zip(own, values[start:end]):
            row[y] = value
        yield row

def distances(table):
    """Of all records and outputs, exact to 128 bits and then raised by `UP`."""
    metric, ends = METRICS[table.kind](table), table.values["outputs"]
    if table.reports == "places":
        need(table.kind == "haversine", "places have no distance to these records")
        both = {a: table.values[a] + table.values[f"output_{a}"] for a in ("lat", "lon")}
        metric = Sphere(SimpleNamespace(kind="haversine", values=both))
        ends = range(table.size, table.size + len(ends))
    need(table.reports != "labels", "labels have no distance to records")
    for x in range(table.size):
        for y in ends:
            far = 0 if x == y else metric.exponent(x, y, 1, 0, above=True)
            yield UP * Fraction(far, 1 << Q)
