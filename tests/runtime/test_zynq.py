"""A Zynq board's driver: caches, addresses, what pynq and u-dma-buf are asked for."""

import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from tilewright.errors import DeviceError
from tilewright.flows.verify.programs.random_programs import random_program
from tilewright.isa.configuration import PRESETS
from tilewright.isa.link import Command
from tilewright.isa.registers import OFFSETS
from tilewright.runtime import open_device, zynq
from tilewright.runtime.zynq import MappedLink, PynqCore, UioCore

from .mapped_core import BASE, stub_core
from .stub_board import LATENCY_CYCLES

SMALL = PRESETS["tiny"]
UIO = "zynq:///dev/uio0?buffer=/dev/udmabuf0"


def refusal(name: str, configuration=SMALL) -> str:
    with pytest.raises(DeviceError) as refused:
        open_device(name, configuration)
    return str(refused.value)


@pytest.fixture
def core(monkeypatch):
    core = stub_core(SMALL)
    monkeypatch.setattr(zynq, "open_core", lambda name: core)
    return core


def test_a_zynq_leaves_the_same_bytes_behind_a_cache(core):
    with open_device("sim", SMALL) as sim, open_device(UIO, SMALL) as board:
        for seed in range(6):
            program, image = random_program(SMALL, seed)
            ours, theirs = image.copy(), image.copy()
            for _ in range(2):
                result, model = board.run(program, ours), sim.run(program, theirs)
                assert result.dram is ours
                np.testing.assert_array_equal(ours, theirs)
            assert result.counters.keys() == model.counters.keys()
            assert result.cycles
            assert result.device == UIO


def test_cycles_of_another_memory_leave_no_spans(core):
    program, image = random_program(SMALL, 1)
    with open_device(UIO, SMALL) as board:
        assert board.memory.latency_cycles != LATENCY_CYCLES
        result = board.run(program, image)
    assert result.exact
    assert result.spans is None


