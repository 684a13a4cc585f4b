"""Chains of elementwise operators, computed in one pass over memory.

A chain starts at one node and grows over the readers of its last value, as long as only that value
is visible outside. It also takes nodes that feed only the chain. All its values have one shape.
"""

from collections.abc import Sequence

import numpy as np

from ...errors import CompileError
from .. import te
from ..cpu import Elementwise
from ..cpu.kernels.formulas import size_of, value_of
from ..formulas import Formula, names_in
from ..graph import Node, TensorType
from ..graph import operators as ops
from ..graph.operators import Where
from ..graph.operators.quantisation import along
from ..rewriting import op
from .formulas import (
    ELEMENTWISE,
    FLOAT,
    HALF,
    PASSING,
    TYPES,
    NoFormulaError,
    add,
    blend,
    cast,
    dequantize,
    multiply,
    number,
    pointwise,
    quantize,
    shift,
)
from .graph_queries import in_order
from .kernel import HostKernel, HostScope, matcher

MAX_NODES = 48
"""Maximum number of nodes in one chain."""

MAX_CALLS = 600
"""Maximum number of operations in one formula; an operand that is read twice counts twice."""

MAX_OPERANDS = 12
"""Maximum number of arrays that one loop reads."""


@matcher(op(ELEMENTWISE))
def chain(scope: HostScope, node: Node) -> HostKernel | None:
    """Find the longest chain that begins at a node."""
    if not _fits(scope, node):
        return None
    chains, longer = [], (node,)
    while longer:
        chains.append(longer)
        longer = _grown(scope, longer)
    # Most often the longest one has a kernel, and a kernel takes longer to make than a chain.
    # Where a node inside has no formula, or the formulas up to it exceed a limit, no other chain
    # with these nodes inside has a kernel.
    failed: list[str] = []
    for nodes in reversed(chains):
        if failed and {*failed} <= {one.output.name for one in nodes[:-1]}:
            continue
        failed = []
        if kernel := _kernel(scope, nodes, failed):
            return kernel
    return None


def _fits(scope: HostScope, node: Node) -> bool:
    """Whether a node may be part of a chain."""
    if not isinstance(node.attributes, ELEMENTWISE) or not scope.is_free(node):
        return False
    kinds = [scope.graph.types[name] for name in node.inputs] + [node.output.type]
    return all(kind.dtype in (*TYPES, *PASSING) and kind.elements for kind in kinds)


