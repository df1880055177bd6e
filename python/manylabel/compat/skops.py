"""The types that skops [1]_ must trust to load models of this library.

skops saves estimators without pickle, and loads a file only if the caller trusts all types in it. All
estimators of this library can be saved with skops. Their files have the classes of the estimators, scipy's
sparse arrays and types that skops trusts already::

    import skops.io
    from manylabel.compat.skops import trusted_types

    skops.io.dump(model, "model.skops")
    model = skops.io.load("model.skops", trusted=trusted_types())

Prefer the file of `manylabel.save` where both are possible: `manylabel.load` maps it into memory and checks
the values of all fitted attributes. skops reads the arrays into private memory and does not check their
values.

References
----------
.. [1] https://skops.readthedocs.io
"""

from __future__ import annotations

from scipy.sparse import csc_array, csr_array

from manylabel.estimator.registry import CLASSES

__all__ = ["trusted_types"]


def trusted_types() -> list[str]:
    """Return the names of the types for the argument `trusted` of ``skops.io.load``.

    Returns
    -------
    list of str
        The names of all registered estimator classes (see `manylabel.persistence.register`) and of the sparse
        arrays in their fitted attributes, sorted. The list contains no functions or methods.

    Examples
    --------
    >>> from manylabel.compat.skops import trusted_types
    >>> "manylabel.linear.dismec.DiSMECClassifier" in trusted_types()
    True
    """
    types = [*CLASSES.values(), csc_array, csr_array]
    return sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in types)
