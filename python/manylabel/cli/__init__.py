"""The command line, with the commands that `manylabel --help` lists.

``manylabel`` and ``python -m manylabel`` run the same program.

Data files whose names end in ``.arff`` or ``.arff.gz`` are read as ARFF. A folder is either one that
``manylabel.datasets.convert`` wrote, or a folder of texts. Folders of texts, and files that end in ``.csv``,
``.tsv``, ``.jsonl``, ``.ndjson`` or ``.parquet``, are tables of texts with the names of their labels. A model
of such a table is a `TextTagger`. Other data files must be in the text format of the Extreme Classification
Repository. All data files may be compressed with gzip. Results are
written to stdout. Progress bars, summaries and errors are written to stderr. Every error is printed as a
single line, ``manylabel: error: ...``. Output files are written under a temporary name and renamed when they
are complete.

The exit codes are:

- 0: success;
- 1: failure;
- 2: wrong usage;
- 130: interrupted by Ctrl-C;
- 141: the program that reads the output has closed the pipe.
"""

from __future__ import annotations

import argparse
import errno
import importlib.metadata
import importlib.util
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice, pairwise
from pathlib import Path
from time import perf_counter
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, vstack
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from tqdm import tqdm

from manylabel import metrics, shards
from manylabel.cli.texts import is_table, name_lines, named_lines, parameter_lines, read_rows, test_rows
from manylabel.datasets import load_arff, load_xc, open_rows
from manylabel.decision import Costs, DecisionClassifier, ExpectedF1, LabelCalibrator, Thresholds
from manylabel.diagnosis import doctor
from manylabel.estimator.names import named_indicator
from manylabel.estimator.registry import COMMANDS
from manylabel.persistence import load, written_aside
from manylabel.tagging import TextTagger

__all__ = ["MODELS", "main"]

# Importing the package has already registered all estimators.
MODELS = dict(sorted(COMMANDS.items()))

# `--set` does not accept these parameters. The program sets `n_jobs` from `--jobs`, `random_state` from
# `--seed`, and `verbose` from `--quiet`.
_RUN_PARAMETERS = ("n_jobs", "random_state", "verbose")

# The rules of the option `--decide`, by the measure that they maximize.
_RULES = {
    "example_f1": ExpectedF1(),
    "hamming": Costs(),
    "macro_f1": Thresholds("macro_f1"),
    "micro_f1": Thresholds("micro_f1"),
}

# Number of rows that are predicted at a time. It is large enough to keep all threads busy, and small enough
# that the first lines are written early.
_BLOCK = 4096


# Number of names that `inspect` shows.
_SHOWN_NAMES = 5


class UsageError(Exception):
    """Error for invalid command-line arguments, for which the exit code is 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv : sequence of str or None, default=None
        The command-line arguments without the name of the program. None uses ``sys.argv[1:]``.

    Returns
    -------
    int
        The exit code. The docstring of this module lists all exit codes.

    Raises
    ------
    SystemExit
        If the arguments contain ``--help`` or ``--version``. The exit code is then 0.
    """
    try:
        arguments = _parser().parse_args(argv)
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: _say(f"warning: {message}")
            arguments.run(arguments)
        sys.stdout.flush()
    except UsageError as error:
        _say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:
        # The rest of the output buffer is discarded. Otherwise, flushing the buffer at exit would raise the
        # error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (OSError, ValueError, TypeError, OverflowError, RuntimeError, MemoryError) as error:
        _say(f"error: {_reason(error)}")
        return 1
    return 0


