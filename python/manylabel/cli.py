"""The command line, with the commands ``train``, ``predict``, ``evaluate``, ``inspect`` and ``demo``.

``manylabel`` and ``python -m manylabel`` run the same program.

Data files whose names end in ``.arff`` or ``.arff.gz`` are read as ARFF. A folder must have been written by
``manylabel.datasets.convert``. Other data files must be in the text
format of the Extreme Classification Repository. All data files may be compressed with gzip. Results are
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import IO, Any, NoReturn

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack
from sklearn.base import clone
from tqdm import tqdm

from manylabel import metrics, shards
from manylabel.datasets import load_arff, load_xc, open_rows
from manylabel.estimator.registry import COMMANDS
from manylabel.persistence import load, written_aside

__all__ = ["MODELS", "main"]

# Importing the package has already registered all estimators.
MODELS = dict(sorted(COMMANDS.items()))

# `--set` does not accept these parameters. The program sets `n_jobs` from `--jobs`, `random_state` from
# `--seed`, and `verbose` from `--quiet`.
_RUN_PARAMETERS = ("n_jobs", "random_state", "verbose")

# Number of rows that are predicted at a time. It is large enough to keep all threads busy, and small enough
# that the first lines are written early.
_BLOCK = 4096


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

    def command(name: str, run: Any, help: str, *parents: _Parser) -> _Parser:
        added = commands.add_parser(name, help=help, description=f"{help}.", parents=parents)
        added.set_defaults(run=run)
        return added

    train = command("train", _train, "Fit a model to a data file and save it", running, reading)
    train.add_argument("--model", required=True, choices=MODELS, help="the method, one of: %(choices)s")
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

    merge = command("merge", _merge, "Save the model whose pieces are in a folder of train --checkpoint")
    merge.add_argument("folder", help="the folder of the pieces")
    merge.add_argument("-o", "--output", required=True, metavar="MODEL", help="the model file to write")

    predict = command("predict", _predict, "Predict the best labels of every row", running, reading)
    predict.add_argument("model", help="the model file")
    predict.add_argument("data", help="the rows to predict; labels in this file are ignored")
    predict.add_argument("-k", type=_rank, default=5, help="number of labels per row (default: 5)")
    predict.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the file to write (default: stdout), one line of label:score pairs per row, best label first",
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
    model = MODELS[arguments.model]()
    for setting in arguments.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set: expected NAME=VALUE, got {setting!r}")
        _set(model, name, value)
    if arguments.seed is not None:
        if "random_state" not in model.get_params(deep=False):
            raise UsageError(f"--seed: {arguments.model} has no parameter random_state, so leave out --seed")
        model.set_params(random_state=arguments.seed)
    path = _output(arguments.output)
    X, Y = _read(arguments.data, arguments)
    if not arguments.quiet:
        _say(f"{arguments.data}: {X.shape[0]:,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} labels")
    start = perf_counter()
    _set_run(model, n_jobs=arguments.jobs, verbose=int(_shows_progress(arguments)))
    if arguments.checkpoint is None:
        if arguments.piece != (1, 1):
            raise UsageError("--piece: the pieces are stored in a folder, so give --checkpoint too")
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


def _merge(arguments: argparse.Namespace) -> None:
    path = _output(arguments.output)
    model = shards.merge(arguments.folder)
    _set_run(model, n_jobs=None, verbose=0)
    model.save(path)


def _predict(arguments: argparse.Namespace) -> None:
    output = None if arguments.output is None else _output(arguments.output)
    model = _load(arguments)
    X, _ = _read(arguments.data, arguments)
    _check_width(X, model.n_features_in_, "features", arguments.data)
    with _writing(output) as file:
        for top in _topk(model, X, arguments.k, arguments):
            file.writelines(f"{line}\n" for line in _lines(top))


def _evaluate(arguments: argparse.Namespace) -> None:
    model = _load(arguments)
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
    scores = vstack(list(_topk(model, X, max(arguments.k), arguments)), format="csr")

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
        print(json.dumps({"rows": X.shape[0], **flat}, indent=2))
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
        "labels": f"{model._n_labels:,}" if hasattr(model, "classes_") else "none",
        "parameters": " ".join(parameters.split()),
    }
    rows |= {
        name: _describe(value)
        for name, value in vars(model).items()
        if name.endswith("_") and name not in ("classes_", "n_features_in_")
    }
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"{name:{width}}  {text}")


def _describe(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, csr_array | csc_array):
        used = np.count_nonzero(np.diff(value.indptr))
        density = value.nnz / max(1, math.prod(value.shape))
        lines = f"in {used:,} of {len(value.indptr) - 1:,} {'rows' if value.format == 'csr' else 'columns'}"
        return f"{kind} {value.shape} of {value.dtype}, {value.nnz:,} stored ({density:.2%}), {lines}"
    if isinstance(value, np.ndarray):
        text = f"{kind} {value.shape} of {value.dtype}"
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
    if not hasattr(model, "predict_topk"):
        raise ValueError(f"{arguments.model}: expected a classifier, got {type(model).__name__}")
    _set_run(model, n_jobs=arguments.jobs)
    return model


def _check_width(matrix: Any, width: int, what: str, path: str) -> None:
    """Raise an error if a data file and the model have different numbers of features or labels."""
    found = matrix.shape[1]
    if found != width:
        raise ValueError(f"{path}: expected {width:,} {what} as in the model, got {found:,}")


def _topk(model: Any, X: Any, k: int, arguments: argparse.Namespace) -> Iterator[csr_array]:
    """Predict block after block of rows, and yield the predictions of each block.

    A progress bar counts the rows.
    """
    n_rows = X.shape[0]
    with tqdm(total=n_rows, unit=" rows", disable=not _shows_progress(arguments)) as bar:
        for start in range(0, n_rows, _BLOCK):
            top = model.predict_topk(X[start : start + _BLOCK], k=k)
            yield top
            bar.update(top.shape[0])


def _lines(top: csr_array) -> Iterator[str]:
    rows = np.repeat(np.arange(top.shape[0]), np.diff(top.indptr))
    order = np.lexsort((top.indices, -top.data, rows))
    # numpy writes each score as the shortest decimal that is read back as the same float32 number.
    scores = top.data[order].astype(str).tolist()
    pairs = [f"{label}:{score}" for label, score in zip(top.indices[order].tolist(), scores, strict=True)]
    for begin, end in pairwise(top.indptr.tolist()):
        yield " ".join(pairs[begin:end])


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
