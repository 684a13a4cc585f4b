"""Kinds of statistics over rows."""

from enum import IntEnum


class Statistic(IntEnum):
    """Parameters that a row gives to PARAM at its end, on a machine with `row_statistics`."""

    NONE = 0
    MAXIMUM = 1
    """Bias: minus the maximum."""
    SUM = 2
    """Scale: F over the sum of the entries."""
    VARIANCE = 3
    """Bias: minus the sum. Scale: F over the root of the spread about the mean."""
    POWER = 4
    """Bias: minus length times centre. Scale: F over the root of length times the entries' sum."""