def _say(text: str) -> None:
    print("manylabel:", " ".join(text.split()), file=sys.stderr)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        return f"{error.filename}: {os.strerror(error.errno)}"
    return str(error) or ("not enough memory" if isinstance(error, MemoryError) else type(error).__name__)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="manylabel", description="Multi-label and extreme multi-label classification.")
    version = f"manylabel {importlib.metadata.version('manylabel')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(metavar="command", required=True)

    running = _Parser(add_help=False)
    running.add_argument(
        "--jobs",
        type=int,
        default=-1,
        metavar="N",
        help="number of threads (default: -1, which uses all cores); it does not change the result",
    )
    running.add_argument(
        "--quiet", action="store_true", help="show no progress bar and no messages except errors"
    )
    reading = _Parser(add_help=False)
    reading.add_argument(
        "--xml",
        metavar="FILE",
        help="XML file in the format of MULAN that lists the labels of an ARFF data file",
    )
    reading.add_argument(
        "--text",
        metavar="COLUMN,...",
        help="columns of a table with the texts, joined if there are several (default: text)",
    )
    reading.add_argument(
        "--labels", metavar="COLUMN", help="column of a table with the names of labels (default: labels)"
    )
    reading.add_argument(
        "--sep", default=";", metavar="TEXT", help='text between two names of labels in a cell (default: ";")'
    )

    def command(name: str, run: Any, help: str, *parents: _Parser) -> _Parser:
        added = commands.add_parser(name, help=help, description=f"{help}.", parents=parents)
        added.set_defaults(run=run)
        return added

    train = command("train", _train, "Fit a model to a data file and save it", running, reading)
    train.add_argument(
        "--model",
        choices=MODELS,
        help="the method, one of: %(choices)s (default for tables of texts: label-tree)",
    )
    train.add_argument("data", help="the training data")
    train.add_argument("-o", "--output", required=True, metavar="MODEL", help="the model file to write")
    train.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="set a parameter of the model, such as C=0.5 or estimator__C=0.5; repeat it to set several",
    )
    train.add_argument(
        "--seed", type=int, metavar="S", help="seed of all random draws; the same seed gives the same model"
    )
    train.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="store finished pieces of the fit in this folder; the same command continues an interrupted fit",
    )
    train.add_argument(
        "--piece",
        type=_share,
        default=(1, 1),
        metavar="i/N",
        help="fit only every N-th piece, beginning with piece i, for N processes with the same --checkpoint",
    )

    train.add_argument(
        "--calibrate",
        action="store_true",
        help="hold out a tenth of the rows to calibrate probabilities; see `predict --probabilities`",
    )
    train.add_argument(
        "--decide",
        choices=_RULES,
        help="choose label sets for this measure, by calibrated probabilities; see `predict --sets`",
    )

    merge = command("merge", _merge, "Save the model whose pieces are in a folder of train --checkpoint")
    merge.add_argument("folder", help="the folder of the pieces")
    merge.add_argument("-o", "--output", required=True, metavar="MODEL", help="the model file to write")

    predict = command("predict", _predict, "Predict the best labels of every row", running, reading)
    predict.add_argument("model", help="the model file")
    predict.add_argument("data", help="the rows to predict; labels in this file are ignored")
    predict.add_argument("-k", type=_rank, default=5, help="number of labels per row (default: 5)")
    form = predict.add_mutually_exclusive_group()
    form.add_argument(
        "--probabilities",
        action="store_true",
        help="write the most probable labels with their probabilities; needs a model of `train --calibrate`",
    )
    form.add_argument(
        "--sets", action="store_true", help="write the labels that the model assigns to a row, without scores"
    )
    predict.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the file to write (default: stdout), one line of label:score pairs per row, best label first",
    )
    predict.add_argument(
        "--json", action="store_true", help="write a JSON object per row; only for models with label names"
    )

    evaluate = command(
        "evaluate", _evaluate, "Compute quality measures of a model on a data file", running, reading
    )
    evaluate.add_argument("model", help="the model file")
    evaluate.add_argument("data", help="the test data")
    evaluate.add_argument(
        "--train",
        metavar="DATA",
        help="the training data; with this option, propensity-scored measures are also computed",
    )
    evaluate.add_argument(
        "-k",
        type=_ranks,
        default=(1, 3, 5),
        metavar="K,...",
        help="values of k for the measures at k, such as precision at k (default: 1,3,5)",
    )
    evaluate.add_argument("--json", action="store_true", help="write a JSON object instead of a table")

    inspect = command("inspect", _inspect, "Show the contents of a model file")
    inspect.add_argument("model", help="the model file")

    explain = command("explain", _explain, "Show why a model gives a label its score", reading)
    explain.add_argument("model", help="the model file")
    explain.add_argument("label", help="the name or the number of the label")
    explain.add_argument("row", help="a text, or the number of a row of --data; rows count from 0")
    explain.add_argument("--data", metavar="DATA", help="a data file with the row")
    explain.add_argument("--json", action="store_true", help="write a JSON object instead of text")

    params = command("params", _params, "Show the parameters of a method, or of a model file")
    params.add_argument("model", help=f"a model file, or one of: {', '.join(MODELS)}")

    diagnose = command("doctor", _doctor, "Look for faults in data, and suggest a method", running, reading)
    diagnose.add_argument("data", help="the training data")
    diagnose.add_argument("--test", metavar="DATA", help="the test data, to look for faults of the split")
    diagnose.add_argument("--json", action="store_true", help="write a JSON object instead of text")

    demo = command(
        "demo",
        _demo,
        "Train one model of each family of methods on handwritten digits and plot the results",
        running,
    )
    demo.add_argument(
        "--output", default="demo", metavar="FOLDER", help="the folder for report.html (default: demo)"
    )
    return parser


