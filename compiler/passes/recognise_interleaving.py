"""Recognise pixels that come from channels: DepthToSpace of a convolution -> QInterleave.

Each phase of the pixels is a convolution of its own, with those output channels that it needs, and
without taps whose weights are all zero. The accelerator stores its results where they belong, so
that the movement costs nothing. The host moves pixels that only it reads, and those of few channels
for which so many convolutions would leave too many lanes empty.
"""

from dataclasses import replace

import numpy as np

from ..graph import Graph, is_accelerated
from ..graph import operators as ops
from ..rewriting import Site, constant, op, rewrite, rule_of, value
from .expand_transposed_convolutions import CHANNEL_MAJOR, PHASE_MAJOR
from .patterns import TO_FIRST
from .wide_weights import lane_blocks

MAX_PHASES = 16
"""Maximum number of convolutions into which one is split."""

HOST_STEPS, ELEMENT_STEPS = 10_000, 0.6
"""About how many cycles of GEMM take as long as the host, and for each element that it moves."""

PHASES = op(
    *(ops.QConv, value("x"), constant("w")),
    *(constant("bias"), constant("scale")),
    capture="conv",
    where=lambda conv: conv.kind != "dense",
    private=True,
)
SPLIT = op(
    ops.Reshape,
    op(ops.Transpose(TO_FIRST), PHASES, private=True),
    capture="split",
    where=lambda split: len(split.shape) == 6,
    private=True,
)


MOVES = (ops.Reshape, ops.Transpose, ops.Slice, ops.QSlice)


def recognise_interleaving(graph: Graph) -> Graph:
    """Split convolutions whose channels become pixels, and interleave their results."""
    read = _read_by_layers(graph)

    @rule_of(
        ops.Reshape,
        op((ops.Transpose(PHASE_MAJOR), ops.Transpose(CHANNEL_MAJOR)), SPLIT, capture="turn"),
    )
    def recognise(
        site: Site, turn: ops.Transpose, split: ops.Reshape, conv: ops.QConv, x: str, w: str
    ) -> str | None:
        """Reshape(Transpose(Reshape(QConv(x)))), a DepthToSpace -> QInterleave of QConv(x), ..."""
        made, phase_major = site.node("conv"), turn.permutation == PHASE_MAJOR
        n, height, width, whole = made.output.type.shape
        rows, columns = split.shape[1:3] if phase_major else split.shape[2:4]
        count = rows * columns
        channels = whole // max(count, 1)
        fits = site.shape == (n, channels, height * rows, width * columns)
        fits = fits and split.shape[0] == n and split.shape[4:] == (height, width)
        if not fits or not 1 < count <= MAX_PHASES or (phase_major and conv.groups > 1):
            return None
        if site.root.output.name not in read:
            return None
        places = [slice(phase * channels, (phase + 1) * channels) for phase in range(count)]
        if not phase_major:
            places = [slice(phase, None, count) for phase in range(count)]
        split_up = [_without_zeros(conv, site.data(w)[..., chosen]) for chosen in places]
        further = sum(_steps(weights) for _, weights in split_up) - _steps(site.data(w))
        if n * height * width * further > HOST_STEPS + ELEMENT_STEPS * made.output.type.elements:
            return None
        parts = []
        for phase, (chosen, (trimmed, weights)) in enumerate(zip(places, split_up, strict=True)):
            label, kind = f"{made.name}.{phase}", made.output.type.quantisation
            held = [site.constant(weights, f"{label}.weights")]
            for name, what in zip(made.inputs[2:], ("bias", "scale"), strict=True):
                held.append(site.constant(site.data(name)[chosen].copy(), f"{label}.{what}"))
            parts.append(site.emit(trimmed, x, *held, label=label, quantisation=kind))
        pixels = site.emit(ops.QInterleave((rows, columns)), *parts)
        return site.emit(ops.Transpose(TO_FIRST), pixels)

    return rewrite(graph, recognise)


def _read_by_layers(graph: Graph) -> set[str]:
    """Return the values that layers of the accelerator read, directly or after moves."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        moves = isinstance(node.attributes, MOVES)
        if node.outputs[0].name in found if moves else is_accelerated(node):
            found.update(node.inputs)
    return found


def _steps(weights: np.ndarray) -> int:
    """Return the cycles of GEMM for a pixel, with the lanes of a usual machine."""
    height, width, depth, channels = weights.shape
    return height * width * lane_blocks(depth) * lane_blocks(channels)


def _without_zeros(conv: ops.QConv, weights: np.ndarray) -> tuple[ops.QConv, np.ndarray]:
    """Drop rows and columns of zeros at the window's edges, as far as padding allows it."""
    pads, kept = list(conv.pads), []
    for axis in (0, 1):
        others = tuple(i for i in range(4) if i != axis)
        places = np.flatnonzero(weights.any(axis=others))
        first, last = (places[0], places[-1]) if len(places) else (0, 0)
        step, size = conv.dilations[axis], weights.shape[axis]
        before = min(int(first), pads[axis] // step)
        after = min(size - 1 - int(last), pads[axis + 2] // step)
        pads[axis] -= before * step
        pads[axis + 2] -= after * step
        kept.append(slice(before, size - after))
    top, left, bottom, right = pads
    weights = np.ascontiguousarray(weights[tuple(kept)])
    return replace(conv, pads=(top, left, bottom, right)), weights
