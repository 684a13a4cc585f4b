"""Choice of a side, accelerator or host, for each node.

The search for the cheapest placement has two steps. A minimum cut finds the least time if the sides
work one after the other (`problem`). A local search then lets both work at once (`improve`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from ...argument_types import checked_class
from ...errors import CompileError, UnfitError
from ...isa.configuration import Configuration
from ..graph import Graph, Node, accelerated_nodes
from ..options import Options
from .costs import Costs, kernels_among
from .improve import improve
from .node_cycles import Cycles, cycles_alone, cycles_by_node
from .problem import problem_of
from .timeline import Evaluator
from .user_placement import ACCELERATOR, HOST, user_sides

COST = "cost"

NO_REFUSALS: Mapping[str, str] = MappingProxyType({})
"""No nodes that do not fit."""

POLICIES = (ACCELERATOR, COST, HOST)
"""The accelerator runs every node that it can; the nodes that are cheapest there; none."""


@checked_class("Placement")
@dataclass(frozen=True, slots=True)
class Placement:
    """The user's request: a policy, and sides by name.

    Parameters
    ----------
    policy : str
        One of `POLICIES`, for all nodes without a choice by name.
    forced : tuple of tuple
        Pairs of a name and a side, `accelerator` or `host`. The name is a node's name, the end of
        one, or a pattern with `*`. Later pairs win.
    strict : bool
        Refuse a network with a layer that does not fit the configuration, instead of leaving the
        layer to the host. Cycles of different machines can then be compared.

    Raises
    ------
    CompileError
        For a policy or a side that does not exist.
    """

    policy: str = ACCELERATOR
    forced: tuple[tuple[str, str], ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise CompileError(
                f"placement `{self.policy}`: expected one of {', '.join(POLICIES)}; choose one"
            )
        for name, side in self.forced:
            if side not in (ACCELERATOR, HOST):
                raise CompileError(
                    f"placement of `{name}`: expected {ACCELERATOR} or {HOST}, got `{side}`; "
                    "choose one"
                )

    @property
    def leaves_all(self) -> bool:
        """Whether the host runs everything, for any network."""
        return self.policy == HOST and all(side == HOST for _, side in self.forced)


DEFAULT_PLACEMENT = Placement()

STRICT_PLACEMENT = Placement(strict=True)
"""The accelerator runs every node that an accelerator can run, or the network is refused."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The side of each node, by its first output.

    Parameters
    ----------
    accelerated : frozenset of str
        Nodes that the accelerator runs.
    forced : mapping
        Sides that the user chose.
    cycles : Cycles
        Estimated cycles of the nodes that needed an estimate, and the reasons of those that do not
        fit.
    """

    accelerated: frozenset[str]
    forced: Mapping[str, str]
    cycles: Cycles

    def on_accelerator(self, node: Node) -> bool:
        return node.outputs[0].name in self.accelerated

    def renamed(self, names: Mapping[str, str]) -> "Decision":
        """The same choices for nodes whose first outputs have new names."""
        forced = {names.get(name, name): side for name, side in self.forced.items()}
        cycles = {names.get(name, name): found for name, found in self.cycles.items()}
        return replace(self, forced=forced, cycles=cycles)


def decide(
    graph: Graph,
    configuration: Configuration,
    options: Options,
    placement: Placement,
    costs: Costs,
    refused: Mapping[str, str] = NO_REFUSALS,
) -> Decision:
    """Choose the side of each node.

    Parameters
    ----------
    refused : mapping
        Nodes that are known not to fit, by first output, and the reasons. The host runs them.

    Raises
    ------
    CompileError
        If a name in the user's request matches no node, or a node that the accelerator cannot run.
    UnfitError
        If the user placed a node there that does not fit.
    """
    forced = user_sides(graph, placement.forced)
    able = accelerated_nodes(graph)
    _refuse_forced(graph, forced, refused)
    if placement.policy == COST:
        cycles = {**cycles_by_node(graph, configuration, options), **refused}
        _refuse_forced(graph, forced, cycles)
        problem = problem_of(graph, cycles, forced, costs)
        evaluator = Evaluator(graph, problem, costs, partial(kernels_among, graph))
        return Decision(improve(evaluator), forced, cycles)
    chosen = {
        name
        for name in (node.output.name for node in able)
        if forced.get(name, placement.policy) == ACCELERATOR and name not in refused
    }
    moved = [node for node in able if forced.get(node.output.name) == HOST]
    cycles = {**cycles_alone(graph, moved, configuration, options), **refused}
    return Decision(frozenset(chosen), forced, cycles)


def _refuse_forced(graph: Graph, forced: Mapping[str, str], cycles: Cycles) -> None:
    """Refuse nodes that the user placed on the accelerator and that do not fit it."""
    for name, side in forced.items():
        if side == ACCELERATOR and isinstance(refusal := cycles.get(name), str):
            node = graph.producer(name)
            assert node is not None
            raise UnfitError(
                f"placement of `{node.name}`: expected a layer that fits the accelerator, got: "
                f"{refusal}, or leave the layer to the {HOST}"
            )
