#!/usr/bin/env python3
"""Re-prove what a panda-mdp file claims. Standard library only; shares no code with panda-mdp.

    python -I panda_verify.py FILE    exit code 0: all holds; 1: something does not; 2: unreadable

A .pmdp archive or .pmdc table holds K records with a metric d, integers w[x][y] whose rows sum to
2^62, and an epsilon. The claim: w[x][y] <= exp(epsilon d(x, x')) w[x'][y] for ALL records x, x' and
ALL outputs y. Numbers here are integers: a real r is held as floor(r 2^s), and every step rounds so
that the result is a bound. Floats of a file are the fractions that they are; none is computed with.
Files of version 3 to 5 need panda_verify_*.py beside this. What is not proved: docs/promise.md.
"""

import hashlib, io, json, math, runpy, struct, sys, zipfile, zlib  # noqa: E401
from fractions import Fraction
from itertools import accumulate, combinations
from operator import mul, sub

TOTAL = 1 << 62  # what a row of weights sums to
P, Q = 256, 128  # bits after the point: of sines and their squares; of angles and exponentials
PLAIN, RATIO = 1 << 28, 128  # a file may unpack to 256 MiB and 128 bytes for each of its own
ROUNDING = Fraction(1, 10**9)  # stated losses, and the triangle inequality of a given matrix
ARRAYS = {"haversine": ["lat", "lon"], "matrix": ["distances"]}
ARRAYS |= {"euclidean": ["vectors"], "angular": ["vectors"]}
REPORTS = {"records": [], "labels": [], "places": ["output_lat", "output_lon"]}  # what outputs are
OTHERS = {3: "floor", 4: "phases", 5: "mesh"}  # versions, and the file that knows their contents
REAL = "lat lon output_lat output_lon vectors distances prior loss bound_multipliers mesh_area"
REAL = REAL.split()  # arrays of floats; all others are of integers
PI = 31415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253
PI = (PI * 10**7 + 4211706 << (P + 64)) // 10**98  # off by less than one unit of P + 64 bits

def need(condition, reason):
    if not condition:
        raise ValueError(reason)

def number(value, least=0, types=(int,)):
    good = type(value) in types and least <= value <= sys.float_info.max
    need(good, f"the certificate says {value!r} where a number from {least} is due")
    return value

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
            vectors, _ = whole(table.values["vectors"], table.size)
            lengths = [math.isqrt(sum(map(mul, v, v)) << 2 * P) for v in vectors]
            self.points = [[(a << 2 * P) // l for a in v] for v, l in zip(vectors, lengths)]
        # Coordinates are off by less than 6 units, differences by 12, a chord by 12 for each. As
        # chords are at most 2, a quarter of the square is off by as many units, and two roundings.
        self.error = 12 * len(self.points[0]) + 2
    def exponent(self, i, j, n, e, above=False):
        steps = list(map(sub, self.points[i], self.points[j]))
        h = (sum(map(mul, steps, steps)) >> (P + 2)) + (self.error if above else -self.error)
        need(h > 0, f"records {i} and {j} are at distance 0")
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
METRICS = {"haversine": Sphere, "euclidean": Euclidean, "angular": Sphere, "matrix": Given}

def unique(items):
    return need(len(dict(items)) == len(items), "a name is twice in the certificate") or dict(items)
def parse(text):
    return json.loads(text, object_pairs_hook=unique, parse_constant=lambda name: need(0, name))

class Archive:
    """A sealed zip archive of a certificate and .npy arrays."""
    def __init__(self, data):
        seal = f"panda-mdp sha256 {hashlib.sha256(data[:-81]).hexdigest()}".encode()
        need(data[:4] == b"PK\3\4" and data[-81:] == seal, "foreign, damaged or truncated")
        self.zip, self.length = zipfile.ZipFile(io.BytesIO(data)), len(data)
        members = self.zip.infolist()
        need(len({i.filename for i in members}) == len(members), "a member is there twice")
        need(all(i.compress_type in (0, 8) for i in members), "a member is not deflated")
        need(sum(i.file_size for i in members) <= PLAIN + RATIO * len(data), "unpacks to too much")
        self.claims = parse(self.zip.read("certificate.json"))
    def read(self, shapes, names):
        files = {f"arrays/{name}.npy": name for name in names}
        need({"certificate.json", *files} == set(self.zip.namelist()), "missing or other members")
        claims, raw = {k: v for k, v in self.claims.items() if k != "sha256"}, {}
        state = hashlib.sha256(json.dumps(claims, sort_keys=True, separators=(",", ":")).encode())
        for path, name in sorted(files.items()):
            length, kind = 8 * math.prod(shapes[name]), "<f8" if name in REAL else "<i8"
            need(0 < self.zip.getinfo(path).file_size - length <= 256, f"{name}: another size")
            data = self.zip.read(path)
            state.update(f"\n{path} {len(data)}\n".encode() + data)
            head, raw[name] = data[: len(data) - length], data[len(data) - length :]
            text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shapes[name]}, }}"
            good = head[:8] == b"\x93NUMPY\1\0" and head[10:].rstrip() == text.encode()
            need(good, f"{name} is not {kind} of shape {shapes[name]} in C order")
        need(self.claims["sha256"] == state.hexdigest(), "the certificate's sum does not fit")
        return raw

