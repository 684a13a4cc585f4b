"""Launch a kernel in the interpreter: arguments to parameters and buffers, blocks in batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ProgramError
from ...tensor_map import TENSOR_MAP_BYTES, TensorMap
from .batch import BlockBatch
from .faults import FaultKind, PtxFault
from .initialisation import doubtful_reads
from .memory import DeviceMemory
from .moves import space_of
from .releases import FENCES, BlockReleases
from .schedule import LaneScheduler
from .syntax import WIDTHS, PtxKernel, Symbol, Variable

Extent = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor map of an array: a parameter of 128 bytes, or a pointer to such a map.

    Parameters
    ----------
    map
        The tensor and the box.
    array
        Device memory; read-only if the array is.
    offset_bytes
        Where the tensor starts in the array.
    """

    map: TensorMap
    array: np.ndarray
    offset_bytes: int = 0


Argument = np.ndarray | int | float | np.number | bytes | TensorArgument

MAX_LANES = 4096
"""Threads that run side by side at most; more use more memory and gain little."""

MAX_SHARED_BYTES = 1 << 25
"""Shared memory of all blocks that run side by side."""


class Launch:
    """Everything that the batches of a launch have in common."""

    def __init__(
        self,
        kernel: PtxKernel,
        grid: Extent,
        block: Extent,
        arguments: Sequence[Argument],
        shared_bytes: int,
        max_instructions: int,
    ):
        self.kernel = kernel
        self.grid, self.block = _three(grid), _three(block)
        self.max_instructions = max_instructions
        threads = int(np.prod(self.block))
        if not 0 < threads <= (kernel.max_threads or 1024):
            raise PtxFault(FaultKind.ARGUMENTS, f"a block of {threads} threads")
        if kernel.required_threads not in (None, threads):
            detail = f"a block of {threads} threads; `{kernel.name}` requires"
            raise PtxFault(FaultKind.ARGUMENTS, f"{detail} {kernel.required_threads}")
        if (kernel.cluster_blocks or 1) > 1:
            detail = f"clusters of {kernel.cluster_blocks} blocks"
            raise PtxFault(FaultKind.UNSUPPORTED, detail)
        self.dynamic_shared_bytes = shared_bytes
        self.doubtful = doubtful_reads(kernel)
        self._places: dict[str, tuple[str, int]] = {}
        self.tensor_maps: dict[tuple[int, int], TensorMap] = {}
        self.has_async_proxy = any(
            instruction.name in ("mbarrier", "wgmma") or "bulk" in instruction.parts
            for instruction in kernel.instructions
        )
        self.shared_granule, global_granule = self._granules()
        elements = [a.map.element_bytes for a in arguments if isinstance(a, TensorArgument)]
        global_granule = min([global_granule, *elements])
        self.memory = DeviceMemory(global_granule)
        blocks = int(np.prod(self.grid)) if self._orders_blocks() else 1
        self.releases = BlockReleases(blocks)
        self.parameter_bytes = self._parameters(arguments)
        self.shared_bytes = self._place_variables("shared") + shared_bytes
        self.local_bytes = self._place_variables("local")
        for variable in kernel.variables:
            if variable.space in ("global", "const"):
                self._place_constant(variable)
        self.memory.freeze()

    def _orders_blocks(self) -> bool:
        """Tell whether the kernel has fences, by which blocks can be ordered."""
        releasing = {"release", "acq_rel"}
        return any(
            instruction.name in FENCES or releasing & set(instruction.parts)
            for instruction in self.kernel.instructions
        )

    def _granules(self) -> tuple[int, int]:
        """Smallest accesses of the kernel to shared and to global memory."""
        smallest = {"shared": 4, "global": 4}
        for instruction in self.kernel.instructions:
            is_bulk = "bulk" in instruction.parts
            if instruction.name in ("ld", "st", "atom", "red", "ldu"):
                space = space_of(instruction)
                width = max(WIDTHS.get(instruction.parts[-1], 32) // 8, 1)
                for name in smallest:
                    if space in (name, None):
                        smallest[name] = min(smallest[name], width)
            elif instruction.name == "cp" and len(instruction.operands) > 3 and not is_bulk:
                smallest["global"] = 1  # the number of bytes to copy is an operand
        return smallest["shared"], smallest["global"]

    def _parameters(self, arguments: Sequence[Argument]) -> bytes:
        parameters = self.kernel.parameters
        missing = parameters[len(arguments) :]
        if len(arguments) > len(parameters) or any(WIDTHS[p.type] != 64 for p in missing):
            detail = f"{len(arguments)} arguments; `{self.kernel.name}` has {len(parameters)}"
            raise PtxFault(FaultKind.ARGUMENTS, f"{detail} parameters")
        data = b""
        for index, parameter in enumerate(parameters):
            data += bytes(-len(data) % parameter.align_bytes)
            self._places[parameter.name] = "param", len(data)
            argument = arguments[index] if index < len(arguments) else 0
            data += self._parameter_bytes(index, parameter, argument)
        return data

    def _parameter_bytes(self, index: int, parameter: Variable, argument: Argument) -> bytes:
        name = f"argument {index}"
        if isinstance(argument, bytes):
            if len(argument) != parameter.size_bytes:
                detail = f"{name} has {len(argument)} bytes, not {parameter.size_bytes}"
                raise PtxFault(FaultKind.ARGUMENTS, detail)
            return argument
        if isinstance(argument, TensorArgument):
            return self._tensor_map(name, parameter, argument)
        if isinstance(argument, np.ndarray):
            if parameter.size_bytes != 8:
                raise PtxFault(FaultKind.ARGUMENTS, f"{name} is an array, not a {parameter.type}")
            address = self.memory.add(name, argument, not argument.flags.writeable)
            return address.to_bytes(8, "little")
        if isinstance(argument, np.number):
            return argument.tobytes().ljust(parameter.size_bytes, b"\0")[: parameter.size_bytes]
        if isinstance(argument, float):
            kind = {"f32": np.float32, "b32": np.float32}.get(parameter.type, np.float64)
            return kind(argument).tobytes()
        mask = (1 << 8 * parameter.size_bytes) - 1
        return (int(argument) & mask).to_bytes(parameter.size_bytes, "little")

    def _tensor_map(self, name: str, parameter: Variable, argument: TensorArgument) -> bytes:
        if parameter.size_bytes not in (8, TENSOR_MAP_BYTES):
            raise PtxFault(FaultKind.ARGUMENTS, f"{name} is a tensor map, not a {parameter.type}")
        array = argument.array
        address = self.memory.add(name, array, not array.flags.writeable) + argument.offset_bytes
        try:
            argument.map.check_address(address)
        except ProgramError as error:
            raise PtxFault(FaultKind.TENSOR_MAP, f"{name}: {error}") from None
        number = id(argument.map)
        self.tensor_maps[number, address] = argument.map
        content = number.to_bytes(8, "little") + address.to_bytes(8, "little")
        content = content.ljust(TENSOR_MAP_BYTES, b"\xa5")
        if parameter.size_bytes == TENSOR_MAP_BYTES:
            return content
        octets = np.frombuffer(content, np.uint8)
        return self.memory.add(f"{name}, its tensor map", octets, True).to_bytes(8, "little")

    def _place_variables(self, space: str) -> int:
        """Place the variables of a space, dynamic shared memory last; return their bytes."""
        end = 0
        mine = [variable for variable in self.kernel.variables if variable.space == space]
        for variable in sorted(mine, key=lambda variable: variable.size_bytes == 0):
            end += -end % variable.align_bytes
            self._places[variable.name] = space, end
            end += variable.size_bytes
        return end

    def _place_constant(self, variable: Variable) -> None:
        content = np.zeros(variable.size_bytes, np.uint8)
        content[: len(variable.data)] = np.frombuffer(variable.data, np.uint8)
        address = self.memory.add(f"`{variable.name}`", content, variable.space == "const", True)
        self._places[variable.name] = variable.space, address

    def address_of(self, symbol: Symbol) -> int:
        """The address of a variable or parameter within its space."""
        return self._place(symbol)[1] + symbol.offset

    def space_of(self, symbol: Symbol) -> str:
        """The space of a variable or parameter."""
        return self._place(symbol)[0]

    def _place(self, symbol: Symbol) -> tuple[str, int]:
        if symbol.name not in self._places:
            raise PtxFault(FaultKind.SYNTAX, f"`{symbol.name}` is not declared")
        return self._places[symbol.name]


def _three(extent: Extent) -> tuple[int, int, int]:
    extents = (extent,) if isinstance(extent, int) else tuple(extent)
    x, y, z = (*extents, 1, 1, 1)[:3]
    return x, y, z


def run(
    kernel: PtxKernel,
    grid: Extent,
    block: Extent,
    arguments: Sequence[Argument],
    shared_bytes: int = 0,
    order: str | int = "together",
    max_instructions: int = 10_000_000,
) -> int:
    """Launch `kernel` and wait for it; arrays among `arguments` are device memory.

    Parameters
    ----------
    grid, block : int or tuple of int
        Blocks of the grid and threads of a block.
    arguments : sequence
        One for each parameter: a contiguous array (a pointer to it; read-only if the array is),
        a tensor map of one, a number, or bytes for a parameter passed by value. Pointers left out
        at the end are null.
    shared_bytes : int
        Dynamic shared memory of a block.
    order : "together", "ascending", "descending" or int
        All warps of a block in lockstep, one warp after the other, or a seed for a random order;
        blocks follow each other alike.
    max_instructions : int
        Instructions of a batch of blocks after which the launch is taken for endless.

    Returns
    -------
    int
        Instructions executed, each by a group of warps.

    Raises
    ------
    PtxFault
        The kernel breaks a rule; the arrays keep what they had before.
    """
    launch = Launch(kernel, grid, block, arguments, shared_bytes, max_instructions)
    if order not in ("together", "ascending", "descending") and not isinstance(order, int):
        raise PtxFault(FaultKind.ARGUMENTS, f"order `{order}`")
    threads = -(-int(np.prod(launch.block)) // 32) * 32
    side_by_side = max(MAX_LANES // threads, 1)
    if launch.shared_bytes:
        side_by_side = max(min(side_by_side, MAX_SHARED_BYTES // launch.shared_bytes), 1)
    ids = np.arange(int(np.prod(launch.grid)))
    if order == "descending":
        ids = ids[::-1]
    elif isinstance(order, int):
        ids = np.random.default_rng(order).permutation(ids)
    executed = 0
    with np.errstate(all="ignore"):
        for part in np.array_split(ids, -(-len(ids) // side_by_side) or 1):
            if len(part):
                batch = BlockBatch(launch, part)
                LaneScheduler(batch, order).run()
                executed += batch.executed
    launch.memory.write_back()
    return executed
