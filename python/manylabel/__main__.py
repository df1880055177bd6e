"""Command-line interface, which ``python -m manylabel`` starts."""

import sys

from manylabel.cli import main

if __name__ == "__main__":
    sys.exit(main())
