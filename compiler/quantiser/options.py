"""Options of the quantiser: the methods that it tries, and when it returns a layer to float."""

from dataclasses import dataclass

from ...errors import CompileError
from .ranges import METHODS

AUTO = "auto"
"""The method that tries every method of `METHODS`."""


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
    rescue : bool
        Whether layers may stay in float if the network would otherwise lose too much accuracy.
    least_layer_db : float
        Layers with a signal-to-noise ratio below this may be rescued.
    least_agreement, least_end_db : float
        Layers are rescued while the share of samples that keep their class, or the signal-to-noise
        ratio after the last layers, is below this.

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
