"""ONNX's float operators: the table of everything that can be imported.

An operator is supported if it is in `HANDLERS`; the importer lists all others in one error.
"""

from collections.abc import Callable, Sequence

from ..graph import operators as ops
from ..graph.operators import Einsum
from . import onnx_elementwise as elementwise
from . import onnx_indexing as indexing
from . import onnx_integers as integers
from . import onnx_normalisations as normalisations
from . import onnx_resample as resample
from . import onnx_shapes as shapes
from . import onnx_volumes as volumes
from . import onnx_windows as windows
from .onnx_contributed import CONTRIBUTED_HANDLERS
from .onnx_gemm import import_gemm, import_matmul
from .onnx_node import OnnxNode
from .onnx_quantised import QUANTISED_HANDLERS
from .onnx_recurrent import import_recurrent
from .onnx_scope import Named

Handler = Callable[[OnnxNode], str | Sequence[Named] | None]
"""Emits a node and returns the value of each of its outputs; None where it declines the node."""


def import_softmax(node: OnnxNode) -> str:
    """Softmax, LogSoftmax; before operator set 13 over all axes from `axis` on -> Softmax."""
    rank = node.rank(0)
    axis = node.axis(-1 if node.opset >= 13 else 1, rank)
    stop = axis + 1 if node.opset >= 13 else rank
    operator = ops.Softmax(axis, stop, node.proto.op_type == "LogSoftmax")
    return node.emit(operator, [node.input(0)])


def import_reduce(node: OnnxNode) -> str:
    """Reductions -> Reduce; a mean over an image -> a pool."""
    kind = node.type(0)
    shape, axes = kind.shape, node.attribute("axes", ())
    if not axes and node.has(1):
        axes = node.integers(1)
    if not axes and not node.attribute("noop_with_empty_axes", 0):
        axes = tuple(range(len(shape)))
    axes = tuple(sorted(node.normalise(axis, len(shape)) for axis in axes))
    keep = bool(node.attribute("keepdims", 1))
    image = axes == (2, 3) and len(shape) == 4 and kind.dtype == "float32"
    if node.proto.op_type != "ReduceMean" or not image:
        if node.proto.op_type in ("ReduceMax", "ReduceMin") and kind.dtype == "bool":
            return _reduce_flags(node, axes, keep)
        return node.emit(ops.Reduce(node.proto.op_type, axes, keep), [node.input(0)])
    pooled = windows.emit_global_pool(node, node.input(0), average=True)
    return pooled if keep else node.emit(ops.Reshape(shape[:2]), [pooled], f"{pooled}.flat")


def _reduce_flags(node: OnnxNode, axes: tuple[int, ...], keep: bool) -> str:
    """Reduce bools as the numbers 0 and 1."""
    base = node.proto.output[0]
    numbers = node.emit(ops.Cast("uint8"), [node.input(0)], f"{base}.numbers")
    reduced = node.emit(ops.Reduce(node.proto.op_type, axes, keep), [numbers], f"{base}.number")
    return node.emit(ops.Cast("bool"), [reduced])


def import_position(node: OnnxNode) -> str:
    """ArgMax and ArgMin, the first or the last of equals -> Reduce."""
    last = "Last" if node.attribute("select_last_index", 0) else ""
    axes = (node.axis(0, node.rank(0)),)
    operator = ops.Reduce(f"{last}{node.proto.op_type}", axes, bool(node.attribute("keepdims", 1)))
    return node.emit(operator, [node.input(0)])


def import_einsum(node: OnnxNode) -> str:
    """Einsum -> Einsum."""
    return node.emit(Einsum(node.attribute("equation", "")), node.inputs())


REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

FLOAT_HANDLERS: dict[str, Handler] = {
    **dict.fromkeys((*elementwise.PLAIN_UNARY, *elementwise.PARAMETERS), elementwise.import_unary),
    **dict.fromkeys(elementwise.PLAIN_BINARY, elementwise.import_binary),
    **dict.fromkeys(("Softmax", "LogSoftmax"), import_softmax),
    **dict.fromkeys((f"Reduce{kind}" for kind in REDUCTIONS), import_reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), import_position),
    **dict.fromkeys(("MaxPool", "AveragePool"), windows.import_pool),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool"), windows.import_global_pool),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), import_recurrent),
    **dict.fromkeys(("CumSum", "CumProd"), indexing.import_cumulate),
    **dict.fromkeys(("ScatterElements", "Scatter"), indexing.import_scatter_elements),
    **dict.fromkeys(("Resize", "Upsample"), resample.import_resample),
    "BatchNormalization": normalisations.import_batch_normalisation,
    "BitShift": elementwise.import_bit_shift,
    "Cast": elementwise.import_cast,
    "Clip": elementwise.import_clip,
    "Compress": indexing.import_compress,
    "Concat": shapes.import_concat,
    "Constant": shapes.import_constant,
    "ConstantOfShape": indexing.import_constant_of_shape,
    "Conv": windows.import_conv,
    "ConvInteger": integers.import_conv_integer,
    "ConvTranspose": volumes.import_conv_transpose,
    "DepthToSpace": shapes.import_depth_to_space,
    "Dropout": shapes.import_dropout,
    "Einsum": import_einsum,
    "Expand": indexing.import_expand,
    "EyeLike": indexing.import_eye_like,
    "Flatten": shapes.import_flatten,
    "Gather": shapes.import_gather,
    "GatherElements": indexing.import_gather_elements,
    "GatherND": indexing.import_gather_nd,
    "Gelu": elementwise.import_gelu,
    "Gemm": import_gemm,
    "GlobalLpPool": volumes.import_global_lp_pool,
    "Hardmax": normalisations.import_hardmax,
    "Identity": shapes.import_identity,
    "InstanceNormalization": normalisations.import_instance_normalisation,
    "IsInf": elementwise.import_is_inf,
    "LRN": normalisations.import_local_response,
    "LpPool": volumes.import_lp_pool,
    "MatMul": import_matmul,
    "MatMulInteger": integers.import_matmul_integer,
    "Mean": normalisations.import_mean,
    "Mod": elementwise.import_modulo,
    "Pad": shapes.import_pad,
    "Pow": elementwise.import_power,
    "Range": indexing.import_range,
    "Reshape": shapes.import_reshape,
    "ScatterND": indexing.import_scatter_nd,
    "Shape": shapes.import_shape,
    "Size": indexing.import_size,
    "Slice": shapes.import_slice,
    "SpaceToDepth": shapes.import_space_to_depth,
    "Split": shapes.import_split,
    "Squeeze": shapes.import_squeeze,
    "Tile": indexing.import_tile,
    "TopK": indexing.import_top_k,
    "Transpose": shapes.import_transpose,
    "Trilu": indexing.import_triangle,
    "Unsqueeze": shapes.import_unsqueeze,
    "Where": elementwise.import_where,
}

HANDLERS: dict[tuple[str, str], Handler] = {
    **{("", kind): handler for kind, handler in FLOAT_HANDLERS.items()},
    ("com.microsoft", "Gelu"): elementwise.import_gelu,
    **QUANTISED_HANDLERS,
    **CONTRIBUTED_HANDLERS,
}
"""(domain, operator) -> its importer."""
