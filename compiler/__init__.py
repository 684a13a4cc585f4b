"""The compiler: from a model to a module for one accelerator; `compile` runs it from end to end.

The rooms in the order of a compilation: `frontend` reads a model with `importers` and applies the
`passes`, which are written with `rewriting`, to a `graph`. `assignment` decides whether the
accelerator or the host runs a node, and `segments` cuts the graph there. `main_memory` places the
activations. `scheduling` fuses nodes and chooses a schedule for each kernel; `te` is the language
of kernels and schedules. `accelerator` has the kernels of the operators and lowers schedules to
instructions. `host` plans the other nodes, with machine code from `cpu`. The `quantiser` makes an
integer model of a float model, and `exporters` write it.
"""
