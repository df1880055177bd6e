"""The estimators there are."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["CLASSES", "register"]

T = TypeVar("T", bound=type)

# By the names that files know them by.
CLASSES: dict[str, type] = {}


def register(estimator_class: T) -> T:
    """Let estimators of a class be saved and loaded; a class decorator.

    The class takes part by scikit-learn's conventions alone: its parameters are those of ``__init__``,
    which only stores them, and its fitted state is in attributes whose names end in ``_``.

    Parameters
    ----------
    estimator_class : type
        An estimator class. Files know it by its bare name.

    Returns
    -------
    type
        `estimator_class` itself.

    Raises
    ------
    ValueError
        If another class of that name has joined.
    """
    name, module = estimator_class.__name__, estimator_class.__module__
    known = CLASSES.get(name, estimator_class)
    if (known.__module__, known.__qualname__) != (module, estimator_class.__qualname__):
        raise ValueError(
            f"`estimator_class` must have a name of its own, got {name} of {module} beside that of "
            f"{known.__module__}"
        )
    CLASSES[name] = estimator_class  # a reloaded module replaces its class
    return estimator_class
