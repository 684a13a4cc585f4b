"""A network as C for boards without an operating system: driver, program, constants, steps."""