def _rank(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1, got {text!r}")
    return int(text)


def _share(text: str) -> tuple[int, int]:
    number, slash, total = text.partition("/")
    if not (slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise argparse.ArgumentTypeError(f"expected i/N with 1 <= i <= N, got {text!r}")
    return int(number), int(total)


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(_rank(part.strip()) for part in text.split(","))


def _train(arguments: argparse.Namespace) -> None:
    if arguments.model is None and not is_table(arguments.data):
        raise UsageError("the following arguments are required: --model")
    model = MODELS[arguments.model or "label-tree"]()
    if arguments.model is None:
        model.set_params(random_state=0)  # the default classifier of TextTagger
    for setting in arguments.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set: expected NAME=VALUE, got {setting!r}")
        _set(model, name, value)
    if arguments.seed is not None:
        if "random_state" not in model.get_params(deep=False):
            raise UsageError(f"--seed: {arguments.model} has no parameter random_state, so leave out --seed")
        model.set_params(random_state=arguments.seed)
    rule = None if arguments.decide is None else clone(_RULES[arguments.decide])
    if rule is not None and not is_table(arguments.data):
        model = DecisionClassifier(model, rule, random_state=arguments.seed)
    elif rule is None and arguments.calibrate:
        model = LabelCalibrator(model, random_state=arguments.seed)
    if arguments.checkpoint is None and arguments.piece != (1, 1):
        raise UsageError("--piece: the pieces are stored in a folder, so give --checkpoint too")
    path = _output(arguments.output)
    if is_table(arguments.data):
        if arguments.checkpoint is not None:
            raise UsageError("--checkpoint: the fit of a tagger to texts cannot be cut into pieces")
        _train_tagger(model, rule, path, arguments)
        return
    X, Y = _read(arguments.data, arguments)
    if not arguments.quiet:
        _say(f"{arguments.data}: {X.shape[0]:,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} labels")
    start = perf_counter()
    _set_run(model, n_jobs=arguments.jobs, verbose=int(_shows_progress(arguments)))
    if arguments.checkpoint is None:
        model.fit(X, Y)
    else:
        model = shards.fit(model, X, Y, checkpoint=arguments.checkpoint, piece=arguments.piece)
        if model is None:
            if not arguments.quiet:
                seconds = perf_counter() - start
                _say(f"{arguments.checkpoint}: pieces fitted in {seconds:.1f} s; other pieces are missing")
            return
    _set_run(model, n_jobs=None, verbose=0)
    seconds = perf_counter() - start
    model.save(path)
    if not arguments.quiet:
        _say(f"{arguments.output}: {path.stat().st_size:,} bytes, fitted in {seconds:.1f} s")


def _train_tagger(model: Any, rule: Any, path: Path, arguments: argparse.Namespace) -> None:
    """Fit a tagger with the given classifier and decision rule to a table of texts, and save it."""
    run = {"n_jobs": arguments.jobs, "verbose": int(_shows_progress(arguments))}
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
        _say(f"{arguments.data}: {tagger.n_features_in_:,} features, {len(tagger.label_names_):,} labels")
        _say(f"{arguments.output}: {path.stat().st_size:,} bytes, fitted in {seconds:.1f} s")


def _merge(arguments: argparse.Namespace) -> None:
    path = _output(arguments.output)
    model = shards.merge(arguments.folder)
    _set_run(model, n_jobs=None, verbose=0)
    model.save(path)


def _predict(arguments: argparse.Namespace) -> None:
    output = None if arguments.output is None else _output(arguments.output)
    model = _load(arguments)
    if isinstance(model, TextTagger):
        _check_form(model.classifier_, arguments)
        texts = (text for text, _ in _table(arguments.data, arguments))
        with _writing(output) as file:
            while block := list(islice(texts, _BLOCK)):
                if arguments.sets:
                    lines = name_lines(model.predict(block), arguments.json)
                else:
                    lines = named_lines(model.suggest(block, k=arguments.k), arguments.json)
                file.writelines(f"{line}\n" for line in lines)
        return
    names = getattr(model, "label_names_", None)
    if arguments.json and names is None:
        raise UsageError("--json: the model has no names of labels, so leave out --json")
    X, _ = _read(arguments.data, arguments)
    _check_width(X, model.n_features_in_, "features", arguments.data)
    _check_form(model, arguments)
    with _writing(output) as file:
        for found in _predicted(model, X, arguments):
            if names is not None and arguments.sets:
                lines = name_lines((names[row] for row in _rows(found)), arguments.json)
            elif names is not None:
                lines = named_lines(_named(found, names), arguments.json)
            else:
                lines = _labels(found) if arguments.sets else _lines(found)
            file.writelines(f"{line}\n" for line in lines)


def _check_form(classifier: Any, arguments: argparse.Namespace) -> None:
    if arguments.probabilities and not hasattr(classifier, "predict_proba_topk"):
        raise ValueError(
            f"{arguments.model}: expected a model of `train --calibrate`, got {type(classifier).__name__}"
        )


def _evaluate(arguments: argparse.Namespace) -> None:
    model = _load(arguments)
    if isinstance(model, TextTagger):
        _evaluate_tagger(model, arguments)
        return
    n_labels = model._n_labels
    X, Y = _read(arguments.data, arguments)
    _check_width(X, model.n_features_in_, "features", arguments.data)
    _check_width(Y, n_labels, "labels", arguments.data)
    propensities = None
    if arguments.train is not None:
        _, Y_train = _read(arguments.train, arguments)
        _check_width(Y_train, n_labels, "labels", arguments.train)
        propensities = metrics.propensities(Y_train)
    if X.shape[0] == 0:
        raise ValueError(f"{arguments.data}: expected at least one row, got an empty data set")
    # The measures leave unknown entries out, so that further labels move up.
    most_unknown = int(np.bincount(Y.nonzero()[0], weights=np.isnan(Y.data)).max(initial=0))
    k = max(arguments.k) + most_unknown
    top = _by_blocks(lambda part: model.predict_topk(part, k=k), X, arguments)
    _write_measures(Y, vstack(list(top), format="csr"), propensities, arguments)


def _evaluate_tagger(model: TextTagger, arguments: argparse.Namespace) -> None:
    tables = [_table(path, arguments) for path in (arguments.data, arguments.train) if path is not None]
    texts, labels = test_rows(model.label_names_, *tables)
    if not texts:
        raise ValueError(f"{arguments.data}: expected at least one row, got an empty data set")
    Y = labels[0]
    propensities = metrics.propensities(labels[1]) if arguments.train is not None else None
    blocks = (texts[start : start + _BLOCK] for start in range(0, len(texts), _BLOCK))
    tops = [model._topk(model._features(block), max(arguments.k)) for block in blocks]
    scores: Any = vstack(tops, format="csr")
    # Names that the tagger does not know are labels that were not found.
    wide = csr_array((scores.data, scores.indices, scores.indptr), shape=Y.shape)
    _write_measures(Y, wide, propensities, arguments)


def _write_measures(Y: csr_array, scores: Any, propensities: Any, arguments: argparse.Namespace) -> None:
    table = {
        "P": metrics.precision_at_k(Y, scores, arguments.k),
        "nDCG": metrics.ndcg_at_k(Y, scores, arguments.k),
        "R": metrics.recall_at_k(Y, scores, arguments.k),
    }
    if propensities is not None:
        table["PSP"] = metrics.psp_at_k(Y, scores, propensities, arguments.k)
        table["PSnDCG"] = metrics.psndcg_at_k(Y, scores, propensities, arguments.k)
    values = {name: np.atleast_1d(found).tolist() for name, found in table.items()}
    if arguments.json:
        # The recall is NaN if no row has a label. JSON has no NaN, so null is written instead.
        flat = {
            f"{name}@{k}": value if math.isfinite(value) else None
            for name, row in values.items()
            for k, value in zip(arguments.k, row, strict=True)
        }
        print(json.dumps({"rows": Y.shape[0], **flat}, indent=2))
        return
    print(f"{'':8}" + "".join(f"{f'k={k}':>9}" for k in arguments.k))
    for name, row in values.items():
        print(f"{f'{name}@k':8}" + "".join(f"{value:9.4f}" for value in row))


def _inspect(arguments: argparse.Namespace) -> None:
    model = load(arguments.model)
    with open(arguments.model, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
    parameters = ", ".join(f"{name}={value!r}" for name, value in model.get_params(deep=False).items())
    rows = {
        "class": type(model).__name__,
        "file": f"{os.stat(arguments.model).st_size:,} bytes, format {header['manylabel_format']}, "
        f"written by manylabel {header['manylabel_version']}",
        "features": f"{model.n_features_in_:,}",
        "labels": _label_count(model),
        "parameters": " ".join(parameters.split()),
    }
    rows |= {
        name: _describe(value)
        for name, value in vars(model).items()
        if name.endswith("_") and name not in ("classes_", "n_features_in_", "label_names_")
    }
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"{name:{width}}  {text}")


def _label_count(model: Any) -> str:
    names = getattr(model, "label_names_", None)
    if names is None:
        return f"{model._n_labels:,}" if hasattr(model, "classes_") else "none"
    shown = ", ".join(repr(str(name)) for name in names[:_SHOWN_NAMES])
    return f"{len(names):,}: {shown}" + (", ..." if len(names) > _SHOWN_NAMES else "")


def _explain(arguments: argparse.Namespace) -> None:
    model = load(arguments.model)
    if not hasattr(model, "explain"):
        raise ValueError(f"{arguments.model}: expected a classifier, got {type(model).__name__}")
    label: Any = arguments.label
    names = getattr(model, "label_names_", None)
    if names is None or (label not in names and label.isdecimal()):
        if not label.isdecimal():
            raise UsageError(
                f"label: expected a number, since the model has no names of labels, got {label!r}"
            )
        if names is not None and int(label) >= len(names):
            raise UsageError(f"label: expected a name, or a number from 0 to {len(names) - 1}, got {label!r}")
        label = int(label) if names is None else str(names[int(label)])
    row: Any = arguments.row
    if arguments.data is not None:
        row = _row(model, arguments)
    elif not isinstance(model, TextTagger):
        raise UsageError("--data: expected a data file with the row, since the model does not take texts")
    found = model.explain(row, label)
    print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False) if arguments.json else repr(found))


