"""Random small kernels in the language of `te`, and random steps on them, legal or not."""

import random
from contextlib import suppress

import numpy as np

from tilewright import Accelerator
from tilewright.compiler import te
from tilewright.compiler.tensor import Kernel
from tilewright.isa.configuration import Configuration

MACHINE = Configuration(name="small", lanes_in=4, lanes_out=2, vector_lanes=2, bus_bits=32)
TARGET = Accelerator(MACHINE)
DTYPES = {"int8": (-128, 128), "int32": (-5000, 5000)}

Kernels = tuple[Kernel, dict[str, np.ndarray]]


def random_kernel(pick: random.Random) -> Kernels:
    """A kernel of one to three stages, and values for its inputs."""
    make = pick.choice(
        [convolution, product, maximum_pool, average_pool, elementwise, chain, diamond]
    )
    kernel = te.kernel(make.__name__, make(pick))
    values = {}
    generator = np.random.default_rng(pick.randrange(1 << 30))
    for name in kernel.inputs:
        tensor = kernel.tensors[name]
        if tensor.dtype == "float32":
            values[name] = generator.uniform(0.002, 0.1, tensor.shape).astype(np.float32)
        else:
            low, high = DTYPES[tensor.dtype]
            values[name] = generator.integers(low, high, tensor.shape).astype(tensor.dtype)
    return kernel, values


def window(pick: random.Random, extent: int) -> tuple[int, int, int, int, int]:
    """Size, stride, dilation and pad of a window over an extent, and the outputs it has."""
    size, stride, dilation = pick.choice([1, 2, 3]), pick.choice([1, 1, 2]), pick.choice([1, 1, 2])
    pad = pick.choice([0, 1, 2])
    outputs = (extent + 2 * pad - dilation * (size - 1) - 1) // stride + 1
    return (size, stride, dilation, pad, outputs) if outputs > 0 else (1, 1, 1, 0, extent)


def finished(pick: random.Random, name: str, total: te.DeclaredTensor, axes) -> te.DeclaredTensor:
    """A stage that requantises the sums of another."""
    bias = te.tensor("bias", "int32", (axes[-1].uses[str(axes[-1])].extent,))
    scale = te.tensor("scale", "float32", bias.tensor.shape)
    value = te.requantise(total[axes] + bias[axes[-1]], scale[axes[-1]]) + pick.randint(-5, 5)
    return te.compute(name, "int8", axes, te.clamp(value, -100, 120), pad=pick.randint(-3, 3))


def convolution(pick: random.Random) -> te.DeclaredTensor:
    """Strides, dilation and padding, then often a requantisation."""
    height, width = pick.randint(1, 5), pick.randint(1, 4)
    channels, outputs = pick.choice([1, 3, 4, 8]), pick.choice([1, 2, 4])
    kh, sy, dy, py, rows = window(pick, height)
    kw, sx, dx, px, columns = window(pick, width)
    y, x, o = te.axes(y=rows, x=columns, o=outputs)
    ky, kx, i = te.reduce_axes(ky=kh, kx=kw, i=channels)
    image = te.tensor("image", "int8", (height, width, channels), pad=pick.randint(-128, 127))
    w = te.tensor("w", "int8", (kh, kw, channels, outputs))
    taken = image[y * sy + ky * dy - py, x * sx + kx * dx - px, i]
    over = [ky, kx, i]
    pick.shuffle(over)
    total = te.compute("acc", "int32", (y, x, o), te.sum(taken * w[ky, kx, i, o], over=over))
    return finished(pick, "out", total, (y, x, o)) if pick.random() < 0.7 else total


def product(pick: random.Random) -> te.DeclaredTensor:
    """A matrix product, perhaps of a batch, perhaps of a mirrored operand."""
    batch, rows, depth = pick.randint(1, 3), pick.randint(1, 5), pick.choice([1, 4, 6, 8])
    columns = pick.choice([2, 3, 4])
    b, m, o = te.axes(b=batch, m=rows, o=columns)
    (k,) = te.reduce_axes(k=depth)
    left = te.tensor("left", "int8", (batch, rows, depth))
    right = te.tensor("right", "int8", (batch, depth, columns))
    at = pick.choice([k, depth - 1 - k])
    body = te.sum(left[b, m, at] * right[b, at, o], over=(k,))
    total = te.compute("acc", "int32", (b, m, o), body)
    return finished(pick, "out", total, (b, m, o)) if pick.random() < 0.7 else total


