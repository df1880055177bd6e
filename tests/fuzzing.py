"""What all fuzzers share: numbered cases run in a child process, so that a crash or a hang is seen and its
case known, and in bounded memory.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

# What only a mistake of ours can say.
OUR_FAULT = ("panicked", "internal error", "out of bounds", "unwrap", "overflow", "unreachable")
HANG = 10  # seconds
MOST_MEMORY = 1 << 30  # more than the process has before the first case


def is_our_fault(error):
    return any(word in str(error).lower() for word in OUR_FAULT)


def run_cases(run_case, first, last):
    """Write what is wrong with each case, as `run_case` of its number says, or None."""
    import resource  # of POSIX

    def hung(*_):
        raise TimeoutError(f"took {HANG} s")

    status = Path("/proc/self/status").read_text().split()
    size = int(status[status.index("VmSize:") + 1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_MEMORY, size + MOST_MEMORY))
    signal.signal(signal.SIGALRM, hung)
    warnings.simplefilter("ignore")
    for number in range(first, last):
        sys.stderr.write(f"{number}\n")  # what is known of a crash
        sys.stderr.flush()
        faulthandler.dump_traceback_later(3 * HANG, exit=True)
        signal.alarm(HANG)
        wrong = run_case(number)
        signal.alarm(0)
        if wrong:
            sys.stdout.write(f"{number}: {wrong}\n")
    faulthandler.cancel_dump_traceback_later()


def check(*command):
    """Run a fuzzer's file, which calls `run_cases`, with arguments; nothing may be wrong."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, command)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    assert not run.stdout, run.stdout
