"""Bytes to and from the program of a virtual board's CPU."""

from tilewright.sim.board import VirtualBoard

MAX_CYCLES = 20_000_000
"""More than an answer takes."""


def exchange(board: VirtualBoard, data: bytes, count: int) -> bytes:
    """Send bytes to the program, and return the `count` bytes that it answers."""
    answer, limit = b"", board.cycles + MAX_CYCLES
    while len(answer) < count:
        taken, sent = board.run(data, limit - board.cycles)
        data, answer = data[taken:], answer + sent
        assert sent or board.busy, f"the CPU stopped or waits after {len(answer)} of {count} bytes"
        assert board.cycles < limit, f"{len(answer)} of {count} bytes in {MAX_CYCLES} cycles"
    assert not data
    assert len(answer) == count
    return answer
