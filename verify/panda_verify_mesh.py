"""Files with a mesh, for panda_verify.py: tables that are private at every point of an area.

A point takes a vertex of its triangle with its barycentric weight and draws from that vertex's row,
so z(y|p) is linear in every triangle. The plane is the gnomonic projection at the mesh's middle:
great circles are straight lines, and a step on the sphere is at most 1 + t^2 / R^2 times as long in
the plane, t its distance from the middle there. In a triangle of side s with weights a, b, c

    |grad z|^2 = 2 ((a - b)^2 + (b - c)^2 + (c - a)^2) / (3 s^2),

and |grad log z| <= |grad z| / min(a, b, c). Along the segment between two points of a convex area
that triangles cover these rates add up: log z(y|p) / z(y|q) <= rate d(p, q) (docs/everywhere.md).
Vertices are the points s (i + j / 2, j sqrt(3) / 2), i and j whole, so t^2 = s^2 (i^2 + i j + j^2),
and every inequality here is one of fractions. What is drawn is the law of a point within the
resolution of the true one: its coordinates are rounded to 2^-30 s, and float64 projects it.
"""

import math
from fractions import Fraction

from panda_verify import P, Q, ROUNDING, Sphere, distances, dyadic, exponential, lower_bound, need
from panda_verify import number, prove, rows, sine_cosine, whole

EARTH = Fraction(63710088, 10**4)  # km
FARTHEST = EARTH / 10  # from the middle, in the plane
MARGIN = Fraction(1, 10**6)  # spacings by which the triangles reach beyond the area
AGREEMENT = Fraction(1, 10**9)  # km between a vertex and the record that it is
CELLS = 1 << 24
TRIANGLES = ((0, 0), (1, 0), (0, 1)), ((1, 1), (0, 1), (1, 0))  # of a cell of the lattice
AROUND = (1, 0), (0, 1), (-1, 1), (-1, 0), (0, -1), (1, -1)

def adapt(table, k, m):
    """Takes the sections of such a file; returns what proves it."""
    mesh = table.claims["mesh"]
    need(table.kind == "haversine" and {*mesh} == {"middle", "spacing"}, "a mesh is over places")
    table.spacing = Fraction(number(mesh["spacing"], 5e-324, (int, float)))
    table.take("mesh_vertices", k, 2)
    table.take("mesh_area", None, 2)
    table.take("mesh_inside", k)
    if "given_prior" in table.parts and "bound_pairs" in table.parts:
        table.take("given_prior", k)
        table.given = table.take("given_loss", k, m) if "given_loss" in table.parts else None
        table.averaged, table.bound = range(sum(p > 0 for p in table.values["given_prior"])), averaged
        far = table.given is not None or table.reports != "labels"
        need(far, "these outputs have no distance to the records")
        law, given = table.values["given_prior"], table.given or (0,)
        good = min(law) >= 0 and abs(sum(map(Fraction, law)) - 1) <= ROUNDING and min(given) >= 0
        need(good and "bound_prices" not in table.parts, "what was given is no prior, or no loss")
    return prove_everywhere

def prove_everywhere(table):
    prove(table)
    spacing, epsilon = table.spacing, table.epsilon
    vertices = {tuple(v): x for x, v in enumerate(rows(table.values["mesh_vertices"], 2))}
    need(len(vertices) == table.size, "a vertex is there twice")
    check_places(table, vertices, spacing)
    triangles = [*all_triangles(vertices)]
    check_cover(table, vertices)
    print(f"mesh: {len(triangles):,} triangles cover the area; the records are their corners")
    check_rates(table, triangles, spacing, Fraction(epsilon))
    print(f"points: all triangles, all outputs, at {epsilon!r}")
    near = float(spacing / 2**30 + Fraction(1, 10**10))
    table.holds = f"epsilon {epsilon!r} per km over all places of the area, to {near!r} km"

class Plane:
    """The distances of some vertices in the plane."""
    def __init__(self, vertices, spacing):
        self.vertices, self.spacing = vertices, spacing
    def exponent(self, x, x2, n, e, above=False):
        steps = [a - b for a, b in zip(self.vertices[x], self.vertices[x2])]
        square = self.spacing**2 * squared(*steps) * n * n * Fraction(4) ** (e + Q)
        return math.isqrt(math.floor(square)) + above

