"""A session runs a module: segments on a device, the host's steps beside them.

While a segment runs, the host does what does not wait for it. The data windows and the host's
memory live as long as the session, so constants are written once and each sample writes its inputs
alone.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

import numpy as np

from ..compiler.graph import Graph, Value
from ..compiler.graph.types import DTYPES
from ..compiler.host import LEAST_WORK, Finish, Start, overlaps
from ..compiler.module import Binding, Module, Segment
from ..errors import DeviceError, InputError
from ..isa.encoding import encode_program
from .device import Device, Result
from .host import HostSide
from .names import layer_names
from .profile import HostRun, Profile, profile_of

Inputs = Mapping[str, np.ndarray] | np.ndarray
"""Arrays by input name; one array where the network has one input."""


@dataclass(frozen=True)
class Run:
    """What a network gave for one set of inputs.

    Parameters
    ----------
    outputs
        The network's outputs by name.
    layers
        Output of each accelerator layer by value name, int8[N, H, W, C], as far as a later layer
        has not taken its place (`compile_graph(keep_all=True)` keeps all). What passes between
        nodes of one layer stays on chip.
    results
        What the device said of each segment; `dram` is the session's own array, which the next
        run changes.
    host
        What the host did: its kernels, and how long each of its steps took.
    values
        What the host's steps gave and segments read and wrote, where the session keeps all; the
        next run changes them. Otherwise what segments read, where kernels round in their own way.
    module, names
        What ran, and short names of its layers.
    """

    outputs: dict[str, np.ndarray]
    layers: dict[str, np.ndarray]
    results: tuple[Result, ...]
    host: HostRun
    values: dict[str, np.ndarray] = field(repr=False)
    module: Module = field(repr=False)
    names: Mapping[str, str] = field(repr=False)

    def __repr__(self) -> str:
        return f"<Run of `{self.module.name:.60}`: {len(self.outputs)} outputs>"

    @cached_property
    def profile(self) -> Profile:
        """Cycles, bytes, multiplications and utilisation per layer."""
        return profile_of(self.module, self.results, self.names, self.host)


class Session:
    """A module on a device, ready to run; one run at a time, others wait for it.

    Kernels whose machine code was changed or cannot be made are computed in NumPy; `host.refused`
    names them.

    Parameters
    ----------
    module
        As `compile_graph` or `artifact.load` gives it.
    device
        Of the module's configuration; the caller closes it.
    threads
        Of the host's kernels; None for all processors that this process may use.
    keep_all
        Keep all that the host's steps give, for comparing (`Run.values`).
    least_work
        Operations that make a kernel of the host worth while; None to compute all its steps by
        their definition, in NumPy.

    Raises
    ------
    DeviceError
        When the device has another configuration.
    """

    def __init__(
        self,
        module: Module,
        device: Device,
        *,
        threads: int | None = None,
        keep_all: bool = False,
        least_work: int | None = LEAST_WORK,
    ) -> None:
        ours, theirs = module.configuration, device.configuration
        if ours.hash != theirs.hash:
            raise DeviceError(
                f"device `{device.name}`: expected configuration `{ours.name}`, got "
                f"`{theirs.name}`: {theirs.differences(ours)}; open the device with the module's "
                "configuration, or compile the model for the device's"
            )
        self.module = module
        self.device = device
        self._codes = [encode_program(segment.program, ours) for segment in module.segments]
        self._windows = [data_window(segment) for segment in module.segments]
        self._kept = [kept_layers(segment) for segment in module.segments]
        self._names = layer_names(module)
        self.host = HostSide(module, threads=threads, keep_all=keep_all, least_work=least_work)
        self._constants = {constant.name: constant.data for constant in module.graph.constants}
        self._keep_all = keep_all
        self._kernels = (*self.host.plan.kernels, *self.host.plan.recurrences)
        self._rounded = not all(kernel.exact for kernel in self._kernels)
        self._overlaps = overlaps(self.host.plan.events)
        self._beside = ThreadPoolExecutor(1) if any(self._overlaps.values()) else None
        self._running = Lock()

    def __repr__(self) -> str:
        return f"<Session of `{self.module.name:.60}` on `{self.device.name}`>"

    def run(self, inputs: Inputs) -> Run:
        """Run the network once.

        Parameters
        ----------
        inputs
            Of exactly the network's types and shapes.

        Raises
        ------
        InputError
            When an input is missing, unknown, or of another type or shape.
        DeviceError
            When the device fails.
        """
        given = check_inputs(self.module.graph, inputs)
        with self._running:
            return self._run(given)

    def _run(self, given: Mapping[str, np.ndarray]) -> Run:
        """One run; memory and windows are the session's own."""
        module, graph = self.module, self.module.graph
        values = {**self._constants, **given}
        layers: dict[str, np.ndarray] = {}
        results: dict[int, Result] = {}
        waiting: dict[int, Callable[[], Result]] = {}
        self.host.seconds = {}
        kept: dict[str, np.ndarray] = {}
        try:
            for position, event in enumerate(self.host.plan.events):
                if isinstance(event, Start):
                    if self._rounded and not self._keep_all:
                        reads = [binding.name for binding in module.segments[event.segment].inputs]
                        kept |= {name: values[name].copy() for name in reads}
                    waiting[event.segment] = self._start(event.segment, values)
                elif isinstance(event, Finish):
                    index = event.segment
                    results[index] = waiting.pop(index)()
                    for binding in module.segments[index].outputs:
                        values[binding.name] = binding.read(self._windows[index])
                    layers |= {
                        binding.name: binding.read(self._windows[index])
                        for binding in self._kept[index]
                    }
                else:
                    self.host.run(position, values)
                self.host.forget(position, values)
        finally:
            for finish in waiting.values():  # a step failed: its windows must be free for a new run
                with suppress(Exception):
                    finish()
        ordered = tuple(results[index] for index in range(len(module.segments)))
        outputs = {
            output.name: _apart(values[output.value], given.values()) for output in graph.outputs
        }
        did = HostRun(self._kernels, self.host.seconds)
        shown = values if self._keep_all else kept
        return Run(outputs, layers, ordered, did, shown, module, self._names)

    def _start(self, index: int, values: dict[str, np.ndarray]) -> Callable[[], Result]:
        """Let a segment begin; what is returned waits for its end."""
        window = self._windows[index]
        for binding in self.module.segments[index].inputs:
            binding.write(window, values[binding.name])
        if self._beside is None or not self._overlaps[index]:
            result = self.device.run(self._codes[index], window)
            return lambda: result
        return self._beside.submit(self.device.run, self._codes[index], window).result


