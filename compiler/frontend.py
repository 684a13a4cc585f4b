"""The front end: a model file -> a graph whose quantised layers have one exact integer meaning.

The result's integer operators are the accelerator's candidates; everything else is the host's.
"""

import os
from collections.abc import Callable, Mapping

import numpy as np

from . import passes
from .graph import Graph, verify
from .importers import NOTHING, import_onnx

RECIPE: tuple[Callable[[Graph], Graph], ...] = (
    passes.eliminate_dead_code,  # initialisers that nothing reads
    passes.fold_constants,  # shapes and reshaped weights; Dequantize stays on integers
    passes.sink_dequantize,  # moves happen on integers, next to Quantize or below
    passes.shift_unsigned,  # one activation type: int8
    passes.sink_dequantize,  # what the shifts have brought together
    passes.fold_constants,  # weights that were moved or shifted
    passes.annotate_quantisation,  # the inputs', so that unchanged values are seen as such
    passes.recognise_convolutions,  # with bias, Relu and Clip
    passes.recognise_matmuls,  # of two activations: attention
    passes.recognise_biases,  # those left behind a layer
    passes.recognise_adds,  # constants fitted on all operand pairs
    passes.recognise_pools,  # constants fitted on all sums
    passes.recognise_tables,  # last: a table would also swallow a lone Relu after a layer
    passes.recognise_concats,  # what only moves integers: no result of it is computed
    passes.recognise_resizes,  # from the elements that each one takes
    passes.recognise_slices,  # read where they lie
    passes.arrange_layout,  # channels last; Transposes meet and vanish
    passes.absorb_heads,  # matrix products read heads where they lie
    passes.arrange_layout,  # what that has brought together
    passes.absorb_flatten,  # dense layers on images
    passes.absorb_padding,  # explicit Pad
    passes.fold_tables,  # tables that only clamp
    passes.fold_dequantize,  # float weights of what stays on the host
    passes.merge_duplicates,  # layout changes of one value for several users
    passes.check_accumulators,  # the machine's rounding equals the definition's
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
        As imported.
    last : int
        How many passes to apply; fewer than all to look at a graph on its way.
    on_pass
        Called after each pass with its position, counted from 1, its name, and the graph.

    Raises
    ------
    CompileError
        If a layer cannot be computed exactly.
    """
    for position, step in enumerate(RECIPE[:last], 1):
        graph = verify(step(graph), step.__name__)
        on_pass(position, step.__name__, graph)
    return graph


def import_model(
    source: str | os.PathLike[str] | bytes,
    batch: int = 1,
    fixed: Mapping[str, np.ndarray] = NOTHING,
    dims: Mapping[str, int] = NOTHING,
) -> Graph:
    """Read an ONNX model and recognise its quantised layers; a float model stays in float.

    Parameters
    ----------
    source : path or bytes
        The file, or its contents.
    batch : int
        Extent of a leading dimension that the model leaves open.
    fixed, dims : mapping
        Inputs that shapes depend on, and other open dimensions, by name; see `import_onnx`.

    Returns
    -------
    Graph
        Integer operators on int8[N, H, W, C] (`is_accelerated`) and host operators; inputs and
        outputs are the model's.

    Raises
    ------
    ImportModelError
        If the file is damaged or uses what is not supported.
    CompileError
        If a layer cannot be computed exactly.
    """
    return recognise_layers(import_onnx(source, batch, fixed, dims))
