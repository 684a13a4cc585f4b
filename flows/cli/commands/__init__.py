"""The subcommands of `tilewright`, one file each.

A command file has two functions. `add(parser, common)` adds the command's arguments to the parser;
`common` has the arguments of every command. The function with the command's name takes the parsed
arguments and returns nothing. Errors are raised.
"""
