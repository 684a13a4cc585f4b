"""Lower a loop program to PTX or OpenCL C: one kernel for each nest at the root."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...isa.expressions import Affine, reads_of
from ...tensor_map import TensorMap
from ..cpu.codegen.areas import CodeBuffer
from ..cpu.codegen.buffers import LoweringContext
from ..cpu.codegen.environment import Environment
from ..cpu.codegen.layout import Layout, Tiles
from ..te.nodes import Allocate, Assign, Nest, Update, nodes
from ..te.program import Program
from ..te.target import BLOCKS
from ..tensor import Tensor
from .blocks import kernels, regions, shared_of, threads_of
from .bulk_copies import SLOT_BYTES, bulk_copies, has_producer
from .instructions import WARP_THREADS
from .kernel_module import KernelModule
from .lower_kernel import KernelLowering
from .opencl import OpenClModule
from .ptx import PtxModule
from .target import GpuTarget

LANGUAGES: Mapping[str, type[KernelModule]] = {"PTX": PtxModule, "OpenCL C": OpenClModule}
"""Modules by the language of a level."""

NO_TILES: Mapping[str, Tiles] = {}


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A kernel of a module, and how it is launched.

    Parameters
    ----------
    name
        Its name in the module.
    tensors
        The arrays whose addresses it takes, in order.
    grid
        Blocks along x, y and z.
    threads
        Threads of a block.
    shared_bytes
        Memory that the threads of a block share.
    maps
        Tensor maps that it takes behind the addresses, each with the array that it is for.
    """

    name: str
    tensors: tuple[str, ...]
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    maps: tuple[tuple[str, TensorMap], ...] = ()


@dataclass(frozen=True, slots=True)
class GpuModule:
    """A program as text that a GPU's driver compiles.

    Parameters
    ----------
    code
        The text of all kernels, in the language of the target's level.
    kernels
        The kernels, in the order in which they run.
    buffers
        Arrays between kernels, to be allocated for the run.
    constants
        Arrays that the declaration gives.
    """

    code: str
    kernels: tuple[KernelLaunch, ...]
    buffers: tuple[Tensor, ...]
    constants: Mapping[str, np.ndarray]


def compile_program(
    program: Program, target: GpuTarget, tiles: Mapping[str, Tiles] = NO_TILES
) -> GpuModule:
    """Code for a scheduled program.

    Parameters
    ----------
    tiles
        Places of tensors of tiles in arrays without tiles.

    Raises
    ------
    ScheduleError
        When the target does not run the program.
    CompileError
        When a loop cannot be executed as scheduled.
    """
    program = target.complete(program)
    module = LANGUAGES[target.properties.language](program.kernel.name, target)
    reduced = {
        node.target.tensor: node.op for node in nodes(program.body) if isinstance(node, Update)
    }
    shared = LoweringContext(program, target, reduced, {})
    found = tuple(
        _kernel(nest, f"kernel{place}", shared, module, tiles)
        for place, nest in enumerate(kernels(program))
    )
    output = program.kernel.output.name
    buffers = [node.tensor for node in program.body if isinstance(node, Allocate)]
    return GpuModule(
        module.text(),
        found,
        tuple(tensor for tensor in buffers if tensor.name != output),
        program.kernel.constants,
    )


def _kernel(
    nest: Nest,
    name: str,
    shared: LoweringContext,
    module: KernelModule,
    tiles: Mapping[str, Tiles],
) -> KernelLaunch:
    program = shared.program
    local = {node.tensor.name for node in nodes((nest,)) if isinstance(node, Allocate)}
    names = _arrays(nest, local)
    tensors = [program.tensors[one] for one in names]
    size, threads = shared_of(nest), max(map(threads_of, regions((nest,))))
    copies = bulk_copies(nest, program, tiles) if module.target.properties.copies_boxes else {}
    size += SLOT_BYTES * max((copy.slots for copy in copies.values()), default=0)
    maps = tuple((copy.source, copy.map) for copy in copies.values())
    most = module.target.properties.max_threads
    fits = threads % WARP_THREADS == 0 and threads + WARP_THREADS <= most
    producer = fits and has_producer(nest, copies)
    launched = threads + (WARP_THREADS if producer else 0)
    with module.kernel(name, tensors, launched, size, len(maps)) as entry:
        lowering = KernelLowering(
            shared, module.emitter_type, entry, nest, threads, producer, copies
        )
        for tensor, pointer in zip(tensors, entry.arguments, strict=True):
            lowering.areas[tensor.name] = CodeBuffer(
                tensor,
                program.domains[tensor.name],
                (Affine(),) * len(tensor.shape),
                tiles.get(tensor.name, Layout.plain(tensor.shape)),
                pointer,
                values=program.kernel.constants.get(tensor.name),
                given=tensor.name != nest.stage,
            )
        lowering.block((nest,), Environment({}, {}), None)
    x, y, z = (lowering.grid[kind] for kind in BLOCKS)
    return KernelLaunch(name, names, (x, y, z), launched, size, maps)


def _arrays(nest: Nest, local: set[str]) -> tuple[str, ...]:
    """The arrays in main memory that a kernel touches, its output last."""
    names: dict[str, None] = {}
    for node in nodes((nest,)):
        if isinstance(node, (Assign, Update)):
            names |= dict.fromkeys(read.tensor for read in reads_of(node.value))
    names.pop(nest.stage, None)
    return (*(name for name in names if name not in local), nest.stage)
