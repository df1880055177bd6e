"""Functions of the command line that load model files.

A model file contains a `TextTagger`, a classifier, or a pipeline that ends with a classifier.
"""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline

from manylabel.persistence import load
from manylabel.tagging import TextTagger
from manylabel.tagging.features import names_of_features, takes_texts

__all__ = ["Model", "load_model"]


class Model:
    """A classifier, and the pipeline steps before it, if any. The steps convert the features.

    Parameters
    ----------
    fitted : estimator
        A fitted classifier, or a fitted pipeline whose last step is a classifier.
    """

    def __init__(self, fitted: Any) -> None:
        self._before = fitted[:-1] if isinstance(fitted, Pipeline) and len(fitted.steps) > 1 else None
        self.classifier = fitted.steps[-1][1] if isinstance(fitted, Pipeline) else fitted
        self.n_features = fitted.n_features_in_
        self.label_names = getattr(self.classifier, "label_names_", None)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.classifier._n_labels)

    def features(self, X: Any) -> Any:
        """Apply the pipeline steps that precede the classifier to the features of a data file."""
        return X if self._before is None else self._before.transform(X)

    def explain(self, row: Any, label: Any) -> Any:
        """Explain the score of a label for a row of a data file."""
        names = None if self._before is None else names_of_features(self._before)
        return self.classifier.explain(self.features(row), label, feature_names=names)


def load_model(path: str) -> TextTagger | Model:
    """Load a model file, and return a `TextTagger` or a `Model`.

    A pipeline that takes texts is converted to a `TextTagger`. All other pipelines, and classifiers without a
    pipeline, are returned as a `Model`.
    """
    fitted = load(path)
    last = fitted.steps[-1][1] if isinstance(fitted, Pipeline) else fitted
    if not isinstance(last, TextTagger) and not hasattr(last, "predict_topk"):
        raise ValueError(f"{path}: expected a classifier, got {type(last).__name__}")
    if isinstance(fitted, TextTagger):
        return fitted
    return TextTagger.from_pipeline(fitted) if takes_texts(fitted) else Model(fitted)
