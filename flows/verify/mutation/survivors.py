"""Arguments for hardware faults that one-cycle proofs cannot show to be invisible.

`equivalence` proves most invisible faults over one clock cycle. The arguments here use the states
that the machine can reach, or the rest of a program's run. A fault is matched by stable properties:
its place, the text of its source line, and the registers that it can change in one cycle.
"""

import re
from typing import NamedTuple


class Reason(NamedTuple):
    """An argument, and the faults for which it holds."""

    place: str
    source: str
    registers: str
    text: str


REASONS = (
    Reason(
        r"rst\[0\] const0|rst\[0\].*cnot",
        r"",
        r"[\w.]*\.fetched",
        "reset of a RAM's `fetched`: it moves read data that nobody takes after a reset",
    ),
    Reason(
        r"fetched\[0\] \w+\[0\] const1",
        r"ram\.py",
        r"[\w.]*read_+data\w*",
        "the RAM's output stands still while it is not read: taking it again takes the same",
    ),
    Reason(
        r"rst\[0\].*const0",
        r"",
        r"(?!control|interrupt|events)[\w.]*",
        "every start clears this again (Prepare), and nothing of it shows between reset and start",
    ),
    Reason(
        r"clear\[0\].*const0",
        r"",
        r"store\.(pending|unanswered)[\w.]*",
        "a clear comes only after draining, which has emptied this queue",
    ),
    Reason(
        r"nest|steps|targets|channels",
        r"(?:extent_minus_one == 0|^$)",
        r"[\w.]*\.ends_\d",
        "`ends` right after the load: where it chooses between `single` and `at_end`, both are "
        "equal then, and where it reloads, the registers hold the extents already",
    ),
    Reason(
        r"(nest|channels|targets): \S+ A\[0\] const1$",
        r"inner = \[Cat\(flags\[level:\]\)\.all\(\)",
        r"[\w.]*\.ends_[1-9]",
        "`ends` without the level's own flag: where that is off and this is on, the level steps, "
        "which comes first wherever `ends` is read",
    ),
    Reason(
        r"vector\.datapath: busy",
        r"",
        r"vector\.datapath\.lingers",
        "keeps the lanes running while they have nothing to do: power, not results",
    ),
    Reason(
        r"row\[0\].* inv",
        r"gemm_walkers\.py",
        r"gemm\.weights_row|wgt\.[\w.]*",
        "the rows of a weight tile are read and kept in another order, the same on both sides",
    ),
    Reason(
        r"",
        r"vector\.py",
        r"vector\.b__\d+",
        "operand `b` of an instruction that does not use it: multiplied by zero, never chosen",
    ),
    Reason(
        r"counters: ",
        r"counts & \(increment != 0\)",
        r"control\.counters\.recent_\w+_BYTES",
        "counts bytes also while no run is on: none move then",
    ),
    Reason(
        r"requantizer: \S+ [AY]\[(3[3-9]|[45]\d)\]",
        r"dropped = product & low_bits",
        r"",
        "alignment is limited to 33 bits before, so that no bit from here on is ever dropped",
    ),
    Reason(
        r"requantizer: \S+ Y\[(3[3-9]|[45]\d)\] const0$",
        r"return Const\(\(1 << ones\) - 1, ones\) >> ~count",
        r"[\w.]*coarsely_sticky",
        "alignment is limited to 33 bits before, so that the mask never has this bit",
    ),
    Reason(
        r"requantizer: \S+ B\[\d+\] cnot\d by bit (3[3-9]|[45]\d)",
        r"dropped = product & low_bits",
        r"",
        "alignment is limited to 33 bits before, so that the mask never has this bit",
    ),
    Reason(
        r"requantizer: \S+ D\[(4[0-9]|5\d)\] cnot\d by bit (4[1-9]|5\d)",
        r"coarsely_aligned",
        r"[\w.]*coarsely_aligned",
        "where the other bit is set, the result saturates, whatever this one is",
    ),
    Reason(
        r"^tiny/load\.cutter: .* const1",
        r"ends_beat = ends_by\(\"beat\", \"row\"\) & ends_by\(\"beat\", \"burst\"\)",
        r"load\.cutter\.pieces__payload",
        "differs only where the burst ends first, and then `ends_burst` says all that this would",
    ),
    Reason(
        r"^tiny/gemm\.array: .* const1",
        r"self\.write & \(self\.row == row\)",
        r"gemm\.array\.shadow_\d\d_01",
        "the last row of a tile's weights: what the rows before it leave there, it overwrites",
    ),
    Reason(
        r"^tiny/store\.cutter: .* cnot\d by bit [4-7]",
        r"pieces\.py.*difference",
        r"",
        "a burst of `tiny` has 16 bytes at most, so that what is left of it never has this bit",
    ),
    Reason(
        r"^tiny/store\.cutter: \S+ B\[[4-7]\]",
        r"return ends\[first\] <= ends\[second\]",
        r"store\.cutter\.to_(row|beat)",
        "a burst of `tiny` has at most 16 bytes, so this makes its rest look longer; the distance "
        "changes only where the burst ends first, and the next burst sets it again",
    ),
    Reason(
        r"^tiny/vector\.in_flight: room\[0\] \S+ const1",
        r"in_flight\.py",
        r"",
        "the token gate of `tiny` holds at most two commands between start and retirement",
    ),
    Reason(
        r"^tiny/(load|store)\.issuer: data_bytes\[\d+\] A\[\d+\] cnot1 by bit (2[1-9]|3[01])$",
        r"bursts\.py",
        r"(load|store)\.issuer\.room",
        "a window of 2 MiB or more, also with another bit inverted: no run of `tiny`, whose "
        "offsets are below 1 MiB and whose lengths are at most 256 bytes, leaves it at its end",
    ),
    Reason(
        r"^tiny/store\.packer: .* const1",
        r"slots != 0",
        r"",
        "`tiny` has two bursts of four beats unanswered at most: they never fill the eight slots",
    ),
    Reason(
        r"^tiny/store\.pending\.fifo: ",
        r"",
        r"store\.pending\.fifo\.level",
        "`tiny` has two bursts unanswered at most, and one of them is in the cutter: the queue "
        "never holds two",
    ),
    Reason(
        r"^tiny/store\.pending\.fifo: w_port__en",
        r"",
        r"store\.pending\.fifo\.storage\[\d\]",
        "writes the place of the next burst before it comes: `tiny` never fills the queue",
    ),
    Reason(
        r"^tiny/(arbiter|store): .* by bit 2[2-7]$",
        r"",
        r"m_axi_a[rw]\w+",
        "the bit belongs to the length of a request, after 20 bits of address: a burst of `tiny` "
        "has four beats at most, so that it is never set",
    ),
    Reason(
        r"store\.unanswered\.fifo: r_rdy.* const1",
        r"",
        r"",
        "a response without a request, which AXI forbids the memory",
    ),
)


