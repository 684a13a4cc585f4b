"""Outcomes of faults, and tables and texts of a mutation score."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from rich.console import Console
from rich.table import Table


class MutantStatus(StrEnum):
    """Verdict on a fault."""

    KILLED = "killed"
    EQUAL = "proved equal"
    ARGUED = "argued equal"
    SURVIVED = "survived"
    UNTRIED = "not tried"


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """One fault and its verdict.

    Parameters
    ----------
    number, part, place
        Its number, the part of the design, and its place and kind.
    source
        The source line that it comes from, `file:line: text`, or empty.
    verdict, by
        The verdict, and its evidence: a test and its observation, or an argument.
    """

    number: int
    part: str
    place: str
    source: str
    verdict: MutantStatus
    by: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """All outcomes of one target.

    Parameters
    ----------
    target
        Target of the faults.
    outcomes
        In the order of their numbers.
    seconds
        Time of the whole run.
    """

    target: str
    outcomes: tuple[FaultOutcome, ...]
    seconds: float

    def count(self, *verdicts: MutantStatus) -> int:
        """Faults with one of these verdicts."""
        return sum(outcome.verdict in verdicts for outcome in self.outcomes)

    @property
    def share(self) -> float:
        """Share of killed faults among those tried, without equivalent ones."""
        killed = self.count(MutantStatus.KILLED)
        return killed / max(1, killed + self.count(MutantStatus.SURVIVED))

    @property
    def strict_share(self) -> float:
        """The same, but faults that are only argued to be equivalent count as survivors."""
        killed = self.count(MutantStatus.KILLED)
        return killed / max(1, killed + self.count(MutantStatus.SURVIVED, MutantStatus.ARGUED))

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "target": self.target,
            "faults": len(self.outcomes),
            **{verdict.name.lower(): self.count(verdict) for verdict in MutantStatus},
            "score": self.share,
            "score_without_arguments": self.strict_share,
            "seconds": self.seconds,
            "outcomes": [asdict(outcome) for outcome in self.outcomes],
        }


def print_score(score: Score) -> None:
    """Print the table by part, the killers, and every surviving fault on stdout."""
    console = Console(width=120)
    table = Table(title=f"Mutation score of {score.target}")
    table.add_column("part")
    for verdict in MutantStatus:
        table.add_column(verdict.value, justify="right")
    parts = sorted({outcome.part for outcome in score.outcomes})
    for part in parts:
        counts = Counter(o.verdict for o in score.outcomes if o.part == part)
        table.add_row(part, *(str(counts[verdict] or "") for verdict in MutantStatus))
    table.add_section()
    table.add_row("all", *(str(score.count(verdict)) for verdict in MutantStatus))
    console.print(table)
    killers = Counter(o.by for o in score.outcomes if o.verdict is MutantStatus.KILLED)
    listed = ", ".join(f"{by} {count}" for by, count in killers.most_common(12))
    print(f"killed by: {listed}")
    for verdict in (MutantStatus.EQUAL, MutantStatus.ARGUED, MutantStatus.SURVIVED):
        _print_list(verdict, [o for o in score.outcomes if o.verdict is verdict])
    seen = score.count(MutantStatus.KILLED, MutantStatus.SURVIVED)
    print(
        f"score: {score.share:.1%} of {seen} faults that can be seen "
        f"({score.strict_share:.1%} with the argued ones), {len(score.outcomes)} "
        f"faults in {score.seconds:.0f} s"
    )


def _print_list(verdict: MutantStatus, outcomes: Sequence[FaultOutcome]) -> None:
    if not outcomes:
        return
    print(f"{verdict.value}:")
    for outcome in outcomes:
        print(f"  {outcome.number}: {outcome.place}")
        for text in (outcome.source, outcome.by):
            if text:
                print(f"      {text}")


def progress(text: str) -> None:
    """Print progress on stderr."""
    print(f"mutation: {text}", file=sys.stderr, flush=True)
