#!/usr/bin/env python3
"""Prove what a panda-mdp file promises. Standard library only; shares no code with panda-mdp.

    python -I panda_verify.py FILE    exit code 0: all holds; 1: something does not; 2: unreadable

A file holds K records with a metric d, integers w[x][y] whose rows sum to 2^62, and an epsilon.
Proved is w[x][y] <= exp(epsilon d(x, x')) w[x'][y] for ALL records x, x' and ALL outputs y.
Numbers here are integers: a real r is held as floor(r 2^s), and every step rounds so that the
result is a bound. Floats of a file are the fractions that they are; none is computed with.
Tables of PAnDA, meshes, words and paths need panda_verify_*.py beside. Not proved: docs/promise.md.
"""
import hashlib, json, math, runpy, struct, sys, zlib  # noqa: E401
from fractions import Fraction
from itertools import accumulate, combinations, pairwise
from operator import mul, sub
from types import SimpleNamespace

TOTAL = 1 << 62  # what a row of weights sums to
P, Q = 256, 128  # bits after the point: of sines and their squares; of angles and exponentials
PLAIN, RATIO = 1 << 28, 128  # a file may unpack to 256 MiB and 128 bytes for each of its own
ROUNDING = Fraction(1, 10**9)  # a stated bound, and the triangle inequality of a given matrix
UP = 1 + Fraction(1, 1 << 45)  # float64, in which a bound was computed, may have rounded up by less
ARRAYS = {"haversine": ["lat", "lon"], "matrix": ["distances"]}
ARRAYS |= {"euclidean": ["vectors"], "angular": ["vectors"], "graph": ["edges", "steps"]}
REAL = "lat lon output_lat output_lon vectors distances prior loss mesh_area bound_prices "
REAL += "bound_multipliers given_prior given_loss term_numbers term_weights term_priors term_places"
BOUND = ["pairs", "starts", "columns", "multipliers"]  # of a proof, each behind what it is of
WHOLE = "nodes outputs weights floor starts columns values order mesh_vertices mesh_inside centres "
WHOLE += "candidates anchor_rows peaks edges steps bound_pairs bound_starts bound_columns "
WHOLE += "term_kinds term_guesses term_pairs term_starts term_columns"
REAL, WHOLE = {*REAL.split(), "term_multipliers"}, {*WHOLE.split()}
CODINGS = dict.fromkeys(REAL, ("degrees", "float64")) | {"blocks": ("blocks",)}
CODINGS |= dict.fromkeys(WHOLE, ("integers", "int64"))
PARTS = dict(factored="words", mesh="mesh", selection="phases", bound_prices="words")
PARTS["term_kinds"] = "terms"
KEYS = {*"format version features sections epsilon domain outputs loss notes".split()}
NOTES = "method library date prior_source stages details lower_bound loss"
PI = 31415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253
PI = (PI * 10**7 + 4211706 << (P + 64)) // 10**98  # off by less than one unit of P + 64 bits
SIZES = {"haversine": (1e-100, 180), "euclidean": (1e-120, 1e140), "matrix": (1e-250, 1e250)}
DEEPEST, STEEPEST = 100, 16  # how deep a header may be, and the highest power of a distance
def need(condition, reason):
    if not condition:
        raise ValueError(reason)
def number(value, least=0, types=(int,)):
    good = type(value) in types and least <= value <= sys.float_info.max
    need(good, f"the file says {str(value)[:40]!r} where a number from {least} is due")
    return value
def nested(value, left=DEEPEST):
    parts = value.values() if type(value) is dict else value if type(value) is list else ()
    return left >= 0 and all(nested(part, left - 1) for part in parts)
def plain(text):  # without control characters
    return not any(c < " " or "~" < c < "\xa0" for c in text)
def shown(value):  # a fraction for people
    try:
        return repr(float(value))
    except OverflowError:
        return "a number beyond float64"
def shift(n, bits):  # floor(n 2^bits)
    return n << bits if bits >= 0 else n >> -bits
def dyadic(x):  # a finite float as n 2^e, exactly, e <= 0
    n, d = x.as_integer_ratio()
    return n, 1 - d.bit_length()
def rows(flat, width):
    return [flat[i : i + width] for i in range(0, len(flat), width)]
