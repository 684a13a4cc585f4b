"""Who runs what: the accelerator all it can, nothing, or what takes the least estimated time.

`decide` looks for the assignment by estimated times (`costs`, `node_cycles`) and transfers: a
minimum cut (`problem`), then moves that pay where both sides work at once (`timeline`, `improve`).
`forced` knows what the user places by name, and `table` tells it all, layer by layer (`layers`).
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