def averaged(table, _, costs):
    """A bound for all mechanisms that are private at every point: one of their averages over hats,
    whose losses are lower by what a table and a loss may vary together within a hat
    (docs/everywhere.md). What was given must sum up to the prior and losses of the file, and people
    be where all six neighbours lie in the area; else nothing is proved here, which is a bound of 0."""
    m, spacing = len(costs[0]), table.spacing
    vertices = rows(table.values["mesh_vertices"], 2)
    index = {tuple(v): x for x, v in enumerate(vertices)}
    prior, given = [Fraction(p) for p in table.values["given_prior"]], table.given
    if given is None:
        given = [*distances(table, Sphere(table))]
    losses = rows([Fraction(c) for c in given], m)
    own, total = [Fraction(0)] * table.size, [[Fraction(0)] * m for _ in prior]
    for corners, _ in all_triangles(index):
        people = sum(prior[x] for x in corners)
        for x in corners if people else ():
            for x2 in corners:
                part = (1 + (x == x2)) * (prior[x] + prior[x2] + people) / 120
                own[x] += part
                total[x] = [a + part * c for a, c in zip(total[x], losses[x2])]
    same = all(near(p, sum(own) * Fraction(q)) for p, q in zip(own, table.prior))
    stored = rows([Fraction(c) for c in table.loss or ()], m)
    for p, row, told in zip(own, total, stored):
        same = same and all(near(a, p * c) for a, c in zip(row, told))
    around = {x: [index.get((i + a, j + b)) for a, b in AROUND] for x, (i, j) in enumerate(vertices)}
    whose = [x for x, p in enumerate(prior) if p]
    area = inside(table)
    here = all(None not in around[x] and all(area(vertices[v]) for v in around[x]) for x in whose)
    if not (same and here and stored and len(whose) > 1):
        return Fraction(0)
    (n, e), one = dyadic(table.epsilon), 1 << Q
    t = math.floor(n * spacing * Fraction(2) ** (e + Q)) + 1
    if t >= 1 << (Q + 10):
        return Fraction(0)
    growth = (Fraction(exponential(t, True), one) - 1) * Fraction(exponential(t // 2 + 1, True), one)
    lowered = []
    for x in whose:
        row = []
        for y, c in enumerate(losses[x]):
            near_by = [losses[v][y] for v in around[x]]
            mean = c / 2 + sum(near_by) / 12
            off = abs(c - mean) / 5 + sum(abs(a - mean) for a in near_by) / 20
            row.append(prior[x] * max(mean - growth * off, Fraction(0)))
        lowered.append(row)
    return max(lower_bound(table, Plane([vertices[x] for x in whose], spacing), lowered), Fraction(0))

def near(a, b):  # what was summed by others, to a millionth of a millionth
    return abs(a - b) <= Fraction(2, 10**12) * abs(b)

def inside(table):  # whether a vertex lies in the area, to MARGIN
    area = [[Fraction(v) for v in corner] for corner in rows(table.values["mesh_area"], 2)]
    sides = [(a, b[0] - a[0], b[1] - a[1]) for a, b in zip(area, area[1:] + area[:1])]
    def within(vertex):
        for (u, v), du, dv in sides:
            beyond = dv * (vertex[0] - u) - du * (vertex[1] - v)
            if beyond > 0 and beyond**2 > 4 * (dv * dv + du * dv + du * du) * MARGIN**2 / 3:
                return False
        return True
    return within

def squared(i, j):  # the distance of a vertex from the middle, in spacings, squared
    return i * i + i * j + j * j

def all_triangles(vertices):
    """Corners of every triangle that has all three, and the largest `squared` of them."""
    for i, j in vertices:
        for cell, steps in (((i, j), TRIANGLES[0]), ((i - 1, j), TRIANGLES[1])):
            corners = [(cell[0] + a, cell[1] + b) for a, b in steps]
            if all(corner in vertices for corner in corners):
                yield [vertices[corner] for corner in corners], max(squared(*c) for c in corners)

def check_rates(table, triangles, spacing, rate):
    """stretch^2 |grad z|^2 <= rate^2 min^2 for every triangle and output, in integers."""
    for (x, x2, x3), far in triangles:
        stretch = 1 + spacing**2 * far / EARTH**2
        allowed = 3 * (spacing * rate / stretch) ** 2 / 2
        up, down = allowed.numerator, allowed.denominator
        for a, b, c in zip(table.rows[x], table.rows[x2], table.rows[x3]):
            changes = (a - b) ** 2 + (b - c) ** 2 + (c - a) ** 2
            good = changes * down <= up * min(a, b, c) ** 2
            need(good, f"the rate is exceeded in the triangle of records {x}, {x2} and {x3}")

def check_places(table, vertices, spacing):
    """Every record is where its vertex is: the chord between the two directions is short."""
    middle, inside = table.claims["mesh"]["middle"], table.values["mesh_inside"]
    lat, lon = (Fraction(number(v, -180, (int, float))) for v in middle)
    need(abs(lat) <= 90 and lon <= 360, "the middle of the mesh is no place")
    (s, c), (sin, cos) = sine_cosine(lat), sine_cosine(lon - 360 if lon > 180 else lon)
    frame = [c * cos >> P, c * sin >> P, s], [-sin, cos, 0], [-s * cos >> P, -s * sin >> P, c]
    root, points = math.isqrt(3 << 2 * P), Sphere(table).points
    for ((i, j), x), point in zip(vertices.items(), points):
        need(spacing**2 * squared(i, j) <= FARTHEST**2, f"vertex {x} is too far from the middle")
        side = spacing / (2 * EARTH)
        steps = 1 << P, int(side * (2 * i + j) * 2**P), int(side * j * root)
        ray = [sum(n * axis[d] for n, axis in zip(steps, frame)) >> P for d in range(3)]
        length = math.isqrt(sum(a * a for a in ray))
        gaps = [(a << P) // length - b for a, b in zip(ray, point)]
        near = sum(a * a for a in gaps) * EARTH**2 <= AGREEMENT**2 * 4**P
        need(near, f"record {x} is not where its vertex is")
        around = all((i + a, j + b) in vertices for a, b in AROUND)
        need(inside[x] == 0 or (inside[x] == 1 and around), f"vertex {x} is not inside")

def check_cover(table, vertices):
    """The area is convex, and so is what lies within MARGIN of it; triangles cover that.

    A triangle is left out only where a line along a side of it or of the area separates the two by
    more than MARGIN. The form f(u, v) = p u + q v in lattice coordinates has the squared length
    4 (p^2 - p q + q^2) / 3 in the plane. Coordinates are integers over 2^bits."""
    area, least = whole(table.values["mesh_area"], len(table.values["mesh_area"]) // 2)
    need(len(area) > 2, "the area has fewer than three corners")
    bits, sides = -least, [(b[0] - a[0], b[1] - a[1]) for a, b in zip(area, area[1:] + area[:1])]
    for (u, v), (du, dv) in zip(area, sides):
        left = [du * (b - v) - dv * (a - u) for a, b in area]
        need(min(left) == 0 and left.count(0) == 2, "the area is not convex and counterclockwise")
    axes = []
    for du, dv in [*sides, (1 << bits, 0), (0, 1 << bits), (1 << bits, -1 << bits)]:
        shadow = [dv * u - du * v for u, v in area]
        most = 4 * (dv * dv + du * dv + du * du) * MARGIN**2 / 3 * 4**bits
        axes.append((dv << bits, -du << bits, min(shadow), max(shadow), most))
    (low, high), (low2, high2) = ((min(a) >> bits, (max(a) >> bits) + 1) for a in zip(*area))
    cells = (high - low + 4) * (high2 - low2 + 4)
    need(cells <= CELLS, "the area spans too many triangles")
    for cell in ((i, j) for i in range(low - 2, high + 2) for j in range(low2 - 2, high2 + 2)):
        for steps in TRIANGLES:
            corners = [(cell[0] + a, cell[1] + b) for a, b in steps]
            if not all(corner in vertices for corner in corners):
                need(any(beyond(corners, *axis) for axis in axes), "a triangle is missing")

def beyond(corners, p, q, low, high, most):  # by more than MARGIN, along one axis
    shadow = [p * i + q * j for i, j in corners]
    gap = max(min(shadow) - high, low - max(shadow))
    return gap > 0 and gap * gap > most
