"""Divide ACT between the buffers of a kernel, by whole banks.

A bank has one reader and one writer at a time, so two units that read the same bank take turns.
Buffers in separate banks never conflict.
"""

import itertools
from functools import lru_cache
from typing import NamedTuple

from ...aligned import round_up
from ...isa.configuration import Configuration, Memory
from ..te.box import Range


class RegionRequest(NamedTuple):
    """The fewest bytes that a buffer needs, and the bytes with which nothing waits for it."""

    least: int
    wanted: int

    def with_room(self, size: int) -> "RegionRequest":
        """The request of a buffer that wants as many bytes, too."""
        return RegionRequest(self.least, max(self.wanted, size))


def region_request(size: int, between: bool) -> RegionRequest:
    """The space that a buffer of ACT requests.

    A buffer `between` two stages needs no second place, since VECTOR writes it and then reads it.
    """
    return RegionRequest(size, size if between else 2 * size)


def act_regions(
    requests: tuple[RegionRequest, ...],
    made: int,
    configuration: Configuration,
    digits: tuple[RegionRequest, ...] = (),
) -> tuple[Range, ...]:
    """Regions of ACT for buffers, of which VECTOR writes the last `made`; none if they do not fit.

    The `digits` of sums are small. They have banks of their own, since VECTOR reads them while
    STORE reads results, or share the result's if there are too few; their regions come last.
    """
    row = configuration.row_bytes(Memory.ACT)
    ends = [*itertools.accumulate((round_up(one.least, row) for one in digits), initial=0)]
    *others, (least, wanted) = requests
    if digits:
        own = (*others, RegionRequest(ends[-1], ends[-1]), requests[-1])
        apart = divide_act(own, 1, configuration)
        if apart and all(
            high - low >= one.wanted for one, (low, high) in zip(own, apart, strict=True)
        ):
            *given, (low, _), last = apart
            small = ((low + first, low + end) for first, end in itertools.pairwise(ends))
            return (*given, last, *small)
    requests = (*others, RegionRequest(least + ends[-1], wanted + ends[-1]))
    regions = divide_act(requests, 2 if made > 1 else 1, configuration)
    regions = regions or divide_act(requests, 2, configuration)
    if not regions or not digits:
        return regions
    *given, (low, high) = regions
    small = ((low + first, low + end) for first, end in itertools.pairwise(ends))
    return (*given, (low + ends[-1], high), *small)


def limited_region(region: Range, slots: int, size: int) -> Range:
    """The start of a region that a number of slots uses; the whole region for 0 slots."""
    low, high = region
    return (low, min(high, low + slots * size)) if slots else region


@lru_cache(maxsize=1 << 16)
def divide_act(
    requests: tuple[RegionRequest, ...], may_share: int, configuration: Configuration
) -> tuple[Range, ...]:
    """A region of ACT for every buffer, in order; empty if they do not fit.

    Parameters
    ----------
    requests
        One for every buffer. The first buffer also gets the space that remains.
    may_share
        The number of last buffers that may share banks. Sharing saves banks and costs time.
    """
    best: tuple[Range, ...] = ()
    fewest = len(requests) + 1
    for shared in (1, *range(2, may_share + 1)):
        regions = _divide(requests, len(requests) - shared, configuration)
        if not regions:
            continue
        pairs = zip(requests, regions, strict=True)
        unmet = sum(high - low < request.wanted for request, (low, high) in pairs)
        if unmet < fewest:
            best, fewest = regions, unmet
    return best


def _divide(
    requests: tuple[RegionRequest, ...], alone: int, configuration: Configuration
) -> tuple[Range, ...]:
    """Give the first `alone` buffers separate banks, and let the others share banks."""
    bank, banks = configuration.bank_bytes(Memory.ACT), configuration.act_banks
    row = configuration.row_bytes(Memory.ACT)
    sharing = [
        RegionRequest(round_up(d.least, row), round_up(d.wanted, row)) for d in requests[alone:]
    ]
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
