"""Sessions, which run modules: the segments on a device, the other steps on the host.

While a segment runs, the host runs the steps that do not depend on it. The data windows and the
host's memory live as long as the session, so constants are written once. A run writes only its
inputs.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

import numpy as np

from ..argument_types import checked_class
from ..compiler.graph import Graph, Value
from ..compiler.graph.types import DTYPES
from ..compiler.host import MIN_WORK, Finish, Start, overlaps
from ..compiler.module import Binding, Module, Segment
from ..errors import DeviceError, InputError
from ..html_tables import html_table
from ..isa.encoding import encode_program
from ..wording import counted
from .benchmark import MIN_REPEAT_MS, REPEAT, WARM_UP_S, Benchmark, benchmark
from .device import Device, NetworkDevice, Repetitions, Result
from .names import layer_names
from .profile import HostRun, Profile, profile_of
from .step_times import StepTimes

Inputs = Mapping[str, Any] | Any
"""Arrays by input name, or a single array if the network has one input.

Arrays are NumPy's, or tensors of PyTorch, JAX and others in memory of the host, which DLPack hands
over without a copy.
"""

NO_STATES: Mapping[str, str] = MappingProxyType({})
"""States of a network whose runs do not depend on each other."""

NOTHING: Mapping[str, np.ndarray] = MappingProxyType({})

HOST_DEVICE = "host"
"""The device without an accelerator, which has no configuration of its own."""

KEPT_STEP_TIMES = 64
"""Runs of a benchmark, the last ones, of which the time of each host step is kept."""


@dataclass  # not frozen, as creating it would take 0.7 us longer
class Run:
    """The result of running a network on one sample.

    Parameters
    ----------
    outputs : dict
        The network's outputs by name.
    layers : dict
        Output of each accelerator layer by value name, int8[N, H, W, C], unless it stays on chip,
        or a later layer has overwritten it (`compile_graph(keep_all=True)` prevents both). Values
        between the nodes of a fused layer stay on chip in any case.
    results : tuple
        The device's result for each segment; `dram` is the session's own array, which the next
        run changes.
    host : HostRun
        The host's kernels, and the time of each of its steps.
    values : dict
        If the session keeps all: every value of the host's steps, and the values that segments read
        and wrote; the next run changes them. Otherwise, if a host kernel rounds differently from
        the definition, the values that segments read.
    module : Module
        The module that was run.
    names : mapping
        Short names of the module's layers.
    inputs : mapping
        The network's inputs by name, states included.
    """

    outputs: dict[str, np.ndarray]
    layers: dict[str, np.ndarray]
    results: tuple[Result, ...]
    host: HostRun
    values: dict[str, np.ndarray] = field(repr=False)
    module: Module = field(repr=False)
    names: Mapping[str, str] = field(repr=False)
    inputs: Mapping[str, np.ndarray] = field(repr=False)

    def __repr__(self) -> str:
        return f"<Run of `{self.module.name:.60}`: {counted(len(self.outputs), 'output')}>"

    def _repr_html_(self) -> str:
        rows = ((name, f"{x.dtype}{list(x.shape)}") for name, x in self.outputs.items())
        outputs = html_table(repr(self)[1:-1], ("output", "type"), rows, left=2)
        return outputs + self.profile._repr_html_()

    @cached_property
    def profile(self) -> Profile:
        """Cycles, bytes, multiplications and utilisation of each layer."""
        return profile_of(self.module, self.results, self.names, self.host)


@checked_class("Session", DeviceError)
class Session:
    """A module on a device, ready to run; one run at a time, other threads wait.

    A forked child may use it too, even if another thread was running it.

    A kernel whose machine code was changed, or is not signed by this user's key, is compiled anew;
    see `host.distrusted`. NumPy replaces a kernel that cannot be compiled; see `host.refused`.

    Parameters
    ----------
    module : Module
        The module that `compile_graph` or `load` returns.
    device : Device
        A device of the same configuration, or `host` for a module without segments; the caller
        closes it.
    threads : int or None
        Threads of the host's kernels; None for all processors available to this process.
    keep_all : bool
        Whether to keep every value of the host's steps in `Run.values`, for comparison.
    least_work : int or None
        Fewest operations of the host's largest kernel, without which it uses none; None to compute
        all its steps in NumPy, by their definition.
    states : mapping
        Input -> the output that it takes from the previous run. Runs need no array for such an
        input; it is zero in the first run and after `reset`.

    Raises
    ------
    DeviceError
        If the device is not an open one or has another configuration, or the network does not fit
        memory.
    InputError
        If a state is not an input and an output of one type.
    """

    def __init__(
        self,
        module: Module,
        device: Device,
        *,
        threads: int | None = None,
        keep_all: bool = False,
        least_work: int | None = MIN_WORK,
        states: Mapping[str, str] = NO_STATES,
    ) -> None:
        ours, theirs = module.configuration, device.configuration
        elsewhere = isinstance(device, NetworkDevice)
        if not device.has_accelerator:
            _refuse_segments(module, HOST_DEVICE if elsewhere else device.name)
        elif ours.hash != theirs.hash:
            raise DeviceError(
                f"device `{device.name}`: expected configuration `{ours.name}`, got "
                f"`{theirs.name}`: {theirs.differences(ours)}; open the device with the module's "
                "configuration, or compile the model for the device's"
            )
        self.module = module
        self.device = device
        self._states, self._zeros = dict(states), first_states(module.graph, states)
        self.step_times: deque[Mapping[str, float]] = deque()
        self.reset()
        try:
            self._codes = [encode_program(segment.program, ours) for segment in module.segments]
            self._windows = [data_window(segment) for segment in module.segments]
            self._kept = [kept_layers(segment) for segment in module.segments]
            self._names = layer_names(module)
            least_work = None if elsewhere else least_work  # its kernels are made there
            self.host = device.host_side(
                module, threads=threads, keep_all=keep_all, least_work=least_work
            )
        except MemoryError as problem:
            raise _not_enough_memory(module.name, problem) from problem
        self._kinds = {
            value.name: (np.dtype(DTYPES[value.type.dtype]), value.type.shape)
            for value in module.graph.inputs
        }
        self._needed = self._kinds.keys() - self._states.keys()
        read = self.host.reads
        self._constants = {
            constant.name: constant.data
            for constant in module.graph.constants
            if keep_all or constant.name in read
        }
        self._keep_all = keep_all
        self._kernels = self.host.plan.kernels
        self._rounded = not all(kernel.exact for kernel in self._kernels)
        self._overlaps = overlaps(self.host.plan.events)
        self._renew()
        _sessions.add(self)

    def _renew(self) -> None:
        """Take a thread for segments, and a lock for runs, that no run holds."""
        self._beside = ThreadPoolExecutor(1) if any(self._overlaps.values()) else None
        self._running = Lock()

    def __repr__(self) -> str:
        return f"<Session of `{self.module.name:.60}` on `{self.device.name}`>"

    def run(self, inputs: Inputs, *, on_device: bool = False) -> Run:
        """Run the network once.

        Parameters
        ----------
        inputs : Inputs
            One sample, with the types and shapes of the network's inputs. A state that it names
            replaces that of the previous run.
        on_device : bool
            Whether outputs that a GPU computes stay in its memory, as tensors for DLPack, until
            the next run.

        Raises
        ------
        InputError
            If an input is missing or unknown, or has another type or shape.
        DeviceError
            If the device fails, the network does not fit memory, or no GPU keeps outputs.
        """
        try:
            with self._running:
                given = self._plain(inputs) or check_inputs(
                    self.module.graph, inputs, self._held, self.host.adopt
                )
                run = self._run(given, on_device=on_device)
                if self._states:
                    self._held = {
                        name: _copied(run.outputs[output]) for name, output in self._states.items()
                    }
                return run
        except MemoryError as problem:
            raise _not_enough_memory(self.module.name, problem) from problem

    def _plain(self, inputs: Inputs) -> Mapping[str, np.ndarray] | None:
        """Return the inputs in order if they are arrays that fit; None for `check_inputs`."""
        if type(inputs) is np.ndarray:
            if len(self._needed) != 1:
                return None
            inputs = dict.fromkeys(self._needed, inputs)
        if type(inputs) is not dict or inputs.keys() != self._needed:
            return None
        for name, array in inputs.items():
            if type(array) is not np.ndarray or (array.dtype, array.shape) != self._kinds[name]:
                return None
        given = {**self._held, **inputs}
        return {name: given[name] for name in self._kinds}

    def reset(self) -> None:
        """Set all states to zero, as before the first run."""
        self._held: Mapping[str, np.ndarray] = self._zeros

    def benchmark(
        self,
        inputs: Inputs,
        *,
        number: int = 1,
        repeat: int = REPEAT,
        min_repeat_ms: float = MIN_REPEAT_MS,
        warm_up_s: float = WARM_UP_S,
    ) -> Benchmark:
        """Time runs of one sample on this machine, after a warm-up.

        On `host` this is the network's speed. On simulators it is theirs, not the accelerator's.
        Parameters are those of `runtime.benchmark.benchmark`; states are afterwards as before, and
        `step_times` has the times of the host's steps.

        Raises
        ------
        InputError, DeviceError
            As for `run`, and for a number of repetitions below 1.
        """
        held, self.step_times = self._held, deque[Mapping[str, float]](maxlen=KEPT_STEP_TIMES)
        if isinstance(self.device, NetworkDevice):
            given = check_inputs(self.module.graph, inputs, held)
            timing = Repetitions(number, repeat, min_repeat_ms, warm_up_s)
            timed = self.device.run_network(self.module, given, timing=timing)
            self.step_times.append(timed.host.seconds)
            assert timed.benchmark is not None
            return timed.benchmark

        def call() -> None:
            self.step_times.append(self.run(inputs).host.seconds)

        try:
            return benchmark(
                call,
                number=number,
                repeat=repeat,
                min_repeat_ms=min_repeat_ms,
                warm_up_s=warm_up_s,
            )
        finally:
            self._held = held

    def _run(self, given: Mapping[str, np.ndarray], *, on_device: bool) -> Run:
        """Run once, in the session's own memory and windows."""
        module, graph = self.module, self.module.graph
        values = {**self._constants, **given}
        self.host.begin(values, on_device=on_device)
        if isinstance(self.device, NetworkDevice):
            there = self.device.run_network(module, given, keep_all=self._keep_all)
            values = there.values
            return Run(there.outputs, {}, (), there.host, values, module, self._names, given)
        layers: dict[str, np.ndarray] = {}
        results: dict[int, Result] = {}
        waiting: dict[int, Callable[[], Result]] = {}
        self.host.times = times = StepTimes()
        kept: dict[str, np.ndarray] = {}
        try:
            for stage in self.host.stages:
                work = stage.work
                if isinstance(work, Start):
                    if self._rounded and not self._keep_all:
                        reads = [binding.name for binding in module.segments[work.segment].inputs]
                        kept |= {name: values[name].copy() for name in reads}
                    waiting[work.segment] = self._start(work.segment, values)
                elif isinstance(work, Finish):
                    index = work.segment
                    results[index] = waiting.pop(index)()
                    for binding in module.segments[index].outputs:
                        values[binding.name] = binding.read(self._windows[index])
                    layers |= {
                        binding.name: binding.read(self._windows[index])
                        for binding in self._kept[index]
                    }
                else:
                    self.host.run(stage, values)
                for name in stage.dying:
                    values.pop(name, None)
        finally:
            for finish in waiting.values():  # after a failed step, windows must be free again
                with suppress(Exception):
                    finish()
        ordered = tuple([results[index] for index in range(len(module.segments))])
        outputs = {}
        for output in graph.outputs:
            array, new = values[output.value], output.value in self.host.new
            outputs[output.name] = array if new else _apart(array, given.values())
        did = HostRun(self._kernels, times, self.host.targets)
        shown = values if self._keep_all else kept
        return Run(outputs, layers, ordered, did, shown, module, self._names, given)

    def _start(self, index: int, values: dict[str, np.ndarray]) -> Callable[[], Result]:
        """Start a segment, and return a function that waits for its end."""
        window = self._windows[index]
        for binding in self.module.segments[index].inputs:
            binding.write(window, values[binding.name])
        if self._beside is None or not self._overlaps[index]:
            result = self.device.run(self._codes[index], window)
            return lambda: result
        return self._beside.submit(self.device.run, self._codes[index], window).result


