"""Matrix products: MatMul as it is, Gemm as the operators that it is short for."""

import numpy as np

from ..graph import operators as ops
from ..graph.types import DTYPES
from .onnx_node import OnnxNode


def import_matmul(node: OnnxNode) -> str:
    """MatMul -> MatMul."""
    return emit_matmul(node, node.input(0), node.input(1))


def emit_matmul(node: OnnxNode, a: str, b: str) -> str:
    """Emit `a @ b`; vectors become matrices of one row or column and back."""
    left, right = (node.builder.types[x].shape for x in (a, b))
    if len(left) > 1 and len(right) > 1:
        return node.emit(ops.MatMul(), [a, b])
    if len(left) == 1:
        a = node.emit(ops.Reshape((1, *left)), [a], f"{a}.row")
    if len(right) == 1:
        b = node.emit(ops.Reshape((*right, 1)), [b], f"{b}.column")
    product = node.emit(ops.MatMul(), [a, b], f"{node.proto.output[0]}.product")
    shape = node.builder.types[product].shape
    rows = () if len(left) == 1 else shape[-2:-1]
    columns = () if len(right) == 1 else shape[-1:]
    return node.emit(ops.Reshape((*shape[:-2], *rows, *columns)), [product])


def import_gemm(node: OnnxNode) -> str:
    """Gemm -> [Transpose] MatMul [Mul] [Add]."""
    return emit_gemm(node, node.input(0), node.input(1), node.input(2) if node.has(2) else None)


def emit_gemm(node: OnnxNode, a: str, b: str, c: str | None) -> str:
    """Emit `alpha * a @ b + beta * c` with the node's attributes."""

    def scaled(value: str, name: str) -> str:
        factor = node.attribute(name, 1.0)
        if factor == 1.0:
            return value
        number = np.array(factor).astype(DTYPES[node.builder.types[value].dtype])
        constant = node.builder.constant(number, f"{value}.{name}")
        return node.binary("Mul", value, constant, f"{value}.scaled")

    if node.attribute("transA", 0):
        a = node.emit(ops.Transpose((1, 0)), [a], f"{a}.transposed")
    if node.attribute("transB", 0):
        b = node.emit(ops.Transpose((1, 0)), [b], f"{b}.transposed")
    product = scaled(node.emit(ops.MatMul(), [a, b], f"{node.proto.output[0]}.product"), "alpha")
    if c is None:
        return product
    return node.binary("Add", product, scaled(c, "beta"))
