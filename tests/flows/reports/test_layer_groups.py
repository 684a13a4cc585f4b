"""Layers of several runs side by side."""

from tilewright.flows.reports.layer_groups import LayerGroup, group_layers


def test_layers_of_the_same_nodes_form_a_group():
    apart, fused = [["a"], ["b"], ["c"]], [["a"], ["b", "c"]]
    assert group_layers([apart, fused]) == [
        LayerGroup(("a",), ((0,), (0,))),
        LayerGroup(("b", "c"), ((1, 2), (1,))),
    ]


def test_fusing_in_two_ways_joins_all_of_it():
    (group,) = group_layers([[["a", "b"], ["c"]], [["a"], ["b", "c"]]])
    assert group == LayerGroup(("a", "b", "c"), ((0, 1), (0, 1)))


def test_a_layer_of_one_run_follows_its_predecessor():
    groups = group_layers([[["a"], ["z"]], [["s"], ["a"], ["b"], ["c"]]])
    assert [group.nodes for group in groups] == [("s",), ("a",), ("b",), ("c",), ("z",)]
    assert [group.members[0] for group in groups] == [(), (0,), (), (), (1,)]
