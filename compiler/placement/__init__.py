"""Assignment of nodes to the accelerator or the host, which users call placement.

`decide` searches for the fastest assignment, using estimated times of nodes (`costs`,
`node_cycles`) and transfers. It first finds a minimum cut (`problem`), then tries moves that save
time because both sides work at once (`timeline`, `improve`). Nodes that do not fit the
configuration (`node_cycles.misfits`) are the host's. `user_placement` reads the user's
choices by name. `table` reports the result layer by layer (`layers`).
"""

from .costs import DEFAULT_COSTS, Costs, HostSpeed, LinkSpeed
from .decide import (
    COST,
    DEFAULT_PLACEMENT,
    POLICIES,
    STRICT_PLACEMENT,
    Decision,
    Placement,
    decide,
)
from .layers import PlacedLayer, placed_layers
from .node_cycles import misfits
from .table import placement_report
from .user_placement import ACCELERATOR, HOST

__all__ = [
    "ACCELERATOR", "COST", "DEFAULT_COSTS", "DEFAULT_PLACEMENT", "HOST", "POLICIES",
    "STRICT_PLACEMENT", "Costs", "Decision", "HostSpeed", "LinkSpeed", "PlacedLayer", "Placement",
    "decide", "misfits", "placed_layers", "placement_report",
]  # fmt: skip
