"""Arithmetic of the PTX interpreter against Python's integers and wider floats."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from .kernels import elementwise

U8, U16, U32, U64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
S16, S32, S64 = (np.dtype(f"i{n}") for n in (2, 4, 8))
F16, F32, F64 = (np.dtype(f"f{n}") for n in (2, 4, 8))
BF16 = np.dtype(ml_dtypes.bfloat16)
CORNERS = (0, 1, 2, 3, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000)


def integers(dtype: np.dtype, seed: int, count: int = 300) -> np.ndarray:
    """Random integers with the corners of their type among them."""
    random = np.random.default_rng(seed)
    words = random.integers(0, 1 << 64, count, np.uint64, endpoint=False)
    corners = np.array([*CORNERS, *(-np.array(CORNERS))]).astype(np.uint64)
    positions = random.integers(0, count, 2 * len(corners))
    words[positions] = np.tile(corners, 2)
    return words.astype(f"u{dtype.itemsize}").view(dtype)


def wrap(value: int, dtype: np.dtype) -> int:
    """An integer of any size as the type holds it."""
    bits = 8 * dtype.itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


def truncated(a: int, b: int) -> int:
    """The quotient of integers, rounded to zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def bits_of(value: int, low: int, width: int, signed: bool) -> int:
    """A field of a word of 32 bits as `bfe` defines it."""
    width, low = width & 0xFF, low & 0xFF
    if not width:
        return 0
    sign = value >> min(low + width - 1, 31) & 1 if signed else 0
    bits = [value >> low + i & 1 if low + i < 32 else sign for i in range(min(width, 32))]
    return sum(bit << i for i, bit in enumerate(bits + [sign] * (32 - len(bits))))


def signed_bytes(value: int) -> list[int]:
    """The four bytes of a word, signed."""
    return [wrap(value >> 8 * i, np.dtype(np.int8)) for i in range(4)]


