"""Memory of the values that the CPU computes: one static array for each element type.

Values of one type share memory when they are not needed at the same time. A reshaped value lies
where its source does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...compiler.host.order import Alias, Event, reads_of, writes_of
from ...compiler.main_memory.memory_plan import Lifetime, plan_memory
from ...compiler.module import Module
from .host_steps import C_TYPES, ELEMENT_BYTES


@dataclass(frozen=True, slots=True)
class HostValues:
    """The values of a network in C.

    Parameters
    ----------
    expressions : mapping
        A pointer to each value's first element, by the value's name.
    array_bytes : mapping
        Bytes of the array of each element type.
    """

    expressions: Mapping[str, str]
    array_bytes: Mapping[str, int]

    def declarations(self) -> list[str]:
        """Return the C declarations of the arrays."""
        return [
            f"static {C_TYPES[dtype]} {dtype}_values[{size // ELEMENT_BYTES[dtype]}];"
            for dtype, size in self.array_bytes.items()
        ]


def place_values(module: Module, events: Sequence[Event], inputs: Mapping[str, str]) -> HostValues:
    """Place every value that host steps and segments compute.

    Parameters
    ----------
    module : Module
        A module that `check_steps` accepts.
    events : sequence of Event
        Its steps in order.
    inputs : mapping
        C expressions of the network's inputs, by name.
    """
    graph = module.graph
    owner = {name: name for name in inputs}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, event in enumerate(events):
        last |= {owner[name]: index for name in reads_of(event, module.segments)}
        for name in writes_of(event, module.segments):
            if isinstance(event, Alias):
                owner[name] = owner[event.node.inputs[0]]
            else:
                owner[name], first[name], last[name] = name, index, index
    last |= {owner[output.value]: len(events) for output in graph.outputs}
    places, sizes = dict(inputs), {}
    for dtype, size in ELEMENT_BYTES.items():
        values = [name for name in first if graph.types[name].dtype == dtype]
        plan = plan_memory(
            [Lifetime(n, graph.types[n].elements * size, first[n], last[n]) for n in values]
        )
        sizes |= {dtype: plan.size} if plan.size else {}
        places |= {
            name: f"{dtype}_values + {offset // size}" for name, offset in plan.offsets.items()
        }
    return HostValues({name: places[by] for name, by in owner.items()}, sizes)
