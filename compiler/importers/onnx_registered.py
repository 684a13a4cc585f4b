"""Import of the operators that the user registered."""

from ..graph.operators import OwnFunction
from ..register_operator import REGISTERED, RegisteredFunction
from .onnx_node import OnnxNode


def import_registered(node: OnnxNode) -> str:
    """Import a node whose operator is in `REGISTERED`."""
    found, name = REGISTERED[node.key], ".".join(node.key)
    return _import_function(node, name, found)


def _import_function(node: OnnxNode, name: str, found: RegisteredFunction) -> str:
    given = len(node.proto.input)
    if given != len(found.operands) or not all(map(node.has, range(given))):
        wanted = f"{len(found.operands)} operands ({', '.join(found.operands)})"
        node.fail(wanted, f"{given}", "correct the model, or register the operator anew")
    known = dict(found.parameters)
    for attribute in node.attributes:
        if attribute not in known:
            listed = ", ".join(known) or "none"
            node.fail(f"attributes of `{name}`: {listed}", f"`{attribute}`", "register it")
    parameters = tuple((key, _number(node, key, default)) for key, default in found.parameters)
    return node.emit(OwnFunction(name, found.law, found.operands, parameters), node.inputs())


def _number(node: OnnxNode, key: str, default: float) -> float:
    value = node.attribute(key, None)
    if value is None:
        return default
    if not isinstance(value, (int, float)):
        node.fail(f"a number for attribute `{key}`", f"`{value}`", "correct the model")
    return float(value)
