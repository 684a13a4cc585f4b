"""Where the time and the bytes of a run went, layer by layer.

Layers overlap in time: the next one's loads begin while this one computes. A layer's cycles are
therefore what it adds to the completion time, the last retirement of its own instructions minus
the last retirement of all layers before it. They are never negative and sum to the completion of
the last layer; start-up counts to the first one, and the few cycles after the last retirement to
none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..compiler.host import Evaluate, HostKernel, Recurrence
from ..compiler.host.order import order_events
from ..compiler.module import Module, Segment
from ..isa.configuration import Configuration
from ..isa.instructions import Instruction, Load, Store
from .device import Result

ACCELERATOR, CPU, HOST = "accelerator", "cpu", "host"


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One step of a network.

    Parameters
    ----------
    name, short
        The model's name for it, joined with ` + ` where nodes are fused, and a short one that is
        unique on the accelerator.
    op
        What it computes, joined with `+`.
    target
        `accelerator`, `cpu` for kernels of the CPU target, or `host` for NumPy.
    macs
        Multiplications as the model defines them.
    instructions
        Of the accelerator's program.
    read_bytes, written_bytes
        What its LOAD and STORE instructions move from and to main memory.
    cycles
        Added to the completion time; None where the device knows no time, and on the host.
    utilisation
        `macs` over what the array could have done in `cycles`; None without cycles. More than one
        where part of the work was done before the layers ahead were complete.
    microseconds
        On the host: what the run took, or several typically, by the clock; None on the
        accelerator. Profiles are compared without it.
    """

    name: str
    short: str
    op: str
    target: str
    macs: int = 0
    instructions: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    cycles: int | None = None
    utilisation: float | None = None
    microseconds: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class HostRun:
    """What the host did in a run.

    Parameters
    ----------
    kernels
        Nodes that ran as kernels; all other host steps ran in NumPy.
    seconds
        How long each step took, by the value that it gave.
    """

    kernels: tuple[HostKernel | Recurrence, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def typical(self, seconds: Sequence[Mapping[str, float]]) -> "HostRun":
        """The same with the median time that each step took in several runs."""
        return HostRun(
            self.kernels,
            {name: float(np.median([run[name] for run in seconds])) for name in self.seconds},
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """A run's layers in order, and the cycles of all segments from start to done.

    Parameters
    ----------
    layers
        Host steps too.
    cycles
        None where the device knows no time.
    exact
        Whether cycles are the hardware's; False where random stalls are left out.
    utilisation
        Of the multiplier array over `cycles`.
    counters
        The device's performance counters, summed over segments.
    """

    layers: tuple[LayerProfile, ...]
    cycles: int | None
    exact: bool
    utilisation: float | None
    counters: Mapping[str, int]

    def __repr__(self) -> str:
        cycles = "no" if self.cycles is None else f"{self.cycles:,}"
        return f"<Profile of {len(self.layers)} layers: {cycles} cycles>"

    @property
    def macs(self) -> int:
        """Multiplications on the accelerator."""
        return _accelerator_macs(self.layers)

    @property
    def all_macs(self) -> int:
        """Multiplications of all layers that count them, whoever runs them."""
        return sum(layer.macs for layer in self.layers)

    @property
    def read_bytes(self) -> int:
        """Bytes from main memory, the program left out."""
        return sum(layer.read_bytes for layer in self.layers)

    @property
    def written_bytes(self) -> int:
        """Bytes to main memory."""
        return sum(layer.written_bytes for layer in self.layers)

    @property
    def instructions(self) -> int:
        """Instructions of all layers."""
        return sum(layer.instructions for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON values."""
        return {
            "layers": [asdict(layer) for layer in self.layers],
            "totals": {
                "cycles": self.cycles,
                "exact": self.exact,
                "macs": self.macs,
                "utilisation": self.utilisation,
                "read_bytes": self.read_bytes,
                "written_bytes": self.written_bytes,
                "instructions": self.instructions,
            },
            "counters": dict(self.counters),
        }


def profile_of(
    module: Module,
    results: Sequence[Result],
    names: Mapping[str, str],
    host: HostRun = HostRun(),
) -> Profile:
    """Profile of a run.

    Parameters
    ----------
    results
        Of each segment.
    names
        Short name of each value, from `layer_names`.
    host
        What the host did.
    """
    rows: list[LayerProfile] = []
    kernels = {kernel.output: kernel for kernel in host.kernels}
    evaluated = _numpy_macs(module, host)
    inside = {n.outputs[0].name for k in host.kernels for n in k.nodes} - set(kernels)
    for step in module.steps:
        if isinstance(step, int):
            rows += _segment_rows(module.segments[step], results[step], module.configuration, names)
        elif step not in inside:
            seconds, macs = host.seconds.get(step), evaluated.get(step, 0)
            rows.append(_host_row(step, module, kernels.get(step), names, seconds, macs))
    times = [result.cycles for result in results]
    cycles = None if not times or None in times else sum(time for time in times if time is not None)
    counters: dict[str, int] = {}
    for result in results:
        for name, value in result.counters.items():
            counters[name] = counters.get(name, 0) + value
    return Profile(
        tuple(rows),
        cycles,
        all(result.exact for result in results),
        utilisation(_accelerator_macs(rows), cycles, module.configuration),
        counters,
    )


def _accelerator_macs(rows: Sequence[LayerProfile]) -> int:
    return sum(row.macs for row in rows if row.target == ACCELERATOR)


def _numpy_macs(module: Module, host: HostRun) -> dict[str, int]:
    """Multiplications of each step that ran in NumPy, by the value that it gave first."""
    events = order_events(
        module.graph,
        [step for step in module.steps if isinstance(step, str)],
        (),
        [kernel for kernel in host.kernels if isinstance(kernel, HostKernel)],
        [kernel for kernel in host.kernels if isinstance(kernel, Recurrence)],
    )
    return {e.node.outputs[0].name: e.macs for e in events if isinstance(e, Evaluate)}


def _host_row(
    step: str,
    module: Module,
    kernel: HostKernel | Recurrence | None,
    names: Mapping[str, str],
    seconds: float | None,
    numpy_macs: int,
) -> LayerProfile:
    if kernel is None:
        node = module.graph.producer(step)
        assert node is not None
        nodes = (node,)
    else:
        nodes = kernel.nodes
    return LayerProfile(
        " + ".join(dict.fromkeys(node.name for node in nodes)),
        names[step],
        "+".join(node.op for node in nodes),
        HOST if kernel is None else CPU,
        numpy_macs if kernel is None else kernel.macs,
        microseconds=None if seconds is None else seconds * 1e6,
    )


def utilisation(macs: int, cycles: int | None, configuration: Configuration) -> float | None:
    """Share of the multiplier array's steps that were of use; None without cycles."""
    if not cycles:
        return None
    return macs / (cycles * configuration.lanes_in * configuration.lanes_out)


def _segment_rows(
    segment: Segment, result: Result, configuration: Configuration, names: Mapping[str, str]
) -> list[LayerProfile]:
    cycles = layer_cycles(segment, result.spans)
    rows = []
    for layer, time in zip(segment.layers, cycles, strict=True):
        program = segment.program[layer.first : layer.last]
        rows.append(
            LayerProfile(
                layer.name,
                names[layer.output],
                layer.op,
                ACCELERATOR,
                layer.macs,
                len(program),
                *_moved_bytes(program),
                time,
                utilisation(layer.macs, time, configuration),
            )
        )
    return rows


def layer_cycles(segment: Segment, spans: np.ndarray | None) -> list[int | None]:
    """What each layer adds to the completion time; None for each without spans.

    Parameters
    ----------
    spans
        int64[instructions, 2]: start and retirement of every instruction.
    """
    if spans is None:
        return [None] * len(segment.layers)
    cycles: list[int | None] = []
    completed = 0
    for layer in segment.layers:
        retired = spans[layer.first : layer.last, 1]
        done = max(completed, int(retired.max(initial=0)))
        cycles.append(done - completed)
        completed = done
    return cycles


def _moved_bytes(program: Sequence[Instruction]) -> tuple[int, int]:
    """Bytes that LOADs read from main memory, and that STOREs write."""
    loads = [i for i in program if isinstance(i, Load) and not i.fill]
    stores = [i for i in program if isinstance(i, Store)]
    return (
        sum(load.length * load.steps() for load in loads),
        sum(store.length * store.steps() for store in stores),
    )
