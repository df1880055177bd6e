"""The tables of parameters, compared with signatures, annotations and docstrings."""

import inspect
import os
import re
import sys
from fractions import Fraction
from itertools import product
from typing import Any, Literal, get_args, get_origin, get_type_hints

import joblib
import numpy as np
import pytest

from cases import case
from children import forked, forks
from estimators import CLASSIFIERS, PARTITIONERS, REQUIRED, TRANSFORMERS, made
from manylabel import BoostedRulesClassifier
from manylabel.estimator import parameters
from manylabel.estimator.parameters import (
    Choice,
    Classifier,
    Count,
    Either,
    Flag,
    Number,
    Parameters,
    Seed,
    Threads,
    Threshold,
)

CLASSES = sorted(
    {type(each) for each in CLASSIFIERS + TRANSFORMERS + PARTITIONERS}, key=lambda cls: cls.__name__
)

every_class = pytest.mark.parametrize("cls", CLASSES)


def defaults(cls):
    """The parameters that have a default, and their defaults."""
    signature = inspect.signature(cls).parameters
    assert {name for name, each in signature.items() if each.default is each.empty} == set(
        REQUIRED.get(cls, {})
    )
    return {name: each.default for name, each in signature.items() if each.default is not each.empty}


@every_class
def test_the_table_has_the_signature(cls):
    assert list(cls.parameters) == list(inspect.signature(cls).parameters)
    for name, default in (defaults(cls) | REQUIRED.get(cls, {})).items():
        assert cls.parameters[name].takes(default), name


