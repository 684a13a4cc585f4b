"""Comparison of a run, on the device and the host, with the graph's definition.

A `Comparison` collects samples. For every layer it counts the values that were compared and those
that differ, and it describes the first difference. Each step is compared with its definition for
its actual inputs, so the rounding of one host step does not count against the next. The
accelerator's layers and the host's exact kernels must be bit-exact; other kernels must agree to
within the tolerance of the device.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..argument_types import checked, checked_class
from ..compiler.graph import evaluate_node
from ..compiler.module import Module
from ..errors import InputError
from ..html_tables import html_table
from ..wording import counted
from .device import Device
from .names import layer_names, on_chip
from .session import Run

TOLERANCE = Device.tolerance
"""Tolerance of a device that rounds float32 no further."""


@dataclass(slots=True)
class Tally:
    """Counts of the values compared under one heading, and of those that differ.

    Parameters
    ----------
    name : str
        A layer's short name, an output or a data window.
    values, differing : int
        Number of values compared, and number of those that differ.
    first : str
        The first difference, as text; empty if there is none.
    tolerance : float
        Largest difference that counts as equal, relative to the largest magnitude; 0 to compare
        bits. If it is not 0, integers may differ by 1.
    largest : float
        Largest difference found, relative in the same way.
    """

    name: str
    values: int = 0
    differing: int = 0
    first: str = ""
    tolerance: float = 0.0
    largest: float = 0.0

    def add(self, got: np.ndarray, expected: np.ndarray, where: str) -> None:
        """Compare two arrays.

        Parameters
        ----------
        where : str
            Name of the sample, for the text of a difference.
        """
        self.values += expected.size
        if got.shape != expected.shape or got.dtype != expected.dtype:
            self._note(
                expected.size,
                f"{where}: expected {expected.dtype}{list(expected.shape)}, got "
                f"{got.dtype}{list(got.shape)}",
            )
            return
        if self.tolerance:
            distance = relative_distance(got, expected)
            self.largest = max(self.largest, float(distance.max(initial=0.0)))
            allowed = self.tolerance if expected.dtype.kind not in "iub" else 1.0
            differs = distance > allowed
        else:
            differs = _bits(got) != _bits(expected)
            if expected.dtype.kind not in "iub":
                differs &= ~(np.isnan(got) & np.isnan(expected))
        if differs.any():
            index = tuple(int(i) for i in np.argwhere(differs)[0])
            self._note(
                int(differs.sum()),
                f"{where}: at {list(index)} expected {expected[index]}, got {got[index]}",
            )

    def _note(self, differing: int, text: str) -> None:
        self.differing += differing
        self.first = self.first or text


def _bits(array: np.ndarray) -> np.ndarray:
    """View elements as integers, so that 0 and -0 differ."""
    if array.dtype.kind in "iub":
        return array
    return np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}").reshape(array.shape)


def relative_distance(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the distances between elements, float64[shape].

    Distances of floats are relative to the largest finite magnitude in `expected`, and distances of
    integers are absolute. Two NaNs, or two equal infinities, have distance 0. Their distance to any
    other value is infinite.
    """
    if expected.dtype.kind in "iub":
        return np.abs(got.astype(np.float64) - expected.astype(np.float64))
    ours, wanted = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(wanted)
    scale = float(np.abs(wanted, where=finite, out=np.zeros_like(wanted)).max(initial=0.0)) or 1.0
    same = (ours == wanted) | (np.isnan(ours) & np.isnan(wanted))
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(ours - wanted) / scale
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


