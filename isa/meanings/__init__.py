"""Integer meanings of attention, norms, activations and recurrent cells, in NumPy.

Each is a sequence of `steps`, passes of VECTOR over rows; the section Notes of its docstring lists
them. `docs/design/meanings.md` says which steps the instruction set has.
"""

from .activations import byte_table, gelu, gelu_tanh, sigmoid, silu
from .cells import blend_totals, high_byte, low_byte
from .norms import NormConstants, layer_norm, norm_constants, rms_norm
from .residual import residual_add, residual_bytes
from .rotary import rotate
from .softmax import softmax

__all__ = [
    "NormConstants",
    "blend_totals",
    "byte_table",
    "gelu",
    "gelu_tanh",
    "high_byte",
    "layer_norm",
    "low_byte",
    "norm_constants",
    "residual_add",
    "residual_bytes",
    "rms_norm",
    "rotate",
    "sigmoid",
    "silu",
    "softmax",
]