def maximum_pool(pick: random.Random) -> te.DeclaredTensor:
    """The largest of a window, clamped after it or not."""
    height, channels = pick.randint(1, 7), pick.choice([1, 2, 4])
    size, stride, dilation, pad, rows = window(pick, height)
    y, c = te.axes(y=rows, c=channels)
    (ky,) = te.reduce_axes(ky=size)
    image = te.tensor("image", "int8", (height, channels), pad=-128)
    largest = te.max(image[y * stride + ky * dilation - pad, c], over=(ky,))
    value = te.clamp(largest, -50, 50) if pick.random() < 0.6 else largest
    return te.compute("out", "int8", (y, c), value)


def average_pool(pick: random.Random) -> te.DeclaredTensor:
    """A sum with everything that follows it in one stage."""
    height, width, channels = pick.randint(1, 5), pick.randint(1, 4), pick.choice([2, 4])
    kh, sy, dy, py, rows = window(pick, height)
    kw, sx, dx, px, columns = window(pick, width)
    y, x, c = te.axes(y=rows, x=columns, c=channels)
    ky, kx = te.reduce_axes(ky=kh, kx=kw)
    image = te.tensor("image", "int8", (height, width, channels), pad=pick.randint(-9, 9))
    bias = te.tensor("bias", "int32", (channels,))
    scale = te.tensor("scale", "float32", (channels,))
    total = te.sum(image[y * sy + ky * dy - py, x * sx + kx * dx - px, c], over=(ky, kx))
    value = te.clamp(te.requantise(total + bias[c], scale[c]) + 2, -128, 127)
    return te.compute("out", "int8", (y, x, c), value)


def elementwise(pick: random.Random) -> te.DeclaredTensor:
    """Two operands met by an operation; a look-up sometimes."""
    rows, channels = pick.randint(1, 6), pick.choice([2, 3, 4])
    y, c = te.axes(y=rows, c=channels)
    a = te.tensor("a", "int8", (rows, channels))
    b = te.tensor("b", "int8", (rows, channels), pad=7)
    first, second = a[y, c], b[pick.choice([y, y + 1, rows - 1 - y]), c]
    value = pick.choice(
        [
            first * 3 + second * -2,
            first - second,
            te.maximum(first, second),
            te.minimum(first, second + 1),
            first * second,
        ]
    )
    if pick.random() < 0.3:
        table = te.tensor("table", "int8", (256,))
        return te.compute("out", "int8", (y, c), te.lookup(table, te.clamp(value, -128, 127)))
    return te.compute("out", pick.choice(["int8", "int32"]), (y, c), value)


def chain(pick: random.Random) -> te.DeclaredTensor:
    """Three stages, the last a window over the second, beyond its border."""
    height, channels, outputs = pick.randint(2, 5), pick.choice([2, 4]), pick.choice([2, 4])
    y, o = te.axes(y=height, o=outputs)
    ky, i = te.reduce_axes(ky=2, i=channels)
    image = te.tensor("image", "int8", (height, channels), pad=pick.randint(-9, 9))
    w = te.tensor("w", "int8", (2, channels, outputs))
    total = te.sum(image[y + ky - 1, i] * w[ky, i, o], over=(i, ky))
    middle = finished(pick, "middle", te.compute("acc", "int32", (y, o), total), (y, o))
    size, stride, dilation, pad, rows = window(pick, height)
    v, c = te.axes(v=rows, c=outputs)
    (kv,) = te.reduce_axes(kv=size)
    taken = middle[v * stride + kv * dilation - pad, c]
    if pick.random() < 0.5:
        return te.compute("out", "int8", (v, c), te.max(taken, over=(kv,)))
    return te.compute("out", "int8", (v, c), te.maximum(middle[v, c], middle[v + 1, c]))


