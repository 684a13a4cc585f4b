"""Restrictions of tensor maps, and the types that the CUDA driver takes."""

import cuda.bindings.driver as cuda
import pytest

from tilewright.errors import ProgramError
from tilewright.tensor_map import TensorMap

from .runtime.gpu.fake_cuda import has_driver

RIGHT = {"dtype": "float16", "dims": (80, 72), "strides_bytes": (160,), "box": (64, 64)}
REFUSED = [
    ({"dtype": "complex64"}, "type `complex64`; expected int8"),
    ({"dims": (), "strides_bytes": (), "box": ()}, "rank is 0; expected 1 to 5"),
    ({"interleave_bytes": 16}, "rank is 2; expected 3 to 5"),
    ({"strides_bytes": ()}, r"strides, box and steps is (0, 2, 2); expected (1, 2, 2)"),
    ({"dims": (80, 0)}, "dimension is 0; expected 1 to 4294967296"),
    ({"strides_bytes": (168,)}, "stride is 168; expected a multiple of 16 bytes below 2^40"),
    ({"strides_bytes": (1 << 40,)}, "stride is 1099511627776; expected a multiple of 16"),
    ({"box": (64, 257)}, "box is 257; expected 1 to 256 elements"),
    ({"box": (0, 64)}, "box is 0; expected 1 to 256 elements"),
    ({"element_strides": (1, 9)}, "element stride is 9; expected 1 to 8"),
    ({"swizzle_bytes": 48}, "swizzle is 48; expected one of (0, 32, 64, 128) bytes"),
    ({"l2_promotion_bytes": 32}, "L2 promotion is 32; expected one of (0, 64, 128, 256) bytes"),
    ({"box": (60, 64)}, "inner box is 120; expected a multiple of 16 bytes"),
    ({"swizzle_bytes": 64}, "inner box is 128; expected at most the swizzle's 64 bytes"),
    ({"dtype": "int16", "fills_with_nan": True}, "fill is NaN; expected zero for integers"),
    (
        {
            "dims": (80, 72, 2),
            "strides_bytes": (160, 32 * 360),
            "box": (8, 8, 1),
            "interleave_bytes": 32,
        },
        "swizzle is 0; expected 32 bytes",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_arguments_that_the_driver_refuses_are_refused(change, message):
    TensorMap(**RIGHT)
    with pytest.raises(ProgramError) as caught:
        TensorMap(**(RIGHT | change))
    assert message in str(caught.value)


def test_a_tensor_starts_at_a_multiple_of_16_bytes():
    with pytest.raises(ProgramError, match="address is 0x1008; expected a multiple of 16 bytes"):
        TensorMap(**RIGHT).check_address(0x1008)


def test_the_bytes_of_a_box_count_the_steps():
    assert TensorMap(**RIGHT).box_bytes == 64 * 64 * 2
    assert TensorMap(**RIGHT, element_strides=(1, 3)).box_bytes == 64 * 22 * 2


@pytest.mark.parametrize(
    "more", [{}, {"swizzle_bytes": 128, "l2_promotion_bytes": 0}, {"fills_with_nan": True}]
)
def test_the_driver_takes_the_types_of_the_arguments(more):
    arguments = TensorMap(**RIGHT, **more).encode_arguments(cuda, 0x1000)
    assert [int(size) for size in arguments[3]] == [80, 72]
    swizzle = "128B" if "swizzle_bytes" in more else "NONE"
    assert arguments[8].name == f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"
    if has_driver():
        assert cuda.cuTensorMapEncodeTiled(*arguments)[0] == cuda.CUresult.CUDA_SUCCESS
    else:  # the package converts the arguments before it looks for the driver
        with pytest.raises(RuntimeError, match="NVIDIA driver library"):
            cuda.cuTensorMapEncodeTiled(*arguments)