def dot(a: list[int], b: list[int]) -> int:
    """The sum of products."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def clamp(value: int, bits: int) -> int:
    """The nearest signed integer of so many bits."""
    return max(min(value, (1 << bits - 1) - 1), -(1 << bits - 1))


def permuted(a: int, b: int, selector: int) -> int:
    """`prmt` by its definition."""
    result = 0
    for i in range(4):
        field = selector >> 4 * i & 15
        octet = (b << 32 | a) >> 8 * (field & 7) & 0xFF
        if field & 8:
            octet = 0xFF if octet & 0x80 else 0
        result |= octet << 8 * i
    return result


THREE = "%r1, %r2, %r3"
INTEGER_CASES = {
    "add.u16 %h0, %h1, %h2;": ([U16, U16], U16, lambda a, b: a + b),
    "sub.s32 %r0, %r1, %r2;": ([S32, S32], S32, lambda a, b: a - b),
    "add.sat.s32 %r0, %r1, %r2;": ([S32, S32], S32, lambda a, b: clamp(a + b, 32)),
    "mul.lo.s64 %d0, %d1, %d2;": ([S64, S64], S64, lambda a, b: a * b),
    "mul.hi.s32 %r0, %r1, %r2;": ([S32, S32], S32, lambda a, b: a * b >> 32),
    "mul.hi.u64 %d0, %d1, %d2;": ([U64, U64], U64, lambda a, b: a * b >> 64),
    "mul.hi.s64 %d0, %d1, %d2;": ([S64, S64], S64, lambda a, b: a * b >> 64),
    "mul.wide.s16 %r0, %h1, %h2;": ([S16, S16], S32, lambda a, b: a * b),
    "mul.wide.u32 %d0, %r1, %r2;": ([U32, U32], U64, lambda a, b: a * b),
    "mad.wide.s32 %d0, %r1, %r2, %d3;": ([S32, S32, S64], S64, lambda a, b, c: a * b + c),
    "mad.hi.u32 %r0, %r1, %r2, %r3;": ([U32] * 3, U32, lambda a, b, c: (a * b >> 32) + c),
    "div.s32 %r0, %r1, %r2;": ([S32, S32], S32, lambda a, b: truncated(a, b) if b else -1),
    "rem.s32 %r0, %r1, %r2;": ([S32, S32], S32, lambda a, b: a - b * truncated(a, b) if b else a),
    "div.u64 %d0, %d1, %d2;": ([U64, U64], U64, lambda a, b: a // b if b else -1),
    "sad.s32 %r0, %r1, %r2, %r3;": ([S32, S32, S32], S32, lambda a, b, c: c + abs(a - b)),
    "abs.s32 %r0, %r1;": ([S32], S32, abs),
    "neg.s64 %d0, %d1;": ([S64], S64, lambda a: -a),
    "min.s32 %r0, %r1, %r2;": ([S32, S32], S32, min),
    "max.u32 %r0, %r1, %r2;": ([U32, U32], U32, max),
    "popc.b64 %r0, %d1;": ([U64], U32, lambda a: a.bit_count()),
    "clz.b32 %r0, %r1;": ([U32], U32, lambda a: 32 - a.bit_length()),
    "brev.b32 %r0, %r1;": ([U32], U32, lambda a: int(f"{a:032b}"[::-1], 2)),
    "bfind.u32 %r0, %r1;": ([U32], U32, lambda a: a.bit_length() - 1),
    "bfind.s32 %r0, %r1;": ([S32], U32, lambda a: (a if a >= 0 else ~a).bit_length() - 1),
    "not.b32 %r0, %r1;": ([U32], U32, lambda a: ~a),
    "and.b32 %r0, %r1, -16;": ([U32], U32, lambda a: a & -16),
    "shl.b32 %r0, %r1, %r2;": ([U32, U32], U32, lambda a, b: a << min(b, 64)),
    "shr.u32 %r0, %r1, %r2;": ([U32, U32], U32, lambda a, b: a >> min(b, 64)),
    "shr.s32 %r0, %r1, %r2;": ([S32, U32], S32, lambda a, b: a >> min(b, 64)),
    "shr.s64 %d0, %d1, 40;": ([S64], S64, lambda a: a >> 40),
    f"shf.l.wrap.b32 %r0, {THREE};": (
        [U32] * 3, U32, lambda a, b, c: (b << 32 | a) << (c & 31) >> 32,
    ),
    f"shf.r.clamp.b32 %r0, {THREE};": (
        [U32] * 3, U32, lambda a, b, c: (b << 32 | a) >> min(c, 32),
    ),
    f"bfe.u32 %r0, {THREE};": ([U32] * 3, U32, lambda a, b, c: bits_of(a, b, c, False)),
    f"bfe.s32 %r0, {THREE};": ([U32] * 3, U32, lambda a, b, c: bits_of(a, b, c, True)),
    "bfi.b32 %r0, %r1, %r2, 5, 9;": (
        [U32, U32], U32, lambda a, b: b & ~(0x1FF << 5) | (a & 0x1FF) << 5,
    ),
    f"prmt.b32 %r0, {THREE};": ([U32] * 3, U32, permuted),
    f"lop3.b32 %r0, {THREE}, 0xE8;": ([U32] * 3, U32, lambda a, b, c: a & b | a & c | b & c),
    f"lop3.b32 %r0, {THREE}, 0x1E;": ([U32] * 3, U32, lambda a, b, c: a ^ (b | c)),
    f"dp4a.s32.s32 %r0, {THREE};": (
        [U32] * 3,
        U32,
        lambda a, b, c: c + dot(signed_bytes(a), signed_bytes(b)),
    ),
    f"dp4a.u32.s32 %r0, {THREE};": (
        [U32] * 3,
        U32,
        lambda a, b, c: c + dot([x & 255 for x in signed_bytes(a)], signed_bytes(b)),
    ),
    "add.cc.u32 %r4, %r1, %r2; addc.u32 %r0, %r3, 0;": (
        [U32] * 3, U32, lambda a, b, c: c + (a + b >> 32),
    ),
    "setp.lt.s32 %p0, %r1, %r2; selp.b32 %r0, %r1, 7, %p0;": (
        [S32, S32], S32, lambda a, b: a if a < b else 7,
    ),
    "setp.hi.and.u32 %p0|%p1, %r1, %r2, !%p2; selp.b32 %r0, 1, 0, %p0; @%p1 mov.b32 %r0, 2;": (
        [U32, U32], U32, lambda a, b: 1 if a > b else 2,
    ),
    "cvt.s64.s32 %d0, %r1;": ([S32], S64, lambda a: a),
    "cvt.u32.u8 %r0, %r1;": ([U32], U32, lambda a: a & 255),
    "cvt.s32.s8 %r0, %r1;": ([U32], S32, lambda a: wrap(a, np.dtype(np.int8))),
    "cvt.sat.s8.s32 %r0, %r1;": ([S32], S32, lambda a: clamp(a, 8)),
    "cvt.pack.sat.s8.s32.b32 %r0, %r1, %r2, %r3;": (
        [S32, S32, U32],
        U32,
        lambda a, b, c: c << 16 | (clamp(a, 8) & 255) << 8 | clamp(b, 8) & 255,
    ),
    "mov.b32 {%h1, %h2}, %r1; mov.b32 %r0, {%h2, %h1};": (
        [U32], U32, lambda a: a << 16 | a >> 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", INTEGER_CASES)
def test_integer_instructions_equal_their_definition(code):
    kinds, result, definition = INTEGER_CASES[code]
    inputs = [integers(kind, seed) for seed, kind in enumerate(kinds)]
    prelude = "setp.ne.u32 %p2, 0, 0;" if "%p2" in code else ""
    found = elementwise(prelude + code, inputs, result)
    expected = [
        wrap(definition(*(int(value) for value in values)), result)
        for values in zip(*inputs, strict=True)
    ]
    np.testing.assert_array_equal(found, np.array(expected, result))


def floats(dtype: np.dtype, seed: int, count: int = 400) -> np.ndarray:
    """Random floats of all sizes, and the special ones."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(count) * 2.0 ** random.integers(-9, 9, count)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-6, 3e4]
    values[random.integers(0, count, len(special))] = special
    return values.astype(dtype)


