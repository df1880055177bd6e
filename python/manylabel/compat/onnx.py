"""Export classifiers to ONNX [1]_, so that programs without Python can run them.

:func:`to_onnx` exports boosted rules and linear classifiers. The classifier can also be the last step of a
scikit-learn pipeline, if skl2onnx can convert the other steps. When this module is imported, it registers
these classifiers with skl2onnx. The functions of skl2onnx can then convert them too.

The module needs the package skl2onnx: ``pip install 'manylabel[onnx]'``. ONNX cannot multiply sparse
matrices. An exported model therefore stores its weights as dense arrays, and takes X as a dense array. Large
models do not fit in an ONNX file (see :func:`to_onnx`).

References
----------
.. [1] https://onnx.ai
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skl2onnx import convert_sklearn, get_model_alias, update_registered_converter
from skl2onnx.algebra import onnx_ops as ops
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from manylabel.estimator.base import MultiLabelClassifier
from manylabel.linear import DiSMECClassifier, LEMLClassifier, PDSparseClassifier
from manylabel.rules import BoostedRulesClassifier

__all__ = ["to_onnx"]

# ONNX files are protocol buffers, which have at most this number of bytes.
_MOST_BYTES = 2**31 - 1

# Scores of rules are clipped to this bound before their exponential, so that sums of exponentials are finite.
# Rules of a fit have scores far below it.
_MOST_SCORE = 600.0


def to_onnx(model: Any, *, target_opset: int | None = None) -> Any:
    """Export a fitted classifier to ONNX.

    Parameters
    ----------
    model : DiSMECClassifier, PDSparseClassifier, LEMLClassifier, BoostedRulesClassifier or Pipeline
        The fitted classifier, or a scikit-learn `Pipeline` that ends in such a classifier. The steps of the
        `Pipeline` must take numbers, not texts.
    target_opset : int, default=None
        The version of ONNX's operators. None means the newest version that skl2onnx supports.

    Returns
    -------
    onnx.ModelProto
        The model. Its input `X` has the type float32 and the shape (n_samples, n_features). Its output
        `labels` is the result of `predict`, as an int64 array of shape (n_samples, n_labels). Its output
        `scores` is the result of `decision_function`, as a float32 array of the same shape. If y was 1-D in
        `fit`, both outputs have one column.

    Raises
    ------
    TypeError
        If the class of the model cannot be exported; the message lists the classes that can be exported.
        The error is also raised if the first step of a pipeline takes texts.
    ValueError
        If the dense arrays of the weights take more than 2 GB, the size limit of an ONNX file.
    sklearn.exceptions.NotFittedError
        If the model is not fitted.

    Notes
    -----
    Scores are computed in double precision and then rounded to float32. They agree with
    `decision_function` up to the rounding of float32. The ONNX model does not check X for NaN and infinite
    values.

    With some settings of the parameter `predictor`, a `BoostedRulesClassifier` predicts only label sets from
    its attribute `label_sets_`. For each row, it predicts the label set with the lowest loss. If `predictor`
    is a measure, this loss includes a term that favors frequent label sets (see the Notes of the class). If
    the two best label sets of a row are equally good except for rounding errors of float64, the ONNX model
    and `predict` may predict different label sets.

    In the ONNX file, the weights of `DiSMECClassifier` and `PDSparseClassifier` take 4 bytes for each pair of
    a feature and a label. The weights of `LEMLClassifier` take at most ``4 * rank * (n_features + n_labels)``
    bytes. The rules of `BoostedRulesClassifier` take 8 bytes for each pair of a rule and a label. If the
    model predicts label sets from `label_sets_`, each label set takes an additional 24 bytes per label.

    Examples
    --------
    >>> import manylabel as ml
    >>> from manylabel.compat.onnx import to_onnx
    >>> X, Y = ml.datasets.make_multilabel(200, 20, 10, random_state=0)
    >>> model = ml.BoostedRulesClassifier(n_rules=20, random_state=0).fit(X, Y)
    >>> onnx_model = to_onnx(model)
    >>> [output.name for output in onnx_model.graph.output]
    ['labels', 'scores']
    >>> from pathlib import Path
    >>> _ = Path("rules.onnx").write_bytes(onnx_model.SerializeToString())
    """
    check_is_fitted(model)
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if type(last) not in _CONVERTERS:
        name = ("a Pipeline that ends in " if isinstance(model, Pipeline) else "") + type(last).__name__
        *others, last_class = sorted(cls.__name__ for cls in _CONVERTERS)
        raise TypeError(
            f"cannot export {name} to ONNX; `model` must be a {', '.join(others)} or {last_class}, or a "
            "Pipeline that ends in one of these and takes numbers, not texts"
        )
    n_features = getattr(model, "n_features_in_", None)  # steps that take texts have no such attribute
    if n_features is None:
        raise TypeError(
            "a Pipeline whose first step takes texts cannot be exported to ONNX; export a Pipeline of the "
            "steps after the vectorizer"
        )
    inputs = [("X", FloatTensorType([None, n_features]))]
    return convert_sklearn(model, initial_types=inputs, target_opset=target_opset)


def _parse(
    scope: Any, model: MultiLabelClassifier, inputs: list[Any], custom_parsers: Any = None
) -> list[Any]:
    """Declare the outputs of a classifier for skl2onnx, and return them."""
    operator = scope.declare_local_operator(get_model_alias(type(model)), model)
    operator.inputs = inputs
    operator.outputs.append(scope.declare_local_variable("labels", Int64TensorType()))
    operator.outputs.append(scope.declare_local_variable("scores", FloatTensorType()))
    outputs: list[Any] = operator.outputs
    return outputs


def _set_shapes(operator: Any) -> None:
    n_labels = operator.raw_operator._n_labels
    n_rows = operator.inputs[0].get_first_dimension()
    operator.outputs[0].type = Int64TensorType([n_rows, n_labels])
    operator.outputs[1].type = FloatTensorType([n_rows, n_labels])


def _check_size(model: MultiLabelClassifier, n_bytes: int) -> None:
    if n_bytes > _MOST_BYTES:
        raise ValueError(
            f"the dense weights of {type(model).__name__} must take at most {_MOST_BYTES:,} bytes, "
            f"the size limit of an ONNX file, got {n_bytes:,}"
        )


def _convert_sparse_linear(scope: Any, operator: Any, container: Any) -> None:
    model, at = operator.raw_operator, {"op_version": container.target_opset}
    n_labels, n_features = model.coef_.shape
    _check_size(model, 4 * n_labels * n_features)
    coef = model.coef_ if isinstance(model.coef_, np.ndarray) else model.coef_.toarray()
    weights = ops.OnnxCast(coef.T.copy(), to=_DOUBLE, **at)
    margins = ops.OnnxMatMul(_scaled(model, operator, at), weights, **at)
    _finish_linear(margins, scope, operator, container)


def _convert_low_rank(scope: Any, operator: Any, container: Any) -> None:
    model, at = operator.raw_operator, {"op_version": container.target_opset}
    _check_size(model, 4 * (model.feature_factors_.size + model.label_factors_.size))
    seen = ops.OnnxGather(
        _scaled(model, operator, at), np.asarray(model.features_, dtype=np.int64), axis=1, **at
    )
    factors = [
        ops.OnnxCast(np.ascontiguousarray(array), to=_DOUBLE, **at)
        for array in (model.feature_factors_, model.label_factors_)
    ]
    margins = ops.OnnxMatMul(ops.OnnxMatMul(seen, factors[0], **at), factors[1], **at)
    _finish_linear(margins, scope, operator, container)


def _scaled(model: Any, operator: Any, at: dict[str, Any]) -> Any:
    """Return X in double precision, with rows scaled to unit length if the model scales rows."""
    X = ops.OnnxCast(operator.inputs[0], to=_DOUBLE, **at)
    if not model._normalizes_rows:
        return X
    squares = ops.OnnxReduceSum(ops.OnnxMul(X, X, **at), np.array([1]), keepdims=1, **at)
    # A row of zeros stays a row of zeros: its length is replaced by 1.
    empty = ops.OnnxCast(ops.OnnxEqual(squares, np.zeros(1), **at), to=_DOUBLE, **at)
    return ops.OnnxDiv(X, ops.OnnxSqrt(ops.OnnxAdd(squares, empty, **at), **at), **at)


def _finish_linear(margins: Any, scope: Any, operator: Any, container: Any) -> None:
    model, at = operator.raw_operator, {"op_version": container.target_opset}
    shifted = ops.OnnxAdd(margins, model.intercept_.astype(np.float64), **at)
    scores = ops.OnnxCast(shifted, to=_FLOAT, output_names=operator.outputs[1:], **at)
    least = np.array([model._least_score], dtype=np.float32)
    _write(scores, _above(scores, least, operator, at), scope, container)


def _above(scores: Any, least: NDArray[Any], operator: Any, at: dict[str, Any]) -> Any:
    positive = ops.OnnxGreater(scores, least, **at)
    return ops.OnnxCast(positive, to=_INT64, output_names=operator.outputs[:1], **at)


def _above_or_best(scores: Any, least: NDArray[Any], operator: Any, at: dict[str, Any]) -> Any:
    """Predict the labels with scores above `least`, and in each row also the best label.

    The best label is the first label with the highest score. It is not predicted if its score is -inf.
    """
    numbers = np.arange(operator.raw_operator.heads_.shape[1], dtype=np.int64)
    is_best = ops.OnnxEqual(ops.OnnxArgMax(scores, axis=1, keepdims=1, **at), numbers, **at)
    is_seen = ops.OnnxGreater(scores, np.array([-np.inf], dtype=np.float32), **at)
    best = ops.OnnxAnd(is_best, is_seen, **at)
    chosen = ops.OnnxOr(ops.OnnxGreater(scores, least, **at), best, **at)
    return ops.OnnxCast(chosen, to=_INT64, output_names=operator.outputs[:1], **at)


def _convert_rules(scope: Any, operator: Any, container: Any) -> None:
    model, at = operator.raw_operator, {"op_version": container.target_opset}
    n_rules, n_labels = model.heads_.shape
    power, bound, best = model._decision
    by_sets = power is not None
    _check_size(model, 8 * n_labels * (n_rules + 3 * by_sets * model.label_sets_.shape[0]))
    sums = ops.OnnxMatMul(_covered(model, operator, at), model.heads_.toarray().astype(np.float64), **at)
    unseen = np.bincount(model.label_sets_.indices, minlength=n_labels) == 0
    totals = ops.OnnxAdd(sums, np.where(unseen, -np.inf, 0.0), **at)
    scores = ops.OnnxCast(totals, to=_FLOAT, output_names=operator.outputs[1:], **at)
    if by_sets:
        labels = _best_sets(sums, power, operator, at)
    elif best:
        labels = _above_or_best(scores, np.array([bound], dtype=np.float32), operator, at)
    else:
        labels = _above(scores, np.array([bound], dtype=np.float32), operator, at)
    _write(scores, labels, scope, container)


def _covered(model: BoostedRulesClassifier, operator: Any, at: dict[str, Any]) -> Any:
    """Return a float64 array of shape (n_samples, n_rules), with 1 where a rule covers a row and 0 elsewhere.

    A rule covers a row if the row satisfies all conditions of the rule.
    """
    X = ops.OnnxCast(operator.inputs[0], to=_FLOAT, **at)
    values = ops.OnnxGather(X, model.body_feature_.astype(np.int64), axis=1, **at)
    bounds = model.body_threshold_
    below, above = ops.OnnxLess(values, bounds, **at), ops.OnnxGreater(values, bounds, **at)
    equal = ops.OnnxEqual(values, bounds, **at)
    # The tests that satisfy each operator, in the order of its numbers. NaN passes no test.
    tests = {0: (below, equal), 1: (above,), 2: (equal,), 3: (below, above)}
    satisfied = None
    for number, passed in tests.items():
        has_operator = model.body_operator_ == number
        for test in passed if number == 0 or has_operator.any() else ():
            term = ops.OnnxAnd(test, has_operator, **at)
            satisfied = term if satisfied is None else ops.OnnxOr(satisfied, term, **at)
    # A rule covers a row if the number of failed conditions does not grow from its first to its last one.
    failed = ops.OnnxCast(ops.OnnxNot(satisfied, **at), to=_INT32, **at)
    counts = ops.OnnxCumSum(failed, np.array(1, dtype=np.int64), **at)
    counts = ops.OnnxPad(counts, np.array([0, 1, 0, 0]), np.array(0, dtype=np.int32), **at)
    ends = [
        ops.OnnxGather(counts, positions, axis=1, **at)
        for positions in (model.body_indptr_[:-1].copy(), model.body_indptr_[1:].copy())
    ]
    return ops.OnnxCast(ops.OnnxEqual(*ends, **at), to=_DOUBLE, **at)


def _best_sets(sums: Any, power: float, operator: Any, at: dict[str, Any]) -> Any:
    """Return, for each row, the best label set in `label_sets_`; see ``rust/rules/src/known.rs``.

    The cost of a label set is the sum of ``2 sinh |score|`` over all labels for which the label set and the
    sign of the score disagree. Let ``common`` be 1 plus the sum of ``exp(-|score|)`` over all labels. The
    exponential of the example-wise loss of a label set is ``cost + common``. If `power` is 0, the label set
    with the smallest cost is returned. If `power` is not 0, the label set with the smallest value of
    ``(cost + common) / weight**power`` is returned. Here, ``weight`` is the weight of the label set in
    `label_set_weights_`.
    """
    model = operator.raw_operator
    sets = model.label_sets_.toarray().astype(np.int64)
    bounded = ops.OnnxClip(sums, np.array(-_MOST_SCORE), np.array(_MOST_SCORE), **at)
    # onnxruntime has no hyperbolic sine in double precision.
    sines = ops.OnnxSub(ops.OnnxExp(bounded, **at), ops.OnnxExp(ops.OnnxNeg(bounded, **at), **at), **at)
    wrong = ops.OnnxConcat(
        ops.OnnxRelu(ops.OnnxNeg(sines, **at), **at), ops.OnnxRelu(sines, **at), axis=1, **at
    )
    costs = ops.OnnxMatMul(wrong, np.hstack([sets, 1 - sets]).T.astype(np.float64), **at)
    if power:
        small = ops.OnnxExp(ops.OnnxNeg(ops.OnnxAbs(bounded, **at), **at), **at)
        common = ops.OnnxAdd(ops.OnnxReduceSum(small, np.array([1]), keepdims=1, **at), np.ones(1), **at)
        # The largest logarithm is that of the largest factor in the Rust code.
        with np.errstate(divide="ignore"):
            logs = power * np.log(model.label_set_weights_ / model.label_set_weights_.max())
        penalties = np.minimum(-logs, 100 * np.log(10))
        costs = ops.OnnxAdd(ops.OnnxLog(ops.OnnxAdd(costs, common, **at), **at), penalties, **at)
    best = ops.OnnxArgMin(costs, axis=1, keepdims=0, **at)
    return ops.OnnxGather(sets, best, axis=0, output_names=operator.outputs[:1], **at)


def _write(scores: Any, labels: Any, scope: Any, container: Any) -> None:
    scores.add_to(scope, container)
    labels.add_to(scope, container)


# The numbers of types in `onnx.TensorProto`.
_FLOAT, _INT32, _INT64, _DOUBLE = 1, 6, 7, 11

_CONVERTERS: dict[type, Callable[[Any, Any, Any], None]] = {
    DiSMECClassifier: _convert_sparse_linear,
    PDSparseClassifier: _convert_sparse_linear,
    LEMLClassifier: _convert_low_rank,
    BoostedRulesClassifier: _convert_rules,
}
for _cls, _convert in _CONVERTERS.items():
    update_registered_converter(_cls, f"Manylabel{_cls.__name__}", _set_shapes, _convert, parser=_parse)
