"""The ledger's rows, its page, and what counts as worse."""

from dataclasses import replace

import pytest

from tilewright.flows.synthesis.ledger import (
    DATA,
    PAGE,
    LedgerRow,
    is_current,
    read_rows,
    render,
    with_row,
    worse,
    write_rows,
)
from tilewright.isa.configuration import PRESETS

ROW = LedgerRow(
    configuration="tiny",
    device="ecp5-25",
    parameters=PRESETS["tiny"].parameters(),
    resources={"lut": 1000, "ff": 2000, "multipliers": 10},
    target_mhz=100.0,
    clocks_mhz=[90.0, 100.0, 110.0],
    rtl="0123456789ab",
    flow="ba9876543210",
    tools={"yosys": "0.70", "nextpnr-ecp5": "0.11"},
)


def test_the_page_shows_the_data():
    assert PAGE.read_text() == render(read_rows(DATA)), "run `tilewright synth --ledger`"


def test_rows_survive_the_file(tmp_path):
    rows = [ROW, replace(ROW, device="xc7z020", clocks_mhz=[])]
    write_rows(rows, tmp_path / "ledger.jsonl", tmp_path / "area.md")
    assert read_rows(tmp_path / "ledger.jsonl") == rows
    page = (tmp_path / "area.md").read_text()
    assert (
        "| tiny | ecp5-25 | 1,000 (4 %) | 2,000 (8 %) | - | - | 10 (36 %) | 100.0 (90.0 to 110.0) "
        "| 3 | `0123456789ab` |\n" in page
    )
    assert "| tiny | xc7z020 | 1,000 (2 %) | 2,000 (2 %) | - | - | 10 (5 %) | - | - |" in page
    assert page.endswith("Tools: nextpnr-ecp5 0.11, yosys 0.70.\n")


def test_a_new_row_takes_the_place_of_the_old_one():
    other = replace(ROW, device="ecp5-45")
    newer = replace(ROW, rtl="ba9876543210")
    assert with_row([ROW, other], newer) == [newer, other]
    assert with_row([ROW], other) == [ROW, other]


def test_a_row_knows_its_machine():
    assert ROW.machine == PRESETS["tiny"]


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"resources": {"lut": 1030, "ff": 2060, "multipliers": 10}}, []),
        ({"clocks_mhz": [97.1]}, []),
        ({"clocks_mhz": []}, []),
        ({"resources": {"lut": 1031, "ff": 1000, "multipliers": 10}},
         ["1,031 LUT, kept 1,000 (+3.1 %)"]),
        ({"resources": {"lut": 1000, "ff": 2000, "multipliers": 11}},
         ["11 multipliers, kept 10 (+10.0 %)"]),
        ({"resources": {**ROW.resources, "ram": 1}}, ["1 RAM, kept none"]),
        ({"clocks_mhz": [96.0]}, ["96.0 MHz, kept 100.0 (-4.0 %)"]),
    ],
)  # fmt: skip
def test_worse_is_more_than_three_per_cent(changes, problems):
    assert worse(ROW, replace(ROW, **changes)) == problems


def test_a_row_is_measured_again_when_something_changed():
    assert is_current(ROW, ROW.rtl, ROW.flow, ROW.tools, 3)
    assert not is_current(ROW, ROW.rtl, ROW.flow, ROW.tools, 5)
    assert not is_current(ROW, "other", ROW.flow, ROW.tools, 3)
    assert not is_current(ROW, ROW.rtl, "other", ROW.tools, 3)
    assert not is_current(ROW, ROW.rtl, ROW.flow, {**ROW.tools, "yosys": "0.71"}, 3)
    assert is_current(replace(ROW, clocks_mhz=[]), ROW.rtl, ROW.flow, ROW.tools, 5)
