"""The command of `models`."""

import sys

from .models import main

if __name__ == "__main__":
    sys.exit(main())
