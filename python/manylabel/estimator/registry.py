"""The estimators there are, for all that must know each of them: model files, command line, demo, tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from manylabel.estimator.documentation import inherit_documentation

__all__ = ["CLASSES", "COMMANDS", "DEMOS", "register"]

T = TypeVar("T", bound=type)

# By the names that files know them by.
CLASSES: dict[str, type] = {}

# What makes an estimator of a name that the command line knows.
COMMANDS: dict[str, Callable[[], Any]] = {}

# What makes an estimator that the demo trains, by the title of its row.
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
    demo : tuple of str and callable, default=None
        Title and maker of the estimator that the demo trains; None if it shows none of the class.

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
