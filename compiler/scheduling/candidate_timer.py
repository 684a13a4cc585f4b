"""Exact timing of schedule candidates, if the caller has a timing model.

The compiler itself has only an estimate. A caller may pass a function that gives the cycles of a
program. Then the candidates with the best estimates are lowered and timed. Timing takes longer than
the rest of the search, so a candidate that cannot change the choice is not timed.
"""

import math
from collections.abc import Sequence

from ...isa.configuration import Configuration
from ..accelerator.lower_bound import chained, demand_of
from ..accelerator.search import Candidate, TileSearch
from ..options import Options
from ..tensor import Kernel
from .given_schedules import Part, estimated_cycles
from .issue_order import Measure, issue, weaver_of
from .kernel_programs import KernelPrograms, Key

NEAR = 1.02
"""If the best time is within this factor of the lower bound, no other schedule is timed."""

FAR, FEW_INSTRUCTIONS, PATIENCE = 1.05, 300, 8
"""Try up to PATIENCE times as many candidates while the best is FAR times the bound or more, and
those timed have FEW_INSTRUCTIONS or fewer: timing a small kernel takes a few milliseconds."""

ASTRAY, MORE = 1.25, 4
"""Try MORE times as many candidates while the best takes ASTRAY times its estimate or more.
Estimates assume a main memory as fast as the port; a slower one may favour another candidate."""

HOPELESS = 1.05
"""A schedule is not timed if its estimate exceeds the best time by this factor."""

Times = dict[Key, tuple[int, int]]
"""Cycles and instructions of kernels that run one after the other."""

NEVER = 1 << 62
"""Cycles of kernels with schedules that do not fit: more than those of any program."""


class CandidateTimer:
    """Times kernels that run one after the other, apart from the rest of the network.

    Parameters
    ----------
    programs
        The kernels as instructions.
    configuration
        The machine that runs them; it may differ from that of `programs` in the memory port and in
        the queues.
    measure
        Gives the cycles of a program.
    times
        What is known from other segments that this machine runs; more is added.
    """

    def __init__(
        self,
        programs: KernelPrograms,
        configuration: Configuration,
        measure: Measure,
        times: Times | None = None,
    ) -> None:
        self.programs, self.configuration, self.measure = programs, configuration, measure
        self.known: Times = {}
        """Those that this timer was asked about."""
        self._times: Times = {} if times is None else times
        self.chosen: dict[object, Candidate] = {}
        self.instructions = 0
        """Instructions of all programs timed so far."""

    def choose(self, kernel: Kernel, options: Options, rival: float = math.inf) -> Candidate:
        """The fastest of the likely schedules; equal layers with equal rivals get the same.

        Parameters
        ----------
        rival
            Cycles of the kernels that this kernel could replace.

        Raises
        ------
        UnfitError
            When not even the smallest tile fits, or when no schedule that was tried fits the loops
            of the instructions.
        """
        form = self.programs.form(kernel), options, rival
        if form not in self.chosen:
            self.chosen[form] = self._fastest(kernel, options, rival)
        return self.chosen[form]

    def likely(self, kernel: Kernel, options: Options, count: int) -> list[Candidate]:
        """The `count` schedules with the least estimates; see `TileSearch.likely`."""
        return self._search(kernel, options).likely(count)

    def _search(self, kernel: Kernel, options: Options) -> TileSearch:
        key = self.programs.form(kernel), self.configuration, options.pipeline_depth
        if key not in self.programs.searches:
            search = TileSearch(kernel, self.configuration, options.pipeline_depth)
            self.programs.searches[key] = search
        return self.programs.searches[key]

    def _fastest(self, kernel: Kernel, options: Options, rival: float) -> Candidate:
        bound = demand_of(kernel, self.configuration).cycles
        few, many = options.candidates, options.candidates * PATIENCE
        search = self._search(kernel, options)
        (best,), least, before = search.likely(1), math.inf, self.instructions
        for number in range(many):
            far = least > FAR * bound and self.instructions - before < FEW_INSTRUCTIONS
            astray = number < few * MORE and least > ASTRAY * best.estimated_cycles
            if number >= few and not far and not astray:
                break
            most = HOPELESS * min(least, rival)
            likely = [] if least <= NEAR * bound else search.likely(number + 1, most + 1)[number:]
            if not likely or likely[0].estimated_cycles > most:
                break
            cycles = self.cycles((kernel, likely[0]))
            if cycles < least:
                best, least = likely[0], cycles
        for number in range(few) if least > NEAR * bound else ():
            further = search.just_in_time(number + 1, least)[number:]
            if not further or further[0].estimated_cycles >= least:
                break
            cycles = self.cycles((kernel, further[0]))
            if cycles < least:
                best, least = further[0], cycles
        if least == NEVER:
            self.programs.lowered([(kernel, best)])  # raises the reason
        return best

    def cycles(self, *parts: Part) -> int:
        """Cycles of the kernels with these schedules; equal layers are timed once.

        `NEVER` if the machine has too few loops for one of the schedules, or too short ones.
        """
        return self._timed(parts)[0]

    def instructions_of(self, *parts: Part) -> int:
        """Number of instructions of the kernels with these schedules."""
        return self._timed(parts)[1]

    def bound(self, *parts: Part) -> int:
        """Lower bound for the cycles of the kernels with any schedules."""
        return chained([demand_of(kernel, self.configuration) for kernel, _ in parts]).cycles

    def _timed(self, parts: Sequence[Part]) -> tuple[int, int]:
        if not parts:
            return 0, 0
        key = self.programs.key(parts)
        if key not in self.known:
            if key not in self._times:
                self._times[key] = self._time(parts)
            self.known[key] = self._times[key]
            self.instructions += self.known[key][1]
        return self.known[key]

    def _time(self, parts: Sequence[Part]) -> tuple[int, int]:
        found = self.programs.program(parts, weaver_of(self.measure))
        if found is None:
            return NEVER, 0
        instructions, program = found
        issued = issue(instructions, self.configuration, self.measure, program)
        return issued.cycles, len(issued.program)


def cycles_of(parts: Sequence[Part], timer: CandidateTimer | None) -> int:
    """Cycles of kernels that run one after the other; without a timer, the sum of estimates."""
    if timer is None:
        return sum(estimated_cycles(choice) for _, choice in parts)
    return timer.cycles(*parts)
