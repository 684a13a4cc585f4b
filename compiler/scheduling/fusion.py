"""Fusion: several nodes run as one kernel, so that the data between them stay on chip.

A convolution is fused with the only reader of its result: a residual addition, a look-up or a
pooling. Their VECTOR instructions run while the next tile is multiplied. A depthwise convolution is
also fused with the convolutions before and after it. Nodes are fused only if the group is no slower
than its parts, by exact time or, without a timing model, by the estimate.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import CompileError
from ...isa.configuration import Configuration
from ..accelerator.kernels import build_kernel
from ..accelerator.kernels.common import OWN_NAMES, StoredNode
from ..accelerator.kernels.movement import copy
from ..accelerator.lower_bound import demand_of
from ..accelerator.phases import phases_of
from ..accelerator.search import Candidate, choose_candidate
from ..graph import Node, QMul, Rearranging
from ..graph.operators import Accelerated, Convolving
from ..graph.operators.integer_rows import RowWise
from ..graph.short_names import JOINT, short_name
from ..main_memory.segment_layout import SegmentLayout
from ..options import Options
from ..tensor import Kernel
from .candidate_timer import CandidateTimer, cycles_of
from .given_schedules import NO_SCHEDULES, GivenSchedule, Part

ROWS_SLACK = 1.15
"""Statistics over rows are fused if that takes at most this many times as long alone."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes in order, the kernel of each, their fused kernel and its schedule.

    Parameters
    ----------
    halves
        The two groups that were fused; None for a single node.
    """

    nodes: tuple[Node, ...]
    parts: tuple[Kernel, ...]
    kernel: Kernel
    candidate: Candidate | GivenSchedule
    halves: "tuple[Group, Group] | None" = None

    @property
    def name(self) -> str:
        """The name in reports."""
        return self.kernel.name

    @property
    def op(self) -> str:
        """Operators of its nodes."""
        return "+".join(
            node.attributes.kind if isinstance(node.attributes, Convolving) else node.op
            for node in self.nodes
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Values that it reads, including constants."""
        made = {node.output.name for node in self.nodes}
        names = (name for node in self.nodes for name in node.inputs if name not in made)
        return tuple(dict.fromkeys(names))

    @property
    def output(self) -> str:
        """The value that it produces."""
        return self.nodes[-1].output.name

    @property
    def outputs(self) -> tuple[str, ...]:
        """All values that it stores."""
        tensors = (self.kernel.tensors[name] for name in self.kernel.kept)
        return (self.output, *(tensor.value or tensor.name for tensor in tensors))

    @property
    def work(self) -> tuple[Part, ...]:
        """The kernels to lower, with their schedules."""
        return ((self.kernel, self.candidate),)

    def with_work(self, work: Sequence[Part]) -> "Group":
        """The group with other schedules."""
        ((_, candidate),) = work
        return replace(self, candidate=candidate)


@dataclass(frozen=True, slots=True)
class MovementGroup:
    """A node that computes nothing, and the copies that it still needs."""

    nodes: tuple[Node, ...]
    work: tuple[Part, ...]

    def with_work(self, work: Sequence[Part]) -> "MovementGroup":
        """The movement with other schedules."""
        return replace(self, work=tuple(work))

    @property
    def name(self) -> str:
        """The name in reports."""
        return self.nodes[0].name

    @property
    def op(self) -> str:
        return self.nodes[0].op

    @property
    def inputs(self) -> tuple[str, ...]:
        """Values that it reads, or that are stored in its result."""
        return tuple(dict.fromkeys(self.nodes[0].inputs))

    @property
    def output(self) -> str:
        """The value that it produces."""
        return self.nodes[0].output.name

    @property
    def outputs(self) -> tuple[str, ...]:
        """All values that it stores, and the places of its copies."""
        places = (kernel.output for kernel, _ in self.work)
        return (self.output, *(place.value or place.name for place in places))


