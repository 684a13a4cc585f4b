"""Quantities of a configuration that determine the logic of each unit.

Each one counts registers or look-up tables of a part of the unit, as the hardware describes it:
bits of a loop nest, byte places of a rotation, cells of a queue. A fit finds the factors.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ...hardware.blocks import SHALLOW, TapRows, granule_bits
from ...hardware.technology import Technology
from ...isa.configuration import Configuration, Memory
from ...isa.durations import fetch_beats
from ...isa.encoding import word_bytes
from ...isa.instructions import FAMILIES, Gemm, Instruction, Load, Store, Vector
from ...isa.instructions.common import local_bits
from ...isa.instructions.load import DESTINATIONS
from .counts import blocks_of_lane
from .logic_rams import burst_bits, counted_totals, logic_rams, read_bits

Features = dict[str, float]
"""Quantities by name."""

CONSTANT = "constant"
"""Name of the part of a unit that does not depend on the configuration."""

LUTS_PER_CELL = {Technology.ECP5: 4, Technology.ASIC: 0}
"""Look-up tables that a cell of RAM takes; on other technologies they are fitted."""


def _log2(power: int) -> int:
    return power.bit_length() - 1


def _nests(configuration: Configuration, *nests: tuple[int, int]) -> Features:
    """Bits of loop nests, each given by its levels and the bits of its addresses."""
    return {
        "extent bits": configuration.extent_bits * sum(levels for levels, _ in nests),
        "jump bits": sum(levels * bits for levels, bits in nests),
        "address bits": sum(bits for _, bits in nests),
        "levels": sum(levels for levels, _ in nests),
    }


def _base_bits(
    family: type[Instruction], configuration: Configuration, *operands: str, guard: int = 0
) -> int:
    return sum(family.base_bits(operand, configuration) + guard for operand in operands)


def _registered(family: type[Instruction], configuration: Configuration) -> Features:
    """Bits of an instruction at the end of its queue."""
    bits = len(read_bits(family, configuration))
    return {"queued bits": bits if configuration.queue_depth > 2 else 0}


def _pad(configuration: Configuration, memory: Memory, readers: int, writers: int) -> Features:
    """Bits of a scratchpad's selectors: of its banks for readers, of clients for each bank."""
    banks, bits = configuration.banks(memory), 8 * configuration.row_bytes(memory)
    masks = bits // granule_bits(memory)
    name = memory.name
    shallow = configuration.depth(memory) <= SHALLOW
    return {
        f"{name} bank bits": readers * bits * (banks - 1),
        f"{name} read bits": readers * bits,
        f"{name} written bits": banks * (bits + masks) * (writers > 1),
        f"{name} row bits": banks * bits,
        f"{name} banks": banks * _log2(configuration.depth(memory)),
        f"{name} shallow bits": banks * bits * shallow,
    }


def _array(configuration: Configuration, blocks: int) -> Features:
    inputs, pairs = configuration.lanes_in, configuration.lanes_out // 2
    rows = TapRows(inputs, configuration.window_rows, spread=True)
    channels = min(inputs, configuration.lanes_out)
    taps = configuration.window_rows
    packed = inputs - rows.separate
    return {
        "packed": pairs * packed,
        "separate": pairs * rows.separate,
        "spread": pairs * (rows.last - rows.separate),
        "pairs": pairs,
        "pair levels": pairs * _log2(inputs),
        "taps": channels * taps,
        "parts": channels * taps * (configuration.depthwise_parts > 1),
        "earlier lines": channels * (configuration.window_lines - 1),
        "rows": inputs,
    }


def _gemm(configuration: Configuration, blocks: int) -> Features:
    act, wgt, acc = (_base_bits(Gemm, configuration, operand) for operand in ("act", "wgt", "acc"))
    tiles, rows = configuration.tile_loops, configuration.row_loops
    return {
        **_nests(configuration, (tiles, wgt), (tiles + rows, act + acc)),
        **_registered(Gemm, configuration),
        **_pad(configuration, Memory.WGT, 1, 1),
        **_pad(configuration, Memory.ACC, 3, 2),
        "loops of lines": rows * (configuration.window_lines > 1),
    }


