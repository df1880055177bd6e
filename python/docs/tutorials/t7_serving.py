"""
Serving with eight workers
==========================

A service runs eight processes. Each needs the model, but the machine needs to hold it only once: the
processes map the same file. This tutorial measures the memory and the requests per second.
"""

# %%
# A model
# -------
#
# The data are **generated**: 20,000 rows and 20,000 labels.

import os
import tempfile
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

import manylabel as ml

X, Y = ml.datasets.make_multilabel(20_000, 20_000, 20_000, labels_per_sample=5, random_state=0)
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "model.safetensors"
ml.DiSMECClassifier(1.0, prune=0.001, random_state=0, n_jobs=-1).fit(X, Y).save(path)
print(f"{path.stat().st_size / 1e6:.0f} MB")

# %%
# Load, prepare, fork
# -------------------
#
# ``load`` maps the file. ``prepare`` makes what predictions need, before the workers exist, so that they
# share it. This is what gunicorn does with ``--preload``.

model = ml.load(path).prepare()


def proportional():
    """Memory of this process in MB, where pages that several processes share are divided among them."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def worker(model, number, barrier, results):
    rows = [X[[at]] for at in range(number, 4_000, 16)]
    for row in rows[:50]:
        model.predict_topk(row, k=5)
    barrier.wait()
    times = []
    for row in rows:
        start = perf_counter()
        model.predict_topk(row, k=5)
        times.append(perf_counter() - start)
    barrier.wait()
    results.put((proportional(), times))


def serve(model, n_workers):
    """Start workers, and return the memory of each in MB, all times of rows, and rows per second."""
    context = get_context("fork")
    barrier, results = context.Barrier(n_workers), context.Queue()
    workers = [context.Process(target=worker, args=(model, at, barrier, results)) for at in range(n_workers)]
    for process in workers:
        process.start()
    answers = [results.get() for _ in workers]
    for process in workers:
        process.join()
    times = np.concatenate([times for _, times in answers])
    seconds = max(sum(times) for _, times in answers)
    return [memory for memory, _ in answers], times, len(times) / seconds


# %%
# Measure
# -------

counts = (1, 2, 4, 8)
served = {count: serve(model, count) for count in counts}
for count, (memory, times, rate) in served.items():
    print(
        f"{count} workers: {sum(memory):6,.0f} MB together, {rate:8,.0f} rows/s, "
        f"median {1e6 * np.median(times):.0f} µs, 99 % {1e6 * np.percentile(times, 99):.0f} µs"
    )

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0))
left.plot(counts, [sum(memory) for memory, _, _ in served.values()], "o-", label="measured")
left.plot(counts, [count * served[1][0][0] for count in counts], "--", label="if each had its own")
left.set(xlabel="workers", ylabel="memory of all workers, MB", xticks=counts, ylim=0)
left.legend()
right.plot(counts, [rate for _, _, rate in served.values()], "o-")
_ = right.set(xlabel="workers", ylabel="rows per second", xticks=counts, ylim=0)
print(f"this machine has {os.cpu_count()} cores")

# %%
# Memory hardly grows with the workers: what grows are the private pages of Python. Rows per second grow up
# to the number of cores.
#
# As a service
# ------------
#
# .. code-block:: python
#
#    # service.py; gunicorn service:app --preload --workers 8 --worker-class uvicorn.workers.UvicornWorker
#    from fastapi import FastAPI
#
#    import manylabel as ml
#
#    tagger = ml.load("tagger.safetensors").prepare()
#    app = FastAPI()
#
#    @app.get("/suggest")
#    def suggest(text: str, k: int = 5):
#        return tagger.suggest(text, k=k)
#
# To replace the model, save the new one under the same path: ``save`` renames a complete file. Then restart
# the workers one by one.

del model
folder.cleanup()
