"""Functions of the command line that read tables of texts, and that write predictions as lines of text."""

from __future__ import annotations

import inspect
import json
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.datasets.rows import has_rows
from manylabel.estimator.documentation import parameter_texts
from manylabel.estimator.names import named_indicator
from manylabel.tagging import read_texts

__all__ = [
    "is_table",
    "name_lines",
    "named_lines",
    "parameter_lines",
    "read_rows",
    "table_rows",
    "test_rows",
]

_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


def is_table(path: str) -> bool:
    """Return True if the path is a table of texts or a folder of texts. `read_texts` reads both.

    A folder that `manylabel.datasets.convert` wrote is not a folder of texts.
    """
    if Path(path).is_dir():
        return not has_rows(Path(path))
    return path.lower().removesuffix(".gz").endswith(_ENDINGS)


def read_rows(path: str, arguments: Namespace) -> Iterator[tuple[str, list[str]]]:
    """Read the texts and label names of a table, with the options ``--text``, ``--labels`` and ``--sep``."""
    return read_texts(path, arguments.text, arguments.labels, separator=arguments.sep)


def table_rows(path: str, arguments: Namespace) -> Iterator[tuple[str, list[str]]]:
    """Read a table of texts for a tagger. Raise an error if the file is not a table."""
    if not is_table(path):
        raise ValueError(
            f"{path}: expected a table of texts, such as a CSV file, since the model is a tagger"
        )
    return read_rows(path, arguments)


def test_rows(
    known: NDArray[Any], *tables: Iterable[tuple[str, list[str]]]
) -> tuple[list[str], list[csr_array]]:
    """Return the texts of the first table, and one indicator matrix of labels for each table.

    All matrices have the same columns. The first columns are the labels that the tagger knows. The remaining
    columns are all other labels that occur in the tables. If a text has one of these other labels, an
    evaluation counts the label as a true label that the tagger did not predict.
    """
    rows = [list(table) for table in tables]
    names = dict.fromkeys(known.tolist())
    for table in rows:
        for _, found in table:
            names.update(dict.fromkeys(found))
    every = list(names)
    return [text for text, _ in rows[0]], [
        named_indicator((found for _, found in table), every)[1] for table in rows
    ]


def named_lines(suggestions: Iterable[list[tuple[str, float]]], as_json: bool) -> Iterator[str]:
    """Return one line for each text: a JSON object, or "name:score" pairs that are separated by tabs."""
    for row in suggestions:
        # Scores are float32 numbers, which are written as the shortest decimals.
        pairs = [(name, str(np.float32(score))) for name, score in row]
        if as_json:
            labels = [{"label": name, "score": float(score)} for name, score in pairs]
            yield json.dumps({"labels": labels}, ensure_ascii=False)
        else:
            yield "\t".join(f"{name}:{score}" for name, score in pairs)


def name_lines(sets: Iterable[Iterable[str]], as_json: bool) -> Iterator[str]:
    """Return one line for each set of labels: a JSON object, or names that are separated by tabs."""
    for names in sets:
        yield json.dumps({"labels": list(names)}, ensure_ascii=False) if as_json else "\t".join(names)


def parameter_lines(estimator: Any) -> Iterator[str]:
    """Return lines that describe the parameters of an estimator class."""
    texts = parameter_texts(type(estimator))
    defaults = inspect.signature(type(estimator)).parameters
    for name, kind in estimator.parameters.items():
        yield f"{name}={defaults[name].default!r}"
        yield f"    {kind.documented}"
        yield f"    {texts.get(name, '').split('. ')[0].rstrip('.')}."
