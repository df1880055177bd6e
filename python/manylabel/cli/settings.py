"""Functions that set parameters of estimators from command-line options."""

from __future__ import annotations

from typing import Any

from manylabel.cli.messages import UsageError

__all__ = ["set_parameter", "set_run"]

# `--set` does not accept these parameters. The program sets `n_jobs` from `--jobs`, `random_state` from
# `--seed`, and `verbose` from `--quiet`.
_RUN_PARAMETERS = ("n_jobs", "random_state", "verbose")


def set_parameter(model: Any, name: str, text: str) -> None:
    """Set a parameter of an estimator to a value that is given as text.

    The class attribute ``parameters`` of the estimator describes how to convert the text to a value.
    """
    head, _, rest = name.partition("__")
    known = [parameter for parameter in model.parameters if parameter not in _RUN_PARAMETERS]
    if head not in known:
        option = {"n_jobs": "; use --jobs", "random_state": "; use --seed"}.get(head, "")
        raise UsageError(
            f"--set: expected a parameter of {type(model).__name__} ({', '.join(known)}), "
            f"got {head!r}{option}"
        )
    if rest:
        inner = getattr(model, head)
        if not hasattr(inner, "get_params"):
            raise UsageError(
                f"--set {name}: the parameter before __ must hold an estimator, got {head}={inner!r}"
            )
        set_parameter(inner, rest, text)
        return
    kind = model.parameters[head]
    try:
        value = kind.read(text)
        kind.check(head, value)
    except ValueError:
        raise UsageError(f"--set {name}: expected {kind.wanted}, got {text!r}") from None
    model.set_params(**{head: value})


def set_run(model: Any, **parameters: Any) -> None:
    """Set the given parameters. Parameters that the estimator does not have are ignored."""
    known = model.get_params(deep=False)
    model.set_params(**{name: value for name, value in parameters.items() if name in known})