def form_groups(
    layout: SegmentLayout,
    timer: CandidateTimer | None = None,
    nodes: Sequence[Node] = (),
    schedules: Mapping[str, str] = NO_SCHEDULES,
    progress: Callable[[str], None] = lambda line: None,
) -> list[Group | MovementGroup]:
    """Kernels that compute a segment, in an order in which they can run.

    Parameters
    ----------
    layout
        The segment. Its outputs must reach main memory, even if its nodes read them.
    timer
        Times the most promising schedules; without it, the estimate decides.
    nodes
        Those to compute; by default all of the segment.
    schedules
        A user's schedules by layer. One of `a + b` joins `a` and `b`, and one of a part cuts the
        layer that it belongs to, even where that is slower.
    progress
        Called with a line of text before each node.

    Raises
    ------
    UnfitError
        When a node does not fit the configuration, even alone.
    """
    graph, configuration, options = layout.graph, layout.configuration, layout.options
    fuser = _Fuser(configuration, options, timer)
    groups: dict[str, Group | MovementGroup] = {}
    nodes = nodes or layout.nodes
    for number, node in enumerate(nodes, 1):
        progress(f"schedules of {short_name(node.name)}, {number} of {len(nodes)}")
        if isinstance(node.attributes, Rearranging):
            site = StoredNode(node, graph, configuration)
            kernels = [copy(wanted, site) for wanted in layout.placements.copies[node.output.name]]
            alone = (fuser.group([one], (node,)) for one in kernels)
            work = tuple(piece for group in alone for piece in group.work)
            groups[node.output.name] = MovementGroup((node,), work)
            continue
        kernel = build_kernel(node, graph, configuration, layout.images, gather=options.gather)
        group = fuser.group([kernel], (node,))
        alone = {name for name in node.inputs if only_reads(layout, name, node)}
        makers = {
            name: maker if name in alone else _storing(maker)
            for name in node.inputs
            if isinstance(maker := groups.get(name), Group)
            and (name in alone or isinstance(node.attributes, RowWise))
            and node.inputs.count(name) == 1
            and _kind_of(maker.nodes[0]).leads
        }
        if options.fuse and makers and (_kind_of(node).follows or _slides(group, makers)):
            # If two convolutions are added, use the later one: the other is complete by then.
            latest = max(makers, key=list(groups).index)
            kept, group = fuser.attach(makers[latest], group)
            entries = list(groups.items())
            place = list(groups).index(latest)
            entries[place : place + 1] = [(one.output, one) for one in kept]
            groups = dict(entries)
        groups[node.output.name] = group
    found = list(groups.values())
    for name, text in schedules.items():
        found = _with_layer(found, name, text, layout, fuser)
    return found


def _kind_of(node: Node) -> Accelerated:
    assert isinstance(node.attributes, Accelerated), "a segment has no other nodes"
    return node.attributes


def _slides(group: Group, makers: Mapping[str, Group]) -> bool:
    """Whether the group or a maker's last kernel is depthwise, or a maker ends in a product."""
    (phase,) = phases_of(group.kernel)
    return phase.window is not None or any(
        phases_of(maker.parts[-1])[-1].window is not None
        or isinstance(maker.nodes[-1].attributes, QMul)
        for maker in makers.values()
    )


def only_reads(layout: SegmentLayout, name: str, node: Node) -> bool:
    """Whether nothing but one operand of a node reads a value, which may then stay on chip."""
    users = layout.graph.users(name)
    alone = len(users) == 1 and users[0] is node and node.inputs.count(name) == 1
    return alone and name not in layout.outputs


def _storing(maker: Group) -> Group:
    """The group, which stores its result wherever it is fused with a reader."""
    *before, last = maker.parts
    halves = maker.halves and (maker.halves[0], _storing(maker.halves[1]))
    parts = (*before, replace(last, kept=(*last.kept, last.output.name)))
    return replace(maker, parts=parts, halves=halves)


def _ending(parts: Sequence[Kernel]) -> list[Kernel]:
    """The kernels of a group; the result of the last one is stored in any case."""
    *before, last = parts
    kept = tuple(name for name in last.kept if name != last.output.name)
    return [*before, replace(last, kept=kept)]


def _with_layer(
    groups: list[Group | MovementGroup],
    name: str,
    text: str,
    layout: SegmentLayout,
    fuser: "_Fuser",
) -> list[Group | MovementGroup]:
    """Group the kernels of a given name, and regroup what that leaves of other groups.

    The groups stay as they are where that group exists, or where its kernels hand nothing over.
    """
    names = name.split(JOINT)
    places = [
        place
        for place, group in enumerate(groups)
        if isinstance(group, Group) and any(part.name in names for part in group.parts)
    ]
    touched = [group for group in map(groups.__getitem__, places) if isinstance(group, Group)]
    parts = [part for group in touched for part in group.parts]
    nodes = tuple(node for group in touched for node in group.nodes)
    if not touched or any(name in (group.name, group.output) for group in touched):
        return groups
    first = next(at for at, part in enumerate(parts) if part.name in names)
    last = first + len(names)
    found = [part.name for part in parts if part.name in names]
    if not names == found == [part.name for part in parts[first:last]] or not all(
        hands_over(parts[at], parts[at + 1])
        and only_reads(layout, nodes[at].output.name, nodes[at + 1])
        for at in range(first, last - 1)
    ):
        return groups
    chain = _ending(parts[first:last])
    kernel = fuse(chain) if len(chain) > 1 else chain[0]
    made = Group(nodes[first:last], tuple(chain), kernel, GivenSchedule(name, text))
    before, after = (
        [fuser.group(_ending(parts[rest]), nodes[rest])] if parts[rest] else []
        for rest in (slice(0, first), slice(last, None))
    )
    now = {place: list[Group | MovementGroup]() for place in places}
    now[places[0]] += before
    now[places[-1]] += [made, *after]
    return [one for place, group in enumerate(groups) for one in now.get(place, [group])]