def diamond(pick: random.Random) -> te.DeclaredTensor:
    """A stage that two others read, at different places, one of them perhaps transposed."""
    rows, columns = pick.randint(1, 5), pick.choice([2, 4])
    transposed = pick.random() < 0.4
    rows = columns if transposed else rows
    y, x = te.axes(y=rows, x=columns)
    image = te.tensor("image", "int8", (rows, columns), pad=1)
    first = te.compute("first", "int32", (y, x), image[y + 1, x] * 5, pad=-4)
    other = first[x, y] if transposed else first[y, columns - 1 - x]
    second = te.compute("second", "int32", (y, x), first[y - 1, x] + other)
    v, u = te.axes(v=rows, u=columns)
    return te.compute("out", "int32", (v, u), te.maximum(first[v, u], second[v, u]))


# Steps -------------------------------------------------------------------------------------------


def random_split(pick: random.Random, stage: str, loop: str, factor: int) -> te.Split:
    """A split into equal blocks, or behind a smaller first one."""
    if pick.random() < 0.7:
        return te.Split(stage, loop, factor)
    return te.SplitFirst(stage, loop, factor, pick.randint(1, factor))


def random_step(pick: random.Random, schedule: te.Schedule) -> te.Step:
    """A step on what the schedule has now; many are illegal."""
    stage = pick.choice(schedule.stages)
    name, loops = stage.name, stage.loops
    loop, other = pick.choice(loops), pick.choice(loops)
    reads = [read.tensor for read in stage.reads]
    readers = [s.name for s in schedule.stages if name in [read.tensor for read in s.reads]]
    consumer = pick.choice([s for s in schedule.stages if s.name in readers] or [stage])
    if consumer.place is not None and pick.random() < 0.3:
        around = consumer.place.consumer
        consumer = next(s for s in schedule.stages if s.name == around)
    computing = [s.name for s in schedule.stages if not s.source]
    earlier = schedule.stages[: schedule.stages.index(stage)]
    following = loops[(loops.index(loop) + 1) % len(loops)]
    scope = pick.choice(["DRAM", "ACT", "ACT", "WGT", "PARAM", "LUT", "ACC", "ACC"])
    many = pick.sample(loops, pick.randint(1, len(loops)))
    return pick.choice(
        [
            lambda: random_split(pick, name, loop, pick.randint(1, 5)),
            lambda: random_split(pick, name, loop, pick.randint(2, 3)),
            lambda: random_split(pick, name, loop, pick.choice([2, 4])),
            lambda: te.Fuse(name, loop, pick.choice([following, following, other])),
            lambda: te.Reorder(name, tuple(many)),
            lambda: te.Unroll(name, loop),
            lambda: te.Vectorise(name, pick.choice([loop, loops[-1]])),
            lambda: te.Parallelise(name, loop),
            lambda: te.Pipeline(name, loop, pick.randint(1, 3)),
            lambda: te.CacheRead(pick.choice(reads or ["image"]), scope, (name,)),
            lambda: te.CacheWrite(name, scope),
            lambda: te.ComputeAt(name, consumer.name, pick.choice(consumer.loops)),
            lambda: te.ComputeAt(name, consumer.name, pick.choice(consumer.loops)),
            lambda: te.ComputeAt(name, consumer.name, pick.choice(consumer.loops)),
            lambda: te.ComputeRoot(name),
            lambda: te.SetScope(name, scope),
            lambda: te.Tensorise(name, pick.choice([loop, loops[0]])),
            lambda: te.Tensorise(pick.choice(computing), pick.choice([loop, loops[0]])),
            lambda: te.Fuse(name, loop, following),
            lambda: te.Arena(),
            lambda: te.Precede(name, pick.choice(earlier or [stage]).name),
            lambda: te.Precede(name, (earlier or [stage])[-1].name),
            lambda: te.Roll(name, pick.randint(0, 3)),
        ]
    )()


