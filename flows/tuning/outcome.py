"""The outcome of a trial: a candidate that was built, checked and timed, or the reason why not."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ...compiler.cpu.kernels.choices import Choice


class TrialVerdict(StrEnum):
    """Result of a trial.

    `illegal`: the schedule's own checks refuse it. `wrong result`: it differs from the definition.
    `timeout`: it ended, but took many times as long as the incumbent. `hang`: it did not end, and
    its process was killed. `crash`: it ended its process. `tool error`: it could not be built.
    `lost machine`: its process was taken away; the only verdict that is tried again.
    """

    OK = "ok"
    ILLEGAL = "illegal"
    WRONG = "wrong result"
    TIMEOUT = "timeout"
    HANG = "hang"
    CRASH = "crash"
    TOOL_ERROR = "tool error"
    LOST = "lost machine"


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a candidate, measured in turns with the default and the incumbent.

    Parameters
    ----------
    ratio
        The candidate's time over the default's: the median over all turns.
    to_incumbent
        The same over the incumbent's.
    median_s, spread_s, default_s
        Seconds of a call: the candidate's median, half of the range between its quartiles, and the
        default's median.
    turns
        Number of turns; fewer if the candidate could not win.
    """

    ratio: float
    to_incumbent: float
    median_s: float
    spread_s: float
    default_s: float
    turns: int

    @property
    def noise(self) -> float:
        """Spread of the candidate, relative to its median."""
        return self.spread_s / self.median_s if self.median_s else 0.0


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The outcome of one trial.

    Parameters
    ----------
    text
        The reason of any verdict but `ok`.
    program
        Hash of the LLVM code; empty if it was not built. Candidates with equal hashes are one.
    steps
        The steps of its schedule.
    """

    choice: Choice
    verdict: TrialVerdict
    text: str = ""
    program: str = ""
    steps: str = ""
    times: Times | None = None

    @property
    def ratio(self) -> float | None:
        """Time over the default's; None without a time."""
        return self.times.ratio if self.times else None

    def figures(self) -> Mapping[str, Any]:
        """Return it as JSON values, without its choice."""
        times = asdict(self.times) if self.times else {}
        return {"verdict": str(self.verdict), "steps": self.steps, **times}
