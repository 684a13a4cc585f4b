"""Importers of matrix products, of floats and of integers, as MatMul and further operators."""

import math
import string
from collections.abc import Callable, Sequence

import numpy as np

from ...isa.numbers import EXACT_LIMIT
from ..graph import operators as ops
from ..graph.types import DTYPES
from .onnx_images import import_conv
from .onnx_node import OnnxNode

MAX_BYTE = 255
"""Maximum magnitude of a byte less its zero point."""


def import_matmul(node: OnnxNode) -> str:
    """Import MatMul; vectors become matrices of one row or column and back."""
    a, b = node.input(0), node.input(1)
    left, right = node.type(0).shape, node.type(1).shape
    if len(left) > 1 and len(right) > 1:
        return node.emit(ops.MatMul(), [a, b])
    if len(left) == 1:
        a = node.reshape(a, (1, *left), f"{a}.row")
    if len(right) == 1:
        b = node.reshape(b, (*right, 1), f"{b}.column")
    product = node.emit(ops.MatMul(), [a, b], f"{node.result}.product")
    shape = node.builder.types[product].shape
    rows = () if len(left) == 1 else shape[-2:-1]
    columns = () if len(right) == 1 else shape[-1:]
    return node.reshape(product, (*shape[:-2], *rows, *columns))


def import_einsum(node: OnnxNode) -> str:
    """Import Einsum, two operands at a time.

    A product of matrices becomes MatMul with reshapes and transposes, a product without a sum Mul.
    """
    equation = node.attribute("equation", "")
    operands = [node.input(index) for index in range(len(node.proto.input))]
    general = ops.Einsum(equation.decode() if isinstance(equation, bytes) else equation)
    shapes = [node.builder.types[x].shape for x in operands]
    *terms, result = _without_dots(_terms(general.equation), shapes)
    if len(terms) != len(operands) or len(operands) < 2 or "." in "".join([*terms, result]):
        return node.emit(general, operands)
    x, letters = operands[0], terms[0]
    for index in range(1, len(terms) - 1):
        needed = set(result).union(*terms[index + 1 :])
        kept = "".join(one for one in dict.fromkeys(letters + terms[index]) if one in needed)
        pair = ops.Einsum(f"{letters},{terms[index]}->{kept}")
        x, letters = _einsum_of_two(node, pair, x, operands[index], f"{node.result}.{kept}"), kept
    last = ops.Einsum(f"{letters},{terms[-1]}->{result}")
    return _einsum_of_two(node, last, x, operands[-1], node.result)


def _einsum_of_two(node: OnnxNode, general: ops.Einsum, a: str, b: str, name: str) -> str:
    operands, (*given, result) = [a, b], _terms(general.equation)
    extents = _extents(given, [node.builder.types[x].shape for x in operands])
    if extents is None:
        return node.emit(general, operands, name)
    if set(given[0]) | set(given[1]) == set(result):
        factors = []
        for x, term in zip(operands, given, strict=True):
            order = [term.index(letter) for letter in result if letter in term]
            if order != sorted(order):
                x = node.transpose(x, order, f"{name}.turned")
            shape = [extents[letter] if letter in term else 1 for letter in result]
            factors.append(_shaped(node, x, shape, f"{name}.factor"))
        return node.binary("Mul", factors[0], factors[1], name)
    terms = _matrix_terms(given[0], given[1], result)
    if terms is None:
        return node.emit(general, operands, name)
    batch, left, right, summed = terms
    matrices = []
    for index, side in enumerate(((*batch, left, summed), (*batch, summed, right))):
        x = operands[index]
        order = [given[index].index(letter) for part in side for letter in part]
        if order != sorted(order):
            x = node.transpose(x, order, f"{name}.turned{index}")
        shape = [math.prod(extents[letter] for letter in part) for part in side]
        matrices.append(_shaped(node, x, shape, f"{name}.operand{index}"))
    letters = batch + left + right
    product = node.emit(ops.MatMul(), matrices, f"{name}.product")
    product = _shaped(node, product, [extents[one] for one in letters], f"{name}.parts")
    order = [letters.index(letter) for letter in result]
    return product if order == sorted(order) else node.transpose(product, order, name)


