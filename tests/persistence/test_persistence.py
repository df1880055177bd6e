"""Model files: values are restored, values that cannot be saved are named, and writing is atomic."""

import math
import os
import pickle
import re
import sys

import joblib
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from safetensors.numpy import load_file
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from manylabel import persistence
from manylabel.estimator.registry import CLASSES
from manylabel.persistence import load, register, save_model

posix_only = pytest.mark.skipif(
    os.name != "posix", reason="Windows neither replaces nor deletes mapped files"
)


@register
class Linear(BaseEstimator):
    def __init__(self, C=1.0, mode="accuracy", random_state=None):
        self.C = C
        self.mode = mode
        self.random_state = random_state

    def fit(self, X, Y):
        raise NotImplementedError


@register
class Blocks(BaseEstimator):
    def __init__(self, estimator, n_blocks="auto"):
        self.estimator = estimator
        self.n_blocks = n_blocks

    def fit(self, X, Y):
        raise NotImplementedError


def fitted(cls=Linear, params=None, **attributes):
    estimator = cls(**(params or {}))
    vars(estimator).update(attributes)
    return estimator


def small_model():
    """A model with values of all kinds, about two kilobytes on disk."""
    base = fitted(params={"C": np.float32(0.1)}, coef_=np.arange(6, dtype=np.float32).reshape(2, 3))
    return fitted(
        Blocks,
        {"estimator": Linear(C=math.inf, mode="größer"), "n_blocks": (2, [None, True])},
        n_features_in_=3,
        feature_names_in_=np.array(["a", "", "日本", "\udc80"], dtype=object),
        classes_=np.arange(4),
        label_blocks_=[np.array([0, 2], dtype=np.int32), np.array([1, 3], dtype=np.int32)],
        estimators_=[
            base,
            fitted(coef_=csr_array(np.array([[0, 1.5], [2, 0]])), mask_=np.array([True, False])),
        ],
    )


def assert_same(got, wanted):
    assert type(got) is type(wanted)
    if isinstance(wanted, BaseEstimator):
        assert_same(vars(got), vars(wanted))
    elif isinstance(wanted, dict):
        assert got.keys() == wanted.keys()
        for name in wanted:
            assert_same(got[name], wanted[name])
    elif isinstance(wanted, list | tuple):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_same(one, other)
    elif isinstance(wanted, csr_array | csc_array):
        assert got.shape == wanted.shape
        for part in ("data", "indices", "indptr"):
            assert_same(getattr(got, part), getattr(wanted, part))
    elif isinstance(wanted, np.ndarray) and wanted.dtype == object:
        assert got.dtype == object
        assert_same(got.tolist(), wanted.tolist())
    elif isinstance(wanted, np.ndarray | np.generic):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert got.tobytes() == wanted.tobytes()  # also compares the bits of NaNs and the signs of zeros
    else:
        assert repr(got) == repr(wanted)  # 1 differs from True, and nan equals nan


def round_trip(estimator, tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(estimator, path)
    return load(path)


# --- round trips


def test_nested_model_round_trips(tmp_path):
    model = small_model()
    assert_same(round_trip(model, tmp_path), model)


numbers = st_np.scalar_dtypes().filter(lambda dtype: dtype.kind in "biuf" and dtype.itemsize <= 8)
arrays = st_np.arrays(numbers, st_np.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=True),
    st.text(st.characters()),
    arrays.filter(lambda array: array.size).map(lambda array: array.reshape(-1)[0]),
)
parameters = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple), max_leaves=6
)
attributes = st.one_of(
    parameters,
    arrays,
    arrays.map(np.asfortranarray),
    st.lists(arrays, max_size=3),
    st.lists(st.text(st.characters()), max_size=4).map(
        lambda texts: np.array([*texts, ""], dtype=object)[:-1]
    ),
)


def native(value):
    """The value as it is restored: numbers have the byte order of the machine."""
    if isinstance(value, list | tuple):
        return type(value)(map(native, value))
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        return value.astype(value.dtype.newbyteorder("="))
    return value


