"""Placements that are refined: paths get shorter, and every place stays legal."""

import random
import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from tilewright.flows.synthesis.ecp5_placement.placed_design import FIXED, STRENGTH, PlacedDesign
from tilewright.flows.synthesis.ecp5_placement.placed_timing import PLACED, PlacedTiming
from tilewright.flows.synthesis.ecp5_placement.refine_placement import refine

CLOCK = 1
OUTPUTS = frozenset({"Q", "F", "FCO", "OFX"})


class Netlist:
    """A placed module, built cell by cell."""

    def __init__(self) -> None:
        self.cells: dict[str, Any] = {}
        self._nets = count(2)

    def net(self) -> int:
        return next(self._nets)

    def add(self, kind: str, place: str, **pins: int) -> dict[str, Any]:
        cell = {
            "type": kind,
            "parameters": {},
            "attributes": {PLACED: place, STRENGTH: f"{1:032b}"},
            "port_directions": {pin: "output" if pin in OUTPUTS else "input" for pin in pins},
            "connections": {pin: [net] for pin, net in pins.items()},
        }
        self.cells[f"cell_{len(self.cells)}"] = cell
        return cell

    def flip_flop(self, place: str, **pins: int) -> dict[str, Any]:
        return self.add("TRELLIS_FF", place, CLK=CLOCK, **pins)

    def fix(self, cell: dict[str, Any]) -> dict[str, Any]:
        cell["attributes"][STRENGTH] = f"{6:032b}"
        return cell

    def table(self, place: str, **pins: int) -> dict[str, Any]:
        return self.add("TRELLIS_COMB", place, **pins)

    def module(self) -> dict[str, Any]:
        return {"cells": self.cells}

    def longest(self) -> float:
        cells = list(self.cells.values())
        for cell in cells:
            cell["attributes"][PLACED] = place(cell)
        return PlacedTiming(cells).analyse(PlacedDesign(cells).places).paths.max()


def place(cell: Mapping[str, Any]) -> str:
    return cell["attributes"].get(FIXED) or cell["attributes"][PLACED]


def tile(cell: Mapping[str, Any]) -> tuple[int, int]:
    found = re.match(r"X(\d+)/Y(\d+)/", place(cell))
    assert found
    return int(found[1]), int(found[2])


def frame(netlist: Netlist, columns: int, rows: int) -> None:
    """Add flip-flops in two columns, so that everything between them is known as logic."""
    for row in range(rows):
        for column in (0, columns - 1):
            netlist.flip_flop(f"X{column}/Y{row}/SLICEA.FF0", M=netlist.net(), Q=netlist.net())


def test_a_path_is_as_long_as_its_cells_and_wires() -> None:
    netlist = Netlist()
    start, middle, end = netlist.net(), netlist.net(), netlist.net()
    netlist.flip_flop("X2/Y2/SLICEA.FF0", M=netlist.net(), Q=start)
    netlist.table("X5/Y2/SLICEA.K0", A=start, F=middle)
    netlist.flip_flop("X25/Y9/SLICEA.FF0", LSR=middle, Q=end)
    wires = (700 + 3 * 90) + (700 + 5 * 90 + 15 * 52 + 5 * 90 + 2 * 52)
    assert netlist.longest() == 525 + wires + 236 + 424


def test_the_wires_of_a_carry_chain_have_no_length() -> None:
    netlist = Netlist()
    start, carry, total = netlist.net(), netlist.net(), netlist.net()
    netlist.flip_flop("X2/Y2/SLICEA.FF0", M=netlist.net(), Q=start)
    for slot, (entry, pins) in enumerate((("A", {"FCO": carry}), ("FCI", {"F": total}))):
        cell = netlist.table(f"X2/Y2/SLICEB.K{slot}", **{entry: (start, carry)[slot]}, **pins)
        cell["parameters"]["MODE"] = "CCU2"
    netlist.flip_flop("X2/Y2/SLICEB.FF1", DI=total, Q=netlist.net())
    assert netlist.longest() == 525 + 700 + 447 + 403


def test_a_stray_cell_comes_back_to_its_path() -> None:
    netlist = Netlist()
    frame(netlist, 60, 4)
    start, middle = netlist.net(), netlist.net()
    netlist.fix(netlist.flip_flop("X2/Y2/SLICEA.FF0", M=netlist.net(), Q=start))
    stray = netlist.table("X55/Y2/SLICEC.K1", A=start, F=middle)
    netlist.fix(netlist.flip_flop("X6/Y2/SLICEA.FF0", M=middle, Q=netlist.net()))
    before = netlist.longest()
    refine(netlist.module())
    assert tile(stray)[0] <= 8
    assert netlist.longest() < before / 2