def _shaped(node: OnnxNode, x: str, shape: Sequence[int], name: str) -> str:
    """Reshape a value unless it has the shape already."""
    return x if node.builder.types[x].shape == tuple(shape) else node.reshape(x, shape, name)


def _terms(equation: str) -> list[str]:
    """Return an Einsum equation's letters: each operand's and, last, the result's."""
    given, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:
        result = "".join(sorted(letter for letter in set(given) if given.count(letter) == 1))
        result = result.replace(",", "")
    return [*given.split(","), result]


def _without_dots(terms: list[str], shapes: Sequence[tuple[int, ...]]) -> list[str]:
    """Replace `...` by letters, unless its extents differ between terms."""
    spreads = {
        shape[term.index(".") : len(shape) - len(term.partition("...")[2])]
        for term, shape in zip(terms, shapes, strict=False)
        if "..." in term
    }
    if len(spreads) != 1 or "..." not in terms[-1]:
        return terms
    free = [letter for letter in string.ascii_letters if letter not in "".join(terms)]
    letters = "".join(free[: len(spreads.pop())])
    return [term.replace("...", letters) for term in terms]


def _extents(terms: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> dict[str, int] | None:
    """Return each letter's extent; None if a letter repeats in a term or has two extents."""
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if len(set(term)) != len(term) or len(term) != len(shape):
            return None
        if any(extents.setdefault(one, n) != n for one, n in zip(term, shape, strict=True)):
            return None
    return extents


def _matrix_terms(a: str, b: str, result: str) -> tuple[str, str, str, str] | None:
    """Return the letters of batches, rows, columns and the sum.

    None without a sum, or if a letter of only one operand is summed.
    """
    batch = "".join(letter for letter in result if letter in a and letter in b)
    summed = "".join(letter for letter in a if letter in b and letter not in result)
    left = "".join(letter for letter in a if letter not in b)
    right = "".join(letter for letter in b if letter not in a)
    if not summed or sorted(batch + left + right) != sorted(result):
        return None
    return batch, left, right, summed


def import_gemm(node: OnnxNode) -> str:
    """Import Gemm as MatMul with optional Transpose, Mul and Add."""

    def scaled(value: str, name: str) -> str:
        factor = node.attribute(name, 1.0)
        if factor == 1.0:
            return value
        number = np.array(factor).astype(DTYPES[node.builder.types[value].dtype])
        constant = node.builder.constant(number, f"{value}.{name}")
        return node.binary("Mul", value, constant, f"{value}.scaled")

    a, b = (
        node.transpose(x, (1, 0), f"{x}.transposed") if node.attribute(name, 0) else x
        for x, name in ((node.input(0), "transA"), (node.input(1), "transB"))
    )
    product = scaled(node.emit(ops.MatMul(), [a, b], f"{node.result}.product"), "alpha")
    return node.binary("Add", product, scaled(node.input(2), "beta")) if node.has(2) else product


def import_fused_matmul(node: OnnxNode) -> str:
    """Import FusedMatMul (`com.microsoft`) as MatMul with optional Transpose and Mul."""
    operands = []
    for index, name in enumerate(("transA", "transB")):
        x, rank = node.input(index), node.rank(index)
        if node.attribute(f"transBatch{name[-1]}", 0):
            node.fail("no transposed batches", f"`transBatch{name[-1]}`", "do not fuse them")
        if node.attribute(name, 0) and rank > 1:
            x = node.transpose(x, (*range(rank - 2), rank - 1, rank - 2), f"{x}.transposed")
        operands.append(x)
    product = import_matmul(node.as_operator("MatMul", *operands))
    alpha = node.attribute("alpha", 1.0)
    if alpha == 1.0:
        return product
    return node.binary("Mul", product, node.number(alpha, node.type(0).dtype))


def _centred(node: OnnxNode, index: int, zero_point: int, axis: int) -> str:
    """Emit `int32(x) - zero point`; a zero point with several elements lies along `axis`."""
    x, rank = node.input(index), node.rank(index)
    wide = node.cast(x, "int32", f"{x}.int32")
    if not node.has(zero_point):
        return wide
    zero, kind = node.input(zero_point), node.type(zero_point)
    zero = node.cast(zero, "int32", f"{zero}.int32")
    if kind.elements == 1:
        zero = node.reshape(zero, (), f"{zero}.scalar")
    elif len(kind.shape) == 1:
        spread = tuple(kind.elements if i == axis % rank else 1 for i in range(rank))
        zero = node.reshape(zero, spread, f"{zero}.spread")
    return node.binary("Sub", wide, zero, f"{x}.centred")


def import_matmul_integer(node: OnnxNode) -> str:
    """Import MatMulInteger: as IntegerMatMul if the weights are constant, else as MatMul."""
    plain = not node.has(2) or node.type(2).elements == 1
    if plain and node.rank(0) > 1 and node.rank(1) == 2 and _is_known(node, 1, 3):
        b = _centred(node, 1, 3, axis=-1)
        w = node.builder.data(b)
        narrow = w.astype(np.int8 if np.all(w == w.astype(np.int8)) else np.int16)
        weights = node.builder.constant(narrow, f"{b}.weights")
        zero = node.input(2) if node.has(2) else node.number(0, node.type(0).dtype)
        return node.emit(ops.IntegerMatMul(), [node.input(0), weights, zero])
    return _exact(node, import_matmul, "MatMul", (-2, -1), node.type(0).shape[-1] * MAX_BYTE**2)


def import_conv_integer(node: OnnxNode) -> str:
    """Import ConvInteger as Conv; with constant weights, the zero point is taken out behind it."""
    one_zero = not node.has(2) or node.type(2).elements == 1
    if one_zero and _is_known(node, 1, 3):
        size = np.abs(node.builder.data(_centred(node, 1, 3, axis=0)).astype(np.int64))
        most = int(size.sum(axis=tuple(range(1, size.ndim))).max(initial=0))
        if most << 7 < EXACT_LIMIT:
            return _less_zero(node)
    largest = math.prod(node.type(1).shape[1:]) * MAX_BYTE**2
    return _exact(node, import_conv, "Conv", (1, 0), largest)


def _less_zero(node: OnnxNode) -> str:
    """Emit a convolution of bytes around 0, less their zero point times a convolution of ones."""
    x, shape, kernel = node.input(0), node.type(0).shape, node.type(1).shape[2:]
    middle = 128 if node.type(0).dtype == "uint8" else 0
    zero = node.input(2) if node.has(2) else node.number(0, "int32")
    zero = node.reshape(node.cast(zero, "int32"), ())
    zero = node.binary("Sub", zero, node.number(middle, "int32"))
    if not any(node.attribute("pads", ())) and node.attribute("auto_pad", "")[:4] != "SAME":
        steps = node.attribute("dilations", (1,) * len(kernel))  # all pixels are alike
        shape = *shape[:2], *((k - 1) * step + 1 for k, step in zip(kernel, steps, strict=True))
    ones = node.builder.constant(np.ones((1, *shape[1:]), np.float32), f"{node.result}.ones")
    given = node.emit(ops.Dequantize((1.0,), (middle,), None), [x], f"{x}.real")
    w, sums = _real(node, 1, 3, axis=0), []
    for image in (given, ones):
        inner = node.as_operator("Conv", image, w)
        inner.proto.output[0] = f"{node.result}.{len(sums)}"
        sums.append(node.cast(import_conv(inner), "int32"))
    return node.binary("Sub", sums[0], node.binary("Mul", sums[1], zero))


def _is_known(node: OnnxNode, *inputs: int) -> bool:
    """Whether inputs are constants, or left out."""
    return all(node.builder.is_constant(node.input(i)) for i in inputs if node.has(i))


def _exact(
    node: OnnxNode,
    importer: Callable[[OnnxNode], str],
    kind: str,
    axes: tuple[int, int],
    largest: int,
) -> str:
    """Import a product of bytes less their zero points, which may lie along `axes`, exactly.

    It is computed in float32, which is much faster, if no sum can be larger than float32 holds
    exactly, else in int32.
    """
    if largest >= EXACT_LIMIT:
        centred = (_centred(node, i, 2 + i, axis) for i, axis in enumerate(axes))
        return importer(node.as_operator(kind, *centred))
    inner = node.as_operator(kind, *(_real(node, i, 2 + i, axis) for i, axis in enumerate(axes)))
    inner.proto.output[0] = f"{node.result}.real"
    return node.cast(importer(inner), "int32")


def _real(node: OnnxNode, index: int, zero_point: int, axis: int) -> str:
    """Emit `float32(x - zero point)`: a Dequantize with scale 1, if the zero point is known."""
    x, zeros = node.input(index), None
    if node.has(zero_point):
        if not _is_known(node, zero_point) or len(node.type(zero_point).shape) > 1:
            return node.cast(_centred(node, index, zero_point, axis), "float32", f"{x}.real")
        zeros = node.constant(zero_point).reshape(-1)
    ones = np.ones(1 if zeros is None else zeros.shape, np.float32)
    operator = ops.Dequantize(*node.quantised(x, ones, zeros, axis))
    return node.emit(operator, [x], f"{x}.real")


def import_matmul_integer_to_float(node: OnnxNode) -> str:
    """Import MatMulIntegerToFloat (`com.microsoft`) as MatMul, Mul by both scales, and Add."""
    zeros = [node.input(index) if node.has(index) else None for index in (4, 5)]
    inner = node.as_operator("MatMulInteger", node.input(0), node.input(1), *zeros)
    real = node.cast(import_matmul_integer(inner), "float32", f"{node.result}.real")
    scale = node.binary("Mul", node.input(2), node.input(3), f"{node.result}.scale")
    result = node.binary("Mul", real, scale, f"{node.result}.scaled")
    return node.binary("Add", result, node.input(6)) if node.has(6) else result


def import_matmul_bits(node: OnnxNode) -> str:
    """Import MatMulNBits as MatMul; unpack weights of 2, 4 or 8 bits and scale them by blocks."""
    bits, block = node.attribute("bits", 4), node.attribute("block_size", 0)
    rows, columns = node.attribute("K", 0), node.attribute("N", 0)
    packed, scales = node.constant(1), node.constant(2)
    if bits not in (2, 4, 8) or min(block, rows, columns) < 1 or packed.dtype != np.uint8:
        node.fail("2, 4 or 8 `bits`, blocks and extents", f"{bits}, {block}", "quantise it again")
    if node.has(4) and node.has(3) and node.constant(3).dtype == np.uint8:
        # ONNX Runtime ignores the zero points here, which their file did not mean.
        node.fail("float zero points or none beside `g_idx`", "packed ones", "quantise it again")
    blocks = -(-rows // block)
    weights = _unpacked(packed.reshape(-1), bits)
    zeros = (
        node.constant(3) if node.has(3) else np.full(columns * blocks, 1 << (bits - 1), np.uint8)
    )
    if node.has(3) and zeros.dtype == np.uint8 and zeros.size % columns == 0:
        zeros = _unpacked(zeros.reshape(columns, -1), bits)[:, :blocks]
    places = node.constant(4) if node.has(4) else np.arange(rows) // block
    counts = weights.size // block, scales.size, zeros.size
    if counts != (columns * blocks,) * 3 or places.shape != (rows,) or not (places < blocks).all():
        node.fail(f"{columns * blocks} blocks of {block}", f"{weights.size} weights", "correct it")
    weights = weights.reshape(columns, -1)[:, :rows]
    scales, zeros = scales.reshape(columns, blocks), zeros.reshape(columns, blocks)
    if node.has(4) or zeros.dtype != np.uint8:  # blocks in any order, or HQQ's float zero points
        centred = weights - zeros[:, places].astype(np.float32)
        numbers = (centred * scales[:, places]).astype(scales.dtype)
        real = node.array(numbers, f"{node.result}.weights")
    else:
        held = weights, scales, zeros
        names = (f"{node.result}.{name}" for name in ("weights", "scales", "zeros"))
        operands = (node.array(*pair) for pair in zip(held, names, strict=True))
        real = node.as_operator("DequantizeLinear", *operands).dequantize(0, 1, general=True)
    turned = node.transpose(real, (1, 0), f"{node.result}.turned")
    product = import_matmul(node.as_operator("MatMul", node.input(0), turned))
    return node.binary("Add", product, node.input(5)) if node.has(5) else product


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Unpack numbers of `bits` bits from bytes, lowest bits first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)
