"""The types that skops [1]_ must trust to load models of this library.

skops saves estimators without pickle, and loads a file only if the caller trusts all types in the file. All
estimators of this library can be saved with skops. The files of these estimators contain types that skops
does not trust by default: the classes of the estimators and scipy's sparse arrays. `trusted_types` returns
the names of all these types::

    import skops.io
    from manylabel.compat.skops import trusted_types

    skops.io.dump(model, "model.skops")
    model = skops.io.load("model.skops", trusted=trusted_types())

If you do not need skops, use `manylabel.save`. `manylabel.load` maps the file into memory, so several
processes can share this memory. It also checks the values of all fitted attributes. In contrast, skops reads
the arrays into the memory of each process and does not check their values.

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
        The sorted names of all registered estimator classes (see `manylabel.persistence.register`) and of the
        classes of scipy's sparse arrays. The list contains no functions or methods.

    Examples
    --------
    >>> from manylabel.compat.skops import trusted_types
    >>> "manylabel.linear.dismec.DiSMECClassifier" in trusted_types()
    True
    """
    types = [*CLASSES.values(), csc_array, csr_array]
    return sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in types)
