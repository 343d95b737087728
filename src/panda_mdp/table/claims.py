"""What a file says about itself is a claim: each is checked against what was computed.

A certificate is written by whoever writes the file, so nothing in it is believed: it must be JSON
that means one thing, its numbers finite, its audit the one of the weights, its words those of its
epsilon, and a lower bound not above the loss. Sizes are refused before anything is unpacked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import FileFormatError
from panda_mdp.privacy.audit import Audit
from panda_mdp.privacy.continuous import ContinuousAudit
from panda_mdp.privacy.quantise import BITS
from panda_mdp.space.domain import Domain
from panda_mdp.space.mesh import Mesh
from panda_mdp.table.certificate import EVERYWHERE_VERSION, PHASED_VERSION

TOLERANCE = 1e-9
"""Of stated losses and rates, relative: float64 sums differ that much between machines."""
RATE_TOLERANCE = 1e-13
"""Of a stated rate times the distance of its pair: what two machines' logarithms may differ by.
The audit adds more than that to the exact rate, so what is stated is never below the exact one."""
MESH_TOLERANCE = 16 * 2.0**-53
"""Of a stated rate at every point, relative: half of what the audit adds to the exact one."""
UNPACKED_BYTES, UNPACKED_RATIO = 1 << 28, 128
"""A file may unpack to 256 MiB and 128 bytes for each of its own, whatever it says."""
KINDS = {
    "haversine": ("lat", "lon"),
    "euclidean": ("vectors",),
    "angular": ("vectors",),
    "matrix": ("distances",),
}
"""The arrays of each kind of metric."""


def parse(text: bytes) -> dict[str, Any]:
    """A JSON object without NaN, infinities and names that are there twice."""
    try:
        claims = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        msg = "the certificate is not JSON; the file is damaged"
        raise FileFormatError(msg) from error
    if not isinstance(claims, dict):
        msg = "the certificate is not a JSON object; it is a foreign file"
        raise FileFormatError(msg)
    return claims


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    claims = dict(items)
    if len(claims) < len(items):
        msg = "a name is twice in the certificate; the file was forged"
        raise FileFormatError(msg)
    return claims


def _refuse_constant(name: str) -> NoReturn:
    msg = f"the certificate holds {name}; its numbers are finite"
    raise FileFormatError(msg)


def whole(claims: Mapping[str, Any], name: str, least: int) -> int:
    """A whole number of a certificate, at least `least`."""
    value = claims[name]
    if type(value) is not int or value < least:
        msg = (
            f"a wrong value: {name} is {str(value)[:40]!r}, not a whole number from {least}; "
            "the file is damaged"
        )
        raise FileFormatError(msg)
    return value


def real(claims: Mapping[str, Any], name: str) -> float:
    """A finite number of a certificate."""
    value = claims[name]
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        msg = f"a wrong value: the certificate's {name} is {str(value)[:40]!r}, no finite number"
        raise FileFormatError(msg)
    return number


def shapes(certificate: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The arrays of the domain and the table, with the shapes that the certificate gives them."""
    claims = certificate["domain"]
    kind = claims["kind"]
    if kind not in KINDS:
        msg = f"a metric of kind {kind!r}; this library knows {', '.join(KINDS)}"
        raise FileFormatError(msg)
    if certificate["bits"] != BITS:
        msg = f"weights of {certificate['bits']!r} bits; this library reads {BITS}"
        raise FileFormatError(msg)
    if type(claims["nodes"]) is not bool:
        msg = f"the certificate's nodes is {claims['nodes']!r}; it must be true or false"
        raise FileFormatError(msg)
    size, count = whole(claims, "records", 2), whole(certificate, "outputs", 1)
    expected: dict[str, tuple[int, ...]] = {"outputs": (count,), "weights": (size, count)}
    if kind == "matrix":
        expected["distances"] = (size, size)
    elif kind == "haversine":
        expected |= {"lat": (size,), "lon": (size,)}
    else:
        expected["vectors"] = (size, whole(claims, "dimensions", 1))
    if claims["nodes"]:
        expected["nodes"] = (size,)
    reports = "records" if certificate.get("reports") is None else certificate["reports"]["kind"]
    other = (PHASED_VERSION, EVERYWHERE_VERSION)
    plain = "stored" not in certificate and certificate["version"] not in other
    if plain and (reports == "records") != (certificate["version"] == 1):
        msg = f"outputs that are {reports} in a file of version {certificate['version']!r}"
        raise FileFormatError(msg)
    if ("mesh" in certificate) != (certificate["version"] == EVERYWHERE_VERSION):
        msg = f"a mesh belongs to version {EVERYWHERE_VERSION}, not {certificate['version']!r}"
        raise FileFormatError(msg)
    if "mesh" in certificate:
        corners = whole(certificate["mesh"], "corners", 3)
        expected |= {"mesh_vertices": (size, 2), "mesh_area": (corners, 2), "mesh_inside": (size,)}
    if reports == "places":
        expected |= {"output_lat": (count,), "output_lon": (count,)}
    return expected


def most_unpacked(packed: int) -> int:
    """The bytes that a file of `packed` bytes may become."""
    return UNPACKED_BYTES + UNPACKED_RATIO * packed


def check_unpacked(plain: int, packed: int) -> None:
    """Refuse a file of `packed` bytes that would become `plain` bytes, before it does."""
    most = most_unpacked(packed)
    if plain > most:
        msg = (
            f"{packed:,} bytes would unpack to {plain:,}; at most {most:,} are unpacked: "
            "it is not a table that this library wrote"
        )
        raise FileFormatError(msg)