def test_addresses_of_the_core_begin_at_the_buffer(core):
    link = MappedLink(core)
    for name, value in (("PROGRAM_BASE", 0x1000), ("DATA_BASE", 0x2000)):
        link.write_register(OFFSETS[name], value)
        assert core.registers[OFFSETS[name] // 4] == BASE + value
    link.write_register(OFFSETS["DATA_BYTES"], 0x3000)
    assert core.registers[OFFSETS["DATA_BYTES"] // 4] == 0x3000


def test_a_bitstream_of_another_configuration_is_refused(core):
    message = refusal(UIO, PRESETS["4x4"])
    assert "expected configuration `4x4`" in message
    assert "load the bitstream of that configuration" in message


def test_a_buffer_beyond_the_reach_of_the_core_is_refused(core):
    core.memory_base = (1 << 20) - 4096
    assert refusal(UIO) == (
        f"device `{UIO}`: the buffer ends at 0x11f000, but `address_bits` = 20 reaches 0x100000; "
        "reserve it at a lower address, or raise `address_bits` and build the bitstream again"
    )
    assert not core.memory.size, "it was not closed"


@pytest.mark.parametrize(
    "name",
    [
        "zynq://",
        "zynq://board/PYNQ-Z2.bit",
        "zynq:///dev/uio0?buffer=64",
        "zynq:///PYNQ-Z2.bit?buffer=/dev/udmabuf0",
        "zynq:///PYNQ-Z2.bit?buffer=0",
        "zynq:///PYNQ-Z2.bit?clock=100",
    ],
)
def test_malformed_addresses(name):
    assert refusal(name) == (
        f"device `{name}`: expected `zynq:///PATH/BOARD.bit?buffer=MIB` or "
        "`zynq:///dev/uio0?buffer=/dev/udmabuf0`; correct the address"
    )


# Files in place of the devices of the kernel -----------------------------------------------------


@pytest.fixture
def devices(monkeypatch, tmp_path):
    """A UIO device and a buffer of 8 KiB at 0x70000000."""
    (tmp_path / "uio0").write_bytes(bytes(4096))
    (tmp_path / "udmabuf0").write_bytes(bytes(8192))
    facts = tmp_path / "udmabuf0.facts"
    facts.mkdir()
    (facts / "size").write_text("8192\n")
    (facts / "phys_addr").write_text("0x0000000070000000\n")
    monkeypatch.setattr(zynq, "SYSFS", tmp_path / "sysfs")
    (tmp_path / "sysfs").mkdir()
    (tmp_path / "sysfs" / "udmabuf0").symlink_to(facts)
    return tmp_path


def test_registers_and_the_buffer_are_mapped(devices):
    core = UioCore(f"{devices}/uio0", f"{devices}/udmabuf0", "zynq")
    assert (core.memory_base, core.memory.size) == (0x7000_0000, 8192)
    core.registers[3] = 0x1234_5678
    core.memory[4096:4100] = (1, 2, 3, 4)
    assert (devices / "uio0").read_bytes()[12:16] == bytes.fromhex("78563412")
    assert (devices / "udmabuf0").read_bytes()[4096:4100] == bytes([1, 2, 3, 4])


def test_u_dma_buf_syncs_the_range_that_moves(devices):
    link = MappedLink(UioCore(f"{devices}/uio0", f"{devices}/udmabuf0", "zynq"))
    facts = devices / "udmabuf0.facts"

    def synced() -> list[str]:
        return [(facts / f"sync_{name}").read_text() for name in ("offset", "size", "direction")]

    link.write_memory(0x40, bytes(range(12)))
    assert synced() == ["64", "12", "0"]
    assert (facts / "sync_for_device").read_text() == "1"
    assert not (facts / "sync_for_cpu").exists()
    assert link.read(Command.READ_MEMORY, 0x44, 4) == bytes([4, 5, 6, 7])
    assert synced() == ["68", "4", "0"]
    assert (facts / "sync_for_cpu").read_text() == "1"


def test_missing_devices(monkeypatch, tmp_path):
    monkeypatch.setattr(zynq, "SYSFS", tmp_path)
    assert refusal(UIO) == (
        f"device `{UIO}`: `/dev/uio0` and `/dev/udmabuf0` cannot be mapped ([Errno 2] No such file "
        f"or directory: '{tmp_path}/udmabuf0/size'); expected a UIO device for the core's "
        "registers and one of u-dma-buf; see `ls /dev/uio* /dev/udmabuf*`, and run as root"
    )


# A module in place of pynq -----------------------------------------------------------------------


class Buffer(np.ndarray):
    """A buffer as pynq has it: parts of it know their addresses, and note what is asked of them."""

    device_address = 0x1000_0000
    calls: ClassVar[list[tuple[str, int, int]]] = []

    def _note(self, what: str) -> None:
        whole = self.base if isinstance(self.base, Buffer) else self
        self.calls.append((what, self.ctypes.data - whole.ctypes.data, self.nbytes))

    def flush(self) -> None:
        """Note it."""
        self._note("flush")

    def invalidate(self) -> None:
        """Note it."""
        self._note("invalidate")

    def freebuffer(self) -> None:
        """Note it."""
        self._note("free")


@pytest.fixture
def pynq(monkeypatch, tmp_path):
    monkeypatch.setattr(Buffer, "calls", [])
    opened = []
    module = SimpleNamespace(
        Overlay=lambda path: SimpleNamespace(ip_dict=opened.append(path) or module.blocks),
        MMIO=lambda base, size: SimpleNamespace(array=opened.append((base, size)) or module.words),
        allocate=lambda size, dtype: np.zeros(size, dtype).view(Buffer),
        Clocks=SimpleNamespace(fclk0_mhz=99.999),
        blocks={"core": {"phys_addr": 0x43C0_0000}},
        words=np.zeros(64, np.uint32),
        opened=opened,
        bitstream=str(tmp_path / "PYNQ-Z2.bit"),
    )
    (tmp_path / "PYNQ-Z2.bit").touch()
    monkeypatch.setitem(sys.modules, "pynq", module)
    return module


def test_pynq_loads_the_bitstream_and_keeps_memory_coherent(pynq):
    core = PynqCore(pynq.bitstream, 1 << 20, "zynq")
    assert pynq.opened == [pynq.bitstream, (0x43C0_0000, 256)]
    assert (core.memory_base, core.memory.size, core.clock_hz) == (1 << 28, 1 << 20, 99_999_000)
    link = MappedLink(core)
    link.write_memory(0x40, bytes(range(12)))
    assert link.read(Command.READ_MEMORY, 0x44, 4) == bytes([4, 5, 6, 7])
    link.close()
    assert Buffer.calls == [("flush", 0x40, 12), ("invalidate", 0x44, 4), ("free", 0, 1 << 20)]


def test_a_board_without_pynq(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynq", None)
    assert "a bitstream is loaded by `pynq`, which is not installed" in refusal("zynq:///a.bit")


def test_a_bitstream_that_is_missing(pynq):
    name = f"zynq://{pynq.bitstream}x"
    assert refusal(name) == (f"device `{name}`: there is no `{pynq.bitstream}x`; correct the path")


def test_a_bitstream_of_something_else(pynq):
    pynq.blocks = {"axi_gpio": {}}
    name = f"zynq://{pynq.bitstream}"
    assert refusal(name) == (
        f"device `{name}`: `{pynq.bitstream}` has no block `core`; load a bitstream of a project "
        "that `tilewright build` wrote"
    )


def test_too_large_a_buffer(pynq):
    def refuse(size, dtype):
        raise RuntimeError("Failed to allocate memory")

    pynq.allocate = refuse
    name = f"zynq://{pynq.bitstream}?buffer=900"
    assert refusal(name) == (
        f"device `{name}`: pynq cannot load `{pynq.bitstream}` and allocate 900 MiB (Failed to "
        "allocate memory); run as root, with the `.hwh` file beside the bitstream, or ask for a "
        "smaller buffer"
    )
