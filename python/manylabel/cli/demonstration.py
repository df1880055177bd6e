"""The command `demo`, which fits one model of each family of methods."""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from pathlib import Path

from sklearn.base import clone

from manylabel.cli.files import writing
from manylabel.cli.settings import set_run

__all__ = ["demonstrate"]


def demonstrate(arguments: Namespace) -> None:
    """Fit the models of the demo, print their results, and write a report as an HTML file."""
    from manylabel import demo

    if importlib.util.find_spec("matplotlib") is None:
        raise RuntimeError(
            "the report needs matplotlib, which is not installed; run: pip install 'manylabel[plot]'"
        )
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    data = demo.load_data()
    print(f"{len(data.X_train):,} digits for training, {len(data.X_test):,} for testing\n")
    print(demo.HEADER)
    results = []
    for title, estimator in demo.FAMILIES:
        model = clone(estimator)
        set_run(model, n_jobs=arguments.jobs)
        results.append(demo.train(title, model, data, folder))
        print(results[-1].row(), flush=True)
    print("\nEach model was saved and loaded. The predictions before and after are exactly equal.")
    with writing(folder / "report.html") as file:
        file.write(demo.page(data, results))
    print(f"See {folder / 'report.html'}")
