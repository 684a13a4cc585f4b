"""`python -m tilewright` is the command `tilewright`."""

import sys

from tilewright.flows.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
