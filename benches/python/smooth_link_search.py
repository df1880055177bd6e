"""Tune the smooth link by a random search, as its authors did, and compare with their published figures.

Each candidate is fitted to nine tenths of the training rows, including the embedding. It is measured on the
other tenth. The best candidate for each measure is fitted to all training rows and measured on the test rows.
For macro-F1, algorithm 4 predicts the label sets of the held-out rows and of the test rows.
"""

import argparse
from time import perf_counter

import numpy as np
import record
from scipy.sparse import csr_array
from sklearn.model_selection import ParameterSampler
from smooth_link_data import MEASURES, PUBLISHED, SETS, Split, interval, load

from manylabel import SmoothLinkClassifier
from manylabel.link import smooth_link_space


def inner(split, seed):
    """Split the training rows. One tenth is used to measure candidates."""
    order = np.random.default_rng(seed).permutation(split.X.shape[0])
    held, kept = order[: len(order) // 10], order[len(order) // 10 :]
    Y = csr_array(split.Y)
    return Split(split.X[kept], Y[kept], split.X[held], Y[held].toarray())


COLUMNS = [
    *["set", "measure", "draws", "held out", "test", "interval", "search s", "settings", "published"],
]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-features", type=int, help="maximum number of features that are drawn")
    parser.add_argument("--jobs", type=int, default=-1)
    args = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for name in args.sets:
        split = load(name)
        tuning = inner(split, args.seed)
        base = SmoothLinkClassifier(
            0.9, n_iter=2, l2=1e-4, threshold="zero", random_state=args.seed, n_jobs=args.jobs
        )
        start = perf_counter()
        space = smooth_link_space(tuning.X.shape[0])
        draws = list(ParameterSampler(space, args.draws, random_state=args.seed))
        best = {}
        for draw in draws:
            if args.most_features:
                draw["n_features"] = min(draw["n_features"], args.most_features)
            model = base.set_params(**draw).fit(tuning.X, tuning.Y)
            for measure, (of_measure, naming, sign) in MEASURES.items():
                value = of_measure(tuning.Y_test, naming(model, tuning))
                if measure not in best or sign * value > sign * best[measure][0]:
                    best[measure] = value, draw
        seconds = perf_counter() - start
        for measure, (of_measure, naming, _) in MEASURES.items():
            value, draw = best[measure]
            model = base.set_params(**draw).fit(split.X, split.Y)
            named = naming(model, split)
            low, _, high = interval(of_measure, split.Y_test, named)
            settings = ", ".join(
                f"{key}={setting if isinstance(setting, str) else f'{setting:.4g}'}"
                for key, setting in sorted(draw.items())
            )
            cells = [name, measure, str(args.draws), f"{value:.4f}", f"{of_measure(split.Y_test, named):.4f}"]
            cells += [f"{low:.4f}-{high:.4f}", f"{seconds:.0f}", settings, PUBLISHED.get((measure, name), "")]
            print("| " + " | ".join(cells) + " |", flush=True)
            record.keep("smooth_link_search", COLUMNS, cells)


if __name__ == "__main__":
    main()
