"""The subcommands of `tilewright`, one file each.

A command file has `add(parser, common)`, which adds its arguments to the parser (`common` holds
those of every command), and a function of the command's name, which takes the parsed arguments and
returns nothing. Errors are raised.
"""
