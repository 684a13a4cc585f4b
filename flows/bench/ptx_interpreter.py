"""Speed of the PTX interpreter: scalar arithmetic, shared memory, and `mma.sync`.

An instruction counts once for each thread. All blocks run side by side, so the figures are those
of large launches; `--order ascending` runs one warp of each block at a time instead.
"""

import argparse
import time

from tilewright.sim.ptx import PtxKernel, parse_ptx, run

REPEATS = 20
BODIES = {
    "fma": ("fma.rn.f32 %f1, %f1, %f2, %f3;", 2),
    "add": ("add.s32 %r1, %r1, %r2;", 1),
    "shared": ("ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r3]; st.shared.u32 [%r3], %r5;", 0),
    "mma": (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        " {%f4, %f5, %f6, %f7}, {%r1, %r1, %r1, %r1}, {%r2, %r2}, {%f4, %f5, %f6, %f7};",
        2 * 16 * 8 * 16 // 32,
    ),
}
"""A few instructions, and the operations that each thread does with them."""


def kernel(body: str) -> PtxKernel:
    """A kernel that repeats `body` 8 times in a loop."""
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry speed()
{{
.reg .pred %p<2>; .reg .b32 %r<9>; .reg .f32 %f<9>;
.shared .align 16 .b8 s[16384];
mov.u32 %r1, %tid.x; mov.u32 %r2, 3; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3F800000;
mov.f32 %f3, 0f3F800000; mov.f32 %f4, 0f00000000; mov.f32 %f5, %f4; mov.f32 %f6, %f4;
mov.f32 %f7, %f4; mov.u32 %r3, s; mad.lo.u32 %r3, %r1, 16, %r3;
st.shared.v4.u32 [%r3], {{%r1, %r1, %r1, %r1}}; mov.u32 %r4, 0;
LOOP:
{body * 8}
add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, {REPEATS}; @%p1 bra LOOP;
ret;
}}
"""
    return parse_ptx(text)["speed"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--order", default="together", help="order of warps, as `run` has it")
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--threads", type=int, default=256)
    arguments = parser.parse_args()
    print(f"{'':8} {'instructions/s':>15} {'operations/s':>14}")
    for name, (body, operations) in BODIES.items():
        one = kernel(body)
        begin = time.perf_counter()
        run(one, arguments.blocks, arguments.threads, [], order=arguments.order)
        seconds = time.perf_counter() - begin
        threads = arguments.blocks * arguments.threads
        count = 8 * REPEATS * threads / seconds
        print(f"{name:8} {body.count(';') * count:15.3g} {operations * count:14.3g}")


if __name__ == "__main__":
    main()