@checked_class("Comparison", InputError)
class Comparison:
    """Comparison of layers, kernels and outputs with the reference, over any number of samples.

    Parameters
    ----------
    module : Module
        Compiled with `keep_all` to compare every layer. Otherwise, layers whose output stays on
        chip, or is overwritten by a later layer, are listed without values. A session with
        `keep_all` shows the result of each host step. Otherwise only outputs are compared, to
        within the tolerance if a kernel is not exact.
    tolerance : float
        That of the device.

    Attributes
    ----------
    on_chip : list of str
        Nodes inside fused layers, whose values cannot be read; the layer's output depends on all
        of them.
    """

    def __init__(self, module: Module, tolerance: float = TOLERANCE) -> None:
        self._graph, self._tolerance = module.graph, tolerance
        self.samples = 0
        self.on_chip = on_chip(module)
        names = layer_names(module)
        self.layers = {
            layer.output: Tally(names[layer.output])
            for segment in module.segments
            for layer in segment.layers
        }
        self.kernels: dict[str, Tally] = {}
        self.outputs = {output.name: Tally(output.name) for output in module.graph.outputs}
        self.windows: dict[str, Tally] = {}
        self._names = names

    @checked("Comparison.add", InputError)
    def add(self, inputs: Mapping[str, np.ndarray], run: Run) -> None:
        """Compare a run with the reference for the same inputs."""
        where = f"sample {self.samples}"
        made = {name: kernel for kernel in run.host.kernels for name in kernel.outputs}
        rounded = any(not k.exact and k.output not in run.values for k in run.host.kernels)
        values = {constant.name: constant.data for constant in self._graph.constants}
        values |= {value.name: np.asarray(inputs[value.name]) for value in self._graph.inputs}
        meant = dict(values)
        for node in self._graph.nodes:
            results = evaluate_node(node, [values[name] for name in node.inputs])
            for value, expected in zip(node.outputs, results, strict=True):
                name = value.name
                if name in run.layers:
                    self.layers[name].add(run.layers[name], expected, where)
                elif name in made and name in run.values:
                    self._kernel(name, made[name].exact).add(run.values[name], expected, where)
                meant[name], values[name] = expected, run.values.get(name, expected)
        for output in self._graph.outputs:
            tally = self.outputs[output.name]
            inexact = output.value in made and not made[output.value].exact
            tally.tolerance = self._tolerance if rounded or inexact else 0.0
            tally.add(run.outputs[output.name], meant[output.value], where)
        self.samples += 1

    def _kernel(self, name: str, exact: bool) -> Tally:
        if name not in self.kernels:
            tolerance = 0.0 if exact else self._tolerance
            self.kernels[name] = Tally(self._names.get(name, name), tolerance=tolerance)
        return self.kernels[name]

    def add_windows(self, run: Run, other: Run) -> None:
        """Compare whole data windows with those of another device after the same inputs.

        Both sessions must have run the same samples before, because windows keep old contents.
        """
        for index, (ours, theirs) in enumerate(zip(run.results, other.results, strict=True)):
            name = f"data window {index} of `{theirs.device}`"
            tally = self.windows.setdefault(name, Tally(name))
            tally.add(ours.dram, theirs.dram, f"sample {self.samples}")

    def __repr__(self) -> str:
        values = sum(tally.values for tally in self.tallies)
        found = "all equal" if self.equal else "with differences"
        if not self.samples:
            return "<Comparison of no samples yet>"
        return f"<Comparison of {counted(self.samples, 'sample')}: {values:,} values, {found}>"

    def _repr_html_(self) -> str:
        return html_table(
            repr(self)[1:-1],
            ("compared", "values", "differing", "first difference"),
            ((tally.name, tally.values, tally.differing, tally.first) for tally in self.tallies),
        )

    @property
    def tallies(self) -> list[Tally]:
        """All counts: layers, kernels, outputs and data windows."""
        return [
            *self.layers.values(),
            *self.kernels.values(),
            *self.outputs.values(),
            *self.windows.values(),
        ]

    @property
    def not_kept(self) -> list[str]:
        """Layers that were not compared: on chip alone, or overwritten by a later layer."""
        if not self.samples:
            return []
        return [tally.name for tally in self.layers.values() if not tally.values]

    @property
    def equal(self) -> bool:
        """Whether values were compared and none differs."""
        compared = [tally for tally in self.tallies if tally.values]
        return bool(compared) and not any(tally.differing for tally in compared)

    def first_difference(self) -> str | None:
        """Describe the first heading that differs in a sentence; None if there is none."""
        for tally in self.tallies:
            if tally.differing:
                return (
                    f"`{tally.name}`: {tally.differing} of {tally.values} values differ "
                    f"({tally.first})"
                )
        return None