class Compact:
    """A header, deflated sections and a sum; docs/format.md has every byte."""
    def __init__(self, data):
        self.length, end = len(data), len(data) - 32
        need(hashlib.sha256(data[:end]).digest() == data[end:], "damaged or truncated")
        at = 22 + struct.unpack_from("<I", data, 18)[0]
        self.claims, self.parts = parse(data[22 : min(at, end)]), {}
        for name, length in self.claims["sections"].items():
            self.parts[name], at = data[at : at + number(length)], at + length
        need(at == end, "the sections are not as long as the header says")
    def read(self, shapes, names):
        (k, m), raw, names = shapes["weights"], {}, [name for name in names if name != "weights"]
        need({*names, "order", "floors", "blocks"} == set(self.parts), "missing or other sections")
        plain = sum(8 * math.prod(shapes[name]) for name in (*names, "weights"))
        need(m <= 1 << 16 and plain <= PLAIN + RATIO * self.length, "it would unpack to too much")
        order, floors = self.integers("order", k), self.integers("floors", m)
        need(sorted(order) == list(range(k)), "the order does not name each record once")
        codings = dict.fromkeys(names, "integers") | self.claims["arrays"]
        for name in names:
            length = math.prod(shapes[name])
            if codings[name] == "float64":
                values = struct.unpack(f"<{length}d", self.inflate(self.parts[name], 8 * length))
            else:
                unit = {"integers": 1, "degrees": 10**7}[codings[name]]
                values = [v if unit == 1 else v / unit for v in self.integers(name, length)]
            if name in ("lat", "lon"):
                values = [v for _, v in sorted(zip(order, values))]
            raw[name] = struct.pack(f"<{length}{'qd'[name in REAL]}", *values)
        ends, table = list(accumulate(map(number, self.claims["blocks"]), initial=0)), {}
        good = ends[-1] == len(self.parts["blocks"]) and len(ends) == 1 - -k // 256
        need(good, "the blocks do not fit their section")
        for b, (start, end) in enumerate(zip(ends, ends[1:])):
            places = order[256 * b : 256 * (b + 1)]
            table |= zip(places, self.block(self.parts["blocks"][start:end], len(places), floors))
        return raw | {"weights": b"".join(struct.pack(f"<{m}q", *table[x]) for x in range(k))}
    def inflate(self, data, most):
        reader = zlib.decompressobj()
        plain = reader.decompress(data, most + 1)
        need(reader.eof and not reader.unused_data and len(plain) <= most, "a wrong section")
        return plain
    def planes(self, data, length):  # a width, the lowest bytes of all, the next of all, ...
        need(data and data[0] <= 8 and len(data) == 1 + data[0] * length, "a wrong section")
        parts = [data[1 + k * length : 1 + (k + 1) * length] for k in range(data[0])]
        folded = [int.from_bytes(part, "little") for part in zip(*parts)] or [0] * length
        return [-(u >> 1) - 1 if u & 1 else u >> 1 for u in folded]
    def integers(self, name, length):
        return list(accumulate(self.planes(self.inflate(self.parts[name], 1 + 8 * length), length)))
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
            table.append(row)
        return table

