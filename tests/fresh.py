"""Programs that run in a process that has imported manylabel and done nothing else. POSIX only.

The import takes two seconds of processor time. A server imports the library once, and forks a child for
each program. The test process itself is not forked, because memory that it holds and has freed would change
what is measured. The fork server of multiprocessing is not used, because a process has only one, with one
list of imports, and the tests of Dask use it.
"""

import atexit
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

# A child ends as a Python that runs the program: with a traceback and status 1 after an exception.
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
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv = ["-c", *arguments]
    exec(program, {"__name__": "__main__"})
    break
"""


@cache
def _server():
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)  # closes its input, so that it ends, and waits
    return server


def run(program, *arguments):
    """Like `subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)`."""
    with tempfile.TemporaryDirectory() as folder:
        server = _server()
        try:
            print(
                json.dumps([program, [str(each) for each in arguments], folder]),
                file=server.stdin,
                flush=True,
            )
            status = int(server.stdout.readline())
        except BaseException:  # such as the time limit of the test
            server.kill()
            _server.cache_clear()
            raise
        output = [Path(folder, stream).read_text() for stream in ("stdout", "stderr")]
    return subprocess.CompletedProcess(program, status, *output)
