"""The commands `inspect`, `explain`, `params` and `doctor`, which describe models and data."""

from __future__ import annotations

import json
import math
import os
from argparse import Namespace
from itertools import islice
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline

from manylabel.cli.files import check_width, read_matrices
from manylabel.cli.messages import UsageError
from manylabel.cli.models import Model, load_model
from manylabel.cli.texts import is_table, parameter_lines, table_rows
from manylabel.cli.training import MODELS
from manylabel.diagnosis import doctor
from manylabel.estimator.names import named_indicator
from manylabel.persistence import load
from manylabel.tagging import TextTagger

__all__ = ["diagnose", "explain", "inspect", "params"]

# Number of names that `inspect` shows.
_SHOWN_NAMES = 5


def inspect(arguments: Namespace) -> None:
    """Print what a model file contains."""
    model = load(arguments.model)
    with open(arguments.model, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
    parameters = ", ".join(f"{name}={value!r}" for name, value in model.get_params(deep=False).items())
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    rows = {
        "class": type(model).__name__,
        "file": f"{os.stat(arguments.model).st_size:,} bytes, format {header['manylabel_format']}, "
        f"written by manylabel {header['manylabel_version']}",
        "features": f"{last.n_features_in_:,}" if hasattr(last, "n_features_in_") else "unknown",
        "labels": _label_count(last),
        "parameters": " ".join(parameters.split()),
    }
    rows |= _attributes(model)
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"{name:{width}}  {text}")


def _attributes(model: Any) -> dict[str, str]:
    """Describe the fitted attributes of a model, or of each step of a pipeline."""
    if isinstance(model, Pipeline):
        return {
            f"{step}.{name}": text
            for step, estimator in model.steps
            if hasattr(estimator, "get_params")
            for name, text in _attributes(estimator).items()
        }
    return {
        name: _describe(value)
        for name, value in vars(model).items()
        if name.endswith("_") and name not in ("classes_", "n_features_in_", "label_names_")
    }


def _label_count(model: Any) -> str:
    names = getattr(model, "label_names_", None)
    if names is None:
        return f"{model._n_labels:,}" if hasattr(model, "_n_labels") else "none"
    shown = ", ".join(repr(str(name)) for name in names[:_SHOWN_NAMES])
    return f"{len(names):,}: {shown}" + (", ..." if len(names) > _SHOWN_NAMES else "")


def _describe(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, csr_array | csc_array):
        used = np.count_nonzero(np.diff(value.indptr))
        density = value.nnz / max(1, math.prod(value.shape))
        lines = f"in {used:,} of {len(value.indptr) - 1:,} {'rows' if value.format == 'csr' else 'columns'}"
        return f"{kind} {value.shape} of {value.dtype}, {value.nnz:,} stored ({density:.2%}), {lines}"
    if isinstance(value, np.ndarray):
        text = f"{kind} {value.shape} of {value.dtype}"
        if value.dtype == object and value.ndim == 1 and value.size:
            text += ", " + ", ".join(repr(str(item)) for item in value[:_SHOWN_NAMES])
        if value.size and value.dtype.kind in "iuf":
            text += f", from {value.min():.4g} to {value.max():.4g}"
        return text
    if isinstance(value, dict):
        return f"{kind} of {len(value):,}"
    if isinstance(value, list | tuple):
        return f"{kind} of {len(value)}" + (f", the first: {_describe(value[0])}" if value else "")
    return kind if hasattr(value, "get_params") else repr(value)


def explain(arguments: Namespace) -> None:
    """Print the parts of the score that one label gets for one row.

    A part is, for example, the contribution of a feature or the intercept. The output of ``--json`` contains
    all parts. The output as text contains the ten parts with the largest absolute contributions, and the sum
    of the other parts.
    """
    model = load_model(arguments.model)
    label: Any = arguments.label
    names = model.label_names_ if isinstance(model, TextTagger) else model.label_names
    if names is None or (label not in names and label.isdecimal()):
        if not label.isdecimal():
            raise UsageError(f"label: expected a number, got {label!r}; the model has no label names")
        if names is not None and int(label) >= len(names):
            raise UsageError(f"label: expected a name, or a number from 0 to {len(names) - 1}, got {label!r}")
        label = int(label) if names is None else str(names[int(label)])
    row: Any = arguments.row
    if arguments.data is not None:
        row = _row(model, arguments)
    elif not isinstance(model, TextTagger):
        raise UsageError("--data: required, because the model takes rows of a data file and not texts")
    found = model.explain(row, label)
    print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False) if arguments.json else repr(found))


def _row(model: TextTagger | Model, arguments: Namespace) -> Any:
    """Return a row of a data file, as text or as features."""
    if not arguments.row.isdecimal():
        raise UsageError(
            f"row: expected the number of a row in {arguments.data}, counted from 0, got {arguments.row!r}"
        )
    number = int(arguments.row)
    if isinstance(model, TextTagger):
        found = next(islice(table_rows(arguments.data, arguments), number, None), None)
        if found is None:
            raise ValueError(f"{arguments.data}: the file has no row {number} (the first row is row 0)")
        return found[0]
    arguments.jobs = None
    X, _ = read_matrices(arguments.data, arguments)
    check_width(X, model.n_features, "features", arguments.data)
    if number >= X.shape[0]:
        raise ValueError(
            f"{arguments.data}: the data set has no row {number} (the first row is row 0, and the number of "
            f"rows is {X.shape[0]})"
        )
    return X[[number]]


def params(arguments: Namespace) -> None:
    """Print the parameters of a classifier that is given by its name, or of the estimator in a model file."""
    if arguments.model in MODELS:
        for line in parameter_lines(MODELS[arguments.model]()):
            print(line)
        return
    model = load(arguments.model)
    for name, value in model.get_params().items():
        if not (isinstance(model, Pipeline) and name == "steps"):
            print(f"{name}={' '.join(repr(value).split()) if hasattr(value, 'get_params') else repr(value)}")


def diagnose(arguments: Namespace) -> None:
    """Print the faults of a data set, and recommend a method to start with."""
    paths = [path for path in (arguments.data, arguments.test) if path is not None]
    if is_table(arguments.data):
        tables = [list(table_rows(path, arguments)) for path in paths]
        names = sorted({name for table in tables for _, found in table for name in found})
        if not names:
            raise ValueError(f"{arguments.data}: expected labels in the table, got none")
        vectorizer = TfidfVectorizer(dtype=np.float32).fit(text for text, _ in tables[0])
        matrices = []
        for table in tables:
            Y = named_indicator((found for _, found in table), names)[1]
            matrices += [vectorizer.transform([text for text, _ in table]), Y]
        found = doctor(*matrices, label_names=names, feature_names=vectorizer.get_feature_names_out())
    else:
        found = doctor(*(matrix for path in paths for matrix in read_matrices(path, arguments)))
    print(found.to_json() if arguments.json else found)
