"""Bits against bits: what a device and the host gave, beside what the graph means.

A `Comparison` collects samples; it names every layer, the values that were compared, those that
differ, and the first of them. Each step is held against its meaning for the inputs that it really
had, so that what the host rounds otherwise in one step is no fault of the next. The accelerator's
layers and the host's exact kernels must have the very bits, other kernels the numbers to within
`TOLERANCE`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..compiler.graph import evaluate_node
from ..compiler.module import Module
from .names import layer_names, on_chip
from .session import Run

TOLERANCE = 2.0**-12
"""Largest difference of a float kernel, relative to the largest magnitude of what it gives: sums in
another order, Winograd's products, and approximated functions stay well below."""


@dataclass(slots=True)
class Tally:
    """Values compared under one heading, and how they came out.

    Parameters
    ----------
    name : str
        A layer's short name, an output or a data window.
    values, differing : int
        How many were compared, and how many of them differ.
    first : str
        The first difference, as text; empty without one.
    tolerance : float
        Largest difference that counts as none, relative to the largest magnitude; 0 for bits. Of
        integers, 1 is allowed then.
    largest : float
        Largest difference there was, relative likewise.
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
            Which sample, for the text of a difference.
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
            if expected.dtype.kind == "f":
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
    """Elements as integers, so that 0 is not -0."""
    if array.dtype.kind in "iub":
        return array
    return np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}").reshape(array.shape)


def relative_distance(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How far elements are apart, float64[shape].

    Of floats relative to the largest finite magnitude that is expected, of integers as they are. A
    NaN is at 0 from a NaN and an infinity from itself, and both infinitely far from all else.
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


class Comparison:
    """Layers, kernels and outputs against the reference, over any number of samples.

    Parameters
    ----------
    module : Module
        Compiled with `keep_all` where every layer shall be compared; without, layers whose place
        a later one takes are listed with no values. A session with `keep_all` shows what each of
        the host's steps gave; without, whole outputs are compared, to within `TOLERANCE` where
        kernels are not exact.

    Attributes
    ----------
    on_chip
        Nodes inside fused layers, whose values no one can read; what the layer gives depends on
        all of them.
    """

    def __init__(self, module: Module) -> None:
        self._graph = module.graph
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
            tally.tolerance = TOLERANCE if rounded or inexact else 0.0
            tally.add(run.outputs[output.name], meant[output.value], where)
        self.samples += 1

    def _kernel(self, name: str, exact: bool) -> Tally:
        if name not in self.kernels:
            tolerance = 0.0 if exact else TOLERANCE
            self.kernels[name] = Tally(self._names.get(name, name), tolerance=tolerance)
        return self.kernels[name]

    def add_windows(self, run: Run, other: Run) -> None:
        """Compare whole data windows with those of another device, for the same inputs.

        Both sessions must have run the same samples before, since windows keep what they held.
        """
        for index, (ours, theirs) in enumerate(zip(run.results, other.results, strict=True)):
            name = f"data window {index} of `{theirs.device}`"
            tally = self.windows.setdefault(name, Tally(name))
            tally.add(ours.dram, theirs.dram, f"sample {self.samples}")

    @property
    def tallies(self) -> list[Tally]:
        """Everything that was compared."""
        return [
            *self.layers.values(),
            *self.kernels.values(),
            *self.outputs.values(),
            *self.windows.values(),
        ]

    @property
    def not_kept(self) -> list[str]:
        """Layers whose output a later layer overwrote, so that it could not be compared."""
        return [tally.name for tally in self.layers.values() if not tally.values]

    @property
    def equal(self) -> bool:
        """Whether something was compared and nothing differs."""
        compared = [tally for tally in self.tallies if tally.values]
        return bool(compared) and not any(tally.differing for tally in compared)

    def first_difference(self) -> str | None:
        """A sentence about the first heading that differs; None without one."""
        for tally in self.tallies:
            if tally.differing:
                return (
                    f"`{tally.name}`: {tally.differing} of {tally.values} values differ "
                    f"({tally.first})"
                )
        return None