def _act(configuration: Configuration, blocks: int) -> Features:
    return _pad(configuration, Memory.ACT, 4, 2)


def _has_rows(configuration: Configuration) -> bool:
    return configuration.row_statistics != "none"


def _lanes(configuration: Configuration, blocks: int) -> Features:
    return {
        "lanes": configuration.vector_lanes,
        "first products": configuration.vector_lanes * (blocks < 3),
        "second products": configuration.vector_lanes * (blocks < 4),
        "table bits": configuration.vector_lanes * _log2(configuration.lut_tables),
        "lanes of rows": configuration.vector_lanes * _has_rows(configuration),
    }


def _vector(configuration: Configuration, blocks: int) -> Features:
    outer, inner = configuration.map_loops, configuration.reduce_loops
    a, b, param, dst = (
        _base_bits(Vector, configuration, operand) for operand in ("a", "b", "param", "dst")
    )
    vector = configuration.vector_lanes
    wider = 8 * (2 * (configuration.lanes_in - vector) + 4 * (configuration.lanes_out - vector))
    return {
        **_nests(configuration, (outer + inner, a + b), (outer, param), (outer, dst)),
        **_registered(Vector, configuration),
        **_pad(configuration, Memory.PARAM, 1, 1),
        "slice bits": wider,
        "rows": _has_rows(configuration),
        "summed lanes": vector * _has_rows(configuration),
    }


def _load(configuration: Configuration, blocks: int) -> Features:
    addresses = _base_bits(Load, configuration, "memory", "local", guard=1)
    stages = _log2(configuration.bus_bytes)
    unpacked = min(configuration.lanes_out, 2 * configuration.bus_bytes)
    return {
        **_nests(configuration, (configuration.dma_loops, addresses)),
        **_registered(Load, configuration),
        "memory bits": configuration.address_bits,
        "local bits": local_bits(configuration),
        "rotated bits": configuration.bus_bits * stages,
        "bus bits": configuration.bus_bits,
        "row bytes": sum(configuration.row_bytes(memory) for memory in DESTINATIONS),
        "burst bits": burst_bits(Load, configuration),
        "open bursts": _log2(configuration.outstanding_bursts),
        "unpacked bits": 8 * unpacked if configuration.packed_weights != "none" else 0,
        "transposed bits": local_bits(configuration) * (configuration.transposed_weights != "none"),
    }


def _store(configuration: Configuration, blocks: int) -> Features:
    addresses = _base_bits(Store, configuration, "memory", "local", guard=1)
    stages = _log2(configuration.bus_bytes)
    row_bits = 8 * (configuration.row_bytes(Memory.ACT) + configuration.row_bytes(Memory.ACC))
    return {
        **_nests(configuration, (configuration.dma_loops, addresses)),
        **_registered(Store, configuration),
        "memory bits": configuration.address_bits,
        "local bits": local_bits(configuration),
        "rotated bits": configuration.bus_bits * stages,
        "bus bits": configuration.bus_bits,
        "row bits": max(row_bits, 2 * configuration.bus_bits),
        "burst bits": burst_bits(Store, configuration),
        "open bursts": _log2(configuration.outstanding_bursts),
    }


