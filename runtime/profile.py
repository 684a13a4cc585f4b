"""The profile of a run: time and memory traffic of each layer.

Layers overlap in time: the loads of the next layer begin while this layer computes. The cycles of a
layer are therefore the time by which it delays the end of the run: the last retirement of its
instructions minus the last retirement of all earlier layers. They are never negative, and their sum
is the last retirement of the last layer. Start-up counts towards the first layer. The few cycles
after the last retirement count towards no layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..compiler.graph.macs import all_macs_of
from ..compiler.host import HostStep
from ..compiler.module import Module, Segment
from ..html_tables import html_table
from ..isa.configuration import Configuration
from ..isa.instructions import Instruction, Load, Store
from ..wording import counted
from .device import Result

ACCELERATOR, HOST, GPU, NUMPY = "accelerator", "host", "gpu", "numpy"


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One step of a network.

    Parameters
    ----------
    name, short : str
        The model's name, joined with ` + ` for fused nodes, and a short name that is unique among
        accelerator layers.
    op : str
        The operators, joined with `+`.
    target : str
        `accelerator`, `gpu`, `host` for kernels of the CPU target, or `numpy`, on the host too.
    macs : int
        Multiplications, as `compiler.graph.macs` defines them.
    instructions : int
        Number of instructions in the accelerator's program.
    read_bytes, written_bytes : int
        Bytes that its LOADs and STOREs move from and to main memory.
    cycles : int or None
        Time by which the layer delays the end of the run; None on the host, or if the device does
        not measure time.
    utilisation : float or None
        `macs` divided by the multiplications that the array can do in `cycles`; None without
        cycles. Above 1, the layer overlaps with the one before it.
    microseconds : float or None
        Time on the host, in one run or the median of several; None on the accelerator. Comparisons
        of profiles ignore it.
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
    """The host's steps in a run.

    Parameters
    ----------
    kernels : tuple
        Kernels that ran; NumPy ran all other host steps.
    seconds : mapping
        Seconds of each step, by the value that it computed.
    targets : mapping
        What ran the kernels that did not run on this processor, by the value that each computes.
    """

    kernels: tuple[HostStep, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)

    def typical(self, seconds: Sequence[Mapping[str, float]]) -> "HostRun":
        """Return the same steps with the median of their times in several runs."""
        return HostRun(
            self.kernels,
            {name: float(np.median([run[name] for run in seconds])) for name in self.seconds},
            self.targets,
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """The layers of a run in order, and the cycles of all segments.

    Parameters
    ----------
    layers : tuple
        Profiles of all layers and host steps.
    cycles : int or None
        Cycles from start to done; None if the device does not measure time.
    exact : bool
        Whether the cycles equal those of the hardware; False if random stalls are ignored.
    utilisation : float or None
        Used share of the multiplier array over `cycles`.
    counters : mapping
        The device's performance counters, summed over segments.
    """

    layers: tuple[LayerProfile, ...]
    cycles: int | None
    exact: bool
    utilisation: float | None
    counters: Mapping[str, int]

    def __repr__(self) -> str:
        cycles = "no" if self.cycles is None else f"{self.cycles:,}"
        return f"<Profile of {counted(len(self.layers), 'layer')}: {cycles} cycles>"

    def _repr_html_(self) -> str:
        return html_table(
            repr(self)[1:-1],
            ("layer", "operator", "target", "cycles", "us", "MACs", "use", "read", "written"),
            (
                (
                    layer.short,
                    layer.op,
                    layer.target,
                    layer.cycles,
                    layer.microseconds,
                    layer.macs or None,
                    None if layer.utilisation is None else f"{layer.utilisation:.1%}",
                    layer.read_bytes or None,
                    layer.written_bytes or None,
                )
                for layer in self.layers
            ),
            left=3,
        )

    @property
    def macs(self) -> int:
        """Multiplications on the accelerator."""
        return _accelerator_macs(self.layers)

    @property
    def all_macs(self) -> int:
        """Multiplications of all layers, on the accelerator and the host."""
        return sum(layer.macs for layer in self.layers)

    @property
    def read_bytes(self) -> int:
        """Bytes read from main memory, without the program."""
        return sum(layer.read_bytes for layer in self.layers)

    @property
    def written_bytes(self) -> int:
        """Bytes written to main memory."""
        return sum(layer.written_bytes for layer in self.layers)

    @property
    def instructions(self) -> int:
        """Instructions of all layers."""
        return sum(layer.instructions for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        """Return the profile as JSON values."""
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
    """Return the profile of a run.

    Parameters
    ----------
    results : sequence
        Result of each segment.
    names : mapping
        Short name of each value, from `layer_names`.
    host : HostRun
        The host's steps in the run.
    """
    rows: list[LayerProfile] = []
    kernels = {kernel.output: kernel for kernel in host.kernels}
    inside = {n.outputs[0].name for k in host.kernels for n in k.nodes} - set(kernels)
    for step in module.steps:
        if isinstance(step, int):
            rows += _segment_rows(module.segments[step], results[step], module.configuration, names)
        elif step not in inside:
            target = host.targets.get(step, HOST if step in kernels else NUMPY)
            seconds = host.seconds.get(step)
            rows.append(_host_row(step, module, kernels.get(step), target, names, seconds))
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


def _host_row(
    step: str,
    module: Module,
    kernel: HostStep | None,
    target: str,
    names: Mapping[str, str],
    seconds: float | None,
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
        target,
        all_macs_of(module.graph, nodes),
        microseconds=None if seconds is None else seconds * 1e6,
    )


def utilisation(macs: int, cycles: int | None, configuration: Configuration) -> float | None:
    """Return the used share of the multiplier array; None without cycles."""
    if not cycles:
        return None
    return macs / (cycles * configuration.lanes_in * configuration.lanes_out)


def _segment_rows(
    segment: Segment, result: Result, configuration: Configuration, names: Mapping[str, str]
) -> list[LayerProfile]:
    cycles = layer_cycles(segment, result.spans)
    rows = []
    for layer, time in zip(segment.layers, cycles, strict=True):
        program = [segment.program[place] for place in layer.places]
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
    """Return the cycles by which each layer delays the end of the run; None for each without spans.

    A layer ends with its last instruction but STORE, and the last one with the run: products of
    later layers may pass a STORE that would hold their bank.

    Parameters
    ----------
    spans : ndarray or None
        int64[instructions, 2]: start and retirement of every instruction.
    """
    if spans is None:
        return [None] * len(segment.layers)
    cycles: list[int | None] = []
    completed, last = 0, segment.layers[-1]
    for layer in segment.layers:
        places = [at for at in layer.places if not isinstance(segment.program[at], Store)]
        retired = spans[:, 1] if layer is last else spans[places or layer.places, 1]
        done = max(completed, int(retired.max(initial=0)))
        cycles.append(done - completed)
        completed = done
    return cycles


def _moved_bytes(program: Sequence[Instruction]) -> tuple[int, int]:
    """Return the bytes that LOADs read from main memory, and those that STOREs write."""
    loads = [i for i in program if isinstance(i, Load) and not i.fill]
    stores = [i for i in program if isinstance(i, Store)]
    return (
        sum(load.length * load.steps() for load in loads),
        sum(store.length * store.steps() for store in stores),
    )
