"""Schemas that describe the fitted attributes of a class and check them in model files.

The schema of a class is its class attribute ``schema``. `manylabel.load` uses the schema to check that shapes
agree, indices are in range and values are finite. A model that passes these checks can be used for
predictions.

A *size* is a count, such as the number of rows or the number of labels. Each size has a name, such as
``n_labels``. The first attribute that uses the name of a size sets this size. All later attributes that use
the same name must agree with this size.

A size can be the length of an array in the file, or a number that is stored in the file. In a damaged file, a
stored number could be much too large. Predictions allocate memory per label, so a number of labels that is
too large could exhaust the memory. Every schema therefore requires an array with one element per label, and
`manylabel.load` compares the stored number of labels with the length of this array. In contrast, predictions
do not allocate memory per feature. The stored number of features is therefore not compared with the length of
an array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse

from manylabel.estimator.parameters import shown

__all__ = [
    "ANY",
    "Array",
    "Attribute",
    "Classes",
    "Each",
    "Model",
    "Models",
    "Scalar",
    "Schema",
    "SparseMatrix",
    "Text",
]

# Allowed dtypes of class labels, which may be numbers or strings.
ANY = "b1 i1 i2 i4 i8 u1 u2 u4 u8 f4 f8 O"

Sizes = dict[str, int]

# Largest finite float32.
_MOST = float(np.finfo(np.float32).max)


class Attribute(ABC):
    """Description of a fitted attribute. This is the base class of all descriptions.

    Parameters
    ----------
    optional : bool, default=False
        Whether the attribute may be missing. Some attributes exist only for certain values of the
        parameters of the estimator. Files of earlier versions may lack newer attributes.
    """

    def __init__(self, *, optional: bool = False) -> None:
        self.optional = optional

    @abstractmethod
    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute.

        Parameters
        ----------
        name : str
            Name of the attribute, for error messages.
        value : object
            The value of the attribute in a model file.
        sizes : dict of str to int
            The sizes that are known from attributes checked earlier. The keys are the names of the sizes,
            such as ``n_features``. `value` must agree with these sizes. If `value` has a size that is not yet
            in `sizes`, the method adds this size to `sizes`.

        Raises
        ------
        ValueError
            If the type, dtype, shape or content of `value` is not what this `Attribute` requires.
        """


class Scalar(Attribute):
    """Description of a fitted attribute that is a number or a bool.

    Parameters
    ----------
    kind : type
        Type of the value: bool, int or float. float also accepts int.
    size : str, default=None
        Name for the value, such as ``"n_labels"``. Other attributes can use this name for the length of an
        array. The length must then equal the value. In this comparison, False is 0 and True is 1. None means
        that the value has no name.
    finite : bool, default=False
        Whether a float must be finite in float32, the dtype of scores.
    or_minus_infinity : bool, default=False
        Whether -inf is allowed as an exception if `finite` is True. If `finite` is False, a float may always
        be -inf.
    """

    def __init__(
        self,
        kind: type,
        *,
        size: str | None = None,
        finite: bool = False,
        or_minus_infinity: bool = False,
        optional: bool = False,
    ) -> None:
        super().__init__(optional=optional)
        self.kind, self.size = kind, size
        self.finite, self.or_minus_infinity = finite, or_minus_infinity

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        plain = value.item() if isinstance(value, np.generic) else value
        right = type(plain) in ((int, float) if self.kind is float else (self.kind,))
        # Counts, seeds and the integers of the core are at most 2**63 - 1.
        most = np.inf if type(plain) is float else 2**63 - 1
        least = -most if self.kind is float else 0
        if not right or not least <= plain <= most:
            names = {int: "an int from 0 to 2**63 - 1", float: "a float other than NaN"}
            wanted = names.get(self.kind, f"a {self.kind.__name__}")
            raise ValueError(f"`{name}` must be {wanted}, got {shown(value)}")
        if self.finite and abs(plain) > _MOST and not (self.or_minus_infinity and plain == -np.inf):
            raise ValueError(
                f"`{name}` must be finite in float32 (at most 3.4e38 in absolute value), got {shown(value)}"
            )
        if self.size is not None:
            _agree(name, (self.size,), (plain,), sizes)