@given(st.lists(parameters, min_size=3, max_size=3), st.lists(attributes, min_size=3, max_size=3))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_kind_of_value_round_trips(tmp_path, params, values):
    params = dict(zip(("C", "mode", "random_state"), params, strict=True))
    model = fitted(params=params, **{f"a{i}_": value for i, value in enumerate(values)})
    wanted = fitted(
        params={name: native(value) for name, value in params.items()},
        **{f"a{i}_": native(value) for i, value in enumerate(values)},
    )
    assert_same(round_trip(model, tmp_path), wanted)


@pytest.mark.parametrize("form", [csr_array, csc_array])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(7, 5), (0, 5), (7, 0), (3, 1)])
def test_sparse_matrices_keep_their_arrays_as_they_are(tmp_path, form, index, shape):
    matrix = form(np.random.default_rng(0).integers(0, 2, shape).astype(float))
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    got = round_trip(fitted(coef_=matrix), tmp_path).coef_
    assert_same(got, matrix)
    assert not got.data.flags.owndata
    np.testing.assert_array_equal((got @ np.ones((shape[1], 2))), matrix @ np.ones((shape[1], 2)))


def test_strided_and_fortran_arrays(tmp_path):
    square = np.arange(12.0).reshape(3, 4)
    got = round_trip(fitted(strided_=square[:, ::2], fortran_=square.T), tmp_path)
    np.testing.assert_array_equal(got.strided_, square[:, ::2])
    np.testing.assert_array_equal(got.fortran_, square.T)
    assert got.strided_.flags.c_contiguous
    assert got.fortran_.flags.f_contiguous


def test_numpy_str_becomes_str(tmp_path):
    assert_same(round_trip(fitted(params={"mode": np.str_("speed")}, a_=1), tmp_path).mode, "speed")


def test_private_and_unfitted_names_stay_behind(tmp_path):
    model = fitted(a_=1, _cache_=object(), extra=object())
    assert vars(round_trip(model, tmp_path)) == {"C": 1.0, "mode": "accuracy", "random_state": None, "a_": 1}


def test_arrays_are_aligned_read_only_views_of_the_file(tmp_path):
    loaded = round_trip(small_model(), tmp_path)
    for array in (loaded.classes_, loaded.label_blocks_[1], loaded.estimators_[1].coef_.indices):
        assert array.flags.aligned
        assert not array.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)


