"""A compiled kernel: machine code, what arrays it takes, and calls of it."""

import ctypes
import hashlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite.binding import llvm_version_info

from ....errors import CompileError, InputError
from ..codegen.buffers import ALIGNMENT
from ..codegen.layout import Layout
from ..codegen.lower import ENTRY, Lowered, lower
from ..codegen.machine_code import Library, assemble
from ..kernels.description import Array, Description, Plan
from ..target import Target, check_runs, host
from . import workspace
from .pool import Pool, pool_of

_MAGIC = b"tilewright-cpu-kernel-3\n"
"""What stored kernels begin with; the number changes with what descriptions or headers mean."""


class Kernel:
    """Machine code of one description for one target.

    Parameters
    ----------
    description
        What it computes.
    target
        What the code is for.
    code
        The object file.
    tensors
        What the code's arrays are, in order, the output last.
    layouts
        Of tensors that are packed.
    workspace_bytes
        Memory that the code needs while it runs.
    threads
        Threads that share parallel loops; the result does not depend on it.

    Raises
    ------
    ProcessorError
        When this machine does not run the target's code.
    """

    def __init__(
        self,
        description: Description,
        target: Target,
        code: bytes,
        tensors: tuple[str, ...],
        layouts: Mapping[str, Layout],
        workspace_bytes: int,
        threads: int = 1,
    ) -> None:
        check_runs(target.level)
        self.description, self.target, self.code = description, target, code
        self.tensors, self.layouts, self.workspace_bytes = tensors, layouts, workspace_bytes
        self.pool: Pool | None = pool_of(threads)
        self._library = Library(code, target)
        self.run = self._library.function(ENTRY, *[ctypes.c_void_p] * 4)

    def bind(self, **constants: np.ndarray) -> "BoundKernel":
        """The kernel with its constants packed.

        Parameters
        ----------
        constants
            The description's constants, by name.

        Raises
        ------
        InputError
            When one is missing, is none, or does not fit.
        """
        wanted = self.description.constants
        if set(constants) != set(wanted):
            raise InputError(
                f"kernel: its constants are {', '.join(wanted) or 'none'}, not "
                f"{', '.join(constants) or 'none'}"
            )
        for name, array in constants.items():
            check(name, array, self.description.operands[name])
        prepared = self.description.prepare(constants, self.target)
        packed = {
            name: self.layouts[name].pack(array) if name in self.layouts else array
            for name, array in prepared.items()
        }
        return BoundKernel(self, {name: _aligned(array) for name, array in packed.items()})

    def __call__(self, *arrays: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Compute; all operands in the order of the description. Constants are packed anew."""
        names = tuple(self.description.operands)
        if len(arrays) != len(names):
            raise InputError(f"kernel: takes {', '.join(names)}, not {len(arrays)} arrays")
        given = dict(zip(names, arrays, strict=True))
        constants = {name: given.pop(name) for name in self.description.constants}
        return self.bind(**constants)(*given.values(), out=out)

    def call(self, pointers: ctypes.Array) -> None:
        """Run the code on arrays in the order of `tensors`; memory is kept for the next call."""
        run, state = (self.pool.run, self.pool.state) if self.pool else (None, None)
        if not self.workspace_bytes:
            self.run(ctypes.addressof(pointers), None, run, state)
            return
        space = workspace.take(self.workspace_bytes)
        self.run(ctypes.addressof(pointers), space.address, run, state)
        workspace.give_back(space)

    def to_bytes(self) -> bytes:
        """The kernel as bytes, for an artifact; `load_kernel` reads them."""
        header = {
            "key": key_of(self.description, self.target),
            "target": asdict(self.target),
            "tensors": self.tensors,
            "layouts": {name: asdict(layout) for name, layout in self.layouts.items()},
            "workspace_bytes": self.workspace_bytes,
        }
        rest = json.dumps(header).encode() + b"\n" + self.code
        return _MAGIC + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


class BoundKernel:
    """A kernel with its constants: a call takes the other operands.

    Parameters
    ----------
    kernel
        The code.
    constants
        Packed arrays by tensor.
    """

    def __init__(self, kernel: Kernel, constants: Mapping[str, np.ndarray]) -> None:
        self.kernel, self.constants = kernel, constants
        description = kernel.description
        self._names = [n for n in description.operands if n not in description.constants]
        self._arrays = [description.operands[name] for name in self._names]
        self._output = description.output
        places = {name: position for position, name in enumerate(kernel.tensors)}
        self._pointers = [0] * len(places)
        for name, array in constants.items():
            self._pointers[places[name]] = address_of(array)
        self._given = [places[name] for name in self._names]
        self._kind = ctypes.c_void_p * len(places)

    def frame(self) -> tuple[ctypes.Array, Mapping[str, int]]:
        """An array of addresses for `Kernel.call`, constants in place, and where the others go.

        The caller fills in the operands that are no constants, by name, and last the output; it
        sees to it that arrays fit and stay alive, and so does this object, which holds the
        constants.
        """
        places = dict(zip(self._names, self._given, strict=True))
        return self._kind(*self._pointers), places

    def __call__(self, *arrays: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Compute.

        Parameters
        ----------
        arrays
            The operands that are no constants, in order.
        out
            Where the result goes; a new array without.

        Returns
        -------
        The result.

        Raises
        ------
        InputError
            When an array does not fit.
        """
        if len(arrays) != len(self._names):
            raise InputError(f"kernel: takes {', '.join(self._names)}, not {len(arrays)} arrays")
        if out is None:
            out = aligned_empty(self._output.shape, self._output.dtype)
        pointers = self._pointers.copy()
        for position, array in enumerate(arrays):
            check(self._names[position], array, self._arrays[position])
            if array is out or np.may_share_memory(array, out):
                raise InputError(
                    f"kernel: `out` lies in the same memory as `{self._names[position]}`; give an "
                    "array of its own"
                )
            pointers[self._given[position]] = address_of(array)
        check("out", out, self._output)
        if not out.flags.writeable:
            raise InputError("kernel: `out` is read-only; give an array that can be written")
        pointers[-1] = address_of(out)
        self.kernel.call(self._kind(*pointers))
        return out


def aligned_empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array that begins at a cache line, as vectors do best; NumPy's own seldom do."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)


def address_of(array: np.ndarray) -> int:
    """Where an array's first element lies; a quarter of a microsecond where it is writable."""
    if array.flags.writeable and array.size:
        elements: Any = array
        return ctypes.addressof(ctypes.c_char.from_buffer(elements))
    return array.ctypes.data


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a cache line, row-major."""
    found = aligned_empty(array.shape, array.dtype.name)
    found[...] = array
    return found


def check(name: str, array: np.ndarray, wanted: Array) -> None:
    """Refuse an array that does not fit."""
    if array.shape != wanted.shape or array.dtype != wanted.dtype:
        raise InputError(
            f"kernel: `{name}` is {array.dtype}{list(array.shape)}, expected "
            f"{wanted.dtype}{list(wanted.shape)}"
        )
    if not array.flags.c_contiguous:
        raise InputError(f"kernel: `{name}` is not contiguous; use `numpy.ascontiguousarray`")


def compile_kernel(
    description: Description, target: Target | None = None, threads: int = 1
) -> Kernel:
    """Compile a kernel.

    Parameters
    ----------
    description
        What it computes.
    target
        What to compile for, this machine by default.
    threads
        Threads that share parallel loops.

    Raises
    ------
    CompileError
        When the description or its schedule cannot be compiled.
    """
    target = target or host()
    plan, lowered = lower_description(description, target)
    code = assemble(lowered.text, target, plan.schedule.kernel.name)
    return Kernel(
        description,
        target,
        code,
        lowered.tensors,
        plan.layouts,
        lowered.workspace_bytes,
        threads,
    )


def lower_description(description: Description, target: Target) -> tuple[Plan, Lowered]:
    """The schedule of a kernel and its LLVM code, for reading."""
    plan = description.plan(target)
    return plan, lower(plan.schedule.program(), target, {**plan.layouts, **plan.tiles})


def load_kernel(
    data: bytes, description: Description, target: Target | None = None, threads: int = 1
) -> Kernel:
    """A kernel from an artifact; compiled anew where that is for another target or description.

    Parameters
    ----------
    data
        From `Kernel.to_bytes`.
    description, target, threads
        As for `compile_kernel`.

    Raises
    ------
    CompileError
        When the bytes are no kernel, or were changed.
    """
    target = target or host()
    if not data.startswith(_MAGIC):
        raise CompileError("these bytes are no kernel of the CPU target; compile it again")
    digest, _, rest = data.removeprefix(_MAGIC).partition(b"\n")
    if digest != hashlib.sha256(rest).hexdigest().encode():
        raise CompileError("the code of a kernel was changed or cut off; compile it again")
    header, _, code = rest.partition(b"\n")
    known = json.loads(header)
    if known["key"] != key_of(description, target):
        return compile_kernel(description, target, threads)
    layouts = {name: Layout.from_dict(found) for name, found in known["layouts"].items()}
    tensors, size = tuple(known["tensors"]), known["workspace_bytes"]
    return Kernel(description, target, code, tensors, layouts, size, threads)


def key_of(description: Description, target: Target) -> str:
    """What code follows from: description, target, and the compiler's own files."""
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        parts = (repr(description), repr(target), str(llvm_version_info), code_generator_digest())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def code_generator_digest() -> str:
    """A hash of the code generator, so that a kernel of an older one is compiled anew."""
    cpu = Path(__file__).parents[1]
    folders = (cpu, cpu.parent / "te")
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
