"""What `audit` says about a file of PAnDA."""

from __future__ import annotations

from pathlib import Path

from panda_mdp.base.units import per
from panda_mdp.cli.frame import output_console, working, write_json
from panda_mdp.cli.printing import facts


def show_audit(file: Path, json: Path | None) -> None:
    """Everything that a file of PAnDA claims, computed again over all pairs of records."""
    from panda_mdp.panda.file import decode_panda
    from panda_mdp.table.decode import at_path

    with working("auditing both phases over all pairs"):
        table = at_path(file, decode_panda)
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
