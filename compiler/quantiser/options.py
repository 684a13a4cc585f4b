"""Options of the quantiser: the methods that it tries, and when it returns a layer to float."""

import math
from dataclasses import dataclass

from ...argument_types import checked_class
from ...errors import CompileError
from .budget import EFFORTS, Clock, TimeBudget, WorkBudget
from .ranges import METHODS

AUTO = "auto"
"""The method that tries every method of `METHODS`."""


@checked_class("QuantiserOptions")
@dataclass(frozen=True, slots=True)
class QuantiserOptions:
    """Options of the quantiser.

    Parameters
    ----------
    method : str
        Method that chooses ranges: a key of `ranges.METHODS`, or `auto`, which tries them all and
        keeps the one with the least noise on the calibration samples.
    keep_float : tuple of str
        Layers, nodes or values that stay in float, by name or by the unique end of a layer's name.
    equalise, correct : bool
        Whether to try cross-layer equalisation and bias correction; each is kept only if it lowers
        the noise on the calibration samples.
    effort : str or float
        A key of `EFFORTS`, whose result does not depend on the speed of the machine; or seconds, in
        which the search does as much as it can.
    rescue : bool
        Whether layers may stay in float if the network would otherwise lose too much accuracy.
    least_layer_db : float
        Layers with a signal-to-noise ratio below this may be rescued.
    least_agreement, least_end_db : float
        Layers are rescued while the share of samples that keep their class, or the signal-to-noise
        ratio after the last layers, is below this.

    weight_bits : int
        8, or 4 for weights of 4 bits where the network can bear them.
    weight_db : float
        Signal-to-noise ratio after the last layers that 4-bit weights must leave.

    Raises
    ------
    CompileError
        For an unknown method or effort, or other bits.
    """

    method: str = "mse"
    keep_float: tuple[str, ...] = ()
    equalise: bool = True
    correct: bool = True
    effort: str | float = "normal"
    rescue: bool = True
    least_layer_db: float = 20.0
    least_agreement: float = 0.98
    least_end_db: float = 15.0
    weight_bits: int = 8
    weight_db: float = 20.0

    def __post_init__(self) -> None:
        if self.method not in (*METHODS, AUTO):
            raise CompileError(
                f"calibration: expected one of {', '.join((*METHODS, AUTO))}, got "
                f"`{self.method}`; choose one"
            )
        if self.weight_bits not in (4, 8):
            raise CompileError(
                f"quantisation: expected weights of 4 or 8 bits, got {self.weight_bits}; choose one"
            )
        seconds = isinstance(self.effort, (int, float)) and 0 < self.effort < math.inf
        if not seconds and self.effort not in EFFORTS:
            raise CompileError(
                f"quantisation: expected an effort of {', '.join(EFFORTS)} or seconds above 0, got "
                f"`{self.effort}`; choose one"
            )

    def budget(self, clock: Clock) -> WorkBudget | TimeBudget:
        """Return the budget of a search that begins now."""
        if isinstance(self.effort, str):
            return EFFORTS[self.effort]
        return TimeBudget(self.effort, clock)


DEFAULT_OPTIONS = QuantiserOptions()
