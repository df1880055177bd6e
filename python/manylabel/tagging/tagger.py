"""The estimator `TextTagger`, which assigns named labels to texts and is saved in one model file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice, pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from manylabel.decision import DecisionClassifier
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import built_aside
from manylabel.estimator.explanation import LabelExplanation
from manylabel.estimator.names import NamedRows, as_names, check_label, named_indicator, pairs_of
from manylabel.estimator.parameters import check_count, shown
from manylabel.estimator.progress import Bar, Progress, Tell
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Attribute, Schema, Sizes, SparseMatrix
from manylabel.estimator.validation import canonical_csr
from manylabel.tagging.changes import EditableTagger, identifiers
from manylabel.tagging.features import (
    at_least_one,
    checked_texts,
    features_of_text,
    names_of_features,
    prepare_text,
    readable,
    takes_texts,
)
from manylabel.tree import LabelTreeClassifier

__all__ = ["TextTagger"]

Suggestions = list[tuple[str, float]]

# Number of texts whose features are in memory at a time.
_BLOCK = 4096

# Number of texts between two reports of progress.
_TOLD = 256

# The seed of the rows that `decision` holds out.
_SEED = 0


class _Classifier(Attribute):
    """Description of the attribute `classifier_`, which is a fitted classifier."""

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if not hasattr(value, "predict_topk") or not hasattr(value, "classes_"):
            raise ValueError(f"`{name}` must be a fitted classifier, got {type(value).__name__}")
        for size, found in (("n_features", value.n_features_in_), ("n_labels", len(value.classes_))):
            if sizes.setdefault(size, found) != found:
                raise ValueError(f"`{size}` of `{name}`: expected {sizes[size]}, got {found}")


class _Object(Attribute):
    """Description of a fitted attribute that is None or an object with a given method."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if value is not None and not hasattr(value, self.method):
            raise ValueError(
                f"`{name}` must be None or an object with the method {self.method}, "
                f"got {type(value).__name__}"
            )


class _Rows(Attribute):
    """Description of the attribute `rows_`, which is a CSR matrix or an ndarray."""

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        shape = ("n_rows", "n_features")
        kind = SparseMatrix("csr", shape, "f4 f8") if issparse(value) else Array(shape, "f4 f8")
        kind.check(name, value, sizes)


