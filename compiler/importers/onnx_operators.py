"""The table of imported ONNX operators: their forms, or a row or function if more is needed.

All other operators are expanded by ONNX's own definition (`onnx_functions`), run by its reference
implementation (`onnx_library`), or rejected.
"""

from collections.abc import Callable, Sequence

from ..graph import operators as ops
from ..graph.functions import BINARY, UNARY
from ..graph.operators.reductions import REDUCTIONS
from . import onnx_elementwise as elementwise
from . import onnx_images as images
from . import onnx_movement as movement
from . import onnx_normalisations as normalisations
from . import onnx_products as products
from . import onnx_sampling as sampling
from . import onnx_shapes as shapes
from .onnx_contributed import CONTRIBUTED_HANDLERS
from .onnx_control import CONTROL_HANDLERS
from .onnx_node import OnnxNode
from .onnx_qonnx import QONNX_HANDLERS
from .onnx_quantised import QUANTISED_HANDLERS
from .onnx_recurrent import import_recurrent
from .onnx_resize import import_resize
from .onnx_rows import attribute, axis, by_form, flag, row, scalar, since
from .onnx_scope import Key, Named
from .onnx_sequences import SEQUENCE_HANDLERS

Handler = Callable[[OnnxNode], str | Sequence[Named] | None]
"""Function that emits a node and returns its output values, or None to decline the node."""


def import_reduce(node: OnnxNode) -> str:
    """Import reductions as Reduce, and a mean over an image as a pool."""
    x, kind, op = node.input(0), node.type(0), node.proto.op_type
    rank, axes = len(kind.shape), node.listed("axes", 1)
    if not axes and not node.attribute("noop_with_empty_axes", 0):
        axes = tuple(range(rank))
    axes = tuple(sorted(node.normalise(axis, rank) for axis in axes))
    keep = bool(node.attribute("keepdims", 1))
    if op == "ReduceMean" and axes == (2, 3) and rank == 4 and kind.dtype == "float32":
        pooled = images.import_global_pool(node.as_operator("GlobalAveragePool", x))
        return pooled if keep else node.reshape(pooled, kind.shape[:2], f"{pooled}.flat")
    if kind.dtype == "bool":  # reduced as numbers: 0 and 1
        x = node.cast(x, "uint8", f"{node.result}.numbers")
    return node.cast(node.emit(ops.Reduce(op, axes, keep), [x]), kind.dtype)


def import_cumsum(node: OnnxNode) -> str | None:
    """Import CumSum as CumSum; decline an axis that is computed at run time."""
    if node.known(node.input(1)) is None:
        return None
    axis = node.normalise(int(node.scalar(1, 0)), node.rank(0))
    flags = (bool(node.attribute(name, 0)) for name in ("exclusive", "reverse"))
    return node.emit(ops.CumSum(axis, *flags), [node.input(0)])


POSITION = row(
    ops.Reduce,
    kind=elementwise.kind_of,
    axes=lambda node: (node.axis(0, node.rank(0)),),
    keep=flag("keepdims", 1),
)

ROWS: dict[str, Handler] = {
    "ArgMax": POSITION,
    "ArgMin": POSITION,
    "Scatter": by_form(ops.ScatterElements),
    "TopK": row(
        ops.TopK,
        1,
        axis=axis(-1),
        count=since(10, scalar(1), attribute("k", 0)),
        largest=flag("largest", 1),
    ),
    "Transpose": row(
        ops.Transpose,
        permutation=lambda node: node.attribute("perm", tuple(reversed(range(node.rank(0))))),
    ),
}
"""ONNX operators that correspond to one operator of the graph, but differ from its `OnnxForm`."""


def _named(kinds: Sequence[str]) -> set[str]:
    """Return ONNX's names for kinds of Unary and Binary."""
    variants = elementwise.VARIANTS
    return {variants[kind].kind if kind in variants else kind for kind in kinds}


FUNCTIONS: dict[str, Handler] = {
    "AffineGrid": sampling.import_affine_grid,
    **dict.fromkeys(_named([*UNARY]), elementwise.import_unary),
    **dict.fromkeys((*_named([*BINARY]), "Sum"), elementwise.import_binary),
    **dict.fromkeys(REDUCTIONS, import_reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax"), normalisations.import_softmax),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), images.import_pool),
    **dict.fromkeys(
        ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"), images.import_global_pool
    ),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), shapes.import_blocks),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), import_recurrent),
    **dict.fromkeys(("Resize", "Upsample"), import_resize),
    "BatchNormalization": normalisations.import_batch_normalisation,
    "Cast": elementwise.import_cast,
    "Clip": elementwise.import_clip,
    "Compress": movement.import_compress,
    "Constant": shapes.import_constant,
    "ConstantOfShape": shapes.import_constant_of_shape,
    "Conv": images.import_conv,
    "ConvInteger": products.import_conv_integer,
    "ConvTranspose": images.import_conv_transpose,
    "CumSum": import_cumsum,
    "DeformConv": sampling.import_deform_conv,
    "Dropout": shapes.import_dropout,
    "Einsum": products.import_einsum,
    "Expand": shapes.import_expand,
    "EyeLike": shapes.import_eye_like,
    "Flatten": shapes.import_flatten,
    "Gather": movement.import_gather,
    "Gemm": products.import_gemm,
    "GridSample": sampling.import_grid_sample,
    "Hardmax": normalisations.import_hardmax,
    "Identity": shapes.import_identity,
    "InstanceNormalization": normalisations.import_instance_normalisation,
    "LRN": normalisations.import_local_response,
    "LpNormalization": normalisations.import_lp_normalisation,
    "MeanVarianceNormalization": normalisations.import_mean_variance,
    "MaxUnpool": images.import_max_unpool,
    "MatMul": products.import_matmul,
    "MatMulInteger": products.import_matmul_integer,
    "OneHot": shapes.import_one_hot,
    "Pad": movement.import_pad,
    "Pow": elementwise.import_power,
    "Range": shapes.import_range,
    "Reshape": shapes.import_reshape,
    "RoiAlign": sampling.import_roi_align,
    "Shape": shapes.import_shape,
    "Size": shapes.import_size,
    "Slice": movement.import_slice,
    "Split": movement.import_split,
    "Squeeze": shapes.import_squeeze,
    "Tile": movement.import_tile,
    "Trilu": shapes.import_triangle,
    "Unsqueeze": shapes.import_unsqueeze,
}
"""ONNX operators that need more than a row."""

HANDLERS: dict[Key, Handler] = {
    **{("", kind): handler for kind, handler in {**ROWS, **FUNCTIONS}.items()},
    **QUANTISED_HANDLERS,
    **CONTRIBUTED_HANDLERS,
    **QONNX_HANDLERS,
    **CONTROL_HANDLERS,
    **SEQUENCE_HANDLERS,
}
"""(domain, operator) -> importer."""


def handler_of(key: Key) -> Handler | None:
    """Return the importer of (domain, operator): from the table, or by a class's ONNX form."""
    forms = (one for one in ops.OPERATORS.values() if one.onnx and ("", one.onnx.kind) == key)
    return HANDLERS.get(key) or next(map(by_form, forms), None)