def rounded(value: Fraction, dtype: np.dtype, rounding: str) -> float:
    """The float of `dtype` nearest to an exact value, or on one side of it, found by search."""
    near = dtype.type(float(value))
    around = np.nextafter(near, dtype.type(-np.inf)), near, np.nextafter(near, dtype.type(np.inf))
    exact = [(Fraction(float(f)), float(f)) for f in around if np.isfinite(float(f))]
    below, above = ([p for p in exact if p[0] <= value], [p for p in exact if p[0] >= value])
    if rounding == "rm" or (rounding == "rz" and value >= 0):
        return max(below)[1]
    if rounding in ("rp", "rz"):
        return min(above)[1]
    distance = min(abs(p[0] - value) for p in exact)
    nearest = [p[1] for p in exact if abs(p[0] - value) == distance]
    words = [int(np.array(f, dtype).view(f"u{dtype.itemsize}")) for f in nearest]
    return next(
        f for f, word in zip(nearest, words, strict=True) if len(nearest) == 1 or not word & 1
    )


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_fma_of_float32_is_rounded_once(rounding):
    random = np.random.default_rng(3)
    a, b = (random.standard_normal(300).astype(F32) for _ in range(2))
    c = (-(a * b) * (1 + 2.0 ** -random.integers(10, 40, 300))).astype(F32)  # cancels nearly all
    found = elementwise(f"fma.{rounding}.f32 %r0, %r1, %r2, %r3;", [a, b, c], F32)
    for x, y, z, value in zip(a, b, c, found, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert float(value) == rounded(exact, F32, rounding)


def test_fma_of_halves_differs_from_product_and_sum():
    a, b, c = (floats(F16, seed) for seed in range(3))
    found = elementwise("fma.rn.f16 %h0, %h1, %h2, %h3;", [a, b, c], F16)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, (a.astype(F64) * b + c).astype(F16))
        apart = a * b + c
    assert (found != apart).sum() > 20