BEYOND_REACH = (
    (
        r"counters: .*\[(1[89]|2\d|3[01])\](?! cnot[01] by bit (\d|1[0-7])$)",
        "an upper bit of a performance counter: it can be seen after more cycles, instructions or "
        "bytes than any stimulus has",
    ),
    (
        r"bus__arready\[0\] port__arready\[0\] inv",
        "the host of the stimuli keeps its address until ready, takes the wrong ready a cycle "
        "later, and reads the same; nothing checks that the core had taken the address by then",
    ),
)
"""Visible faults, with reasons why the stimuli miss them; they count as survivors."""


def beyond_reach(place: str) -> str:
    """Reason why a visible fault is missed, or empty."""
    return next((text for pattern, text in BEYOND_REACH if re.search(pattern, place)), "")


def reason(place: str, source: str, registers: tuple[str, ...]) -> str | None:
    """Argument why a fault is invisible, if one is known.

    Parameters
    ----------
    place
        Name of the configuration, a slash, and `Fault.place`.
    source
        File and text of the source line of the fault.
    registers
        Registers that the fault can change in one cycle.
    """
    for found in REASONS:
        if (
            re.search(found.place, place)
            and re.search(found.source, source)
            and (
                not found.registers
                or all(re.fullmatch(found.registers, name) for name in registers)
            )
        ):
            return found.text
    return None