def _row(model: Any, arguments: argparse.Namespace) -> Any:
    """Return a row of a data file, as text or as features."""
    if not arguments.row.isdecimal():
        raise UsageError(f"row: expected the number of a row of --data, got {arguments.row!r}")
    number = int(arguments.row)
    if isinstance(model, TextTagger):
        found = next(islice(_table(arguments.data, arguments), number, None), None)
        if found is None:
            raise ValueError(f"{arguments.data}: expected more than {number} rows, got fewer")
        return found[0]
    arguments.jobs = None
    X, _ = _read(arguments.data, arguments)
    _check_width(X, model.n_features_in_, "features", arguments.data)
    if number >= X.shape[0]:
        raise ValueError(f"{arguments.data}: expected more than {number} rows, got {X.shape[0]}")
    return X[[number]]


def _params(arguments: argparse.Namespace) -> None:
    if arguments.model in MODELS:
        for line in parameter_lines(MODELS[arguments.model]()):
            print(line)
        return
    for name, value in load(arguments.model).get_params().items():
        print(f"{name}={value!r}")


def _doctor(arguments: argparse.Namespace) -> None:
    paths = [path for path in (arguments.data, arguments.test) if path is not None]
    if is_table(arguments.data):
        tables = [list(_table(path, arguments)) for path in paths]
        names = sorted({name for table in tables for _, found in table for name in found})
        if not names:
            raise ValueError(f"{arguments.data}: expected labels in the table, got none")
        vectorizer = TfidfVectorizer(dtype=np.float32).fit(text for text, _ in tables[0])
        matrices = []
        for table in tables:
            Y = named_indicator((found for _, found in table), names)[1]
            matrices += [vectorizer.transform([text for text, _ in table]), Y]
        found = doctor(*matrices, label_names=names, feature_names=vectorizer.get_feature_names_out())
    else:
        found = doctor(*(matrix for path in paths for matrix in _read(path, arguments)))
    print(found.to_json() if arguments.json else found)