def test_a_carry_chain_moves_as_a_whole_and_single_cells_make_way() -> None:
    netlist = Netlist()
    frame(netlist, 60, 1)
    start, carries, total = netlist.net(), [netlist.net() for _ in range(8)], netlist.net()
    netlist.fix(netlist.flip_flop("X2/Y0/SLICEA.FF0", M=netlist.net(), Q=start))
    chain = []
    for number in range(8):
        entry = {"A": start} if number == 0 else {"FCI": carries[number - 1], "A": start}
        output = {"F": total} if number == 7 else {"FCO": carries[number]}
        spot = f"X50/Y0/SLICE{'ABCD'[number // 2]}.K{number % 2}"
        chain.append(netlist.table(spot, **entry, **output))
        chain[-1]["parameters"]["MODE"] = "CCU2"
    last = netlist.flip_flop("X50/Y0/SLICED.FF1", DI=total, Q=netlist.net())
    end = last["connections"]["Q"][0]
    netlist.fix(netlist.flip_flop("X3/Y0/SLICEA.FF0", M=end, Q=netlist.net()))
    for column in range(1, 40):
        netlist.table(f"X{column}/Y0/SLICEB.K0", A=netlist.net(), F=netlist.net())
    refine(netlist.module())
    assert len({tile(cell) for cell in (*chain, last)}) == 1
    assert tile(last)[0] < 10
    assert [place(cell)[-2:] for cell in chain] == ["K0", "K1"] * 4
    check(netlist)


def test_fixed_cells_and_distributed_ram_stay() -> None:
    netlist = Netlist()
    frame(netlist, 60, 2)
    start, middle = netlist.net(), netlist.net()
    netlist.flip_flop("X2/Y0/SLICEA.FF0", M=netlist.net(), Q=start)
    fixed = netlist.fix(netlist.table("X55/Y0/SLICEC.K1", A=start, F=middle))
    read = netlist.net()
    memory = netlist.table("X40/Y0/SLICEA.K0", A=start, F=read)
    memory["parameters"]["MODE"] = "DPRAM"
    netlist.flip_flop("X3/Y0/SLICEA.FF0", M=middle, Q=netlist.net())
    netlist.flip_flop("X4/Y0/SLICEA.FF0", M=read, Q=netlist.net())
    refine(netlist.module())
    assert tile(fixed) == (55, 0)
    assert tile(memory) == (40, 0)


def test_a_multiplexer_keeps_its_slot_though_it_is_alone() -> None:
    netlist = Netlist()
    frame(netlist, 60, 4)
    start, middle = netlist.net(), netlist.net()
    netlist.fix(netlist.flip_flop("X2/Y2/SLICEA.FF0", M=netlist.net(), Q=start))
    stray = netlist.table("X55/Y2/SLICEC.K0", A=start, M=start, OFX=middle)
    netlist.fix(netlist.flip_flop("X6/Y2/SLICEA.FF0", M=middle, Q=netlist.net()))
    refine(netlist.module())
    assert tile(stray)[0] <= 8
    assert place(stray).endswith("SLICEC.K0")


def test_all_places_are_fixed_and_pins_without_nets_are_kept() -> None:
    """nextpnr ties such pins to 0 only if it knows that the cell has them."""
    netlist = Netlist()
    frame(netlist, 10, 2)
    product = netlist.add("MULT18X18D", "X4/Y1/MULT18_0", A0=netlist.net(), CE0=netlist.net())
    product["port_directions"]["A1"] = "input"
    product["connections"]["A1"] = []
    refine(netlist.module())
    for cell in netlist.cells.values():
        assert cell["attributes"].keys() == {FIXED}
    assert product["attributes"][FIXED] == "X4/Y1/MULT18_0"
    assert [product["connections"][pin] for pin in ("A1", "CE1", "CLK0")] == [["x"]] * 3


def test_a_design_in_which_nothing_can_move_keeps_its_places() -> None:
    netlist = Netlist()
    table = netlist.table("X3/Y1/SLICEA.K0", F=netlist.net())
    refine(netlist.module())
    assert place(table) == "X3/Y1/SLICEA.K0"


@pytest.mark.parametrize("seed", range(8))
def test_random_designs_stay_legal_and_do_not_get_slower(seed: int) -> None:
    netlist = Random(seed)
    before, names, ram = netlist.longest(), set(netlist.cells), occupants(netlist, netlist.ram)
    check(netlist)
    refine(netlist.module())
    check(netlist)
    assert netlist.longest() < before
    assert set(netlist.cells) == names
    assert occupants(netlist, netlist.ram) <= ram