class Array(Attribute):
    """Description of a fitted attribute that is a dense array.

    Parameters
    ----------
    shape : tuple of str or int
        The length of each dimension. A length is a number, a name such as ``"n_labels"``, or a name plus a
        number such as ``"n_rules + 1"``. Lengths with the same name must be equal.
    dtypes : str
        Allowed dtypes, separated by spaces. Each is written as in ``numpy.dtype.str``, but without the byte
        order. An example is ``"f4 f8"``.
    below : str, default=None
        Only for arrays of indices: the name of the upper bound, such as ``"n_features"``. Indices must be >=
        0 and less than this bound.
    ends : str, default=None
        Only for arrays like `indptr` of the CSR format, which divide a second array into slices. Such an
        array must start with 0 and must not decrease, and its last value must equal the length of the second
        array. `ends` is the name of this length, such as ``"n_entries"``. The description of the second array
        has the same name in its `shape`.
    or_minus_infinity : bool, default=False
        Whether floats may be -inf. The intercept of a label that is never predicted is -inf.
    precision : str, default=None
        An arbitrary name of a group of arrays. All arrays in the group must have the same float type. None
        means that the float type does not depend on other arrays.
    """

    def __init__(
        self,
        shape: tuple[str | int, ...],
        dtypes: str,
        *,
        below: str | None = None,
        ends: str | None = None,
        or_minus_infinity: bool = False,
        precision: str | None = None,
        optional: bool = False,
    ) -> None:
        super().__init__(optional=optional)
        self.shape, self.dtypes = shape, dtypes.split()
        self.below, self.ends, self.or_minus_infinity = below, ends, or_minus_infinity
        self.precision = precision

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if not isinstance(value, np.ndarray) or value.dtype.str[1:] not in self.dtypes:
            raise ValueError(f"`{name}` must be an array of {_named(self.dtypes)}, got {_kind(value)}")
        _agree(name, self.shape, value.shape, sizes)
        if self.precision is not None:
            size = sizes.setdefault(self.precision, value.itemsize)
            if value.itemsize != size:
                raise ValueError(
                    f"`{name}` must be an array of float{8 * size}, the dtype of other weights of the model, "
                    f"got {_kind(value)}"
                )
        if value.dtype.kind == "f":
            _check_finite(name, value, or_minus_infinity=self.or_minus_infinity)
        if self.below is not None:
            _check_indices(name, value, sizes[self.below])
        if self.ends is not None:
            if not len(value):
                raise ValueError(f"`{name}` must begin with 0, got an empty array")
            size = sizes.setdefault(self.ends, int(value[-1]))
            if value[0] != 0 or value[-1] != size:
                raise ValueError(
                    f"`{name}` must begin with 0 and end with {size}, "
                    f"got an array that begins with {value[0]} and ends with {value[-1]}"
                )
            falls = np.flatnonzero(value[1:] < value[:-1])
            if len(falls):
                raise ValueError(
                    f"`{name}` must not decrease, got {value[falls[0]]} followed by {value[falls[0] + 1]}"
                )


class Classes(Attribute):
    """Description of the attribute ``classes_``.

    If y was a 1-D array of 0 and 1 in fit, ``classes_`` has the two elements 0 and 1, although there is only
    one label. Otherwise, ``classes_`` has one element per label.

    In a schema, ``classes_`` must come after ``one_dimensional_``, which shows whether y was 1-D. It must
    also come after other attributes that determine the number of labels.

    Parameters
    ----------
    dtypes : str
        Allowed dtypes, written as in `Array`.
    """

    def __init__(self, dtypes: str) -> None:
        super().__init__()
        self.array = Array(("n_labels",), dtypes)

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if not (sizes.get("one_dimensional") and sizes.get("n_labels", 1) == 1 and np.size(value) == 2):
            self.array.check(name, value, sizes)
            return
        self.array.check(name, value, {})
        sizes["n_labels"] = 1


