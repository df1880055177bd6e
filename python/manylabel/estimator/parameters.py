"""Tables that describe which values the parameters of an estimator accept.

Each estimator class has one table, its class attribute ``parameters``. `fit` uses the table to check the
values before it passes them to the Rust core. The command line uses the table to convert text to values.
Tests use the table to generate invalid values, and check that these are rejected. Every error message states
the name of the parameter, the accepted values and the given value.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache, lru_cache
from numbers import Integral, Real
from typing import Any

import joblib
import numpy as np
from sklearn.utils import check_random_state

from manylabel.estimator.registry import COMMANDS

__all__ = [
    "RUN",
    "SEEDED_RUN",
    "Anything",
    "Choice",
    "Classifier",
    "Count",
    "Either",
    "Flag",
    "Having",
    "Normalization",
    "Number",
    "Parameter",
    "Parameters",
    "Seed",
    "Threads",
    "Threshold",
    "Verbosity",
    "check_count",
    "fixed_threshold",
    "n_threads",
    "shown",
]

# Maximum number of characters of a value in an error message.
_MOST_SHOWN = 1000


class Parameter(ABC):
    """Description of the values that a parameter accepts. This is the base class of all descriptions.

    Attributes
    ----------
    wanted : str
        The accepted values in words. Error messages print this text after "must be".
    documented : str
        The type of the parameter, as text for docstrings.
    wrong : tuple
        A few invalid values for tests.
    """

    wanted: str
    documented: str
    wrong: tuple[Any, ...]

    @abstractmethod
    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""

    def checked(self, value: Any) -> Any:
        """Convert an allowed value to the type that the Rust core takes."""
        return value

    def require(self, name: str, value: Any) -> None:
        """Raise an error if a value is not allowed.

        Parameters
        ----------
        name : str
            Name of the parameter, for the error message.
        value : object
            The value to check.

        Raises
        ------
        ValueError
            If the value is not allowed.
        """
        if not self.takes(value):
            raise ValueError(f"`{name}` must be {self.wanted}, got {shown(value)}")

    @abstractmethod
    def read(self, text: str) -> Any:
        """Convert text from the command line to a value. Raise ValueError if this is impossible."""

    def check(self, name: str, value: Any) -> Any:
        """Check a value and convert it to the type that the Rust core takes.

        Parameters
        ----------
        name : str
            Name of the parameter, for the error message.
        value : object
            The value to check.

        Returns
        -------
        object
            The value as a built-in Python type.

        Raises
        ------
        ValueError
            If the value is not allowed.
        """
        self.require(name, value)
        return self.checked(value)


def _is_integer(value: Any) -> bool:
    """Return whether a value is an integer and not a bool."""
    # The test of the type takes a tenth of the time of the test of the abstract class.
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


class Number(Parameter):
    """A parameter that is a real number in a range.

    Parameters
    ----------
    above, least : float, default=None
        Lower bound. Values must be > `above`, or >= `least`. None means no such bound.
    below, most : float, default=None
        Upper bound. Values must be < `below`, or <= `most`. None means no such bound.
    infinite : bool, default=False
        Whether infinity is allowed. This option is only for numbers without an upper bound.
    """

    documented = "float"

    def __init__(
        self,
        *,
        above: float | None = None,
        least: float | None = None,
        below: float | None = None,
        most: float | None = None,
        infinite: bool = False,
    ) -> None:
        self.above, self.least, self.below, self.most = above, least, below, most
        self.infinite = infinite
        bounds = {">": above, ">=": least, "<": below, "<=": most}
        ranges = [f"{sign} {bound:g}" for sign, bound in bounds.items() if bound is not None]
        bounded = infinite or below is not None or most is not None
        self.wanted = " ".join(["a number" if bounded else "a finite number", " and ".join(ranges)]).strip()
        outside = [above, below]
        outside += [None if least is None else least - 1, None if most is None else 2 * most + 1]
        self.wrong = (
            *(bound for bound in outside if bound is not None),
            np.nan,
            *(() if infinite else (np.inf,)),
            "a",
            None,
            True,
            1j,
            [0.5],
        )

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        try:
            number = float(value)
        except OverflowError:  # an integer too large for a float
            return False
        return (
            (np.isfinite(number) or (self.infinite and not np.isnan(number)))
            and (self.above is None or number > self.above)
            and (self.least is None or number >= self.least)
            and (self.below is None or number < self.below)
            and (self.most is None or number <= self.most)
        )

    def checked(self, value: Any) -> float:
        """Convert an allowed value to a float."""
        return float(value)

    def read(self, text: str) -> float:
        """Convert text to a number."""
        return float(text)


class Count(Parameter):
    """A parameter that is an integer >= `least`.

    Parameters
    ----------
    least : int
        Smallest allowed value.
    most : int, default=2**31 - 1
        Largest value that is passed to the Rust core, which stores counts in 32 bits. Larger values are
        allowed, but `most` is passed instead.
    """

    documented = "int"

    def __init__(self, least: int, most: int = np.iinfo(np.int32).max) -> None:
        self.least, self.most = least, most
        self.wanted = f"an integer >= {least}"
        self.wrong = (least - 1, -1, least + 0.5, np.nan, "a", None, True)

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return _is_integer(value) and int(value) >= self.least

    def checked(self, value: Any) -> int:
        """Convert an allowed value to an int."""
        return min(int(value), self.most)

    def read(self, text: str) -> int:
        """Convert text to an integer."""
        return int(text)


class Flag(Parameter):
    """A parameter that is True or False."""

    wanted = "True or False"
    documented = "bool"
    wrong = ("no", None, 1)

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return isinstance(value, bool | np.bool_)

    def checked(self, value: Any) -> bool:
        """Convert an allowed value to a bool."""
        return bool(value)

    def read(self, text: str) -> bool:
        """Convert text to a bool."""
        if text not in ("True", "False", "true", "false"):
            raise ValueError
        return text in ("True", "true")


class Choice(Parameter):
    """A parameter whose value is one of several words.

    Parameters
    ----------
    *words : str
        The allowed words.
    documented : str, default=None
        The type of the parameter, as text for docstrings. If None, the text lists the allowed words.
    """

    wrong = ("newt", "", None, 3)

    def __init__(self, *words: str, documented: str | None = None) -> None:
        self.words = words
        quoted = [f'"{word}"' for word in words]
        self.wanted = _listed(quoted)
        self.documented = documented or (f"{{{', '.join(quoted)}}}" if len(words) > 1 else self.wanted)

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return isinstance(value, str) and value in self.words

    def checked(self, value: Any) -> str:
        """Convert an allowed value to a str."""
        return str(value)

    def read(self, text: str) -> str:
        """Return `text` if it is one of the allowed words, and raise ValueError otherwise."""
        if text not in self.words:
            raise ValueError
        return text


class _Nothing(Parameter):
    """A parameter that is None."""

    wanted = "None"
    documented = "None"
    wrong = ()

    def takes(self, value: Any) -> bool:
        """Return whether a value is None."""
        return value is None

    def read(self, text: str) -> None:
        """Convert the text "None" to None. Raise ValueError for any other text."""
        if text != "None":
            raise ValueError


class Either(Parameter):
    """A parameter with alternatives, such as a number or None.

    Parameters
    ----------
    *kinds : str, None or Parameter
        The alternatives. A str is an allowed word. None means that None is allowed. A `Parameter` describes
        other allowed values.
    """

    def __init__(self, *kinds: str | Parameter | None) -> None:
        words = [kind for kind in kinds if isinstance(kind, str)]
        others = [_Nothing() if kind is None else kind for kind in kinds if not isinstance(kind, str)]
        self.kinds: list[Parameter] = [*([Choice(*words)] if words else []), *others]
        self.wanted = _listed([f'"{word}"' for word in words] + [kind.wanted for kind in others])
        # None comes last, as in annotations.
        types = dict.fromkeys(kind.documented for kind in sorted(self.kinds, key=_order))
        self.documented = _listed(list(types))
        wrong = [value for kind in self.kinds for value in kind.wrong]
        self.wrong = tuple(value for value in wrong if not self.takes(value))

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return any(kind.takes(value) for kind in self.kinds)

    def checked(self, value: Any) -> Any:
        """Convert an allowed value. The value is converted by the first kind in `kinds` that accepts it."""
        return next(kind for kind in self.kinds if kind.takes(value)).checked(value)

    def read(self, text: str) -> Any:
        """Convert text to a value. The text is converted by the first kind in `kinds` that accepts it."""
        for kind in self.kinds:
            try:
                value = kind.read(text)
            except ValueError:
                continue
            if self.takes(value):
                return value
        raise ValueError


class Anything(Parameter):
    """A parameter that cannot be checked without the data or another estimator.

    Every value is allowed here. `fit` checks the value later.

    Parameters
    ----------
    documented : str
        The type of the parameter, as text for docstrings.
    wrong : tuple
        A few values that are allowed here, but for which `fit` raises an error.
    """

    wanted = "as documented"

    def __init__(self, documented: str, *wrong: Any) -> None:
        self.documented, self.wrong = documented, wrong

    def takes(self, value: Any) -> bool:
        """Return True for every value, since only `fit` can check the value."""
        return True

    def read(self, text: str) -> Any:
        """Convert text such as ``0,3,7`` to a list of integers, and other text to a list of words.

        The text is split at commas. The text "None" is converted to None.
        """
        if text == "None":
            return None
        if re.fullmatch(r"\d+(,\d+)*", text):
            return [int(item) for item in text.split(",")]
        return text.split(",")


class Classifier(Parameter):
    """A parameter that is a classifier with scikit-learn's interface.

    On the command line, the value is the name of a classifier of this library.
    """

    wanted = "a multi-label classifier"
    documented = "estimator"
    wrong = ("a", 3, int)

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return not isinstance(value, type) and hasattr(value, "fit") and hasattr(value, "get_params")

    def read(self, text: str) -> Any:
        """Make a classifier from its name on the command line, such as ``dismec``."""
        if text not in COMMANDS:
            raise ValueError
        return COMMANDS[text]()


class Having(Parameter):
    """A parameter that is an object with certain methods.

    Parameters
    ----------
    documented : str
        The type of the parameter, as text for docstrings.
    *methods : str
        The methods that the object must have.
    """

    wrong = (3, int, 1.5)

    def __init__(self, documented: str, *methods: str) -> None:
        self.documented, self.methods = documented, methods
        self.wanted = f"an object with the methods {' and '.join(methods)}"

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return not isinstance(value, type) and all(hasattr(value, method) for method in self.methods)

    def read(self, text: str) -> Any:
        """Raise ValueError, since an object with methods cannot be written as text."""
        raise ValueError


class Threshold(Either):
    """The parameter ``threshold``. Labels with scores above the threshold are predicted."""

    def __init__(self) -> None:
        # Scores are float32, so a threshold must be finite in float32.
        most = float(np.finfo(np.float32).max)
        super().__init__("auto", "zero", Number(least=-most, most=most))
        self.wanted = '"auto", "zero" or a finite number'


class Normalization(Either):
    """The parameter ``normalize``, which selects how features are scaled; see `ScaledFeatures`."""

    def __init__(self) -> None:
        super().__init__("auto", "rows", "columns", Flag())


class Seed(Parameter):
    """The parameter `random_state`. Its value is converted to a seed of 64 bits."""

    wanted = "None, an integer from 0 to 2**32 - 1 or a numpy.random.RandomState"
    documented = "int, RandomState instance or None"
    wrong = ("x", 1.5, -1, 2**32, True)

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        if isinstance(value, Integral):  # making a generator takes longer than a small prediction
            return 0 <= int(value) < 2**32 and not isinstance(value, bool)
        try:
            check_random_state(value)
        except ValueError:
            return False
        return True

    def checked(self, value: Any) -> int:
        """Convert an allowed value to a seed.

        An integer is returned unchanged. If the value is a RandomState instance, this instance draws the
        seed. If the value is None, numpy's global RandomState draws the seed.
        """
        if isinstance(value, Integral):
            return int(value)
        return int(check_random_state(value).randint(np.iinfo(np.int64).max, dtype=np.int64))

    def read(self, text: str) -> int | None:
        """Convert text to an integer or None."""
        return None if text == "None" else int(text)


class Threads(Parameter):
    """The parameter ``n_jobs`` of scikit-learn. It is converted to a number of threads.

    None means 1 thread. -1 means all cores that this process may use, -2 means all cores but one, and so on.
    There are never more threads than cores, since more threads would only wait. `joblib.cpu_count` counts the
    cores, and takes CPU affinity and container quotas into account.
    """

    wanted = "None or an integer other than 0"
    documented = "int or None"
    wrong = (0, 1.5, "a", True)

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return value is None or (_is_integer(value) and value != 0)

    def checked(self, value: Any) -> int:
        """Convert an allowed value to a number of threads."""
        if value is None:
            return 1
        cores = _cores(int(time.monotonic()))
        wanted = int(value) + (cores + 1 if int(value) < 0 else 0)
        return max(1, min(wanted, cores))

    def read(self, text: str) -> int | None:
        """Convert text to an integer or None."""
        return None if text == "None" else int(text)


class Verbosity(Parameter):
    """The parameter ``verbose``. Its value is converted to a bool. If it is True, a progress bar is shown."""

    wanted = "an integer >= 0"
    documented = "int"
    wrong = (-1, "loud", None)

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return isinstance(value, Integral | np.bool_) and int(value) >= 0

    def checked(self, value: Any) -> bool:
        """Convert an allowed value to a bool."""
        return bool(value)

    def read(self, text: str) -> int:
        """Convert text to an integer."""
        return int(text)


class Parameters(Mapping[str, Parameter]):
    """A table that describes the parameters of an estimator class.

    The table lists the parameters in the order of the signature of the class.

    Parameters
    ----------
    **kinds : Parameter
        One argument for each parameter of the estimator class. The keyword is the name of the parameter, and
        the value is its description.

    Examples
    --------
    >>> from manylabel.estimator.parameters import Count, Number, Parameters
    >>> Parameters(C=Number(above=0), max_iter=Count(1))["C"].check("C", 1)
    1.0
    """

    def __init__(self, **kinds: Parameter) -> None:
        self._kinds = kinds

    def __getitem__(self, name: str) -> Parameter:
        return self._kinds[name]

    def __iter__(self) -> Any:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def check(self, estimator: Any) -> dict[str, Any]:
        """Check the parameters of an estimator, and convert them to the types that the Rust core takes.

        Parameters
        ----------
        estimator : object
            The estimator. Its attributes hold the values of the parameters.

        Returns
        -------
        dict of str to object
            The converted value of each parameter, by name.

        Raises
        ------
        ValueError
            If the value of a parameter is not allowed. The message names the first such parameter.

        Notes
        -----
        This method draws a seed from ``random_state``. If ``random_state`` is a RandomState instance, drawing
        the seed changes the state of this instance. Call this method only once per fit.
        """
        return {name: kind.check(name, getattr(estimator, name)) for name, kind in self._kinds.items()}

    def require(self, estimator: Any) -> None:
        """Check the parameters of an estimator as `check` does, but draw no seed from `random_state`.

        Parameters
        ----------
        estimator : object
            The estimator. Its attributes hold the values of the parameters.

        Raises
        ------
        ValueError
            If the value of a parameter is not allowed. The message names the first such parameter.
        """
        for name, kind in self._kinds.items():
            kind.require(name, getattr(estimator, name))


def shown(value: Any) -> str:
    """Return a value as text for an error message. Long text is truncated."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4,300 digits
        return f"a value of type {type(value).__name__} with too many digits to print"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def check_count(name: str, value: Any, least: int) -> int:
    """Check that an argument is an integer >= `least`, and return it as an int."""
    count: int = _count(least).check(name, value)
    return count


