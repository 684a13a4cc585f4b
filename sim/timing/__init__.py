"""The exact timing model: the RTL's cycles without the RTL.

`definition.Model` says what the hardware does, as recurrences in Python; `engine.cpp` is the same
compiled; `timing.time_program` is what others call.
"""

from .timing import Timer, Timing, exact_measure, time_program
from .transfers import COLUMNS

__all__ = ["COLUMNS", "Timer", "Timing", "exact_measure", "time_program"]
