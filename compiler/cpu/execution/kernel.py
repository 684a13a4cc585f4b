"""Compiled kernels: machine code, its arrays, and calls."""

import ctypes
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
from llvmlite.binding import llvm_version_info

from ....aligned import address_of, aligned_empty
from ....errors import CompileError, InputError
from ..codegen.layout import Layout
from ..codegen.lower import ENTRY, LoweredFunction, lower
from ..codegen.machine_code import LoadedCode, assemble
from ..kernels.description import Array, Description, KernelSchedule
from ..target import CpuTarget, check_runs, host
from . import workspace
from .pool import ThreadPool, pool_of
from .stored_code import check_object, seal, unseal

UNSIGNED = (
    "your key has not signed its machine code; `--trust-code` (in Python `load(path, "
    "trust_code=True)`) runs it as it is"
)
"""Reason in messages why code is not run."""

SAMPLES = 64
"""Elements that are compared before whole constants are."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The interface of a kernel's code for its caller.

    Parameters
    ----------
    tensors
        Names of the code's arrays, in order, the output last.
    layouts
        Layouts of the tensors that are packed.
    workspace_bytes
        Size of the memory that the code needs while it runs.
    """

    tensors: tuple[str, ...]
    layouts: Mapping[str, Layout]
    workspace_bytes: int

    @staticmethod
    def of(plan: KernelSchedule, lowered: LoweredFunction) -> "Frame":
        """The frame of a kernel that was lowered."""
        return Frame(lowered.tensors, plan.layouts, lowered.workspace_bytes)


class CompiledKernel:
    """Machine code of one description for one target.

    Parameters
    ----------
    description
        The computation.
    target
        The processor to compile for.
    code
        The object file.
    frame
        Its interface.
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
        target: CpuTarget,
        code: bytes,
        frame: Frame,
        threads: int = 1,
    ) -> None:
        check_runs(target.level)
        self.description, self.target, self.code, self.frame = description, target, code, frame
        self.tensors, self.workspace_bytes = frame.tensors, frame.workspace_bytes
        self.pool: ThreadPool | None = pool_of(threads)
        self._library = LoadedCode(code, ENTRY)
        self.address = self._library.address(ENTRY)
        self.run = self._library.function(ENTRY, *[ctypes.c_void_p] * 4)
        self._held: WeakValueDictionary[tuple[str, bytes], np.ndarray] = WeakValueDictionary()

    def bind(self, **constants: np.ndarray) -> "BoundKernel":
        """The kernel with its constants packed. Equal constants share memory, and thus the cache.

        Parameters
        ----------
        constants
            The description's constants, by name.

        Raises
        ------
        InputError
            When one is missing, unknown, or of another type or shape.
        """
        wanted = self.description.constants
        if set(constants) != set(wanted):
            raise InputError(
                f"kernel: expected the constants {', '.join(wanted) or 'none'}, got "
                f"{', '.join(constants) or 'none'}"
            )
        for name, array in constants.items():
            check(name, array, self.description.operands[name])
        prepared, layouts = self.description.prepare(constants, self.target), self.frame.layouts
        packed = {
            name: layouts[name].pack(array) if name in layouts else array
            for name, array in prepared.items()
        }
        return BoundKernel(self, {name: self._kept(name, array) for name, array in packed.items()})

    def _kept(self, name: str, array: np.ndarray) -> np.ndarray:
        """An equal constant that an earlier binding holds, or an aligned copy."""
        sample = array.reshape(-1)[:: max(1, array.size // SAMPLES)].tobytes()
        held = self._held.get((name, sample))
        if held is not None and held.tobytes() == array.tobytes():
            return held
        self._held[name, sample] = kept = _aligned(array)
        return kept

    def __call__(self, *arrays: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Compute, with all operands in the order of the description; packs constants each time."""
        names = tuple(self.description.operands)
        if len(arrays) != len(names):
            raise InputError(f"kernel: takes {', '.join(names)}, not {len(arrays)} arrays")
        given = dict(zip(names, arrays, strict=True))
        constants = {name: given.pop(name) for name in self.description.constants}
        return self.bind(**constants)(*given.values(), out=out)

    def call(self, pointers: ctypes.Array) -> None:
        """Run the code on the addresses of arrays, in the order of `tensors`."""
        run, state = (self.pool.run, self.pool.state) if self.pool else (None, None)
        if not self.workspace_bytes:
            self.run(ctypes.addressof(pointers), None, run, state)
            return
        space = workspace.take(self.workspace_bytes)
        self.run(ctypes.addressof(pointers), space.address, run, state)
        workspace.give_back(space)

    def to_bytes(self) -> bytes:
        """Serialise the kernel for an artifact, signed by this user; see `load_kernel`."""
        header = {
            "key": key_of(self.description, self.target),
            "target": asdict(self.target),
            **asdict(self.frame),
        }
        return seal(header, self.code)


