"""A session runs a module on a device: host steps in NumPy, segments through the device.

The data windows live as long as the session, so constants are written once and each sample writes
its inputs alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ..compiler.graph import Graph, evaluate_node
from ..compiler.module import Binding, Module, Segment
from ..errors import DeviceError, InputError
from ..isa.encoding import encode_program
from .devices import Device, Result
from .names import layer_names
from .profile import Profile, profile_of

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
    module, names
        What ran, and short names of its layers.
    """

    outputs: dict[str, np.ndarray]
    layers: dict[str, np.ndarray]
    results: tuple[Result, ...]
    module: Module = field(repr=False)
    names: Mapping[str, str] = field(repr=False)

    @cached_property
    def profile(self) -> Profile:
        """Cycles, bytes and utilisation per layer."""
        return profile_of(self.module, self.results, self.names)


class Session:
    """A module on a device, ready to run.

    Parameters
    ----------
    module
        As `compile_graph` or `artifact.load` gives it.
    device
        Of the module's configuration; the caller closes it.

    Raises
    ------
    DeviceError
        When the device has another configuration.
    """

    def __init__(self, module: Module, device: Device) -> None:
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
        module, graph = self.module, self.module.graph
        values = {constant.name: constant.data for constant in graph.constants}
        values |= check_inputs(graph, inputs)
        layers: dict[str, np.ndarray] = {}
        results: dict[int, Result] = {}
        for step in module.steps:
            if isinstance(step, int):
                results[step] = self._run_segment(step, values)
                layers |= {
                    binding.name: binding.read(self._windows[step]) for binding in self._kept[step]
                }
            else:
                node = graph.producer(step)
                assert node is not None
                arrays = evaluate_node(node, [values[name] for name in node.inputs])
                for value, array in zip(node.outputs, arrays, strict=True):
                    values[value.name] = array
        ordered = tuple(results[index] for index in range(len(module.segments)))
        outputs = {output.name: values[output.value] for output in graph.outputs}
        return Run(outputs, layers, ordered, module, self._names)

    def _run_segment(self, index: int, values: dict[str, np.ndarray]) -> Result:
        segment, window = self.module.segments[index], self._windows[index]
        for binding in segment.inputs:
            binding.write(window, values[binding.name])
        result = self.device.run(self._codes[index], window)
        for binding in segment.outputs:
            values[binding.name] = binding.read(window)
        return result


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
        if str(array.dtype) != kind.dtype or array.shape != kind.shape:
            raise InputError(
                f"input `{value.name}`: expected {kind.dtype}{list(kind.shape)}, got "
                f"{array.dtype}{list(array.shape)}; convert it"
            )
    return {name: np.asarray(inputs[name]) for name in names}
