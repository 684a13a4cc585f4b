"""Importers of ONNX Runtime's embeddings: of positions by rotation, and of words with their norm.

Source: ONNX Runtime, documentation of the contributed operators.
"""

import numpy as np

from .onnx_body import Body
from .onnx_node import OnnxNode
from .onnx_scope import Named


def import_rotary_embedding(node: OnnxNode) -> list[Named]:
    """Import RotaryEmbedding; its operands are those of ONNX's operator in another order."""
    body = Body(node)
    if node.attribute("scale", 1.0) != 1.0 or node.attribute("is_packed_batching", 0):
        node.refuse("scale or packed batch in RotaryEmbedding", "one", "export without it")
    shape, places = body.shape(0), "input.1"
    batch, positions = shape[0], shape[-2]
    if body.shape(1) == (1,):
        places = body("Add", places, np.tile(np.arange(positions), (batch, 1)))
    width = node.attribute("rotary_embedding_dim", 0)
    count = node.attribute("num_heads", 0) or shape[-1] // (2 * body.shape(2)[1])
    turn = {"interleaved": node.attribute("interleaved", 0), "rotary_embedding_dim": width}
    if len(shape) == 3:
        turn["num_heads"] = count
    return body.expand(body("RotaryEmbedding", "input.0", "input.2", "input.3", places, **turn))


def import_embeddings(node: OnnxNode) -> list[Named]:
    """Import EmbedLayerNormalization: the norm of a sum of two or three embeddings."""
    body = Body(node)
    batch, positions = body.shape(0)
    places = body.given(8) or body.constant(np.arange(positions)[None])
    total = body("Add", body("Gather", "input.2", "input.0"), body("Gather", "input.3", places))
    if node.has(4):
        total = body("Add", total, body("Gather", "input.4", "input.1"))
    norm = {"axis": -1, "epsilon": node.attribute("epsilon", 1e-12)}
    result = body("LayerNormalization", total, "input.5", "input.6", **norm)
    counts = body.constant(np.zeros(batch, np.int32))
    if node.has(7):
        counts = body("ReduceSum", "input.7", np.array([1]), keepdims=0)
    return body.expand(result, counts, total)
