"""Object files in memory."""

import subprocess
import sys

import pytest

SCATTERED = '''
"""Load a page of code with a table of two where single pages are free, and more only far away."""

import ctypes
import mmap

from tilewright.compiler.cpu.codegen.machine_code import LoadedCode, assemble
from tilewright.compiler.cpu.target import host

TEXT = """
target triple = "{triple}"
@table = private constant [1024 x i64] [i64 3, i64 5{zeros}]
define void @read(ptr %out, i64 %index) {{
  %place = getelementptr i64, ptr @table, i64 %index
  %value = load i64, ptr %place
  store i64 %value, ptr %out
  ret void
}}
"""
PAGE, NO_ACCESS, NO_RESERVE = mmap.PAGESIZE, 0, 0x4000
FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
system = ctypes.CDLL(None)
system.mmap.restype = ctypes.c_void_p
system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
system.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def reserve(size):
    return system.mmap(None, size, NO_ACCESS, FLAGS, -1, 0)


target = host()
code = assemble(TEXT.format(triple=target.triple, zeros=", i64 0" * 1022), target, "read")
LoadedCode(code, "read")
for count in (1 << 16, 2):  # fill what is free between libraries
    for _ in range(4000):
        reserve(count * PAGE)
pages = [reserve(PAGE) for _ in range(1000)]
reserve(6 << 30)
for place in pages[::2]:
    system.munmap(place, PAGE)
loaded = [LoadedCode(code, "read") for _ in range(20)]
found = ctypes.c_int64()
for number, one in enumerate(loaded):
    index = number % 2
    one.function("read", ctypes.c_void_p, ctypes.c_int64)(ctypes.addressof(found), index)
    assert found.value == (3, 5)[index]
print(len(loaded), "loaded")
'''
"""A program."""


@pytest.mark.cpu_kernels
def test_code_is_placed_whole_where_free_memory_is_scattered():
    done = subprocess.run([sys.executable, "-c", SCATTERED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "20 loaded\n"), done.stderr
