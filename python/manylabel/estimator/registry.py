"""The registry of estimator classes for model files, the command line, the demo and tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from manylabel.estimator.documentation import inherit_documentation

__all__ = ["CLASSES", "COMMANDS", "DEMOS", "register"]

T = TypeVar("T", bound=type)

# Estimator classes, by their names in model files.
CLASSES: dict[str, type] = {}

# Functions that make an estimator, by the name of the estimator on the command line.
COMMANDS: dict[str, Callable[[], Any]] = {}

# Functions that make an estimator for the demo, by the title of the estimator in the demo.
DEMOS: dict[str, Callable[[], Any]] = {}

Maker = Callable[[Any], Any]


@overload
def register(estimator_class: T, /) -> T: ...
@overload
def register(
    *, command: str, make: Maker | None = None, demo: tuple[str, Maker] | None = None
) -> Callable[[T], T]: ...
def register(
    estimator_class: Any = None,
    /,
    *,
    command: str | None = None,
    make: Maker | None = None,
    demo: tuple[str, Maker] | None = None,
) -> Any:
    """Register an estimator class, so that it can be saved, loaded and used on the command line.

    Use this function as a class decorator. The class must follow scikit-learn's conventions: ``__init__``
    only stores its parameters, and the names of fitted attributes end in ``_``. If the docstrings of the
    class lack descriptions of parameters, attributes or errors, these descriptions are copied from the base
    classes.

    Parameters
    ----------
    estimator_class : type
        The estimator class. Model files store its name without the module.
    command : str, default=None
        The name of the class for the command-line option ``--model``. If None, the class is not available on
        the command line.
    make : callable, default=None
        Function that takes the class and returns the estimator for the command line. If the estimator
        contains other estimators, the function must pass them to the constructor, so that the command-line
        option ``--set`` can set their parameters. None means an estimator with default parameters.
    demo : tuple of str and callable, default=None
        Title of the estimator in the demo, and a function that takes the class and returns the estimator.
        None means that the class is not in the demo.

    Returns
    -------
    type or callable
        `estimator_class` itself, or a decorator if `estimator_class` is not given.

    Raises
    ------
    ValueError
        If another class with the same name is already registered.
    """
    if estimator_class is None:
        return lambda estimator_class: _join(estimator_class, command, make, demo)
    return _join(estimator_class, command, make, demo)


def _join(estimator_class: T, command: str | None, make: Maker | None, demo: tuple[str, Maker] | None) -> T:
    name, module = estimator_class.__name__, estimator_class.__module__
    known = CLASSES.get(name, estimator_class)
    if (known.__module__, known.__qualname__) != (module, estimator_class.__qualname__):
        raise ValueError(
            f"`estimator_class` must have a unique name, got {name} of {module}; "
            f"{known.__module__} has already registered a class with this name"
        )
    inherit_documentation(estimator_class)
    CLASSES[name] = estimator_class  # if a module is reloaded, the new class replaces the old class
    if command is not None:
        COMMANDS[command] = estimator_class if make is None else lambda: make(estimator_class)
    if demo is not None:
        title, maker = demo
        DEMOS[title] = lambda: maker(estimator_class)
    return estimator_class
