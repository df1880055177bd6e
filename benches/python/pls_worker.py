"""Measure one label embedding, or one projection. pls.py and similar scripts start this script once per
measurement.

As with worker.py, the process runs only one system.
"""

import json
import time
from pathlib import Path

import numpy as np
from pls_systems import SYSTEMS, LabelEmbedding
from worker import command_line, memory, timed


def measure_fit(system: LabelEmbedding, data: Path, scratch: Path) -> dict:
    """Fit a label embedding, write it to ``embedding.npy`` in `scratch`, and return the figures."""
    before_bytes = memory("VmRSS")
    train = system.read(data, scratch)
    read_bytes = memory("VmRSS")
    cpu_start = time.process_time()
    fit_seconds, _ = timed(lambda: system.fit(*train))
    fit_cpu_seconds = time.process_time() - cpu_start
    peak_bytes = memory("VmHWM")
    np.save(scratch / "embedding.npy", system.model.label_embedding_)
    return {
        "fit_seconds": fit_seconds,
        "fit_cpu_seconds": fit_cpu_seconds,
        "data_bytes": read_bytes - before_bytes,
        "read_bytes": read_bytes,
        "peak_bytes": peak_bytes,
        "n_iter": system.n_iter(),
    }


def measure_product(
    system: LabelEmbedding, data: Path, scratch: Path, n_columns: int, n_repeats: int
) -> dict:
    """Project all rows to `n_columns` dimensions several times, and return the median time."""
    X, Y = system.read(data, scratch)
    system.fit(X[:1000], Y[:1000])  # any fit works, since a random W replaces the fitted W
    system.set_coef(np.random.default_rng(0).standard_normal((X.shape[1], n_columns), dtype=np.float32))
    system.transform(X)  # a warm-up call, which is not timed
    seconds = np.median([timed(lambda: system.transform(X))[0] for _ in range(n_repeats)])
    return {"seconds": seconds, "n_rows": X.shape[0], "nnz": X.nnz}


def main():
    parser = command_line(__doc__, SYSTEMS, data="the matrices X and Y", answers="embedding.npy")
    parser.add_argument("--settings", type=json.loads, required=True, help="settings of the system, as JSON")
    parser.add_argument("--columns", type=int, help="only time projections to this number of dimensions")
    parser.add_argument("--repeats", type=int, default=1, help="number of timed projections")
    args = parser.parse_args()
    system = SYSTEMS[args.system](args.threads, args.settings)
    if args.columns:
        figures = measure_product(system, args.data, args.scratch, args.columns, args.repeats)
    else:
        figures = measure_fit(system, args.data, args.scratch)
    (args.scratch / "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