def place_operands(pick: random.Random, schedule: te.Schedule) -> None:
    """Scopes in which instructions find their operands, so that tensorisation has a chance."""
    for stage in [stage for stage in schedule.stages if pick.random() < 0.9]:
        product = stage.output.dtype == "int32" and bool(stage.reductions)
        name = stage.name
        if name == schedule.kernel.output.name:
            name = schedule.cache_write(name, "ACC" if stage.output.dtype == "int32" else "ACT")
        else:
            schedule.set_scope(name, "ACC" if stage.output.dtype == "int32" else "ACT")
        for read in dict.fromkeys(read.tensor for read in stage.reads):
            if read in {s.name for s in schedule.stages}:
                continue
            dtype = schedule.kernel.tensors[read].dtype
            scope = "ACT" if dtype == "int8" else "PARAM"
            if product and read in ("w", "right"):
                scope = "WGT"
            schedule.cache_read(read, "LUT" if read == "table" else scope, name)
    order = [stage for stage in schedule.stages if not stage.source]
    for stage in order:
        lanes = [loop for loop in (stage.axes[-1], "i", "k") if loop in stage.loops]
        for lane in [lane for lane in lanes if pick.random() < 0.3]:
            with suppress(te.ScheduleError):
                schedule.apply(random_split(pick, stage.name, lane, pick.choice([2, 4])))
        loops = next(s.loops for s in schedule.stages if s.name == stage.name)
        if pick.random() < 0.3:
            schedule.reorder(stage.name, *sorted(loops, key=lambda loop: not loop.endswith(".o")))
        if pick.random() < 0.8:
            step = te.Tensorise(stage.name, pick.choice([*loops[:3], loops[0]]))
            with suppress(te.ScheduleError):
                schedule.apply(step)


def split_some(pick: random.Random, schedule: te.Schedule) -> None:
    """Cut a reduction into parts, which is legal at the beginning only."""
    found = [
        (stage.name, axis.name, parts)
        for stage in schedule.stages
        for axis in stage.reductions
        for parts in range(2, axis.extent + 1)
        if axis.extent % parts == 0
    ]
    if found:
        schedule.split_reduction(*pick.choice(found))


def roll_stages(pick: random.Random, schedule: te.Schedule) -> None:
    """Stages that their reader's rows advance through, so that rings have a chance."""
    for stage in reversed(schedule.stages):
        readers = [s for s in schedule.stages if stage.name in {r.tensor for r in s.reads}]
        if len(readers) != 1 or stage.output.dtype != "int8":
            continue
        reader = readers[0]
        with suppress(te.ScheduleError):
            loops = next(s.loops for s in schedule.stages if s.name == reader.name)
            if loops[0] == reader.axes[0] and pick.random() < 0.7:
                schedule.apply(random_split(pick, reader.name, loops[0], pick.randint(1, 3)))
                loops = next(s.loops for s in schedule.stages if s.name == reader.name)
            if pick.random() < 0.7:
                schedule.split(stage.name, stage.axes[0], pick.randint(1, 3))
            schedule.apply(
                te.SetScope(stage.name, "ACT"),
                te.ComputeAt(stage.name, reader.name, loops[0]),
                te.Roll(stage.name, pick.randint(0, 3)),
            )


def random_schedule(
    pick: random.Random, kernel: Kernel, steps: int
) -> tuple[te.Schedule, int, list[te.Step]]:
    """A schedule of legal steps; how many were refused, and those refused that changed it."""
    schedule = te.Schedule(kernel, TARGET)
    if pick.random() < 0.2:
        split_some(pick, schedule)
    if pick.random() < 0.5:
        place_operands(pick, schedule)
    else:
        roll_stages(pick, schedule)
    refused, harmful = 0, []
    for _ in range(steps):
        step = random_step(pick, schedule)
        before = (schedule.steps, schedule.stages)
        try:
            schedule.apply(step)
        except te.ScheduleError:
            refused += 1
            if (schedule.steps, schedule.stages) != before:
                harmful.append(step)
    return schedule, refused, harmful
