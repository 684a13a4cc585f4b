"""Tensor maps of TMA: the arguments of `cuTensorMapEncodeTiled`, checked as its documentation says.

The compiler declares a map, the CUDA driver encodes it for an address, and the interpreter of PTX
copies by it. Dimensions are listed innermost first, as the driver has them.
"""

from dataclasses import dataclass
from typing import Any

from .errors import ProgramError

DATA_TYPES = {
    "int8": ("UINT8", 1), "uint8": ("UINT8", 1), "int16": ("UINT16", 2), "uint16": ("UINT16", 2),
    "int32": ("INT32", 4), "uint32": ("UINT32", 4), "int64": ("INT64", 8), "uint64": ("UINT64", 8),
    "float16": ("FLOAT16", 2), "bfloat16": ("BFLOAT16", 2), "float32": ("FLOAT32", 4),
    "float64": ("FLOAT64", 8), "tfloat32": ("TFLOAT32", 4),
}  # fmt: skip
"""The driver's name and the bytes of an element of each type."""

TENSOR_MAP_BYTES = 128
"""Size of an encoded map."""

MAX_RANK, MAX_BOX, MAX_ELEMENT_STRIDE = 5, 256, 8
MAX_EXTENT, MAX_STRIDE_BYTES = 1 << 32, 1 << 40


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor in global memory and the box of it that one instruction copies.

    Parameters
    ----------
    dtype
        Type of the elements, a key of `DATA_TYPES`.
    dims, box
        Elements of the tensor and of the box along each dimension, innermost first.
    strides_bytes
        Distance of neighbours along each dimension but the innermost.
    element_strides
        Step between elements along each dimension; that of the innermost is ignored.
    swizzle_bytes
        Span of the swizzle in shared memory: 0, 32, 64 or 128.
    interleave_bytes
        Interleaved layout: 0, 16 or 32.
    l2_promotion_bytes
        Size of requests to L2: 0, 64, 128 or 256.
    fills_with_nan
        Elements outside the tensor read as NaN rather than zero.

    Raises
    ------
    ProgramError
        The driver would refuse the arguments.
    """

    dtype: str
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle_bytes: int = 0
    interleave_bytes: int = 0
    l2_promotion_bytes: int = 128
    fills_with_nan: bool = False

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.dims))
        if self.dtype not in DATA_TYPES:
            raise ProgramError(f"tensor map: type `{self.dtype}`; expected {', '.join(DATA_TYPES)}")
        rank, interleaved = len(self.dims), self.interleave_bytes != 0
        lowest = 3 if interleaved else 1
        self._require(lowest <= rank <= MAX_RANK, "rank", rank, f"{lowest} to {MAX_RANK}")
        lengths = len(self.strides_bytes), len(self.box), len(self.element_strides)
        expected = (rank - 1, rank, rank)
        self._require(lengths == expected, "lengths of strides, box and steps", lengths, expected)
        for value in self.dims:
            self._require(0 < value <= MAX_EXTENT, "dimension", value, f"1 to {MAX_EXTENT}")
        unit = 32 if self.interleave_bytes == 32 else 16
        for value in self.strides_bytes:
            fits = value % unit == 0 and 0 <= value < MAX_STRIDE_BYTES
            self._require(fits, "stride", value, f"a multiple of {unit} bytes below 2^40")
        for value in self.box:
            self._require(0 < value <= MAX_BOX, "box", value, f"1 to {MAX_BOX} elements")
        for value in self.element_strides:
            fits = 0 < value <= MAX_ELEMENT_STRIDE
            self._require(fits, "element stride", value, f"1 to {MAX_ELEMENT_STRIDE}")
        for name, value, allowed in (
            ("swizzle", self.swizzle_bytes, (0, 32, 64, 128)),
            ("interleave", self.interleave_bytes, (0, 16, 32)),
            ("L2 promotion", self.l2_promotion_bytes, (0, 64, 128, 256)),
        ):
            self._require(value in allowed, name, value, f"one of {allowed} bytes")
        inner = self.box[0] * self.element_bytes
        if not interleaved:
            self._require(inner % 16 == 0, "inner box", inner, "a multiple of 16 bytes")
            span = self.swizzle_bytes
            fits = not span or inner <= span
            self._require(fits, "inner box", inner, f"at most the swizzle's {span} bytes")
        if self.interleave_bytes == 32:
            self._require(self.swizzle_bytes == 32, "swizzle", self.swizzle_bytes, "32 bytes")
        floats = "float" in self.dtype
        self._require(floats or not self.fills_with_nan, "fill", "NaN", "zero for integers")

    def _require(self, holds: bool, what: str, found: object, expected: object) -> None:
        if not holds:
            raise ProgramError(f"tensor map: {what} is {found}; expected {expected}")

    @property
    def element_bytes(self) -> int:
        return DATA_TYPES[self.dtype][1]

    @property
    def box_extents(self) -> tuple[int, ...]:
        """Elements that a copy has along each dimension, innermost first."""
        steps = (1, *self.element_strides[1:])
        return tuple(-(-extent // step) for extent, step in zip(self.box, steps, strict=True))

    @property
    def box_bytes(self) -> int:
        """Bytes that a copy adds to its mbarrier, those outside the tensor included."""
        total = self.element_bytes
        for extent in self.box_extents:
            total *= extent
        return total

    def check_address(self, address: int) -> None:
        """Refuse a tensor that starts at an address that the driver would refuse."""
        unit = 32 if self.interleave_bytes == 32 else 16
        fits = address % unit == 0
        self._require(fits, "address", f"{address:#x}", f"a multiple of {unit} bytes")

    def encode_arguments(self, cuda: Any, address: int) -> tuple[Any, ...]:
        """Arguments of `cuTensorMapEncodeTiled` of `cuda`, the module `cuda.bindings.driver`."""
        self.check_address(address)

        def member(enumeration: str, prefix: str, size_bytes: int, unit: str = "") -> Any:
            name = f"{unit}{size_bytes}B" if size_bytes else "NONE"
            return getattr(getattr(cuda, enumeration), f"CU_TENSOR_MAP_{prefix}_{name}")

        kind, fill = DATA_TYPES[self.dtype][0], cuda.CUtensorMapFloatOOBfill
        return (
            getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"),
            len(self.dims),
            address,
            [cuda.cuuint64_t(extent) for extent in self.dims],
            [cuda.cuuint64_t(stride) for stride in self.strides_bytes],
            [cuda.cuuint32_t(extent) for extent in self.box],
            [cuda.cuuint32_t(step) for step in self.element_strides],
            member("CUtensorMapInterleave", "INTERLEAVE", self.interleave_bytes),
            member("CUtensorMapSwizzle", "SWIZZLE", self.swizzle_bytes),
            member("CUtensorMapL2promotion", "L2_PROMOTION", self.l2_promotion_bytes, "L2_"),
            fill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
            if self.fills_with_nan
            else fill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
