"""Each stage of a compilation can be looked at."""

from pathlib import Path

import pytest

from tilewright.compiler.frontend import RECIPE
from tilewright.compiler.importers import import_onnx
from tilewright.compiler.pipeline import CompileRequest
from tilewright.compiler.pipeline.describe import STAGES
from tilewright.compiler.placement import Placement
from tilewright.flows.execution.stages import STAGE_NAMES, changes, stages_of
from tilewright.isa.assembly import parse_program
from tilewright.isa.configuration import PRESETS

DIGITS = Path(__file__).parents[3] / "examples/digits/digits_int8_qdq.onnx"
LAST = len(STAGE_NAMES) - 1


def stages(layer=None, **options):
    def request(graph):
        return CompileRequest(graph=graph, configuration=PRESETS["16x16"], **options)

    found = stages_of(import_onnx(DIGITS), LAST, request, layer)
    return {stage.name: stage for stage in found}


@pytest.fixture(scope="module")
def whole():
    return stages()


def test_every_stage_has_its_text(whole):
    assert all(stage.lines for stage in whole.values())
    assert [stage.position for stage in whole.values()][-1] == LAST == len(RECIPE) + len(STAGES)


def test_linking_adds_tokens_and_changes_no_instruction(whole):
    before, after = (
        [line.split(" wait=")[0].split(" signal=")[0] for line in whole[name].lines]
        for name in ("lowered", "linked")
    )
    one, other = (
        sorted(line for line in lines if not line.startswith("#")) for lines in (before, after)
    )
    assert [line for line in other if line not in ("halt", "sync")] == one
    assert len(parse_program("\n".join(whole["linked"].lines))) == len(other)


def test_the_placed_stage_says_which_side_runs_each_node(whole):
    titles = [line for line in whole["placed"].lines if line.startswith("#")]
    assert titles == ["# part 0: host", "# part 1: accelerator", "# part 2: host"]
    cpu = stages(placement=Placement("host"))
    assert [line for line in cpu["placed"].lines if line[0] == "#"] == ["# part 0: host"]
    assert cpu["linked"].lines == []


def test_a_layer_is_followed_through_all_stages(whole):
    conv2 = stages("conv2")
    assert all("conv2" in line for line in conv2["import"].lines)
    for name in STAGES:
        assert 0 < len(conv2[name].lines) < len(whole[name].lines)
        assert not any("# layer conv1" in line for line in conv2[name].lines)
    pool = stages("pool")  # fused with others when grouped, alone when scheduled
    assert pool["grouped"].lines[0].startswith("# layer conv3 + residual + pool (")
    assert pool["scheduled"].lines[0].startswith("# layer pool (")


def test_equal_stages_have_no_changes(whole):
    assert list(changes(whole["linked"], whole["linked"])) == []
    assert "+# part 1: accelerator" in list(changes(whole["channels_last"], whole["placed"]))
