"""LOAD's and STORE's issue side in the timing model: commands into runs, runs into bursts."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...isa.configuration import Configuration
from ...isa.instructions import Instruction, Load, Store, Unit
from ...isa.instructions.load import DESTINATIONS
from ...isa.pipeline import QUEUED_BURSTS

NEVER = 1 << 62


COLUMNS = (
    "word",
    "entered",
    "valid",
    "ready",
    "start",
    "first",
    "last",
    "complete",
    "retired",
    "starved",
)
"""Columns of an instruction's times; `Entry` explains each one."""


class Entry:
    """Times of one instruction, in cycles; -1 if not yet known.

    Parameters
    ----------
    instruction
        The instruction.
    unit, place
        The unit that executes it, and the number of earlier instructions of that unit.
    word, entered
        Cycles in which FETCH had its word, and in which its unit's queue took it.
    """

    def __init__(
        self, instruction: Instruction, unit: Unit, place: int, word: int, entered: int
    ) -> None:
        self.instruction = instruction
        self.unit, self.place = unit, place
        self.word, self.entered = word, entered
        self.waits: list[Entry] = []
        """Per token that it takes, the instruction that gives it."""
        self.rooms: list[Entry] = []
        """Per token that it gives to a full counter, the instruction that takes one first."""
        self.valid = self.ready = self.start = -1
        """Cycles in which it reaches the head of its queue, has its tokens, and starts."""
        self.first = self.last = -1
        """Its work: first and last row of GEMM, step of VECTOR, piece of LOAD or STORE."""
        self.complete = self.retired = -1
        """Cycle in which it is complete, and in which it retires (token counters may be full)."""
        self.starved = 0
        """Cycles in which LOAD or STORE waits for main memory."""

    def times(self) -> list[int]:
        """Everything by `COLUMNS`."""
        return [getattr(self, column) for column in COLUMNS]


def fill_beat_bytes(configuration: Configuration) -> int:
    """Bytes of a beat in a fill, for the counter that finds the ends of beats."""
    rows = (configuration.row_bytes(memory) for memory in DESTINATIONS)
    return max(*rows, configuration.bus_bytes)


def cut_runs(instruction: Load | Store, configuration: Configuration) -> Iterator[list[list[bool]]]:
    """Cut every run into bursts, and every burst into pieces.

    A piece lies in one row and one beat; of a tile to unpack, the row is a packed one, and of a
    transposed run, a byte. A fill is one burst per run; its beats, which are not read, start at the
    first byte of the run.

    Yields
    ------
    bursts
        Bursts of a run. A burst lists its pieces, each as whether it is the last of its beat.
    """
    memory = instruction.destination if isinstance(instruction, Load) else instruction.source
    row = configuration.row_bytes(memory)
    fill = isinstance(instruction, Load) and instruction.fill
    if isinstance(instruction, Load) and instruction.unpack:
        row = configuration.packed_row_bytes
    if isinstance(instruction, Load) and instruction.transpose:
        row = 1
    beat = fill_beat_bytes(configuration) if fill else configuration.bus_bytes
    burst = NEVER if fill else configuration.burst_bytes
    locals_, remotes = instruction.addresses("local"), instruction.addresses("memory")
    for local, remote in zip(locals_.tolist(), remotes.tolist(), strict=True):
        bursts, left = [], instruction.length
        while left:
            count = min(left, burst - remote % burst)
            left -= count
            pieces = []
            while count:
                to_beat = beat - remote % beat
                size = min(count, row - local % row, to_beat)
                count -= size
                local, remote = local + size, remote + size
                pieces.append(size == to_beat or not count)
            bursts.append(pieces)
        yield bursts


@dataclass(slots=True)
class Burst:
    """A burst after the splitting of its run."""

    command: Entry
    queued: int
    """Cycle in which it entered the queue in front of the port."""
    pieces: list[bool]
    last: bool
    """True for the last burst of its command."""

    @property
    def fill(self) -> bool:
        """Whether it is written without a read."""
        return isinstance(self.command.instruction, Load) and self.command.instruction.fill


class Issuer:
    """The loop nest, the register that splits a run, and the queue in front of the port.

    A run leaves the nest when the last burst of the previous run leaves the register. A burst
    leaves the register when the queue of two bursts has room.

    Parameters
    ----------
    start
        Starts the next command.
    send
        Sends the burst at the head of the queue: sets its time in `sent`.
    """

    def __init__(
        self,
        configuration: Configuration,
        start: Callable[[Entry], int],
        send: Callable[[], None],
    ) -> None:
        self.configuration, self.start, self.send = configuration, start, send
        self.commands: list[Entry] = []
        """All commands that were dispatched."""
        self.sent: list[int] = []
        """Per burst, when it left the queue."""
        self.planned: deque[Burst] = deque()
        """Bursts whose entry into the queue is known."""
        self.queued = self.left_nest = -1
        """Cycles in which the last burst entered the queue, and the last run left the nest."""
        self.command = -1
        self.runs: deque[list[list[bool]]] = deque()
        self.bursts: deque[list[bool]] = deque()

    def free(self, command: Entry) -> int:
        """First cycle in which the nest takes a command: after the last run has left it."""
        while self.commands[self.command + 1] is not command or self.runs:
            self._step()
        return self.left_nest + 1

    def head(self) -> Burst | None:
        """The next burst to send; None if all commands so far are done."""
        while not self.planned:
            if not self.bursts and not self.runs and self.command + 1 == len(self.commands):
                return None
            self._step()
        return self.planned[0]

    def sends(self, burst: Burst, cycle: int) -> None:
        """Record that the burst at the head is sent."""
        assert self.planned.popleft() is burst
        self.sent.append(cycle)

    def _step(self) -> None:
        """Let the next run leave the nest, or the next burst the register."""
        if self.bursts:
            number = len(self.sent) + len(self.planned)
            while len(self.sent) <= number - QUEUED_BURSTS:
                self.send()
            room = self.sent[number - QUEUED_BURSTS] + 1 if number >= QUEUED_BURSTS else 0
            self.queued = max(self.queued + 1, self.left_nest + 1, room)
            command, pieces = self.commands[self.command], self.bursts.popleft()
            last = not self.bursts and not self.runs
            self.planned.append(Burst(command, self.queued, pieces, last))
            return
        accepted = -1
        if not self.runs:
            command = self.commands[self.command + 1]
            accepted = self.start(command)
            self.command += 1
            assert isinstance(command.instruction, Load | Store)
            self.runs.extend(cut_runs(command.instruction, self.configuration))
        self.bursts.extend(self.runs.popleft())
        self.left_nest = max(accepted + 1, self.queued)


class Cutter:
    """The two registers that bursts pass, piece by piece, after the queue of sent bursts."""

    def __init__(self) -> None:
        self.loaded = self.taken = -1
        """Cycles in which the last piece entered the output register and was taken."""

    def pieces(self, sent: int, ends: list[bool]) -> Iterator[tuple[int, bool]]:
        """Per piece of a burst, the first cycle in which it can be taken; then set `taken`."""
        held = max(sent + 1, self.loaded)
        for number, ends_beat in enumerate(ends):
            self.loaded = max(held + 1 if not number else self.loaded + 1, self.taken)
            yield self.loaded + 1, ends_beat
