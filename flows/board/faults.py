"""Faults of a link, drawn from a seed: lost and changed bytes, pauses, resets, disconnections."""

import math
import random
import sys
from collections import Counter
from dataclasses import dataclass, fields

from ...errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Probabilities, per byte in each direction.

    Parameters
    ----------
    lose, flip
        A byte is lost, or one of its bits is flipped.
    pause
        The link pauses for `pause_s` before the byte.
    reset
        The board is reset.
    unplug
        The connection ends.
    pause_s
        Seconds of a pause.
    """

    lose: float = 0.0
    flip: float = 0.0
    pause: float = 0.0
    reset: float = 0.0
    unplug: float = 0.0
    pause_s: float = 0.02

    @staticmethod
    def parse(texts: list[str]) -> "FaultRates":
        """Read `NAME=PROBABILITY` pairs.

        Raises
        ------
        UsageError
            For an unknown fault or a number out of range.
        """
        known = [field.name for field in fields(FaultRates) if field.name != "pause_s"]
        rates: dict[str, float] = {}
        for text in texts:
            name, _, number = text.partition("=")
            try:
                rates[name] = float(number)
            except ValueError:
                rates[name] = -1.0
            if name not in known or not 0 <= rates[name] <= 1:
                raise UsageError(
                    f"`--fault {text}`: expected NAME=PROBABILITY per byte, with NAME one of "
                    f"{', '.join(known)}, for example `--fault flip=0.001`"
                )
        return FaultRates(**rates)


NO_FAULTS = FaultRates()


class Faults:
    """Draw the faults of a link; they depend on the number of bytes, not on when they arrive.

    Parameters
    ----------
    rates : FaultRates
    seed : int
        Equal seeds give equal draws.

    Attributes
    ----------
    tally : Counter
        Number of faults so far, by the name of the rate.
    """

    def __init__(self, rates: FaultRates, seed: int) -> None:
        self.rates = rates
        self.tally = Counter[str]()
        self._generator = random.Random(seed)
        self._left = {name: self._draw(name) for name in ("pause", "reset", "unplug")}

    def damage(self, data: bytes) -> bytes:
        """Return bytes without those that are lost, and with some of their bits flipped."""
        rates, draw = self.rates, self._generator.random
        if not rates.lose and not rates.flip:
            return data
        kept = bytearray()
        for byte in data:
            if draw() < rates.lose:
                self.tally["lose"] += 1
                continue
            if draw() < rates.flip:
                self.tally["flip"] += 1
                byte ^= 1 << self._generator.randrange(8)
            kept.append(byte)
        return bytes(kept)

    def happens(self, name: str, count: int) -> bool:
        """Whether a pause, reset or unplugging happens within the next bytes."""
        self._left[name] -= count
        happens = count > 0 and self._left[name] < 0
        if happens:
            self.tally[name] += 1
            self._left[name] = self._draw(name)
        return happens

    def _draw(self, name: str) -> int:
        """Return the number of bytes up to the next fault, which has a geometric distribution."""
        rate = getattr(self.rates, name)
        if not 0 < rate < 1:
            return 0 if rate else sys.maxsize
        return int(math.log(1 - self._generator.random()) / math.log(1 - rate))
