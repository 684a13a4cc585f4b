"""The layout of a segment's activations in main memory."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...aligned import round_up
from ...errors import CompileError
from ...isa.configuration import Configuration
from ..accelerator.dma import DramTensor
from ..accelerator.kernels import build_kernel
from ..accelerator.kernels.common import channel_block
from ..accelerator.kernels.first_layer import Image, find_images
from ..accelerator.lower_bound import OnChip
from ..accelerator.search import legal_candidates
from ..graph import Graph, Node
from ..graph.boundary import boundary
from ..graph.operators import Accelerated
from ..module import Binding
from ..options import Options
from ..tensor import Kernel
from .tensor_placement import TensorPlacement, TensorPlacements, place_tensors

if TYPE_CHECKING:
    from ..scheduling.fusion import Group, MovementGroup


@dataclass(frozen=True, slots=True)
class SegmentLayout:
    """A segment before its schedules are chosen.

    Parameters
    ----------
    nodes
        Accelerated nodes in order.
    configuration
        The machine that the layout is for.
    inputs, outputs
        Activations that enter and leave.
    constants
        Operands known at compile time, such as position embeddings; they lie among the weights.
    images
        Inputs stored in memory as images.
    bindings
        Layout of each activation, without its address.
    placements
        The placements of activations that are parts of others.
    """

    graph: Graph
    nodes: tuple[Node, ...]
    configuration: Configuration
    options: Options
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...]
    images: Mapping[str, Image]
    bindings: Mapping[str, Binding]
    placements: TensorPlacements


def lay_out_segment(
    graph: Graph, nodes: Sequence[Node], configuration: Configuration, options: Options
) -> SegmentLayout:
    """The properties of a segment that follow from its nodes alone.

    Raises
    ------
    CompileError
        For an activation that is not [N, H, W, C].
    """
    inputs, outputs = boundary(graph, nodes)
    images = _images(graph, nodes, inputs, configuration, options) if options.gather else {}
    operands = dict.fromkeys(name for node in nodes for name in node.operands)
    constants = tuple(filter(graph.is_constant, operands))
    values = [*inputs, *constants, *(node.output.name for node in nodes)]
    bindings = {name: _binding(name, graph, images, configuration) for name in values}
    placements = place_tensors(
        graph, nodes, {name: place.stored_shape for name, place in bindings.items()}
    )
    return SegmentLayout(
        *(graph, tuple(nodes), configuration, options),
        *(tuple(inputs), tuple(outputs), constants, images, bindings, placements),
    )


def _images(
    graph: Graph,
    nodes: Sequence[Node],
    inputs: Sequence[str],
    configuration: Configuration,
    options: Options,
) -> dict[str, Image]:
    """Inputs of `nodes` with an image layout whose windows fit the scratchpads."""
    images = {}
    for name, image in find_images(graph, nodes, inputs, configuration).items():
        (reader,) = graph.users(name)
        kernel = build_kernel(reader, graph, configuration, {name: image})
        depth = options.pipeline_depth
        if next(legal_candidates(kernel, configuration, depth), None) is not None:
            images[name] = image
    return images


def constant_bytes(data: np.ndarray, place: Binding) -> bytes:
    """A constant operand int8[N, H, W, C] as it lies in memory, with its padding channels."""
    widths = [
        (0, stored - size) for stored, size in zip(place.stored_shape, data.shape, strict=True)
    ]
    return np.pad(data, widths).tobytes()


def lifetimes(
    graph: Graph,
    groups: Sequence["Group | MovementGroup"],
    layout: SegmentLayout,
    keep_all: bool,
    unstored: Collection[str] = (),
) -> dict[str, tuple[int, int]]:
    """First and last step of every value in memory, which those that are `unstored` never reach.

    Inputs exist before the first group, outputs after the last.
    """
    first = dict.fromkeys(layout.inputs, -1)
    last = dict.fromkeys(layout.inputs, -1)
    for step, group in enumerate(groups):
        for name in group.inputs:
            if not graph.is_constant(name):
                last[name] = step
        for name in group.outputs:
            first[name] = last[name] = step
    for name in first if keep_all else layout.outputs:
        last[name] = len(groups)
    return {name: (step, last[name]) for name, step in first.items() if name not in unstored}


def between_kernels(kernels: Iterable[Kernel], layout: SegmentLayout) -> OnChip:
    """The values of a segment that need not pass main memory, with any grouping of the kernels."""
    wholes = {name: place.whole for name, place in layout.placements.of.items()}
    return OnChip.between(kernels, layout.outputs, wholes, layout.configuration)


def bind(place: Binding, placement: TensorPlacement, resident: DramTensor) -> Binding:
    """The place of a value in memory."""
    if not placement.strides:
        return replace(place, offset=resident.base)
    return replace(
        place,
        offset=resident.base,
        stored_shape=place.shape,
        whole=placement.whole,
        strides=placement.strides,
    )


def _binding(
    name: str, graph: Graph, images: Mapping[str, Image], configuration: Configuration
) -> Binding:
    """The layout of a value in memory, without its address."""
    shape = graph.types[name].shape
    if len(shape) != 4:
        raise CompileError(
            f"value `{name}`: an accelerated layer needs [N, H, W, C], got {list(shape)}"
        )
    if name in images:
        image = images[name]
        return Binding(name, 0, image.stored_shape, shape, image.border[:2], image.fill)
    block = channel_block(configuration)
    maker = graph.producer(name)
    if maker is not None and isinstance(maker.attributes, Accelerated):
        block *= maker.attributes.result_bytes
    return Binding(name, 0, (*shape[:3], round_up(shape[3], block)), shape)
