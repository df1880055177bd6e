"""Code that all fuzzers share.

Numbered cases run in a child process with limited memory, so that the case of a crash or a hang is known.
"""

import faulthandler
import os
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

# Words that only errors caused by this library contain.
OUR_FAULT = ("panicked", "internal error", "out of bounds", "unwrap", "overflow", "unreachable")
HANG = 10  # seconds
MOST_MEMORY = 1 << 30  # bytes beyond those of the process before the first case


def is_our_fault(error):
    return any(word in str(error).lower() for word in OUR_FAULT)


def run_cases(run_case, n_cases):
    """Print the fault of each case. `run_case` returns it for the number of the case, or None."""
    import resource  # POSIX only

    def hung(*_):
        raise TimeoutError(f"took {HANG} s")

    status = Path("/proc/self/status").read_text().split()
    size = int(status[status.index("VmSize:") + 1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_MEMORY, size + MOST_MEMORY))
    signal.signal(signal.SIGALRM, hung)
    warnings.simplefilter("ignore")
    for number in range(n_cases):
        sys.stderr.write(f"{number}\n")  # names the case of a crash
        sys.stderr.flush()
        faulthandler.dump_traceback_later(3 * HANG, exit=True)
        signal.alarm(HANG)
        wrong = run_case(number)
        signal.alarm(0)
        if wrong:
            sys.stdout.write(f"{number}: {wrong}\n")
    faulthandler.cancel_dump_traceback_later()


def check(run_case, n_cases):
    """Run the cases in a child forked from this process. No case may have a fault."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            sys.stdout, sys.stderr = out, err
            status = 1
            try:
                run_cases(run_case, n_cases)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                out.flush()
                err.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        assert status == 0, err.read()[-2000:]
        assert (faults := out.read()) == "", faults
