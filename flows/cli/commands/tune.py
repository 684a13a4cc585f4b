"""`tilewright tune`: find faster schedules of a network's kernels by trials, and keep them."""

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from ....atomic_write import PAGE_SUFFIXES, check_output
from ....compiler.graph.short_names import short_name
from ....errors import DeviceError, ToolError, UsageError
from ....isa.configuration import DEFAULT
from ....quoting import printable, shell_word
from ....runtime.devices import (
    REMOTE,
    TF32,
    GpuDevice,
    HostDevice,
    has_accelerator,
    kind_of,
    open_device,
)
from ....sim.cache import kept_folder
from ....wording import counted
from ...execution.recorded_choices import (
    FILE,
    NO_RECORDS,
    RECORDS_VARIABLE,
    SWEEPS,
    default_records_path,
    graph_digest,
    records_path,
)
from ...sweep.records import Database
from ..arguments import (
    USUAL_OR_BOARDS,
    add_configuration,
    chosen_configuration,
    connected_board,
)
from ..console import say
from ..input_options import add_fixes, chosen_overrides
from ..json_output import add_json, check_json, write_json
from ..memory_options import add_memory, given_memory, memory_model
from ..operator_options import add_operators
from ..progress import progress_bar
from ..tuning_results import (
    kernel_sentences,
    layer_sentences,
    list_kernels,
    list_layers,
    records_sentence,
    write_page,
)

if TYPE_CHECKING:
    from ....compiler.graph import Graph
    from ....compiler.module import Module
    from ...tuning.kernel_records import KernelRecords
    from ...tuning.machines import TuningMachine
    from ...tuning.measuring import TrialMeasurer
    from ...tuning.tune import TaskState

DEFAULT_BUDGET = "60s"
DEFAULT_TUNER = "evolutionary"
INTERPRETER = "interpreter"


def add(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", type=Path, metavar="MODEL", nargs="?",
        help="ONNX file; without it, records are imported, exported or shown",
    )  # fmt: skip
    add_operators(parser)
    add_fixes(parser)
    parser.add_argument(
        "--target", choices=("host", "gpu", "accelerator"), default="host",
        help="kernels of this processor or of a GPU, by trials; or layers of the accelerator, by "
        "exact cycles (default: host)",
    )  # fmt: skip
    add_configuration(parser, USUAL_OR_BOARDS)
    add_memory(parser, "main memory of the accelerator")
    parser.add_argument(
        "--layer", metavar="NAME",
        help="tune only this layer: its name or that of one of its nodes; other divisions into "
        "layers are then not tried",
    )  # fmt: skip
    parser.add_argument(
        "--device", action="append", default=[], metavar="ADDRESS", dest="devices",
        help="what runs the programs that are tried; several share them: remote://AGENT/host for "
        "host; for gpu, gpu:cuda or gpu:opencl, or with --list a level such as gpu:sm80; for "
        "accelerator, a simulator, a board's address or remote://AGENT/DEVICE (default: this "
        "processor; the first GPU; exact cycles)",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=int, metavar="N",
        help="threads that share a kernel's loops (default: all, as in `run`)",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, default=0, metavar="N",
        help="for accelerator, number of local processes that count exact cycles (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--scheduler", metavar="ADDRESS",
        help="for accelerator, address of the Dask scheduler whose cluster counts exact cycles, "
        "such as tls://host:8786",
    )  # fmt: skip
    parser.add_argument(
        "--budget", default=DEFAULT_BUDGET, metavar="TIME|TRIALS",
        help=f"60s, 5m, 2h, or a number of trials (default: {DEFAULT_BUDGET})",
    )  # fmt: skip
    parser.add_argument(
        "--tuner", metavar="NAME",
        help="evolutionary, xgboost (needs the extra `sweep`), random or grid (default: "
        f"{DEFAULT_TUNER})",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N",
        help="seed of the tuner and of test data (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--database", type=Path, metavar="FILE",
        help="database of records (default: that of sweeps in the cache, which `compile` and `run` "
        "use)",
    )  # fmt: skip
    parser.add_argument(
        "--list", action="store_true", dest="listing",
        help="print the kernels, the sizes of their spaces, and what was left out; measure nothing",
    )  # fmt: skip
    parser.add_argument(
        "--import", type=Path, metavar="FILE", dest="imported",
        help="first add the records of a file of JSON lines",
    )  # fmt: skip
    parser.add_argument(
        "--export", type=Path, metavar="FILE", dest="exported",
        help="at the end, write all records of kernels as JSON lines",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.html",
        help="write a page that works offline, from the records of this run and earlier ones: best "
        "so far, predicted and measured, the space; without MODEL, of all networks",
    )  # fmt: skip
    add_json(parser, "every trial")
    parser.set_defaults(function=tune_)