def _named(top: csr_array, names: Any) -> Iterator[list[tuple[str, float]]]:
    """Yield the names and scores of each row, best label first."""
    for begin, end in pairwise(top.indptr.tolist()):
        labels, scores = top.indices[begin:end], top.data[begin:end]
        order = np.argsort(-scores, kind="stable")
        yield list(zip(names[labels[order]].tolist(), scores[order].tolist(), strict=True))


def _table(path: str, arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    if not is_table(path):
        raise ValueError(
            f"{path}: expected a table of texts, such as a CSV file, since the model is a tagger"
        )
    return read_rows(path, arguments)


def _describe(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, csr_array | csc_array):
        used = np.count_nonzero(np.diff(value.indptr))
        density = value.nnz / max(1, math.prod(value.shape))
        lines = f"in {used:,} of {len(value.indptr) - 1:,} {'rows' if value.format == 'csr' else 'columns'}"
        return f"{kind} {value.shape} of {value.dtype}, {value.nnz:,} stored ({density:.2%}), {lines}"
    if isinstance(value, np.ndarray):
        text = f"{kind} {value.shape} of {value.dtype}"
        if value.dtype == object and value.ndim == 1 and value.size:
            text += ", " + ", ".join(repr(str(item)) for item in value[:_SHOWN_NAMES])
        if value.size and value.dtype.kind in "iuf":
            text += f", from {value.min():.4g} to {value.max():.4g}"
        return text
    if isinstance(value, list | tuple):
        return f"{kind} of {len(value)}" + (f", the first: {_describe(value[0])}" if value else "")
    return kind if hasattr(value, "get_params") else repr(value)


def _demo(arguments: argparse.Namespace) -> None:
    from manylabel import demo

    if importlib.util.find_spec("matplotlib") is None:
        raise RuntimeError(
            "the report needs matplotlib, which is not installed; run: pip install 'manylabel[plot]'"
        )
    folder = Path(arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    data = demo.load_data()
    print(f"{len(data.X_train):,} digits for training, {len(data.X_test):,} for testing\n")
    print(demo.HEADER)
    results = []
    for title, estimator in demo.FAMILIES:
        model = clone(estimator)
        _set_run(model, n_jobs=arguments.jobs)
        results.append(demo.train(title, model, data, folder))
        print(results[-1].row(), flush=True)
    print("\nEach model was saved and loaded. The predictions before and after are exactly equal.")
    with _writing(folder / "report.html") as file:
        file.write(demo.page(data, results))
    print(f"See {folder / 'report.html'}")


def _set(model: Any, name: str, text: str) -> None:
    """Set a parameter of an estimator from text.

    The table ``parameters`` of the estimator class describes how to convert the text to a value.
    """
    head, _, rest = name.partition("__")
    known = [parameter for parameter in model.parameters if parameter not in _RUN_PARAMETERS]
    if head not in known:
        option = {"n_jobs": "; use --jobs", "random_state": "; use --seed"}.get(head, "")
        raise UsageError(
            f"--set: {type(model).__name__} has the parameters {', '.join(known)}, got {head!r}{option}"
        )
    if rest:
        inner = getattr(model, head)
        if not hasattr(inner, "get_params"):
            raise UsageError(f"--set {name}: expected `{head}` to be an estimator, got {inner!r}")
        _set(inner, rest, text)
        return
    kind = model.parameters[head]
    try:
        value = kind.read(text)
        kind.check(head, value)
    except ValueError:
        raise UsageError(f"--set {name}: expected {kind.wanted}, got {text!r}") from None
    model.set_params(**{head: value})


def _set_run(model: Any, **parameters: Any) -> None:
    known = model.get_params(deep=False)
    model.set_params(**{name: value for name, value in parameters.items() if name in known})


def _read(path: str, arguments: argparse.Namespace) -> tuple[Any, csr_array]:
    if path.lower().endswith((".arff", ".arff.gz")):
        return load_arff(path, arguments.xml)
    if arguments.xml is not None:
        raise UsageError(f"--xml: the data file must be an ARFF file, got {path}")
    if os.path.isdir(path):
        return open_rows(path)
    return load_xc(path, n_jobs=arguments.jobs)


def _load(arguments: argparse.Namespace) -> Any:
    model = load(arguments.model)
    if not hasattr(model, "predict_topk") and not isinstance(model, TextTagger):
        raise ValueError(f"{arguments.model}: expected a classifier, got {type(model).__name__}")
    _set_run(model.classifier_ if isinstance(model, TextTagger) else model, n_jobs=arguments.jobs)
    return model


def _check_width(matrix: Any, width: int, what: str, path: str) -> None:
    """Raise an error if a data file and the model have different numbers of features or labels."""
    found = matrix.shape[1]
    if found != width:
        raise ValueError(f"{path}: expected {width:,} {what} as in the model, got {found:,}")


def _predicted(model: Any, X: Any, arguments: argparse.Namespace) -> Iterator[csr_array]:
    """Yield the predictions of each block of rows, in the form that the options ask for."""
    if arguments.sets:
        return _by_blocks(lambda part: csr_array(model.predict(part)), X, arguments)
    ranks = model.predict_proba_topk if arguments.probabilities else model.predict_topk
    return _by_blocks(lambda part: ranks(part, k=arguments.k), X, arguments)


def _by_blocks(
    predict: Callable[[Any], csr_array], X: Any, arguments: argparse.Namespace
) -> Iterator[csr_array]:
    """Predict block after block of rows, and yield the predictions of each block.

    A progress bar counts the rows.
    """
    n_rows = X.shape[0]
    with tqdm(total=n_rows, unit=" rows", disable=not _shows_progress(arguments)) as bar:
        for start in range(0, n_rows, _BLOCK):
            found = predict(X[start : start + _BLOCK])
            yield found
            bar.update(found.shape[0])


def _lines(top: csr_array) -> Iterator[str]:
    rows = np.repeat(np.arange(top.shape[0]), np.diff(top.indptr))
    order = np.lexsort((top.indices, -top.data, rows))
    # numpy writes each score as the shortest decimal that is read back as the same float32 number.
    scores = top.data[order].astype(str).tolist()
    pairs = [f"{label}:{score}" for label, score in zip(top.indices[order].tolist(), scores, strict=True)]
    for begin, end in pairwise(top.indptr.tolist()):
        yield " ".join(pairs[begin:end])


def _rows(sets: csr_array) -> Iterator[NDArray[np.integer[Any]]]:
    for begin, end in pairwise(sets.indptr.tolist()):
        yield sets.indices[begin:end]


def _labels(sets: csr_array) -> Iterator[str]:
    return (" ".join(row.astype(str)) for row in _rows(sets))


def _shows_progress(arguments: argparse.Namespace) -> bool:
    return not arguments.quiet and sys.stderr.isatty()


def _output(path: str) -> Path:
    """Resolve the symbolic links of an output path, and check that a file can be written there."""
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not real.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(real.parent))
    if real.exists() and not real.is_file():
        # The rename would replace a device or a pipe by a regular file.
        raise ValueError(f"{path}: expected a regular file, got a device or a pipe")
    if not os.access(real.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return real


@contextmanager
def _writing(path: Path | None) -> Iterator[IO[str]]:
    """Open the output file, or stdout if `path` is None.

    The file appears at `path` only when it is complete.
    """
    if path is None:
        yield sys.stdout
        return
    with written_aside(path, "x", encoding="utf-8", newline="\n") as file:
        yield file