def read(data):
    """The table of a file: its form, its sums, and that the certificate names these very arrays."""
    compact = data.startswith(b"panda-mdp compact\n")
    table = (Compact if compact else Archive)(data)
    claims, domain, version = table.claims, table.claims["domain"], table.claims["version"]
    reports = table.reports = (claims.get("reports") or {"kind": "records"})["kind"]
    form = f"panda-mdp {('mechanism', 'compact table')[compact]}", 62
    plain = version == 2 - (reports == "records")
    known = (claims["format"], claims["bits"]) == form and (plain or version in OTHERS)
    need(known and (plain or not compact), "a foreign format")
    kind, unit, nodes = domain["kind"], domain["unit"], domain["nodes"]
    known = kind in METRICS and unit == {"haversine": "km", "angular": "rad"}.get(kind, unit)
    need(known and type(nodes) is bool and reports in REPORTS, f"{kind!r}, {unit!r}, {reports!r}")
    k, m = number(domain["records"], 2), number(claims["outputs"], 1)
    width = number(domain["dimensions"], 1) if "vectors" in ARRAYS[kind] else None
    e = number(claims.get("bound_pairs", 0))
    shapes = dict.fromkeys(["lat", "lon", "nodes", "prior"], (k,)) | {"distances": (k, k)}
    shapes |= dict.fromkeys(["outputs", *REPORTS["places"]], (m,)) | {"bound_multipliers": (e, m)}
    shapes |= {"vectors": (k, width), "loss": (k, m), "weights": (k, m), "bound_pairs": (e, 2)}
    names = [*ARRAYS[kind], "outputs", "weights", *["nodes"] * nodes, *REPORTS[reports]]
    names += [] if compact else ["prior", "loss"]
    names += ["bound_pairs", "bound_multipliers"] * ("bound_pairs" in claims)
    table.prove, table.size, table.kind, table.unit = prove, k, kind, unit
    table.holds = f"epsilon {claims['epsilon']!r} per {unit} over all pairs and outputs"
    if not plain:
        sys.modules.setdefault("panda_verify", sys.modules[__name__])  # what the file imports from
        other = runpy.run_path(f"{__file__[:-3]}_{OTHERS[version]}.py")
        table.prove = other["adapt"](table, shapes, names)
    raw = table.read(shapes, names)
    tag, join = f"{kind}|{unit}".encode(), b"".join
    named = join(f"<f8{shapes[name]}".encode() + raw[name] for name in ARRAYS[kind])
    named = hashlib.sha256(f"|u1({len(tag)},)".encode() + tag + named).hexdigest()
    about = join(f"<i8{shapes[a]}".encode() + raw[a] for a in ("outputs", "weights") if a in raw)
    subject = f"{named[:32]}:{hashlib.sha256(about).hexdigest()}"
    good = domain["fingerprint"] == named and (not compact or claims["subject"] == subject)
    need(good, "the certificate is of other records or of another table")
    table.values = {a: struct.unpack(f"<{len(raw[a]) // 8}{'qd'[a in REAL]}", raw[a]) for a in raw}
    table.rows = rows(table.values.get("weights", ()), m)
    return table

def check_form(table):  # every number, the rows and the outputs
    claims, k, outputs = table.claims, table.size, table.values["outputs"]
    need(all(math.isfinite(v) for a in table.values.values() for v in a), "infinite numbers")
    for x, row in enumerate(table.rows):
        need(min(row) >= 0 and sum(row) == TOTAL, f"row {x} is not weights that sum to 2^62")
    known = {*outputs} & {*range(k if table.reports == "records" else len(outputs))}
    need(len(known) == len(outputs), "an output is no record, or named twice")
    labels = (claims.get("reports") or {}).get("labels")
    need(labels is None or len({*labels}) == len(labels) == len(known), "labels are not distinct")

