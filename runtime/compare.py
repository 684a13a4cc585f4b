"""Bits against bits: what a device gave, beside what the integer graph means.

A `Comparison` collects samples; it names every layer, the values that were compared, those that
differ, and the first of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..compiler.graph import evaluate
from ..compiler.module import Module
from .names import layer_names, on_chip
from .session import Run


@dataclass(slots=True)
class Tally:
    """Values compared under one heading, and how they came out.

    Parameters
    ----------
    name
        A layer's short name, an output or a data window.
    values, differing
        How many were compared, and how many of them differ.
    first
        The first difference, as text; empty without one.
    """

    name: str
    values: int = 0
    differing: int = 0
    first: str = ""

    def add(self, got: np.ndarray, expected: np.ndarray, where: str) -> None:
        """Compare two arrays, bit for bit.

        Parameters
        ----------
        where
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
        differs = _bits(got) != _bits(expected)
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
    """Elements as integers, so that NaN equals itself and 0 is not -0."""
    if array.dtype.kind != "f":
        return array
    return np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}").reshape(array.shape)


class Comparison:
    """A device's layers and outputs against the integer reference, over any number of samples.

    Parameters
    ----------
    module
        Compiled with `keep_all` where every layer shall be compared; without, layers whose place
        a later one takes are listed with no values.

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
        self.outputs = {output.name: Tally(output.name) for output in module.graph.outputs}
        self.windows: dict[str, Tally] = {}

    def add(self, inputs: Mapping[str, np.ndarray], run: Run) -> None:
        """Compare a run with the reference for the same inputs."""
        expected = evaluate(self._graph, inputs, keep=run.layers)
        where = f"sample {self.samples}"
        for name, array in run.layers.items():
            self.layers[name].add(array, expected[name], where)
        for name, array in run.outputs.items():
            self.outputs[name].add(array, expected[name], where)
        self.samples += 1

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
        return [*self.layers.values(), *self.outputs.values(), *self.windows.values()]

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