@cache  # for speed, since every `predict_topk` calls this function
def _count(least: int) -> Count:
    return Count(least)


def fixed_threshold(threshold: float | str, textbook: float = 0.0) -> float | None:
    """Convert a checked parameter ``threshold`` to a number.

    A number is returned unchanged. If the parameter is "auto", the function returns None, since there is no
    fixed threshold. If the parameter is "zero", the function returns the argument `textbook`.

    `textbook` is the score of a label with log-odds of 0 or with a margin of 0. For example, `textbook` is 0
    if scores are log-odds or margins, and 1/2 if scores are probabilities.
    """
    if isinstance(threshold, str):
        return None if threshold == "auto" else textbook
    return threshold


def n_threads(n_jobs: Any) -> int:
    """Convert the parameter ``n_jobs`` of scikit-learn to a number of threads, as `Threads` does."""
    threads: int = _THREADS.check("n_jobs", n_jobs)
    return threads


@lru_cache(maxsize=1)
def _cores(second: int) -> int:
    """Count the cores that this process may use.

    The result is cached for a second, since counting the cores takes longer than scoring a row.
    """
    return int(joblib.cpu_count())


_THREADS = Threads()

# Parameters that change only how an estimator runs, and not its result. They come last in every table.
RUN: dict[str, Parameter] = {"n_jobs": _THREADS, "verbose": Verbosity()}
SEEDED_RUN: dict[str, Parameter] = {"random_state": Seed(), **RUN}


def _listed(texts: list[str]) -> str:
    *most, last = texts
    return f"{', '.join(most)} or {last}" if most else last


def _order(kind: Parameter) -> int:
    """Return a sort key for the order of alternatives in docstrings.

    A set of words, such as ``{"a", "b"}``, comes first. Then come numbers and other types, then single words,
    and finally None.
    """
    if isinstance(kind, Choice):
        return 0 if len(kind.words) > 1 else 2
    return 3 if isinstance(kind, _Nothing) else 1
