"""Import of the operators that the user registered."""

from ..graph.operators import OwnFunction, OwnKernel
from ..register_operator import RegisteredFunction, RegisteredKernel
from ..registered import REGISTERED
from .onnx_node import OnnxNode

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Between [N, C, H, W] and [N, H, W, C]."""


def import_registered(node: OnnxNode) -> str:
    """Import a node whose operator is in `REGISTERED`."""
    found, name = REGISTERED[node.key], ".".join(node.key)
    if isinstance(found, RegisteredKernel):
        return _import_kernel(node, name, found)
    return _import_function(node, name, found)


def _import_function(node: OnnxNode, name: str, found: RegisteredFunction) -> str:
    given = len(node.proto.input)
    if given != len(found.operands) or not all(map(node.has, range(given))):
        wanted = f"{len(found.operands)} operands ({', '.join(found.operands)})"
        node.fail(wanted, f"{given}", "correct the model, or register the operator anew")
    parameters = tuple((key, float(value)) for key, value in _settings(node, name, found))
    return node.emit(OwnFunction(name, found.law, found.operands, parameters), node.inputs())


def _import_kernel(node: OnnxNode, name: str, found: RegisteredKernel) -> str:
    from .. import te
    from ..declare_own_kernel import declare_own_kernel

    settings = _settings(node, name, found)
    inputs = [
        node.transpose(x, TO_LAST, f"{x}.last") if len(node.type(index).shape) == 4 else x
        for index, x in enumerate(node.inputs())
    ]
    kinds = [node.builder.types[x] for x in inputs]
    for kind in kinds:
        if kind.dtype != "float32" or not kind.shape or 0 in kind.shape:
            node.fail("float32 operands with elements", f"{kind}", "cast or reshape them")
    tensors = [te.tensor(f"x{i}", "float32", kind.shape) for i, kind in enumerate(kinds)]
    text, constants = declare_own_kernel(name, found.declare, tensors, dict(settings))
    held = [node.array(data, f"{node.result}.constant{i}") for i, data in enumerate(constants)]
    operator = OwnKernel(name, text, settings, len(constants))
    if operator.declared.output.dtype != "float32":
        node.fail("a kernel in float32", operator.declared.output.dtype, "declare it so")
    if len(operator.declared.output.shape) != 4:
        return node.emit(operator, [*inputs, *held])
    result = node.emit(operator, [*inputs, *held], f"{node.result}.last")
    return node.transpose(result, TO_FIRST)


def _settings(
    node: OnnxNode, name: str, found: RegisteredFunction | RegisteredKernel
) -> tuple[tuple[str, int | float | str], ...]:
    known = dict(found.parameters)
    for attribute in node.attributes:
        if attribute not in known:
            listed = ", ".join(known) or "none"
            node.fail(f"attributes of `{name}`: {listed}", f"`{attribute}`", "register it")
    return tuple((key, _setting(node, key, default)) for key, default in known.items())


def _setting(node: OnnxNode, key: str, default: int | float | str) -> int | float | str:
    value = node.attribute(key, None)
    if value is None:
        return default
    numbers = isinstance(value, (int, float)) and not isinstance(default, str)
    if not numbers and type(value) is not type(default):
        wanted = "text" if isinstance(default, str) else "number"
        node.fail(f"a {wanted} for attribute `{key}`", f"`{value}`", "correct the model")
    return value