def tune_(arguments: argparse.Namespace) -> None:
    """Tune, list, or exchange records.

    Raises
    ------
    TilewrightError
        For a problem with the model, the options or the database.
    """
    check_json(arguments.json)
    check_arguments(arguments)
    check_output(arguments.exported, f"`--export {arguments.exported}`", [arguments.source])
    page = arguments.output
    check_output(page, f"`--output {page}`", [arguments.source], PAGE_SUFFIXES)
    from ...tuning.kernel_records import KernelRecords

    path = arguments.database or _default_database()
    if arguments.source is None and arguments.imported is None and not path.exists():
        raise UsageError(
            f"`--database {path}`: expected records of earlier runs, got no such file; correct the "
            "path, or tune first: `tilewright tune MODEL"
            + (f" --database {shell_word(str(path))}`" if arguments.database else "`")
        )
    kept = records_sentence(path, arguments.threads)
    with Database(path) as database:
        records = KernelRecords(database)
        quiet = arguments.json == "-"
        if arguments.imported:
            count = records.merge_lines(arguments.imported)
            if not quiet:
                say(f"{arguments.imported}: {count:,} new records")
        tuned: set[str] | None = None
        if arguments.source is not None and arguments.target == "accelerator":
            with ExitStack() as held:
                tuned = _tune_layers(arguments, database, held, kept)
        elif arguments.source is not None:
            tuned = _tune_model(arguments, records, kept)
        database.flush()  # the results are told, even if the disk has no room for them
        if arguments.output:
            write_page(arguments, database, tuned)
        if arguments.exported:
            count = records.export(arguments.exported)
            if not quiet:
                say(f"{arguments.exported}: {counted(count, 'record')}")


def check_arguments(arguments: argparse.Namespace) -> None:
    """Reject arguments that make no sense.

    Raises
    ------
    UsageError
        The message names one.
    """
    from ...tuning.tuners import check_tuner

    if arguments.target == "accelerator":
        for name in ("tuner", "threads"):
            if (value := getattr(arguments, name)) is not None:
                raise UsageError(
                    f"`--{name} {value}`: layers of the accelerator are searched by exact cycles, "
                    "in one order; leave it out"
                )
    arguments.tuner = arguments.tuner or DEFAULT_TUNER
    check_tuner(arguments.tuner)
    others = arguments.imported, arguments.exported, arguments.output
    if arguments.source is None and not any(others):
        raise UsageError(
            "MODEL: expected an ONNX file, or `--import`, `--export` or `--output`; name one"
        )
    if arguments.threads is not None and arguments.threads < 1:
        raise UsageError(f"`--threads {arguments.threads}`: expected 1 or more; correct it")
    if arguments.seed < 0:
        raise UsageError(f"`--seed {arguments.seed}`: expected 0 or more; correct it")
    if arguments.workers < 0:
        raise UsageError(f"`--workers {arguments.workers}`: expected 0 or more; correct it")
    counting = "scheduler" if arguments.scheduler else "workers" if arguments.workers else ""
    if counting and (arguments.target != "accelerator" or arguments.devices):
        raise UsageError(
            f"`--{counting}`: expected `--target accelerator` without `--device`, since only exact "
            "cycles do not depend on where they are counted; leave it out"
        )
    machine = {"config": arguments.config, "set": arguments.changes}
    if arguments.target == "gpu" and arguments.threads is not None:
        raise UsageError(
            f"`--threads {arguments.threads}`: schedules of a GPU choose their threads; leave it "
            "out"
        )
    if arguments.target != "accelerator" and (
        given := [*(name for name in machine if machine[name]), *given_memory(arguments)]
    ):
        raise UsageError(
            f"`--{given[0]}`: expected `--target accelerator`; it has no effect on single kernels, "
            "leave it out"
        )
    if arguments.target == "gpu":
        _check_gpus(arguments.devices)
    for device in arguments.devices:
        on_host = kind_of(device) == HostDevice.name and device.startswith(REMOTE)
        if arguments.target == "host" and not on_host:
            raise UsageError(
                f"`--device {device}`: expected `remote://AGENT/host` for kernels of a processor; "
                "add `--target accelerator` for other devices"
            )
        if arguments.target == "accelerator" and not has_accelerator(device):
            raise UsageError(
                f"`--device {device}`: expected a device with an accelerator; name a simulator, a "
                "board or remote://AGENT/DEVICE"
            )


