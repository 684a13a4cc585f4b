"""Compare what a board stored with the results of `sim`, for the first run of each program and
for later ones now and then.

A board can be wrong without an error: its clock may be too fast for it, its supply too weak, its
bitstream old. The programs and inputs of the user are checked, since those are the ones that count.
"""

import time
from collections.abc import Sequence
from weakref import WeakSet

import numpy as np

from ..errors import DeviceError
from ..isa.configuration import Configuration
from ..isa.memory_model import MemoryModel
from .device import LoadedProgram
from .devices import SimDevice

SHARE = 0.05
"""Share of a board's time that checks may take, beside the first one of each program."""


class WrongResultError(DeviceError):
    """A device gave another result than its definition."""


class SpotChecks:
    """The checks of a board.

    Parameters
    ----------
    configuration : Configuration
    name : str
        Of the device, for messages.

    Attributes
    ----------
    count : int
        Checks so far.
    """

    def __init__(self, configuration: Configuration, name: str) -> None:
        self.name = name
        self.count = 0
        self._sim = SimDevice(configuration, MemoryModel())
        self._seen = WeakSet[LoadedProgram]()
        self._checking_s = self._running_s = 0.0

    def is_due(self, program: LoadedProgram) -> bool:
        """Whether the last run of a program is to be checked."""
        return program not in self._seen or self._checking_s < SHARE * self._running_s

    def add_run(self, seconds: float) -> None:
        """Count the time of a run, which pays for later checks."""
        self._running_s += seconds

    def check(
        self,
        program: LoadedProgram,
        before: np.ndarray,
        after: np.ndarray,
        stored: Sequence[tuple[int, int]],
    ) -> None:
        """Compare the data window after a run with that of `sim`.

        Parameters
        ----------
        before : ndarray
            uint8[bytes]: the data window before the run, which this changes.
        after : ndarray
            uint8[bytes]: the data window after the run on the board.
        stored
            Ranges that the program stores, (start, end).

        Raises
        ------
        WrongResultError
            If a byte differs.
        """
        started = time.monotonic()
        expected = self._sim.run(program.program, before).dram
        self.count += 1
        self._seen.add(program)
        self._checking_s += time.monotonic() - started
        wrong = np.flatnonzero(expected != after)
        if wrong.size:
            first, total = wrong[0], sum(end - start for start, end in stored)
            raise WrongResultError(
                f"device `{self.name}`: wrong results, {wrong.size:,} of {total:,} bytes that a "
                f"program stored differ from those of `sim`, first byte {first:#x} of the data "
                f"window (expected {expected[first]:#04x}, got {after[first]:#04x}); do not use "
                "what it computed before: build the bitstream for a lower `--clock` and load it "
                "again, or check the board's power supply"
            )
