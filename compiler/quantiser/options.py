"""Options of the quantiser: what it tries, and when it returns a layer to float."""

from dataclasses import dataclass

from ...errors import CompileError
from .ranges import METHODS

AUTO = "auto"
"""Tries every method of `METHODS`."""


@dataclass(frozen=True, slots=True)
class QuantiserOptions:
    """How to quantise.

    Parameters
    ----------
    method
        How ranges are chosen: a key of `ranges.METHODS`, or `auto`, which tries them all and keeps
        the one of least noise on the calibration samples.
    keep_float
        Layers, nodes or values that stay in float, or ends of names that one layer alone has.
    equalise, correct
        Whether cross-layer equalisation and bias correction are tried; each is kept where it
        lowers the noise on the calibration samples.
    rescue
        Whether layers may stay in float if the network would lose too much accuracy.
    least_layer_db
        A layer with a ratio below this may be rescued.
    least_agreement, least_end_db
        Layers are rescued while a smaller share of the samples keeps its class, or the ratio of
        signal to noise behind the last layers is below this.

    Raises
    ------
    CompileError
        For an unknown method.
    """

    method: str = "mse"
    keep_float: tuple[str, ...] = ()
    equalise: bool = True
    correct: bool = True
    rescue: bool = True
    least_layer_db: float = 20.0
    least_agreement: float = 0.98
    least_end_db: float = 15.0

    def __post_init__(self) -> None:
        if self.method not in (*METHODS, AUTO):
            raise CompileError(
                f"calibration: expected one of {', '.join((*METHODS, AUTO))}, got "
                f"`{self.method}`; choose one"
            )


DEFAULT_OPTIONS = QuantiserOptions()