class SparseMatrix(Attribute):
    """Description of a fitted attribute that is a sparse matrix in CSR or CSC format.

    The structure of the matrix is checked earlier, when the file is decoded.

    Parameters
    ----------
    kind : {"csr", "csc"}
        Format of the matrix.
    shape : tuple of two str
        Names for the number of rows and the number of columns, such as ``("n_labels", "n_features")``.
        A name must stand for the same number in all attributes that use it.
    dtypes : str
        Allowed dtypes of the values, written as in `Array`.
    """

    def __init__(self, kind: str, shape: tuple[str, str], dtypes: str, *, optional: bool = False) -> None:
        super().__init__(optional=optional)
        self.kind, self.shape, self.dtypes = kind, shape, dtypes.split()

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        matrix: Any = value  # scipy's type hints do not narrow with `issparse`
        if not issparse(value) or matrix.format != self.kind or matrix.dtype.str[1:] not in self.dtypes:
            wanted = f"a {self.kind}_array of {_named(self.dtypes)}"
            raise ValueError(f"`{name}` must be {wanted}, got {_kind(value)}")
        _agree(name, self.shape, matrix.shape, sizes)
        _check_finite(name, matrix.data)


class Weights(Attribute):
    """Description of a fitted attribute of dtype float32 that is a CSC matrix or a dense array.

    Parameters
    ----------
    shape : tuple of two str
        Names for the number of rows and the number of columns, such as ``("n_labels", "n_features")``.
        A name must stand for the same number in all attributes that use it.
    """

    def __init__(self, shape: tuple[str, str]) -> None:
        super().__init__()
        self.sparse, self.dense = SparseMatrix("csc", shape, "f4"), Array(shape, "f4")

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        kind = self.dense if isinstance(value, np.ndarray) else self.sparse
        kind.check(name, value, sizes)


class Each(Attribute):
    """Description of a fitted attribute that is a list or tuple of parts of the same kind.

    Parameters
    ----------
    part : Attribute
        Description of each part.
    size : str
        Name for the number of parts, such as ``"n_blocks"``. A name must stand for the same number in all
        attributes that use it.
    """

    def __init__(self, part: Attribute, size: str, *, optional: bool = False) -> None:
        super().__init__(optional=optional)
        self.part, self.size = part, size

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if not isinstance(value, list | tuple):
            raise ValueError(f"`{name}` must be a list, got {_kind(value)}")
        _agree(name, (self.size,), (len(value),), sizes)
        for at, part in enumerate(value):
            # Sizes that appear only within parts may differ from part to part.
            self.part.check(f"{name}[{at}]", part, dict(sizes))


class Text(Attribute):
    """Description of a fitted attribute that is a str or None."""

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if not isinstance(value, str | None):
            raise ValueError(f"`{name}` must be a str or None, got {_kind(value)}")


class Model(Attribute):
    """Description of a fitted attribute that is a classifier or None."""

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if value is not None and not hasattr(value, "predict"):
            raise ValueError(f"`{name}` must be a classifier or None, got {_kind(value)}")
        _check_two_dimensional(name, value)


class Models(Attribute):
    """Description of a fitted attribute that is a list with one model per block of labels.

    Each model is a fitted classifier or None.

    Parameters
    ----------
    size : str or int
        The number of models: an int, or the name of a size, such as ``"n_blocks"``.
    labels : str
        Name of the attribute that holds the labels of each model. That attribute is a list of arrays, or a
        single array if there is a single model.
    """

    def __init__(self, size: str | int, labels: str, *, optional: bool = False) -> None:
        super().__init__(optional=optional)
        self.size, self.labels = size, labels

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if not isinstance(value, list | tuple):
            raise ValueError(f"`{name}` must be a list of estimators, got {_kind(value)}")
        _agree(name, (self.size,), (len(value),), sizes)
        for at, model in enumerate(value):
            if model is None:
                continue
            if not hasattr(model, "predict_topk"):
                raise ValueError(f"`{name}[{at}]` must be a classifier, got {_kind(model)}")
            features = getattr(model, "n_features_in_", None)
            if features != sizes["n_features"]:
                raise ValueError(
                    f"number of features of `{name}[{at}]`: expected {sizes['n_features']}, got {features}"
                )
            _check_two_dimensional(f"{name}[{at}]", model)

    def check_labels(self, name: str, models: Sequence[Any], labels: Any) -> None:
        """Check that the number of labels of every model equals the number of labels of its block."""
        of_models = labels if isinstance(labels, list | tuple) else [labels]
        for at, (model, block) in enumerate(zip(models, of_models, strict=False)):
            found = len(getattr(model, "classes_", ()))
            if model is not None and found != len(block):
                raise ValueError(
                    f"number of labels of `{name}[{at}]`: expected {len(block)} as in `{self.labels}`, "
                    f"got {found}"
                )


