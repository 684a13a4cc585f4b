"""Kernels of a graph's host nodes beside the graph's own definition."""

from collections.abc import Mapping

import numpy as np

from tilewright.compiler.cpu import (
    Convolution,
    CpuTarget,
    Description,
    MatrixProduct,
    compile_kernel,
    host,
)
from tilewright.compiler.formulas import operations_in
from tilewright.compiler.graph import Graph, evaluate, evaluate_node
from tilewright.compiler.host import HostKernel, may_have_kernels
from tilewright.compiler.host.select import select_kernels
from tilewright.compiler.host.work import replaced_work


def selected(graph: Graph, target: CpuTarget | None = None) -> tuple[HostKernel, ...]:
    """Kernels that a graph's nodes become, however little they do; the bound holds for all."""
    kernels = select_kernels(graph, graph.nodes, target or host(), least_work=0)
    most = max(map(replaced_work, kernels), default=0)
    assert may_have_kernels(graph, graph.nodes, most)
    return kernels


def run_kernels(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    target: CpuTarget | None = None,
    threads: int = 1,
) -> dict[str, np.ndarray]:
    """All values of a graph that are computed, by kernels where there are some."""
    target = target or host()
    kernels = {kernel.output: kernel for kernel in selected(graph, target)}
    taken = {value.name for k in kernels.values() for node in k.nodes for value in node.outputs}
    values = {constant.name: constant.data for constant in graph.constants} | dict(inputs)
    for node in graph.nodes:
        name = node.outputs[0].name
        if name in kernels:
            values[name] = call(kernels[name], values, target, threads).reshape(
                graph.types[name].shape
            )
        elif name not in taken:
            results = evaluate_node(node, [values[name] for name in node.inputs])
            for value, result in zip(node.outputs, results, strict=True):
                values[value.name] = result
    return values


def call(
    kernel: HostKernel, values: Mapping[str, np.ndarray], target: CpuTarget, threads: int = 1
) -> np.ndarray:
    """What one kernel gives."""
    operands = kernel.description.operands
    arrays = [
        np.ascontiguousarray(values[value]).reshape(operands[name].shape)
        for name, value in kernel.inputs.items()
    ]
    bound = compile_kernel(kernel.description, target, threads).bind(**kernel.constants)
    return bound(*arrays)


def is_guarded(description: Description) -> bool:
    """Whether a product's sums are requantised in the form that has all bits."""
    assert isinstance(description, Convolution | MatrixProduct)
    return "requantise" in operations_in(description.epilogue.formula)


def assert_agrees(
    graph: Graph, inputs: Mapping[str, np.ndarray], relative: float = 0.0, absolute: float = 0.0
) -> tuple[HostKernel, ...]:
    """Compare all outputs with the definition, bit for bit without tolerances; the kernels."""
    got, expected = run_kernels(graph, inputs), evaluate(graph, inputs)
    for output in graph.outputs:
        ours, wanted = got[output.value], expected[output.name]
        assert ours.dtype == wanted.dtype
        assert ours.shape == wanted.shape
        if relative or absolute:
            np.testing.assert_allclose(ours, wanted, rtol=relative, atol=absolute)
        else:
            np.testing.assert_array_equal(ours, wanted)
    return selected(graph)
