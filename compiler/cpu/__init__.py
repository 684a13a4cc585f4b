"""Kernels for the host's processor: the loop programs of `te`, compiled by LLVM.

    description = Convolution(batch=1, height=56, width=56, channels_in=64, channels_out=64,
                              kernel=(3, 3), pads=(1, 1, 1, 1), epilogue=real_epilogue("relu"))
    kernel = compile_kernel(description, threads=2)
    layer = kernel.bind(w=w, bias=bias)      # constants are packed once
    layer(x, out=y)                          # NumPy arrays; Python's lock is released
    data = kernel.to_bytes()                 # machine code, for an artifact
    kernel = load_kernel(data, description)  # recompiled for another processor

A description is a frozen dataclass that knows its operands, its declaration in index notation and a
schedule for each level: the products `Convolution`, `MatrixProduct` and, of two activations,
`HeadProduct`, each with an `Epilogue`; `RowSoftmax`, `LayerNormalisation`, `RowReduction`,
`Elementwise`, and `Declared` for your own kernel and schedule. Activations lie as NHWC. Sums become
bytes by a `Requantisation`; the kernels named `Byte...` take nothing but bytes. Arrays from
`aligned_empty` are read and written fastest. Results do not depend on the number of threads;
float32 results of different levels differ in rounding.

A `CpuTarget` is LLVM's triple, processor and features, and the name of one of `LEVELS`: AMX,
AVX-512 with VNNI, AVX2 with or without VNNI, or SSE2. `TILEWRIGHT_CPU_LEVEL` caps the level that
`host` finds.
"""

from ...aligned import aligned_empty
from .codegen.layout import Layout
from .execution.gather_code import AXES, IndexMap, gather_call
from .execution.kernel import (
    BoundKernel,
    CompiledKernel,
    compile_kernel,
    load_kernel,
)
from .execution.schedule import Box, CallSequence, KernelCall, copy_call
from .kernels.attention import Attention
from .kernels.byte_tables import ByteTable
from .kernels.convolution import Convolution
from .kernels.declared import Declared
from .kernels.description import Array, Description, KernelSchedule
from .kernels.elementwise import Elementwise
from .kernels.epilogue import (
    Epilogue,
    EpilogueOperand,
    Extent,
    dequantised,
    per_row_epilogue,
    real_epilogue,
)
from .kernels.head_product import HeadProduct
from .kernels.matrix_product import MatrixProduct
from .kernels.pooling import BytePooling, Pooling
from .kernels.quantised import Requantisation, Residual, has_small_pairs
from .kernels.rows import LayerNormalisation, RowReduction, RowSoftmax
from .target import LEVELS, CpuTarget, generic, host, host_levels

__all__ = [
    "AXES", "LEVELS", "Array", "Attention", "BoundKernel", "Box", "BytePooling", "ByteTable",
    "CallSequence", "CompiledKernel", "Convolution", "CpuTarget", "Declared", "Description",
    "Elementwise", "Epilogue", "EpilogueOperand", "Extent", "HeadProduct", "IndexMap", "KernelCall",
    "KernelSchedule", "LayerNormalisation", "Layout", "MatrixProduct", "Pooling", "Requantisation",
    "Residual", "RowReduction", "RowSoftmax", "aligned_empty", "compile_kernel", "copy_call",
    "dequantised", "gather_call", "generic", "has_small_pairs", "host", "host_levels",
    "load_kernel", "per_row_epilogue", "real_epilogue",
]  # fmt: skip
