"""Measure one fit of boosted rules and its predictions. rules.py and similar scripts start this script once
per fit.

As with worker.py, the process runs only one system.
"""

import json
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from rules_systems import SYSTEMS, Boosted
from worker import command_line, memory, timed


def measure(system: Boosted, data: Path, scratch: Path, n_repeats: int) -> dict[str, float]:
    """Fit and predict. The predicted labels are written to ``labels.npz`` in `scratch`, and the figures are
    returned.
    """
    train = system.read(data, scratch)
    X = system.rows(sp.load_npz(data / "X_test.npz"))
    data_bytes = memory("VmRSS")
    cpu_start = time.process_time()
    fit_seconds, _ = timed(lambda: system.fit(*train))
    fit_cpu_seconds = time.process_time() - cpu_start
    peak_bytes = memory("VmHWM")

    answer = system.predict(X)  # a warm-up call, which is not timed
    predict_seconds = np.median([timed(lambda: system.predict(X))[0] for _ in range(n_repeats)])
    sp.save_npz(scratch / "labels.npz", sp.csr_matrix(answer, dtype=np.int8))
    return {
        "fit_seconds": fit_seconds,
        "fit_cpu_seconds": fit_cpu_seconds,
        "predict_seconds": predict_seconds,
        "data_bytes": data_bytes,
        "peak_bytes": peak_bytes,
        "fitted_rules": system.fitted_rules(),
    }


def main():
    parser = command_line(__doc__, SYSTEMS, data="X_train, Y_train and X_test as .npz", answers="labels.npz")
    for name in ("--rules", "--seed", "--repeats"):
        parser.add_argument(name, type=int, required=True)
    args = parser.parse_args()
    system = SYSTEMS[args.system](args.threads, args.rules, args.seed)
    figures = measure(system, args.data, args.scratch, args.repeats)
    (args.scratch / "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
