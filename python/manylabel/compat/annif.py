"""A backend for Annif [1]_, a tool for automated subject indexing.

The backend ``manylabel`` trains a `TextTagger` on the documents of an Annif project. Annif's analyzer splits
the texts into words. The model is one file in the data folder of the project. The file contains the
classifier, its calibration, and the terms (words or word sequences) with their IDF weights. The label names
are the URIs of the subjects.

Annif does not find backends in other packages by itself, so this module must be imported before Annif uses
the backend. For example, set the environment variable ``ANNIF_CONFIG`` to the class `Config` of this module::

    ANNIF_CONFIG=manylabel.compat.annif.Config

The value of ``ANNIF_CONFIG`` is the import path of the Python class that contains the settings of Annif. To
load the class `Config`, Annif imports this module. For the command ``annif``, the line above can also be in
the file ``.flaskenv`` in the working folder. If ``ANNIF_CONFIG`` must keep another value, add the line
``import manylabel.compat.annif`` to Annif's settings file instead. The settings file is a Python file. The
environment variable ``ANNIF_SETTINGS`` contains its path. A program that uses Annif as a library only needs
to import this module.

A project with this backend looks like this::

    [yso-manylabel]
    name=YSO manylabel
    language=en
    backend=manylabel
    analyzer=snowball(english)
    vocab=yso
    limit=100
    allow_learn=true

``annif train``, ``suggest``, ``eval``, ``optimize``, ``index`` and the other commands work as usual.

Notes
-----
The backend uses the following settings of a project:

=============== ==============================================================================================
setting         meaning
=============== ==============================================================================================
limit           Maximum number of suggestions per document, 100 by default.
classifier      The classifier, by its name in ``manylabel train --model``; ``label-tree`` by default.
calibrate       Whether scores are calibrated probabilities, ``true`` by default; see
                :class:`manylabel.decision.LabelCalibrator`. With ``false``, training takes less time, and
                scores are the uncalibrated probabilities of the classifier.
min_df          Minimum number of documents that contain a term, 1 by default. Rarer terms are ignored.
ngram           Maximum number of words in a term, 1 by default.
allow_learn     Whether ``annif learn`` is allowed, ``false`` by default. With ``true``, the model file also
                contains the features of the training documents, so that ``annif learn`` does not need to
                read these documents again.
=============== ==============================================================================================

A setting that is a parameter of the classifier is passed to the classifier, for example ``n_trees=3`` or
``beam=10`` for ``label-tree``. The settings ``n_jobs`` and ``verbose`` are not passed.

For the classifier ``label-tree``, the default of ``path_weight`` is 0.25 with this backend. If the project
does not have the setting ``beam``, training uses the default `beam` of the classifier, which is 10.
Suggestions then use a `beam` of 20. With this larger value, the lower part of the list of suggestions
contains more correct subjects. If the project has the setting ``beam``, training and suggestions both use the
value of this setting, even if the value is below 20.

``annif learn`` adds documents to a model. The weights of all subjects of these documents are fitted again on
the old and the new documents. The terms, their IDF weights and the nodes of the tree do not change. However,
a subject that is fitted again may move to another leaf; see :meth:`manylabel.tagging.TextTagger.update`.
Subjects that the model does not have are added. The scores of subjects that are not in the added documents do
not change. The calibration curves, which convert scores to probabilities, are not fitted again. An added
subject uses the calibration curve that was fitted to all subjects together.

Documents without subjects, and documents without words, are not used for training. Subjects that were removed
from the project's subject vocabulary, or that the project excludes, are not suggested.

References
----------
.. [1] O. Suominen, J. Inkinen and M. Lehtinen, "Annif and Finto AI: Developing and Implementing Automated
   Subject Indexing", JLIS.it 2022; https://annif.org.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import Any, ClassVar

import annif.backend
import numpy as np
from annif import default_config
from annif.backend.backend import AnnifLearningBackend
from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)
from annif.suggestion import SuggestionBatch
from annif.util import atomic_save, boolean
from scipy.sparse import csr_array
from scipy.special import expit
from sklearn.feature_extraction.text import TfidfVectorizer

from manylabel.decision import LabelCalibrator
from manylabel.estimator.registry import COMMANDS
from manylabel.persistence import load
from manylabel.tagging import TextTagger
from manylabel.tree import LabelTreeClassifier

__all__ = ["Config", "ManylabelBackend"]

# The words of a text are joined by this character, a control character that separates units of text. The
# vectorizer splits the text there, so the model needs no function of Annif.
_SEPARATOR = "\x1f"

# Fraction of the documents that are held out for the calibration. The folds that a calibrator uses for small
# data would take longer than the training of Annif's omikuji backend.
_HELD_OUT = 0.1

# The beam of the suggestions of a label tree. Annif's users see up to 100 suggestions, which are spread
# over more leaves than the best five. For 30,000 titles of yso-finna-en, a beam of 20 instead of 7 (the
# former default) raises the nDCG of 100 suggestions by about a point.
_BEAM = 20

# The `path_weight` of a label tree. A fit chooses the value for the best five labels. On 3,000 training
# titles of yso-finna-en that were held out from 30,000 others, 0.25 instead of the chosen 0.5 raised the nDCG
# of 100 suggestions from 27.7 to 28.6, and F1@5 from 16.3 to 16.8.
_PATH_WEIGHT = 0.25


class Config(default_config.Config):  # type: ignore[misc]  # Annif has no types
    """Annif's default settings. Importing this module makes the backend ``manylabel`` available.

    To use the backend, set ``ANNIF_CONFIG=manylabel.compat.annif.Config``. Annif then imports this module.

    This setting has no effect on the time at which Annif loads projects. In a web server such as gunicorn or
    uvicorn, Annif loads all projects when the server starts. With the command ``annif``, including
    ``annif run``, Annif loads a project when the project is first used.
    """

    INITIALIZE_PROJECTS = os.environ.get("FLASK_RUN_FROM_CLI") != "true"


class ManylabelBackend(AnnifLearningBackend):  # type: ignore[misc]  # Annif has no types
    """Annif's backend ``manylabel``; see the documentation of the module.

    Annif creates the objects of this class and calls their methods.
    """

    name = "manylabel"
    MODEL_FILE = "manylabel-model.safetensors"
    DEFAULT_PARAMETERS: ClassVar[dict[str, Any]] = {
        "classifier": "label-tree",
        "calibrate": True,
        "min_df": 1,
        "ngram": 1,
    }

    # Values of a backend without a loaded model, as in Annif's other backends.
    _tagger: TextTagger | None = None
    _columns: Any = None

    def initialize(self, parallel: bool = False) -> None:
        """Map the model file into memory, and prepare it for suggestions."""
        if self._tagger is None:
            path = Path(self.datadir, self.MODEL_FILE)
            self.debug(f"loading model from {path}")
            if not path.exists():
                raise NotInitializedException(f"model {path} not found", backend_id=self.backend_id)
            try:
                tagger = load(path)
            except ValueError as error:
                raise OperationFailedException(str(error), backend_id=self.backend_id) from error
            self._use(tagger)

    def _use(self, tagger: TextTagger) -> None:
        """Set the tagger that makes the suggestions, and prepare it."""
        subjects = self.project.subjects
        columns = [subjects.by_uri(uri, warnings=False) for uri in tagger.label_names_.tolist()]
        # Subjects that the vocabulary does not have any more get the number -1.
        self._columns = np.array([-1 if column is None else column for column in columns], dtype=np.int64)
        self._tagger = tagger.prepare()

    def _text(self, text: str) -> str:
        return _SEPARATOR.join(self.project.analyzer.tokenize_words(text))

    def _examples(self, documents: Iterable[Any]) -> Iterator[tuple[str, list[str]]]:
        """Yield the words and the subject URIs of each document that has words and subjects."""
        subjects = self.project.subjects
        for document in documents:
            uris = [subjects[number].uri for number in document.subject_set]
            if uris and (text := self._text(document.text)):
                yield text, uris

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        if corpus == "cached":
            raise NotSupportedException(
                "Training data is not cached by this backend, so documents are needed for training",
                backend_id=self.backend_id,
            )
        if corpus.is_empty():
            raise NotSupportedException("Cannot train with no documents", backend_id=self.backend_id)
        tagger = self._new_tagger(params).set_params(n_jobs=jobs or -1)
        self.info("training")
        try:
            tagger.fit(self._examples(corpus.documents))
        except ValueError as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error
        if "beam" not in params:
            _widen(tagger.classifier_)
        self._save(tagger.set_params(n_jobs=None))

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        self.initialize()
        tagger: Any = self._tagger
        if not hasattr(tagger, "rows_"):
            raise NotSupportedException(
                "The model was trained without allow_learn=true, so it has not kept its training documents; "
                "train the model again with allow_learn=true",
                backend_id=self.backend_id,
            )
        examples = list(self._examples(corpus.documents))
        if not examples:
            raise NotSupportedException(
                "Cannot learn, since no document has both words and subjects", backend_id=self.backend_id
            )
        texts, labels = zip(*examples, strict=True)
        names = sorted({name for row in labels for name in row})
        new = set(names).difference(tagger.label_names_.tolist())
        self.info(f"learning {len(texts)} documents with {len(names)} subjects, {len(new)} of them new")
        calibrator = tagger.classifier_ if isinstance(tagger.classifier_, LabelCalibrator) else None
        learned = copy(tagger)
        try:
            if calibrator is not None:
                learned.classifier_ = calibrator.estimator_
            if new:
                learned.add_labels(texts, labels).refit_labels(names)
            else:
                learned.update(texts, labels)
        except ValueError as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error
        if calibrator is not None:
            learned.classifier_ = _with_labels(calibrator, learned.classifier_)
        self._save(learned)

    def _save(self, tagger: TextTagger) -> None:
        atomic_save(tagger, self.datadir, self.MODEL_FILE)
        self._tagger = None
        self.initialize()

    def _new_tagger(self, params: dict[str, Any]) -> TextTagger:
        """Return an unfitted tagger with the settings of a project."""
        name = str(params["classifier"])
        if name not in COMMANDS:
            raise self._wrong("classifier", f"one of {', '.join(COMMANDS)}", name)
        classifier = COMMANDS[name]()
        for key, kind in classifier.parameters.items():
            if key in params and key not in ("n_jobs", "verbose"):
                given = params[key]
                try:
                    value = kind.read(given) if isinstance(given, str) else given
                    kind.check(key, value)
                except ValueError as error:
                    raise self._wrong(key, kind.wanted, given) from error
                classifier.set_params(**{key: value})
        if isinstance(classifier, LabelTreeClassifier) and "path_weight" not in params:
            classifier.set_params(path_weight=_PATH_WEIGHT)
        if "random_state" in classifier.parameters and "random_state" not in params:
            classifier.set_params(random_state=0)
        counts = {}
        for key in ("min_df", "ngram"):
            try:
                counts[key] = int(params[key])
            except ValueError as error:
                raise self._wrong(key, "an integer", params[key]) from error
        vectorizer = TfidfVectorizer(
            sublinear_tf=True,
            dtype=np.float32,
            lowercase=False,
            token_pattern=f"[^{_SEPARATOR}]+",
            min_df=counts["min_df"],
            ngram_range=(1, counts["ngram"]),
        )
        if boolean(params["calibrate"]):
            classifier = LabelCalibrator(classifier, cv=_HELD_OUT, random_state=0)
        keeps = boolean(params.get("allow_learn", False))
        return TextTagger(classifier, vectorizer=vectorizer, keep_rows=keeps)

    def _wrong(self, key: str, wanted: str, given: Any) -> ConfigurationException:
        return ConfigurationException(
            f"{key}: expected {wanted}, got {given!r}", project_id=self.project.project_id
        )

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> SuggestionBatch:
        tagger: Any = self._tagger
        X = tagger.vectorizer_.transform([self._text(document.text) for document in documents])
        found = _probabilities(tagger.classifier_, X, int(params["limit"]))
        # A document whose words are all unknown gets no suggestions.
        known = np.diff(X.indptr) > 0
        rows = np.repeat(np.arange(len(documents)), np.diff(found.indptr))
        columns = self._columns[found.indices]
        used = (columns >= 0) & known[rows] & (found.data > 0)
        shape = (len(documents), len(self.project.subjects))
        entries = (found.data[used].astype(np.float32), (rows[used], columns[used]))
        return SuggestionBatch(csr_array(entries, shape=shape))


def _probabilities(classifier: Any, X: csr_array, k: int) -> csr_array:
    """Return the probabilities of the k best labels of every row."""
    if hasattr(classifier, "predict_proba_topk"):
        calibrated: csr_array = classifier.predict_proba_topk(X, k=k)
        return calibrated
    top: csr_array = classifier.predict_topk(X, k=k)
    top.data = expit(classifier._log_odds(top.data))
    return top


def _widen(classifier: Any) -> None:
    """Set the parameter `beam` of a label tree to 20 if it is lower.

    The search for suggestions then visits more nodes than the search during training.
    """
    tree = getattr(classifier, "estimator_", classifier)
    if isinstance(tree, LabelTreeClassifier):
        tree.set_params(beam=max(tree.beam, _BEAM))


def _with_labels(calibrator: LabelCalibrator, estimator: Any) -> LabelCalibrator:
    """Return a copy of a calibrator, with an updated classifier in place of the old one.

    The updated classifier has the old labels first, and then the new labels. The old labels keep their
    calibration curves. The new labels use the curve that was fitted to all labels together.
    """
    changed = copy(calibrator)
    n_new = len(estimator.classes_) - len(calibrator.classes_)
    changed.estimator_ = estimator
    changed.classes_ = estimator.classes_
    changed.intercept_ = np.append(calibrator.intercept_, np.zeros(n_new))
    changed.slope_ = np.append(calibrator.slope_, np.ones(n_new))
    return changed


def _backend() -> type[ManylabelBackend]:
    return ManylabelBackend


annif.backend._backend_fns[ManylabelBackend.name] = _backend
