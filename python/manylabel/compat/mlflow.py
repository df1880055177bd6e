"""Log models in MLflow [1]_, and load them again with MLflow's Python function flavor (pyfunc).

:func:`save_model` and :func:`log_model` write a model as a folder in the format of MLflow. The folder also
contains the file that `manylabel.save` writes. ``mlflow.pyfunc.load_model`` maps this file into memory.
MLflow's other tools, such as ``mlflow models serve``, use this function too. The following example logs a
model and loads it again::

    import manylabel.compat.mlflow
    import mlflow

    with mlflow.start_run():
        info = manylabel.compat.mlflow.log_model(tagger, name="tagger")
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    loaded.predict(["a text", "another text"], params={"k": 3})

The prediction is a data frame with one row for each sample. A sample is a text or a row of features. The
column `labels` contains the names of the k best labels, best label first. If the model has no label names,
`labels` contains the column indices of these labels in Y. The column `scores` contains the scores of the k
best labels.

The module needs the packages mlflow (or mlflow-skinny) and pandas: ``pip install 'manylabel[mlflow]'``.

References
----------
.. [1] https://mlflow.org
"""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pandas as pd
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

from manylabel.persistence import load, save
from manylabel.tagging import TextTagger

__all__ = ["log_model", "save_model"]

# The number of labels that `predict` returns if the caller gives none, as in `TextTagger.suggest`.
_K = 5


def save_model(model: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a fitted model to a folder, as a model of MLflow.

    Parameters
    ----------
    model : TextTagger or classifier
        The fitted model. It must have the method `predict_topk`.
    path : str or path-like
        The folder to write. It is created if it does not exist. An existing folder must be empty.
    **options
        Further arguments for ``mlflow.pyfunc.save_model``, such as `metadata`. For the arguments `signature`
        and `pip_requirements`, manylabel passes its own values by default. A value that is given here
        replaces the default.

    Raises
    ------
    TypeError
        If the model has no method `predict_topk`, or cannot be saved; see `manylabel.save`.
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    mlflow.exceptions.MlflowException
        If `path` is a folder that is not empty.
    """
    with tempfile.TemporaryDirectory() as folder:
        mlflow.pyfunc.save_model(os.fspath(path), **_arguments(model, Path(folder), options))


def log_model(model: Any, name: str = "model", **options: Any) -> Any:
    """Log a fitted model in the active run of MLflow, or in a new run.

    Parameters
    ----------
    model : TextTagger or classifier
        The fitted model. It must have the method `predict_topk`.
    name : str, default="model"
        Name of the model in MLflow.
    **options
        Further arguments for ``mlflow.pyfunc.log_model``, such as `registered_model_name`. For the arguments
        `signature` and `pip_requirements`, manylabel passes its own values by default. A value that is given
        here replaces the default.

    Returns
    -------
    mlflow.models.model.ModelInfo
        The logged model. Pass its attribute `model_uri` to ``mlflow.pyfunc.load_model`` to load the model.

    Raises
    ------
    TypeError
        If the model has no method `predict_topk`, or cannot be saved; see `manylabel.save`.
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    """
    with tempfile.TemporaryDirectory() as folder:
        return mlflow.pyfunc.log_model(name=name, **_arguments(model, Path(folder), options))


def _arguments(model: Any, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Save the model in `folder`, and return the arguments for MLflow."""
    if not hasattr(model, "predict_topk"):
        raise TypeError(
            "`model` must be a TextTagger or a classifier with the method `predict_topk`, got "
            f"{type(model).__name__}; TextTagger.from_pipeline makes a TextTagger from a Pipeline that takes "
            "texts"
        )
    path = folder / "model.safetensors"
    save(model, path)
    # MLflow drops parameters that the signature does not have. It checks texts. Features are left to the
    # model, because MLflow would refuse sparse arrays and numbers of another precision.
    texts = Schema([ColSpec(DataType.string)]) if _takes_texts(model) else None
    signature = ModelSignature(inputs=texts, params=ParamSchema([ParamSpec("k", DataType.long, _K)]))
    return {
        "loader_module": __name__,
        "data_path": str(path),
        "signature": signature,
        "pip_requirements": [f"manylabel[mlflow]=={version('manylabel')}"],
        **options,
    }


def _takes_texts(model: Any) -> bool:
    return isinstance(model, TextTagger) and model.vectorizer_ is not None


def _load_pyfunc(path: str) -> _Function:
    """Load the model file. MLflow calls this function by its name."""
    return _Function(load(path))


class _Function:
    """Wrapper around a model. MLflow calls the method `predict` of the wrapper."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def get_raw_model(self) -> Any:
        """Return the model. MLflow calls this method in ``PyFuncModel.get_raw_model``."""
        return self.model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the best labels of texts or of rows of features, and their scores."""
        k = (params or {}).get("k", _K)
        index = model_input.index if isinstance(model_input, pd.DataFrame | pd.Series) else None
        if _takes_texts(self.model) and isinstance(model_input, pd.DataFrame):
            if model_input.shape[1] != 1:
                raise ValueError(
                    "`model_input` must have a single column with the texts, "
                    f"got {model_input.shape[1]} columns"
                )
            model_input = model_input.iloc[:, 0].tolist()
        top = self.model.predict_topk(model_input, k=k)
        names = getattr(self.model, "label_names_", np.arange(top.shape[1]))
        labels, scores = [], []
        for begin, end in pairwise(top.indptr.tolist()):
            best = begin + np.argsort(-top.data[begin:end], kind="stable")
            labels.append(names[top.indices[best]].tolist())
            scores.append(top.data[best].tolist())
        return pd.DataFrame({"labels": labels, "scores": scores}, index=index)
