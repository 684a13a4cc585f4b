"""Join nodes into kernels, and choose a schedule for each."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ...errors import ConfigurationError
from ...isa.configuration import PARAMETERS, Configuration
from ..accelerator.program_size import refuse_huge_programs
from ..accelerator.search import Candidate
from ..graph import Graph, Node
from ..graph.macs import macs_of
from ..main_memory.segment_layout import lay_out_segment
from ..scheduling.candidate_timer import CandidateTimer, Times
from ..scheduling.fusion import form_groups
from ..scheduling.issue_order import Measure
from ..scheduling.kernel_programs import ProgramStore
from .request import CompileRequest, Grouped, Progress

MAX_PORT_SEARCH_CYCLES = 250_000
"""Peak cycles of a segment up to which it is also searched for narrower ports."""

MAX_ALONE_CYCLES = 10_000
"""Peak cycles of a segment up to which the schedules of each kernel alone are tried together."""


def group(
    request: CompileRequest,
    graph: Graph,
    nodes: Sequence[Node],
    searched: Configuration,
    measure: Measure | None,
    store: ProgramStore,
    times: Times,
    progress: Progress = lambda line: None,
) -> tuple[Grouped, CandidateTimer | None]:
    """Form the kernels of a segment that are fastest on the machine `searched`.

    Parameters
    ----------
    times
        Known times on that machine; more are added.

    Returns
    -------
    timer
        Has timed the kernels on that machine; None without a measure.

    Raises
    ------
    UnfitError
        When a node does not fit the machine.
    CompileError
        When the program would be too large.
    """
    options = request.options
    layout = lay_out_segment(graph, nodes, searched, options)
    timer = None
    if measure is not None:
        programs = store.programs(*layout.placements.apart(), searched)
        timer = CandidateTimer(programs, searched, measure, times)
    groups = form_groups(layout, timer, schedules=request.schedules, progress=progress)
    pieces = (piece for each in groups for piece in each.work)
    work = ((kernel, choice) for kernel, choice in pieces if isinstance(choice, Candidate))
    refuse_huge_programs(work, request.configuration, options.most_instructions)
    return Grouped(layout, tuple(groups)), timer


def peak_cycles(graph: Graph, nodes: Sequence[Node], configuration: Configuration) -> float:
    """Return the cycles of a segment at the peak of the array."""
    return sum(macs_of(graph, node) for node in nodes) / configuration.tile_bytes


def narrower_ports(
    graph: Graph, nodes: Sequence[Node], configuration: Configuration
) -> Iterator[Configuration]:
    """Yield the machine with each narrower memory port, if the segment is short.

    A program for a narrower port runs on a wider one, nearly always as fast or faster. A search may
    miss it, because it judges kernels mostly alone; in short segments, where kernels overlap much,
    it often does. Searching for all ports, a machine never loses to a program for a narrower port.
    """
    cycles = peak_cycles(graph, nodes, configuration)
    bits = configuration.bus_bits // 2
    while cycles <= MAX_PORT_SEARCH_CYCLES and bits >= PARAMETERS["bus_bits"].low:
        with suppress(ConfigurationError):
            yield configuration.replace(bus_bits=bits)
        bits //= 2