def _grown(scope: HostScope, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Extend a chain by readers of its last value until one node joins them; () if none does."""
    shape = nodes[0].output.type.shape
    found = {node.output.name: node for node in nodes}
    last = nodes[-1].output.name
    if scope.graph.is_output(last):
        return ()
    waiting = list(scope.graph.users(last))
    while waiting and len(found) <= MAX_NODES:
        node = waiting.pop()
        if node.outputs[0].name in found:
            continue
        if not _fits(scope, node) or node.output.type.shape != shape:
            return ()
        found[node.output.name] = node
        _lead(scope, node, found)
        ordered = in_order(scope.graph, found.values())
        waiting += [user for one in ordered[:-1] for user in scope.graph.users(one.output.name)]
    ordered = in_order(scope.graph, found.values())
    longer = len(ordered) > len(nodes) and not waiting
    return ordered if longer and scope.is_closed(ordered) else ()


def _lead(scope: HostScope, node: Node, found: dict[str, Node]) -> None:
    """Add the nodes that feed only this node to `found`."""
    for name in node.inputs:
        leader = scope.producer(name) if name not in found and scope.is_private(name) else None
        if leader is None or not _fits(scope, leader):
            continue
        if leader.output.type.shape == node.output.type.shape and len(found) < MAX_NODES:
            found[name] = leader
            _lead(scope, leader, found)


class FormulaOperands:
    """The operands of a formula under construction: names, types, shapes and constants.

    Parameters
    ----------
    scope : HostScope
        The nodes that the chain may take.
    shape : tuple of int
        Shape that all operands broadcast to.
    """

    def __init__(self, scope: HostScope, shape: tuple[int, ...]) -> None:
        self.scope, self.shape = scope, shape
        self.types: dict[str, str] = {}
        self.inputs: dict[str, str] = {}
        self.constants: dict[str, np.ndarray] = {}
        self._named: dict[str, str] = {}

    def value(self, name: str) -> Formula:
        """Return a value that the chain reads, as a number or an operand."""
        constant = self.scope.constant(name)
        if constant is not None:
            return self.held(constant, name)
        if name not in self._named:
            operand = self._named[name] = f"x{len(self.types)}"
            self.inputs[operand] = name
            self.types[operand] = self.scope.graph.types[name].dtype
        return self._named[name]

    def held(self, data: np.ndarray, key: str) -> Formula:
        """Return a constant, as a number or a bound operand."""
        if data.size == 1:
            if data.dtype.kind == "f":
                return number(float(data.reshape(())))
            whole = int(data.reshape(()))
            if not -(1 << 31) <= whole < 1 << 31:
                raise NoFormulaError
            return whole
        if key not in self._named:
            operand = self._named[key] = f"c{len(self.types)}"
            self.constants[operand] = data.reshape(self._aligned(data.shape))
            self.types[operand] = data.dtype.name
        return self._named[key]

    def parameter(self, values: tuple[float, ...], axis: int | None, dtype: type, key: str):
        """Return a scale or zero point: a number if all elements share it, else a bound operand."""
        if axis is None or len(set(values)) == 1:
            return self.held(np.array(values[:1], dtype), key)
        return self.held(along(values, axis, len(self.shape), dtype), key)

    def _aligned(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) > len(self.shape):
            raise NoFormulaError
        return (1,) * (len(self.shape) - len(shape)) + shape

    def keep(self, names: set[str]) -> None:
        """Drop operands that only dead nodes read."""
        for held in (self.types, self.inputs, self.constants):
            for name in set(held) - names:
                del held[name]

    def broadcast(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Operands whose shapes differ from the chain's, with these shapes."""
        shapes = {name: self.constants[name].shape for name in self.constants}
        for operand, name in self.inputs.items():
            shapes[operand] = self._aligned(self.scope.graph.types[name].shape)
        return tuple((name, shape) for name, shape in shapes.items() if shape != self.shape)


def _kernel(scope: HostScope, nodes: tuple[Node, ...], done: list[str]) -> HostKernel | None:
    """Make the kernel of a chain; None if there is no formula or it is too long.

    `done` receives the values of the nodes up to the one that fails.
    """
    last = nodes[-1].output
    shape = last.type.shape or (1,)
    operands = FormulaOperands(scope, shape)
    formulas: dict[str, Formula] = {}
    exact = True
    read: dict[str, te.TensorExpression] = {}
    values: dict[int, te.TensorExpression] = {}
    sizes: dict[int, int] = {}
    try:
        for node in nodes:
            done.append(node.output.name)
            formula, bits = _formula(scope, node, formulas, operands, node.output == last)
            formulas[node.output.name] = formula
            exact = exact and bits
            for name, kind in list(operands.types.items())[len(read) :]:
                read[name] = te.tensor(name, kind, (1,))[0]
            calls = size_of(value_of(formula, read, known=values).tree, sizes)
            if calls > MAX_CALLS or len(operands.types) > MAX_OPERANDS:
                return None
        operands.keep({*names_in(formulas[last.name])})
        broadcast = operands.broadcast()
    except (NoFormulaError, CompileError):
        return None
    stored = (last.type.dtype, *operands.types.values())
    if HALF in stored and not scope.target.properties.halves:
        return None
    if not operands.inputs or not all(kind in TYPES for kind in stored):
        return None
    description = Elementwise(
        shape,
        tuple(operands.types.items()),
        formulas[last.name],
        last.type.dtype,
        broadcast,
        tuple(operands.constants),
    )
    return HostKernel(description, operands.inputs, operands.constants, nodes, exact)


def _formula(
    scope: HostScope, node: Node, known: dict[str, Formula], operands: FormulaOperands, last: bool
) -> tuple[Formula, bool]:
    """Return a node's formula, and whether it is bit-exact to the definition."""
    operator, types = node.attributes, scope.graph.types
    dtype = types[node.inputs[0]].dtype
    parts = [known[name] if name in known else operands.value(name) for name in node.inputs]
    name = node.output.name
    if HALF in (dtype, node.output.type.dtype) and not isinstance(operator, ops.Cast):
        raise NoFormulaError  # the definition rounds each result
    if isinstance(operator, (ops.GeneralQuantize, ops.GeneralDequantize)):
        return _general(operator, [types[one] for one in node.inputs], parts), True
    if isinstance(operator, (ops.Quantize, ops.Dequantize)):
        axis = operator.axis
        scale = operands.parameter(operator.scales, axis, np.float32, f"{name} scale")
        zero = operands.parameter(operator.zero_points, axis, np.int32, f"{name} zero point")
        if isinstance(operator, ops.Quantize):
            return quantize(operator, parts[0], scale, zero), True
        return dequantize(parts[0], scale, zero, dtype), True
    if dtype in PASSING or node.output.type.dtype in PASSING:
        raise NoFormulaError
    if isinstance(operator, ops.Cast):
        return cast(parts[0], dtype, operator.dtype, last), True
    if isinstance(operator, ops.Pointwise):
        return pointwise(operator, parts, dtype)
    if isinstance(operator, Where):
        return ("select", *parts), True
    if isinstance(operator, ops.QAdd):
        return add(operator, *parts), True
    if isinstance(operator, ops.QBlend):
        return blend(operator, *parts), True
    if isinstance(operator, ops.QMul):
        return multiply(operator, *parts), True
    if isinstance(operator, ops.Shift):
        return shift(parts[0], dtype), True
    raise NoFormulaError


def _general(
    operator: ops.GeneralQuantize | ops.GeneralDequantize,
    types: Sequence[TensorType],
    parts: Sequence[Formula],
) -> Formula:
    """Return the formula of an operator that has one scale and computes in float32."""
    if types[1].dtype != FLOAT or any(kind.elements > 1 for kind in types[1:]):
        raise NoFormulaError
    zero = parts[2] if len(parts) > 2 else 0
    if isinstance(operator, ops.GeneralQuantize):
        if types[0].dtype != FLOAT or operator.precision:
            raise NoFormulaError
        return quantize(operator, parts[0], parts[1], zero)
    if operator.dtype != FLOAT or types[0].dtype == "int32":
        raise NoFormulaError
    return dequantize(parts[0], parts[1], zero, types[0].dtype)


MATCHERS = (chain,)
