"""Damage to ONNX files, as from a disk, a bad exporter or an attacker.

Half of the kinds change bytes; most of these files no longer parse. The others change the model, so
the file is valid but its contents are absurd. The seed determines everything.
"""

import random
from collections.abc import Callable, Sequence

import onnx
from google.protobuf.message import DecodeError

from .byte_damage import BYTES

HUGE = (-(2**63), -1, 0, 1, 2, 7, 2**16, 2**31 - 1, 2**31, 2**40, 2**63 - 1)
"""Unusual integers for sizes, axes and shapes."""

REALS = (0.0, -0.0, -1.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))
"""Unusual numbers for scales and attributes."""


def damaged(model: bytes, seed: int) -> bytes:
    """Return a model file with one to three kinds of damage.

    Parameters
    ----------
    model
        A good ONNX file.
    seed
        The same seed damages the same file in the same way.
    """
    chance = random.Random(seed)
    if chance.random() < 0.4:
        return chance.choice(BYTES)(chance, model)
    try:
        proto = onnx.load_from_string(model)
    except DecodeError:
        return chance.choice(BYTES)(chance, model)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        chance.choice(INSIDE)(chance, proto)
    return proto.SerializeToString()


def _pick(chance: random.Random, things: Sequence):
    return chance.choice(things) if len(things) else None


def _tensors(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    held = [a.t for node in proto.graph.node for a in node.attribute if a.HasField("t")]
    return [*proto.graph.initializer, *held]


def change_attribute(chance: random.Random, proto: onnx.ModelProto) -> None:
    """Give an attribute an absurd value, another name, or no entries."""
    node = _pick(chance, [node for node in proto.graph.node if node.attribute])
    if node is None:
        return
    attribute = chance.choice(node.attribute)
    action = chance.random()
    if action < 0.15:
        attribute.name = chance.choice(("axis", "pads", "strides", "perm", "to", "group", "no"))
    elif action < 0.25:
        del attribute.ints[:]
        del attribute.floats[:]
    elif attribute.ints:
        attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(HUGE)
        if chance.random() < 0.2:
            attribute.ints.append(chance.choice(HUGE))
    elif attribute.HasField("f"):
        attribute.f = chance.choice(REALS)
    else:
        attribute.i = chance.choice(HUGE)


def swap_attributes(chance: random.Random, proto: onnx.ModelProto) -> None:
    """Exchange all attributes of two nodes."""
    nodes = list(proto.graph.node)
    if len(nodes) < 2:
        return
    one, other = chance.sample(nodes, 2)
    kept = list(one.attribute)
    del one.attribute[:]
    one.attribute.extend(other.attribute)
    del other.attribute[:]
    other.attribute.extend(kept)


def change_input_shape(chance: random.Random, proto: onnx.ModelProto) -> None:
    """Give an input or output another extent, rank or element type."""
    value = _pick(chance, [*proto.graph.input, *proto.graph.output])
    if value is None:
        return
    tensor = value.type.tensor_type
    extents = tensor.shape.dim
    action = chance.random()
    if action < 0.2:
        tensor.elem_type = chance.randrange(-1, 24)
    elif action < 0.3:
        extents.add().dim_value = chance.choice(HUGE)
    elif action < 0.4 and extents:
        del extents[chance.randrange(len(extents))]
    elif extents:
        chance.choice(extents).dim_value = chance.choice(HUGE)


def change_tensor(chance: random.Random, proto: onnx.ModelProto) -> None:
    """Give a tensor other extents, another type, fewer bytes, or an absurd value."""
    tensor = _pick(chance, _tensors(proto))
    if tensor is None:
        return
    action = chance.random()
    if action < 0.3 and tensor.dims:
        tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice(HUGE)
    elif action < 0.4:
        tensor.dims.append(chance.choice((0, 1, 2, 2**40)))
    elif action < 0.6:
        tensor.data_type = chance.randrange(-1, 24)
    elif action < 0.7:
        tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]
    elif tensor.data_type == onnx.TensorProto.FLOAT:
        _poke(chance, tensor, onnx.helper.make_tensor("v", 1, [1], [chance.choice(REALS)]))
    elif tensor.data_type == onnx.TensorProto.INT64:
        _poke(chance, tensor, onnx.helper.make_tensor("v", 7, [1], [chance.choice(HUGE)]))


def _poke(chance: random.Random, tensor: onnx.TensorProto, value: onnx.TensorProto) -> None:
    """Put one value into a tensor, wherever it keeps its values."""
    raw = onnx.numpy_helper.to_array(value).tobytes()
    if tensor.raw_data:
        at = chance.randrange(max(len(tensor.raw_data) // len(raw), 1)) * len(raw)
        tensor.raw_data = tensor.raw_data[:at] + raw + tensor.raw_data[at + len(raw) :]
    elif tensor.float_data:
        tensor.float_data[chance.randrange(len(tensor.float_data))] = value.float_data[0]
    elif tensor.int64_data:
        tensor.int64_data[chance.randrange(len(tensor.int64_data))] = value.int64_data[0]


def rewire(chance: random.Random, proto: onnx.ModelProto) -> None:
    """Let a node read or write another value, one operand more, or one less."""
    node = _pick(chance, proto.graph.node)
    if node is None:
        return
    names = [name for other in proto.graph.node for name in (*other.input, *other.output)]
    names += ["", "nowhere"]
    side = node.input if chance.random() < 0.8 else node.output
    action = chance.random()
    if action < 0.2 or not side:
        side.append(chance.choice(names))
    elif action < 0.4:
        del side[chance.randrange(len(side))]
    else:
        side[chance.randrange(len(side))] = chance.choice(names)


def change_nodes(chance: random.Random, proto: onnx.ModelProto) -> None:
    """Remove, repeat or move a node, or make it another operator."""
    nodes = proto.graph.node
    if not nodes:
        return
    at, other = chance.randrange(len(nodes)), chance.randrange(len(nodes))
    action = chance.random()
    if action < 0.2:
        del nodes[at]
    elif action < 0.3:
        nodes.add().CopyFrom(nodes[at])
    elif action < 0.5:
        kept = onnx.NodeProto()
        kept.CopyFrom(nodes[at])
        nodes[at].CopyFrom(nodes[other])
        nodes[other].CopyFrom(kept)
    elif action < 0.9:
        names = sorted({schema.name for schema in onnx.defs.get_all_schemas()})
        nodes[at].op_type = chance.choice([*names, "NoSuchOperator", ""])
    else:
        nodes[at].domain = chance.choice(("", "com.microsoft", "ai.onnx.ml", "elsewhere"))


def change_header(chance: random.Random, proto: onnx.ModelProto) -> None:
    """Change the operator set's version, drop tensors or outputs, or rename a value."""
    action = chance.random()
    if action < 0.4 and proto.opset_import:
        chance.choice(proto.opset_import).version = chance.choice((*HUGE, 6, 9, 12, 20, 30))
    elif action < 0.6 and proto.graph.initializer:
        del proto.graph.initializer[chance.randrange(len(proto.graph.initializer))]
    elif action < 0.7:
        del proto.graph.output[:]
    elif proto.graph.input:
        chance.choice(proto.graph.input).name = chance.choice(("", "nowhere", "x\n\x00`"))


INSIDE: tuple[Callable[[random.Random, onnx.ModelProto], None], ...] = (
    change_attribute,
    swap_attributes,
    change_input_shape,
    change_tensor,
    rewire,
    change_nodes,
    change_header,
)
"""Damage to the model in it."""