@dataclass(frozen=True, slots=True)
class _Fuser:
    """Groups with schedules, compared by exact time or, without a timer, by the estimate."""

    configuration: Configuration
    options: Options
    timer: CandidateTimer | None

    def group(
        self, kernels: Sequence[Kernel], nodes: tuple[Node, ...], rival: float = math.inf
    ) -> Group:
        """One kernel of all that are given; `rival` is the time of the same work apart."""
        kernel = kernels[0] if len(kernels) == 1 else fuse(kernels)
        if self.timer is None:
            depth = self.options.pipeline_depth
            candidate = choose_candidate(kernel, self.configuration, depth)
        else:
            candidate = self.timer.choose(kernel, self.options, rival)
        return Group(nodes, tuple(kernels), kernel, candidate)

    def attach(self, maker: Group, group: Group) -> tuple[list[Group], Group]:
        """Fuse a group with the maker of its input, or with the second half of that, if faster.

        Returns
        -------
        kept
            What remains of the maker.
        group
            The group that computes the result.
        """
        joined = self.join(maker, group)
        if joined is not None:
            return [], joined
        if maker.halves is not None:
            first, second = maker.halves
            other = self.join(second, group)
            if other is not None and self.cycles(first, other) < self.cycles(maker, group):
                return [first], other
        return [maker], group

    def join(self, first: Group, second: Group) -> Group | None:
        """Fuse two groups, if the result fits and is no slower."""
        if not hands_over(first.kernel, second.kernel):
            return None
        alone = [self.cycles(first), self.cycles(second)]
        kernels, nodes = (*first.parts, *second.parts), (*first.nodes, *second.nodes)
        try:
            fused = self.group(kernels, nodes, sum(alone))
        except CompileError:
            return None
        joined = replace(fused, halves=(first, second))
        together = self.cycles(joined)
        if self.timer is None:
            return joined if together <= sum(alone) else None
        if isinstance(second.nodes[-1].attributes, RowWise):
            # Alone, the first tile waits for all constants, and the passes over the last one for
            # nothing; `refine` compares the two among neighbours.
            together = int(together / ROWS_SLACK)
        # One after the other, they overlap a little: they take no less than the longer one, no less
        # than their bound, and no more than their sum. All are quicker to tell than the exact time.
        demands = [demand_of(group.kernel, self.configuration) for group in (first, second)]
        least = max(*alone, demands[0].cycles_before(demands[1]))
        apart = least if not least < together <= sum(alone) else self.cycles(first, second)
        return joined if together <= apart else None

    def cycles(self, *groups: Group) -> int:
        """Cycles of groups that run one after the other."""
        return cycles_of([(group.kernel, group.candidate) for group in groups], self.timer)


def hands_over(first: Kernel, second: Kernel) -> bool:
    """Whether a kernel reads another's result directly, once: not gathered, not in blocks.

    A result between phases is a ring with one reader, so no partial product or sum may read it too.
    """
    given = first.output
    value = given.value or given.name
    same = [one for one in second.tensors.values() if given.name == one.name or value == one.value]
    reads = [
        read
        for phase in phases_of(second)
        for read in phase.activations
        if read.tensor == given.name
    ]
    return (
        [(one.name, one.shape) for one in same] == [(given.name, given.shape)]
        and bool(reads)
        and not any(
            read.tensor == given.name and read in phase.operands
            for phase in phases_of(second)
            for one in phase.partials
            for read in one.operands
        )
        and not any(
            phase.shares_inputs and given.name in (read.tensor for read in phase.streams)
            for phase in phases_of(second)
        )
        and all(place.terms for read in reads for place in read.index)  # not broadcast
    )


def fuse(kernels: Sequence[Kernel]) -> Kernel:
    """One kernel with all stages; tensors between kernels are matched by name.

    A tensor in memory that two kernels read gets two names, since each kernel needs its own tiles.
    """
    stages, tensors, constants, kept = [], {}, {}, []
    for index, kernel in enumerate(kernels):
        made = {stage.output.name for stage in stages}
        again = {name for name in kernel.inputs if name in tensors and name not in made}
        own = again | {name for name in OWN_NAMES if name in kernel.tensors}
        named = {stage.output.name for stage in kernel.stages} | kernel.constants.keys()
        own |= named & tensors.keys()
        # No graph value has a name with a space here; see `tensor_name`.
        kernel = kernel.renamed({name: f"part {index} {name}" for name in own})
        stages += kernel.stages
        tensors |= kernel.tensors
        constants |= kernel.constants
        kept += kernel.kept
    return Kernel(
        name=JOINT.join(kernel.name for kernel in kernels),
        stages=tuple(stages),
        tensors=tensors,
        constants=constants,
        macs=sum(kernel.macs for kernel in kernels),
        kept=tuple(name for name in kept if name != stages[-1].output.name),
    )
