"""The compiler: importers, graph IR and passes, kernels, schedules and code for the machine."""
