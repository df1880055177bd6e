"""Measure a service of eight processes that share one model.

The service is the one of the documentation, ``python/docs/guide/service.py``, under gunicorn. Its model is a
`TextTagger` of all titles of ``texts/yso-finna-en`` in the folder MANYLABEL_DATA, with 23,944 labels. The
same service runs with eight private copies of the model, and with a model of two labels, which shows the
memory that the libraries take. The requests are the last 3,000 titles.

- Private memory is what one more worker needs, after it has answered requests. It is counted for each worker.
- Requests per second: 16 clients each wait for an answer before they send the next request. Both services run
  at the same time, and are measured in turn. The figure is the median of the rounds.
- Times of a text: 50 requests per second arrive at random times. A time is counted from the moment at which
  the request should arrive to its complete answer.

Each request has its own connection, so that an idle worker takes it. The clients run on the same machine, in
one process.
"""

import argparse
import asyncio
import importlib.util
import itertools
import json
import os
import pickle
import random
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import record

SET = "yso-finna-en titles"
TOPIC = "service"
SERVICE = record.ROOT / "python/docs/guide/service.py"
N_CLIENTS = 16
PER_SECOND = 50
# Memory is read after each worker has worked for this number of seconds.
WORKED = 0.1


def shared():
    """Return the service, whose workers share the mapped file."""
    return documented().app


def copied():
    """Return the service, with a copy of the model in the memory of this process."""
    service = documented()
    service.tagger = pickle.loads(pickle.dumps(service.tagger)).prepare()
    return service.app


def documented():
    spec = importlib.util.spec_from_file_location("documented_service", SERVICE)
    service = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(service)
    return service


@contextmanager
def running(app, model, n_workers, preload):
    """Start the service, and yield its address and the process identifiers of its workers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    call = [sys.executable, "-m", "gunicorn", f"service:{app}()", "--pythonpath", str(Path(__file__).parent)]
    call += ["--bind", f"127.0.0.1:{port}", "--workers", str(n_workers), "--worker-class", "asgi"]
    call += ["--log-level", "error", *(["--preload"] if preload else [])]
    process = subprocess.Popen(call, env=os.environ | {"TAGGER": str(model)}, cwd=tempfile.gettempdir())
    try:
        address = ("127.0.0.1", port)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until = time.monotonic() + 300
        while time.monotonic() < until and process.poll() is None:
            workers = children.read_text().split()
            if len(workers) == n_workers and asyncio.run(answers(address)):
                break
            time.sleep(0.2)
        else:
            raise SystemExit(f"the service {app} did not start")
        yield address, workers
    finally:
        process.terminate()
        process.wait()


async def answers(address):
    try:
        await ask(address, "a title")
    except OSError:
        return False
    return True


async def ask(address, text):
    """Return the suggestions of a text."""
    reader, writer = await asyncio.open_connection(*address)
    content = json.dumps({"text": text}).encode()
    lines = ["POST /suggest HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(content)}", "", ""]
    writer.write("\r\n".join(lines).encode() + content)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise SystemExit(f"the service answered {head.decode()}: {body.decode()}")
    return body


async def flood(address, texts, seconds):
    """Return the number of answers per second, if every client waits for its answer."""
    endless = itertools.cycle(texts)
    counts = [0] * N_CLIENTS
    start = time.perf_counter()

    async def send(at):
        while time.perf_counter() < start + seconds:
            await ask(address, next(endless))
            counts[at] += 1

    await asyncio.gather(*(send(at) for at in range(N_CLIENTS)))
    return sum(counts) / (time.perf_counter() - start)


async def trickle(address, texts, seconds):
    """Return the times of requests that arrive independently of each other, in milliseconds."""
    draws = random.Random(0)
    times, asked = [], []

    async def send(text, due):
        await ask(address, text)
        times.append(1e3 * (time.perf_counter() - due))

    due = start = time.perf_counter()
    for text in itertools.cycle(texts):
        due += draws.expovariate(PER_SECOND)
        if due > start + seconds:
            break
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        asked.append(asyncio.create_task(send(text, due)))
    await asyncio.gather(*asked)
    return times


def cpu_seconds(pid):
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def private_memory(pid):
    """Return the private memory of a process in megabytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024 / 1e6


def memory_of(address, workers, texts):
    """Return the private memory of each worker, after each has answered requests."""
    begin = {pid: cpu_seconds(pid) for pid in workers}
    for _ in range(120):  # the system chooses the worker of each connection
        asyncio.run(flood(address, texts, 0.5))
        if all(cpu_seconds(pid) - begin[pid] >= WORKED for pid in workers):
            return [private_memory(pid) for pid in workers]
    raise SystemExit("not all workers answered requests")


def fit(folder, n_texts):
    """Fit and save the taggers of all titles and of two labels. Return their files and texts for requests."""
    import manylabel as ml
    from manylabel.tagging import read_texts

    data = Path(os.environ["MANYLABEL_DATA"], "texts", "yso-finna-en")
    # No quality is measured here, so the test titles are used too, and all labels occur. The last titles are
    # the requests.
    rows = [*read_texts(data / "train.tsv.gz"), *read_texts(data / "test.tsv.gz")]
    requests = [text for text, _ in rows[-3000:]]
    tagger = ml.TextTagger(n_jobs=-1).fit(rows if n_texts is None else rows[:n_texts])
    tagger.save(folder / "tagger.safetensors")
    ml.TextTagger().fit(["a cat", "tax law"], [["pets"], ["law"]]).save(folder / "small.safetensors")
    return folder / "tagger.safetensors", folder / "small.safetensors", requests, len(tagger.label_names_)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, metavar="N", help="number of titles for training (default: all)")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of requests per second")
    parser.add_argument("--seconds", type=float, default=60, help="seconds of the times of a text")
    parser.add_argument("--dry", action="store_true", help="do not record the figures")
    options = parser.parse_args()
    if not os.environ.get("MANYLABEL_DATA"):
        sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
    n_workers = options.workers
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tagger, small, texts, n_labels = fit(folder, options.texts)
        with running("shared", small, n_workers, preload=True) as (address, workers):
            libraries = max(memory_of(address, workers, texts))
        services = {
            name: stack.enter_context(running(app, tagger, n_workers, preload))
            for name, app, preload in (
                ("one mapped file", "shared", True),
                ("private copies", "copied", False),
            )
        }
        memory = {name: memory_of(*service, texts) for name, service in services.items()}
        rates = {name: [] for name in services}
        for _ in range(options.rounds):
            for name, (address, _) in services.items():
                rates[name].append(asyncio.run(flood(address, texts, min(8.0, options.seconds))))
        for name, (address, _) in services.items():
            times = asyncio.run(trickle(address, texts, options.seconds))
            p50, p95, p99 = np.quantile(times, [0.5, 0.95, 0.99]).tolist()
            figures = {
                "labels": n_labels,
                "workers": n_workers,
                "model MB": round(tagger.stat().st_size / 1e6, 1),
                "private MB of a worker": round(max(memory[name]), 1),
                "of which libraries": round(libraries, 1),
                "requests/s": round(median(rates[name])),
                "p50 ms": round(p50, 2),
                "p95 ms": round(p95, 2),
                "p99 ms": round(p99, 2),
            }
            print(name, figures, [round(rate) for rate in rates[name]], len(times), flush=True)
            if not options.dry:
                packages = [(sys.executable, package) for package in ("gunicorn", "fastapi")]
                record.write(TOPIC, SET, name, figures, packages=packages)


if __name__ == "__main__":
    main()
