"""Importers of the operators that ONNX Runtime's optimiser adds, in the domain `com.microsoft`.

Each operator is imported as the operators from which it was made, so that the passes recognise
those. Source: ONNX Runtime, documentation of the contributed operators.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..graph import operators as ops
from ..graph.functions import UNARY
from .onnx_attention import (
    import_attention,
    import_group_query_attention,
    import_multi_head_attention,
    import_packed_attention,
    import_quantised_attention,
)
from .onnx_elementwise import import_unary
from .onnx_embeddings import import_embeddings, import_rotary_embedding
from .onnx_images import import_conv
from .onnx_node import OnnxNode
from .onnx_normalisations import import_layer_normalisation
from .onnx_products import (
    import_fused_matmul,
    import_matmul_bits,
    import_matmul_integer_to_float,
)
from .onnx_recurrent import import_dynamic_lstm
from .onnx_scope import Named

ACTIVATIONS = ("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh")
"""Activations of FusedConv; their parameters are in the same order as in Unary."""


def import_fused_conv(node: OnnxNode) -> str:
    """Import FusedConv as Conv, an optional Add, and an activation."""
    operands = [node.input(index) for index in range(3 if node.has(2) else 2)]
    result = import_conv(node.as_operator("Conv", *operands))
    if node.has(3):
        result = node.binary("Add", result, node.input(3), f"{node.result}.sum")
    kind = node.attribute("activation", "")
    if kind == "":
        return result
    parameters = node.attribute("activation_params", ())
    if kind == "Clip":
        if len(parameters) != 2:
            got = f"{list(parameters)}"
            node.fail("two limits to clip to", got, "correct `activation_params`")
        return node.emit(ops.Unary("Clip", parameters), [result])
    if kind not in ACTIVATIONS:
        node.fail(f"`activation` {', '.join(ACTIVATIONS)} or Clip", f"`{kind}`", "do not fuse it")
    wanted = len(UNARY[kind].parameters)
    if len(parameters) < wanted:
        node.fail(f"{wanted} parameters of {kind}", f"{len(parameters)}", "do not fuse it")
    return node.emit(ops.Unary(kind, parameters[:wanted]), [result])


def import_biased_gelu(node: OnnxNode) -> str:
    """Import FastGelu (by tanh) and BiasGelu as an optional Add, and Gelu."""
    x = node.input(0)
    if node.has(1):
        x = node.binary("Add", x, node.input(1), f"{node.result}.sum")
    return node.unary("GeluTanh" if node.proto.op_type == "FastGelu" else "Gelu", x)


def import_quick_gelu(node: OnnxNode) -> str:
    """Import QuickGelu as Swish: x * sigmoid(alpha * x)."""
    alpha = node.attribute("alpha", float(np.float32(1.702)))
    return node.emit(ops.Unary("Swish", (alpha,)), [node.input(0)])


CONTRIBUTED_HANDLERS: dict[tuple[str, str], Callable[[OnnxNode], str | Sequence[Named] | None]] = {
    ("com.microsoft", "Attention"): import_packed_attention,
    ("com.microsoft", "BiasGelu"): import_biased_gelu,
    ("com.microsoft", "DynamicQuantizeLSTM"): import_dynamic_lstm,
    ("com.microsoft", "EmbedLayerNormalization"): import_embeddings,
    ("com.microsoft", "FastGelu"): import_biased_gelu,
    ("com.microsoft", "FusedConv"): import_fused_conv,
    ("com.microsoft", "FusedMatMul"): import_fused_matmul,
    ("com.microsoft", "Gelu"): import_unary,
    ("com.microsoft", "GroupQueryAttention"): import_group_query_attention,
    ("com.microsoft", "MatMulIntegerToFloat"): import_matmul_integer_to_float,
    ("com.microsoft", "MatMulNBits"): import_matmul_bits,
    ("com.microsoft", "MultiHeadAttention"): import_multi_head_attention,
    ("com.microsoft", "QAttention"): import_quantised_attention,
    ("com.microsoft", "QuickGelu"): import_quick_gelu,
    ("com.microsoft", "RotaryEmbedding"): import_rotary_embedding,
    ("com.microsoft", "SkipLayerNormalization"): import_layer_normalisation,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): import_layer_normalisation,
    ("", "Attention"): import_attention,
    ("", "SimplifiedLayerNormalization"): import_layer_normalisation,
}