def check_words(certificate: Mapping[str, Any], unit: str) -> None:
    """Refuse a certificate whose words speak about another epsilon or unit."""
    epsilon = real(certificate, "epsilon")
    same = (
        f"exp({epsilon!r} d(x, x')) z(y|x'), d in {unit}." in certificate["guarantee"]
        and f"z(y|p) <= exp({epsilon!r} (d(p, p') + " in certificate["snapping"]
        and certificate["epsilon_unit"] == f"per {unit}"
    )
    if not same:
        msg = f"the certificate's words are not those of epsilon {epsilon!r} per {unit}"
        raise FileFormatError(msg)


def check_bound(certificate: Mapping[str, Any], loss: float) -> float | None:
    """The lower bound of a certificate: finite, and not above the loss of the table."""
    stated = real(certificate, "loss")
    if not abs(loss - stated) <= TOLERANCE * max(abs(stated), 1e-300) or stated < 0:
        msg = f"the certificate claims a loss of {stated!r}; the weights give {loss!r}"
        raise FileFormatError(msg)
    bound = None if certificate["lower_bound"] is None else real(certificate, "lower_bound")
    if bound is not None and bound > loss * (1 + TOLERANCE):
        msg = f"the certificate's lower bound, {bound!r}, is above the loss, {loss!r}"
        raise FileFormatError(msg)
    stated_gap, gap = certificate["gap"], _gap(bound, loss)
    same = stated_gap == gap
    if isinstance(stated_gap, float) and isinstance(gap, float):
        same = abs(stated_gap - gap) <= 4 * TOLERANCE * (1 + gap)
    if not same:
        msg = f"the gap of this loss and bound is {gap!r}; the certificate says {stated_gap!r}"
        raise FileFormatError(msg)
    return bound


def _gap(bound: float | None, loss: float) -> float | str | None:
    """What a certificate says of the gap."""
    if bound is None:
        return None
    if loss <= bound:
        return 0.0
    return (loss - bound) / bound if bound > 0 else "infinite"


def check_everywhere(
    certificate: Mapping[str, Any], verdict: ContinuousAudit, mesh: Mesh, outputs: IntArray
) -> None:
    """Refuse a stated audit of every point that is not the one of the weights.

    It may be larger by what sums differ by between machines, and smaller by no more than was added
    to the exact rate. Any triangle may be named as the worst, since several may attain it.
    """
    stated = certificate["everywhere"]
    rate, near = real(stated, "epsilon"), real(stated, "resolution_km")
    *corners, y = stated["worst"]
    same = (
        stated["holds"] is True
        and whole(stated, "triangles", 1) == verdict.triangles
        and abs(near - verdict.resolution_km) <= TOLERANCE * verdict.resolution_km
        and verdict.epsilon * (1 - MESH_TOLERANCE) <= rate <= verdict.epsilon * (1 + TOLERANCE)
        and all(type(v) is int for v in stated["worst"])
        and bool((np.sort(mesh.triangles, axis=1) == sorted(corners)).all(axis=1).any())
        and y in outputs
        and f"(d(p, p') + {2 * near!r})) z(y|p')." in certificate["snapping"]
    )
    if not same:
        msg = (
            f"the certificate states a rate of {rate!r} at every point; the audit of its weights "
            f"gives {verdict.epsilon!r}"
        )
        raise FileFormatError(msg)


def check_stated(certificate: Mapping[str, Any]) -> None:
    """Refuse a certificate that contradicts itself; nothing is computed that takes time."""
    check_words(certificate, certificate["domain"]["unit"])
    check_bound(certificate, real(certificate, "loss"))
    stated, size = certificate["audit"], whole(certificate["domain"], "records", 2)
    fits = 0 <= real(stated, "epsilon") <= real(certificate, "epsilon")
    if not fits or stated["holds"] is not True or stated["pairs"] != size * (size - 1) // 2:
        msg = "the stated audit does not cover the epsilon that is claimed"
        raise FileFormatError(msg)


def check_audit(
    certificate: Mapping[str, Any], verdict: Audit, domain: Domain, outputs: IntArray
) -> None:
    """Refuse a stated audit that is not the one of the weights.

    It may be larger by what the sums of two machines differ by, but smaller by no more than their
    logarithms do: a rate that the table exceeds is not stated. The worst pair need not be the same,
    since several may attain the rate.
    """
    stated = certificate["audit"]
    x, x2, y = stated["worst"]
    if any(type(v) is not int or not 0 <= v < domain.size for v in (x, x2)):
        msg = f"the stated worst pair names records outside 0..{domain.size - 1}"
        raise FileFormatError(msg)
    rate, pairs = real(stated, "epsilon"), whole(stated, "pairs", 1)
    distance = domain.distance(x, x2)
    rounding = RATE_TOLERANCE / verdict.distance if verdict.epsilon > 0 else 0.0
    same = (
        stated["holds"] is True
        and pairs == verdict.pairs
        and x != x2
        and type(y) is int
        and y in outputs
        and abs(real(stated, "distance") - distance) <= TOLERANCE * distance
        and verdict.epsilon - rounding <= rate <= verdict.epsilon * (1 + TOLERANCE) + rounding
    )
    if not same:
        msg = (
            f"the certificate states an audited epsilon of {rate!r} over {pairs:,} pairs; the "
            f"audit of its weights gives {verdict.epsilon!r} over {verdict.pairs:,}"
        )
        raise FileFormatError(msg)
