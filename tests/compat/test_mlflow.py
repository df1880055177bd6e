"""Models that are logged in MLflow make the same predictions after MLflow has loaded them."""

import warnings
from importlib.util import find_spec

import numpy as np
import pytest

import manylabel as ml

# MLflow takes a second to import, so only the workers that run these tests import it.
if find_spec("mlflow") is None or find_spec("pandas") is None:
    pytest.skip("manylabel.compat.mlflow needs the packages mlflow and pandas", allow_module_level=True)

# MLflow recommends an example of the input, with which it would load the model and predict.
pytestmark = pytest.mark.filterwarnings("ignore:.*An input example was not provided")

TEXTS = ["a cat and a dog", "income tax law", "my dog", "the law of tax"]
LABELS = [["pets"], ["law", "money"], ["pets"], ["law", "money"]]


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory):
    """The package, with runs in a temporary folder."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        environment.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny has no database
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow warns of its own type hints
            import mlflow
            import mlflow.pyfunc

        mlflow.set_tracking_uri((tmp_path_factory.mktemp("mlflow") / "runs").as_uri())
        yield mlflow


@pytest.fixture(scope="module")
def compat(mlflow):
    import manylabel.compat.mlflow

    return manylabel.compat.mlflow


def test_a_tagger_takes_texts_in_every_form(mlflow, compat, tmp_path):
    import pandas as pd

    tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(TEXTS, LABELS)
    compat.save_model(tagger, tmp_path / "tagger")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "tagger"))
    wanted = tagger.suggest(TEXTS, k=2)
    frame = pd.DataFrame({"title": TEXTS}, index=[3, 5, 7, 9])
    for texts in (TEXTS, np.array(TEXTS), frame["title"], frame):
        found = loaded.predict(texts, params={"k": 2})
        assert list(found.columns) == ["labels", "scores"]
        assert [list(zip(*row, strict=True)) for row in found.itertuples(index=False)] == wanted
    assert found.index.tolist() == [3, 5, 7, 9]
    assert len(loaded.predict(["law"])["labels"][0]) == 3
    (file,) = tmp_path.glob("tagger/data/*")
    assert ml.load(file).suggest("a dog") == tagger.suggest("a dog")
    assert isinstance(loaded.get_raw_model(), ml.TextTagger)


def test_a_logged_classifier_takes_dense_and_sparse_rows(mlflow, compat, tmp_path):
    import pandas as pd

    X, Y = ml.datasets.make_multilabel(100, 20, 6, random_state=0)
    model = ml.LabelTreeClassifier(random_state=0).fit(X, Y)
    with mlflow.start_run():
        info = compat.log_model(model, name="tree", metadata={"source": "test"})
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    assert loaded.metadata.metadata["source"] == "test"
    top = model.predict_topk(X, k=3)
    for rows in (X, X.toarray(), X.toarray().astype(np.float32), pd.DataFrame(X.toarray())):
        found = loaded.predict(rows, params={"k": 3})
        for row, labels, scores in zip(range(100), found["labels"], found["scores"], strict=True):
            assert dict(zip(labels, scores, strict=True)) == dict(
                zip(top[[row]].indices.tolist(), top[[row]].data.tolist(), strict=True)
            )
            assert scores == sorted(scores, reverse=True)


def test_errors_name_what_was_wanted(compat, tmp_path):
    import pandas as pd
    from sklearn.exceptions import NotFittedError
    from sklearn.preprocessing import StandardScaler

    with pytest.raises(TypeError, match=r"must be a TextTagger or a classifier .* got StandardScaler"):
        compat.save_model(StandardScaler(), tmp_path / "scaler")
    with pytest.raises(NotFittedError):
        compat.save_model(ml.DiSMECClassifier(), tmp_path / "model")
    tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(TEXTS, LABELS)
    tagger.save(tmp_path / "model.safetensors")
    function = compat._load_pyfunc(str(tmp_path / "model.safetensors"))
    with pytest.raises(ValueError, match="must have a single column with the texts, got 2"):
        function.predict(pd.DataFrame({"a": TEXTS, "b": TEXTS}))
