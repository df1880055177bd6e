"""All public estimators with parameters for small data. The tests of all estimators use these lists.

The first estimator of each class and loss has default parameters, some of which many fits choose. The others
have given values. `DecisionClassifier` always has a given `cv`, because its default fits five folds.
"""

from functools import cache

from sklearn.base import clone
from sklearn.utils import get_tags

import manylabel as ml
from manylabel.decision import DecisionClassifier, ExpectedF1, LabelCalibrator
from manylabel.estimator.base import MultiLabelClassifier
from manylabel.estimator.registry import CLASSES

CLASSIFIERS = [
    ml.DiSMECClassifier(random_state=0),
    ml.DiSMECClassifier(1.0, solver="exact", tol=1e-3),
    ml.DiSMECClassifier(loss="logistic", random_state=0),
    ml.LEMLClassifier(random_state=0),
    ml.LEMLClassifier(20, alpha=0.1, threshold="zero", random_state=0),
    ml.LEMLClassifier(4, alpha=0.1, loss="logistic", max_iter=1, random_state=0),
    ml.PDSparseClassifier(random_state=0),
    ml.BoostedRulesClassifier(40, random_state=0),
    ml.BoostedRulesClassifier(30, search="exact", label_binning=0.2, random_state=0),
    ml.BoostedRulesClassifier(40, label_binning=0.04, random_state=0),
    ml.BoostedRulesClassifier(
        40, loss="label-wise-logistic", head="single-label", predictor="signs", random_state=0
    ),
    ml.SmoothLinkClassifier(n_features=50, random_state=0),
    ml.SmoothLinkClassifier(
        4, n_features=50, kernel="cauchy", embedding="gaussian", early_stopping=True, random_state=0
    ),
    ml.SmoothLinkClassifier(n_features=100, loss="squared", embedding="none", random_state=0),
    ml.SmoothLinkClassifier(3, kernel="linear", embedding="pca", solver="newton-cg", random_state=0),
    ml.BlockPartitionClassifier(
        ml.DiSMECClassifier(1.0, random_state=0), n_blocks=2, lam=0.2, random_state=0
    ),
    ml.BlockPartitionClassifier(
        ml.DiSMECClassifier(1.0, solver="exact"), n_blocks=4, max_labels=15, n_routes=2, random_state=0
    ),
    ml.CBMLCClassifier(ml.DiSMECClassifier(1.0, random_state=0), 2, random_state=0),
    ml.LPSRClassifier(ml.DiSMECClassifier(1.0, random_state=0), 200, 15, random_state=0),
    ml.CorrLogClassifier(),
    ml.CorrLogClassifier(
        0.04,
        0.16,
        epsilon=0.0,
        coding="pm1",
        decoder="search",
        solver="fista",
        standardize=False,
        threshold=-0.3,
    ),
    ml.CorrLogClassifier(0.01, 0.001, decoder="bp"),
    ml.LabelTreeClassifier(random_state=0),
    ml.LabelTreeClassifier(0.5, n_trees=2, branching=2, max_leaf=3, beam=20, balanced=False, random_state=0),
    ml.LabelTreeClassifier(
        1.0, branching=3, max_leaf=4, beam=20, combine="leaf", solver="exact", random_state=0
    ),
    ml.LabelTreeClassifier(1.0, branching=3, max_leaf=4, beam=20, loss="logistic", random_state=0),
    ml.LabelTreeClassifier(1.0, branching=3, max_leaf=4, beam=20, weights="float16", random_state=0),
    ml.LabelTreeClassifier(1.0, branching=3, max_leaf=4, beam=20, weights="int8", random_state=0),
]

# These classes are public in `manylabel.decision`.
CALIBRATORS = [
    LabelCalibrator(ml.DiSMECClassifier(1.0, random_state=0), random_state=0),
    LabelCalibrator(
        ml.LabelTreeClassifier(1.0, random_state=0), method="isotonic", cv=0.3, n_candidates=8, random_state=0
    ),
    DecisionClassifier(ml.DiSMECClassifier(1.0, random_state=0), ExpectedF1(), cv=0.3, random_state=0),
]
CLASSIFIERS += CALIBRATORS

