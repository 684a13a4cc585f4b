"""Dividing ACT between the buffers of a kernel, by whole banks.

A bank has one reader and one writer at a time: instructions of two units that read the same bank
run one after the other. Buffers in banks of their own never meet.
"""

from dataclasses import dataclass
from functools import lru_cache

from ...isa.configuration import Configuration, Memory

Region = tuple[int, int]
"""First byte, and the byte after the last."""


@dataclass(frozen=True, slots=True)
class RegionRequest:
    """Bytes that a buffer needs at least, and from how many on nothing waits for it."""

    least: int
    wanted: int


@lru_cache(maxsize=1 << 16)
def divide_act(
    requests: tuple[RegionRequest, ...], may_share: int, configuration: Configuration
) -> tuple[Region, ...]:
    """A region of ACT for every buffer, in order; none where they do not fit.

    Parameters
    ----------
    requests
        Of every buffer; what is left over in the end goes to the first.
    may_share
        How many of the last buffers may lie in the same banks, which saves banks and costs time.
    """
    best: tuple[Region, ...] = ()
    fewest = len(requests) + 1
    for shared in (1, *range(2, may_share + 1)):
        regions = _divide(requests, len(requests) - shared, configuration)
        unmet = (
            sum(
                high - low < request.wanted
                for request, (low, high) in zip(requests, regions, strict=True)
            )
            if regions
            else len(requests) + 1
        )
        if unmet < fewest:
            best, fewest = regions, unmet
    return best


def _divide(
    requests: tuple[RegionRequest, ...], alone: int, configuration: Configuration
) -> tuple[Region, ...]:
    """The first `alone` buffers get banks of their own, the others share some."""
    bank, banks = configuration.bank_bytes(Memory.ACT), configuration.act_banks
    row = configuration.row_bytes(Memory.ACT)
    sharing = tuple(
        RegionRequest(_round(d.least, row), _round(d.wanted, row)) for d in requests[alone:]
    )
    together = RegionRequest(sum(d.least for d in sharing), sum(d.wanted for d in sharing))
    groups = [*requests[:alone], together]
    given = [max(1, -(-request.least // bank)) for request in groups]
    if sum(given) > banks:
        return ()
    for index, request in enumerate(groups):
        more = max(0, -(-request.wanted // bank) - given[index])
        given[index] += min(more, banks - sum(given))
    given[0] += banks - sum(given)
    regions, start = [], 0
    for count in given[:-1]:
        regions.append((start, start + count * bank))
        start += count * bank
    spare = (given[-1] * bank - together.least) // len(sharing) // row * row
    for request in sharing:
        regions.append((start, start + request.least + spare))
        start += request.least + spare
    return tuple(regions)


def _round(size: int, unit: int) -> int:
    return -(-size // unit) * unit
