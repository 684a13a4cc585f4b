"""Make the set of schedules that Tilewright ships for common shapes on this processor.

Every kernel of the networks gets the same number of trials. The winner is measured again in a new
process, which did not choose it; only what is faster there, beyond the noise, is written. A
database keeps all trials, so an interrupted run continues. Sets of other processors, levels and
numbers of threads stay in the file.
"""

import argparse
import datetime
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ...atomic_write import write_output
from ...compiler.cpu import host
from ...compiler.cpu.kernels.choices import Choice, choice_of, choice_text
from ...compiler.frontend import import_model, recognise_layers
from ...compiler.graph import Graph
from ...compiler.te.nodes import For, nodes
from ...compiler.te.target import Kind
from ...errors import UsageError, did_you_mean
from ...examples import encoder, networks
from ...wording import counted
from ..cli.main import guarded
from ..execution.recorded_choices import best_texts
from ..execution.shipped_choices import (
    SHIPPED,
    ShippedRecord,
    ShippedSet,
    processor_name,
    set_lines,
    shipped_sets,
)
from ..sweep.records import Database
from ..tuning.kernel_records import KernelRecords, versions_now
from ..tuning.machines import CpuMachine
from ..tuning.measuring import ProcessMeasurer
from ..tuning.outcome import TrialOutcome
from ..tuning.tasks import KernelTask, tasks_of
from ..tuning.tune import MIN_GAIN, TuningBudget, tune
from ..tuning.tuners import TUNERS, check_tuner

SEED = 0


def transformer() -> encoder.Encoder:
    """Return one block of BERT-base for 128 tokens: Devlin et al. (arXiv:1810.04805)."""
    return encoder.Encoder(128, 768, 12, 3072, operators=True)


def quantised(write: Callable[[Path], None]) -> bytes:
    """Return the file that a quantiser writes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "quantised.onnx"
        write(path)
        return path.read_bytes()


def float_file(name: str) -> bytes:
    """Return a float network of `examples/networks.py` for images of 224x224."""
    return networks.float_model(name).SerializeToString()


def int8_file(name: str) -> bytes:
    """Return the same network with int8 weights and activations."""
    images = networks.draw_images(networks.CALIBRATION_IMAGES, networks.SEED)
    return quantised(partial(networks.quantise, networks.float_model(name), images))


MODELS: Mapping[str, Callable[[], bytes]] = {
    "resnet18": lambda: float_file("resnet18"),
    "mobilenet_v2": lambda: float_file("mobilenet_v2"),
    "transformer": lambda: transformer().model().SerializeToString(),
    "resnet18-int8": lambda: int8_file("resnet18"),
    "mobilenet_v2-int8": lambda: int8_file("mobilenet_v2"),
    "transformer-int8": lambda: quantised(
        lambda path: encoder.quantise(transformer(), path, zero_points=True)
    ),
}
"""ONNX files by name."""


def graph_of(name: str) -> Graph:
    """Return a network imported as `tilewright tune` imports it."""
    return recognise_layers(import_model(MODELS[name]()))


class WinnerBench:
    """Tunes kernels in one process and measures the winners again in another.

    Parameters
    ----------
    tuner, trials
        The search of each kernel.
    """

    def __init__(self, records: KernelRecords, tuner: str, trials: int) -> None:
        self._records, self._tuner = records, tuner
        self._budget = TuningBudget(trials=trials)
        self._search, self._check = ProcessMeasurer(), ProcessMeasurer()

    def best_of(self, task: KernelTask) -> TrialOutcome | None:
        """Return the best schedule of this run and earlier ones, with times of the second process.

        None if the default stays.
        """
        if self._budget.trials:
            tune([task], self._search, self._records, self._tuner, self._budget, seed=SEED)
        place = task.workload, task.machine.digest
        best = choice_of(best_texts(self._records.database).get(place, "default"))
        if not best:
            return None
        (again,) = self._check.measure(task.setting(SEED), [best], ())
        return again if again.ratio is not None and again.ratio < 1 - MIN_GAIN else None

    def close(self) -> None:
        """Stop all processes."""
        self._search.close()
        self._check.close()


def loops_of(task: KernelTask, choice: Choice) -> list[int]:
    """Return the extents of a kernel's parallel loops."""
    program = task.product.with_choice(choice).plan(task.machine.host).schedule.program()
    found = (node for node in nodes(program.body) if isinstance(node, For))
    return [node.extent for node in found if node.kind is Kind.PARALLEL]


def tuned(options: argparse.Namespace, bench: WinnerBench) -> Iterator[ShippedRecord]:
    """Tune the networks, print their gains, and yield what is worth a record."""
    seen: set[str] = set()
    for name in options.networks:
        ratios: list[float] = []
        for task in tasks_of(graph_of(name), CpuMachine(host(), options.threads)):
            if task.workload in seen:
                continue
            seen.add(task.workload)
            best = bench.best_of(task)
            ratio = best.ratio if best is not None and best.ratio is not None else 1.0
            ratios.append(ratio)
            text = choice_text(best.choice) if best else "the default stays"
            print(f"{name}: {task.title}: {ratio:.3f}: {text}", file=sys.stderr, flush=True)
            if best is not None:
                title = f"{name}: {task.names[0]}"
                alike = loops_of(task, ()) == loops_of(task, best.choice)
                yield ShippedRecord(task.workload, text, round(ratio, 3), alike, title)
        gain = math.exp(-math.fsum(map(math.log, ratios)) / max(1, len(ratios)))
        print(f"{name}: {counted(len(ratios), 'kernel')}, {gain:.3f} times as fast in the mean")


def main(arguments: list[str] | None = None) -> int:
    """Tune, and replace this processor's set in the file."""
    program = "python -m tilewright.flows.bench.shipped_records"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--networks", nargs="+", default=[*MODELS], metavar="NAME")
    parser.add_argument(
        "--trials",
        type=int,
        default=64,
        help="of each kernel; 0 measures the winners of earlier runs again",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tuner", default=TUNERS[0])
    parser.add_argument("--database", type=Path, default=Path("build/shipped_records.db"))
    parser.add_argument("--output", type=Path, default=SHIPPED)
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments

    def call() -> None:
        check_tuner(options.tuner)
        for name in options.networks:
            if name not in MODELS:
                hint = did_you_mean(name, MODELS)
                expected = ", ".join(MODELS)
                raise UsageError(f"`--networks {name}`: expected some of {expected}{hint}")
        options.database.parent.mkdir(parents=True, exist_ok=True)
        with Database(options.database) as database:
            bench = WinnerBench(KernelRecords(database), options.tuner, options.trials)
            with closing(bench):
                found = tuple(tuned(options, bench))
        target, date = host(), datetime.datetime.now(datetime.UTC).date().isoformat()
        mine = ShippedSet(
            processor_name(), target.triple, target.level, options.threads, date,
            " ".join([program, *given]), versions_now(), found,
        )  # fmt: skip
        others = [one for one in shipped_sets(options.output) if one.title != mine.title]
        lines = set_lines([*others, mine])
        write_output(options.output, lines, f"`--output {options.output}`")
        print(f"{options.output}: {counted(len(found), 'record')} of `{mine.title}`")

    return guarded(call)


if __name__ == "__main__":
    sys.exit(main())
