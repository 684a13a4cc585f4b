"""The executable form of a scheduled kernel: a program and its data window."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np

from ...argument_types import checked
from ...errors import DeviceError, InputError
from ...isa.assembly import format_instruction
from ...isa.configuration import Configuration
from ...isa.encoding import encode_program
from ...isa.instructions import Instruction
from ..module import Layer, Segment
from ..tensor import Kernel, Tensor
from .dma import DramTensor


class Measured(Protocol):
    """A device's report of a run."""

    @property
    def cycles(self) -> int | None:
        """Cycles from start to done; None if the device measures no time."""
        ...


Answer = TypeVar("Answer", bound=Measured, covariant=True)


class Runner(Protocol[Answer]):
    """Anything that runs a program, such as the devices of `open_device`."""

    name: str
    configuration: Configuration

    def run(self, program: bytes | Sequence[Instruction], dram: np.ndarray) -> Answer:
        """Run a program to completion; it changes the data window uint8[bytes] in place."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Answer]):
    """The kernel's output, and the device's report: cycles, spans, counters."""

    output: np.ndarray
    result: Answer

    @property
    def cycles(self) -> int | None:
        """Cycles from start to done; None if the device measures no time."""
        return self.result.cycles


@dataclass(frozen=True)
class Executable:
    """A checked program for one machine.

    Parameters
    ----------
    kernel, schedule, configuration
        The kernel, its schedule steps, and the machine.
    program, notes
        Instructions with tokens, HALT last, and the purpose of each.
    dram
        Places of the inputs, the output and the intermediate tensors in the data window. For
        elements of several bytes, the bytes are one more dimension.
    constants, constants_offset
        Bytes that the data window contains from the start.
    data_bytes
        Size of the data window.
    """

    kernel: Kernel
    schedule: str
    configuration: Configuration
    program: tuple[Instruction, ...]
    notes: tuple[str, ...]
    dram: Mapping[str, DramTensor]
    constants: bytes
    constants_offset: int
    data_bytes: int

    @cached_property
    def words(self) -> bytes:
        """The program in its binary encoding."""
        return encode_program(self.program, self.configuration)

    @property
    def segment(self) -> Segment:
        """The program as one segment for traces: one layer, without bindings."""
        name, output = self.kernel.name, self.kernel.output.name
        last = len(self.program) - 1
        return Segment(
            program=self.program,
            notes=tuple(f"{name}: {note}" for note in self.notes),
            layers=(Layer(name, "kernel", output, self.kernel.macs, self.schedule, ((0, last),)),),
            inputs=(),
            outputs=(),
            activations=(),
            constants=self.constants,
            constants_offset=self.constants_offset,
            data_bytes=self.data_bytes,
        )

    def image(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """A new data window, uint8[data_bytes], with constants and inputs.

        Raises
        ------
        InputError
            When an input is missing or unknown, or has another type or shape.
        """
        expected = ", ".join(f"`{name}`" for name in self.kernel.inputs)
        if set(inputs) != set(self.kernel.inputs):
            got = ", ".join(f"`{name}`" for name in sorted(inputs)) or "none"
            raise InputError(
                f"kernel `{self.kernel.name}`: expected inputs {expected}, got {got}; give each "
                "by its name"
            )
        window = np.zeros(self.data_bytes, dtype=np.uint8)
        end = self.constants_offset + len(self.constants)
        window[self.constants_offset : end] = np.frombuffer(self.constants, dtype=np.uint8)
        for name, values in inputs.items():
            tensor, array = self.kernel.tensors[name], np.asarray(values)
            if str(array.dtype) != tensor.dtype or array.shape != tensor.shape:
                raise InputError(
                    f"input `{name}`: expected {tensor.dtype}{list(tensor.shape)}, got "
                    f"{array.dtype}{list(array.shape)}; convert it"
                )
            self._view(window, tensor)[...] = array
        return window

    @checked("Executable.run", InputError)
    def run(self, device: Runner[Answer], inputs: Mapping[str, np.ndarray]) -> Outcome[Answer]:
        """Run once.

        Parameters
        ----------
        device
            A result of `open_device` with the same configuration.
        inputs
            An array for every input of the kernel, by name.

        Raises
        ------
        InputError
            See `image`.
        DeviceError
            When the device has another configuration, or fails.
        """
        ours, theirs = self.configuration, device.configuration
        if ours.hash != theirs.hash:
            raise DeviceError(
                f"device `{device.name}`: expected configuration `{ours.name}`, got "
                f"`{theirs.name}`: {theirs.differences(ours)}; open the device with the "
                "schedule's configuration"
            )
        window = self.image(inputs)
        result = device.run(self.words, window)
        return Outcome(self._view(window, self.kernel.output).copy(), result)

    def __str__(self) -> str:
        """The program in assembly, each line with its note."""
        lines = [format_instruction(one) for one in self.program]
        return "\n".join(f"{line}  # {note}" for line, note in zip(lines, self.notes, strict=True))

    def _view(self, window: np.ndarray, tensor: Tensor) -> np.ndarray:
        """A tensor's place in the data window."""
        base = self.dram[tensor.name].base
        size = math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
        return window[base : base + size].view(tensor.dtype).reshape(tensor.shape)
