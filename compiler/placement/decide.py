"""Decide for each node whether the accelerator or the host runs it.

The cheapest placement is searched in two steps: a minimum cut finds the least time if the sides
work one after the other (`problem`); then a local search uses that both work at once (`improve`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ...errors import CompileError
from ...isa.configuration import Configuration
from ..graph import Graph, Node, accelerated_nodes
from ..options import Options
from .costs import Costs, kernels_among
from .improve import improve
from .node_cycles import Cycles, cycles_alone, cycles_by_node
from .problem import problem_of
from .timeline import Evaluator
from .user_placement import ACCELERATOR, CPU, user_sides

COST = "cost"

POLICIES = (ACCELERATOR, COST, CPU)
"""The accelerator runs all that it can; what is cheapest; nothing."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The user's request: a policy, and sides chosen by name.

    Parameters
    ----------
    policy
        One of `POLICIES`, for all nodes without a choice of their own.
    forced
        Pairs of a node's name, the end of one or a pattern with `*`, and `accelerator` or `cpu`;
        later pairs win.

    Raises
    ------
    CompileError
        For a policy or a side that does not exist.
    """

    policy: str = ACCELERATOR
    forced: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise CompileError(
                f"placement `{self.policy}`: expected one of {', '.join(POLICIES)}; choose one"
            )
        for name, side in self.forced:
            if side not in (ACCELERATOR, CPU):
                raise CompileError(
                    f"placement of `{name}`: expected {ACCELERATOR} or {CPU}, got `{side}`; "
                    "choose one"
                )

    @property
    def leaves_all(self) -> bool:
        """Whether the host runs everything, whatever the network."""
        return self.policy == CPU and all(side == CPU for _, side in self.forced)


DEFAULT_PLACEMENT = Placement()


@dataclass(frozen=True, slots=True)
class Decision:
    """Where each node runs, by its first output.

    Parameters
    ----------
    accelerated
        Nodes that the accelerator runs.
    forced
        Sides that the user has chosen.
    cycles
        Estimates, for the nodes that needed one.
    """

    accelerated: frozenset[str]
    forced: Mapping[str, str]
    cycles: Cycles

    def on_accelerator(self, node: Node) -> bool:
        """Whether the accelerator runs a node."""
        return node.outputs[0].name in self.accelerated


def decide(
    graph: Graph,
    configuration: Configuration,
    options: Options,
    placement: Placement,
    costs: Costs,
) -> Decision:
    """Where each node runs.

    Raises
    ------
    CompileError
        If the user's choice names no node, or a node that the accelerator cannot run.
    """
    forced = user_sides(graph, placement.forced)
    able = accelerated_nodes(graph)
    if placement.policy == COST:
        cycles = cycles_by_node(graph, configuration, options)
        for name, side in forced.items():
            if side == ACCELERATOR and isinstance(refusal := cycles[name], str):
                raise CompileError(refusal)
        problem = problem_of(graph, cycles, forced, costs)
        evaluator = Evaluator(graph, problem, costs, partial(kernels_among, graph))
        return Decision(improve(evaluator), forced, cycles)
    chosen = {
        name
        for name in (node.output.name for node in able)
        if forced.get(name, placement.policy) == ACCELERATOR
    }
    moved = [node for node in able if forced.get(node.output.name) == CPU]
    cycles = cycles_alone(graph, moved, configuration, options)
    return Decision(frozenset(chosen), forced, cycles)
