"""The registry of estimators, read by model files, the command line, the demo and tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from manylabel.estimator.documentation import inherit_documentation

__all__ = ["CLASSES", "COMMANDS", "DEMOS", "register"]

T = TypeVar("T", bound=type)

# Estimator classes by their names in model files.
CLASSES: dict[str, type] = {}

# Functions that make an estimator, by its command line name.
COMMANDS: dict[str, Callable[[], Any]] = {}

# Functions that make an estimator for the demo, by the title of its row.
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

    Used as a class decorator. The class must follow scikit-learn's conventions: ``__init__`` only stores its
    parameters, and fitted attributes have names that end in ``_``. Entries that are missing from its
    docstrings are added from those of its base classes; see `inherit_documentation`.

    Parameters
    ----------
    estimator_class : type
        An estimator class. Model files use its name without the module.
    command : str, default=None
        Its name on the command line, after ``--model``; None if it is not available there.
    make : callable, default=None
        Function that takes the class and returns the estimator for the command line; None for an estimator
        with default parameters. It passes inner estimators explicitly, so that ``--set`` can set their
        parameters.
    demo : tuple of str and callable, default=None
        Title of the estimator in the demo, and a function that takes the class and returns the estimator.
        None leaves the class out of the demo.

    Returns
    -------
    type or callable
        `estimator_class` itself, or a decorator if `estimator_class` is not given.

    Raises
    ------
    ValueError
        If another class with the same name is registered.
    """
    if estimator_class is None:
        return lambda estimator_class: _join(estimator_class, command, make, demo)
    return _join(estimator_class, command, make, demo)


def _join(estimator_class: T, command: str | None, make: Maker | None, demo: tuple[str, Maker] | None) -> T:
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
    if demo is not None:
        title, maker = demo
        DEMOS[title] = lambda: maker(estimator_class)
    return estimator_class
