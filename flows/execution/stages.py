"""A network at each stage of its compilation, from the import to the linked program."""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...compiler.frontend import RECIPE, recognise_layers
from ...compiler.graph import Graph, Node
from ...compiler.graph.short_names import JOINT, similar_names
from ...compiler.pipeline import CompileRequest
from ...compiler.pipeline.describe import STAGES, describe, describe_graph
from ...compiler.pipeline.place import place
from ...errors import UsageError, did_you_mean
from ...quoting import is_count
from ...runtime.names import is_called
from .compile_graph import compile_with_exact_times

IMPORTED = "import"
"""Name of the graph before the first pass."""

STAGE_NAMES = (IMPORTED, *(step.__name__ for step in RECIPE), *STAGES)
"""All stages in order; a pass that runs several times stands several times."""


@dataclass(frozen=True, slots=True)
class PrintedStage:
    """The text of a network after a stage.

    Parameters
    ----------
    position
        Index into `STAGE_NAMES`.
    """

    position: int
    lines: list[str]

    @property
    def name(self) -> str:
        return STAGE_NAMES[self.position]


def stage_position(name: str) -> int:
    """Return the position of a stage by its name, or by its position as text.

    A pass that runs several times is meant the last time.

    Raises
    ------
    UsageError
        For an unknown stage; the message lists those that exist.
    """
    if is_count(name) and int(name) < len(STAGE_NAMES):
        return int(name)
    if name not in STAGE_NAMES:
        listed = ", ".join(f"`{one}`" for one in dict.fromkeys(STAGE_NAMES))
        raise UsageError(
            f"`--until {name}`: expected a position from 0 to {len(STAGE_NAMES) - 1} or one of "
            f"{listed}" + did_you_mean(name, STAGE_NAMES, "; `tilewright passes MODEL` lists them")
        )
    return len(STAGE_NAMES) - 1 - STAGE_NAMES[::-1].index(name)


def stages_of(
    graph: Graph,
    last: int,
    request: Callable[[Graph], CompileRequest],
    layer: str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> list[PrintedStage]:
    """Return the network after each stage up to `last`.

    Parameters
    ----------
    graph
        As imported.
    request
        Makes the request to the compiler from the graph after the last pass; it is not called if
        `last` is a pass.
    layer
        Show only what belongs to nodes of this name.
    progress
        Called with the name of each pass, and before the compiler's stages.

    Raises
    ------
    UsageError
        If no node has the name.
    CompileError
        If the network cannot be compiled.
    """
    known: dict[str, None] = {}

    def wanted(node: Node) -> bool:
        known[node.name] = None
        return any(is_called(node, part) for part in (layer or "").split(JOINT))

    def unknown() -> UsageError:
        near = similar_names(layer or "", known)
        return UsageError(f"`--layer {layer}`: expected the name of a node{near}")

    choice = None if layer is None else wanted
    stages = [PrintedStage(0, describe_graph(graph, choice))]

    def keep(position: int, name: str, now: Graph) -> None:
        progress(name)
        stages.append(PrintedStage(position, describe_graph(now, choice)))

    graph = recognise_layers(graph, min(last, len(RECIPE)), keep)
    if last > len(RECIPE):
        asked = request(graph)
        if not any(stage.lines for stage in stages) and not describe_graph(
            place(asked).graph, choice
        ):
            raise unknown()
        progress(f"compiling {graph.name}")
        compilation = compile_with_exact_times(
            asked, lambda step: progress(f"compiling {graph.name}: {step}")
        )
        for position in range(len(RECIPE) + 1, last + 1):
            lines = describe(compilation, STAGE_NAMES[position], choice)
            stages.append(PrintedStage(position, lines))
    if layer is not None and not any(stage.lines for stage in stages):
        raise unknown()
    return stages


def changes(before: PrintedStage, after: PrintedStage) -> Iterator[str]:
    """Yield what a stage changed, as a unified diff without line numbers."""
    found = difflib.unified_diff(before.lines, after.lines, n=1, lineterm="")
    for number, line in enumerate(found):
        if number > 1:  # after the two lines with the names of files
            yield "..." if line.startswith("@@") else line