def whole(flat, count):  # floats as rows of integers over one power of two, and its exponent
    numbers = [dyadic(v) for v in flat]
    least = min(e for _, e in numbers)
    return rows([n << (e - least) for n, e in numbers], len(numbers) // count), least
def pack(numbers, width):  # integers below 2^width, a multiple of 8, as the fields of one integer
    return int.from_bytes(b"".join(v.to_bytes(width // 8, "little") for v in numbers), "little")

def sine_cosine(degrees):
    """sin and cos of degrees in [-180, 180] at P bits, off by less than 2 units.
    Inside are 64 bits more, where x is off by 3 units, x^k / k! by less than 24, and fewer than 200
    terms with what is left out after them by less than 2^13: far below one unit of the result."""
    bits, (n, e) = P + 64, dyadic(abs(degrees))
    x, term, sums, k = shift(n * PI, e) // 180, 1 << bits, [0, 0], 0
    while term:
        sums[k % 2] += term if k % 4 < 2 else -term
        k += 1
        term = (term * x >> bits) // k
    return (sums[1] if degrees > 0 else -sums[1]) >> 64, sums[0] >> 64

def angle(h, above):
    """The angle t in [0, pi] with sin^2(t / 2) = h / 2^P, at Q bits, from below or from above.
    Halved, sin^2(t / 4) = (1 - sqrt(1 - sin^2(t / 2))) / 2, until h < 2^-12; then
    t = 2 sqrt(h) (1 + h / 6 + 3 h^2 / 40 + ...), whose terms are all positive. All roundings are
    down and lose less than 8 units together, doubled at most 7 times: above, 2^11 are added."""
    halvings, total, term, n, one = 0, 1 << Q, 1 << Q, 1, 1 << P
    while h >> (P - 12):
        rest = (one - h) << P
        root = math.isqrt(rest)
        h, halvings = (one - root - (root * root < rest)) >> 1, halvings + 1
    while term:
        term = (term * (h >> (P - Q)) >> Q) * (2 * n - 1) ** 2 // (2 * n * (2 * n + 1))
        total, n = total + term, n + 1
    return ((math.isqrt(h) * total >> (Q - 1)) << halvings) + (above << 11)

def exponential(t, above):
    """exp(t) for 0 <= t < 2^10, both at Q bits, from below or from above.
    The series at t / 2^k < 2^-8, terms positive and rounded down, squared k times. The series loses
    less than 32 units; each squaring doubles the relative loss and adds a unit: less than
    2^(k + 6 - Q) in the end, and k <= 18. Above, 2^(28 - Q) is added."""
    k = max(0, t.bit_length() - Q + 8)
    x, total, term, n = t >> k, 1 << Q, 1 << Q, 1
    while term:
        term = (term * x >> Q) // n
        total, n = total + term, n + 1
    for _ in range(k):
        total = total * total >> Q
    return total + (total >> (Q - 28)) + 1 if above else total

class Sphere:
    """Angles between directions; between places, times 6371.0088 km.
    `exponent(i, j, n, e)` of every metric is n 2^e d(i, j) at Q bits, from below or from above."""
    def __init__(self, table):
        self.radius = 63710088 if table.kind == "haversine" else 10**4
        if table.kind == "haversine":
            places = list(zip(table.values["lat"], table.values["lon"]))
            good = all(-90 <= a <= 90 and -180 <= b < 180 for a, b in places)
            need(good, "a record is no place: latitude, longitude in degrees")
            factors = ((*sine_cosine(a), *sine_cosine(b)) for a, b in places)
            self.points = [(c * cos >> P, c * sin >> P, s) for s, c, sin, cos in factors]
        else:
            vectors, e = whole(table.values["vectors"], table.size)
            off = (abs(sum(map(mul, v, v)) * Fraction(4) ** e - 1) for v in vectors)
            need(max(off) < 2 * Fraction(1, 10**15), "a direction is not of length 1")
            lengths = [math.isqrt(sum(map(mul, v, v)) << 2 * P) for v in vectors]
            self.points = [[(a << 2 * P) // l for a in v] for v, l in zip(vectors, lengths)]
        # Coordinates are off by less than 6 units, differences by 12, a chord by 12 for each. As
        # chords are at most 2, a quarter of the square is off by as many units, and two roundings.
        self.error = 12 * len(self.points[0]) + 2
        # Directions nearer than 1e-7 are the same, sin^2 of half of it.
        self.least = 0 if table.kind == "haversine" else (1 << P) // (4 * 10**14)
    def exponent(self, i, j, n, e, above=False):
        steps = list(map(sub, self.points[i], self.points[j]))
        h = (sum(map(mul, steps, steps)) >> (P + 2)) + (self.error if above else -self.error)
        need(h > self.least, f"records {i} and {j} are at distance 0")
        return shift(angle(min(h, 1 << P), above) * n * self.radius, e) // 10**4 + above

class Euclidean:
    """The root of a sum of squares that is exact."""
    def __init__(self, table):
        self.points, self.least = whole(table.values["vectors"], table.size)
        self.squares = [sum(map(mul, v, v)) for v in self.points]
    def exponent(self, i, j, n, e, above=False):
        inner = sum(map(mul, self.points[i], self.points[j]))
        square = self.squares[i] + self.squares[j] - 2 * inner
        need(square > 0, f"records {i} and {j} are at distance 0")
        return math.isqrt(shift(square * n * n, 2 * (self.least + e + Q))) + above

class Given:
    """A matrix: symmetric, 0 on the diagonal alone, the triangle inequality for all triples."""
    def __init__(self, table):
        size, (self.rows, self.least) = table.size, whole(table.values["distances"], table.size)
        for i, j in combinations(range(size), 2):
            good = self.rows[i][i] == self.rows[j][j] == 0 < self.rows[i][j] == self.rows[j][i]
            need(good, f"the distances of records {i} and {j} are not those of a metric")
        # Field j of (c + 1) (row k + d(i, k)) - c row i + mark, all j at once, has its mark set if
        # and only if c d(i, j) <= (c + 1) (d(i, k) + d(k, j)); a mark exceeds all it can lose.
        c, mark = 10**9, (4 * 10**9 * max(map(max, self.rows))).bit_length()
        width = (mark + 9) // 8 * 8
        ones, packed = pack([1] * size, width), [pack(row, width) for row in self.rows]
        marks = ones << mark
        more, less = [row * (c + 1) + marks for row in packed], [row * c for row in packed]
        for i, k in combinations(range(size), 2):
            step = ones * (self.rows[i][k] * (c + 1))
            sides = (more[k] + step - less[i]) & (more[i] + step - less[k]) & marks
            need(sides == marks, f"the triangle inequality fails at records {i} and {k}")
    def exponent(self, i, j, n, e, above=False):
        return shift(self.rows[i][j] * n, self.least + e + Q) + above
METRICS = dict(haversine=Sphere, euclidean=Euclidean, angular=Sphere, matrix=Given, graph=None)

class File:
    """A canonical header, sections and a sum; docs/format.md has every byte."""
    def __init__(self, data):
        self.length, end = len(data), len(data) - 32
        good = data[:10] == b"panda-mdp\n" and end >= 14
        need(good and hashlib.sha256(data[:end]).digest() == data[end:], "damaged or truncated")
        at = 14 + struct.unpack_from("<I", data, 10)[0]
        self.claims, self.parts = json.loads(data[14 : min(at, end)]), {}
        form = dict(sort_keys=True, separators=(",", ":"), allow_nan=False)
        text = json.dumps(self.claims, **form).encode()
        need(data[14:at] == text and type(self.claims) is dict, "the header is not canonical JSON")
        need(nested(self.claims), "the header is too deep")
        form = self.claims.get("format"), self.claims.get("version")
        need(form == ("panda-mdp table", 1) and type(form[1]) is int, "a foreign format")
        plain = 0
        for name, (coding, shape, length) in self.claims["sections"].items():
            need(coding in CODINGS.get(name, ()), f"a section {name[:40]!r} is none of this format")
            size = math.prod(map(number, shape))
            plain += 16 * shape[-1] if len(shape) == 3 else 8 * size
            part, at = data[at : at + number(length)], at + length
            self.parts[name] = SimpleNamespace(coding=coding, shape=(*shape,), size=size, data=part)
        need(at == end, "the sections are not as long as the header says")
        need(plain <= PLAIN + RATIO * end, "it would unpack to too much")
        self.values, self.size, self.prove, self.rows = {}, 0, prove, None
    def take(self, name, *shape):  # the numbers of a section; None stands for any length
        need(name in self.parts, f"the section {name} is missing")
        part = self.parts.pop(name)
        good = len(shape) == len(part.shape) and all(
            b in (None, a) for a, b in zip(part.shape, shape)
        )
        need(good, f"{name} has shape {part.shape}")
        if part.coding == "int64":
            values = struct.unpack(f"<{part.size}q", self.inflate(part.data, 8 * part.size))
        elif part.coding == "float64":  # the first bytes of every number, the others are 0
            planes = self.columns(self.inflate(part.data, 1 + 8 * part.size), part.size)
            values = struct.unpack(f">{part.size}d", b"".join(v.ljust(8, b"\0") for v in planes))
        else:
            steps = self.planes(self.inflate(part.data, 1 + 8 * part.size), part.size)
            values = (*accumulate(steps),)
            need(all(-1 << 63 <= v < 1 << 63 for v in values), "a number beyond 64 bits")
            values = (*(float(v) / 1e7 for v in values),) if part.coding == "degrees" else values
        need(all(map(math.isfinite, values)), "infinite numbers")
        self.values[name] = values
        return values
    def inflate(self, data, most):
        reader = zlib.decompressobj()
        plain = reader.decompress(data, most + 1)
        need(reader.eof and not reader.unused_data and len(plain) <= most, "a wrong section")
        return plain
    def columns(self, data, length):  # a width, the first bytes of all numbers, the next, ...
        need(data and data[0] <= 8 and len(data) == 1 + data[0] * length, "a wrong section")
        parts = [data[1 + k * length : 1 + (k + 1) * length] for k in range(data[0])]
        return [bytes(part) for part in zip(*parts)] or [b""] * length
    def planes(self, data, length):
        folded = [int.from_bytes(part, "little") for part in self.columns(data, length)]
        return [-(u >> 1) - 1 if u & 1 else u >> 1 for u in folded]
    def block(self, data, n, floors):
        m = len(floors)
        tail = 4 * n + (n * m + 7) // 8
        plain = self.inflate(data, tail + 1 + 8 * n * m)
        parents, precisions = plain[:n], plain[n : 2 * n]
        rests, raised, table = struct.unpack_from(f"<{n}H", plain, 2 * n), [], []
        good = all(parents[i] < i for i in range(1, n)) and max(precisions) <= 46
        need(good, "a parent comes later, or a precision is out of range")
        bits = "".join(f"{byte:08b}" for byte in plain[4 * n : tail])[: n * m]
        for i in range(n):  # a row's flags as one integer, column 0 in its highest bit
            raised.append(int(bits[i::n], 2) ^ (raised[parents[i]] if i else 0))
        stored = [(y, i) for y in range(m) for i in range(n) if raised[i] >> (m - 1 - y) & 1]
        stored = [(y, i) for y, i in stored if y != rests[i]]
        changes = dict(zip(stored, self.planes(plain[tail:], len(stored))))
        for i, (p, rest) in enumerate(zip(precisions, rests)):
            row, near = list(floors), table[parents[i]] if i else floors
            for y in (y for y in range(m) if (y, i) in changes):
                down = max(0, near[y].bit_length() - 1 - p)
                code = (down << p) + (near[y] >> down) + changes[y, i]
                need(0 <= code <= (63 - p) << p, "a weight is out of range")
                up = max(0, (code >> p) - 1)
                row[y] = (code - (up << p)) << up
            row[rest] += TOTAL - sum(row)
            need(row[rest] >= 0, "a row exceeds the whole")
            table.append(row)
        return table

def part(name):
    sys.modules.setdefault("panda_verify", sys.modules[__name__])  # what it imports from
    return runpy.run_path(f"{__file__[:-3]}_{name}.py")

def read(data):
    """The table of a file: its form, and that every section is the one that is due."""
    table = File(data)
    claims, domain, notes = table.claims, table.claims["domain"], table.claims["notes"]
    features = [name for name in [*PARTS][:3] if name in claims]
    need({*claims} == KEYS | {*features} and claims["features"] == features, "another header")
    fields = {*claims["loss"]} == {"power", "unit", "digest"} and {*notes} == {*NOTES.split()}
    fields &= {*domain} == {"kind", "unit", "labels"} and {*claims["outputs"]} == {"kind", "labels"}
    need(fields, "a field is missing, or another is there")
    good = type(notes["stages"]) is list and type(notes["details"]) is dict
    need(good and all(type(a) is list for a in notes["stages"]), "notes of a wrong type")
    words = [notes[a] for a in NOTES.split()[:4]] + [a for a, _ in notes["stages"]]
    words += [domain["unit"], claims["loss"]["unit"]]
    need(all(type(a) is str for a in words), "notes of a wrong type")
    stated = [notes[a] for a in ("lower_bound", "loss") if notes[a] is not None]
    for value in (*(s for _, s in notes["stages"]), *stated):
        number(value, -sys.float_info.max, (int, float))
    kind, unit = table.kind, table.unit = domain["kind"], domain["unit"]
    known = kind in METRICS and unit == {"haversine": "km", "angular": "rad"}.get(kind, unit)
    known &= plain(unit + claims["loss"]["unit"])
    need(known, f"{kind!r}, {unit!r}, or a unit with control characters")
    names, first = ARRAYS[kind], ARRAYS[kind][0]
    k = table.size = table.parts[first].shape[0]
    k, names = part("paths")["records"](table) if kind == "graph" else (k, names)
    widths = {"vectors": (None,), "distances": (k,)}.get(first, ())
    _ = [table.take(name, k, *widths) for name in names]
    need(k > 1, "fewer than two records")
    least, most = SIZES.get(kind, (0, 2))
    sizes = (abs(v) for name in ARRAYS[kind] for v in table.values[name])
    need(all(v == 0 or least <= v <= most for v in sizes), "a coordinate or distance out of range")
    if "nodes" in table.parts:
        table.take("nodes", k)
    m = read_outputs(table)
    table.prior = table.take("prior", k) if "prior" in table.parts else (1 / k,) * k
    table.loss = table.take("loss", k, m) if "loss" in table.parts else None
    power, digest = claims["loss"]["power"], claims["loss"]["digest"]
    once = power is None or (table.loss is None and number(power, 5e-324, (int, float)) <= STEEPEST)
    named = type(digest) is str and len(digest) == 64 and {*digest} <= {*"0123456789abcdef"}
    once = once and (named if power is table.loss is None else digest is None)
    need(once, "losses twice, or a power that is none")
    far = table.reports == "records" or (table.reports == "places" and kind == "haversine")
    need(far or power is None, "these outputs have no distance to the records")
    if power is not None and power > 1:
        largest = Fraction(max(abs(v) for name in ARRAYS[kind] for v in table.values[name]))
        need(largest ** math.ceil(power) <= 10**250, "losses beyond float64")
    epsilon = table.epsilon = float(number(claims["epsilon"], 5e-324, (int, float)))
    table.holds = f"epsilon {epsilon!r} per {table.unit} over all pairs and outputs"
    for name, other in PARTS.items():
        if name in claims or name in table.parts:
            table.prove = part(other)["adapt"](table, k, m)
    if "selection" not in claims:
        table.rows = table.rows or read_rows(table, k, m)
        if "bound_pairs" in table.parts and "bound_prices" not in table.values:
            read_proof(table, getattr(table, "averaged", range(k)), range(m))
    need(not table.parts, f"sections that do not belong to it: {sorted(table.parts)}")
    return table

def read_outputs(table):  # what may be reported, and how many
    kind, labels = table.claims["outputs"]["kind"], table.claims["outputs"]["labels"]
    need(kind in ("records", "places", "labels"), f"outputs of kind {kind!r}")
    table.reports, count, most = kind, None, sys.float_info.max
    if kind == "records":
        count, known = len(table.take("outputs", None)), {*range(table.size)}
        distinct = len({*table.values["outputs"]} & known) == count and labels is None
        need(distinct, "an output is no record, or named twice")
    elif kind == "places":
        count = len(table.take("output_lat", None))
        places = zip(table.values["output_lat"], table.take("output_lon", count))
        good = all(-90 <= a <= 90 and -180 <= b < 180 for a, b in places)
        need(good, "an output is no place")
    for names, size in ((labels, count), (table.claims["domain"]["labels"], table.size)):
        if names is not None:
            good = type(names) is list and all(type(a) in (str, int, float, bool) for a in names)
            good = good and all(plain(a) if type(a) is str else abs(a) <= most for a in names)
            need(good and len({*names}) == len(names) and size in (None, len(names)), "labels")
    count = len(labels) if kind == "labels" else count
    need(count, "no outputs")
    return count

def read_proof(table, records, outputs, of="bound"):  # pair e has multipliers from starts[e] on
    ends, columns = table.take(f"{of}_pairs", None, 2), table.take(f"{of}_columns", None)
    starts = table.take(f"{of}_starts", len(ends) // 2 + 1)
    multipliers = table.take(f"{of}_multipliers", len(columns))
    good = (starts[0], starts[-1]) == (0, len(columns)) and list(starts) == sorted(starts)
    good &= {*ends} <= {*records} and {*columns} <= {*outputs} and min(multipliers, default=0) >= 0
    need(good, "the proof of the bound names no record or output, or is negative")

def read_rows(table, k, m):
    """The weights: an array, blocks, or what rows store over a floor."""
    if "weights" in table.parts:
        return rows(table.take("weights", k, m), m)
    floor = table.take("floor", m)
    good = min(floor) >= 0 and 8 * k * m <= PLAIN + RATIO * table.length
    need(good, f"a floor is negative, or {k:,} x {m:,} entries are too many to write out")
    if "blocks" in table.parts:
        order, part, found, at = table.take("order", k), table.parts.pop("blocks"), {}, 0
        good = sorted(order) == [*range(k)] and part.shape[:2] == (k, m) and len(part.shape) == 3
        need(good and m <= 1 << 16 and sum(floor) <= TOTAL, "no order of records, or no floors")
        for start in range(0, k, 256):
            length = struct.unpack_from("<I", part.data, at)[0]
            block, at = part.data[at + 4 : at + 4 + length], at + 4 + length
            places = order[start : start + 256]
            found |= zip(places, table.block(block, len(places), floor))
        stored = sum(a != b for row in found.values() for a, b in zip(row, floor))
        need(at == len(part.data) and stored == part.shape[2], "blocks of another length")
        return [found[x] for x in range(k)]
    columns = table.take("columns", None)
    values = table.take("values", len(columns))
    return [*written_out(floor, table.take("starts", k + 1), columns, values)]

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

def check_rows(table):
    for x, row in enumerate(table.rows):
        need(min(row) >= 0 and sum(row) == TOTAL, f"row {x} is not weights that sum to 2^62")
    law = min(table.prior) >= 0 and abs(sum(map(Fraction, table.prior)) - 1) <= ROUNDING
    need(law and min(table.loss or (0,)) >= 0, "the prior is no law, or a loss is negative")

def distances(table, metric):
    """Of all records and outputs, exact to 128 bits and then raised by `UP`."""
    if table.reports == "places":
        both = {a: table.values[a] + table.values[f"output_{a}"] for a in ("lat", "lon")}
        metric = Sphere(SimpleNamespace(kind="haversine", values=both))
        ends = range(table.size, table.size + len(table.values["output_lat"]))
    else:
        ends = table.values["outputs"]
    for x in range(table.size):
        for y in ends:
            far = 0 if x == y else metric.exponent(x, y, 1, 0, above=True)
            yield UP * Fraction(far, 1 << Q)

def check_pairs(weights, metric, epsilon):
    """w[x][y] 2^64 <= floor(2^64 exp(epsilon d)) w[x'][y], for all y at once, both ways.
    A row is one integer, 192 bits for each output. No product exceeds 2^188, as factors beyond 2^62
    change nothing: fields never touch, and bit 190 stays set if and only if an inequality holds."""
    (n, e), marks = dyadic(epsilon), pack([1 << 190] * len(weights[0]), 192)
    low = [pack(row, 192) for row in weights]
    high = [row << 64 for row in low]
    for i, j in getattr(metric, "pairs", None) or combinations(range(len(weights)), 2):
        t = metric.exponent(i, j, n, e)
        factor = 1 << 126 if t >= 43 << Q else exponential(t, False) >> (Q - 64)
        good = (factor * low[j] + marks - high[i]) & (factor * low[i] + marks - high[j]) & marks
        need(good == marks, f"epsilon {epsilon!r} is exceeded between records {i} and {j}")

def lower_bound(table, metric, costs, of="bound"):
    """sum_x min_y [cost_xy + sum over pairs (x, .) of l_y - sum over pairs (., x) of g l_y].
    For all l >= 0 and g >= exp(epsilon d) no table that keeps epsilon loses less: to its loss add
    l_y (z_xy - g z_x'y) <= 0 for each pair (x, x') and output y, and use that rows sum to 1."""
    ends, starts, columns, multipliers = (table.values[f"{of}_{name}"] for name in BOUND)
    n, e = dyadic(table.epsilon)
    for (x, x2), (start, end) in zip(zip(ends[::2], ends[1::2]), pairwise(starts)):
        t = 0 if x == x2 else metric.exponent(x, x2, n, e, above=True)
        if x == x2 or t >= 1 << (Q + 10):  # nothing, or too far: its multipliers are not used
            continue
        g = Fraction(exponential(t, True), 1 << Q)
        for y, l in zip(columns[start:end], map(Fraction, multipliers[start:end])):
            costs[x][y], costs[x2][y] = costs[x][y] + l, costs[x2][y] - g * l
    return sum(map(min, costs))

def losses(table, metric, exact):  # of all records and outputs; None where they are not known
    power = table.claims["loss"]["power"]
    if table.loss is not None or power is None or (exact and power != int(power)):
        return table.loss
    return [far ** (int(power) if exact else power) for far in distances(table, metric)]

def check_loss(table, metric):
    m, bound = len(table.rows[0]), table.claims["notes"]["lower_bound"]
    prior, loss = [Fraction(p) for p in table.prior], losses(table, metric, True)
    if loss is None:
        print("loss: unknown, no losses in the file that are summed here")
        return
    costs = [[p * Fraction(c) for c in loss[x * m : x * m + m]] for x, p in enumerate(prior)]
    exact = sum(sum(map(mul, *pair)) for pair in zip(costs, table.rows)) / TOTAL
    print(f"loss: {shown(exact)}, summed exactly")
    if "bound_pairs" in table.values or "bound_prices" in table.values:
        proved = getattr(table, "bound", lower_bound)(table, metric, costs)
        print(f"bound: {shown(proved)}, proved by the multipliers in this file")
    elif bound is not None and bound > exact * (1 + ROUNDING):
        print("bound: none, and one above the loss is stated, which is untrue")
    else:
        print("bound:", "none" if bound is None else f"{bound!r}, stated, not proved in this file")

def prove(table):
    check_rows(table)
    print(f"rows: {table.size:,} records, {len(table.rows[0]):,} outputs; every row sums to 2^62")
    check_pairs(table.rows, metric := METRICS[table.kind](table), table.epsilon)
    said = getattr(metric, "said", "symmetric, distinct records, triangles to 1e-9")
    print(f"metric: {table.kind}, {table.unit}; {said}")
    print(f"pairs: all {math.comb(table.size, 2):,}, both ways, all outputs, at {table.epsilon!r}")
    check_loss(table, metric)
    right = sum(max(map(mul, table.prior, column)) for column in zip(*table.rows)) / TOTAL
    print(f"guess: the right record {right:.1%} of the time" + ": HIDES NOTHING" * (right > 0.95))

def main(path):  # a line for each thing that was checked; returns the exit code
    code = 2
    try:
        with open(path, "rb") as stream:
            table = read(stream.read())
        print("file: the sum fits, and every section is the one that is due")
        code = 1
        table.prove(table)
    except Exception as error:  # whatever it is: what was not proved is not vouched for
        print("not readable:" if code == 2 else "DOES NOT HOLD:", str(error) or repr(error))
        return code
    print(f"holds: {table.holds}")
    return 0
if __name__ == "__main__":
    sys.exit(main(sys.argv[-1]))