def _apart(array: np.ndarray, given: Iterable[np.ndarray]) -> np.ndarray:
    """An output; a copy where it shows an input, whose memory is the caller's."""
    return array.copy() if any(np.may_share_memory(array, one) for one in given) else array


def data_window(segment: Segment) -> np.ndarray:
    """A data window with the constants in place, uint8[bytes]."""
    window = np.zeros(segment.data_bytes, dtype=np.uint8)
    start = segment.constants_offset
    window[start : start + len(segment.constants)] = np.frombuffer(segment.constants, np.uint8)
    return window


def kept_layers(segment: Segment) -> list[Binding]:
    """Layer outputs whose place no later layer takes."""
    places = {binding.name: binding for binding in segment.activations}
    outputs = [places[layer.output] for layer in segment.layers]
    return [
        one
        for index, one in enumerate(outputs)
        if not any(other.overwrites(one) for other in outputs[index + 1 :])
    ]


def check_inputs(graph: Graph, inputs: Inputs) -> dict[str, np.ndarray]:
    """Inputs by name, refused unless they are what the network takes.

    Raises
    ------
    InputError
        Naming the input, what it expects and what it got.
    """
    names = [value.name for value in graph.inputs]
    listed = ", ".join(f"`{name}`" for name in names)
    if not isinstance(inputs, Mapping):
        if len(names) != 1:
            raise InputError(
                f"network `{graph.name}`: expected {len(names)} inputs by name ({listed}), got one "
                "array; pass a mapping from names to arrays"
            )
        inputs = {names[0]: inputs}
    if set(inputs) != set(names):
        got = ", ".join(f"`{name}`" for name in sorted(inputs)) or "none"
        raise InputError(
            f"network `{graph.name}`: expected inputs {listed}, got {got}; give each by its name"
        )
    for value in graph.inputs:
        array, kind = np.asarray(inputs[value.name]), value.type
        if array.dtype != DTYPES[kind.dtype] or array.shape != kind.shape:
            raise InputError(
                f"input `{value.name}`: expected {kind.dtype}{list(kind.shape)}, got "
                f"{array.dtype}{list(array.shape)}; {_conversion(array, value)}"
            )
    return {name: np.asarray(inputs[name]) for name in names}


def _conversion(array: np.ndarray, value: Value) -> str:
    """What makes an array the input that a network takes."""
    shape = value.type.shape
    if array.dtype != DTYPES[value.type.dtype] or array.shape == shape:
        return "convert it"
    if shape[:1] == (1,) and array.shape == shape[1:]:
        return "add the first dimension with `array[None]`"
    if array.shape[1:] == shape[1:] and len(shape) == array.ndim:
        samples = "one sample" if shape[0] == 1 else f"{shape[0]} samples"
        return f"a run takes {samples}: call `run(array[i : i + {shape[0]}])` for each `i`"
    return "convert it"
