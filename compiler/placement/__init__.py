"""Placement: which nodes the accelerator runs and which the host.

`decide` searches for an assignment by estimated times (`costs`, `node_cycles`) and transfers: first
a minimum cut (`problem`), then moves that pay because both sides work at once (`timeline`,
`improve`). `user_placement` reads the user's choices by name, and `table` reports all of it, layer
by layer (`layers`).
"""

from .costs import DEFAULT_COSTS, Costs, HostSpeed, LinkSpeed
from .decide import COST, DEFAULT_PLACEMENT, POLICIES, Decision, Placement, decide
from .layers import PlacedLayer, placed_layers
from .table import placement_report
from .user_placement import ACCELERATOR, CPU

__all__ = [
    "ACCELERATOR",
    "COST",
    "CPU",
    "DEFAULT_COSTS",
    "DEFAULT_PLACEMENT",
    "POLICIES",
    "Costs",
    "Decision",
    "HostSpeed",
    "LinkSpeed",
    "PlacedLayer",
    "Placement",
    "decide",
    "placed_layers",
    "placement_report",
]
