"""Kernels that users declared, as kernels of the CPU target."""

from collections.abc import Iterator
from dataclasses import replace

from ...errors import CompileError
from .. import te
from ..cpu import CpuTarget, Declared
from ..graph import Node
from ..graph.operators import OwnKernel, QKernel
from ..graph.operators.own import given_tensors
from ..rewriting import op
from ..tensor import Kernel
from .kernel import HostKernel, HostScope, matcher

LANES = 32
"""Elements that are computed side by side."""


@matcher(op((OwnKernel, QKernel)))
def match_own(scope: HostScope, node: Node) -> HostKernel | None:
    """Match a kernel of the user's; floats are summed and rounded in another order."""
    operator = node.attributes
    assert isinstance(operator, (OwnKernel, QKernel))
    pairs = list(zip(given_tensors(operator.declared), node.inputs, strict=True))
    held = {t.name: scope.data(name) for t, name in pairs if scope.is_constant(name)}
    kernel = replace(operator.declared, constants=held)
    described = Declared(kernel, _steps(kernel, scope.target))
    sources = {tensor.name: name for tensor, name in pairs}
    inputs = {name: sources[name] for name in described.operands if name not in held}
    constants = {name: held[name] for name in described.constants}
    exact = isinstance(operator, QKernel)
    return HostKernel(described, inputs, constants, (node,), exact)


def _steps(kernel: Kernel, target: CpuTarget) -> str:
    """The first of the schedules below that the kernel allows."""
    for steps in _schedules(kernel):
        try:
            te.Schedule.parse(kernel, steps, target.processor).program()
        except CompileError:
            continue
        return steps
    return ""


def _schedules(kernel: Kernel) -> Iterator[str]:
    """Threads share the outermost axis, and vectors go along the innermost."""
    (*_, last) = kernel.stages
    name, long = last.output.name, [axis for axis in last.axes if axis.extent > 1]
    if len(kernel.stages) == 1 and not last.reductions and long:
        lanes = min(LANES, long[-1].extent)
        vector = f"split({name}, {long[-1].name}, {lanes})\nvectorise({name}, {long[-1].name}.i)\n"
        if len(long) > 1:
            yield f"{vector}parallelise({name}, {long[0].name})\n"
        yield vector


MATCHERS = (match_own,)
