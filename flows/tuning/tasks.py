"""The tasks of a network: its kernels that have a space of schedules, each of them once."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...compiler.cpu.kernels.choices import Choice, digest_of, workload_of
from ...compiler.cpu.kernels.description import TunableDescription
from ...compiler.graph import Graph
from ...compiler.graph.short_names import listed_names
from ...compiler.host import plan_host
from ...errors import CompileError, UsageError
from ...runtime.names import is_called, node_names
from .features import Features
from .machines import TuningMachine
from .trial import TuningSetting


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel to tune.

    Parameters
    ----------
    names
        Short names of the kernels of this description.
    """

    names: tuple[str, ...]
    product: TunableDescription
    machine: TuningMachine

    @property
    def workload(self) -> str:
        """Hash of what it computes."""
        return digest_of(workload_of(self.product))

    @property
    def count(self) -> int:
        """Number of kernels in the network."""
        return len(self.names)

    @property
    def title(self) -> str:
        """A name for people: the first kernel's, and the number of others."""
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        return f"{self.names[0]}{more}"

    def setting(self, seed: int) -> TuningSetting:
        """Return the task for a process that measures."""
        return TuningSetting(self.product, self.machine, seed)

    def space(self) -> "KernelSpace":
        """Return all schedules that its planner offers."""
        return KernelSpace(tuple(self.machine.space(self.product)))

    def features(self, choice: Choice) -> Features:
        """Return the features of a candidate."""
        return self.machine.features(self.product, choice)

    def left_out(self, points: Iterable[Choice]) -> dict[str, int]:
        """Return why the steps' own checks refuse some of the points, with their number."""
        found: dict[str, int] = {}
        for choice in points:
            try:
                self.machine.check(self.product.with_choice(choice))
            except CompileError as problem:
                text = str(problem)
                found[text] = found.get(text, 0) + 1
        return found


@dataclass(frozen=True, slots=True)
class KernelSpace:
    """The points of a task, the default first."""

    points: tuple[Choice, ...]

    def __len__(self) -> int:
        return len(self.points)

    @property
    def questions(self) -> dict[str, tuple[int | str, ...]]:
        """All answers of each question, in the order in which they first occur."""
        return answers_of(map(dict, self.points))


def answers_of(points: Iterable[Mapping[str, int | str]]) -> dict[str, tuple[int | str, ...]]:
    """Return all answers in the points of a space, by name, as they first occur."""
    found: dict[str, dict[int | str, None]] = {}
    for point in points:
        for name, value in point.items():
            found.setdefault(name, {})[value] = None
    return {name: tuple(values) for name, values in found.items()}


def tasks_of(graph: Graph, machine: TuningMachine) -> list[KernelTask]:
    """Return the kernels of a network on the host that can be tuned, each description once.

    The whole network runs on the host, as with `--device host`.
    """
    steps = tuple(node.outputs[0].name for node in graph.nodes)
    names = node_names(graph)
    found: dict[TunableDescription, list[str]] = {}
    for step in plan_host(graph, steps, (), machine.host).kernels:
        for description in step.descriptions():
            if isinstance(description, TunableDescription) and _has_space(description, machine):
                found.setdefault(description, []).append(names[step.output])
    return [KernelTask(tuple(own), product, machine) for product, own in found.items()]


def tasks_of_layer(tasks: Sequence[KernelTask], graph: Graph, wanted: str) -> list[KernelTask]:
    """Return the tasks of the layers that a name matches.

    Raises
    ------
    UsageError
        If no kernel with a space has the name.
    """
    names = node_names(graph)
    called = {names[node.outputs[0].name] for node in graph.nodes if is_called(node, wanted)}
    found = [task for task in tasks if not {wanted, *called}.isdisjoint(task.names)]
    if not found:
        known = listed_names(name for task in tasks for name in task.names)
        raise UsageError(
            f"`--layer {wanted}`: expected a kernel with free decisions; choose one of {known}"
        )
    return found


def without_space(graph: Graph, machine: TuningMachine) -> dict[str, int]:
    """Return the kinds of kernels that have no space of schedules, with their number."""
    steps = tuple(node.outputs[0].name for node in graph.nodes)
    kinds = (
        type(one).__name__
        for one in plan_host(graph, steps, (), machine.host).descriptions()
        if not (isinstance(one, TunableDescription) and _has_space(one, machine))
    )
    return dict(Counter(kinds))


def _has_space(kernel: TunableDescription, machine: TuningMachine) -> bool:
    """Whether its planner has free decisions: those of a few elements have one answer each."""
    return any(len(answers) > 1 for answers in machine.questions(kernel).values())
