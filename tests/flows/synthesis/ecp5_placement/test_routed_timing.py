"""The longest path of a routed design, from small files of delays."""

import pytest

from tilewright.flows.synthesis.ecp5_placement.routed_timing import longest_path

WIRES = """
(INTERCONNECT clock/CLKO a/CLK (0:0:0) (0:0:0))
(INTERCONNECT clock/CLKO b/CLK (0:0:0) (0:0:0))
(INTERCONNECT a/Q sum\\$CCU2_COMB0/A (900:900:1000) (900:900:1000))
(INTERCONNECT sum\\$CCU2_COMB0/FCO sum\\$CCU2_COMB1/FCI (0:0:0) (0:0:0))
(INTERCONNECT sum\\$CCU2_COMB1/F b/M (2000:2000:2000) (2000:2000:2000))
(INTERCONNECT pad/O b/M (9000:9000:9000) (9000:9000:9000))
"""

CELLS = """
(INSTANCE a)
(IOPATH CLK Q (500:500:525) (500:500:525))
(INSTANCE sum\\$CCU2_COMB0)
(IOPATH A FCO (447:447:447) (447:447:447))
(INSTANCE sum\\$CCU2_COMB1)
(IOPATH FCI F (443:443:443) (443:443:443))
(INSTANCE b)
(SETUPHOLD (posedge M) (posedge CLK) (10:20:30) (0:0:0))
"""


def path(text: str) -> list[tuple[str, float, str]]:
    parts = longest_path(text.splitlines())
    return [(part["type"], part["delay"], "/".join(part["to"].values())) for part in parts]


def test_a_path_has_all_its_parts_and_its_carry_is_as_fast_as_it_is() -> None:
    assert path(WIRES + CELLS) == [
        ("clk-to-q", 0.525, "a/Q"),
        ("routing", 1.0, "sum$CCU2_COMB0/A"),
        ("logic", 0.447, "sum$CCU2_COMB0/FCO"),
        ("routing", 0.0, "sum$CCU2_COMB1/FCI"),
        ("logic", 0.403, "sum$CCU2_COMB1/F"),
        ("routing", 2.0, "b/M"),
        ("setup", 0.03, "b/M"),
    ]


def test_the_longest_of_several_paths_counts() -> None:
    slower = "(INTERCONNECT a/Q b/M (4000:4000:4000) (0:0:0))\n"
    assert [part[0] for part in path(WIRES + slower + CELLS)] == ["clk-to-q", "routing", "setup"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("clock/CLKO b/CLK", "other/CLKO b/CLK"),
        ("(posedge CLK)", "(negedge CLK)"),
        ("(SETUPHOLD (posedge M) (posedge CLK) (10:20:30) (0:0:0))", ""),
    ],
    ids=["two clocks", "falling edge", "no register at the end"],
)
def test_other_paths_do_not_count(old: str, new: str) -> None:
    assert path((WIRES + CELLS).replace(old, new)) == []
