"""Exact timing of a program: starts and retirements of instructions, and counter values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from ...errors import ToolError
from ...isa.configuration import Configuration
from ...isa.instructions import Instruction, Unit, peers
from ...isa.memory_model import MemoryModel
from ...isa.registers import counter_registers, unit_counters
from ...isa.tokens import synthesise_tokens
from ..toolchain import progress
from .links import Links
from .native import TimedProgram, library
from .shared_bus import model_of
from .transfers import COLUMNS
from .weaving import weave

DEEP = 64
"""Queue depth at which a queue is hardly ever full."""

QUEUE_GAIN = 0.0005
"""Smallest gain of deeper queues, as a part of the cycles, for which a program is ordered anew."""


@dataclass(frozen=True)
class Timing:
    """Times of all events, in cycles since the start.

    Parameters
    ----------
    program, configuration, memory
        The timed program, its machine and its main memory.
    cycles
        From start to done, as the CYCLES registers count them.
    times
        int64[instructions, columns], by `COLUMNS`; -1 if an instruction has no such time.
    links
        Dependences between instructions.
    """

    program: Sequence[Instruction] = field(repr=False)
    configuration: Configuration
    memory: MemoryModel
    cycles: int
    times: np.ndarray = field(repr=False)

    def column(self, name: str) -> np.ndarray:
        """One column of `times`, int64[instructions]."""
        return self.times[:, COLUMNS.index(name)]

    @cached_property
    def links(self) -> Links:
        """The program's fixed graph."""
        return Links.of(self.program, self.configuration.token_limit)

    @property
    def spans(self) -> np.ndarray:
        """Start and retirement of every instruction, int64[instructions, 2]; -1 for HALT."""
        return np.stack([self.column("start"), self.column("retired")], axis=1)

    @cached_property
    def counters(self) -> dict[str, int]:
        """Every performance counter that the machine has, as the RTL counts, by register name.

        `FETCHED` is one of them; the cycles, which are `cycles`, are not.
        """
        counters = {}
        kept = self.configuration.counters
        for unit in Unit:
            values = self._unit_counters(unit)
            for name in unit_counters(kept):
                counters[f"{unit.name}_{name.upper()}"] = values[name]
        if "FETCHED" in counter_registers(kept):
            counters["FETCHED"] = int(np.count_nonzero(self.links.unit >= 0))
        return counters

    def _unit_counters(self, unit: Unit) -> dict[str, int]:
        links = self.links
        mine = links.of_unit(unit)
        retired = self.column("retired")[mine]
        before = np.concatenate([[-1], retired[:-1]])[: mine.size]
        works = mine[links.works[mine]]
        ends = self.column("retired")[works]
        begins = self.column("start")[works]
        if unit is Unit.GEMM:
            # The first tile is fetched as soon as tokens and the tile walker are there.
            tiles = self.column("last")[works] - links.rows[works] + 1
            begins = np.maximum(
                self.column("ready")[works], np.concatenate([[-1], tiles[:-1]])[: works.size] + 1
            )
        occupied = np.concatenate([[-1], ends[:-1]])[: works.size]
        busy = np.maximum(0, ends - np.maximum(begins, occupied))
        could = np.maximum(
            np.maximum(self.column("complete")[mine], self.column("start")[mine] + 1), before + 1
        )
        values = {
            "instructions": mine.size,
            "busy": int(busy.sum()),
            "wait_signal": int((retired - could).sum()),
            "memory": int(self.column("starved")[mine].sum()),
            "bytes": int(links.moved_bytes[mine].sum()),
        }
        idle = np.maximum(self.column("valid")[mine], before + 1)
        for bit, peer in enumerate(peers(unit)):
            giver = links.givers[mine, peer]
            there = np.where(giver >= 0, self.column("retired")[giver] + 1, 0)
            values[f"wait{bit}"] = int(np.maximum(0, there - idle).sum())
        return values


