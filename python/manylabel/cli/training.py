"""The commands `train` and `merge`, which fit models and save them."""

from __future__ import annotations

from argparse import Namespace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

from sklearn.base import clone

from manylabel import shards
from manylabel.cli.files import output_path, read_matrices
from manylabel.cli.messages import UsageError, say, shows_progress
from manylabel.cli.settings import set_parameter, set_run
from manylabel.cli.texts import is_table, read_rows
from manylabel.decision import Costs, DecisionClassifier, ExpectedF1, LabelCalibrator, Thresholds
from manylabel.estimator.registry import COMMANDS
from manylabel.tagging import TextTagger

__all__ = ["MODELS", "RULES", "merge", "train"]

# Importing the package has already registered all estimators.
MODELS = dict(sorted(COMMANDS.items()))

# The rules of the option `--decide`, by the measure that they maximize.
RULES = {
    "example_f1": ExpectedF1(),
    "hamming": Costs(),
    "macro_f1": Thresholds("macro_f1"),
    "micro_f1": Thresholds("micro_f1"),
}


def train(arguments: Namespace) -> None:
    """Fit a model to a data file and save it."""
    if arguments.model is None and not is_table(arguments.data):
        raise UsageError(
            "the following arguments are required: --model (it may be left out only for a table of texts)"
        )
    model = MODELS[arguments.model or "label-tree"]()
    if arguments.model is None:
        model.set_params(random_state=0)  # the default classifier of TextTagger
    for setting in arguments.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set: expected NAME=VALUE, got {setting!r}")
        set_parameter(model, name, value)
    if arguments.seed is not None:
        if "random_state" not in model.get_params(deep=False):
            raise UsageError(f"--seed: {arguments.model} has no parameter random_state, so leave out --seed")
        model.set_params(random_state=arguments.seed)
    rule = None if arguments.decide is None else clone(RULES[arguments.decide])
    if rule is not None and not is_table(arguments.data):
        model = DecisionClassifier(model, rule, random_state=arguments.seed)
    elif rule is None and arguments.calibrate:
        model = LabelCalibrator(model, random_state=arguments.seed)
    if arguments.checkpoint is None and arguments.piece != (1, 1):
        raise UsageError("--piece: requires --checkpoint, the folder for the finished pieces")
    path = output_path(arguments.output)
    if is_table(arguments.data):
        if arguments.checkpoint is not None:
            raise UsageError(
                "--checkpoint: the fit to a table of texts cannot be divided into pieces, so leave out "
                "--checkpoint"
            )
        _train_tagger(model, rule, path, arguments)
        return
    X, Y = read_matrices(arguments.data, arguments)
    if not arguments.quiet:
        say(f"{arguments.data}: {X.shape[0]:,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} labels")
    start = perf_counter()
    set_run(model, n_jobs=arguments.jobs, verbose=int(shows_progress(arguments)))
    if arguments.checkpoint is None:
        model.fit(X, Y)
    else:
        model = shards.fit(model, X, Y, checkpoint=arguments.checkpoint, piece=arguments.piece)
        if model is None:
            if not arguments.quiet:
                seconds = perf_counter() - start
                say(f"{arguments.checkpoint}: pieces fitted in {seconds:.1f} s; other pieces are missing")
            return
    set_run(model, n_jobs=None, verbose=0)
    seconds = perf_counter() - start
    model.save(path)
    if not arguments.quiet:
        say(f"{arguments.output}: {path.stat().st_size:,} bytes, fitted in {seconds:.1f} s")


def _train_tagger(model: Any, rule: Any, path: Path, arguments: Namespace) -> None:
    """Fit a tagger to a table of texts, and save the tagger.

    The tagger has the classifier `model` and the decision rule `rule`.
    """
    run = {"n_jobs": arguments.jobs, "verbose": int(shows_progress(arguments))}
    tagger = TextTagger(model, decision=rule, **run)
    start = perf_counter()
    rows = read_rows(arguments.data, arguments)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{arguments.data}: expected at least one row, got an empty table")
    tagger.fit(chain([first], rows))
    seconds = perf_counter() - start
    tagger.set_params(n_jobs=None, verbose=0).save(path)
    if not arguments.quiet:
        say(f"{arguments.data}: {tagger.n_features_in_:,} features, {len(tagger.label_names_):,} labels")
        say(f"{arguments.output}: {path.stat().st_size:,} bytes, fitted in {seconds:.1f} s")


def merge(arguments: Namespace) -> None:
    """Make a model from the finished pieces of a fit, and save the model.

    A piece is a part of the work of a fit, such as fitting the weights of some labels; see
    `manylabel.shards`.
    """
    path = output_path(arguments.output)
    model = shards.merge(arguments.folder)
    set_run(model, n_jobs=None, verbose=0)
    model.save(path)