def check_claims(table):  # what the certificate says of epsilon
    claims, k, audit = table.claims, table.size, table.claims["audit"]
    epsilon = float(number(claims["epsilon"], 5e-324, (int, float)))
    good = number(audit["epsilon"], 0, (int, float)) <= epsilon and audit["holds"] is True
    need(good and audit["pairs"] == k * (k - 1) // 2, "the stated audit does not cover the claim")
    words = f"exp({epsilon!r} d(x, x')) z(y|x'), d in {table.unit}." in claims["guarantee"]
    words &= f"z(y|p) <= exp({epsilon!r} (d(p, p') + " in claims["snapping"]
    need(words and claims["epsilon_unit"] == f"per {table.unit}", "the words say something else")
    x, x2, y = map(number, audit["worst"])
    need(max(x, x2) < k and x != x2 and y in table.values["outputs"], "the worst pair is none")

def check_pairs(weights, metric, epsilon):
    """w[x][y] 2^64 <= floor(2^64 exp(epsilon d)) w[x'][y], for all y at once, both ways.
    A row is one integer, 192 bits for each output. No product exceeds 2^188, as factors beyond 2^62
    change nothing: fields never touch, and bit 190 stays set if and only if an inequality holds."""
    (n, e), marks = dyadic(epsilon), pack([1 << 190] * len(weights[0]), 192)
    low = [pack(row, 192) for row in weights]
    high = [row << 64 for row in low]
    for i, j in combinations(range(len(weights)), 2):
        t = metric.exponent(i, j, n, e)
        factor = 1 << 126 if t >= 43 << Q else exponential(t, False) >> (Q - 64)
        good = (factor * low[j] + marks - high[i]) & (factor * low[i] + marks - high[j]) & marks
        need(good == marks, f"epsilon {epsilon!r} is exceeded between records {i} and {j}")

def lower_bound(table, metric, costs):
    """sum_x min_y [cost_xy + sum over pairs (x, .) of l_y - sum over pairs (., x) of g l_y].
    For all l >= 0 and g >= exp(epsilon d) no table that keeps epsilon loses less: to its loss add
    l_y (z_xy - g z_x'y) <= 0 for each pair (x, x') and output y, and use that rows sum to 1."""
    (n, e), m = dyadic(float(table.claims["epsilon"])), len(costs[0])
    ends, multipliers = (table.values.get(f"bound_{s}", ()) for s in ("pairs", "multipliers"))
    good = all(0 <= x < table.size for x in ends) and min(multipliers, default=0) >= 0
    need(good, "the proof of the bound names no record, or a multiplier is negative")
    for k, (x, x2) in enumerate(zip(ends[::2], ends[1::2])):
        t = metric.exponent(x, x2, n, e, above=True)
        need(t < 1 << (Q + 10), "a pair of the bound's proof is too far to matter")
        g = Fraction(exponential(t, True), 1 << Q)
        for y, l in enumerate(map(Fraction, multipliers[k * m : (k + 1) * m])):
            costs[x][y], costs[x2][y] = costs[x][y] + l, costs[x2][y] - g * l
    return sum(map(min, costs))

def check_loss(table, metric):
    stated, bound = number(table.claims["loss"], 0, (int, float)), table.claims["lower_bound"]
    loss, m, exact = table.values.get("loss"), len(table.rows[0]), Fraction(stated)
    if loss:
        prior = [Fraction(p) for p in table.values["prior"]]
        law = min(prior) >= 0 and abs(sum(prior) - 1) <= ROUNDING
        need(law and min(loss) >= 0, "the prior is no law, or a loss is negative")
        costs = [[p * Fraction(c) for c in loss[x * m : x * m + m]] for x, p in enumerate(prior)]
        exact = sum(sum(map(mul, *pair)) for pair in zip(costs, table.rows)) / TOTAL
        need(abs(exact - Fraction(stated)) <= exact * ROUNDING, "the loss is another one")
    gap, says, near, proved = None, table.claims["gap"], False, False
    if bound is not None:
        bound = number(bound, -sys.float_info.max, (int, float))
        need(bound <= exact * (1 + ROUNDING), "the lower bound is above the loss")
        proved = bool(loss) and lower_bound(table, metric, costs) >= bound
        gap = 0 if exact <= bound else exact / Fraction(bound) - 1 if bound > 0 else "infinite"
        near = type(says) is float and gap != "infinite" and abs(says - gap) <= 4e-9 * (1 + gap)
        need(proved or "bound_pairs" not in table.claims, "the bound's proof does not prove it")
    need(near or says == gap, f"the gap of this loss and bound is not {says!r}")
    print(f"loss: {stated!r}, {'summed exactly' if loss else 'stated: no losses in the file'}")
    how = "proved in this file" if proved else "stated, not proved in this file"
    print("bound: none" if bound is None else f"bound: {bound!r}, {how}")

def prove(table):
    check_form(table)
    check_claims(table)
    size, stated = table.size, float(table.claims["audit"]["epsilon"])
    print(f"rows: {size:,} records, {len(table.rows[0]):,} outputs; every row sums to 2^62")
    metric = METRICS[table.kind](table)
    check_pairs(table.rows, metric, stated)
    print(f"metric: {table.kind}, {table.unit}; symmetric, distinct records, triangles to 1e-9")
    print(f"pairs: all {size * (size - 1) // 2:,}, both ways, all outputs, at {stated!r}")
    check_loss(table, metric)

def main(path):  # a line for each thing that was checked; returns the exit code
    code = 2
    try:
        with open(path, "rb") as stream:
            table = read(stream.read())
        print("file: sizes, seal and sums fit, and the certificate is of these arrays")
        code = 1
        table.prove(table)
    except Exception as error:  # whatever it is: what was not proved is not vouched for
        print("not readable:" if code == 2 else "DOES NOT HOLD:", str(error) or repr(error))
        return code
    print(f"holds: {table.holds}")
    return 0

if __name__ == "__main__":
    sys.exit(main(sys.argv[-1]))
