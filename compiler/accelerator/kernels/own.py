"""Kernels that users declared, as kernels of a network: channels are padded, tensors get places."""

from dataclasses import replace

import numpy as np

from ....errors import CompileError, UnfitError
from ....isa.expressions import Affine, reads_of
from ...graph import Node
from ...graph.operators.own import QKernel, given_tensors
from ...tensor import Axis, Kernel, Tensor
from ..phases import phases_of
from .common import StoredNode, kernel_of

IMAGE = 4
"""Dimensions of an activation."""


@kernel_of.register
def own_kernel(operator: QKernel, site: StoredNode) -> Kernel:
    """The user's kernel, if it computes every channel by itself.

    Raises
    ------
    UnfitError
        When it does not, or no instruction computes one of its stages.
    """
    node, graph, kernel = site.node, site.graph, operator.declared
    channel = _channel(node, kernel)
    tensors: dict[str, Tensor] = {}
    constants: dict[str, np.ndarray] = {}
    names: dict[str, str] = {}
    out = site.activation(node.output.name).tensor
    size = out.shape[-1]
    seen: set[str] = set()
    for given, value in zip(given_tensors(kernel), node.inputs, strict=True):
        if graph.is_constant(value):
            data = graph.data(value)
            if channel[given.name]:
                widths = [*[(0, 0)] * (data.ndim - 1), (0, size - data.shape[-1])]
                data = np.pad(data, widths, "edge")
            names[given.name] = f"own {given.name}"
            tensors[given.name] = replace(given, shape=data.shape)
            constants[given.name] = data
        elif len(given.shape) != IMAGE or not channel[given.name]:
            raise _unfit(node, f"`{value}` is not read channel by channel as [N, H, W, C]")
        else:
            tensor = site.activation(value, given.pad, again=value in seen).tensor
            names[given.name], tensors[given.name] = tensor.name, tensor
            seen.add(value)
    stages = []
    for stage in kernel.stages:
        axes = (*stage.axes[:-1], Axis(stage.axes[-1].name, size))
        name = f"own {stage.output.name}"
        output = replace(stage.output, shape=tuple(axis.extent for axis in axes))
        if stage is kernel.stages[-1]:
            output, name = out, out.name
        names[stage.output.name] = name
        tensors[stage.output.name] = output
        output = replace(output, name=stage.output.name)
        stages.append(replace(stage, output=output, axes=axes))
    made = Kernel(node.name, tuple(stages), tensors, constants).renamed(names)
    try:
        phases_of(made)
    except CompileError as problem:
        raise _unfit(node, str(problem)) from problem
    return made


def _channel(node: Node, kernel: Kernel) -> dict[str, bool]:
    """Whether the last index of each given tensor is the channel, which no other index may be."""
    found: dict[str, bool] = {}
    for stage in kernel.stages:
        if len(stage.axes) != IMAGE:
            raise _unfit(node, f"stage `{stage.output.name}` is not [N, H, W, C]")
        name = stage.axes[-1].name
        for read in reads_of(stage.body):
            *outer, last = read.index or (Affine(),)
            is_channel = last == Affine.of(**{name: 1})
            mixed = any(affine.coefficient(name) for affine in outer)
            if mixed or (last.coefficient(name) and not is_channel):
                raise _unfit(node, f"`{read}` does not read channels one by one")
            if found.setdefault(read.tensor, is_channel) is not is_channel:
                raise _unfit(node, f"`{read.tensor}` is read in two ways")
    return found


def _unfit(node: Node, why: str) -> UnfitError:
    return UnfitError(f"layer `{node.name}`: {why}; the host runs it, or declare it otherwise")
