"""The meta-estimator `DecisionClassifier`: a classifier, calibrated probabilities and a decision rule."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone

from manylabel.decision.calibrator import LabelCalibrator
from manylabel.decision.rules import AnyRule, DecisionRule
from manylabel.estimator.parameters import Parameters, shown
from manylabel.estimator.progress import Progress
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Attribute, Schema

__all__ = ["DecisionClassifier"]


class _Rule(Attribute):
    """Description of a fitted attribute that is a decision rule."""

    def check(self, name: str, value: Any, sizes: dict[str, int]) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if not isinstance(value, DecisionRule):
            raise ValueError(
                f"`{name}` must be a decision rule, such as Thresholds(), got {type(value).__name__}"
            )
        for of_labels in ("bounds_", "prior_", "thresholds_"):
            if hasattr(value, of_labels):
                numbers = Array(("n_labels",), "f8")
                numbers.check(f"{name}.{of_labels}", np.nan_to_num(getattr(value, of_labels)), sizes)


@register
class DecisionClassifier(LabelCalibrator):
    """A multi-label classifier with calibrated probabilities and a rule that chooses label sets.

    `fit` fits `estimator`, calibrates its probabilities in the same way as `LabelCalibrator`, and fits the
    decision rule to the probabilities of held-out rows (see `cv`). `predict` applies the rule. `save` writes
    the fitted `estimator`, the calibration and the rule to one file.

    For the calibration, held-out rows are scored by a model that is not fitted to them. In each row, the
    labels with the highest scores are called candidates (see `n_candidates`). Each label gets a curve, which
    converts the score of the label to a probability. The curves are fitted to the scores of the candidates.
    The Notes of `LabelCalibrator` describe the curves.

    Parameters
    ----------
    decision : DecisionRule
        The rule that chooses the labels, such as ``Thresholds("macro_f1")``. `RiskControl` needs one of two
        settings. The first setting is ``cv="prefit"``. The second setting is ``refit=False``, with a fraction
        or "auto" as `cv`. With any other setting, the guarantee of `RiskControl` would not hold, and `fit`
        raises a ValueError. With `RiskControl`, half of the held-out rows are used to calibrate the
        probabilities, and the other half to fit the rule.

    Attributes
    ----------
    decision_ : DecisionRule
        The fitted rule. To change the rule without fitting the model again, assign another rule to this
        attribute. A rule that learns from data must be fitted before it is assigned.

    References
    ----------
    .. [1] J. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized
       likelihood methods", 1999.
    .. [2] B. Zadrozny and C. Elkan, "Transforming classifier scores into accurate multiclass probability
       estimates", KDD 2002.

    Examples
    --------
    >>> import manylabel as ml
    >>> from manylabel.decision import DecisionClassifier, ExpectedF1, TopLabels
    >>> X, Y = ml.datasets.make_multilabel(300, 50, 10, random_state=0)
    >>> model = DecisionClassifier(ml.DiSMECClassifier(random_state=0), ExpectedF1(), random_state=0)
    >>> model.fit(X, Y).predict(X).shape
    (300, 10)
    >>> model.decision_ = TopLabels(2)
    >>> model.predict(X).sum(axis=1)[:3]
    array([2, 2, 2])
    """

    parameters = Parameters(
        estimator=LabelCalibrator.parameters["estimator"],
        decision=AnyRule(),
        **{name: kind for name, kind in LabelCalibrator.parameters.items() if name != "estimator"},
    )

    schema = Schema(
        **{
            name: kind
            for name, kind in LabelCalibrator.schema.attributes.items()
            if name not in ("n_features_in_", "feature_names_in_")
        },
        decision_=_Rule(),
    )

    decision_: DecisionRule

    def __init__(
        self,
        estimator: Any,
        decision: DecisionRule,
        *,
        method: Literal["sigmoid", "isotonic"] = "sigmoid",
        pooling: Literal["frequency", "none", "all"] = "frequency",
        cv: int | float | Literal["auto", "prefit"] = "auto",
        n_candidates: int = 100,
        refit: bool = True,
        max_memory: int = 2**30,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        decision = clone(self.decision)
        if decision.needs_fresh_rows:
            if params["cv"] != "prefit" and (params["refit"] or isinstance(params["cv"], int)):
                raise ValueError(
                    '`refit` must be False and `cv` must be a fraction or "auto", unless `cv` is "prefit", '
                    f"got cv={shown(self.cv)} and refit={self.refit}; the guarantee of "
                    f"{type(decision).__name__} holds only if the final model itself scores the held-out rows"
                )
            params["spare"] = True
        scores, Y = self._calibrate(X, y, sample_weight, progress, params)
        self.decision_ = decision.fit(self._calibrated(scores), Y)

    def predict(self, X: Any) -> csr_array | NDArray[np.int64]:
        """Predict the label sets of the rows with the decision rule.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), or (n_samples,) if y was 1-D, dtype int64
            0/1 indicator matrix. It is sparse if y was sparse in fit.
        """
        X = self._features(X)  # raises an error if the model is not fitted
        return self._indicator(csr_array(self.decision_.predict(self._candidates(X, 1))))