FLOAT_CASES = {
    "add.f32 %r0, %r1, %r2;": ([F32, F32], F32, np.add),
    "sub.rn.f64 %d0, %d1, %d2;": ([F64, F64], F64, np.subtract),
    "mul.f16 %h0, %h1, %h2;": ([F16, F16], F16, np.multiply),
    "add.bf16 %h0, %h1, %h2;": ([BF16, BF16], BF16, np.add),
    "div.rn.f32 %r0, %r1, %r2;": ([F32, F32], F32, np.divide),
    "min.f32 %r0, %r1, %r2;": ([F32, F32], F32, np.fmin),
    "max.NaN.f32 %r0, %r1, %r2;": ([F32, F32], F32, np.maximum),
    "add.sat.f32 %r0, %r1, %r2;": (
        [F32, F32], F32, lambda a, b: np.nan_to_num(np.clip(a + b, 0, 1), nan=0.0),
    ),
    "neg.f16 %h0, %h1;": ([F16], F16, np.negative),
    "abs.f32 %r0, %r1;": ([F32], F32, np.abs),
    "sqrt.rn.f32 %r0, %r1;": ([F32], F32, np.sqrt),
    "rcp.rn.f32 %r0, %r1;": ([F32], F32, np.reciprocal),
    "copysign.f32 %r0, %r1, %r2;": ([F32, F32], F32, lambda a, b: np.copysign(b, a)),
    "cvt.f32.f16 %r0, %h1;": ([F16], F32, lambda a: a.astype(F32)),
    "cvt.rn.f16.f32 %h0, %r1;": ([F32], F16, lambda a: a.astype(F16)),
    "cvt.rn.bf16.f32 %h0, %r1;": ([F32], BF16, lambda a: a.astype(BF16)),
    "cvt.rn.f32.s32 %r0, %r1;": ([S32], F32, lambda a: a.astype(F32)),
    "cvt.rn.f32.u64 %r0, %d1;": ([U64], F32, lambda a: a.astype(F32)),
    "cvt.rn.f64.s64 %d0, %d1;": ([S64], F64, lambda a: a.astype(F64)),
    "cvt.rni.f32.f32 %r0, %r1;": ([F32], F32, np.rint),
    "cvt.rzi.s32.f32 %r0, %r1;": (
        [F32], S32, lambda a: np.nan_to_num(np.clip(np.trunc(a.astype(F64)), -(2**31), 2**31 - 1)),
    ),
    "cvt.rni.s8.f32 %r4, %r1; cvt.s32.s8 %r0, %r4;": (
        [F32], S32, lambda a: np.nan_to_num(np.clip(np.rint(a.astype(F64)), -128, 127)),
    ),
    "cvt.rmi.u16.f32 %h0, %r1;": (
        [F32], U16, lambda a: np.nan_to_num(np.clip(np.floor(a.astype(F64)), 0, 65535)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", FLOAT_CASES)
def test_float_instructions_equal_numpy(code):
    kinds, result, definition = FLOAT_CASES[code]
    inputs = [
        floats(kind, seed) if kind.kind not in "iu" else integers(kind, seed)
        for seed, kind in enumerate(kinds)
    ]
    with np.errstate(all="ignore"):
        expected = definition(*inputs).astype(result)
    found = elementwise(code, inputs, result)
    # NumPy's test sees no NaN in bfloat16.
    wide = F32 if result == BF16 else result
    np.testing.assert_array_equal(found.astype(wide), expected.astype(wide))


@pytest.mark.parametrize(
    ("code", "function"),
    [
        ("ex2.approx.f32", np.exp2),
        ("lg2.approx.f32", np.log2),
        ("sin.approx.f32", np.sin),
        ("tanh.approx.f32", np.tanh),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x)),
        ("rcp.approx.ftz.f32", np.reciprocal),
    ],
)
def test_approximate_functions_are_close(code, function):
    value = np.abs(np.random.default_rng(0).standard_normal(200)).astype(F32)
    found = elementwise(f"{code} %r0, %r1;", [value], F32)
    np.testing.assert_allclose(found, function(value.astype(F64)), rtol=1e-6)


def test_comparisons_of_nan_are_ordered_unless_asked():
    a, b = floats(F32, 1), floats(F32, 2)
    a[:5] = np.nan
    for name, ordered in (("lt", np.less), ("ne", np.not_equal), ("ge", np.greater_equal)):
        nan = np.isnan(a) | np.isnan(b)
        select = "selp.b32 %r0, 1, 0, %p0;"
        found = elementwise(f"setp.{name}.f32 %p0, %r1, %r2; {select}", [a, b], U32)
        np.testing.assert_array_equal(found, ordered(a, b) & ~nan)
        found = elementwise(f"setp.{name}u.f32 %p0, %r1, %r2; {select}", [a, b], U32)
        np.testing.assert_array_equal(found, ordered(a, b) | nan)


def test_packed_halves_are_two_numbers():
    a, b, c = (floats(F16, seed).view(U32) for seed in range(3))
    found = elementwise("fma.rn.f16x2 %r0, %r1, %r2, %r3;", [a, b, c], U32).view(F16)
    halves = [word.view(F16).copy() for word in (a, b, c)]
    one = elementwise("fma.rn.f16 %h0, %h1, %h2, %h3;", halves, F16)
    np.testing.assert_array_equal(found, one)
    x, y = floats(F32, 4), floats(F32, 5)
    found = elementwise("cvt.rn.f16x2.f32 %r0, %r1, %r2;", [x, y], U32).view(F16).reshape(-1, 2)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, np.stack((y, x), axis=1).astype(F16))


def test_tf32_rounds_ties_away_from_zero():
    value = np.array([1 + 2**-11, -(1 + 2**-11), 1 + 2**-12, 3.0], F32)
    found = elementwise("cvt.rna.tf32.f32 %r0, %r1;", [value], F32)
    np.testing.assert_array_equal(found, np.array([1 + 2**-10, -(1 + 2**-10), 1, 3], F32))
