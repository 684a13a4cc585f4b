"""FETCH in the timing model: cycles of its burst requests and of its complete words."""

from ...isa.configuration import Configuration
from ...isa.durations import fetch_beats
from ...isa.encoding import word_bytes
from ...isa.pipeline import FETCH_BURSTS, FETCH_REQUEST_CYCLES, FETCH_START_CYCLES
from .transfers import NEVER


class Fetch:
    """Requests whole aligned bursts while its buffer has room, and assembles words.

    Parameters
    ----------
    words
        Instructions of the program.
    """

    def __init__(self, configuration: Configuration, words: int) -> None:
        self.word_beats = word_bytes(configuration) // configuration.bus_bytes
        self.burst_beats, self.buffer_beats = fetch_beats(configuration)
        self.left = words * self.word_beats
        """Beats not yet requested."""
        self.requested = 0
        self.granted: list[int] = []
        """Per burst, the cycle in which the arbiter took its request."""
        self.ends: list[int] = []
        """Per burst, when its last beat arrived."""
        self.arrived: list[int] = []
        """Per beat, when it arrived."""
        self.shifted: list[int] = []
        """Per beat, when it left the buffer."""

    def request(self) -> int:
        """Cycle in which the next request reaches the arbiter; NEVER while it is not known."""
        needed = self.requested - (self.buffer_beats - self.burst_beats)
        if not self.left or needed > len(self.shifted):
            return NEVER
        ready = self.granted[-1] if self.granted else FETCH_START_CYCLES
        ended = len(self.granted) - FETCH_BURSTS
        if ended >= len(self.ends):
            return NEVER
        if ended >= 0:
            ready = max(ready, self.ends[ended])
        if needed > 0:
            ready = max(ready, self.shifted[needed - 1])
        return ready + FETCH_REQUEST_CYCLES

    def grant(self, cycle: int) -> int:
        """Take the request; return its number of beats."""
        beats = min(self.left, self.burst_beats)
        self.left -= beats
        self.requested += beats
        self.granted.append(cycle)
        return beats

    def shift(self, dispatched: int) -> None:
        """Move the next beat, which has arrived, into the word.

        Parameters
        ----------
        dispatched
            Cycle in which the previous word was dispatched.
        """
        number = len(self.shifted)
        cycle = max(self.arrived[number] + 1, self.shifted[-1] + 1 if number else 0)
        self.shifted.append(max(cycle, dispatched + 1 if number % self.word_beats == 0 else 0))
