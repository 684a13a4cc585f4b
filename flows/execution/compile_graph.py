"""The only way from a graph to a module: exact times choose schedules, and the module is kept.

The Python API, the commands, the demo and the examples all compile here. So one network for one
machine always gives the same program.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...argument_types import checked
from ...compiler.graph import Graph
from ...compiler.module import Module
from ...compiler.options import DEFAULT_OPTIONS, Options
from ...compiler.pipeline import NO_SCHEDULES, Compilation, CompileRequest, compile_request
from ...compiler.placement import DEFAULT_COSTS, DEFAULT_PLACEMENT, Costs, Placement
from ...compiler.scheduling.kernel_programs import ProgramStore
from ...errors import TilewrightError
from ...isa.configuration import DEFAULT, Configuration
from ...isa.memory_model import MemoryModel
from ...isa.settings import DEFAULT_MEMORY
from ...sim.timing import ExactMeasure
from .compile_cache import CompileCache
from .recorded_choices import recorded_choices, recorded_schedules, recorded_texts

Progress = Callable[[str], None]


@checked("compile_graph")
def compile_graph(
    graph: Graph,
    configuration: Configuration = DEFAULT,
    progress: Progress = lambda line: None,
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
        Called with one line before each step: layers, by name, and kernels of the host.
    keep_all : bool
        Whether every activation is stored in its own place, so that all can be read after a run.
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
        Where the accelerator runs layers, its report adds `search` to that of `compile_request`:
        the largest number of `candidates` that were timed for a kernel, and the `measure` that
        timed them.

    Raises
    ------
    CompileError
        When a layer does not fit the configuration, or the placement is not possible.
    """
    texts, given = {} if lean else recorded_texts(), schedules
    if not schedules and placement == DEFAULT_PLACEMENT and options == DEFAULT_OPTIONS:
        schedules = recorded_schedules(texts, graph, configuration, memory.with_stalls(0.0))
    request = CompileRequest(
        graph=graph,
        configuration=configuration,
        memory=memory.with_stalls(0.0),
        options=options,
        placement=placement,
        costs=costs,
        schedules=schedules,
        keep_all=keep_all,
        lean=lean,
        choices={} if lean else recorded_choices(texts),
    )
    kept = CompileCache.of_request(request) if cache and not lean else None
    module = kept.load() if kept is not None else None
    if module is None:
        try:
            module = compile_with_exact_times(request, progress, store).module
        except TilewrightError:
            if schedules == given:
                raise
            # Records may come from a stranger: schedules that do not fit are left out.
            request = replace(request, schedules=given)
            module = compile_with_exact_times(request, progress, store).module
        if kept is not None:
            kept.save(module)
    return module


def compile_with_exact_times(
    request: CompileRequest, progress: Progress, store: ProgramStore | None = None
) -> Compilation:
    """Compile a request by the timing model; `compile_graph` explains the module's report."""
    measure = ExactMeasure(request.memory)
    found = compile_request(request, progress, measure=measure, store=store)
    if not found.segments:
        return found
    search = {"candidates": request.options.candidates, "measure": measure.name}
    module = replace(found.module, report={**found.module.report, "search": search})
    return replace(found, module=module)
