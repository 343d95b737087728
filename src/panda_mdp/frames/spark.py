"""Spark: the same draws on a cluster, whatever is retried, killed or run twice.

A task may run several times, and each run of an independent draw would be another report of the
same row. So a key is required: the draw is a function of person, period and record (`key.py`), and
a row has one report however often it is computed. The key travels to the executors with the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from panda_mdp.errors import InvalidInputError
from panda_mdp.frames.key import DrawKey
from panda_mdp.frames.perturb import STEPS, Columns, Perturber, Uncovered
from panda_mdp.table.mechanism import Mechanism


def perturb(
    df: Any,
    mechanism: Mechanism,
    columns: Columns,
    *,
    key: DrawKey,
    limit: float = 0.5,
    outside: Uncovered = "refuse",
    budget: float | None = None,
) -> Any:
    """A Spark DataFrame with reports instead of places; options as for `pm.perturb`.

    The table is broadcast once and batches are mapped in Arrow. With `budget`, the rows of a person
    are brought together and sorted by time and place, so that the same rows are held back on every
    run.
    """
    if not isinstance(key, DrawKey):
        raise InvalidInputError(
            "Spark may run a task twice; give key=... (pm.DrawKey), so that it draws once"
        )
    perturber = Perturber(mechanism, columns, limit=limit, outside=outside, key=key, budget=budget)
    if budget is not None:
        period = None if columns.period in STEPS else columns.period
        order = [columns.person, period, columns.time, *columns.true]
        df = df.repartition(columns.person)
        df = df.sortWithinPartitions(*[name for name in order if name is not None])
    held = df.sparkSession.sparkContext.broadcast(perturber)

    def draw(batches: Iterator[Any]) -> Iterator[Any]:
        yield from held.value.batches(batches)

    return df.mapInArrow(draw, _schema(df.schema, perturber))


def _schema(schema: Any, perturber: Perturber) -> Any:
    from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

    dropped = perturber.columns.dropped
    fields = [field for field in schema.fields if field.name not in dropped]
    reports, reported = perturber.reports, []
    if reports.names is not None or reports.lat is None:
        first = 0 if reports.names is None else reports.names[0]
        kinds = {int: LongType(), float: DoubleType()}
        reported.append(StructField("reported", kinds.get(type(first), StringType())))
    if reports.lat is not None:
        reported += [StructField(f"reported_{name}", DoubleType()) for name in ("lat", "lon")]
    return StructType([*fields, *reported])
