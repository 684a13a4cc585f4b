"""Scratchpad contents of a Verilated core: map from words of banks to RAM arrays."""

import re
from collections.abc import Mapping

import numpy as np

from ..errors import HardwareError
from ..isa.configuration import SCRATCHPADS, Configuration, Memory

_WORD = re.compile(r"__DOT__(\w+?)__DOT__bank_(\d+)__DOT__word_(\d+)__DOT__ram$")
_TABLE = re.compile(r"__DOT__table_(\d+)__DOT__rows__DOT__ram$")
"""Each lane of VECTOR has a copy of LUT."""


class ScratchpadArrays:
    """All scratchpads of a core, readable and writable as bytes.

    Parameters
    ----------
    configuration
        Configuration, which determines the sizes of the arrays.
    arrays
        From `Harness.arrays`: Verilator's name to uint8[rows, stride] and bits of a row.

    Raises
    ------
    HardwareError
        When the arrays do not match the configuration.
    """

    def __init__(
        self, configuration: Configuration, arrays: Mapping[str, tuple[np.ndarray, int]]
    ) -> None:
        self.configuration = configuration
        self._words: dict[Memory, dict[tuple[int, int], np.ndarray]] = {}
        self._tables: dict[int, np.ndarray] = {}
        names = {memory.name.lower(): memory for memory in SCRATCHPADS}
        for name, (array, bits) in arrays.items():
            row = array[:, : bits // 8]
            if found := _TABLE.search(name):
                self._tables[int(found[1])] = row
            elif (found := _WORD.search(name)) and found[1] in names:
                words = self._words.setdefault(names[found[1]], {})
                words[int(found[2]), int(found[3])] = row
        self._words[Memory.LUT] = {(0, 0): self._tables[0]} if self._tables else {}
        for memory in SCRATCHPADS:
            self._check(memory)

    def _check(self, memory: Memory) -> None:
        words = self._words.get(memory, {})
        size = sum(word.size for word in words.values())
        if size != self.configuration.size_bytes(memory):
            raise HardwareError(
                f"configuration `{self.configuration.name}`: the simulator shows {size} bytes of "
                f"{memory.name} in {len(words)} arrays, expected "
                f"{self.configuration.size_bytes(memory)} bytes"
            )

    def read(self) -> dict[Memory, np.ndarray]:
        """A copy of every scratchpad, uint8[bytes].

        Raises
        ------
        HardwareError
            When the lanes' copies of LUT differ.
        """
        for lane, table in self._tables.items():
            if not np.array_equal(table, self._tables[0]):
                raise HardwareError(f"rtl: the LUT copies of VECTOR lanes 0 and {lane} differ")
        contents = {}
        for memory, words in self._words.items():
            banks, depth = self.configuration.banks(memory), self.configuration.depth(memory)
            whole = np.empty((banks, depth, self.configuration.row_bytes(memory)), dtype=np.uint8)
            for (bank, word), array in words.items():
                width = array.shape[1]
                whole[bank, :, word * width : (word + 1) * width] = array
            contents[memory] = whole.reshape(-1)
        return contents

    def clear(self) -> None:
        """Set everything to zero."""
        for words in (*self._words.values(), self._tables):
            for array in words.values():
                array[...] = 0
