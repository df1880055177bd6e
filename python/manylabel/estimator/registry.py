"""The estimators there are, for all that must know each of them: model files and the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from manylabel.estimator.documentation import inherit_documentation

__all__ = ["CLASSES", "COMMANDS", "register"]

T = TypeVar("T", bound=type)

# By the names that files know them by.
CLASSES: dict[str, type] = {}

# What makes an estimator of a name that the command line knows.
COMMANDS: dict[str, Callable[[], Any]] = {}


@overload
def register(estimator_class: T, /) -> T: ...
@overload
def register(*, command: str, make: Callable[[Any], Any] | None = None) -> Callable[[T], T]: ...
def register(
    estimator_class: Any = None, /, *, command: str | None = None, make: Callable[[Any], Any] | None = None
) -> Any:
    """Let estimators of a class be saved, loaded and trained from the command line; a class decorator.

    The class takes part by scikit-learn's conventions alone: its parameters are those of ``__init__``,
    which only stores them, and its fitted state is in attributes whose names end in ``_``. Its docstrings are
    completed by those of its bases; see `inherit_documentation`.

    Parameters
    ----------
    estimator_class : type
        An estimator class. Files know it by its bare name.
    command : str, default=None
        Its name on the command line, after ``--model``; None if it has no place there.
    make : callable, default=None
        Makes the command line's estimator of the class; None for one with nothing set. It spells out the
        estimators inside of others, so that ``--set`` reaches into them.

    Returns
    -------
    type or callable
        `estimator_class` itself; without it, the decorator.

    Raises
    ------
    ValueError
        If another class of that name has joined.
    """
    if estimator_class is None:
        return lambda estimator_class: _join(estimator_class, command, make)
    return _join(estimator_class, command, make)


def _join(estimator_class: T, command: str | None, make: Callable[[Any], Any] | None) -> T:
    name, module = estimator_class.__name__, estimator_class.__module__
    known = CLASSES.get(name, estimator_class)
    if (known.__module__, known.__qualname__) != (module, estimator_class.__qualname__):
        raise ValueError(
            f"`estimator_class` must have a name of its own, got {name} of {module} beside that of "
            f"{known.__module__}"
        )
    inherit_documentation(estimator_class)
    CLASSES[name] = estimator_class  # a reloaded module replaces its class
    if command is not None:
        COMMANDS[command] = estimator_class if make is None else lambda: make(estimator_class)
    return estimator_class
