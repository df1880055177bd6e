"""Files saved by earlier versions load and predict as they did."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import manylabel as ml
from golden import ESTIMATORS, FOLDER, answers, rows

FILES = sorted(FOLDER.glob("*.model"))


def test_every_estimator_has_a_file():
    kept = {file.stem.rpartition("-")[0] for file in FILES}
    assert kept == ESTIMATORS.keys()
    public = {type(estimator) for estimator in ESTIMATORS.values()}
    classes = {value for name in ml.__all__ if isinstance(value := getattr(ml, name), type)}
    assert public == {each for each in classes if issubclass(each, BaseEstimator)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_predictions_are_those_of_the_version_that_saved(file):
    model = ml.load(file)
    with np.load(file.with_suffix(".npz")) as kept:
        now = answers(model, rows())
        assert now.keys() == set(kept.files)
        for name, value in now.items():
            # Matrix products of doubles are rounded differently by other instruction sets.
            if value.dtype.kind == "f":
                np.testing.assert_allclose(value, kept[name], rtol=1e-6, atol=1e-6, err_msg=name)
            else:
                np.testing.assert_array_equal(value, kept[name], err_msg=name)
