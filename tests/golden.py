"""Model files of every estimator, with the predictions of the version that wrote them.

``python tests/golden.py`` writes the files of the current version to ``tests/data/golden``. The files of
earlier versions are kept. `test_golden.py` loads all of them.
"""

import warnings
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

import manylabel as ml
from manylabel.datasets import make_multilabel

FOLDER = Path(__file__).resolve().parent / "data" / "golden"

ESTIMATORS = {
    "dismec": ml.DiSMECClassifier(random_state=0),
    "dismec-columns": ml.DiSMECClassifier(normalize="columns", threshold="zero"),
    "leml": ml.LEMLClassifier(4, random_state=0),
    "leml-squared": ml.LEMLClassifier(4, alpha=0.1, loss="squared", random_state=0),
    "pdsparse": ml.PDSparseClassifier(random_state=0),
    "rules": ml.BoostedRulesClassifier(20, random_state=0),
    "rules-signs": ml.BoostedRulesClassifier(
        20, loss="label-wise-logistic", head="single-label", predictor="signs", random_state=0
    ),
    "link": ml.SmoothLinkClassifier(4, n_features=20, random_state=0),
    "link-linear": ml.SmoothLinkClassifier(3, kernel="linear", embedding="pca", solver="newton-cg"),
    "blocks": ml.BlockPartitionClassifier(
        ml.DiSMECClassifier(random_state=0), n_blocks=3, max_labels=5, random_state=0
    ),
    "blocks-two-routes": ml.BlockPartitionClassifier(
        ml.LEMLClassifier(3, random_state=0), n_blocks=3, max_labels=5, n_routes=2, random_state=0
    ),
    "cbmlc": ml.CBMLCClassifier(ml.DiSMECClassifier(random_state=0), 3, random_state=0),
    "lpsr": ml.LPSRClassifier(ml.DiSMECClassifier(random_state=0), 30, 5, random_state=0),
    "corrlog": ml.CorrLogClassifier(),
    "corrlog-search": ml.CorrLogClassifier(0.01, 0.001, coding="pm1", decoder="search"),
    "label-tree": ml.LabelTreeClassifier(branching=2, max_leaf=3, random_state=0),
    "label-tree-two": ml.LabelTreeClassifier(
        n_trees=2, max_leaf=3, combine="leaf", balanced=False, random_state=0
    ),
    "label-tree-float16": ml.LabelTreeClassifier(branching=2, max_leaf=3, weights="float16", random_state=0),
    "label-tree-int8": ml.LabelTreeClassifier(branching=2, max_leaf=3, weights="int8", random_state=0),
    "rembrandt": ml.Rembrandt(3, random_state=0),
    "tagger": ml.TextTagger(ml.DiSMECClassifier(random_state=0), keep_rows=True),
    "partitioner": ml.BlockPartitioner(3, random_state=0),
}


def texts():
    """Texts and the names of their labels."""
    words = ["cat", "tax", "日本"]
    rows = [[word for bit, word in enumerate(words) if at >> bit & 1] for at in range(32)]
    return [" ".join(["a", *row]) for row in rows], rows


def rows():
    """Twenty rows to predict."""
    return make_multilabel(20, 15, 8, n_nonzero=6, random_state=1)[0]


def answers(model, X):
    """The predictions of a model for rows, as arrays by name."""
    if isinstance(model, ml.Rembrandt):
        return {"transform": model.transform(X)}
    if isinstance(model, ml.TextTagger):
        suggested = model.suggest(texts()[0], k=2)
        names = model.label_names_.tolist()
        return {
            "labels": np.array([[names.index(name) for name, _ in row] for row in suggested]),
            "scores": np.array([[score for _, score in row] for row in suggested]),
        }
    if isinstance(model, ml.BlockPartitioner):
        return {"row_blocks_": model.row_blocks_}
    named = {
        "decision_function": model.decision_function(X),
        "predict": csr_array(model.predict(X)).toarray(),
    }
    top = model.predict_topk(X, k=3)
    named |= {"topk_labels": top.indices, "topk_scores": top.data, "topk_ends": top.indptr}
    if hasattr(model, "predict_proba"):
        named["predict_proba"] = np.asarray(model.predict_proba(X))
    return named


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    X, Y = make_multilabel(120, 15, 8, n_nonzero=6, random_state=0)
    version = ml.__version__
    for name, estimator in ESTIMATORS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = estimator.fit(*(texts() if isinstance(estimator, ml.TextTagger) else (X, Y)))
        model.save(FOLDER / f"{name}-{version}.model")
        np.savez_compressed(FOLDER / f"{name}-{version}.npz", **answers(model, rows()))


if __name__ == "__main__":
    main()
