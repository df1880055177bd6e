"""Every public estimator, ready to fit a small set. The tests of the house run over these lists."""

from manylabel import DiSMECClassifier

CLASSIFIERS = [
    DiSMECClassifier(random_state=0),
    DiSMECClassifier(solver="exact", tol=1e-3),
]
