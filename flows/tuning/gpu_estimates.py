"""A roofline of products on GPUs: which of compute, main memory and L2 bounds a plan.

It ranks candidates before any was timed; no decision of a compilation follows from it.

Sources: NVIDIA, A100 data sheet (2021) and H100 data sheet (2023), SXM parts, dense figures. L2 is
taken as three times as fast as main memory.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...compiler.gpu import GpuTarget
from ...compiler.gpu.product_plans import ProductPlan

LAUNCH_S = 3e-6
"""Seconds of a launch."""

L2_FACTOR = 3.0
MULTIPROCESSOR_THREADS, MULTIPROCESSOR_BYTES = 2048, 228 << 10


@dataclass(frozen=True, slots=True)
class Peak:
    """Operations a second by the bytes of an operand, without tensor cores, and of main memory."""

    tensor: Mapping[int, float]
    plain: float
    bytes: float


A100 = Peak({1: 624e12, 2: 312e12, 4: 156e12}, 19.5e12, 2.04e12)
H100 = Peak({1: 1979e12, 2: 989e12, 4: 495e12}, 67e12, 3.35e12)
WARP_SHARE = 0.62
"""Share of an H100's peak that products of single warps reach (arXiv 2402.13499)."""

OTHER = Peak({}, 10e12, 0.5e12)
"""A GPU of another maker, of middle size."""

PEAKS = {"sm80": A100, "sm90": H100, "sm90a": H100}


def estimate(plan: ProductPlan, target: GpuTarget) -> dict[str, float]:
    """Seconds and their parts, and the shared memory of a block in bytes."""
    product, tile = plan.product, plan.tile
    peak = PEAKS.get(target.level, OTHER)
    # Threads count as if for float32.
    itemsize = 32 // plan.law.taps if plan.law else 4
    shared = plan.depth * plan.taps * (tile.rows + tile.columns) * itemsize
    together = max(
        1,
        min(MULTIPROCESSOR_THREADS // plan.threads, MULTIPROCESSOR_BYTES // max(1, shared)),
    )
    slots = target.multiprocessors * together
    waves = math.ceil(plan.blocks / slots)
    share = WARP_SHARE if plan.law and not plan.law.reads_shared and peak is H100 else 1.0
    speed = share * (peak.tensor[itemsize] if plan.law else peak.plain) / target.multiprocessors
    taps = product.reduced / plan.parts
    work = 2 * tile.rows * tile.columns * taps
    # Blocks of a multiprocessor share its units, so that a wave takes the work of them all.
    compute_s = (
        waves * min(together, math.ceil(plan.blocks / target.multiprocessors)) * work / speed
    )
    rows, columns = product.size(*product.rows), product.sizes[product.columns]
    batch = product.size(*product.batch)
    l2_s = plan.blocks * taps * (tile.rows + tile.columns) * itemsize / (peak.bytes * L2_FACTOR)
    sums = 4 * rows * columns * batch
    moved = (rows + columns) * product.reduced * batch * itemsize + sums
    moved += 2 * sums * plan.parts if plan.parts > 1 else 0
    memory_s = moved / peak.bytes
    launches = 2 if plan.parts > 1 else 1
    return {
        "seconds": max(compute_s, l2_s, memory_s) + LAUNCH_S * launches,
        "compute_s": compute_s,
        "l2_s": l2_s,
        "memory_s": memory_s,
        "waves": float(waves),
        "shared_bytes": float(shared),
    }
