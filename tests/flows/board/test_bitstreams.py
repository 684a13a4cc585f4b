"""Bitstreams by the real tools: a small system for every board, the smallest machine for one."""

import json

import pytest

from tilewright.flows.board.bitstream import build, write_bitstream
from tilewright.flows.board.design import Design
from tilewright.flows.board.known_boards import pin_boards
from tilewright.flows.synthesis.devices import DEVICES
from tilewright.flows.synthesis.netlist import TOP
from tilewright.flows.synthesis.place_and_route import pack_design
from tilewright.hardware.soc import system
from tilewright.isa.configuration import PRESETS
from tilewright.sim.gate.mapping import map_design

from ...hardware.echo import Echo

pytestmark = pytest.mark.slow

BOARDS = {
    name: board
    for name, board in pin_boards().items()
    if DEVICES[board.device].family.packer is not None
}

SMALLEST = PRESETS["tiny"].replace(
    depthwise_taps=0, tile_loops=1, row_loops=1, map_loops=2, reduce_loops=1, dma_loops=2,
    counters="none",
)  # fmt: skip
"""Placing takes most of the time, and grows with the machine."""

KINDS = ["OrangeCrab-25F", "ECPIX-5-45F", "Tang-Nano-20K", "GateMateA1-EVB"]
"""Boards of three families, and of each kind of package and PLL; the largest chip is packed alone,
since its placer takes a minute more to read it."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Boards whose designs are equal share their netlist; the caller's cache has no part in it."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def small(monkeypatch, cache):
    """Designs hold a small system in place of a core."""
    monkeypatch.setattr(system, "System", lambda *arguments: Echo(arguments[-1]))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(cache))


def usual(name: str) -> Design:
    board = BOARDS[name]
    return Design(board, PRESETS[board.configuration])


@pytest.mark.parametrize("name", [name for name in BOARDS if name not in KINDS])
def test_the_tools_accept_chip_package_and_pins(name, small):
    design = usual(name)
    packed = pack_design(
        map_design(design.rtlil(), design.device.family.mapping, TOP), design.device
    )
    assert packed["ff"] > 50


@pytest.mark.parametrize("name", KINDS)
def test_a_board_of_each_kind_gets_a_bitstream(name, small, tmp_path):
    built = build(usual(name), seeds=1)
    assert built.meets_clock
    assert built.packed["ff"] > 50
    bitstream = write_bitstream(built, tmp_path / "build")
    assert bitstream.stat().st_size > 10_000
    assert json.loads((tmp_path / "build" / "build.json").read_text())["board"] == name


def test_a_whole_machine_reaches_the_clock_of_its_board(tmp_path):
    design = Design(BOARDS["ULX3S-25F"], SMALLEST)
    built = build(design, seeds=3)
    assert built.meets_clock
    assert built.best.path[0].name.startswith("system.")
    delay_ns = sum(step.logic_ns + step.routing_ns for step in built.best.path)
    assert delay_ns == pytest.approx(1000 / built.best.clock_mhz, rel=0.01)
    capacity = design.device.capacity
    assert all(0 < built.packed[name] <= capacity[name] for name in capacity)
    assert design.sdram
    assert write_bitstream(built, tmp_path).stat().st_size > 200_000