@register
class TextTagger(EditableTagger):
    """Tagger of texts: a vectorizer, a classifier and the names of its labels, saved in one file.

    `fit` converts texts to features and fits a classifier. `suggest` returns the names and the scores of the
    best labels for a text. `predict` chooses a set of labels for each text and returns the names of these
    labels. `save` writes everything to one model file: the vocabulary and the idf weights, the names of the
    labels, and the weights of the classifier. `manylabel.load` maps this file into memory. The file contains
    no code.

    Parameters
    ----------
    classifier : estimator or None, default=None
        Classifier with the method `predict_topk`. None means ``LabelTreeClassifier(random_state=0)``.
    vectorizer : "tfidf", vectorizer or None, default="tfidf"
        Vectorizer that converts texts to features. "tfidf" means
        ``TfidfVectorizer(sublinear_tf=True, dtype=np.float32)``. Any vectorizer of scikit-learn is allowed.
        However, a tagger cannot be saved if a parameter of its vectorizer is a function. None means that all
        methods get matrices of features instead of texts.
    decision : DecisionRule or None, default=None
        Rule of :mod:`manylabel.decision`, such as ``Thresholds("example_f1")``. The rule chooses the label
        sets of `predict` from probabilities. The probabilities are computed by a `DecisionClassifier`, which
        calibrates them on held-out rows. None means that the classifier chooses the label sets.
    keep_rows : bool, default=False
        Whether to keep the features and labels of the training rows in the model. The method `update` needs
        these rows, and `refit_labels` and `merge_labels` use them if no texts are given.
    n_jobs : int or None, default=None
        Number of threads that fit the classifier. None means the parameter `n_jobs` of the classifier.
    verbose : int, default=0
        With 1 or more, `fit` shows a progress bar for the conversion of the texts, and then the progress bar
        of the classifier. With 0, it shows these bars only if the parameter `verbose` of the classifier is 1
        or more.

    Attributes
    ----------
    classifier_ : estimator
        The fitted classifier. With `decision`, it is a `DecisionClassifier`.
    vectorizer_ : vectorizer or None
        The fitted vectorizer.
    label_names_ : ndarray of shape (n_labels,), dtype object
        The names of the labels. If `fit` gets lists of names but no argument `label_names`, it sorts the
        names.
    label_ids_ : ndarray of shape (n_labels,), dtype object
        The identifiers of the labels. The attribute exists only if `label_ids` was passed to `fit` or to
        `from_pipeline`.
    rows_ : csr_array of shape (n_rows, n_features), or ndarray
        Features of the training rows. The attribute exists only if `keep_rows` is True.
    row_labels_ : csr_array of shape (n_rows, n_labels), dtype float32
        Labels of the training rows. The attribute exists only if `keep_rows` is True.
    label_changes_ : ndarray of shape (n_changes,), dtype object
        One description (str) for each change of the labels after the fit, such as
        ``"rename 'cats' to 'felines'"``, oldest first. The attribute exists only if there were such changes.
    feature_names_in_ : ndarray of shape (n_features_in_,), dtype object
        Not set, unlike in other estimators. If `vectorizer` is None and the matrix of features had column
        names in `fit`, these names are in ``classifier_.feature_names_in_``.

    See Also
    --------
    manylabel.tagging.read_texts : Read texts and the names of their labels from files.

    Notes
    -----
    The scores of `suggest` are probabilities if `decision` is given, or if the classifier is a
    `LabelCalibrator` or a `DecisionClassifier`. Otherwise, they are the scores that `predict_topk` of the
    classifier returns.

    The texts are read once and are not kept. They are converted to features on one thread. The conversion of
    120,000 titles takes 3.4 seconds, which is a small part of the time of a fit.

    With `decision`, rows are held out to calibrate the probabilities and to fit the decision rule. The number
    of fits depends on the number of ones in the 0/1 indicator matrix of the labels. With fewer than 250,000
    ones, there are five folds of held-out rows. The classifier is then fitted six times: once for each fold,
    and once to all rows. With 250,000 ones or more, a tenth of the rows is held out. The classifier is then
    fitted twice: once to the other rows, and once to all rows. With the rule
    `manylabel.decision.RiskControl`, a tenth of the rows is always held out, and the classifier is fitted
    only once, to the other rows.

    Examples
    --------
    >>> import manylabel as ml
    >>> texts = ["a cat and a dog", "income tax law", "my dog", "the law of tax"]
    >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0))
    >>> tagger = tagger.fit(texts, [["pets"], ["law", "money"], ["pets"], ["law", "money"]])
    >>> [name for name, score in tagger.suggest("a dog", k=1)]
    ['pets']
    >>> tagger.save("tagger.safetensors")
    >>> ml.load("tagger.safetensors").predict(["taxes are law"])
    [['law', 'money']]
    """

    parameters = kinds.Parameters(
        classifier=kinds.Either(kinds.Classifier(), None),
        vectorizer=kinds.Either("tfidf", kinds.Having("vectorizer", "fit_transform", "transform"), None),
        decision=kinds.Either(kinds.Having("decision rule", "fit", "predict"), None),
        keep_rows=kinds.Flag(),
        **kinds.RUN,
    )

    schema = Schema(
        label_names_=Array(("n_labels",), "O"),
        label_ids_=Array(("n_labels",), "O", optional=True),
        label_changes_=Array(("n_changes",), "O", optional=True),
        classifier_=_Classifier(),
        vectorizer_=_Object("transform"),
        rows_=_Rows(optional=True),
        row_labels_=SparseMatrix("csr", ("n_rows", "n_labels"), "f4", optional=True),
    )

    vectorizer_: Any

    def __init__(
        self,
        classifier: Any = None,
        *,
        vectorizer: Any = "tfidf",
        decision: Any = None,
        keep_rows: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    @built_aside
    def fit(
        self,
        texts: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        label_names: Sequence[str] | None = None,
        label_ids: Mapping[str, str] | Sequence[str] | None = None,
        progress: Progress = None,
    ) -> None:
        """Fit the vectorizer, the classifier and the decision rule.

        Parameters
        ----------
        texts : iterable of str, iterable of pairs, or matrix of shape (n_samples, n_features)
            The texts, for example a list or a column of a data frame. If `labels` is None, pass pairs of a
            text and the names of its labels, such as the result of `read_texts`. If `vectorizer` is None,
            pass a matrix of features instead of texts.
        labels : iterable of iterables of str, or indicator matrix, default=None
            The names of the labels of each text, or a 0/1 indicator matrix of shape (n_samples, n_labels). A
            data frame is an indicator matrix, and the names of its columns are the names of the labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the texts, >= 0. None means equal weights. `sample_weight` must be None if the
            parameter `keep_rows` of the tagger is True.
        label_names : sequence of str, default=None
            Names of the labels, which must be unique. This argument is necessary if `labels` is an ndarray or
            a sparse matrix. If `labels` contains lists of names, `label_names` contains all allowed names,
            and its order becomes the order of the labels. None means all names in the lists, sorted, or the
            names of the columns of a data frame.
        label_ids : mapping of str to str, or sequence of str of length n_labels, default=None
            Identifiers of the labels, such as URIs. A mapping has the names as keys. A sequence has one
            identifier for each name, in the order of the labels. Identifiers must be unique.
        progress : callable, default=None
            Function that is called regularly during the fit. While texts are converted to features, the
            argument is 0. While the classifier is fitted, the argument is the amount of work done so far,
            such as the number of fitted labels. The unit of this amount depends on the classifier. If the
            function raises an exception, the fit stops.

        Returns
        -------
        self
            The tagger itself. It does not change if the fit fails or is interrupted.

        Raises
        ------
        ValueError
            If an argument or parameter is not valid. The message states the expected value and the given
            value.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> tagger.label_names_.tolist()
        ['cats', 'dogs', 'law', 'tax']
        >>> pairs = zip(texts, labels, strict=True)  # or the result of read_texts
        >>> tagger.fit(pairs).suggest("my cat", k=1) == tagger.suggest(["my cat"], k=1)[0]
        True
        """
        self.parameters.check(self)
        if self.keep_rows and self.decision is not None:
            raise ValueError(
                "`keep_rows` must be False if `decision` is given, got keep_rows=True and "
                f"{type(self.decision).__name__}; the labels of a tagger with a decision rule cannot change"
            )
        classifier = (
            LabelTreeClassifier(random_state=0) if self.classifier is None else clone(self.classifier)
        )
        if not hasattr(classifier, "predict_topk"):
            raise ValueError(f"`classifier` must have the method predict_topk, got {classifier!r}")
        if self.keep_rows and sample_weight is not None:
            raise ValueError(
                f"`sample_weight` must be None if `keep_rows` is True, got {shown(sample_weight)}; "
                "`keep_rows` stores features and labels, but no weights"
            )
        self.vectorizer_ = self._new_vectorizer()
        shows = bool(self.verbose or getattr(classifier, "verbose", 0))
        with Bar(unit=" texts", disable=self.vectorizer_ is None or not shows) as bar:

            def tell(done: int) -> None:
                bar.update(done - bar.n)
                if progress is not None:
                    progress(0)

            X, names, Y = self._matrices(texts, labels, label_names, fits=True, tell=tell)
        if Y.shape[1] == 0:
            raise ValueError("`labels` must have at least one label, got none")
        if self.decision is not None:
            refit = not getattr(self.decision, "needs_fresh_rows", False)
            classifier = DecisionClassifier(classifier, self.decision, refit=refit, random_state=_SEED)
        run = {"n_jobs": self.n_jobs, "verbose": self.verbose or None}
        known = classifier.get_params(deep=False)
        classifier.set_params(**{k: v for k, v in run.items() if v is not None and k in known})
        keywords = {} if sample_weight is None else {"sample_weight": sample_weight}
        if progress is not None:
            keywords["progress"] = progress
        self.classifier_ = classifier.fit(X, Y, **keywords)
        # These parameters must not stay in the model file.
        self.classifier_.set_params(**{k: v for k, v in known.items() if k in run})
        self.n_features_in_ = self.classifier_.n_features_in_
        self.label_names_ = names
        # An earlier fit may have set these attributes.
        for name in ("label_ids_", "label_changes_", "rows_", "row_labels_"):
            self.__dict__.pop(name, None)
        if label_ids is not None:
            self.label_ids_ = identifiers(names, label_ids)
        if self.keep_rows:
            self.rows_, self.row_labels_ = _kept(X), Y

    @classmethod
    def from_pipeline(
        cls,
        pipeline: Pipeline,
        *,
        label_names: Sequence[str] | None = None,
        label_ids: Mapping[str, str] | Sequence[str] | None = None,
    ) -> TextTagger:
        """Make a fitted tagger from a fitted scikit-learn pipeline of a vectorizer and a classifier.

        Nothing is fitted again. The tagger uses the fitted steps of the pipeline, and their arrays are not
        copied.

        Parameters
        ----------
        pipeline : sklearn.pipeline.Pipeline
            The fitted pipeline. Its first step converts texts to features, and its last step is a classifier
            with the method `predict_topk`. Other transformers may be between these two steps.
        label_names : sequence of str, default=None
            Names of the labels. None means the names that the classifier has. If the classifier has no names,
            the labels are named "0", "1" and so on.
        label_ids : mapping of str to str, or sequence of str of length n_labels, default=None
            Identifiers of the labels, as in `fit`.

        Returns
        -------
        TextTagger
            The fitted tagger. Its attributes `classifier_` and `vectorizer_` contain the fitted steps. Its
            parameters `classifier` and `vectorizer` are unfitted clones of these steps.

        Raises
        ------
        ValueError
            If `pipeline` is not a `Pipeline` of at least two steps, if its first step does not convert texts,
            if its last step has no method `predict_topk`, if the classifier was fitted with a 1-D y, or if
            `label_names` or `label_ids` is not valid.
        sklearn.exceptions.NotFittedError
            If the classifier is not fitted.

        Examples
        --------
        >>> import manylabel as ml
        >>> from sklearn.feature_extraction.text import TfidfVectorizer
        >>> from sklearn.pipeline import make_pipeline
        >>> texts, Y = ["cats and dogs", "tax law", "dogs", "law"], [[1, 0], [0, 1], [1, 0], [0, 1]]
        >>> pipeline = make_pipeline(TfidfVectorizer(), ml.DiSMECClassifier(random_state=0)).fit(texts, Y)
        >>> tagger = ml.TextTagger.from_pipeline(pipeline, label_names=["pets", "money"])
        >>> [name for name, score in tagger.suggest("two dogs", k=1)]
        ['pets']
        """
        if not isinstance(pipeline, Pipeline) or len(pipeline.steps) < 2:
            raise ValueError(
                f"`pipeline` must be a Pipeline of a vectorizer and a classifier, got {shown(pipeline)}"
            )
        steps, classifier = pipeline.steps[:-1], pipeline.steps[-1][1]
        vectorizer = steps[0][1] if len(steps) == 1 else pipeline[:-1]
        if not takes_texts(vectorizer):
            raise ValueError(
                "the first step of `pipeline` must convert texts to features, as TfidfVectorizer does, got "
                f"{type(steps[0][1]).__name__}; if the pipeline does not take texts, use its classifier "
                "directly: pass pipeline[:-1].transform(X) to the methods of pipeline[-1]"
            )
        if not hasattr(classifier, "predict_topk"):
            raise ValueError(
                "the last step of `pipeline` must have the method predict_topk, got "
                f"{type(classifier).__name__}"
            )
        check_is_fitted(classifier, "classes_")
        if getattr(classifier, "one_dimensional_", False):
            raise ValueError("the classifier of `pipeline` must be fitted with a 2-D Y, got a 1-D y")
        n_labels = len(classifier.classes_)
        tagger = cls(clone(classifier), vectorizer=clone(vectorizer))
        tagger.parameters.check(tagger)
        if label_names is None:
            label_names = getattr(classifier, "label_names_", [str(label) for label in range(n_labels)])
        tagger.label_names_ = as_names(label_names, n_labels)
        if label_ids is not None:
            tagger.label_ids_ = identifiers(tagger.label_names_, label_ids)
        tagger.vectorizer_ = vectorizer
        # The tagger keeps the names, so that a change of labels changes them in one place.
        tagger.classifier_ = copy(classifier)
        if hasattr(tagger.classifier_, "label_names_"):
            del tagger.classifier_.label_names_
        tagger.n_features_in_ = classifier.n_features_in_
        return tagger

    def _new_vectorizer(self) -> Any:
        if isinstance(self.vectorizer, str):
            return TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
        return None if self.vectorizer is None else clone(self.vectorizer)

    def _matrices(
        self,
        texts: Any,
        labels: Any,
        label_names: Sequence[str] | None,
        *,
        fits: bool,
        tell: Tell | None = None,
    ) -> tuple[Any, NDArray[Any], csr_array]:
        """Return the features of texts, an array of label names, and the indicator matrix of the labels.

        If `fits` is True, the vectorizer is fitted first. `tell` is called with the number of texts that have
        been read so far.
        """
        convert: Any = None
        if self.vectorizer_ is not None:
            convert = self.vectorizer_.fit_transform if fits else self.vectorizer_.transform
        if labels is None:
            if convert is None:
                raise ValueError("`labels` must be given if `vectorizer` is None, got labels=None")
            if isinstance(texts, str) or not hasattr(texts, "__iter__"):
                raise ValueError(
                    "`texts` must be an iterable of pairs (text, names) if `labels` is None, got "
                    f"{shown(texts)}"
                )
            rows = NamedRows(None if label_names is None else list(label_names))
            checked = _counted(checked_texts(pairs_of(texts, rows)), tell)
            X = convert(readable(at_least_one(checked), self.vectorizer_))
            names, Y = rows.indicator()
        else:
            X = texts
            if convert is not None:
                checked = _counted(checked_texts(texts), tell)
                X = convert(readable(at_least_one(checked), self.vectorizer_))
            names, Y = named_indicator(labels, label_names)
        if issparse(X):
            X = canonical_csr(X, "texts")
        elif not hasattr(X, "shape"):
            X = np.asarray(X)
        n_rows = X.shape[0] if len(X.shape) else 0
        if n_rows != Y.shape[0]:
            raise ValueError(f"number of rows of `labels`: expected {n_rows} as in `texts`, got {Y.shape[0]}")
        return X, names, Y

    def explain(self, text: Any, label: str) -> LabelExplanation:
        """Explain the score of a label for one text.

        Parameters
        ----------
        text : str, or matrix of shape (1, n_features)
            The text. If `vectorizer` is None, pass a matrix with the features of one text.
        label : str
            Name of the label.

        Returns
        -------
        LabelExplanation
            A list of parts, such as features and the intercept, in order of decreasing absolute contribution.
            Each item has the attributes `part` (its kind, such as "feature"), `name` and `contribution`. The
            contributions sum to the score of the label or, for some classifiers, to another quantity (see the
            method `explain` of the classifier). The attribute `quantity` of the list states which quantity
            this is. Print the list, or use its methods `to_dict` and `to_frame`. The names of features are
            the terms of the vectorizer. A `HashingVectorizer` has no terms, so its features are named
            "feature 0", "feature 1" and so on.

        Raises
        ------
        ValueError
            If the tagger does not have the label, or if the classifier has no method `explain`.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> tagger.explain("my law", "law")[0].name
        'law'
        """
        self._check_fitted()
        number = check_label(self, label, len(self.label_names_))
        if not hasattr(self.classifier_, "explain"):
            raise ValueError(
                "to explain a label, `classifier` must have the method `explain`, "
                f"got {type(self.classifier_).__name__}"
            )
        if self.vectorizer_ is None:
            x, names = text, None
        elif isinstance(text, str):
            x, names = features_of_text(self.vectorizer_, text), names_of_features(self.vectorizer_)
        else:
            raise ValueError(f"`text` must be a str, got {shown(text)}")
        found: LabelExplanation = self.classifier_.explain(x, number, feature_names=names)
        found.label = str(self.label_names_[number])
        return found

    def _features(self, texts: Any) -> Any:
        if self.vectorizer_ is None:
            return texts
        return self.vectorizer_.transform(readable(checked_texts(texts), self.vectorizer_))

    def _blocks(self, texts: Any) -> Iterator[Any]:
        """Yield the features of the texts, one block of texts at a time."""
        if self.vectorizer_ is None:
            yield texts
            return
        remaining = checked_texts(texts)
        while block := list(islice(remaining, _BLOCK)):
            yield self.vectorizer_.transform(block)

    def _check_fitted(self) -> None:
        if "classifier_" not in self.__dict__:
            check_is_fitted(self, "classifier_")

    def prepare(self) -> TextTagger:
        """Prepare the tagger, so that the first suggestion is as fast as later suggestions.

        A service can call this method before it forks its worker processes.

        Returns
        -------
        self
            The tagger itself.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the tagger is not fitted.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> tagger = tagger.prepare()
        >>> len(tagger.suggest("my cat", k=2))
        2
        """
        self._check_fitted()
        if hasattr(self.classifier_, "prepare"):
            self.classifier_.prepare()
        if self.vectorizer_ is not None:
            prepare_text(self.vectorizer_)
        return self

    @overload
    def suggest(  # type: ignore[overload-overlap]  # a str is an iterable of str
        self, texts: str, k: int = 5, *, ids: bool = False
    ) -> Suggestions: ...
    @overload
    def suggest(self, texts: Iterable[str], k: int = 5, *, ids: bool = False) -> list[Suggestions]: ...
    def suggest(self, texts: Any, k: int = 5, *, ids: bool = False) -> Suggestions | list[Suggestions]:
        """Suggest the best labels of each text.

        Parameters
        ----------
        texts : str, iterable of str, or matrix of shape (n_samples, n_features)
            One text or several texts. If `vectorizer` is None, pass a matrix of features.
        k : int, default=5
            Number of labels to suggest for each text; >= 1.
        ids : bool, default=False
            Whether to return identifiers instead of names. If True, the tagger must have `label_ids_`.

        Returns
        -------
        list of tuple (str, float), or list of such lists
            The names and scores of the k best labels, best label first. The result is a single list if
            `texts` is a str. If two labels have the same score, the label that comes first in `label_names_`
            is first. A text gets fewer than k labels if the classifier scores fewer than k labels for this
            text.

        Raises
        ------
        ValueError
            If an argument is not valid.
        sklearn.exceptions.NotFittedError
            If the tagger is not fitted.

        Notes
        -----
        With a `LabelTreeClassifier` of 24,000 labels, a call with a short text takes less than a millisecond.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> [name for name, score in tagger.suggest("tax law", k=2)]
        ['law', 'tax']
        """
        self._check_fitted()
        k = check_count("k", k, 1)
        names = self._shown_names(ids)
        if isinstance(texts, str):
            if self.vectorizer_ is None:
                raise ValueError("`texts` must be a matrix of features if `vectorizer` is None, got a str")
            top = self._topk(features_of_text(self.vectorizer_, texts), k)
            return _ranked(names, top.indices, top.data)
        found: list[Suggestions] = []
        for X in self._blocks(texts):
            top = self._topk(X, k)
            ends = top.indptr.tolist()
            for begin, end in pairwise(ends):
                found.append(_ranked(names, top.indices[begin:end], top.data[begin:end]))
        return found

    def predict_topk(self, texts: Any, k: int = 5) -> csr_array:
        """Return the scores of the k best labels of each text, as a sparse matrix.

        Parameters
        ----------
        texts : iterable of str, or matrix of shape (n_samples, n_features)
            The texts. If `vectorizer` is None, pass a matrix of features.
        k : int, default=5
            Number of labels per text, >= 1.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            Scores of the k best labels of each text. Column j belongs to ``label_names_[j]``. `suggest`
            returns these scores together with the label names.

        Raises
        ------
        ValueError
            If an argument is not valid.
        sklearn.exceptions.NotFittedError
            If the tagger is not fitted.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> tagger.predict_topk(["tax law", "a dog"], k=1).indices.tolist()
        [2, 1]
        """
        self._check_fitted()
        k = check_count("k", k, 1)
        found = [self._topk(X, k) for X in self._blocks(texts)]
        if not found:
            return csr_array(np.empty((0, len(self.label_names_)), dtype=np.float32))
        every: csr_array = vstack(found, format="csr")
        return every

    def _shown_names(self, ids: bool) -> NDArray[Any]:
        if not ids:
            return self.label_names_
        if not hasattr(self, "label_ids_"):
            raise ValueError("`ids` must be False, got True; the tagger was fitted without `label_ids`")
        return self.label_ids_

    def _topk(self, X: Any, k: int) -> csr_array:
        """Return the scores of the k best labels of each row of X.

        The scores are probabilities if the classifier has the method `predict_proba_topk`.
        """
        rank = getattr(self.classifier_, "predict_proba_topk", self.classifier_.predict_topk)
        top: csr_array = rank(X, k=k)
        return top

    def predict(self, texts: Any, *, ids: bool = False) -> list[list[str]]:
        """Predict the label set of each text.

        Parameters
        ----------
        texts : iterable of str, or matrix of shape (n_samples, n_features)
            The texts. If `vectorizer` is None, pass a matrix of features.
        ids : bool, default=False
            Whether to return identifiers instead of names. If True, the tagger must have `label_ids_`.

        Returns
        -------
        list of list of str
            The names of the labels of each text, in the order of `label_names_`.

        Raises
        ------
        ValueError
            If an argument is not valid.
        sklearn.exceptions.NotFittedError
            If the tagger is not fitted.

        Notes
        -----
        If the tagger has a decision rule (the parameter `decision`), the probabilities of all texts are
        computed before label sets are chosen, because the choice may depend on all texts.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> tagger.predict(["law"])
        [['law']]
        """
        self._check_fitted()
        if isinstance(texts, str):
            raise ValueError("`texts` must be an iterable of str, got a str; pass a single text as [text]")
        names = self._shown_names(ids)
        if self.decision is not None:
            return _sets(names, self.classifier_.predict(self._features(texts)))
        return [row for X in self._blocks(texts) for row in _sets(names, self.classifier_.predict(X))]


def _kept(X: Any) -> Any:
    """Return a copy of X for `rows_`. A float32 X stays float32, and any other X becomes float64."""
    if not issparse(X):
        dense = np.array(X)
        return dense if dense.dtype in (np.float32, np.float64) else dense.astype(np.float64)
    rows: Any = X
    kept: Any = csr_array(rows, copy=True)
    return kept if kept.dtype in (np.float32, np.float64) else kept.astype(np.float64)


def _counted(texts: Iterator[str], tell: Tell | None) -> Iterator[str]:
    """Yield the texts, and regularly call `tell` with the number of texts yielded so far."""
    number = 0
    for number, text in enumerate(texts, 1):
        yield text
        if tell is not None and number % _TOLD == 0:
            tell(number)
    if tell is not None:
        tell(number)


def _ranked(names: NDArray[Any], labels: NDArray[Any], scores: NDArray[Any]) -> Suggestions:
    order = np.argsort(-scores, kind="stable")
    return list(zip(names[labels[order]].tolist(), scores[order].tolist(), strict=True))


def _sets(names: NDArray[Any], indicator: Any) -> list[list[str]]:
    rows = csr_array(indicator)
    rows.sort_indices()
    found = names[rows.indices].tolist()
    ends = rows.indptr.tolist()
    return [found[begin:end] for begin, end in pairwise(ends)]
