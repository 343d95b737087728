"""Reads files of PAnDA and verifies all that their guarantee rests on.

The certificate says epsilon, delta, the selection's parameters and the account. None of it is
believed. Balls: the law of centres is audited over all pairs at epsilon_1, the table at what is
left, and the account of the ball's edge is computed again for all pairs from the radius, the rows
outside and the integers. Coins: the budgets are what the rows differ by, measured on the integers;
Phase I's cost and the joint law of surrogates are computed again, for all pairs of records.
"""

from __future__ import annotations

import copyreg
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.compute.rate import LOG_ERROR
from panda_mdp.errors import FileFormatError
from panda_mdp.outputs import Outputs
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.file.encode import encode, guarantee_words
from panda_mdp.panda.options import Options
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.schemes.ball_scheme import BallScheme
from panda_mdp.panda.selection.ball import BallAnchors
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors
from panda_mdp.panda.selection.centres import BallLaw, distances_to
from panda_mdp.privacy.quantise import check_weights
from panda_mdp.problem import Problem, quiet_scale
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.table import claims
from panda_mdp.table.certificate import (
    PHASED_VERSION,
    Expected,
)
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.pmdp.decode import array, at_path, contradictions, restore_problem, unpack

Arrays = Mapping[str, npt.NDArray[Any]]
SUMMED = 1e-6
"""Of a stated violation probability, relative: sums in another order and another log."""
AUDITED = 1e-12
"""Of a stated audit, relative: another log."""
OUTSIDE = ("common", "nearest")
LEAST_NATS = 1e-6
"""Rows nearer than this count as so far from each other, which allows them less."""


def load_panda(path: str | os.PathLike[str], *, expected: Expected | None = None) -> PandaTable:
    """Read a table of PAnDA and verify all that its guarantee rests on, over all pairs of records.

    Raises `FileFormatError` where the file is damaged, foreign, a plain table, or claims what its
    bytes do not give: the metric, the integers, the audits, the account for delta, the loss. And
    `PrivacyError` where it is not what was `expected`.
    """
    return at_path(path, lambda data: decode(data, expected))


def decode(data: bytes, expected: Expected | None = None) -> PandaTable:
    """The table of a file's bytes, verified as by `load_panda`."""
    with contradictions():
        table = _rebuild(*_unpack(data))
    if expected is not None:
        expected.check(table.problem.domain, table.epsilon)
    return table


