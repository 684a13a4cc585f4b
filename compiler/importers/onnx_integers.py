"""Integer products as ONNX defines them -> exact products of int32, zero points subtracted."""

from ..graph import operators as ops
from .onnx_gemm import emit_matmul
from .onnx_node import OnnxNode
from .onnx_volumes import emit_volume_conv


def _centred(node: OnnxNode, index: int, zero_point: int, axis: int) -> str:
    """Emit `int32(x) - zero point`; a zero point of several elements goes along `axis`."""
    x = node.input(index)
    wide = node.emit(ops.Cast("int32"), [x], f"{x}.int32")
    if not node.has(zero_point):
        return wide
    zero = node.input(zero_point)
    kind, rank = node.builder.types[zero], node.rank(index)
    zero = node.emit(ops.Cast("int32"), [zero], f"{zero}.int32")
    if kind.elements == 1:
        zero = node.emit(ops.Reshape(()), [zero], f"{zero}.scalar")
    elif len(kind.shape) == 1:
        spread = tuple(kind.elements if i == axis % rank else 1 for i in range(rank))
        zero = node.emit(ops.Reshape(spread), [zero], f"{zero}.spread")
    return node.binary("Sub", wide, zero, f"{x}.centred")


def import_matmul_integer(node: OnnxNode) -> str:
    """MatMulInteger -> MatMul of int32."""
    return emit_matmul(node, _centred(node, 0, 2, axis=-2), _centred(node, 1, 3, axis=-1))


def import_conv_integer(node: OnnxNode) -> str:
    """ConvInteger -> VolumeConv of int32."""
    return emit_volume_conv(node, [_centred(node, 0, 2, axis=1), _centred(node, 1, 3, axis=0)])
