"""Whole networks whose kernels run as PTX: they compute what the graph and the CPU target do."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.compiler.cpu import compile_kernel as compile_for_cpu
from tilewright.compiler.gpu.kernel import compile_kernel, planned_for
from tilewright.compiler.gpu.target import GpuTarget
from tilewright.compiler.graph import Graph
from tilewright.compiler.graph.evaluate import evaluate, evaluate_node
from tilewright.compiler.host.kernel import HostKernel
from tilewright.compiler.host.order import RunKernel
from tilewright.compiler.host.plan import plan_host
from tilewright.examples import keywords

from ..onnx_models import model, value
from .running import run_kernel

DIGITS = Path(tilewright.__file__).parent / "examples/digits"


def run_network(graph: Graph, inputs: Mapping[str, np.ndarray]) -> tuple[dict, int]:
    """All values of a graph, its kernels run as PTX, and the number of these kernels.

    Each kernel is compared with the CPU target as well: integers exactly.
    """
    plan = plan_host(graph, [n.outputs[0].name for n in graph.nodes], [], planned_for(), least_work=0)
    steps = {event.kernel.output: event.kernel for event in plan.events if isinstance(event, RunKernel)}
    values, count, inside = dict(inputs), 0, set()
    for step in steps.values():
        if isinstance(step, HostKernel):
            inside |= {node.output.name for node in step.nodes}
    for node in graph.nodes:
        name = node.outputs[0].name
        step = steps.get(name)
        if isinstance(step, HostKernel):
            kernel = compile_kernel(step.description, GpuTarget())
            operands = step.description.operands
            given = {
                operand: np.ascontiguousarray(_value(graph, values, source)).reshape(operands[operand].shape)
                for operand, source in step.inputs.items()
            }
            found = run_kernel(kernel, given, step.constants)
            _check(found, compile_for_cpu(step.description, planned_for()).bind(**step.constants)(*given.values()))
            values[name] = found.reshape(graph.types[name].shape)
            count += 1
        elif name not in inside:
            values |= zip(
                (output.name for output in node.outputs),
                evaluate_node(node, {n: _value(graph, values, n) for n in node.inputs}),
                strict=True,
            )
    return values, count


def _value(graph: Graph, values: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    return graph.data(name) if graph.is_constant(name) else values[name]


def _check(found: np.ndarray, expected: np.ndarray) -> None:
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(found, expected)
