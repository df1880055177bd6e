"""Every public estimator, ready to fit a small set. The tests of the house run over these lists."""

from sklearn.utils import get_tags

from manylabel import (
    BoostedRulesClassifier,
    DiSMECClassifier,
    LEMLClassifier,
    PDSparseClassifier,
    Rembrandt,
)

CLASSIFIERS = [
    DiSMECClassifier(random_state=0),
    DiSMECClassifier(solver="exact", tol=1e-3),
    LEMLClassifier(20, random_state=0),
    LEMLClassifier(4, loss="logistic", max_iter=2, random_state=0),
    PDSparseClassifier(random_state=0),
    BoostedRulesClassifier(40, random_state=0),
    BoostedRulesClassifier(30, search="exact", label_binning=0.2, random_state=0),
    BoostedRulesClassifier(40, label_binning=0.04, random_state=0),
    BoostedRulesClassifier(
        40, loss="label-wise-logistic", head="single-label", predictor="signs", random_state=0
    ),
]

TRANSFORMERS = [
    Rembrandt(6, random_state=0),
    Rembrandt(20, solver="cg", variant="ritz", n_iter=2, random_state=0),
    Rembrandt(0.5, solver="dual", center=True, random_state=0),
    Rembrandt(6, embedding="gaussian", solver="cg", tol=0.1, max_iter=100, random_state=0),
    Rembrandt(6, embedding="pca", random_state=0),
]


# What estimators differ in, and what is therefore asked of some only.


def predicts_signs(classifier):
    """Whether `predict` is where scores are positive."""
    least_squares = getattr(classifier, "loss", None) == "squared"
    return getattr(classifier, "predictor", "signs") == "signs" and not least_squares


def is_sampled(classifier):
    """Whether fitting draws rows at random."""
    return getattr(classifier, "bootstrap", False)


def scales_rows(classifier):
    """Whether the length of a row does not matter."""
    return getattr(classifier, "normalize", False)


def takes_missing_values(classifier):
    return get_tags(classifier).input_tags.allow_nan
