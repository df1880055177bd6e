"""Programs that run in a process that has imported manylabel and done nothing else. POSIX only.

The import takes two seconds of processor time. A server imports the library once, and forks a child for
each program. The test process itself is not forked, because memory that it holds and has freed would change
what is measured. The fork server of multiprocessing cannot be used: a process has only one, and the tests of
Dask use it with other imports.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

# A child ends like `python -c`: with a traceback and status 1 after an exception.
SERVER = """
import gc, json, os, sys
import manylabel

gc.freeze()  # collections of garbage need not visit the objects of the imported modules
for line in sys.stdin:
    program, arguments, folder = json.loads(line)
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
        continue
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the other requests are not for the program
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv = ["-c", *arguments]
    exec(program, {"__name__": "__main__"})
    break
"""


@cache
def _server():
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # more threads would need memory for their stacks
        start_new_session=True,
    )
    atexit.register(_end, server)
    return server


def _end(server):
    """Kill the server and its child."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.communicate()
    _server.cache_clear()


def run(program, *arguments):
    """Like `subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)`."""
    with tempfile.TemporaryDirectory() as folder:
        server = _server()
        request = json.dumps([program, [str(each) for each in arguments], folder])
        try:
            print(request, file=server.stdin, flush=True)
            status = server.stdout.readline()
        except BaseException:  # such as the time limit of the test
            _end(server)
            raise
        assert status, "the server ended"
        output = [Path(folder, stream).read_text() for stream in ("stdout", "stderr")]
    return subprocess.CompletedProcess(program, int(status), *output)