def _refuse_segments(module: Module, device: str) -> None:
    """Reject a module with layers for an accelerator, where there is none.

    Raises
    ------
    DeviceError
        With the remedy.
    """
    if layers := sum(len(segment.layers) for segment in module.segments):
        raise DeviceError(
            f"device `{device}`: expected a network without layers for an accelerator, got "
            f"{layers} for `{module.configuration.name}`; compile the model with "
            f'`placement=Placement("{HOST_DEVICE}")`, or open another device'
        )


def _not_enough_memory(network: str, problem: MemoryError) -> DeviceError:
    got = f", got `{problem}`" if str(problem) else ""
    return DeviceError(
        f"network `{network:.60}`: expected enough memory for its values{got}; free some, or "
        "compile a smaller network"
    )


_sessions: WeakSet[Session] = WeakSet()


def _renew_sessions() -> None:
    """Free the sessions of a forked child, which has none of its parent's other threads."""
    for session in tuple(_sessions):
        session._renew()


os.register_at_fork(after_in_child=_renew_sessions)


def _apart(array: np.ndarray, given: Iterable[np.ndarray]) -> np.ndarray:
    """Return an array that shares no memory with what the caller gave."""
    if not isinstance(array, np.ndarray):
        return _copied(array)
    arrays = (one for one in given if isinstance(one, np.ndarray))
    return array.copy() if any(np.may_share_memory(array, x) for x in arrays) else array


