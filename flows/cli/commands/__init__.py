"""The subcommands of `tilewright`, one file each.

A command file has `add(commands, common)`, which adds its parser, and a function of the command's
name that takes the parsed arguments and returns nothing; what goes wrong is raised.
"""
