"""The residual stream in 16 bits: integers in ACC, of which norms and products read int8."""

import numpy as np
import numpy.typing as npt

from ..numbers import quantise_output
from ..row_statistics import wide


def residual_add(
    stream: npt.NDArray[np.int32], totals: npt.ArrayLike, scale: npt.ArrayLike
) -> npt.NDArray[np.int32]:
    """Add to the stream what a layer computed, without rounding it to a byte.

    Parameters
    ----------
    stream : int32[..., channels]
    totals : int32[..., channels]
        Accumulators of the layer, bias included.
    scale : float32[channels]
        The scale of the accumulators over 512 times that of the stream.

    Notes
    -----
    1. `wide(totals, scale)`: ACC to ACC.
    2. The sum: two steps of `a`, ACC to ACC. Even 2**14 sums of 18 bits do not reach 32 bits.
    """
    return stream + wide(totals, scale)


def residual_bytes(
    stream: npt.NDArray[np.int32], stream_scale: float, y_scale: float, y_zero_point: int
) -> npt.NDArray[np.int8]:
    """Round the stream to int8, for a norm or a product.

    Notes
    -----
    1. `requantise(stream) + zero point`: ACC to ACT.
    """
    return quantise_output(stream, stream_scale / y_scale, y_zero_point)