def read_panda_certificate(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file of PAnDA says about itself; sums are checked and nothing else."""

    def read(data: bytes) -> dict[str, Any]:
        with contradictions():
            certificate = _unpack(data)[0]
            _check_words(certificate)
        return certificate

    return at_path(path, read)


def peek(data: bytes) -> tuple[dict[str, Any], IntArray]:
    """Certificate and outputs of a file that was verified before."""
    with contradictions():
        certificate, members = _unpack(data)
        return certificate, array(members, "outputs", _shapes(certificate)["outputs"])


def _unpack(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    return unpack(data, _shapes, (PHASED_VERSION,))


def _shapes(certificate: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    shapes = claims.shapes(certificate)
    size, count = shapes["weights"]
    rows = claims.whole(certificate, "rows", 1)
    shapes |= {"prior": (size,), "loss": (size, count), "weights": (rows, count)}
    selection = certificate["selection"]
    if selection["kind"] == "ball":
        centres = claims.whole(selection, "centres", 1)
        shapes |= {"centres": (centres,), "centre_weights": (size, centres)}
        if selection["outside"] == "common":
            shapes["outside_weights"] = (centres, count)
    elif selection["kind"] == "coins":
        candidates = claims.whole(selection, "candidates", 1)
        shapes |= {"candidates": (candidates,), "anchor_rows": (candidates,)}
    else:
        msg = f"a selection of kind {selection['kind']!r}; this library knows ball and coins"
        raise FileFormatError(msg)
    return shapes


def _rebuild(certificate: Mapping[str, Any], members: Mapping[str, bytes]) -> PandaTable:
    given = {name: array(members, name, shape) for name, shape in _shapes(certificate).items()}
    problem = restore_problem(certificate, given)
    delta = claims.real(certificate, "delta")
    if not 0 <= delta < 1:
        msg = f"the certificate's delta is {delta!r}, no probability below 1"
        raise FileFormatError(msg)
    build = _balls if certificate["selection"]["kind"] == "ball" else _coins
    table = build(problem, delta, certificate["selection"], given)
    _check_claims(certificate, table)
    return table


def _balls(problem: Problem, delta: float, stated: Mapping[str, Any], given: Arrays) -> PandaTable:
    domain = problem.domain
    epsilon_1, left = claims.real(stated, "epsilon"), claims.real(stated, "table_epsilon")
    radius = claims.real(stated, "radius")
    if stated["outside"] not in OUTSIDE or radius <= 0:
        msg = f"balls of radius {radius!r} with rows {stated['outside']!r} outside are none"
        raise FileFormatError(msg)
    centres = check_indices(given["centres"], domain.size, "centres")
    if len(np.unique(centres)) < len(centres):
        msg = "a centre is named twice; the file is damaged"
        raise FileFormatError(msg)
    with quiet_scale():
        centring = Problem(domain, centres, distances_to(domain, centres), epsilon_1)
    law = BallLaw(
        domain,
        frozen(centres),
        # Audited over all pairs here, and so are the rows below.
        Mechanism(centring, given["centre_weights"], "centres"),
        radius,
        np.zeros(domain.size),
    ).with_radius(radius)
    selection = BallAnchors(
        epsilon_1,
        None if stated["outside"] == "common" else delta,
        centres,
        stated["outside"],
    )
    scheme = selection.scheme(problem, delta, Options())
    rows = Mechanism(problem.with_epsilon(left), given["weights"], "PAnDA")
    known: dict[str, Any] = {"law": law, "mechanism": rows}
    if stated["outside"] == "common":
        outside = given["outside_weights"]
        check_weights(outside, (len(centres), problem.outputs_count))
        # Beyond what the rows of records reach, accounts of large domains would not cover it.
        low, high = given["weights"].min(axis=0), given["weights"].max(axis=0)
        if (outside < low - problem.outputs_count).any() or (
            outside > high + problem.outputs_count
        ).any():
            msg = "a row outside a ball is no mean of the records' rows"
            raise FileFormatError(msg)
        firsts = [int(some[0]) for some in law.groups]
        if any((outside[some] != outside[some[0]]).any() for some in law.groups):
            msg = "two centres have the same ball and different rows outside"
            raise FileFormatError(msg)
        known["_common"] = frozen(outside[firsts])
    # What a scheme computes when it is asked; here the file's, verified by its account.
    scheme.__dict__.update(known)
    return PandaTable.of(scheme)


def _coins(problem: Problem, delta: float, stated: Mapping[str, Any], given: Arrays) -> PandaTable:
    domain = problem.domain
    candidates = check_indices(given["candidates"], domain.size, "candidates")
    row = check_indices(given["anchor_rows"], len(given["weights"]), "anchor_rows")
    if (np.diff(candidates) <= 0).any():
        msg = "the candidates do not ascend; the file is damaged"
        raise FileFormatError(msg)
    tail = stated["tail"]
    selection = BernoulliAnchors(
        stated["decay"],
        claims.real(stated, "alpha"),
        claims.real(stated, "rate"),
        claims.real(stated, "radius"),
        tail if tail == "clip" else claims.real(stated, "tail"),
        None if len(candidates) == domain.size else candidates,
        claims.whole(stated, "neighbours", 1),
    )
    options = Options(delta_selection=claims.real(stated, "delta_selection"))
    scheme = selection.scheme(problem, delta, options)
    mechanism, nats = _anchor_mechanism(given["weights"])
    # Rows may differ by what they differ by: the certificate decides whether that is little enough.
    scheme.__dict__["budgets"] = nats[np.ix_(row, row)]
    table = AnchorTable(frozen(candidates), frozen(row), mechanism)
    scheme.__dict__["_whole"] = table
    return PandaTable(scheme, table)


def _anchor_mechanism(weights: IntArray) -> tuple[Mechanism, FloatArray]:
    """Rows of anchors as a mechanism over the metric that they themselves span, and that in nats.

    max_y |log z_a(y) / z_a'(y)| is a metric; the least distance makes it one for equal rows.
    """
    count, outputs = weights.shape
    check_weights(weights, (count, outputs))
    with np.errstate(divide="ignore"):
        logs = np.log(weights.astype(np.float64))
    used = (weights > 0).any(axis=0)
    if (weights[:, used] == 0).any():
        msg = "an output is impossible for one anchor and possible for another"
        raise FileFormatError(msg)
    logs = logs[:, used]
    nats = np.empty((count, count))
    for k in range(count):
        nats[k] = np.abs(logs - logs[k]).max(axis=1) + LOG_ERROR
    nats = np.maximum(nats, nats.T)
    np.fill_diagonal(nats, 0.0)
    size = max(count, 2)
    metric = np.full((size, size), LEAST_NATS)
    metric[:count, :count] = np.maximum(nats * (1 + 1e-9), LEAST_NATS)
    np.fill_diagonal(metric, 0.0)
    rows = weights if count == size else np.repeat(weights, 2, axis=0)
    with quiet_scale():
        spanned = Problem(
            Domain.from_matrix(metric, unit="nats"),
            Outputs.labels(range(outputs)),
            np.zeros((size, outputs)),
            1.0 + 1e-6,
        )
    return Mechanism(spanned, rows, "PAnDA"), nats


def _check_words(certificate: Mapping[str, Any]) -> None:
    epsilon, delta = claims.real(certificate, "epsilon"), claims.real(certificate, "delta")
    unit = certificate["domain"]["unit"]
    if (certificate["guarantee"], certificate["epsilon_unit"]) != (
        guarantee_words(epsilon, delta, unit),
        f"per {unit}",
    ):
        msg = f"the certificate's words are not those of ({epsilon!r} per {unit}, {delta!r})"
        raise FileFormatError(msg)


def _check_claims(certificate: Mapping[str, Any], table: PandaTable) -> None:
    """Refuse a certificate that says something else than what was just computed."""
    _check_words(certificate)
    account, problem = certificate["account"], table.problem
    violation, value = claims.real(account, "violation"), table.account.violation
    # More may be stated: budgets that the rows do not use up.
    if not value <= violation * (1 + SUMMED) + 1e-15 or violation > table.delta:
        msg = f"the certificate's violation is {violation!r}; its bytes give {value!r}"
        raise FileFormatError(msg)
    computed = {
        "selection_epsilon": table.selection_epsilon,
        "expected_anchors": table.scheme.expected_anchors,
    }
    for name, value in computed.items():
        stated = claims.real(account, name)
        # What balls tell is audited on integers: less than that is not stated.
        audited = name == "selection_epsilon" and isinstance(table.scheme, BallScheme)
        short = AUDITED if audited else SUMMED
        if not -short * abs(value) - 1e-15 <= stated - value <= SUMMED * abs(value) + 1e-15:
            msg = f"the certificate's {name} is {stated!r}; its bytes give {value!r}"
            raise FileFormatError(msg)
    pairs = problem.size * (problem.size - 1) // 2
    if claims.whole(account, "pairs", 1) != pairs:
        msg = f"the certificate accounts for {account['pairs']} pairs; there are {pairs}"
        raise FileFormatError(msg)
    loss = claims.real(certificate, "loss")
    if not abs(loss - table.loss) <= claims.TOLERANCE * max(abs(loss), 1e-300):
        msg = f"the certificate claims a loss of {loss!r}; the bytes give {table.loss!r}"
        raise FileFormatError(msg)


# A pickle can be edited: what comes out of one is verified as a file is.
copyreg.pickle(PandaTable, lambda table: (decode, (encode(table),)))
