"""Types of tensors: element type, static shape and, if known, quantisation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import ml_dtypes
import numpy as np

from ...errors import CompileError

_NUMPY = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64")  # fmt: skip
_NARROW = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
           "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4", "int2", "uint2")  # fmt: skip

DTYPES: Mapping[str, type[np.generic]] = MappingProxyType(
    {
        **{name: np.dtype(name).type for name in _NUMPY},
        **{name: getattr(ml_dtypes, name) for name in _NARROW},
    }
)
"""Element types of the graph: name -> NumPy type."""

FLOATS = ("float32", "float64", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMBERS = (*FLOATS, *INTEGERS)

NARROW_FLOATS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
                 "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn")  # fmt: skip
"""Float types that are computed in float32 and rounded once."""

_NARROW_FLOAT_TYPES = frozenset(DTYPES[name] for name in NARROW_FLOATS)

MAX_BYTES = 1 << 31
"""Size limit of a tensor, in bytes: the most that a protobuf file can hold in one tensor."""

MAX_RANK = 32
"""Axes of a tensor; NumPy knows 64, and samples and layouts have axes of their own."""

MAX_MADE_BYTES = 1 << 28
"""Size limit, in bytes, of a constant that the importer computes."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The meaning of a tensor's integers: `real = scale * (integer - zero_point)`.

    Attributes
    ----------
    scale : float
        Real value of one step: positive, finite, and exact in binary32.
    zero_point : int
        Integer that stands for zero, in the range of the tensor's element type.
    """

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type, shape and, if known, quantisation of a value.

    Attributes
    ----------
    dtype : str
        Element type: a key of `DTYPES`.
    shape : tuple of int
        Extents, all static; () is a scalar.
    quantisation : Quantisation or None
        For activations quantised per tensor; None for weights, floats and unknown integers.
    """

    dtype: str
    shape: tuple[int, ...]
    quantisation: Quantisation | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * np.dtype(DTYPES[self.dtype]).itemsize

    def reshaped(self, shape: tuple[int, ...]) -> "TensorType":
        """Return the type with another shape and the same quantisation."""
        return TensorType(self.dtype, shape, self.quantisation)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


Types = Sequence[TensorType]


def check_size(kind: TensorType, most: int = MAX_BYTES) -> TensorType:
    """Return a type unchanged if its tensor takes at most `most` bytes and few enough axes.

    Raises
    ------
    CompileError
        If the tensor has more.
    """
    if len(kind.shape) > MAX_RANK:
        raise CompileError(
            f"a tensor of {len(kind.shape)} axes: expected at most {MAX_RANK}; reshape it"
        )
    size = kind.elements * np.dtype(DTYPES.get(kind.dtype, np.float64)).itemsize
    if size > most:
        raise CompileError(
            f"a tensor of {kind} takes {size:,} bytes, expected at most {most:,}; split it, or "
            "correct the shape"
        )
    return kind


def wide(x: np.ndarray) -> np.ndarray:
    """Convert narrow floats to float32; return any other array unchanged."""
    return x.astype(np.float32) if x.dtype.type in _NARROW_FLOAT_TYPES else x
