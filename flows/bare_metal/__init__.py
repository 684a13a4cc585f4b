"""A network as C for a board without an operating system: driver, program, constants, host steps."""
