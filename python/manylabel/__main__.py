"""Run the command line with ``python -m manylabel``."""

import sys

from manylabel.cli import main

if __name__ == "__main__":
    sys.exit(main())