def _copied(array: Any) -> np.ndarray:
    """Return a copy in memory of the host."""
    return array.copy() if isinstance(array, np.ndarray) else array.numpy()


def data_window(segment: Segment) -> np.ndarray:
    """Return a data window with the constants in place, uint8[bytes]."""
    window = np.zeros(segment.data_bytes, dtype=np.uint8)
    start = segment.constants_offset
    window[start : start + len(segment.constants)] = np.frombuffer(segment.constants, np.uint8)
    return window


def kept_layers(segment: Segment) -> list[Binding]:
    """Return the outputs of layers that are stored and that no later layer overwrites."""
    places = {binding.name: binding for binding in segment.activations}
    outputs = [places[layer.output] for layer in segment.layers if layer.output in places]
    return [
        one
        for index, one in enumerate(outputs)
        if not any(other.overwrites(one) for other in outputs[index + 1 :])
    ]


def first_states(graph: Graph, states: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return the states before the first run, which are zero, by input.

    Raises
    ------
    InputError
        If a state is not an input and an output of one type.
    """
    inputs = {value.name: value.type for value in graph.inputs}
    outputs = {output.name: graph.types[output.value] for output in graph.outputs}
    for name, output in states.items():
        one, other = inputs.get(name), outputs.get(output)
        if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
            kinds = [f"{k.dtype}{list(k.shape)}" if k else "nothing" for k in (one, other)]
            raise InputError(
                f"network `{graph.name}`: state `{name}={output}`: expected an input and an output "
                f"of one type, got {kinds[0]} and {kinds[1]}; inputs are {_listed(inputs)}, "
                f"outputs {_listed(outputs)}"
            )
    return {name: np.zeros(inputs[name].shape, DTYPES[inputs[name].dtype]) for name in states}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def check_inputs(
    graph: Graph,
    inputs: Inputs,
    held: Mapping[str, np.ndarray] = NOTHING,
    adopt: Callable[[str, Any], Any] = lambda name, given: None,
) -> dict[str, np.ndarray]:
    """Check inputs against the network, and return them by name, with those `held` for it.

    `adopt` takes a tensor of another library that is in memory of the device, or returns None.

    Raises
    ------
    InputError
        If an input does not fit; the message says what was expected and given.
    """
    names = [value.name for value in graph.inputs]
    needed = [name for name in names if name not in held]
    listed = _listed(needed)
    if not isinstance(inputs, Mapping):
        if len(needed) != 1:
            raise InputError(
                f"network `{graph.name}`: expected {len(needed)} inputs by name ({listed}), got "
                "one array; pass a mapping from names to arrays"
            )
        inputs = {needed[0]: inputs}
    if not set(needed) <= set(inputs) <= set(names):
        raise InputError(
            f"network `{graph.name}`: expected inputs {listed}, got {_listed(sorted(inputs))}; "
            "give each by its name"
        )
    arrays = {name: _array(name, given, adopt) for name, given in {**held, **inputs}.items()}
    for value in graph.inputs:
        array, kind = arrays[value.name], value.type
        if array.dtype != DTYPES[kind.dtype] or array.shape != kind.shape:
            raise InputError(
                f"input `{value.name}`: expected {kind.dtype}{list(kind.shape)}, got "
                f"{array.dtype}{list(array.shape)}; {_conversion(array, value)}"
            )
    return {name: arrays[name] for name in names}


def _array(name: str, given: Any, adopt: Callable[[str, Any], Any]) -> np.ndarray:
    """Return an input as an array; a tensor of another library shares its memory.

    Raises
    ------
    InputError
        If the tensor cannot be shared.
    """
    if isinstance(given, np.ndarray) or not hasattr(given, "__dlpack__"):
        return np.asarray(given)
    try:
        adopted = adopt(name, given)
        return np.from_dlpack(given) if adopted is None else adopted
    except (BufferError, RuntimeError, ValueError, TypeError) as problem:
        why = " ".join(str(problem).split())
        raise InputError(
            f"input `{name}`: expected a tensor in memory of the host, got one that DLPack does "
            f"not hand over (`{why}`); detach it and move it to the host: `tensor.detach().cpu()`"
        ) from None


def _conversion(array: np.ndarray, value: Value) -> str:
    """Say how to convert an array to the input that the network takes."""
    shape = value.type.shape
    if array.dtype != DTYPES[value.type.dtype] or array.shape == shape:
        return "convert it"
    if shape[:1] == (1,) and array.shape == shape[1:]:
        return "add the first dimension with `array[None]`"
    if array.shape[1:] == shape[1:] and len(shape) == array.ndim:
        samples = "one sample" if shape[0] == 1 else f"{shape[0]} samples"
        return f"a run takes {samples}: call `run(array[i : i + {shape[0]}])` for each `i`"
    return "give an array of this shape"