def _check_gpus(devices: Sequence[str]) -> None:
    """Reject devices that are no GPU to measure on."""
    for device in devices:
        kind = device.partition("?")[0]
        if len(devices) > 1 or kind.partition(":")[0] != GpuDevice.name or "+" in kind:
            raise UsageError(
                f"`--device {device}`: expected one GPU for `--target gpu`: gpu:cuda or "
                "gpu:opencl; or a level such as gpu:sm80 with `--list`"
            )
        if kind == f"{GpuDevice.name}:{INTERPRETER}":
            raise UsageError(
                f"`--device {device}`: its times are not those of a GPU; name gpu:cuda or "
                "gpu:opencl, or list candidates with `--device gpu:sm80 --list`"
            )


def _default_database() -> Path:
    named = records_path()
    if named is not None and named != default_records_path():
        return named
    return kept_folder(SWEEPS, "tune") / FILE


def _tune_model(arguments: argparse.Namespace, records: "KernelRecords", kept: str) -> set[str]:
    """Tune or list kernels, and return their workloads."""
    from ....compiler.frontend import import_model, recognise_layers
    from ...tuning.tasks import tasks_of, tasks_of_layer, without_space
    from ...tuning.tune import TuningBudget, tune

    budget = TuningBudget.parse(arguments.budget)
    with progress_bar() as advance:
        advance(f"reading {arguments.source.name}", 0, None)
        graph = recognise_layers(
            import_model(arguments.source, **chosen_overrides(arguments).of_import)
        )
        advance("opening the processor", 0, None)
        measurer, machine = _open_measurer(arguments, graph, records)
    try:
        tasks = tasks_of(graph, machine)
        if not tasks:
            raise UsageError(
                f"`{arguments.source}`: expected kernels with free decisions, such as "
                "convolutions, got none; there is nothing to tune"
            )
        if arguments.layer:
            tasks = tasks_of_layer(tasks, graph, arguments.layer)
        if arguments.listing:
            list_kernels(arguments, tasks, {} if arguments.layer else without_space(graph, machine))
            return {task.workload for task in tasks}
        with progress_bar() as advance:

            def watch(state: "TaskState", trials: int) -> None:
                text = f"tuning {printable(state.task.title):.40}: {state.ratio:.3f} of the default"
                advance(text, trials, budget.trials)

            report = tune(
                tasks, measurer, records, arguments.tuner, budget, seed=arguments.seed, watch=watch
            )
    finally:
        measurer.close()
    if arguments.json:
        write_json(arguments.json, report.to_json())
    if arguments.json != "-":
        for line in (*kernel_sentences(report), kept, *measurer.sentences()):
            say(line)
    return {task.workload for task in tasks}


def _open_measurer(
    arguments: argparse.Namespace, graph: "Graph", records: "KernelRecords"
) -> "tuple[TrialMeasurer, TuningMachine]":
    """Return what judges candidates, and the machine on which it does."""
    from ....compiler.cpu.target import architectures
    from ....compiler.host import host_target
    from ...execution.recorded_choices import usable_threads
    from ...tuning.machines import CpuMachine
    from ...tuning.measuring import ProcessMeasurer

    if arguments.target == "gpu":
        return ProcessMeasurer(), _gpu_of(arguments)
    if arguments.devices:
        from ...tuning.agent_measuring import AgentMeasurer

        agents = AgentMeasurer(arguments.devices, graph, records.versions)
        return agents, CpuMachine(agents.target, arguments.threads or agents.threads)

    target = host_target()
    if target is None:
        raise UsageError(
            "`tune`: this processor has no kernels in machine code, so there is nothing to tune; "
            f"run it on {architectures()}"
        )
    return ProcessMeasurer(), CpuMachine(target, arguments.threads or usable_threads())


def _gpu_of(arguments: argparse.Namespace) -> "TuningMachine":
    """Return the GPU that is named, or a level of GPUs whose candidates are listed."""
    from ....compiler.gpu import LEVELS, GpuTarget
    from ...tuning.gpu_machine import GpuMachine

    device = next(iter(arguments.devices), GpuDevice.name)
    name, _, option = device.partition("?")
    level = name.partition(":")[2]
    if level in LEVELS and LEVELS[level].cpu:
        if arguments.listing and option in ("", TF32):
            return GpuMachine("", "", GpuTarget(level, tf32=bool(option)))
        raise UsageError(
            f"`--device {device}`: a level of GPUs has no times; add `--list` for the candidates "
            "and their estimates, or name a device, gpu:cuda or gpu:opencl"
        )
    try:
        with open_device(device, DEFAULT) as opened:
            assert isinstance(opened, GpuDevice)
            return GpuMachine.of(opened.driver)
    except (DeviceError, ToolError) as problem:
        raise type(problem)(
            f"{problem}; without a GPU, `--device gpu:sm80 --list` lists candidates and estimates"
        ) from problem


