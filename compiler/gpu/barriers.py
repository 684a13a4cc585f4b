"""Barriers of a loop program, derived from who writes and who reads shared buffers.

A barrier stands before a region that reads what others wrote, or overwrites what others may still
read. It stands outside the loops over threads, so all threads of a block reach it.
"""

from dataclasses import dataclass, field, replace

from ...isa.expressions import reads_of
from ..te.nodes import (
    LEAVES,
    Allocate,
    Assign,
    Barrier,
    Block,
    For,
    Guard,
    InstructionNest,
    Nest,
    Node,
    TransferNest,
    Update,
    nodes,
)
from ..te.program import Program
from ..te.target import BOUND, SHARED
from .blocks import copies_ahead, is_region


def with_barriers(program: Program) -> Program:
    """A program with all the barriers that it needs; those that it has stay."""
    body = (
        _Pending(_shared(node)).block((node,))[0] if isinstance(node, Nest) else node
        for node in program.body
    )
    return replace(program, body=tuple(body))


def _shared(kernel: Node) -> set[str]:
    found = (node for node in nodes((kernel,)) if isinstance(node, Allocate))
    return {node.tensor.name for node in found if node.scope == SHARED}


def _has_stages(node: For | Guard | Nest | TransferNest | InstructionNest) -> bool:
    """Whether there are stages inside; one stage alone gives each element to one thread."""
    return any(isinstance(inner, Nest) for inner in nodes(node.body))


@dataclass(slots=True)
class _Pending:
    """Shared buffers that threads have accessed since the last barrier."""

    shared: set[str]
    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def block(self, block: Block) -> Block:
        """A block with barriers; its accesses since the last one are pending afterwards."""
        found: list[Node] = []
        for node in block:
            if isinstance(node, Barrier):
                self.clear()
            elif isinstance(node, For) and (ahead := copies_ahead(node)):
                found += self.ordered(ahead)
                node = self.pipelined(node, ahead)
            elif isinstance(node, LEAVES) or is_region(node) or not _has_stages(node):
                found += self.ordered((node,))
            else:
                node = self.inside(node)
            found.append(node)
        return tuple(found)

    def ordered(self, block: Block) -> Block:
        """A barrier if nodes race with what is pending; their accesses become pending."""
        reads, writes = self.accesses(block)
        races = reads & self.written or writes & (self.read | self.written)
        if races:
            self.clear()
        self.add(reads, writes)
        return (Barrier(),) if races else ()

    def inside(self, node: For | Guard | Nest | TransferNest | InstructionNest) -> Node:
        before = set(self.read), set(self.written)
        if isinstance(node, For) and node.kind not in BOUND and node.extent > 1:
            self.add(*self.accesses(node.body))  # of the iteration before
        changed = replace(node, body=self.block(node.body))
        if isinstance(node, Guard):
            self.add(*before)
        return changed

    def pipelined(self, node: For, ahead: Block) -> For:
        """A loop with a barrier behind its copies.

        It also separates the readers of a slot from the copies that fill the slot again.
        """
        rest = node.body[len(ahead) :]
        if not isinstance(rest[0], Barrier):
            rest = (Barrier(), *rest)
        return replace(node, body=(*ahead, *self.block(rest)))

    def accesses(self, block: Block) -> tuple[set[str], set[str]]:
        """The shared buffers that nodes read, and those that they write."""
        reads, writes = set[str](), set[str]()
        for node in nodes(block):
            if isinstance(node, (Assign, Update)):
                writes |= {node.target.tensor} & self.shared
                reads |= {read.tensor for read in reads_of(node.value)} & self.shared
        return reads, writes

    def add(self, read: set[str], written: set[str]) -> None:
        self.read |= read
        self.written |= written

    def clear(self) -> None:
        self.read, self.written = set(), set()
