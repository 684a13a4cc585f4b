"""Options of the quantiser: the methods that it tries, and when it returns a layer to float."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ...errors import CompileError
from .ranges import METHODS

AUTO = "auto"
"""The method that tries every method of `METHODS`."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Work of a search, in multiplications; it does not depend on the machine.

    Attributes
    ----------
    comparison_macs : float
        Greatest cost of one run of the network over the samples that compare candidates.
    rescue_macs : float
        Greatest total cost of candidates with layers in float.
    correction_macs : float
        Greatest cost of correcting biases; the best candidate is corrected in any case.
    """

    comparison_macs: float
    rescue_macs: float
    correction_macs: float


EFFORTS: Mapping[str, Budget] = MappingProxyType(
    {
        "quick": Budget(4e9, 0, 0),
        "normal": Budget(32e9, 100e9, 64e9),
        "thorough": Budget(1e12, 2e12, 1e12),
    }
)
"""Name of an effort -> its budget."""


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
    effort : str
        A key of `EFFORTS`. The result depends on it, but not on the speed of the machine.
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
        For an unknown method or effort.
    """

    method: str = "mse"
    keep_float: tuple[str, ...] = ()
    equalise: bool = True
    correct: bool = True
    effort: str = "normal"
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
        if self.effort not in EFFORTS:
            raise CompileError(
                f"quantisation: expected an effort of {', '.join(EFFORTS)}, got `{self.effort}`; "
                "choose one"
            )

    @property
    def budget(self) -> Budget:
        """The search budget that the chosen effort allows."""
        return EFFORTS[self.effort]


DEFAULT_OPTIONS = QuantiserOptions()
