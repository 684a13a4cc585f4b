"""Kernels for the host's processor: the loop programs of `te`, compiled by LLVM.

    description = Convolution(batch=1, height=56, width=56, channels_in=64, channels_out=64,
                              kernel=(3, 3), pads=(1, 1, 1, 1), activation="relu")
    kernel = compile_kernel(description, threads=2)
    layer = kernel.bind(w=w, bias=bias)      # constants are packed once
    layer(x, out=y)                          # NumPy arrays; Python's lock is released
    data = kernel.to_bytes()                 # machine code, for an artifact
    kernel = load_kernel(data, description)  # compiled anew where the processor is another

A description is a frozen dataclass that knows its operands, its declaration in index notation and
a schedule for each feature set: `Convolution` (a matrix product is one of 1x1, `matrix_product`
makes it), `DepthwiseConvolution`, `GroupedConvolution`, `BatchedProduct` of two activations,
`Softmax`, `LayerNormalisation`, `Reduction`, `Elementwise`, and `Declared` for any kernel and
schedule of one's own. Activations lie as NHWC; bytes are `Quantised`, and `Byte...` are kernels of
bytes alone. Arrays from `aligned_empty` are read and written fastest. Results do not depend on the
number of threads; between feature sets float32 results differ in rounding.

A `Target` is LLVM's triple, processor and features, and the level of `LEVELS` that schedules are
chosen by: AVX-512 with VNNI, AVX2, or SSE2.
"""

from .codegen.layout import Layout
from .execution.kernel import BoundKernel, Kernel, aligned_empty, compile_kernel, load_kernel
from .kernels.batched_product import BatchedProduct
from .kernels.byte_elementwise import ByteSum, ByteTable
from .kernels.byte_pooling import BytePooling
from .kernels.byte_product import ByteProduct
from .kernels.convolution import Convolution, matrix_product
from .kernels.declared import Declared
from .kernels.depthwise import DepthwiseConvolution
from .kernels.description import Array, Description, Plan
from .kernels.elementwise import Elementwise
from .kernels.grouped_convolution import GroupedConvolution
from .kernels.movement import AffineCopy, ByteJoin
from .kernels.quantised import Quantised, Residual
from .kernels.rows import LayerNormalisation, Reduction, Softmax
from .target import LEVELS, Target, generic, host, host_levels

__all__ = [
    "LEVELS",
    "AffineCopy",
    "Array",
    "BatchedProduct",
    "BoundKernel",
    "ByteJoin",
    "BytePooling",
    "ByteProduct",
    "ByteSum",
    "ByteTable",
    "Convolution",
    "Declared",
    "DepthwiseConvolution",
    "Description",
    "Elementwise",
    "GroupedConvolution",
    "Kernel",
    "LayerNormalisation",
    "Layout",
    "Plan",
    "Quantised",
    "Reduction",
    "Residual",
    "Softmax",
    "Target",
    "aligned_empty",
    "compile_kernel",
    "generic",
    "host",
    "host_levels",
    "load_kernel",
    "matrix_product",
]
