"""One step of LSTM and GRU cells: int32 accumulators to an int8 output and a state of 16 bits.

Gates are fractions of 255, less 128, in ACT. A state is a wide result in ACC that spans
`+-state_span`. The scale of an accumulator is that of the products, so the weights of input and
state are quantised together. All channels' scales are float32[channels].
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ...errors import IsaError
from ..numbers import quantise_output
from ..row_statistics import wide
from .activations import sigmoid
from .steps import PRODUCT, STATE_PRODUCT, Table, look_up, make_table, sum_of_products

SIGMOID_SPAN, TANH_SPAN = 8.0, 4.0
"""Magnitudes that the tables cover: beyond them, the functions are constant to 8 and 11 bits."""

PART_SPAN = 16.0
"""Magnitude of the two parts of a GRU's candidate before they are added."""

MIN_STATE_SPAN = 4.0
"""So that a candidate of 1 fits an entry of 16 bits."""

GATE_ONE = 255
TANH_ONE = 32767

_SPAN = 256.0
"""Magnitude of `totals * scale` at which a wide result saturates."""

_WIDE = 1 << 17
"""Magnitude at which a wide result saturates."""


def lstm_cell(
    totals: npt.NDArray[np.int32],
    scales: npt.NDArray[np.float32],
    state: npt.NDArray[np.int32],
    state_span: float,
    output_scale: float,
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int32]]:
    """Step an LSTM: `c' = f c + i g`, `h = o tanh(c')`.

    Parameters
    ----------
    totals : int32[..., 4, channels]
        Accumulators of the gates i, o, f and of the candidate g (ONNX's order), biases included.
    scales : float32[4, channels]
        Of the accumulators.
    state : int32[..., channels]
        c, at first 0.
    state_span : float
        Magnitude at which c saturates, at least 4.
    output_scale : float
        Of h.

    Returns
    -------
    int8[..., channels], int32[..., channels]
        h, with a zero point of 0, and c'.

    Notes
    -----
    1. i, o, f = `table[wide(totals, scale)]`: ACC to ACT, three passes.
    2. g likewise: ACC to ACC.
    3. c' = `wide(c * f + g * i)`: two steps of `STATE_PRODUCT`, ACC and ACT to ACC.
    4. t = `table[wide(c', scale)]`: ACC to ACC.
    5. `h = requantise(t * o)`: `PRODUCT`, ACC and ACT to ACT.
    """
    i, o, f = (_gate(totals[..., k, :], scales[k]) for k in range(3))
    g = look_up(_spanned(totals[..., 3, :], scales[3], TANH_SPAN), _candidate_table(state_span))
    state = _mixed([(state, f), (g, i)])
    squashed = look_up(
        _spanned(state, state_span / _WIDE, TANH_SPAN),
        make_table(np.tanh, TANH_SPAN, 1 / TANH_ONE),
    )
    product = sum_of_products(PRODUCT, [(squashed, o)], 128)
    return quantise_output(product, 1 / (TANH_ONE * GATE_ONE * output_scale), 0), state


def gru_cell(
    totals: npt.NDArray[np.int32],
    scales: npt.NDArray[np.float32],
    state: npt.NDArray[np.int32],
    output_scale: float,
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int32]]:
    """Step a GRU: `h' = (1 - z) n + z h` with `n = tanh(p + r q)`.

    The reset gate r multiplies the product q of the state (`linear_before_reset` in ONNX, as
    PyTorch and Keras have it).

    Parameters
    ----------
    totals : int32[..., 4, channels]
        Accumulators of z, r, of p (input) and q (state), biases included.
    scales : float32[4, channels]
        Of the accumulators.
    state : int32[..., channels]
        h, at first 0.
    output_scale : float
        Of h as int8.

    Returns
    -------
    int8[..., channels], int32[..., channels]
        h', with a zero point of 0, and h' as a state.

    Notes
    -----
    1. z, `1 - z` and r = `table[wide(totals, scale)]`: ACC to ACT, three passes.
    2. p, q = `wide(totals, scale)`: ACC to ACC, two passes.
    3. `n = table[wide(p + q * r)]`: two steps of `STATE_PRODUCT`, ACC and ACT to ACC.
    4. `h' = wide(n * (1 - z) + h * z)` likewise.
    5. `requantise(h')`: ACC to ACT.
    """
    z, r = (_gate(totals[..., k, :], scales[k]) for k in range(2))
    p, q = (_spanned(totals[..., k, :], scales[k], PART_SPAN) for k in (2, 3))
    total = _mixed([(p, GATE_ONE - 128), (q, r)], PART_SPAN / TANH_SPAN)
    n = look_up(total, _candidate_table(MIN_STATE_SPAN))
    state = _mixed([(n, -1 - z), (state, z)])
    return quantise_output(state, MIN_STATE_SPAN / _WIDE / output_scale, 0), state


def _spanned(totals: npt.ArrayLike, scale: npt.ArrayLike, span: float) -> npt.NDArray[np.int32]:
    """Scale totals to a wide result that saturates at `span`."""
    return wide(totals, np.asarray(scale, np.float32) * np.float32(_SPAN / span))


def _gate(totals: npt.ArrayLike, scale: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Sigmoid; the table of `-1 - gate` gives exactly 1 less the gate."""
    table = make_table(lambda x: GATE_ONE * sigmoid(x) - 128, SIGMOID_SPAN, 1)
    return look_up(_spanned(totals, scale, SIGMOID_SPAN), table)


def _candidate_table(state_span: float) -> Table:
    """Build the table of tanh in units of a state."""
    if state_span < MIN_STATE_SPAN:
        raise IsaError(f"cell: `state_span` is {state_span}; expected at least {MIN_STATE_SPAN}")
    return make_table(np.tanh, TANH_SPAN, state_span / _WIDE)


def _mixed(
    pairs: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]], gain: float = 1.0
) -> npt.NDArray[np.int32]:
    """Sum of states or candidates by gates, times `gain`, as a state."""
    totals = sum_of_products(STATE_PRODUCT, pairs, 128)
    return wide(totals, np.float32(gain * 4 * _SPAN / (GATE_ONE * _WIDE)))
