"""The user's choices of sides for layers, by name."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ...errors import CompileError
from ..graph import Graph, Node, accelerated_nodes, is_accelerated
from ..graph.operators import Dequantize, GeneralDequantize
from ..graph.short_names import listed_names, similar_names
from ..graph.types import FLOATS

ACCELERATOR, HOST = "accelerator", "host"

WILD = "*?["
"""Characters that make a name a pattern."""


def user_sides(graph: Graph, choices: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the user's choice of side, by the node's first output.

    Parameters
    ----------
    choices : sequence of tuple
        Pairs of a name and a side. A name is a node's name, the end of exactly one, or a pattern.
        Later pairs win.

    Raises
    ------
    CompileError
        If the name matches no node or more than one, not counting nodes that only the host can run;
        or if the accelerator cannot run the node.
    """
    sides: dict[str, str] = {}
    there = {node.output.name for node in accelerated_nodes(graph)}
    for wanted, side in choices:
        found = _nodes_called(graph, wanted)
        able = [node for node in found if node.outputs[0].name in there]
        if side == ACCELERATOR and not able:
            listed = ", ".join(dict.fromkeys(why_not(node) for node in found))
            in_float = any(
                node.outputs[0].type.dtype in FLOATS
                and not isinstance(node.attributes, Dequantize | GeneralDequantize)
                for node in found
            )
            raise CompileError(
                f"placement of `{wanted}`: the accelerator cannot run {listed}; leave it to the "
                f"{HOST}{', or quantise it' if in_float else ''}"
            )
        sides |= {node.output.name: side for node in able}
    return sides


def why_not(node: Node) -> str:
    """Return the operator and output type that the accelerator cannot run."""
    kind = node.outputs[0].type
    return f"`{node.op}` of {'no elements' if is_accelerated(node) else kind.dtype}"


def _nodes_called(graph: Graph, wanted: str) -> list[Node]:
    wild = not set(wanted).isdisjoint(WILD)
    ways = (_is, _matches) if wild else (_is, _ends, _has_part)
    found: list[Node] = []
    for way in ways:
        found = found or [node for node in graph.nodes if way(node.name, wanted)]
    if not wild:  # a plain name does not mean nodes that the host runs anyway
        found = [node for node in found if is_accelerated(node)] or found
    names = list(dict.fromkeys(node.name for node in found))
    if len(names) > 1 and not wild:
        raise CompileError(
            f"placement of `{wanted}`: expected the end of one layer's name, got that of "
            f"{listed_names(names)}; give more of the name, or `*{wanted}` for all of them"
        )
    if not found:
        raise CompileError(
            f"placement of `{wanted}`: expected a layer of `{graph.name}`, the end of a layer's "
            f"name or a pattern with `*`, got none"
            + similar_names(wanted, (node.name for node in graph.nodes))
        )
    return found


def _is(name: str, wanted: str) -> bool:
    return name == wanted


def _ends(name: str, wanted: str) -> bool:
    return bool(wanted) and name.endswith(wanted)


def _has_part(name: str, wanted: str) -> bool:
    """Whether the last of the paths that an exporter joined with `;` has such a component."""
    return wanted in name.rsplit(";", 1)[-1].split("/")


def _matches(name: str, wanted: str) -> bool:
    """Whether a pattern matches a name, or the part after a `/` or `;` in it."""
    starts = (0, *(place + 1 for place, letter in enumerate(name) if letter in "/;"))
    return any(fnmatchcase(name[start:], wanted) for start in starts)
