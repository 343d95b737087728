"""What `info`, `audit` and `explain` say about a file of PAnDA."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panda_mdp.base.units import per
from panda_mdp.cli.frame import output_console, working, write_json
from panda_mdp.cli.printing import facts

if TYPE_CHECKING:
    from panda_mdp.panda.panda_table import PandaTable

NEAR_KM = (0.1, 0.5, 1.0)


def show_info(file: Path, json: Path | None) -> None:
    """The certificate of a file of PAnDA; sums are verified, the account is not repeated."""
    from panda_mdp.panda.file.decode import read_panda_certificate

    certificate = read_panda_certificate(file)
    domain, account = certificate["domain"], certificate["account"]
    anchors = account["expected_anchors"]
    rows: list[tuple[str, object]] = [
        ("method", f"{certificate['method']}: two phases"),
        ("selection", _selection(certificate["selection"], domain["unit"])),
        ("records", f"{domain['records']:,} ({domain['kind']}, {domain['unit']})"),
        ("outputs", certificate["outputs"]),
        ("epsilon", f"{certificate['epsilon']:g} {certificate['epsilon_unit']}"),
        ("delta", f"{certificate['delta']:g}, stated account {account['violation']:.6g}"),
        ("Phase I", f"{account['selection_epsilon']:.6g} {certificate['epsilon_unit']} as stated"),
        ("anchors per user", f"{anchors:,.1f}, {anchors / domain['records']:.1%} of the records"),
        ("expected loss", f"{certificate['loss']:.6g} {certificate['loss_unit']}"),
        ("prior", certificate["prior_source"]),
        ("made", f"{certificate['date']} by panda-mdp {certificate['library']}"),
        ("domain", domain["fingerprint"]),
        ("guarantee", certificate["guarantee"]),
        ("snapping", certificate["snapping"]),
    ]
    output_console().print(facts(str(file), rows))
    write_json(json, certificate)


def show_audit(file: Path, json: Path | None) -> None:
    """Everything that a file of PAnDA claims, computed again over all pairs of records."""
    from panda_mdp.panda.file.decode import load_panda

    with working("auditing both phases over all pairs"):
        table = load_panda(file)
    size, unit = table.problem.size, table.problem.domain.unit
    rows: list[tuple[str, object]] = [
        ("holds", "yes"),
        ("guarantee", f"epsilon {table.epsilon:g} {per(unit)}, delta {table.delta:g}"),
        ("violation", f"at most {table.account.violation:.6g}"),
        ("worst pair", f"records {table.account.pair[0]} and {table.account.pair[1]}"),
        ("Phase I", f"{table.selection_epsilon:.6g} {per(unit)}"),
        ("pairs covered", f"{size * (size - 1) // 2:,}, both phases"),
    ]
    output_console().print(facts(f"Audit of {file}", rows))
    write_json(
        json,
        {
            "holds": True,
            "epsilon": table.epsilon,
            "delta": table.delta,
            "unit": unit,
            "violation": table.account.violation,
            "worst": {"records": list(table.account.pair)},
            "selection_epsilon": table.selection_epsilon,
            "pairs": size * (size - 1) // 2,
        },
    )


def explained(table: PandaTable) -> list[str]:
    """What both phases mean for a person, in plain language."""
    unit = table.problem.domain.unit
    total, more = table.guarantee, table.further
    lines = [
        f"Two phases: a selection of anchors is released first ({table.scheme.selection!r}), then "
        f"one report from {_row(table)}.",
        f"Together they tell at most epsilon {total.epsilon:g} {per(unit)} about two places, "
        f"whatever was known before, except with probability {total.delta:g}.",
    ]
    for distance in NEAR_KM if unit == "km" else ():
        factor = math.exp(min(total.epsilon * distance, 700))
        said = f"{factor:.3g}" if factor < 1e6 else "more than a million: nothing is hidden"
        lines.append(f"  {distance:g} km from each other: odds change by at most {said}")
    lines += [
        f"The anchors alone tell at most {table.selection_epsilon:.3g} {per(unit)}; a user "
        f"downloads {table.download:.1%} of the records' rows.",
        f"Expected loss {table.loss:.4g} {table.problem.loss_unit}, over places, draws and "
        "reports.",
        f"Another report from the same anchors costs epsilon {more.epsilon:g} and delta "
        f"{more.delta:g} more; anchors that are drawn again cost everything again.",
        "A selection is of one place: whoever moves draws another.",
    ]
    return lines


def _row(table: PandaTable) -> str:
    from panda_mdp.panda.schemes.ball_scheme import CommonBalls

    if isinstance(table.scheme, CommonBalls):
        return "the own row, or outside the ball from one row that is the same for all"
    return "the row of the nearest"


def _selection(stated: dict[str, Any], unit: str) -> str:
    if stated["kind"] == "ball":
        return (
            f"a ball of {stated['radius']:.4g} {unit} around one of {stated['centres']:,} centres, "
            f"drawn with epsilon {stated['epsilon']:g}; outside: {stated['outside']}"
        )
    return (
        f"{stated['candidates']:,} candidates by {stated['decay']} coins, alpha "
        f"{stated['alpha']:.9g}, rate {stated['rate']:g}, radius {stated['radius']:.4g} {unit}"
    )