class Schema:
    """Description of the fitted attributes of a class, in the order in which they are checked.

    Parameters
    ----------
    **attributes : Attribute
        The descriptions of the attributes, by name. The constructor adds ``n_features_in_`` and
        ``feature_names_in_`` at the start. If a subclass of an estimator has further attributes, these are
        not checked.
    """

    def __init__(self, **attributes: Attribute) -> None:
        self.attributes: dict[str, Attribute] = {
            "n_features_in_": Scalar(int, size="n_features"),
            "feature_names_in_": Array(("n_features",), "O", optional=True),
            **attributes,
        }

    def check(self, estimator: Any) -> None:
        """Check the fitted attributes of an estimator.

        Parameters
        ----------
        estimator : estimator
            A fitted estimator that was read from a file or will be saved.

        Raises
        ------
        ValueError
            If an attribute is missing or does not match its description.
        """
        fitted = {name: value for name, value in vars(estimator).items() if name.endswith("_")}
        sizes: Sizes = {}
        for name, attribute in self.attributes.items():
            if name in fitted:
                attribute.check(name, fitted[name], sizes)
            elif not attribute.optional:
                raise ValueError(f"the fitted attribute `{name}` of {type(estimator).__name__} is missing")
        for size in ("n_features", "n_labels"):
            if sizes.get(size, 1) < 1:
                raise ValueError(f"`{size}` must be at least 1, got {sizes[size]}")
        for name, attribute in self.attributes.items():
            if isinstance(attribute, Models):
                attribute.check_labels(name, fitted[name], fitted[attribute.labels])


def _check_two_dimensional(name: str, model: Any) -> None:
    if getattr(model, "one_dimensional_", False):
        raise ValueError(f"`{name}` must be fitted to a 2-D indicator matrix, got a model fitted to a 1-D y")


def _named(dtypes: Sequence[str]) -> str:
    return " or ".join(np.dtype(code).name for code in dtypes)


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{name} of {value.dtype}" if hasattr(value, "dtype") else name


def _agree(name: str, shape: tuple[str | int, ...], found: tuple[int, ...], sizes: Sizes) -> None:
    """Check that a shape agrees with the sizes that are known so far.

    Sizes that are not known yet are set from the shape.
    """
    wanted: list[int] = []
    for size, length in zip(shape, found, strict=False):
        if isinstance(size, int):
            wanted.append(size)
            continue
        key, _, more = size.partition(" + ")
        extra = int(more or 0)
        wanted.append(sizes.setdefault(key, length - extra) + extra)
    text = ", ".join(map(str, shape))
    if len(shape) != len(found):
        raise ValueError(f"`{name}` must be {len(shape)}-D, of shape ({text}), got shape {found}")
    if wanted != list(found):
        raise ValueError(f"shape of `{name}`: expected ({text}) = {tuple(wanted)}, got {found}")


def _check_finite(name: str, values: Any, *, or_minus_infinity: bool = False) -> None:
    if not values.size:
        return
    # It is enough to check the minimum and the maximum, since both are NaN if any value is NaN. Unlike
    # np.isfinite, this allocates no array.
    least, most = values.min(), values.max()
    if not np.isfinite(most) and not (or_minus_infinity and most == -np.inf):
        raise ValueError(f"values of `{name}` must be finite, got {most}")
    if not np.isfinite(least) and not (or_minus_infinity and least == -np.inf):
        raise ValueError(f"values of `{name}` must be finite, got {least}")


def _check_indices(name: str, values: Any, size: int) -> None:
    if values.size and not 0 <= values.min() <= values.max() < size:
        outside = values.min() if values.min() < 0 else values.max()
        raise ValueError(f"indices of `{name}` must be from 0 to {size - 1}, got {outside}")
