"""A loop program as a whole, and its text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ...isa.expressions import Affine, Call, Expression, Op
from ..tensor import Kernel, Tensor
from .affine import renamed, with_names
from .box import Box
from .nodes import (
    Allocate,
    Assign,
    Barrier,
    Block,
    Condition,
    For,
    Guard,
    InstructionNest,
    Let,
    Nest,
    Node,
    TransferNest,
    Update,
    nodes,
)
from .regions import TensorRegion
from .target import DRAM, REGISTER, Kind

INDENT = "  "


@dataclass(frozen=True)
class Program:
    """A scheduled kernel as loops.

    Parameters
    ----------
    kernel
        The kernel.
    tensors
        Every tensor, copies included.
    domains
        Existing elements of every tensor; reads outside give its pad value.
    body
        The nests at the root.
    """

    kernel: Kernel
    tensors: Mapping[str, Tensor]
    domains: Mapping[str, Box]
    body: Block

    @cached_property
    def nests(self) -> Mapping[str, Nest]:
        """The nests, by stage."""
        return {node.stage: node for node in self._outline if isinstance(node, Nest)}

    @cached_property
    def buffers(self) -> Mapping[str, Allocate]:
        """The buffers in main memory and in scratchpads, by tensor."""
        buffers = (node for node in self._outline if isinstance(node, Allocate))
        return {node.tensor.name: node for node in buffers if node.scope != REGISTER}

    @cached_property
    def regions(self) -> dict[int, TensorRegion]:
        """Regions found by earlier walks of this program, by the `id` of the node."""
        return {}

    @cached_property
    def _outline(self) -> tuple[Node, ...]:
        """All nodes outside of transfers and instructions."""
        return tuple(nodes(self.body, (TransferNest, InstructionNest)))

    def __repr__(self) -> str:
        return f"<Program of `{self.kernel.name:.60}`: {len(self.tensors)} tensors>"

    def __str__(self) -> str:
        return "\n".join(line for node in self.body for line in _lines(node, ""))


def _lines(node: Node, stage: str) -> Iterator[str]:
    """The text of a node inside the nest of a stage."""

    def short(variable: str) -> str:
        owner, loop = variable.rsplit(":", 1)
        return loop if owner == stage else f"{owner}.{loop}"

    def shown(affine: Affine) -> str:
        return str(renamed(affine, short))

    def tree(expression: Expression) -> str:
        text = str(with_names(expression, short))
        named = with_names(expression, short)
        outer = isinstance(named, Call) and named.op in (Op.ADD, Op.MULTIPLY)
        return text[1:-1] if outer else text

    body: Block = ()
    if isinstance(node, Allocate):
        slots = _slots(node)
        start = ", ".join(map(shown, node.origin))
        where = "" if start.strip("0, ") == "" else f" from [{start}]"
        element = f"{node.tensor.dtype}[{', '.join(map(str, node.shape))}]"
        yield f"allocate {node.tensor.name}: {element}{where} in {node.scope}{slots}"
    elif isinstance(node, Let):
        yield f"{short(node.variable)} = {_let(node, short)}"
    elif isinstance(node, Assign):
        yield f"{tree(node.target)} = {tree(node.value)}"
    elif isinstance(node, Update):
        first = " = ".join(map(short, node.first))
        sign = "+=" if node.op is Op.ADD else "max="
        yield f"{tree(node.target)} {sign} {tree(node.value)}  # = where {first} = 0"
    elif isinstance(node, For):
        start = shown(node.start)
        end = shown(Affine(node.start.terms, node.start.constant + node.extent))
        span = end if start == "0" else f"{start}, {end}"
        kind = "" if node.kind is Kind.SERIAL else f"{node.kind.value} "
        if node.rolling is not None:
            kind = f"rolling up to row {shown(node.rolling.until)}, "
        depth = f"  # pipelined, depth {node.depth}" if node.depth > 1 else ""
        yield f"{kind}for {short(node.variable)} in range({span}):{depth}"
        body = node.body
    elif isinstance(node, Barrier):
        yield "barrier"
    elif isinstance(node, Guard):
        yield f"if {' and '.join(_condition(c, shown) for c in node.conditions)}:"
        body = node.body
    elif isinstance(node, Nest):
        yield f"compute {node.stage}:"
        stage, body = node.stage, node.body
    elif isinstance(node, TransferNest):
        yield f"copy {node.source}:"
        body = node.body
    elif isinstance(node, InstructionNest):
        yield f"instruction {node.mnemonic}:"
        body = node.body
    for inner in body:
        for line in _lines(inner, stage):
            yield INDENT + line


def _slots(node: Allocate) -> str:
    if node.rolling is not None:
        return f", a ring of {node.rolling.ring} rows"
    if node.slots == 0:
        return "" if node.scope == DRAM else ", as many slots as fit"
    return f", {node.slots} slots" if node.slots > 1 else ""


def _let(node: Let, short) -> str:
    parts = []
    if node.digit is not None:
        divided = f" // {node.digit.divisor}" if node.digit.divisor > 1 else ""
        remainder = "" if node.digit.leading else f" % {node.digit.modulus}"
        parts.append(f"{short(node.digit.variable)}{divided}{remainder}")
    if node.value != Affine() or not parts:
        parts.insert(0, str(renamed(node.value, short)))
    return " + ".join(parts)


def _condition(condition: Condition, shown) -> str:
    low = "" if condition.low is None else f"{condition.low} <= "
    high = "" if condition.high is None else f" < {condition.high}"
    return f"{low}{shown(condition.value)}{high}"
