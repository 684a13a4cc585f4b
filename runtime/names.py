"""Short names of layers, made from the names of their nodes in the model.

A layer is a node, or several nodes that pass values to each other on chip.
"""

from collections import Counter

from ..compiler.graph import Graph, Node, is_accelerated
from ..compiler.graph.short_names import (
    JOINT,
    denotes,
    numbered,
    short_name,
    similar_names,
    unique_short_names,
    without_operator,
)
from ..compiler.module import Layer, Module


def node_names(graph: Graph) -> dict[str, str]:
    """Return the shortest name that tells a node from all others, by its first output.

    It depends on the network alone, so a node has the same name on every machine. Nodes that the
    accelerator may run take precedence.
    """
    nodes = sorted(graph.nodes, key=lambda node: not is_accelerated(node))
    owners = Counter(
        without_operator(short_name(node.name)) for node in filter(is_accelerated, nodes)
    )
    shorts = unique_short_names([node.name for node in nodes])
    names = (
        without_operator(short)
        if is_accelerated(node) and owners[without_operator(short)] == 1
        else short
        for node, short in zip(nodes, shorts, strict=True)
    )
    return dict(zip((node.outputs[0].name for node in nodes), numbered(names), strict=True))


def layer_nodes(module: Module) -> dict[str, tuple[Node, ...]]:
    """Return the nodes of each accelerator layer in order, by the value that the layer computes.

    A value that is the output of neither a layer nor a host step stays on chip. Its node belongs to
    the layer that reads it.
    """
    outputs = [layer.output for segment in module.segments for layer in segment.layers]
    hosted = {step for step in module.steps if isinstance(step, str)}
    nodes: dict[str, list[Node]] = {output: [] for output in outputs}
    owner = {output: output for output in outputs}
    for node in reversed(module.graph.nodes):
        value = node.outputs[0].name
        if value not in nodes and value not in hosted:
            readers = (owner.get(user.outputs[0].name) for user in module.graph.users(value))
            owner[value] = next(filter(None, readers), "")
        if found := owner.get(value):
            nodes[found].insert(0, node)
    return {output: tuple(found) for output, found in nodes.items()}


def layer_names(module: Module) -> dict[str, str]:
    """Return a short name for each step, by the value that it produces.

    The name of a fused layer joins the paths of its nodes: `conv3 + residual + pool`. It omits the
    operators, which reports show in another column. Names of accelerator layers differ: they have
    as many parts of their paths as that takes.
    """
    names: dict[str, str] = {}
    whole: dict[str, str] = {}
    nodes = layer_nodes(module)
    for step in module.steps:
        if isinstance(step, str):
            node = module.graph.producer(step)
            names[step] = short_name(node.name if node is not None else step)
            continue
        for layer in module.segments[step].layers:
            own = nodes[layer.output]
            names[layer.output] = ""  # keeps the order of the run
            joined = JOINT.join(node.name for node in own)
            whole[layer.output] = joined if len(own) > 1 else layer.name
    return names | dict(zip(whole, unique_short_names([*whole.values()]), strict=True))


def find_layers(module: Module, wanted: str) -> list[tuple[int, Layer]]:
    """Find accelerator layers by their full or short name, or by a node's name.

    Returns
    -------
    list
        The index of the segment and the layer, for each layer found.
    """
    names, nodes = layer_names(module), layer_nodes(module)
    layers = [
        (index, layer) for index, segment in enumerate(module.segments) for layer in segment.layers
    ]
    found = [each for each in layers if wanted in (each[1].name, names[each[1].output])]
    return found or [
        each for each in layers if any(is_called(node, wanted) for node in nodes[each[1].output])
    ]


def similar_layers(module: Module, wanted: str) -> str:
    """Return the end of a message about a layer that is not on the accelerator."""
    nodes = (node.name for nodes in layer_nodes(module).values() for node in nodes)
    return similar_names(wanted, nodes)


def is_called(node: Node, wanted: str) -> bool:
    """Whether a name is a node's own, its short one, or the short one without the operator."""
    return denotes(wanted, node.name)


def on_chip(module: Module) -> list[str]:
    """Return the short names of nodes whose values stay on chip: all but the last of each layer."""
    return [short_name(node.name) for nodes in layer_nodes(module).values() for node in nodes[:-1]]