def _instructions(configuration: Configuration, blocks: int) -> Features:
    bits = sum(
        len(read_bits(family, configuration)) for family in FAMILIES if family.unit is not None
    )
    depth = configuration.queue_depth
    return {
        "queue of two": bits * (depth <= 2),
        "deep queues": bits * (depth > 16),
        "queue places": _log2(depth) if depth > 2 else 0,
        "word bits": 8 * word_bytes(configuration),
        "bus bits": configuration.bus_bits,
        "buffer places": _log2(fetch_beats(configuration)[1]),
        "buffer rows": configuration.bus_bits * (fetch_beats(configuration)[1] // 16),
        "tokens": configuration.token_bits,
        "address bits": configuration.address_bits,
    }


def _port(configuration: Configuration, blocks: int) -> Features:
    return {
        "bus bits": configuration.bus_bits,
        "address bits": configuration.address_bits,
        "owners": _log2(configuration.outstanding_bursts),
    }


def _control(configuration: Configuration, blocks: int) -> Features:
    counted = configuration.counters != "none"
    totals = counted_totals(configuration)
    return {
        "counters": counted,
        "totals": totals,
        "byte counter bits": _log2(configuration.bus_bytes) * (configuration.counters == "all"),
        "address bits": configuration.address_bits,
        "queue places": _log2(configuration.queue_depth),
        "tokens": configuration.token_bits,
    }


def _packing(configuration: Configuration, blocks: int) -> Features:
    levels = (
        2 * configuration.tile_loops
        + configuration.row_loops
        + 3 * configuration.map_loops
        + configuration.reduce_loops
        + 2 * configuration.dma_loops
    )
    pairs = configuration.lanes_out // 2
    return {
        "levels": levels,
        "lanes": configuration.vector_lanes,
        "pairs": pairs,
        "products": configuration.lanes_in * pairs,
        "cells": sum(ram.cells for ram in logic_rams(configuration)),
    }


PACKING = "packing"
"""Unit of what placing adds: cells that lead into carry chains, write ports of distributed RAM."""

UNITS: Mapping[str, Callable[[Configuration, int], Features]] = MappingProxyType(
    {
        "vector lanes": _lanes,
        "array": _array,
        "gemm": _gemm,
        "act": _act,
        "vector": _vector,
        "load": _load,
        "store": _store,
        "instructions": _instructions,
        "control": _control,
        "port": _port,
        PACKING: _packing,
    }
)
"""Units of the model, each with its quantities.

Names of cells follow signals, so a signal between two units counts for either of them. These units
are so large that each one has all cells that its quantities describe: GEMM has the accumulators and
the weights, VECTOR the parameters, and FETCH, queues, tokens and dispatch are one unit.
"""

_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "gemm.array": "array",
        "gemm": "gemm",
        "acc": "gemm",
        "wgt": "gemm",
        "act": "act",
        "vector.datapath": "vector lanes",
        "vector": "vector",
        "param": "vector",
        "load": "load",
        "store": "store",
        "arbiter": "port",
        "buffer": "port",
        "control": "control",
    }
)


def unit_of(path: Sequence[str]) -> str:
    """Return the unit of the model that an instance belongs to.

    Parameters
    ----------
    path
        Names of instances from the core inwards.
    """
    return _PARTS.get(".".join(path[:2])) or _PARTS.get(path[0], "instructions")


def features(
    configuration: Configuration, technology: Technology, multipliers: int | None
) -> dict[str, Features]:
    """Return the quantities of each unit, with a constant.

    Parameters
    ----------
    technology, multipliers
        As in `counts.count_blocks`.
    """
    blocks = blocks_of_lane(configuration, technology, multipliers)
    cells = _ram_cells(configuration)
    found = {}
    for unit, of in UNITS.items():
        found[unit] = {CONSTANT: 1, **of(configuration, blocks)}
        if technology not in LUTS_PER_CELL:
            found[unit]["cells of RAM"] = cells[unit]
    return found


def exact_luts(configuration: Configuration, technology: Technology) -> Counter[str]:
    """Return the look-up tables of each unit that are RAM, where their number is exact."""
    each = LUTS_PER_CELL.get(technology, 0)
    return Counter({unit: each * cells for unit, cells in _ram_cells(configuration).items()})


def _ram_cells(configuration: Configuration) -> Counter[str]:
    """Return the cells of RAM by unit."""
    found = Counter[str]()
    for ram in logic_rams(configuration):
        found[unit_of(ram.unit.split("."))] += ram.cells
    return found