def literals(annotation):
    """The literal words of an annotation, including those in a union."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {word for part in get_args(annotation) for word in literals(part)}


@every_class
def test_annotations_name_the_words_of_the_table(cls):
    hints = get_type_hints(cls.__init__)
    for name, kind in cls.parameters.items():
        kinds = kind.kinds if isinstance(kind, Either) else [kind]
        words = {word for each in kinds if isinstance(each, Choice) for word in each.words}
        if hints[name] is not Any:
            assert literals(hints[name]) == words, name


@every_class
def test_the_docstring_gives_the_types_of_the_table(cls):
    # A description may have several paragraphs, so the section ends before the next heading.
    section = re.search(r"Parameters\n-+\n(.*?)\n\n[^\n]+\n-+\n", cls.__doc__, re.DOTALL).group(1)
    documented = dict(re.findall(r"^(\w+) : (.*)$", section, re.MULTILINE))
    assert list(documented) == list(cls.parameters)
    given = defaults(cls)
    for name, kind in cls.parameters.items():
        types, _, of_docstring = documented[name].rpartition(", default=")
        if name in given:
            default = given[name]
            shown = f'"{default}"' if isinstance(default, str) else str(default)
            assert of_docstring == shown or float(of_docstring) == float(shown), name
        else:
            types = documented[name]
        assert types in (kind.documented, f"{kind.documented} or None"), name


@every_class
def test_defaults_are_read_from_text(cls):
    for name, default in defaults(cls).items():
        if name not in ("verbose", "categorical_features"):
            assert cls.parameters[name].read(str(default)) == default, name


@every_class
def test_wrong_values_are_refused(cls):
    for name, kind in cls.parameters.items():
        if name != "categorical_features":
            assert kind.wrong, name
            assert not any(kind.takes(value) for value in kind.wrong), name


N, D, C = 12, 6, 3


@every_class
def test_fits_refuse_wrong_values(cls):
    for name, kind in cls.parameters.items():
        wanted = kind.wanted
        if name == "categorical_features":  # checked together with the data
            mask = f"a boolean mask of length {D}, or feature names if X has names"
            wanted = f"None, positions from 0 to {D - 1}, {mask}"
        # The data are None: parameters are checked before the data are looked at.
        X, Y = (None, None) if name != "categorical_features" else (np.ones((N, D)), np.ones((N, C)))
        for value in kind.wrong:
            error = pytest.raises(ValueError, match=f"^`{name}` must be {re.escape(wanted)}, got ")
            with case(name, type(value), value), error:
                made(cls, **{name: value}).fit(X, Y)


BEYOND = {
    "1e400": 10**400,
    "-1e400": -(10**400),
    "1e5000": 10**5000,
    "fraction": Fraction(10**5000, 3),
    "long double": np.longdouble("1e4000"),
    "-inf": np.longdouble("-inf"),
}


@every_class
def test_numbers_beyond_all_floats_are_refused_by_name_or_mean_much(cls):
    parameters = {name: kind for name, kind in cls.parameters.items() if name != "categorical_features"}
    for (name, kind), (number, value) in product(parameters.items(), BEYOND.items()):
        with case(name, number):
            if kind.takes(value):
                # Counts are clipped to a maximum, and a penalty may be infinite.
                checked = kind.check(name, value)
                assert type(checked) in (int, bool) or checked == np.inf
            else:
                with pytest.raises(ValueError, match=f"^`{name}` must be {re.escape(kind.wanted)}, got "):
                    made(cls, **{name: value}).fit(None, None)


@pytest.mark.parametrize("value", [[10**400], [10**5000], 10**5000], ids=["1e400", "1e5000", "no list"])
def test_categorical_features_beyond_all_integers_are_refused(value):
    model = BoostedRulesClassifier(categorical_features=value)
    with pytest.raises(ValueError, match=r"^`categorical_features` must be None, positions from 0 to 5"):
        model.fit(np.ones((N, D)), np.ones((N, C)))


def test_cores_are_those_the_process_may_use(monkeypatch):
    for cores, threads in ((1, [1, 1, 1, 1, 1]), (6, [1, 6, 5, 6, 3])):
        parameters._cores.cache_clear()
        monkeypatch.setattr(joblib, "cpu_count", lambda cores=cores: cores)
        assert [parameters.n_threads(n_jobs) for n_jobs in (None, -1, -2, 10**400, 3)] == threads
    # The number of cores may change while the process runs. It is read at most once in a second.
    seconds = iter([100.0, 100.9, 102.0])
    monkeypatch.setattr(parameters.time, "monotonic", lambda: next(seconds))
    counts = iter([4, 2])
    monkeypatch.setattr(joblib, "cpu_count", lambda: next(counts))
    assert [parameters.n_threads(-1) for _ in range(3)] == [4, 4, 2]
    parameters._cores.cache_clear()


def count_threads_on_one_core(pipe):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    parameters._cores.cache_clear()  # a fork of this process has its cache
    pipe.send(parameters.n_threads(-1))


@pytest.mark.skipif(sys.platform != "linux", reason="needs os.sched_setaffinity")
@forks
def test_affinity_counts():
    with forked(count_threads_on_one_core) as (receiver, _):
        assert receiver.recv() == 1


RIGHT = [
    (Number(above=0), [1, 1.5, np.float32(2), np.int64(3), 1e-300]),
    (Number(least=0, below=1), [0, 0.5, np.nextafter(1, 0)]),
    (Number(above=0, infinite=True), [1.0, np.inf]),
    (Count(1), [1, np.int32(5), 2**70]),
    (Flag(), [True, False, np.True_]),
    (Choice("a", "b"), ["a", "b"]),
    (Either("auto", Number(above=0)), ["auto", 0.5]),
    (Either(None, Count(1)), [None, 7]),
    (Seed(), [None, 0, 2**32 - 1, np.int64(3), np.random.RandomState(0)]),
    (Threads(), [None, -1, 1]),
    (Threshold(), ["auto", "zero", 0.0, -1]),
]


def test_right_values_become_plain_python():
    for kind, values in RIGHT:
        for value in values:
            with case(kind.wanted, value):
                assert type(kind.check("name", value)) in (float, int, bool, str, type(None))


def test_a_number_is_named_with_its_bounds():
    assert Number(above=0).wanted == "a finite number > 0"
    assert Number(above=0, most=1).wanted == "a number > 0 and <= 1"
    with pytest.raises(ValueError, match="`share` must be None or a number > 0 and <= 1, got 2"):
        Either(None, Number(above=0, most=1)).check("share", 2)


def test_either_gives_what_the_first_kind_makes_of_a_value():
    kind = Either("log2", Count(1), Number(above=0, most=1), None)
    assert [kind.check("max_features", value) for value in ("log2", 1, 1.0, None)] == ["log2", 1, 1.0, None]
    assert isinstance(kind.check("max_features", 1), int)
    assert kind.documented == 'int, float, "log2" or None'


def test_more_than_32_bits_count_as_that():
    assert Count(1).check("n", 2**70) == 2**31 - 1
    assert Number(above=0, infinite=True).takes(10**400) is False


def test_seeds():
    assert Seed().check("random_state", 7) == 7
    draw = [Seed().check("random_state", np.random.RandomState(0)) for _ in range(2)]
    assert draw[0] == draw[1]


def test_classifiers_go_by_their_names_on_the_command_line():
    assert type(Classifier().read("dismec")).__name__ == "DiSMECClassifier"
    with pytest.raises(ValueError):  # noqa: PT011
        Classifier().read("no-such-model")


def test_parameters_are_checked_in_order():
    class Thing:
        a, b = 0, "x"

    with pytest.raises(ValueError, match="`a` must be"):
        Parameters(a=Count(1), b=Count(1)).check(Thing())
