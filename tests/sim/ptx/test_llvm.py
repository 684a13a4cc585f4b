"""PTX as LLVM writes it: loops, switches, stack arrays, halves, saturating conversions."""

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.sim.ptx import PtxKernel, parse_ptx, run

DECLARATIONS = """
target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare float @llvm.nvvm.ex2.approx.f(float)
declare float @llvm.rint.f32(float)
declare i32 @llvm.fptosi.sat.i32.f32(float)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
declare <2 x half> @llvm.fma.v2f16(<2 x half>, <2 x half>, <2 x half>)
declare i32 @llvm.ctpop.i32(i32)
@tile = internal addrspace(3) global [64 x float] undef, align 16
"""

REQUANTISE = """
define ptx_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, i32 %n) {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %base = mul i32 %t, %n
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%i1, %loop]
  %sum = phi i32 [0, %entry], [%sum1, %loop]
  %at = add i32 %base, %i
  %pa = getelementptr i8, ptr addrspace(1) %a, i32 %at
  %pb = getelementptr i8, ptr addrspace(1) %b, i32 %i
  %xa = load i8, ptr addrspace(1) %pa
  %xb = load i8, ptr addrspace(1) %pb
  %wa = sext i8 %xa to i32
  %wb = sext i8 %xb to i32
  %p = mul i32 %wa, %wb
  %sum1 = add i32 %sum, %p
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, %n
  br i1 %more, label %loop, label %done
done:
  %f = sitofp i32 %sum1 to float
  %s = fmul float %f, 0x3F60624DE0000000
  %r = call float @llvm.rint.f32(float %s)
  %q = call i32 @llvm.fptosi.sat.i32.f32(float %r)
  %lo = call i32 @llvm.smax.i32(i32 %q, i32 -128)
  %hi = call i32 @llvm.smin.i32(i32 %lo, i32 127)
  %b8 = trunc i32 %hi to i8
  %pc = getelementptr i8, ptr addrspace(1) %c, i32 %t
  store i8 %b8, ptr addrspace(1) %pc
  ret void
}
"""

REVERSE = """
define ptx_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %c) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %pa = getelementptr float, ptr addrspace(1) %a, i32 %t
  %x = load float, ptr addrspace(1) %pa
  %e = call float @llvm.nvvm.ex2.approx.f(float %x)
  %ps = getelementptr [64 x float], ptr addrspace(3) @tile, i32 0, i32 %t
  store float %e, ptr addrspace(3) %ps
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %u = sub i32 63, %t
  %pu = getelementptr [64 x float], ptr addrspace(3) @tile, i32 0, i32 %u
  %y = load float, ptr addrspace(3) %pu
  %z = fdiv float 1.0, %y
  %pc = getelementptr float, ptr addrspace(1) %c, i32 %t
  store float %z, ptr addrspace(1) %pc
  ret void
}
"""

HALVES = """
define ptx_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %c) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %pa = getelementptr <2 x half>, ptr addrspace(1) %a, i32 %t
  %x = load <2 x half>, ptr addrspace(1) %pa
  %y = call <2 x half> @llvm.fma.v2f16(<2 x half> %x, <2 x half> %x, <2 x half> %x)
  %pc = getelementptr <2 x half>, ptr addrspace(1) %c, i32 %t
  store <2 x half> %y, ptr addrspace(1) %pc
  ret void
}
"""

SWITCH = """
define ptx_kernel void @k(ptr addrspace(1) %c) {
entry:
  %stack = alloca [8 x i32], align 4
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %slot = and i32 %t, 7
  %p = getelementptr [8 x i32], ptr %stack, i32 0, i32 %slot
  store i32 %t, ptr %p
  switch i32 %slot, label %other [i32 0, label %a i32 1, label %b i32 2, label %d i32 3, label %e
    i32 4, label %f i32 5, label %g]
a:
  br label %end
b:
  br label %end
d:
  %count = call i32 @llvm.ctpop.i32(i32 %t)
  br label %end
e:
  %square = mul i32 %t, %t
  br label %end
f:
  %third = sdiv i32 %t, 3
  br label %end
g:
  %rest = urem i32 %t, 10
  br label %end
other:
  br label %end
end:
  %v = phi i32 [100, %a], [200, %b], [%count, %d], [%square, %e], [%third, %f], [%rest, %g],
    [300, %other]
  %old = load i32, ptr %p
  %sum = add i32 %v, %old
  %pc = getelementptr i32, ptr addrspace(1) %c, i32 %t
  store i32 %sum, ptr addrspace(1) %pc
  ret void
}
"""


def compiled(text: str) -> PtxKernel:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    machine = target.create_target_machine(cpu="sm_80", features="+ptx80", opt=3)
    module = llvm.parse_assembly(DECLARATIONS + text)
    return parse_ptx(machine.emit_assembly(module))["k"]


ORDERS = ("together", "ascending", "descending", 2)


@pytest.mark.parametrize("order", ORDERS)
def test_a_requantised_dot_product_is_exact(order):
    random = np.random.default_rng(0)
    a, b = random.integers(-128, 128, (64, 50), np.int8), random.integers(-128, 128, 50, np.int8)
    c = np.zeros(64, np.int8)
    run(compiled(REQUANTISE), 1, 64, [a, b, c, 50], order=order)
    sums = (a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32) * np.float32(0.002)
    np.testing.assert_array_equal(c, np.clip(np.rint(sums), -128, 127))


@pytest.mark.parametrize("order", ORDERS)
def test_values_pass_through_shared_memory(order):
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    c = np.zeros_like(a)
    run(compiled(REVERSE), 1, 64, [a, c], order=order)
    np.testing.assert_allclose(c, 1 / np.exp2(a[::-1]), rtol=1e-6)


def test_pairs_of_halves_are_multiplied_and_added():
    a = np.random.default_rng(0).standard_normal(64).astype(np.float16)
    c = np.zeros_like(a)
    run(compiled(HALVES), 1, 32, [a, c])
    wide = a.astype(np.float64)
    np.testing.assert_array_equal(c, (wide * wide + wide).astype(np.float16))


@pytest.mark.parametrize("order", ORDERS)
def test_a_switch_and_a_stack_array(order):
    c = np.zeros(64, np.int32)
    run(compiled(SWITCH), 1, 64, [c], order=order)
    cases = [
        lambda t: 100, lambda t: 200, int.bit_count, lambda t: t * t, lambda t: t // 3,
        lambda t: t % 10, lambda t: 300, lambda t: 300,
    ]  # fmt: skip
    np.testing.assert_array_equal(c, [t + cases[t % 8](t) for t in range(64)])