class BoundKernel:
    """A kernel with bound constants: a call takes the other operands.

    Parameters
    ----------
    kernel
        The code.
    constants
        Packed arrays by tensor.
    """

    def __init__(self, kernel: CompiledKernel, constants: Mapping[str, np.ndarray]) -> None:
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
        """Addresses for `CompiledKernel.call`, with the constants, and the positions of the others.

        The caller fills in the other operands by name, and the output at the end. It must ensure
        that the arrays fit, and that they and this object, which owns the constants, stay alive.
        """
        places = dict(zip(self._names, self._given, strict=True))
        return self._kind(*self._pointers), places

    def __call__(self, *arrays: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Compute.

        Parameters
        ----------
        arrays
            The operands that are not constants, in order.
        out
            Array for the result; a new one by default.

        Returns
        -------
        The result.

        Raises
        ------
        InputError
            When an array has another type, shape or layout.
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
                    f"kernel: `out` shares memory with `{self._names[position]}`; give another "
                    "array"
                )
            pointers[self._given[position]] = address_of(array)
        check("out", out, self._output)
        if not out.flags.writeable:
            raise InputError("kernel: `out` is read-only; give a writable array")
        pointers[-1] = address_of(out)
        self.kernel.call(self._kind(*pointers))
        return out


def _aligned(array: np.ndarray) -> np.ndarray:
    """A row-major copy that begins at a cache line."""
    found = aligned_empty(array.shape, array.dtype.name)
    found[...] = array
    return found


def check(name: str, array: np.ndarray, wanted: Array) -> None:
    """Reject an array of another type, shape or layout."""
    if array.shape != wanted.shape or array.dtype != wanted.dtype:
        raise InputError(
            f"kernel: `{name}` is {array.dtype}{list(array.shape)}, expected "
            f"{wanted.dtype}{list(wanted.shape)}"
        )
    if not array.flags.c_contiguous:
        raise InputError(f"kernel: `{name}` is not contiguous; use `numpy.ascontiguousarray`")


def compile_kernel(
    description: Description, target: CpuTarget | None = None, threads: int = 1
) -> CompiledKernel:
    """Compile a kernel.

    Parameters
    ----------
    description
        The computation.
    target
        The processor to compile for; this machine by default.
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
    return CompiledKernel(description, target, code, Frame.of(plan, lowered), threads)


def lower_description(
    description: Description, target: CpuTarget
) -> tuple[KernelSchedule, LoweredFunction]:
    """The schedule of a kernel and its LLVM code, for reading."""
    plan = description.plan(target)
    return plan, lower(plan.schedule.program(), target, {**plan.layouts, **plan.tiles})


def load_kernel(
    data: bytes,
    description: Description,
    target: CpuTarget | None = None,
    threads: int = 1,
    *,
    trust_code: bool = False,
) -> CompiledKernel:
    """Load a kernel from an artifact; recompile it if that is for another target or description.

    Parameters
    ----------
    data
        From `CompiledKernel.to_bytes`.
    description, target, threads
        As for `compile_kernel`.
    trust_code
        Whether to accept code that this user's key has not signed. Its header is compared with
        the description, but the machine code itself runs unchecked.

    Raises
    ------
    CompileError
        When the bytes are not a kernel, are damaged, or are not signed by this user.
    """
    target = target or host()
    header, code, is_ours = unseal(data)
    if not is_ours and not trust_code:
        raise CompileError(UNSIGNED)
    if header.get("key") != key_of(description, target):
        return compile_kernel(description, target, threads)
    if is_ours:
        layouts = {name: Layout.from_dict(found) for name, found in header["layouts"].items()}
        frame = Frame(tuple(header["tensors"]), layouts, header["workspace_bytes"])
        return CompiledKernel(description, target, code, frame, threads)
    frame = Frame.of(*lower_description(description, target))
    for name, expected in json.loads(json.dumps(asdict(frame))).items():
        if (got := header.get(name)) != expected:
            raise CompileError(
                f"the header of a kernel: `{name}`: expected {_shortened(expected)}, got "
                f"{_shortened(got)}; compile it again"
            )
    check_object(code, ENTRY, target.properties.architecture)
    return CompiledKernel(description, target, code, frame, threads)


def _shortened(value: object) -> str:
    return f"{json.dumps(value):.80}"


def key_of(description: Description, target: CpuTarget) -> str:
    """A hash of everything that the code depends on: description, target and compiler."""
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        parts = (repr(description), repr(target), str(llvm_version_info), code_generator_digest())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def code_generator_digest(*targets: str) -> str:
    """A hash of the code generator: kernels of an older one are recompiled.

    Parameters
    ----------
    targets
        Folders beside that of the processor which also count.
    """
    cpu = Path(__file__).parents[1]
    folders = (cpu, *(cpu.parent / name for name in ("te", *targets)))
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
