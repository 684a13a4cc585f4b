"""The compiler: from a model to a module for one accelerator; `compile` runs it from end to end.

The packages in the order of a compilation: `pipeline` has the stages. `frontend` reads a model with
`importers` and applies the `passes`, which are written with `rewriting`, to a `graph`. `placement`
decides whether the accelerator or the host runs a node. `main_memory` places the activations.
`scheduling` fuses nodes and chooses a schedule for each kernel; `te` is the language of kernels and
schedules. `accelerator` has the kernels of the operators and lowers schedules to instructions.
`host` plans the other nodes, with machine code from `cpu` or `gpu`. The `quantiser` makes an
integer model of a float model, and `exporters` write it.
"""
