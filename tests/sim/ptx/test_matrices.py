"""`mma.sync` and `ldmatrix` against the tables of the PTX manual, element by element."""

import ml_dtypes
import numpy as np
import pytest

from tilewright.sim.ptx import run

from .kernels import kernel

TYPES = {
    "f16": (np.float16, 2),
    "bf16": (ml_dtypes.bfloat16, 2),
    "tf32": (np.float32, 1),
    "s8": (np.int8, 4),
    "u8": (np.uint8, 4),
}


def place_in_a(kind: str, depth: int, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element i of A in a lane."""
    group, position = lane >> 2, lane % 4
    match kind, depth:
        case "tf32", 4:
            return group + 8 * i, position
        case "tf32", 8:
            return group + (8 if i in (1, 3) else 0), position + (4 if i >= 2 else 0)
        case (("f16" | "bf16"), 8):
            return group + (8 if i >= 2 else 0), 2 * position + (i & 1)
        case (("f16" | "bf16"), 16):
            row = group if i in (0, 1, 4, 5) else group + 8
            return row, 2 * position + (i & 1) + (8 if i >= 4 else 0)
        case _, 16:
            return group + (8 if i >= 4 else 0), 4 * position + (i & 3)
    row = group if i < 4 or 8 <= i < 12 else group + 8
    return row, 4 * position + (i & 3) + (16 if i >= 8 else 0)


def place_in_b(kind: str, depth: int, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element i of B in a lane."""
    group, position = lane >> 2, lane % 4
    elements = TYPES[kind][1]
    if elements == 1:
        return position + 4 * i, group
    if elements == 2:
        return 2 * position + (i & 1) + (8 if i >= 2 else 0), group
    return 4 * position + (i & 3) + (16 if i >= 4 else 0), group


SHAPES = [
    ("f16", 8, "f32"), ("f16", 16, "f32"), ("f16", 16, "f16"), ("bf16", 8, "f32"),
    ("bf16", 16, "f32"), ("tf32", 4, "f32"), ("tf32", 8, "f32"), ("s8", 16, "s32"),
    ("s8", 32, "s32"), ("u8", 32, "s32"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "depth", "sums"), SHAPES)
def test_mma_multiplies_the_fragments_of_the_manual(kind, depth, sums):
    dtype = TYPES[kind][0]
    random = np.random.default_rng(depth)
    if sums == "s32":
        limits = np.iinfo(dtype)
        a = random.integers(limits.min, limits.max, (16, depth), dtype, endpoint=True)
        b = random.integers(limits.min, limits.max, (depth, 8), dtype, endpoint=True)
    else:  # small integers: exact in every type
        a = random.integers(-8, 8, (16, depth)).astype(dtype)
        b = random.integers(-8, 8, (depth, 8)).astype(dtype)
    sum_type = {"s32": np.int32, "f32": np.float32, "f16": np.float16}[sums]
    c = random.integers(-100, 100, (16, 8)).astype(sum_type)
    counts = 16 * depth // 32, depth * 8 // 32
    left, right = (np.zeros((32, count), dtype) for count in counts)
    start = np.zeros((32, 4), sum_type)
    for lane in range(32):
        for i in range(counts[0]):
            left[lane, i] = a[place_in_a(kind, depth, lane, i)]
        for i in range(counts[1]):
            right[lane, i] = b[place_in_b(kind, depth, lane, i)]
        for i in range(4):
            start[lane, i] = c[(lane >> 2) + 8 * (i >> 1), 2 * (lane % 4) + (i & 1)]
    words = [part.view(np.uint32) for part in (left, right, start)]
    sizes = [part.shape[1] for part in words]
    names = [[f"%r{10 * (n + 1) + i}" for i in range(size)] for n, size in enumerate(sizes)]
    loads = "\n".join(
        f"ld.param.u64 %d1, [p{n}]; mad.wide.u32 %d2, %r1, {4 * sizes[n]}, %d1;\n"
        + "\n".join(f"ld.global.u32 {name}, [%d2+{4 * i}];" for i, name in enumerate(names[n]))
        for n in range(3)
    )
    vectors = ["{" + ", ".join(part) + "}" for part in names]
    result = "{" + ", ".join(f"%r{2 + i}" for i in range(sizes[2])) + "}"
    code = f"""mov.u32 %r1, %tid.x;
{loads}
mma.sync.aligned.m16n8k{depth}.row.col.{sums}.{kind}.{kind}.{sums} {result}, {", ".join(vectors)};
ld.param.u64 %d1, [p3]; mad.wide.u32 %d2, %r1, {4 * sizes[2]}, %d1;
"""
    code += "\n".join(f"st.global.u32 [%d2+{4 * i}], %r{2 + i};" for i in range(sizes[2]))
    out = np.zeros_like(start)
    parameters = ".u64 p0, .u64 p1, .u64 p2, .u64 p3"
    run(kernel(code, parameters), 1, 32, [*(np.ascontiguousarray(w) for w in words), out])
    expected = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    for lane in range(32):
        for i in range(4):
            row, column = (lane >> 2) + 8 * (i >> 1), 2 * (lane % 4) + (i & 1)
            assert out[lane, i] == sum_type(expected[row, column])


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_gives_each_lane_two_neighbours_of_a_row(count, transpose):
    matrices = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    results = ", ".join(f"%r{10 + i}" for i in range(count))
    suffix = ".trans" if transpose else ""
    code = f"""
.shared .align 128 .b8 s[{128 * count}];
mov.u32 %r1, %tid.x; ld.param.u64 %d1, [p0]; mov.u32 %r2, s;
mad.wide.u32 %d2, %r1, {4 * count}, %d1; mad.lo.u32 %r3, %r1, {4 * count}, %r2;
"""
    for i in range(count):
        code += f"ld.global.u32 %r4, [%d2+{4 * i}]; st.shared.u32 [%r3+{4 * i}], %r4;\n"
    code += f"""bar.warp.sync -1;
rem.u32 %r5, %r1, {8 * count}; mad.lo.u32 %r5, %r5, 16, %r2;
ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{results}}}, [%r5];
ld.param.u64 %d1, [p1]; mad.wide.u32 %d2, %r1, {4 * count}, %d1;
"""
    code += "\n".join(f"st.global.u32 [%d2+{4 * i}], %r{10 + i};" for i in range(count))
    out = np.zeros((32, count, 2), np.uint16)
    run(kernel(code, ".u64 p0, .u64 p1"), 1, 32, [matrices, out])
    for lane in range(32):
        for i in range(count):
            row, column = lane // 4, 2 * (lane % 4)
            if transpose:
                pair = [matrices[i, column, row], matrices[i, column + 1, row]]
            else:
                pair = [matrices[i, row, column], matrices[i, row, column + 1]]
            assert out[lane, i].tolist() == pair