TRANSFORMERS = [
    ml.Rembrandt(6, random_state=0),
    ml.Rembrandt(20, solver="cg", variant="ritz", n_iter=2, random_state=0),
    ml.Rembrandt(0.9, solver="dual", center=True, random_state=0),
    ml.Rembrandt(6, embedding="gaussian", solver="cg", tol=0.1, max_iter=100, random_state=0),
    ml.Rembrandt(6, embedding="pca", random_state=0),
]

# Parameters without a default.
REQUIRED = {
    LabelCalibrator: {"estimator": ml.DiSMECClassifier()},
    DecisionClassifier: {"estimator": ml.DiSMECClassifier(), "decision": ExpectedF1()},
}


def made(cls, **params):
    """An estimator with these parameters and the required parameters of its class."""
    return cls(**REQUIRED.get(cls, {}) | params)


# Estimators that divide data into blocks.
PARTITIONERS = [ml.BlockPartitioner(3, random_state=0)]


# Estimators that take texts.
TAGGERS = [ml.TextTagger()]


# Registered classifiers that are not listed above, with default parameters.
_LISTED = {type(each) for each in CLASSIFIERS + TRANSFORMERS + PARTITIONERS}
CLASSIFIERS += [
    cls()
    for name, cls in CLASSES.items()
    if cls not in _LISTED and getattr(ml, name, None) is cls and issubclass(cls, MultiLabelClassifier)
]

# Values of parameters that many fits would choose.
GIVEN = {"C": 1.0, "l2_features": 0.01, "l2_pairs": 0.01, "cv": 0.3}
# More given values for these classifiers, so that they need no further fits.
GIVEN_OF_CLASS = {
    ml.LEMLClassifier: {"alpha": 0.1, "threshold": "zero"},
    ml.CorrLogClassifier: {"threshold": "zero"},
}


def with_given_values(estimator):
    """A copy whose parameters need no fits to be chosen."""
    own = estimator.get_params(deep=False)
    return clone(estimator).set_params(**{name: GIVEN[name] for name in GIVEN if own.get(name) == "auto"})


# All classifiers, for tests that are not about the choice of parameters. On small data, the choice takes most
# of the time of a fit.
WITH_GIVEN_VALUES = [with_given_values(each) for each in CLASSIFIERS]


# The first variant of each class and loss, for tests of code that the other variants share, such as the
# conversion of input. This code runs before parameters are chosen.
ONE_OF_EACH = [
    with_given_values(each).set_params(**GIVEN_OF_CLASS.get(type(each), {}))
    for each in {(type(each), getattr(each, "loss", "")): each for each in reversed(CLASSIFIERS)}.values()
]


@cache
def as_written(value):
    """`repr` as the id of a case. It is cached, because it takes milliseconds for an estimator."""
    return repr(value)


# Properties that only some estimators have.


def predicts_signs(classifier):
    """Whether `predict` returns the labels with positive scores."""
    if isinstance(classifier, LabelCalibrator):
        return False  # predicts from probabilities
    least_squares = getattr(classifier, "loss", None) == "squared"
    # The intercepts of linear classifiers include the threshold, also for squared loss.
    least_squares &= not hasattr(classifier, "threshold")
    return getattr(classifier, "predictor", "signs") == "signs" and not least_squares


def ranks_by_probabilities(classifier):
    """Whether `predict_topk` ranks by `predict_proba` and not by `decision_function`."""
    return hasattr(classifier, "decoder")


def is_sampled(classifier):
    """Whether fitting draws rows at random."""
    held_out = "auto" in (getattr(classifier, "alpha", 0), getattr(classifier, "threshold", 0))
    return held_out or getattr(classifier, "bootstrap", False) or getattr(classifier, "solver", "") == "psgd"


def scores_every_label(classifier):
    """Whether every label with a training row has a score for every row."""
    return not hasattr(classifier, "measure_speedup")


def compares_labels(classifier):
    """Whether the loss compares labels of the same row, so that nothing is learned from a single label."""
    return isinstance(classifier, ml.PDSparseClassifier)


def scales_rows(classifier):
    """Whether the length of a row does not matter."""
    return getattr(classifier, "normalize", False)


def takes_missing_values(classifier):
    return get_tags(classifier).input_tags.allow_nan
