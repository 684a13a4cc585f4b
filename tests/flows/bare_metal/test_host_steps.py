"""Host steps in C compute what the compiler's operators define."""

import ctypes
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.graph import operators as ops
from tilewright.flows.bare_metal.folder import ASSETS

FLAGS = ("-std=c99", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-pedantic")
SCALES = st.floats(2.0**-20, 2.0**20, width=32)
ZEROS = st.integers(-128, 127)
STRANGE = np.nan, np.inf, -np.inf, -0.0
RANDOM = st.integers(0, 2**32).map(np.random.default_rng)


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    built = tmp_path_factory.mktemp("steps") / "steps.so"
    subprocess.run(["gcc", *FLAGS, ASSETS / "host_steps.c", "-o", built], check=True)
    return ctypes.CDLL(str(built))


def pointer(array):
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def size(number):
    return ctypes.c_size_t(number)


@given(random=RANDOM, scale=SCALES, zero=ZEROS)
def test_quantise(steps, random, scale, zero):
    """Ties, numbers beside them, and those that are too large; NaN too."""
    ties = (random.integers(-300, 300, 40) + 0.5).astype(np.float32) * np.float32(scale)
    beside = np.nextafter(ties, random.choice([-np.inf, np.inf], 40)).astype(np.float32)
    x = np.concatenate([ties, beside, np.array(STRANGE, "float32")])
    y = np.zeros(x.size, np.int8)
    steps.tilewright_quantize(pointer(y), pointer(x), size(x.size), ctypes.c_float(scale), zero)
    np.testing.assert_array_equal(y, ops.Quantize((scale,), (zero,), "int8").compute(x))


@given(random=RANDOM)
def test_round(steps, random):
    ties = (random.integers(-9, 9, 20) + 0.5).astype(np.float32)
    wide = random.normal(0, 2.0 ** random.integers(0, 40), 20).astype(np.float32)
    x = np.concatenate(
        [ties, np.nextafter(ties, np.float32(0)), wide, np.array(STRANGE, "float32")]
    )
    y = np.zeros_like(x)
    steps.tilewright_round(pointer(y), pointer(x), size(x.size))
    expected = ops.Unary("Round").compute(x)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(expected))


@given(scale=SCALES, zero=ZEROS)
def test_dequantise(steps, scale, zero):
    x, y = np.arange(-128, 128).astype(np.int8), np.zeros(256, np.float32)
    steps.tilewright_dequantize(pointer(y), pointer(x), size(256), ctypes.c_float(scale), zero)
    np.testing.assert_array_equal(y, ops.Dequantize((scale,), (zero,)).compute(x))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_shift(steps, dtype):
    x, y = np.arange(256).astype(np.uint8), np.zeros(256, np.uint8)
    steps.tilewright_shift(pointer(y), pointer(x), size(256))
    np.testing.assert_array_equal(y, ops.Shift().compute(x.view(dtype)).view(np.uint8))


@given(data=st.data(), dtype=st.sampled_from(["int8", "float32", "int64"]))
def test_transpose(steps, data, dtype):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    x = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    expected = ops.Transpose(order).compute(x)
    y = np.zeros(expected.shape, dtype)
    extents, strides = (np.array(each, np.uint32) for each in (y.shape, x.transpose(order).strides))
    arguments = size(x.itemsize), size(len(order)), pointer(extents), pointer(strides)
    steps.tilewright_transpose(pointer(y), pointer(x), *arguments)
    np.testing.assert_array_equal(y, expected)


@settings(max_examples=300)
@given(random=RANDOM, columns=st.integers(1, 40), spread=st.sampled_from([0.1, 3, 30, 300]))
def test_softmax(steps, random, columns, spread):
    """To the last bits, of which NumPy's own depend on the processor."""
    x = random.normal(0, spread, (3, columns)).astype(np.float32)
    y = np.zeros_like(x)
    steps.tilewright_softmax(pointer(y), pointer(x), size(3), size(columns))
    powers = np.exp((x - x.max(axis=1, keepdims=True)).astype(np.float64))
    exact = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(y, exact, rtol=3 * 2.0**-24, atol=2.0**-149)


@given(random=RANDOM, spread=st.sampled_from([0.1, 3, 30, 300]))
def test_sigmoid(steps, random, spread):
    x = np.append(random.normal(0, spread, 40), [-np.inf, np.inf]).astype(np.float32)
    y = np.zeros_like(x)
    steps.tilewright_sigmoid(pointer(y), pointer(x), size(x.size))
    with np.errstate(over="ignore"):
        exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(y, exact, rtol=3 * 2.0**-24, atol=2.0**-149)


@given(random=RANDOM, columns=st.integers(1, 9))
def test_argmax(steps, random, columns):
    x = random.integers(0, 4, (5, columns)).astype(np.float32)
    y = np.zeros(5, np.int64)
    steps.tilewright_argmax(pointer(y), pointer(x), size(5), size(columns))
    np.testing.assert_array_equal(y, ops.Reduce("ArgMax", (1,), False).compute(x))
