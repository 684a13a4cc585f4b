"""The command line: options, commands, and how errors become one line and an exit code."""
