"""The front end: it turns a model file into a graph whose quantised layers are exact in integers.

The accelerator may run the integer operators of the graph. The host runs all other operators.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import numpy as np

from ...argument_types import checked
from ...errors import ImportModelError
from .. import passes
from ..graph import Graph, verify
from ..importers import NOTHING, RefusedError, import_onnx

RECIPE: tuple[Callable[[Graph], Graph], ...] = (
    passes.eliminate_dead_code,  # initialisers without readers
    passes.widen_floats,  # float16, which neither kernels nor the accelerator compute
    passes.fold_constants,  # shapes and reshaped weights; Dequantize stays on integers
    passes.plain_attention,  # one form of softmax, masks and biases
    passes.sink_dequantize,  # so that elements move as integers
    passes.shift_unsigned,  # one activation type: int8
    passes.sink_dequantize,  # pairs that the shifts brought together
    passes.fold_constants,  # moved or shifted weights
    passes.recognise_reductions,  # means and maxima, as layers and pools
    passes.sink_dequantize,  # below maxima
    passes.expand_volumes,  # images, one for each depth
    passes.expand_transposed_convolutions,  # convolutions whose channels become pixels
    passes.lift_sequences,  # images of one row
    passes.sink_dequantize,  # so that these elements move as integers
    passes.annotate_quantisation,  # of inputs, so that unchanged values are recognised
    passes.split_products,  # queries, keys and values without copies
    passes.split_batched_weights,  # one dense layer for each matrix
    passes.fold_scales,  # batch normalisation behind layers whose operands alone are quantised
    passes.recognise_convolutions,  # with bias, Relu and Clip
    passes.recognise_matmuls,  # of two activations: attention
    passes.recognise_biases,  # biases that are added after a layer
    passes.recognise_states,  # sums of products that recurrent cells keep in 16 bits
    passes.recognise_adds,  # constants fitted on all operand pairs
    passes.recognise_pools,  # constants fitted on all sums
    passes.recognise_own_kernels,  # declared by the user
    passes.recognise_tables,  # late: a table would also absorb a lone Relu after a layer
    passes.recognise_muls,  # after tables, which also hold products of one value's functions
    passes.recognise_products,  # those that are read in float leave as int32
    passes.fold_dequantize,  # constants, so that only activations are joined as integers
    passes.recognise_concats,  # integer movements, which compute nothing
    passes.recognise_resizes,  # from the source elements of each result
    passes.recognise_shifts,  # rows at another pitch, as of relative positions
    passes.recognise_slices,  # slices read in place
    passes.recognise_interleaving,  # pixels that come from channels
    passes.arrange_layout,  # channels last; Transposes meet and cancel
    passes.absorb_heads,  # matrix products that read heads in place
    passes.arrange_layout,  # pairs that the previous pass brought together
    passes.absorb_flatten,  # dense layers on images
    passes.absorb_padding,  # explicit Pad
    passes.trim_windows,  # taps that meet only padding
    passes.fold_tables,  # tables that only clamp
    passes.fold_dequantize,  # float weights of host operators
    passes.merge_duplicates,  # equal layout changes for several users
    passes.fold_into_convolutions,  # batch normalisation of the host's float layers
    passes.channels_last,  # the host's float images, as its kernels read them
    passes.merge_duplicates,  # images that were moved for several users
)


def recognise_layers(
    graph: Graph,
    last: int = len(RECIPE),
    on_pass: Callable[[int, str, Graph], None] = lambda position, name, graph: None,
) -> Graph:
    """Apply the recipe, verifying the graph after each pass.

    Parameters
    ----------
    graph : Graph
        The imported graph.
    last : int
        Number of passes to apply; a smaller number gives an intermediate graph.
    on_pass : callable
        Called after each pass with its position, counted from 1, its name, and the graph.

    Raises
    ------
    CompileError
        If a node whose inputs are constant cannot be evaluated.
    """
    given = graph.imported or graph
    for position, step in enumerate(RECIPE[:last], 1):
        graph = verify(step(graph), step.__name__)
        on_pass(position, step.__name__, graph)
    return replace(graph, imported=given)


@checked("import_model", ImportModelError)
def import_model(
    source: str | os.PathLike[str] | bytes,
    batch: int = 1,
    fixed: Mapping[str, np.ndarray] = NOTHING,
    dims: Mapping[str, int] = NOTHING,
    outputs: Sequence[str] = (),
    masks: Collection[str] = (),
) -> Graph:
    """Read an ONNX model and recognise its quantised layers; a float model stays in float.

    Parameters
    ----------
    source : path or bytes
        The file, or its contents.
    batch : int
        Extent of the leading dimension, if the model leaves it open.
    fixed, dims : mapping
        Values of inputs that determine shapes, and extents of other open dimensions, by name; see
        `import_onnx`.
    outputs : sequence of str
        Values at which to cut the model; none for its own outputs.
    masks : collection of str
        Float inputs that are masks of attention; see `import_onnx`.

    Returns
    -------
    Graph
        Integer operators on int8[N, H, W, C] (`is_accelerated`) and host operators. The inputs and
        outputs are those of the model.

    Raises
    ------
    ImportModelError
        If the file is damaged or uses an unsupported feature.
    CompileError
        If a node whose inputs are constant cannot be evaluated.
    """
    read = partial(import_onnx, source, batch, dims=dims, outputs=outputs, masks=masks)
    graph = read(fixed=fixed)
    if fixed and all(graph.is_constant(output.value) for output in graph.outputs):
        _refuse_constant_network(fixed, read)
    return recognise_layers(graph)


def _refuse_constant_network(fixed: Iterable[str], read: Callable[[], Graph]) -> NoReturn:
    """Refuse fixed inputs from which all outputs follow, and say where the model can be cut.

    Raises
    ------
    ImportModelError
        Always.
    """
    remedy = "give it as data"
    try:
        read()
    except RefusedError as error:
        if error.cut:
            remedy += f", and cut the model: `--outputs {','.join(error.cut)}`"
    listed = ", ".join(f"`{name}`" for name in fixed)
    raise ImportModelError(
        f"fixed {listed}: expected outputs that are computed at run time, got constants alone: "
        f"this input holds the data, not sizes; {remedy}"
    )