def _tune_layers(
    arguments: argparse.Namespace, database: Database, held: ExitStack, kept: str
) -> set[str]:
    """Search or list layers, and return the network's hash."""
    from ....compiler.frontend import import_model
    from ....compiler.scheduling.kernel_programs import ProgramStore
    from ...execution.compile_graph import compile_graph
    from ...execution.timed import require_segments
    from ...sweep.executors import OnDask
    from ...sweep.local_workers import LocalWorkers
    from ...tuning.candidate_workers import CandidateWorkers
    from ...tuning.layer_records import LayerRecords
    from ...tuning.layer_search import SearchedLayer, search_network
    from ...tuning.layer_trials import LayerTrials
    from ...tuning.shared_devices import SharedDevices
    from ...tuning.tune import TuningBudget

    budget = TuningBudget.parse(arguments.budget)
    graph = import_model(arguments.source, **chosen_overrides(arguments).of_import)
    configuration = chosen_configuration(arguments)
    if configuration is None:  # that of the board, or of the first of several
        boards = (connected_board(each, arguments.source, None) for each in arguments.devices)
        held_by = next(filter(None, boards), None)
        configuration = DEFAULT if held_by is None else held_by.configuration
    memory, devices = memory_model(arguments).with_stalls(0.0), None
    if arguments.devices:
        shared = held.enter_context(
            closing(SharedDevices(arguments.devices, configuration, memory))
        )
        devices = LayerTrials(shared)
        memory = devices.memory
    os.environ[RECORDS_VARIABLE] = NO_RECORDS  # the search begins with the compiler's schedules

    store = ProgramStore()  # compilations differ in a few layers

    def compile_with(schedules: Mapping[str, str]) -> "Module":
        return compile_graph(graph, configuration, memory=memory, schedules=schedules, store=store)

    with progress_bar() as advance:
        advance(f"compiling {graph.name}", 0, None)
        module = compile_graph(
            graph,
            configuration,
            lambda step: advance(f"compiling {graph.name}: {step}", 0, None),
            memory=memory,
            store=store,
        )
    require_segments(module, "schedules")
    only = _layers_called(module, arguments.layer) if arguments.layer else ()
    if arguments.listing:
        list_layers(arguments, module, only)
        return {graph_digest(graph)}
    total, changes, counted_by = 0, 0, devices.counted_by if devices else ""
    records = LayerRecords(database, graph, configuration, memory, counted_by)
    workers = None
    if arguments.scheduler or arguments.workers:
        executor = (
            OnDask([graph], arguments.scheduler)
            if arguments.scheduler
            else LocalWorkers([graph], arguments.workers)
        )
        held.callback(executor.close)
        workers = CandidateWorkers(executor, configuration, memory)
    with progress_bar() as advance:
        advance("searching", 0, None)

        def watch(result: SearchedLayer) -> None:
            nonlocal total
            total += 1
            name = printable(short_name(result.name))
            advance(f"searching {name:.40}", total, len(only or module.report["layers"]))

        def compile_change(schedules: Mapping[str, str]) -> "Module":
            nonlocal changes
            changes += 1
            text = f"searching: {counted(changes, 'change')} tried in the whole network"
            advance(text, total, len(only or module.report["layers"]))
            return compile_with(schedules)

        found = search_network(
            module, compile_change, trials=budget.trials or 1 << 30, seconds=budget.seconds,
            devices=devices, records=records, workers=workers, only=only, watch=watch,
        )  # fmt: skip
    trials = devices.log if devices else []
    if arguments.json:
        more = {"trials": [one.to_json() for one in trials]} if devices else {}
        write_json(arguments.json, {**found.to_json(), **more})
    if arguments.json != "-":
        for line in layer_sentences(found):
            say(line)
        if found.schedules:
            say(kept)
        for line in devices.shared.sentences() if devices else ():
            say(line)
        for one in trials:
            if one.cycles is None:
                say(f"{one.layer}: {one.verdict}: {one.text}")
    return {graph_digest(graph)}


def _layers_called(module: "Module", wanted: str) -> tuple[str, ...]:
    """Return the names of the layers that a name matches."""
    from ....runtime.names import find_layers, similar_layers

    if found := find_layers(module, wanted):
        return tuple(dict.fromkeys(layer.name for _, layer in found))
    raise UsageError(
        f"`--layer {wanted}`: expected the name of a layer on the accelerator"
        + similar_layers(module, wanted)
    )
