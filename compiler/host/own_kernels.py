"""Kernels that users declared, as kernels of the CPU target."""

from dataclasses import replace

from ..cpu import Declared
from ..cpu.plain_schedules import schedule_loops
from ..graph import Node
from ..graph.operators import OwnKernel, QKernel
from ..graph.operators.own import given_tensors
from ..rewriting import op
from .kernel import HostKernel, HostScope, matcher


@matcher(op((OwnKernel, QKernel)))
def match_own(scope: HostScope, node: Node) -> HostKernel | None:
    """Match a kernel of the user's; floats are summed and rounded in another order."""
    operator = node.attributes
    assert isinstance(operator, (OwnKernel, QKernel))
    pairs = list(zip(given_tensors(operator.declared), node.inputs, strict=True))
    held = {t.name: scope.data(name) for t, name in pairs if scope.is_constant(name)}
    kernel = replace(operator.declared, constants=held)
    steps = str(schedule_loops(kernel, scope.target.processor))
    described = Declared(kernel, steps)
    sources = {tensor.name: name for tensor, name in pairs}
    inputs = {name: sources[name] for name in described.operands if name not in held}
    constants = {name: held[name] for name in described.constants}
    exact = isinstance(operator, QKernel)
    return HostKernel(described, inputs, constants, (node,), exact)


MATCHERS = (match_own,)
