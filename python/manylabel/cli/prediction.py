"""The commands `predict` and `evaluate`, which use a model file."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from manylabel import metrics
from manylabel.cli.files import check_width, output_path, read_matrices, writing
from manylabel.cli.messages import UsageError, shows_progress
from manylabel.cli.models import Model, load_model
from manylabel.cli.settings import set_run
from manylabel.cli.texts import name_lines, named_lines, table_rows, test_rows
from manylabel.decision import DecisionClassifier
from manylabel.estimator.progress import Bar
from manylabel.tagging import TextTagger

__all__ = ["evaluate", "predict"]

# Number of rows that are predicted at a time. It is large enough to keep all threads busy, and small enough
# that the first lines are written early.
_BLOCK = 4096


def predict(arguments: Namespace) -> None:
    """Write the best labels of every row."""
    output = None if arguments.output is None else output_path(arguments.output)
    model = _load(arguments)
    if isinstance(model, TextTagger):
        _check_form(model.classifier_, arguments)
        _check_names(model.label_names_, arguments)
        texts = (text for text, _ in table_rows(arguments.data, arguments))
        # The rule of a tagger may choose label sets by the probabilities of all rows.
        size = None if arguments.sets and model.decision is not None else _BLOCK
        with writing(output) as file:
            while block := list(islice(texts, size)):
                if arguments.sets:
                    lines = name_lines(model.predict(block), arguments.json)
                else:
                    lines = named_lines(model.suggest(block, k=arguments.k), arguments.json)
                file.writelines(f"{line}\n" for line in lines)
        return
    names = model.label_names
    if arguments.json and names is None:
        raise UsageError("--json: the model has no label names, so leave out --json")
    _check_names(names, arguments)
    X, _ = read_matrices(arguments.data, arguments)
    check_width(X, model.n_features, "features", arguments.data)
    _check_form(model.classifier, arguments)
    with writing(output) as file:
        for found in _predicted(model, X, arguments):
            if names is not None and arguments.sets:
                lines = name_lines((names[row] for row in _rows(found)), arguments.json)
            elif names is not None:
                lines = named_lines(_named(found, names), arguments.json)
            else:
                lines = _labels(found) if arguments.sets else _lines(found)
            file.writelines(f"{line}\n" for line in lines)


def _check_names(names: Any, arguments: Namespace) -> None:
    """Raise an error if a label name has a tab or a line break, unless the output is JSON.

    In other output, tabs separate the names and line breaks separate the rows, so such a name could not be
    read back.
    """
    if names is None or arguments.json:
        return
    wrong = next((name for name in names if any(sign in name for sign in "\t\n\r")), None)
    if wrong is not None:
        raise UsageError(f"--json: required, since the label name {wrong!r} has a tab or a line break")


def _check_form(classifier: Any, arguments: Namespace) -> None:
    if arguments.probabilities and not hasattr(classifier, "predict_proba_topk"):
        raise ValueError(
            f"{arguments.model}: --probabilities: expected a model trained with `train --calibrate`, got "
            f"{type(classifier).__name__}"
        )


def evaluate(arguments: Namespace) -> None:
    """Print quality measures of a model."""
    model = _load(arguments)
    if isinstance(model, TextTagger):
        _evaluate_tagger(model, arguments)
        return
    n_labels = model.n_labels
    X, Y = read_matrices(arguments.data, arguments)
    check_width(X, model.n_features, "features", arguments.data)
    check_width(Y, n_labels, "labels", arguments.data)
    propensities = None
    if arguments.train is not None:
        _, Y_train = read_matrices(arguments.train, arguments)
        check_width(Y_train, n_labels, "labels", arguments.train)
        propensities = metrics.propensities(Y_train)
    if X.shape[0] == 0:
        raise ValueError(f"{arguments.data}: expected at least one row, got an empty data set")
    # The measures leave unknown entries out, so that further labels move up.
    most_unknown = int(np.bincount(Y.nonzero()[0], weights=np.isnan(Y.data)).max(initial=0))
    k = max(arguments.k) + most_unknown
    rank = model.classifier.predict_topk
    top = _by_blocks(lambda part: rank(model.features(part), k=k), X, arguments)
    _write_measures(Y, vstack(list(top), format="csr"), propensities, arguments)


def _evaluate_tagger(model: TextTagger, arguments: Namespace) -> None:
    tables = [table_rows(path, arguments) for path in (arguments.data, arguments.train) if path is not None]
    texts, labels = test_rows(model.label_names_, *tables)
    if not texts:
        raise ValueError(f"{arguments.data}: expected at least one row, got an empty data set")
    Y = labels[0]
    propensities = metrics.propensities(labels[1]) if arguments.train is not None else None
    scores = model.predict_topk(texts, max(arguments.k))
    # Names that the tagger does not know are labels that were not found.
    wide = csr_array((scores.data, scores.indices, scores.indptr), shape=Y.shape)
    _write_measures(Y, wide, propensities, arguments)


def _write_measures(Y: csr_array, scores: Any, propensities: Any, arguments: Namespace) -> None:
    table = {
        "P": metrics.precision_at_k(Y, scores, arguments.k),
        "nDCG": metrics.ndcg_at_k(Y, scores, arguments.k),
        "R": metrics.recall_at_k(Y, scores, arguments.k),
    }
    if propensities is not None:
        table["PSP"] = metrics.psp_at_k(Y, scores, propensities, arguments.k)
        table["PSnDCG"] = metrics.psndcg_at_k(Y, scores, propensities, arguments.k)
    values = {name: np.atleast_1d(found).tolist() for name, found in table.items()}
    if arguments.json:
        # The recall is NaN if no row has a label. JSON has no NaN, so null is written instead.
        flat = {
            f"{name}@{k}": value if math.isfinite(value) else None
            for name, row in values.items()
            for k, value in zip(arguments.k, row, strict=True)
        }
        print(json.dumps({"rows": Y.shape[0], **flat}, indent=2))
        return
    print(f"{'':8}" + "".join(f"{f'k={k}':>9}" for k in arguments.k))
    for name, row in values.items():
        print(f"{f'{name}@k':8}" + "".join(f"{value:9.4f}" for value in row))


def _load(arguments: Namespace) -> TextTagger | Model:
    model = load_model(arguments.model)
    classifier = model.classifier_ if isinstance(model, TextTagger) else model.classifier
    set_run(classifier, n_jobs=arguments.jobs)
    return model


def _predicted(model: Model, X: Any, arguments: Namespace) -> Iterator[csr_array]:
    """For each block of rows, yield label sets, scores or probabilities, depending on the options."""
    classifier = model.classifier
    if arguments.sets and isinstance(classifier, DecisionClassifier):
        # The rule may choose label sets by the probabilities of all rows.
        return iter([csr_array(classifier.predict(model.features(X)))])
    if arguments.sets:
        return _by_blocks(lambda part: csr_array(classifier.predict(model.features(part))), X, arguments)
    rank = classifier.predict_proba_topk if arguments.probabilities else classifier.predict_topk
    return _by_blocks(lambda part: rank(model.features(part), k=arguments.k), X, arguments)


def _by_blocks(predict: Callable[[Any], csr_array], X: Any, arguments: Namespace) -> Iterator[csr_array]:
    """Predict the rows in blocks, and yield the predictions of each block.

    A progress bar counts the rows.
    """
    n_rows = X.shape[0]
    with Bar(total=n_rows, unit=" rows", disable=not shows_progress(arguments)) as bar:
        for start in range(0, n_rows, _BLOCK):
            found = predict(X[start : start + _BLOCK])
            yield found
            bar.update(found.shape[0])


def _named(top: csr_array, names: Any) -> Iterator[list[tuple[str, float]]]:
    """Yield the names and scores of the labels of each row, best label first."""
    for begin, end in pairwise(top.indptr.tolist()):
        labels, scores = top.indices[begin:end], top.data[begin:end]
        order = np.argsort(-scores, kind="stable")
        yield list(zip(names[labels[order]].tolist(), scores[order].tolist(), strict=True))


def _lines(top: csr_array) -> Iterator[str]:
    rows = np.repeat(np.arange(top.shape[0]), np.diff(top.indptr))
    order = np.lexsort((top.indices, -top.data, rows))
    # numpy writes each score as the shortest decimal that is read back as the same float32 number.
    scores = top.data[order].astype(str).tolist()
    pairs = [f"{label}:{score}" for label, score in zip(top.indices[order].tolist(), scores, strict=True)]
    for begin, end in pairwise(top.indptr.tolist()):
        yield " ".join(pairs[begin:end])


def _rows(sets: csr_array) -> Iterator[NDArray[np.integer[Any]]]:
    for begin, end in pairwise(sets.indptr.tolist()):
        yield sets.indices[begin:end]


def _labels(sets: csr_array) -> Iterator[str]:
    return (" ".join(row.astype(str)) for row in _rows(sets))