class Random(Netlist):
    """Single cells, pairs, multiplexers and carry chains in random places of a small chip."""

    COLUMNS, ROWS = 30, 6

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chosen = random.Random(seed)
        frame(self, self.COLUMNS, self.ROWS)
        self.controls = [self.net() for _ in range(3)]
        self.outputs = [self.net() for _ in range(20)]
        self.ram = (12, 3)
        self.keys: dict[Any, Any] = {}
        self.used: set[tuple[int, int, int]] = set()
        self.table("X12/Y3/SLICEA.K0", WD=self.output(), F=self.net())["parameters"]["MODE"] = (
            "DPRAM"
        )
        self.used |= {(*self.ram, slot) for slot in range(8)}
        for _ in range(6):
            self.chain(self.chosen.randrange(4, 20))
        for _ in range(20):
            self.multiplexer()
        for _ in range(300):
            self.single()

    def output(self) -> int:
        return self.chosen.choice(self.outputs)

    def room(self, slots: int, step: int) -> tuple[int, int, int]:
        """Return a place with some free slots from it on; its slot is a multiple of `step`."""
        while True:
            first = self.chosen.randrange(8, 8 * (self.COLUMNS - 1) - slots) // step * step
            row = self.chosen.randrange(self.ROWS)
            places = {((first + n) // 8, row, (first + n) % 8) for n in range(slots)}
            if not places & self.used:
                self.used |= places
                return first // 8, row, first % 8

    def key(self, *parts: int) -> tuple[int, int, str]:
        """Return clock, control net and option of a tile's or a slice's flip-flops."""
        choose = self.chosen.choice
        value = choose(self.controls), choose(self.controls), choose(("", "INV"))
        return self.keys.setdefault(parts, value)

    def register(self, column: int, row: int, slot: int, **entry: int) -> None:
        clock, reset, inverted = self.key(column, row)
        _, enable, option = self.key(column, row, slot // 2)
        output = self.net()
        cell = self.flip_flop(
            spot(column, row, slot, "FF"), **entry, Q=output, LSR=reset, CE=enable
        )
        cell["connections"]["CLK"] = [clock]
        cell["parameters"] |= {"LSRMUX": inverted, "CEMUX": option}
        self.outputs.append(output)

    def single(self) -> None:
        column, row, slot = self.room(1, 1)
        kind = self.chosen.randrange(3)
        if kind == 0:
            self.register(column, row, slot, M=self.output())
            return
        inner = self.net()
        self.table(spot(column, row, slot), A=self.output(), B=self.output(), F=inner)
        if kind == 1:
            self.register(column, row, slot, DI=inner)
        else:
            self.outputs.append(inner)

    def multiplexer(self) -> None:
        column, row, slot = self.room(2, 2)
        other, output = self.net(), self.net()
        self.table(spot(column, row, slot + 1), A=self.output(), F=other)
        self.table(spot(column, row, slot), A=self.output(), M=self.output(), F1=other, OFX=output)
        self.outputs.append(output)

    def chain(self, length: int) -> None:
        column, row, slot = self.room(2 * length, 2)
        carry = None
        for number in range(2 * length):
            place = column + (slot + number) // 8, row, (slot + number) % 8
            pins, carry = {"FCI": carry} if carry else {}, self.net()
            total = self.net()
            cell = self.table(spot(*place), A=self.output(), **pins, F=total, FCO=carry)
            cell["parameters"]["MODE"] = "CCU2"
            if number % 3:
                self.register(*place, DI=total)


def spot(column: int, row: int, slot: int, kind: str = "K") -> str:
    return f"X{column}/Y{row}/SLICE{'ABCD'[slot // 2]}.{kind}{slot % 2}"


def occupants(netlist: Netlist, where: tuple[int, int]) -> set[str]:
    return {name for name, cell in netlist.cells.items() if tile(cell) == where}


def check(netlist: Netlist) -> None:
    """Check the rules of tiles and slices, from the names of places alone."""
    by_tile, by_slice, drivers = defaultdict(set), defaultdict(set), {}
    at: dict[tuple[int, int, str], dict[str, Any]] = {}
    for cell in netlist.cells.values():
        pins, options = cell["connections"], cell["parameters"]
        column, row = tile(cell)
        slice_, kind, half = re.findall(r"SLICE(.)\.(K|FF)(.)", place(cell))[0]
        slot = 8 * column + 2 * "ABCD".index(slice_) + int(half)
        assert (row, slot, kind) not in at
        at[row, slot, kind] = cell
        drivers.update({net: (row, slot) for pin, (net,) in pins.items() if pin in OUTPUTS})
        if kind == "FF":
            key = pins["CLK"], pins.get("LSR"), options.get("LSRMUX")
            by_tile[column, row].add(str(key))
            by_slice[row, slot // 2].add(str((pins.get("CE"), options.get("CEMUX"))))
    assert all(len(keys) == 1 for keys in (*by_tile.values(), *by_slice.values()))
    for (row, slot, kind), cell in at.items():
        pins = {pin: net for pin, (net,) in cell["connections"].items()}
        for pin, offset in (("DI", 0), ("FCI", -1), ("F1", 1)):
            if pin in pins:
                assert drivers[pins[pin]] == (row, slot + offset)
        if "F1" in pins or "OFX" in pins:
            assert slot % 2 == 0
        if kind == "FF" and "M" in pins:
            table = at.get((row, slot, "K"), {"connections": {}})
            assert not {"M", "OFX"} & set(table["connections"])
