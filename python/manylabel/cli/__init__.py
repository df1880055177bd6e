"""The command line, with the commands that `manylabel --help` lists.

``manylabel`` and ``python -m manylabel`` run the same program.

Data files whose names end in ``.arff`` are read as ARFF. Files whose names end in ``.csv``,
``.tsv``, ``.jsonl``, ``.ndjson`` or ``.parquet`` are read as tables of texts and label names. All files with
other names must be in the text format of the Extreme Classification Repository. A folder must either be
written by ``manylabel.datasets.convert``, or contain one file per text, as `manylabel.tagging.read_texts`
describes. A folder of texts is read like a table. A model that is trained on a table is a `TextTagger`.

Data files may be compressed with gzip. The name of a compressed file may have the additional ending ``.gz``,
as in ``docs.csv.gz``, but this ending is not necessary. Parquet files and the files in a folder of texts must
not be compressed.

Results are written to stdout. Progress bars, summaries and errors are written to stderr. Every error is
printed as a single line, ``manylabel: error: ...``. Output files are written under a temporary name and
renamed when they are complete.

The exit codes are:

- 0: success;
- 1: failure;
- 2: wrong usage;
- 130: interrupted by Ctrl-C;
- 141: the program that reads the output has closed the pipe.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from manylabel.cli.messages import UsageError, reason, say
from manylabel.cli.parser import make_parser
from manylabel.cli.training import MODELS

__all__ = ["MODELS", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str or None, default=None
        The command-line arguments without the name of the program. None uses ``sys.argv[1:]``.

    Returns
    -------
    int
        The exit code. The docstring of this module lists all exit codes.

    Raises
    ------
    SystemExit
        If the arguments contain ``--help`` or ``--version``. The exit code is then 0.
    """
    try:
        arguments = make_parser().parse_args(argv)
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: say(f"warning: {message}")
            arguments.run(arguments)
        sys.stdout.flush()
    except UsageError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:
        # The rest of the output buffer is discarded. Otherwise, flushing the buffer at exit would raise the
        # error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (OSError, ValueError, TypeError, OverflowError, RuntimeError, MemoryError) as error:
        say(f"error: {reason(error)}")
        return 1
    return 0
