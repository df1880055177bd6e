"""Compare boosted rules with gradient-boosted trees and random forests on ten tabular data sets.

The systems are ``BoostedRulesClassifier``, XGBoost with one model per label and with trees for all labels
("vector leaves"), LightGBM with one model per label, and the random forest of scikit-learn. All rows of a set
are split three times at random into training rows and a third of test rows. Every system has two threads and
the same arrays.

Systems whose names end in ", tuned" have parameters from a small search. All others have default parameters.
The search fits four settings to three quarters of the training rows, and chooses a setting for each measure
by the other rows. The chosen settings are then fitted to all training rows. For trees and forests, the search
also chooses the bound of the probabilities above which labels are predicted. ``rules, measure`` are rules
with default parameters whose parameter `predictor` is the measure. The tuned rules have this parameter too.

Each line has the subset 0/1 loss, the Hamming loss and the example-based F1 of the label sets that were
predicted for this measure, and the seconds of one fit. The seconds of a tuned system are those of the setting
for the subset 0/1 loss. ``search s`` are the seconds of the search.
"""

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import record
from defaults import OfLabels, splits, xgboost
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import f1_score

import manylabel as ml

SETS = ["emotions", "flags", "foodtruck", "birds", "yeast", "scene", "image", "plant-pseaac", "genbase"]
SETS += ["imclef07d"]
# The measures, the values of `predictor` for them, and whether a larger value is better.
MEASURES = {
    "subset 0/1 %": ("subset-accuracy", False),
    "Hamming %": ("hamming", False),
    "example-F1": ("example-f1", True),
}
BOUNDS = [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6]


class Rules:
    """Boosted rules. If `measured` is true, `predictor` is the measure."""

    def __init__(self, seed, measured, **params):
        predictor = "subset-accuracy" if measured else "auto"
        self.measured = measured
        self.model = ml.BoostedRulesClassifier(predictor=predictor, random_state=seed, n_jobs=2, **params)

    def fit(self, X, Y):
        self.model.fit(X, Y)
        return self

    def label_sets(self, X, measure):
        if self.measured:
            self.model.predictor = MEASURES[measure][0]
        return self.model.predict(X) > 0


class Trees:
    """A model with probabilities. Labels with a probability above `bound` are predicted."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, Y):
        self.model.fit(X, Y)
        return self

    def probabilities(self, X):
        of_labels = self.model.predict_proba(X)
        if isinstance(of_labels, list):  # the random forest
            of_labels = [
                of[:, 1] if of.shape[1] > 1 else np.full(len(X), float(classes[0]))
                for of, classes in zip(of_labels, self.model.classes_, strict=True)
            ]
            return np.column_stack(of_labels)
        return of_labels

    def label_sets(self, X, measure, bound=0.5):
        return self.probabilities(X) > bound


def xgboost_vector(seed, **params):
    from xgboost import XGBClassifier

    return Trees(XGBClassifier(multi_strategy="multi_output_tree", random_state=seed, n_jobs=2, **params))


def lightgbm(seed, **params):
    from lightgbm import LGBMClassifier

    return Trees(OfLabels(lambda: LGBMClassifier(random_state=seed, n_jobs=2, verbose=-1, **params)))


def forest(seed, **params):
    return Trees(RandomForestClassifier(random_state=seed, n_jobs=2, **params))


# The functions that make an unfitted system, and the four settings of the search.
SYSTEMS = {
    "rules": (
        lambda seed, **params: Rules(seed, False, **params),
        [],
    ),
    "rules, measure": (
        lambda seed, **params: Rules(seed, True, **params),
        [{}, {"l2": 10.0}, {"learning_rate": 0.1}, {"n_rules": 3000, "learning_rate": 0.1}],
    ),
    "XGBoost": (
        lambda seed, **params: Trees(xgboost(seed, **params)),
        [
            {},
            {"learning_rate": 0.1},
            {"learning_rate": 0.1, "max_depth": 3},
            {"n_estimators": 300, "learning_rate": 0.1, "max_depth": 3},
        ],
    ),
    "XGBoost, vector leaves": (xgboost_vector, []),
    "LightGBM": (
        lightgbm,
        [
            {},
            {"num_leaves": 7},
            {"min_child_samples": 5},
            {"n_estimators": 300, "learning_rate": 0.05, "num_leaves": 7},
        ],
    ),
    "forest": (
        forest,
        [{}, {"min_samples_leaf": 3}, {"max_features": 0.3}, {"n_estimators": 300, "max_features": 0.3}],
    ),
}
TUNED = [f"{system}, tuned" for system, (_, settings) in SYSTEMS.items() if settings]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS, help="folders of MANYLABEL_DATA")
    parser.add_argument(
        "--systems", nargs="+", default=[*SYSTEMS, *TUNED], choices=[*SYSTEMS, *TUNED], metavar="SYSTEM"
    )
    parser.add_argument("--splits", type=int, default=3, help="number of random splits")
    args = parser.parse_args()
    root = os.environ.get("MANYLABEL_DATA")
    if not root:
        sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
    packages = tuple((sys.executable, name) for name in ("xgboost-cpu", "lightgbm", "scikit-learn"))
    for name in args.sets:
        for split, parts in enumerate(splits(Path(root) / name, True, args.splits)):
            for system in args.systems:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    measured = of_tuned if system in TUNED else of_defaults
                    figures = measured(system.removesuffix(", tuned"), split, *parts)
                print(name, split, system, json.dumps(figures), file=sys.stderr, flush=True)
                record.write("tabular", name, system, figures, packages=packages, split=split)


def of_defaults(system, seed, X, Y, X_test, Y_test):
    model, seconds = fitted(system, seed, {}, X, Y)
    figures = {measure: value(measure, Y_test, model.label_sets(X_test, measure)) for measure in MEASURES}
    return figures | {"fit s": seconds}


def of_tuned(system, seed, X, Y, X_test, Y_test):
    make, settings = SYSTEMS[system]
    held = np.random.default_rng(seed).permutation(len(X)) < len(X) // 4
    start = time.perf_counter()
    found = dict.fromkeys(MEASURES, (-np.inf, None, None))
    for setting in settings:
        model = make(seed, **setting).fit(X[~held], Y[~held])
        probabilities = model.probabilities(X[held]) if isinstance(model, Trees) else None
        for measure, (_, larger) in MEASURES.items():
            for bound in [None] if probabilities is None else BOUNDS:
                options = {} if bound is None else {"bound": bound}
                chosen = model.label_sets(X[held], measure) if bound is None else probabilities > bound
                of = value(measure, Y[held], chosen)
                if (of if larger else -of) > found[measure][0]:
                    found[measure] = (of if larger else -of, setting, options)
    searched = time.perf_counter() - start
    figures, models = {"search s": searched}, {}
    for measure, (_, setting, options) in found.items():
        key = json.dumps(setting)
        if key not in models:
            models[key] = fitted(system, seed, setting, X, Y)
        model, seconds = models[key]
        figures[measure] = value(measure, Y_test, model.label_sets(X_test, measure, **options))
        figures.setdefault("fit s", seconds)
    return figures


def fitted(system, seed, setting, X, Y):
    model = SYSTEMS[system][0](seed, **setting)
    start = time.perf_counter()
    model.fit(X, Y)
    return model, time.perf_counter() - start


def value(measure, Y, chosen):
    if measure == "subset 0/1 %":
        return 100 * float((chosen != Y).any(axis=1).mean())
    if measure == "Hamming %":
        return 100 * float((chosen != Y).mean())
    return 100 * float(f1_score(Y, chosen, average="samples", zero_division=0))


if __name__ == "__main__":
    main()
