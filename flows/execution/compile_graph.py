"""The only way from a graph to a module: exact times choose schedules, and the module is kept.

The Python API, the commands, the demo and the examples all compile here. So one network for one
machine always gives the same program.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...compiler import compile as compiler
from ...compiler.assignment import DEFAULT_COSTS, DEFAULT_PLACEMENT, Costs, Placement
from ...compiler.compile import NO_SCHEDULES
from ...compiler.graph import Graph
from ...compiler.module import Module
from ...compiler.options import DEFAULT_OPTIONS, Options
from ...compiler.scheduling.kernel_programs import ProgramStore
from ...isa.configuration import DEFAULT, Configuration
from ...isa.memory_model import MemoryModel
from ...isa.settings import DEFAULT_MEMORY, memory_text
from ...sim.timing import ExactMeasure
from .compile_cache import CompileCache


def compile_graph(
    graph: Graph,
    configuration: Configuration = DEFAULT,
    progress: Callable[[str], None] = lambda line: None,
    *,
    keep_all: bool = False,
    options: Options = DEFAULT_OPTIONS,
    placement: Placement = DEFAULT_PLACEMENT,
    costs: Costs = DEFAULT_COSTS,
    schedules: Mapping[str, str] = NO_SCHEDULES,
    cache: bool = True,
    lean: bool = False,
    memory: MemoryModel = DEFAULT_MEMORY,
    store: ProgramStore | None = None,
) -> Module:
    """Compile an integer graph, or take the module from the cache.

    Parameters
    ----------
    graph : Graph
        As `import_model` gives it.
    configuration : Configuration
        The accelerator.
    progress : callable
        Called with one line for each layer, and for each kernel of the host.
    keep_all : bool
        Whether every activation has its own place, so that all can be read after a run.
    options : Options
        Optimisations that the compiler may apply.
    placement : Placement
        The side that runs each layer; by default, the accelerator runs all that it can.
    costs : Costs
        Figures for estimated times, which the report has, and by which a placement may choose.
    schedules : mapping
        Steps for some layers, by the layer's name; see `compiler.scheduling.given_schedules`.
    cache : bool
        Whether to look for the module in the cache folder, and to keep it there.
    lean : bool
        Whether to leave out what cycles do not depend on. A lean module is not cached.
    memory : MemoryModel
        Main memory for which the program is made. Its random stalls are left out.
    store : ProgramStore or None
        Shares the work of several compilations that differ in the memory only.

    Returns
    -------
    Module
        Where the accelerator runs layers, its report adds `search` to that of
        `compiler.compile.compile_graph`: the largest number of `candidates` that were timed for a
        kernel, and the `measure` that timed them.

    Raises
    ------
    CompileError
        When a layer does not fit the configuration, or the placement is not possible.
    """
    memory = memory.with_stalls(0.0)
    kept = None
    if cache and not lean:
        more = (
            () if placement == DEFAULT_PLACEMENT and costs == DEFAULT_COSTS else (placement, costs)
        )
        more = (*more, *sorted(schedules.items()), memory_text(memory))
        kept = CompileCache.of_graph(graph, configuration, options, keep_all=keep_all, more=more)
        module = kept.load()
        if module is not None:
            return module
    measure = ExactMeasure(memory)
    module = compiler.compile_graph(
        graph,
        configuration,
        progress,
        keep_all=keep_all,
        options=options,
        measure=measure,
        placement=placement,
        costs=costs,
        schedules=schedules,
        lean=lean,
        store=store,
    )
    if module.segments:
        search = {"candidates": options.candidates, "measure": measure.name}
        module = replace(module, report={**module.report, "search": search}, memory=memory)
    if kept is not None:
        kept.save(module)
    return module