class Timer:
    """A program that can be timed under any memory and any machine that runs the same words.

    It uses the compiled model, or the Python model if there is no compiler.

    Parameters
    ----------
    program
        A program that the checker accepts.
    configuration
        The machine of the program.
    words
        The encoded program, if already available.
    """

    def __init__(
        self,
        program: Sequence[Instruction],
        configuration: Configuration,
        words: bytes | None = None,
    ) -> None:
        self.program, self.configuration = program, configuration
        self._native = _native(words or program, configuration)

    def run(self, memory: MemoryModel | None = None) -> Timing:
        """Time every instruction."""
        memory = memory or MemoryModel()
        if self._native is not None:
            cycles, times = self._native.run(memory)
        else:
            cycles, times = model_of(self.program, self.configuration, memory).run()
        return Timing(self.program, self.configuration, memory, cycles, times)


def _native(
    program: Sequence[Instruction] | bytes, configuration: Configuration
) -> TimedProgram | None:
    return TimedProgram(program, configuration) if has_native_model() else None


def has_native_model() -> bool:
    """Whether the compiled model is available; if not, one warning on stderr gives the reason."""
    try:
        library()
    except ToolError as problem:
        _say_once(str(problem).partition("\n")[0])
        return False
    return True


@cache
def _say_once(reason: str) -> None:
    progress(f"{reason}; timing in Python: the same cycles, hundreds of times slower", "sim")


class ExactMeasure:
    """Cycles of a program, by which the compiler chooses schedules.

    The compiled model and the Python model give the same cycles; the Python model is the fallback.

    Parameters
    ----------
    memory
        Main memory; the default model if None.
    """

    def __init__(self, memory: MemoryModel | None = None) -> None:
        self.memory = memory or MemoryModel()

    @cached_property
    def _native(self) -> bool:
        """Whether the compiled model is used; it is only compiled when a program is timed."""
        return has_native_model()

    @property
    def name(self) -> str:
        """The model that is used, for reports."""
        return "native timing model" if self._native else "Python timing model"

    def weave(
        self, program: Sequence[Instruction], configuration: Configuration
    ) -> tuple[Instruction, ...]:
        """Order all conflicts of a program by tokens; the same tokens with and without a model."""
        return (weave if self._native else synthesise_tokens)(program, configuration)

    def spans(
        self, program: Sequence[Instruction], configuration: Configuration
    ) -> list[tuple[int, ...]]:
        """Start, first and last cycle of work, and retirement of all but SYNCs and HALT."""
        timing = time_program(program, configuration, self.memory)
        works = [index for index, one in enumerate(program[:-1]) if not one.only_tokens]
        columns = [COLUMNS.index(name) for name in ("start", "first", "last", "retired")]
        return list(map(tuple, timing.times[np.ix_(works, columns)].tolist()))

    def __call__(
        self, program: Sequence[Instruction], configuration: Configuration
    ) -> tuple[int, Sequence[int] | None]:
        """Time a program.

        Returns
        -------
        cycles
            From start to done.
        starts
            The cycle in which each instruction would start if no queue were ever full; None if that
            would save less than `QUEUE_GAIN`.
        """
        deep = _with_deep_queues(configuration)
        if self._native:
            timed = TimedProgram(program, configuration)
            cycles, _ = timed.run(self.memory)
            least, times = timed.run(self.memory, deep)
        else:
            cycles, _ = model_of(program, configuration, self.memory).run()
            least, times = model_of(program, deep, self.memory).run()
        if cycles <= least * (1 + QUEUE_GAIN):
            return cycles, None
        return cycles, times[:, COLUMNS.index("start")].tolist()


@cache
def _with_deep_queues(configuration: Configuration) -> Configuration:
    return configuration.replace(queue_depth=DEEP)


def time_program(
    program: Sequence[Instruction],
    configuration: Configuration,
    memory: MemoryModel | None = None,
) -> Timing:
    """The exact time of a program that the checker accepts.

    Stalls of `memory` are ignored, because the memory next to the RTL draws them at random in each
    cycle.
    """
    return Timer(program, configuration).run(memory)