def test_loaded_models_can_be_pickled_dumped_and_saved_again(tmp_path):
    model = small_model()
    loaded = round_trip(model, tmp_path)
    assert_same(pickle.loads(pickle.dumps(loaded)), model)
    joblib.dump(loaded, tmp_path / "model.joblib")
    assert_same(joblib.load(tmp_path / "model.joblib"), model)
    mapped = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    save_model(mapped, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


def test_other_readers_open_the_file(tmp_path):
    save_model(small_model(), tmp_path / "model")
    tensors = load_file(tmp_path / "model")
    assert_same(tensors["estimators_.0.coef_"], small_model().estimators_[0].coef_)
    assert_same(tensors["classes_"], small_model().classes_)


# --- values that cannot be saved


def loop():
    ring = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            fitted(params={"C": np.ones(2)}, a_=1),
            TypeError,
            "`C` cannot be saved: .* got an ndarray of float64",
        ),
        (fitted(params={"mode": max}, a_=1), TypeError, "`mode` cannot be saved: .* got builtin_function"),
        (fitted(params={"mode": {"a": 1}}, a_=1), TypeError, "`mode` cannot be saved: .* got dict"),
        (
            fitted(Blocks, {"estimator": Linear(random_state=np.random.RandomState(0))}, a_=1),
            TypeError,
            r"`estimator.random_state` cannot be saved: a RandomState .*set_params\(estimator__random_state=",
        ),
        (fitted(a_=np.array([1j])), TypeError, "`a_` cannot be saved: .* got an ndarray of complex128"),
        (fitted(a_=[1, {2}]), TypeError, r"`a_\.1` cannot be saved: .* got set"),
        (
            fitted(a_=np.array(["a", 1], dtype=object)),
            TypeError,
            "`a_` cannot be saved: .* ndarray of object",
        ),
        (fitted(a_=np.ma.ones(2)), TypeError, "`a_` cannot be saved: .* got an ndarray"),
        (fitted(a_=csr_matrix((2, 2))), TypeError, "`a_` cannot be saved: .* got csr_matrix"),
        (fitted(a_=coo_array((2, 2))), TypeError, "`a_` cannot be saved: .* got coo_array"),
        (fitted(a_=BaseEstimator()), TypeError, "`a_` cannot be saved: expected an estimator of manylabel"),
        (
            fitted(a_=Linear),
            TypeError,
            "`a_` cannot be saved: expected an estimator of manylabel or an instance of .*, got type",
        ),
        (fitted(type("Child", (Linear,), {}), a_=1), TypeError, "`estimator` cannot be saved: .* got Child"),
        (fitted(a_=loop()), ValueError, "lists and tuples of the model are nested deeper than 32 levels"),
        (Linear(), NotFittedError, "not fitted"),
    ],
)
def test_what_cannot_be_saved_is_named_and_leaves_no_file(tmp_path, model, error, message):
    with pytest.raises(error, match=message):
        save_model(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_sparse_matrix_is_not_saved(tmp_path):
    matrix = csr_array(np.eye(3))
    matrix.indices[0] = 3
    with pytest.raises(ValueError, match="`indices` of a sparse matrix must be >= 0 and < 3, got 3"):
        save_model(fitted(coef_=matrix), tmp_path / "model")


def test_a_header_without_end_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(persistence, "_MAX_HEADER", 1000)
    with pytest.raises(ValueError, match=r"the header of its file must have at most 1000 bytes, got \d+;"):
        save_model(fitted(a_=list(range(1000))), tmp_path / "model")


def test_class_names_are_unique():
    assert register(Linear) is Linear
    with pytest.raises(ValueError, match="must have a unique name, got Linear"):
        register(type("Linear", (BaseEstimator,), {"__module__": "elsewhere"}))
    assert CLASSES["Linear"] is Linear


# --- writing


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt("stopped")])
def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, function, error):
    path = tmp_path / "model"
    save_model(small_model(), path)

    def fail(*_):
        assert len(list(tmp_path.iterdir())) == 2
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(type(error), match=str(error)):
            save_model(fitted(a_=1), path)
    assert list(tmp_path.iterdir()) == [path]
    assert_same(load(path), small_model())


@posix_only
def test_saving_over_a_loaded_model_does_not_touch_it(tmp_path):
    loaded = round_trip(small_model(), tmp_path)
    loaded.n_features_in_ = 7
    save_model(loaded, tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").n_features_in_ == 7
    (tmp_path / "model.safetensors").unlink()
    np.testing.assert_array_equal(loaded.classes_, np.arange(4))


@posix_only
def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        save_model(small_model(), tmp_path / "model")
    finally:
        os.umask(before)
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o640


@posix_only
def test_symbolic_links_are_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "current").symlink_to(tmp_path / "elsewhere" / "model")
    save_model(small_model(), tmp_path / "current")
    assert (tmp_path / "current").is_symlink()
    assert_same(load(tmp_path / "elsewhere" / "model"), small_model())


def test_paths_that_cannot_be_written(tmp_path):
    with pytest.raises(IsADirectoryError, match=re.escape(tmp_path.name)):
        save_model(small_model(), tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        save_model(small_model(), tmp_path / "missing" / "model")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_loading_maps_the_file_and_copies_nothing(tmp_path):
    save_model(fitted(coef_=np.ones((1000, 2500))), tmp_path / "model")

    def anonymous():
        with open("/proc/self/smaps_rollup") as rollup:
            return next(int(line.split()[1]) for line in rollup if line.startswith("Anonymous:"))

    before = anonymous()
    model = load(tmp_path / "model")
    assert model.coef_.sum() == 2_500_000
    assert anonymous() - before < 10_000  # kilobytes; the array has 20,000
