"""``python -m manylabel``: the command line."""

import sys

from manylabel.cli import main

if __name__ == "__main__":
    sys.exit(main())
