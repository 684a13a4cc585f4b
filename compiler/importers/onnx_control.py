"""Branches and loops: the importer inlines branches, and unrolls loops of known length."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from ...wording import counted
from ..graph import operators as ops
from .onnx_node import OnnxNode
from .onnx_scope import Named

MAX_ITERATIONS = 10_000
"""Maximum number of iterations that a loop is unrolled to."""


def _graph(node: OnnxNode, name: str) -> onnx.GraphProto:
    if name not in node.attributes:
        node.fail(f"an attribute `{name}`", "none", "export the model again")
    return node.attributes[name].g


def import_if(node: OnnxNode) -> list[Named]:
    """Import If: one branch if the condition is known, else both branches and Where."""
    known = node.known(node.input(0))
    if known is not None:
        return _branch(node, "then_branch" if known.all() else "else_branch")
    branches = [_branch(node, name) for name in ("then_branch", "else_branch")]
    if {len(branch) for branch in branches} != {len(node.proto.output)}:
        node.fail(
            f"branches of {counted(len(node.proto.output), 'output')}",
            "another number",
            "export the model again",
        )
    results: list[Named] = []
    for name, one, other in zip(node.proto.output, *branches, strict=True):
        if not isinstance(one, str) or not isinstance(other, str):
            node.need([node.input(0)], "the condition of branches that give sequences")
        types = [node.builder.types[value] for value in (one, other)]
        if (types[0].dtype, types[0].shape) != (types[1].dtype, types[1].shape):
            node.need([node.input(0)], "the condition of branches of different shapes")
        condition = node.reshape(node.input(0), (), f"{name}.condition")
        results.append(node.emit(ops.Where(), [condition, one, other], name or None))
    return results


def _branch(node: OnnxNode, name: str) -> list[Named]:
    branch = node.scope.branch(f"{node.where}: `{name}`", node.label)
    return branch.import_graph(_graph(node, name), [])


def import_loop(node: OnnxNode) -> list[Named]:
    """Import Loop, with a known number of iterations, as one copy of its body for each."""
    limit = int(node.constant(0).ravel()[0]) if node.has(0) else MAX_ITERATIONS + 1
    going = bool(node.constant(1).all()) if node.has(1) else True
    body = _graph(node, "body")
    carried = [node.value(index) for index in range(2, len(node.proto.input))]
    scans: list[list[str]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    count = 0
    while going and count < limit:
        if count >= MAX_ITERATIONS:
            node.refuse("long loops", f"more than {MAX_ITERATIONS:,} iterations", "shorten it")
        scope = node.scope.branch(f"{node.where}: iteration {count}", node.label)
        number = node.builder.constant(np.array(count, np.int64), "iteration")
        flag = node.builder.constant(np.array(True), "condition")
        results = scope.import_graph(body, [number, flag, *carried])
        (flag,) = _tensors(node, results[:1])
        condition = node.known(flag)
        if condition is None:
            node.need([flag], "the condition to go on")
        going = bool(condition.all())
        carried = results[1 : 1 + len(carried)]
        for scan, result in zip(scans, _tensors(node, results[1 + len(carried) :]), strict=True):
            scan.append(result)
        count += 1
    shapes = body.output[1 + len(carried) :]
    return [*carried] + [
        _stack(node, scan, 0, shape) for scan, shape in zip(scans, shapes, strict=True)
    ]


def _tensors(node: OnnxNode, values: list[Named]) -> list[str]:
    """Return the values, and reject sequences: all must be tensors."""
    found = [value for value in values if isinstance(value, str)]
    if len(found) != len(values):
        node.fail("tensors to stack", "a sequence", "export the model again")
    return found


def _stack(node: OnnxNode, parts: list[str], axis: int, declared: onnx.ValueInfoProto) -> str:
    """Emit the values stacked along a new axis."""
    if not parts:
        node.refuse("loops without iterations", f"`{declared.name}` of none", "drop the loop")
    rank = len(node.builder.types[parts[0]].shape)
    at = node.normalise(axis, rank + 1)
    rows = []
    for part in parts:
        shape = node.builder.types[part].shape
        rows.append(node.reshape(part, (*shape[:at], 1, *shape[at:]), f"{part}.row"))
    return rows[0] if len(rows) == 1 else node.emit(ops.Concat(at), rows, f"{declared.name}.rows")


@dataclass(frozen=True, slots=True)
class _Scan:
    """Operands and results of a Scan: an axis and a direction for each scanned value."""

    body: onnx.GraphProto
    axes: tuple[int, ...]
    backwards: tuple[int, ...]
    out_axes: tuple[int, ...]
    out_backwards: tuple[int, ...]


def import_scan(node: OnnxNode) -> list[str]:
    """Import Scan as one copy of its body for each slice; in set 8, also for each sample."""
    body, scanned = _graph(node, "body"), node.attribute("num_scan_inputs", 0)
    first = 0 if node.opset >= 9 else 1
    count = len(node.proto.input) - first - scanned
    outputs = len(body.output) - count
    if scanned < 1 or min(count, outputs) < 0:
        node.fail("one or more scanned inputs", f"{scanned}", "export the model again")
    operands = [node.input(index) for index in range(first, len(node.proto.input))]
    if first:
        return _scan_batch(node, body, operands, count, outputs)
    scan = _Scan(
        body,
        node.attribute("scan_input_axes", (0,) * scanned),
        node.attribute("scan_input_directions", (0,) * scanned),
        node.attribute("scan_output_axes", (0,) * outputs),
        node.attribute("scan_output_directions", (0,) * outputs),
    )
    return _scan(node, scan, operands[:count], operands[count:])


def _scan_batch(
    node: OnnxNode, body: onnx.GraphProto, operands: list[str], count: int, outputs: int
) -> list[str]:
    """Import Scan of operator set 8, where the first axis of every operand is the batch."""
    if node.has(0):
        node.refuse("sequences of several lengths", "`sequence_lens`", "convert the model")
    scanned = len(operands) - count
    directions = node.attribute("directions", (0,) * scanned)
    zeros = (0,) * outputs
    scan = _Scan(body, (0,) * scanned, directions, zeros, zeros)
    samples = []
    for index in range(node.builder.types[operands[0]].shape[0]):
        rows = [_row(node, x, 0, index) for x in operands]
        samples.append(_scan(node, scan, rows[:count], rows[count:]))
    columns = zip(*samples, strict=True)
    return [_stack(node, list(c), 0, o) for c, o in zip(columns, body.output, strict=True)]


def _scan(node: OnnxNode, scan: _Scan, states: list[str], operands: list[str]) -> list[str]:
    """Emit the body for each slice; return the final states and the stacked results."""
    shapes = [node.builder.types[x].shape for x in operands]
    if len(scan.axes) != len(operands) or len(scan.backwards) != len(operands):
        node.fail(
            "one axis and direction for each scanned input", "another number", "export it again"
        )
    axes = [node.normalise(axis, len(s)) for axis, s in zip(scan.axes, shapes, strict=True)]
    lengths = {shape[axis] for axis, shape in zip(axes, shapes, strict=True)}
    if len(lengths) != 1 or max(lengths) > MAX_ITERATIONS:
        node.fail(
            f"scanned inputs of one length, at most {MAX_ITERATIONS:,}",
            f"{sorted(lengths)}",
            "export the model again",
        )
    (length,) = lengths
    found: list[list[str]] = [[] for _ in scan.out_axes]
    for step in range(length):
        rows = [
            _row(node, x, axis, length - 1 - step if back else step)
            for x, axis, back in zip(operands, axes, scan.backwards, strict=True)
        ]
        scope = node.scope.branch(f"{node.where}: iteration {step}", node.label)
        results = _tensors(node, scope.import_graph(scan.body, [*states, *rows]))
        states = results[: len(states)]
        for parts, result in zip(found, results[len(states) :], strict=True):
            parts.append(result)
    declared = scan.body.output[len(states) :]
    return states + [
        _stack(node, parts[::-1] if back else parts, axis, output)
        for parts, axis, back, output in zip(
            found, scan.out_axes, scan.out_backwards, declared, strict=True
        )
    ]


def _row(node: OnnxNode, x: str, axis: int, index: int) -> str:
    """Emit element `index` along `axis`, and remove that axis."""
    shape = node.builder.types[x].shape
    part = node.part(x, axis, index, index + 1, f"{x}.{index}")
    return node.reshape(part, shape[:axis] + shape[axis + 1 :], f"{x}.{index}.row")


def import_optional(node: OnnxNode) -> str:
    """Import Optional of a value and OptionalGetElement as the value itself."""
    if "type" in node.attributes and not node.has(0):
        node.refuse("optional values", "an empty one", "take it out of the model")
    return node.input(0)


def import_has_element(node: OnnxNode) -> str:
    """Import OptionalHasElement as a constant; the graph itself shows whether there is a value."""
    return node.array(np.array(node.has(0)))


CONTROL_HANDLERS: dict[tuple[str, str], Callable[[OnnxNode], str | Sequence[Named]]] = {
    ("", "If"): import_if,
    ("", "Loop"): import_loop,
    ("", "Scan"): import_scan,
    ("", "Optional"): import_optional,
    ("", "OptionalGetElement"): import_optional,
    ("", "OptionalHasElement"): import_has_element,
}
