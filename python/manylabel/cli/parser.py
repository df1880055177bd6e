"""The options of the command line."""

from __future__ import annotations

import argparse
import importlib.metadata
from typing import Any, NoReturn

from manylabel.cli import demonstration, inspection, prediction, training
from manylabel.cli.messages import UsageError

__all__ = ["make_parser"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
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
        help="columns that contain the texts of a table; several columns are joined (default: text)",
    )
    reading.add_argument(
        "--labels", metavar="COLUMN", help="column that contains the label names of a table (default: labels)"
    )
    reading.add_argument(
        "--sep", default=";", metavar="TEXT", help='text between two label names in a cell (default: ";")'
    )

    def command(name: str, run: Any, help: str, *parents: _Parser) -> _Parser:
        added = commands.add_parser(name, help=help, description=f"{help}.", parents=parents)
        added.set_defaults(run=run)
        return added

    train = command("train", training.train, "Fit a model to a data file and save it", running, reading)
    train.add_argument(
        "--model",
        choices=training.MODELS,
        help="the method, one of: %(choices)s (default for tables of texts: label-tree)",
    )
    train.add_argument(
        "data",
        help="the training data: a file, a folder that datasets.convert wrote, or a folder of texts",
    )
    train.add_argument("-o", "--output", required=True, metavar="MODEL", help="the model file to write")
    train.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="set a parameter of the model, such as C=0.5 or estimator__C=0.5; this option can be repeated",
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
        help="fit only piece i and every N-th piece after it; start N processes with i = 1 to N and the same "
        "--checkpoint",
    )

    train.add_argument(
        "--calibrate",
        action="store_true",
        help="hold out rows to calibrate probabilities; see `predict --probabilities`",
    )
    train.add_argument(
        "--decide",
        choices=training.RULES,
        help="also fit a rule that chooses label sets for this measure; see `predict --sets`",
    )

    merge = command(
        "merge", training.merge, "Write a model file from the pieces that train --checkpoint stored"
    )
    merge.add_argument("folder", help="the folder that train --checkpoint wrote")
    merge.add_argument("-o", "--output", required=True, metavar="MODEL", help="the model file to write")

    predict = command("predict", prediction.predict, "Predict the best labels of every row", running, reading)
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
        help="the file to write (default: stdout); a line has the label:score pairs of a row, best first",
    )
    predict.add_argument(
        "--json", action="store_true", help="write a JSON object per row; only for models with label names"
    )

    evaluate = command(
        "evaluate",
        prediction.evaluate,
        "Compute quality measures of a model on a data file",
        running,
        reading,
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

    inspect = command("inspect", inspection.inspect, "Show the contents of a model file")
    inspect.add_argument("model", help="the model file")

    explain = command("explain", inspection.explain, "Show why a model gives a label its score", reading)
    explain.add_argument("model", help="the model file")
    explain.add_argument("label", help="the name of the label, or its number; labels count from 0")
    explain.add_argument(
        "row", help="a text or, with --data, the number of a row in the data file, counted from 0"
    )
    explain.add_argument("--data", metavar="DATA", help="a data file with the row")
    explain.add_argument("--json", action="store_true", help="write a JSON object instead of text")

    params = command("params", inspection.params, "Show the parameters of a method, or of a model file")
    params.add_argument("model", help=f"a model file, or one of: {', '.join(training.MODELS)}")

    diagnose = command(
        "doctor", inspection.diagnose, "Look for faults in data, and suggest a method", running, reading
    )
    diagnose.add_argument("data", help="the training data")
    diagnose.add_argument("--test", metavar="DATA", help="the test data, to look for faults of the split")
    diagnose.add_argument("--json", action="store_true", help="write a JSON object instead of text")

    demo = command(
        "demo",
        demonstration.demonstrate,
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
