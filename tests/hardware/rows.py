"""Fill and read scratchpads through their clients."""

import numpy as np

from tilewright.isa.pipeline import READ_LATENCY


async def write_rows(ctx, port, rows: np.ndarray) -> None:
    """Write uint8[rows, bytes] through a write client."""
    word_bytes = len(port.data[0]) // 8
    ctx.set(port.enable, 1)
    for address, row in enumerate(rows):
        ctx.set(port.address, address)
        for word, (data, mask) in enumerate(zip(port.data, port.mask, strict=True)):
            part = row[word * word_bytes : (word + 1) * word_bytes]
            ctx.set(data, int.from_bytes(part.tobytes(), "little"))
            ctx.set(mask, -1)
        await ctx.tick()
    ctx.set(port.enable, 0)


async def read_rows(ctx, port, count: int) -> np.ndarray:
    """Read uint8[rows, bytes] through a read client."""
    rows = []
    for address in range(count):
        ctx.set(port.enable, 1)
        ctx.set(port.address, address)
        await ctx.tick()
        ctx.set(port.enable, 0)
        await ctx.tick().repeat(READ_LATENCY - 1)
        words = [ctx.get(word).to_bytes(len(word) // 8, "little") for word in port.data]
        rows.append(b"".join(words))
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(count, -1)
