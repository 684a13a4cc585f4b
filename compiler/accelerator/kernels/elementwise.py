"""Residual addition and look-ups."""

from ....isa.configuration import Configuration
from ....isa.expressions import Affine, Call, Literal, Op, Read
from ...graph import Graph, Node, QAdd
from ...tensor import Compute, Kernel, Tensor
from .common import activation, axes_of, epilogue, pointwise_index, requantised, scalars


def add(node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = requantise(a * ma + b * mb + constant, scale)` with zero point and clamp."""
    attributes = node.attributes
    assert isinstance(attributes, QAdd)
    first, second = node.inputs[:2]
    a = activation(first, graph, configuration)
    # Separate operands get separate banks, so that `x + x` can read both at once.
    b = activation(second, graph, configuration, again=first == second)
    out = activation(node.output.name, graph, configuration)
    axes = axes_of(out)
    ma, mb = attributes.multipliers
    terms = (
        Call(Op.MULTIPLY, (a[pointwise_index()], Literal(ma))),
        Call(Op.MULTIPLY, (b[pointwise_index()], Literal(mb))),
    )
    constants = scalars(attributes.constant, attributes.scale, out.shape[3])
    bias, scale = Tensor("bias", "int32", out.shape[3:]), Tensor("scale", "float32", out.shape[3:])
    channel = (Affine.of(c=1),)
    total = requantised(Call(Op.ADD, terms), bias[channel], scale[channel])
    body = epilogue(total, attributes.zero_point_y, attributes.low, attributes.high)
    return Kernel(
        name=node.name,
        stages=(Compute(out, axes, (), body),),
        tensors={tensor.name: tensor for tensor in (a, b, out, bias, scale)},
        constants=constants,
    )


def look_up(node: Node, graph: Graph, configuration: Configuration) -> Kernel:
    """`out = table[x + 128]`."""
    x = activation(node.inputs[0], graph, configuration)
    out = activation(node.output.name, graph, configuration)
    table = Tensor("table", "int8", (256,))
    body = Call(Op.LOOKUP, (Read(table.name, ()), x[pointwise_index()]))
    return Kernel(
        name=node.name,
        stages=(Compute(out, axes_of(out), (), body),),
        tensors={tensor.name: tensor for tensor in (x, out, table)},
        constants={"table": graph.data(node.inputs[1])},
    )
