"""What became of the rows of a frame, and what their people spent."""

from __future__ import annotations

from dataclasses import dataclass, field

from panda_mdp.base.units import per


@dataclass
class FrameSummary:
    """Counts of rows, filled while a frame is perturbed; one may collect several frames.

    The counts are exact and so are people's own: read them (`print(summary)`), do not publish
    them. The repr shows none.
    """

    epsilon: float = 0.0
    unit: str = ""
    limit: float | None = None
    """How far a place or a number may be snapped, in the unit; None where records are given."""
    keyed: bool = False
    delta: float = 0.0
    phased: bool = False
    """Whether PAnDA's Phase I ran before the reports."""
    rows: int = 0
    reported: int = 0
    outside: int = 0
    """Rows without a place, beyond the snap limit, or whose record the table does not have."""
    over_budget: int = 0
    """Rows that were held back because their person's budget was spent."""
    draws: dict[bytes, int] = field(default_factory=dict)
    """Independent draws of each person in each period, under names that only the key gives."""

    def __repr__(self) -> str:
        return "FrameSummary(<hidden>; print it)"

    def add(self, other: FrameSummary) -> None:
        """Take in what became of rows that were drawn elsewhere, of other people or of none."""
        self.epsilon, self.unit, self.keyed = other.epsilon, other.unit, other.keyed
        self.delta, self.phased = other.delta, other.phased
        self.limit = other.limit
        self.rows += other.rows
        self.reported += other.reported
        self.outside += other.outside
        self.over_budget += other.over_budget
        self.draws |= other.draws

    @property
    def people(self) -> int:
        """Persons and periods with at least one report; 0 where no person's column was named."""
        return len(self.draws)

    @property
    def most(self) -> int:
        """The most independent draws of one person in one period."""
        return max(self.draws.values(), default=0)

    @property
    def spent(self) -> float:
        """The most that one person spent in one period: epsilon times draws, per unit."""
        return self.epsilon * self.most

    def lines(self) -> list[str]:
        """What happened, for people."""
        text = [f"{self.reported:,} of {self.rows:,} rows reported"]
        if self.outside:
            where = "" if self.limit is None else f" beyond {self.limit:g} {self.unit}"
            text.append(f"{self.outside:,} rows not covered{where}")
        if self.over_budget:
            text.append(f"{self.over_budget:,} rows held back: their person's budget was spent")
        each = f"epsilon {self.epsilon:g} {per(self.unit)}"
        if self.draws:
            how = "different places" if self.keyed else "rows, each an independent draw"
            text.append(
                f"{self.people:,} persons and periods; at most {self.most:,} {how}: "
                f"up to {self.spent:g} {per(self.unit)} in all ({each} each)"
            )
        else:
            text.append(
                f"every row is an independent draw of {each}: a person in n rows spends n times "
                "that; name the person's column (person=) to see and bound it"
            )
        if self.phased:
            shared = "once for each person, period and place, whose rows share it"
            text.append(
                f"Phase I was drawn {shared if self.draws else 'for every row'}; epsilon holds "
                f"for each row except with probability {self.delta:g}, and both add up over rows"
            )
        if self.limit is not None:
            text.append(
                f"rows are snapped first: two at distance d are epsilon (d + "
                f"{2 * self.limit:g} {self.unit})-indistinguishable"
            )
        if self.keyed:
            text.append(
                "the guarantee holds against whoever lacks the key, and repeats of a place show"
            )
        return text

    def __str__(self) -> str:
        return "\n".join(self.lines())
